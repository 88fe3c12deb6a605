/* Conversations of this browser, and whether they are kept on the server as well. */
import { useState } from "preact/hooks";
import type { Refusal } from "../../command/tried";
import { now } from "../../lib/clock";
import { shortTime } from "../../lib/format";
import { saveFile } from "../../lib/save";
import { type Conversation, titleOf } from "../../state/chat";
import { exportOf } from "../../state/keeping";
import { AskButton } from "../ask";
import { Panel, RefusalNote } from "../parts";
import type { Keeping } from "./conversations";
import { KeepingPart } from "./keeping";

export function History({
  all,
  open,
  busy,
  show,
  remove,
  removeAll,
  keeping,
}: {
  all: readonly Conversation[];
  open: string;
  busy: boolean;
  show: (one: Conversation) => void;
  remove: (id: string) => Promise<Refusal | null>;
  removeAll: () => Promise<Refusal | null>;
  keeping: Keeping;
}) {
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  if (all.length === 0 && keeping.days === 0) return null;
  return (
    <Panel title="Conversations" class="history" aside={keeping.on ? "also on the server" : "in this browser"}>
      {all.length === 0 && <p class="panel-body small quiet">None yet.</p>}
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
              <span class="label">
                {keeping.waiting.includes(one.id) && "only here, "}
                {shortTime(one.at, now.value)}
              </span>
            </button>
            <button
              class="text-btn"
              type="button"
              disabled={busy}
              aria-label={`Delete ${titleOf(one)}`}
              onClick={() => void remove(one.id).then(setRefusal)}
            >
              <svg class="mini" aria-hidden="true">
                <use href="#i-close" />
              </svg>
            </button>
          </li>
        ))}
      </ul>
      <RefusalNote refusal={refusal} />
      {all.length > 0 && (
        <div class="more acts">
          <button class="btn small-btn" type="button" onClick={() => saveFile("exogpu-conversations.json", exportOf(all))}>
            Export
          </button>
          {all.length > 1 && (
            <AskButton
              word="Delete all"
              busyWord="Deleting"
              label="Delete all conversations"
              title="Delete all conversations?"
              confirm="Delete"
              why={busy ? "An answer is being written." : null}
              run={removeAll}
            >
              <p>
                {keeping.on
                  ? "They leave this browser, the server, and every other browser that keeps them there with this token."
                  : "They are only in this browser, and gone after this."}
              </p>
            </AskButton>
          )}
        </div>
      )}
      <KeepingPart keeping={keeping} busy={busy} empty={all.length === 0} />
    </Panel>
  );
}
