/* Conversations of this browser. */
import { now } from "../../lib/clock";
import { shortTime } from "../../lib/format";
import { type Conversation, titleOf } from "../../state/chat";
import { AskButton } from "../ask";
import { Panel } from "../parts";

export function History({
  all,
  open,
  busy,
  show,
  remove,
  removeAll,
}: {
  all: readonly Conversation[];
  open: string;
  busy: boolean;
  show: (one: Conversation) => void;
  remove: (id: string) => void;
  removeAll: () => void;
}) {
  if (all.length === 0) return null;
  return (
    <Panel title="Conversations" class="history" aside="in this browser">
      <ul class="rows">
        {all.map((one) => (
          <li key={one.id}>
            <button
              class="history-open"
              type="button"
              disabled={busy}
              aria-current={one.id === open ? "true" : undefined}
              onClick={() => show(one)}
            >
              <span class="clip">{titleOf(one)}</span>
              <span class="label">{shortTime(one.at, now.value)}</span>
            </button>
            <button class="text-btn" type="button" disabled={busy} aria-label={`Delete ${titleOf(one)}`} onClick={() => remove(one.id)}>
              <svg class="mini" aria-hidden="true">
                <use href="#i-close" />
              </svg>
            </button>
          </li>
        ))}
      </ul>
      {all.length > 1 && (
        <div class="more">
          <AskButton
            word="Delete all"
            busyWord="Deleting"
            label="Delete all conversations"
            title="Delete all conversations?"
            confirm="Delete"
            why={busy ? "An answer is being written." : null}
            run={async () => {
              removeAll();
              return null;
            }}
          >
            <p>They are only in this browser, and gone after this.</p>
          </AskButton>
        </div>
      )}
    </Panel>
  );
}
