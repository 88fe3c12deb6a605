/* The banner of a lost connection: since when, what still holds, when the next attempt is. */
import { now } from "../lib/clock";
import { age, clockTime, figure } from "../lib/format";
import { lostText } from "../state/lost";
import { t } from "../text/text";
import { useApp } from "./app-context";
import { MarkIcon } from "./parts";
import { Servers } from "./servers/lazy";

export function LostBanner() {
  const { state, server } = useApp();
  const { connection, loaded } = state.value;
  if (connection.phase !== "lost") return <Servers as="nothing" />;
  const { since, retryAt, waitMs, cause } = connection;
  const left = retryAt === null ? 0 : Math.max(0, retryAt - now.value);
  const share = retryAt === null || waitMs === 0 ? 100 : 100 - (left / waitMs) * 100;
  return (
    <div class="lost" role="alert" aria-label={t`Connection lost`}>
      <MarkIcon mark="offline" />
      <div>
        <Servers as="lost">
          <b>
            {t`No connection to the server`}{" "}<span aria-live="off">{t`for ${age(now.value - since)}`}</span>
          </b>
          <p>{lostText(cause, loaded ? clockTime(since) : null)}</p>
        </Servers>
      </div>
      <div class="acts" aria-hidden="false">
        <span class="small quiet again" aria-live="off">
          {retryAt === null ? t`trying now` : t`again in ${figure(Math.ceil(left / 1000))} s`}
        </span>
        <span class="retry" aria-hidden="true">
          <i style={{ "--v": share }} />
        </span>
        <button class="btn" type="button" onClick={() => server.tryNow()} disabled={retryAt === null}>
          {t`Try now`}
        </button>
      </div>
    </div>
  );
}
