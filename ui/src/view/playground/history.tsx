/* Conversations of this browser, and whether they are kept on the server as well. */
import { useRef, useState } from "preact/hooks";
import type { Refusal } from "../../command/tried";
import { now } from "../../lib/clock";
import { count, shortTime } from "../../lib/format";
import { saveFile } from "../../lib/save";
import { type Conversation, titleOf } from "../../state/chat";
import { type Imported, type Refused, exportOf } from "../../state/conversation/file";
import { MOST_KEPT } from "../../state/conversation/storage";
import { plural, t } from "../../text/text";
import { AskButton } from "../ask";
import { Panel, RefusalNote } from "../parts";
import type { Keeping } from "./conversations";
import { KeepingPart } from "./keeping";

function importedText({ added, known }: Imported): string {
  const parts = [added.length > 0 && t`${count(added.length, "conversation")} imported.`, known > 0 && plural(known, t`${count(known, "conversation")} of the file is here already.`, t`${count(known, "conversation")} of the file are here already.`)];
  return parts.filter(Boolean).join(" ") || t`The file holds only empty conversations.`;
}

export function History({
  all,
  open,
  busy,
  show,
  remove,
  removeAll,
  take,
  stored,
  keeping,
}: {
  all: readonly Conversation[];
  open: string;
  busy: boolean;
  show: (one: Conversation) => void;
  remove: (id: string) => Promise<Refusal | null>;
  removeAll: () => Promise<Refusal | null>;
  /** Import a file. */
  take: (file: File) => Promise<Imported | Refused>;
  /** Whether this browser's storage took the last change. */
  stored: boolean;
  keeping: Keeping;
}) {
  const chooser = useRef<HTMLInputElement>(null);
  const [note, setNote] = useState<string | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const importFile = async (file: File | undefined): Promise<void> => {
    if (!file) return;
    const done = await take(file);
    const refused = "what" in done;
    setRefusal(refused ? done : null);
    setNote(refused ? null : importedText(done));
  };
  return (
    <Panel title={t`Conversations`} class="history" aside={keeping.on ? t`also on the server` : t`in this browser`}>
      {all.length === 0 && <p class="panel-body small quiet">{t`None yet.`}</p>}
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
                {keeping.waiting.includes(one.id) && t`only here, `}
                {shortTime(one.at, now.value)}
              </span>
            </button>
            <button
              class="text-btn"
              type="button"
              disabled={busy}
              aria-label={t`Delete ${titleOf(one)}`}
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
      <p class="panel-body small" role="status" hidden={note === null && stored && all.length <= MOST_KEPT}>
        {note} {all.length > MOST_KEPT && t`This browser keeps the newest ${MOST_KEPT}.`}
        {!stored && t`This browser does not keep the last change: its storage is full, or off. Export saves what is here.`}
      </p>
      <div class="more acts">
        <input
          ref={chooser}
          type="file"
          hidden
          accept="application/json,.json"
          aria-label={t`File to import`}
          onChange={(event) => {
            void importFile(event.currentTarget.files?.[0]);
            event.currentTarget.value = "";
          }}
        />
        <button class="btn small-btn" type="button" disabled={busy} onClick={() => chooser.current?.click()}>
          {t`Import`}
        </button>
        {all.length > 0 && (
          <button class="btn small-btn" type="button" onClick={() => saveFile("exogpu-conversations.json", exportOf(all))}>
            {t`Export`}
          </button>
        )}
        {all.length > 1 && (
          <AskButton
            word={t`Delete all`}
            busyWord={t`Deleting`}
            label={t`Delete all conversations`}
            title={t`Delete all conversations?`}
            confirm={t`Delete`}
            why={busy ? t`An answer is being written.` : null}
            run={removeAll}
          >
            <p>
              {keeping.on
                ? t`They leave this browser, the server, and every other browser that keeps them there with this token.`
                : t`They are only in this browser, and gone after this.`}
            </p>
          </AskButton>
        )}
      </div>
      <KeepingPart keeping={keeping} busy={busy} empty={all.length === 0} />
    </Panel>
  );
}
