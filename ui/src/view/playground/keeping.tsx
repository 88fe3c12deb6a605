/* Keeping conversations on the server: the switch, what it means, and how far it is. */
import { count, fullTime } from "../../lib/format";
import { plural, t } from "../../text/text";
import { AskButton } from "../ask";
import { RefusalNote } from "../parts";
import type { Keeping } from "./conversations";

export function KeepingPart({ keeping, busy, empty }: { keeping: Keeping; busy: boolean; empty: boolean }) {
  if (keeping.days === 0 && !keeping.on) return null;
  return (
    <div class="keeping more">
      <label class="check">
        <input type="checkbox" checked={keeping.on} onChange={(event) => keeping.turn(event.currentTarget.checked)} />
        <span>{t`Keep conversations on the server`}</span>
      </label>
      <p class="small quiet">
        {t`Every browser with this token and this switch on then has them; the server stores them encrypted and deletes them ${when(keeping)}, but whoever runs its machine could read them.`}
      </p>
      <div role="status">
        {keeping.on && (!empty || !keeping.live) && <p class="small">{howFar(keeping)}</p>}
        {keeping.forked.map((title) => (
          <p class="small" key={title}>
            {t`“${title}” was changed in another browser as well. Both are here now: the other one, and yours as a copy.`}
          </p>
        ))}
      </div>
      {keeping.forked.length > 0 && (
        <button class="btn small-btn" type="button" onClick={keeping.noted}>
          {t`Understood`}
        </button>
      )}
      <RefusalNote refusal={keeping.on ? keeping.round.refusal : null} />
      {!keeping.on && keeping.round.held > 0 && <Left keeping={keeping} busy={busy} />}
    </div>
  );
}

/** Whatever comes first: the token's end, or that nobody changes them. */
const when = ({ days, tokenEnds }: Keeping): string =>
  tokenEnds === null
    ? t`${count(days, "day")} after their last change, or with the token`
    : t`when this token ends, ${fullTime(tokenEnds)}`;

function howFar({ live, round, waiting }: Keeping): string {
  if (!live || round.offline)
    return t`There is no connection to the server. What you change stays in this browser, and is sent when the connection is back.`;
  if (waiting.length === 0) return t`The server has all of them.`;
  const only = count(waiting.length, "conversation");
  return round.refusal
    ? plural(waiting.length, t`${only} is only in this browser.`, t`${only} are only in this browser.`)
    : plural(waiting.length, t`${only} is only in this browser yet.`, t`${only} are only in this browser yet.`);
}

/** The switch is off, and something is still there. */
function Left({ keeping, busy }: { keeping: Keeping; busy: boolean }) {
  const { held } = keeping.round;
  return (
    <>
      <p class="small">
        {plural(
          held,
          t`The server still keeps ${count(held, "conversation")} of this token, and deletes it ${when(keeping)}.`,
          t`The server still keeps ${count(held, "conversation")} of this token, and deletes them ${when(keeping)}.`,
        )}
      </p>
      <AskButton
        word={t`Delete there`}
        busyWord={t`Deleting`}
        label={t`Delete the conversations on the server`}
        title={t`Delete the conversations on the server?`}
        confirm={t`Delete`}
        why={busy ? t`An answer is being written.` : keeping.live ? null : t`There is no connection to the server.`}
        run={keeping.forget}
      >
        <p>
          {t`They leave the server, and every other browser that keeps them there with this token. What is in this browser stays in this browser.`}
        </p>
      </AskButton>
    </>
  );
}
