/* The banner of a lost connection: since when, what still holds, when the next attempt is. */
import { now } from "../lib/clock";
import { age, clockTime, figure } from "../lib/format";
import type { LostCause } from "../state/state";
import { useApp } from "./app-context";
import { MarkIcon } from "./parts";

const causes: Record<LostCause, string> = {
  gone: "",
  shutdown: "The server said that it shuts down. ",
  slow: "The server closed it because this page was too slow to read. ",
  rate: "The server closed it because too many calls came from here. ",
  too_big: "The server closed it because a message was too big. ",
};

export function LostBanner() {
  const { state, server } = useApp();
  const { connection, loaded } = state.value;
  if (connection.phase !== "lost") return null;
  const { since, retryAt, waitMs, cause } = connection;
  const left = retryAt === null ? 0 : Math.max(0, retryAt - now.value);
  const share = retryAt === null || waitMs === 0 ? 100 : 100 - (left / waitMs) * 100;
  return (
    <div class="lost" role="alert" aria-label="Connection lost">
      <MarkIcon mark="offline" />
      <div>
        <b>No connection to the server for {age(now.value - since)}</b>
        <p>
          {causes[cause]}
          {loaded
            ? `What you see is from ${clockTime(since)}. What runs there does not need this page and goes on; ` +
              "nothing can be changed from here until it is back."
            : "Nothing has come from it yet. Is it running, and is this its address?"}
        </p>
      </div>
      <div class="acts" aria-hidden="false">
        <span class="small quiet again" aria-live="off">
          {retryAt === null ? "trying now" : `again in ${figure(Math.ceil(left / 1000))} s`}
        </span>
        <span class="retry" aria-hidden="true">
          <i style={{ "--v": share }} />
        </span>
        <button class="btn" type="button" onClick={() => server.tryNow()} disabled={retryAt === null}>
          Try now
        </button>
      </div>
    </div>
  );
}
