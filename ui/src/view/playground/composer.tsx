/* Where a question is written: Enter sends it, Shift and Enter make a line. Files go with it as text. */
import { useEffect, useRef, useState } from "preact/hooks";
import { type Attached, attachedFrom, withFiles } from "../../state/conversation/attach";
import { t } from "../../text/text";

const LINES_PX = 200;
const MOST_FILES = 8;

export function Composer({
  ready,
  closed,
  waits,
  busy,
  send,
  stop,
}: {
  ready: boolean;
  /** What stands in the field while nobody answers. */
  closed: string;
  /** A model that is paused: what is sent is answered once it goes on. Null where it answers now. */
  waits: string | null;
  busy: boolean;
  send: (text: string) => void;
  stop: () => void;
}) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState<readonly Attached[]>([]);
  const [fault, setFault] = useState<string | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, LINES_PX)}px`;
  }, [text]);
  const empty = text.trim() === "" && files.length === 0;
  const go = (): void => {
    if (!ready || busy || empty) return;
    send(withFiles(text, files));
    setText("");
    setFiles([]);
    setFault(null);
  };
  const attach = async (chosen: Iterable<File>): Promise<void> => {
    setFault(null);
    for (const file of chosen) {
      const one = attachedFrom(file.name, new Uint8Array(await file.slice(0, 1 << 20).arrayBuffer()));
      if (typeof one === "string") setFault(one);
      else setFiles((all) => [...all.filter(({ name }) => name !== one.name), one].slice(-MOST_FILES));
    }
    field.current?.focus();
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        go();
      }}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        if (ready && event.dataTransfer) void attach(event.dataTransfer.files);
      }}
    >
      {(files.length > 0 || fault) && (
        <div class="attached">
          {files.map(({ name }) => (
            <span class="chip" key={name}>
              {name}
              <button class="text-btn" type="button" aria-label={t`Leave out ${name}`} onClick={() => setFiles((all) => all.filter((one) => one.name !== name))}>
                <svg class="mini" aria-hidden="true">
                  <use href="#i-close" />
                </svg>
              </button>
            </span>
          ))}
          {fault && (
            <p class="small crit" role="alert">
              {fault}
            </p>
          )}
        </div>
      )}
      <textarea
        ref={field}
        rows={1}
        value={text}
        aria-label={t`Message`}
        placeholder={!ready ? closed : waits ? t`Message, answered once ${waits} goes on` : t`Message`}
        disabled={!ready}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setFault(null);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            go();
          } else if (event.key === "Escape" && busy) stop();
        }}
      />
      <input
        ref={chooser}
        type="file"
        hidden
        multiple
        aria-label={t`Files to attach`}
        onChange={(event) => {
          void attach([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
      <button class="btn" type="button" disabled={!ready} title={t`Text files that go with the message`} onClick={() => chooser.current?.click()}>
        {t`Attach`}
      </button>
      {busy ? (
        <button
          class="btn"
          type="button"
          onClick={() => {
            stop();
            field.current?.focus(); // the button goes away
          }}
        >
          {t`Stop`}
        </button>
      ) : (
        <button class="btn primary" type="submit" disabled={!ready || empty}>
          {t`Send`}
        </button>
      )}
    </form>
  );
}
