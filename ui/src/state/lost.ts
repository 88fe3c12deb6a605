/* What a page without a connection may say of the server and of what ran there. Pure. */
import { t } from "../text/text";
import type { LostCause } from "./state";

const causes: Record<LostCause, string> = {
  gone: "",
  shutdown: t`The server has shut down. `,
  slow: t`The server closed the connection because this page was too slow to read. `,
  rate: t`The server closed the connection because too many calls came from here. `,
  too_big: t`The server closed the connection because a message was too big. `,
};

/** What became of models and sessions: known where the server said why it closed the connection. */
const work: Record<LostCause, string> = {
  gone: t`If only the connection is lost, models and sessions go on there. If the server has stopped, their answers have ended; loaded models come back when it starts again.`,
  shutdown: t`Answers and sessions have ended with it. Models that were loaded come back when it starts again.`,
  slow: t`Models and sessions go on there.`,
  rate: t`Models and sessions go on there.`,
  too_big: t`Models and sessions go on there.`,
};

/** `from`: the time of the last values, as text; null: none have come yet. */
export function lostText(cause: LostCause, from: string | null): string {
  if (from === null) return t`${causes[cause]}Nothing has come from it yet. Is it running, and is this its address?`;
  return t`${causes[cause]}What you see is from ${from}. ${work[cause]} Nothing can be changed from here until the connection is back.`;
}
