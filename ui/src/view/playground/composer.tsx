/* Where a question is written: Enter sends it, Shift and Enter make a line. */
import { useEffect, useRef, useState } from "preact/hooks";

const LINES_PX = 200;

export function Composer({
  ready,
  closed,
  waits,
  busy,
  canAgain,
  send,
  stop,
  again,
}: {
  ready: boolean;
  /** What stands in the field while nobody answers. */
  closed: string;
  /** A model that is paused: what is sent is answered once it goes on. Null where it answers now. */
  waits: string | null;
  busy: boolean;
  canAgain: boolean;
  send: (text: string) => void;
  stop: () => void;
  again: () => void;
}) {
  const [text, setText] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, LINES_PX)}px`;
  }, [text]);
  const go = (): void => {
    if (!ready || busy || text.trim() === "") return;
    send(text);
    setText("");
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        go();
      }}
    >
      <textarea
        ref={field}
        rows={1}
        value={text}
        aria-label="Message"
        placeholder={!ready ? closed : waits ? `Message, answered once ${waits} goes on` : "Message"}
        disabled={!ready}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            go();
          } else if (event.key === "Escape" && busy) stop();
        }}
      />
      {busy ? (
        <button class="btn" type="button" onClick={stop}>
          Stop
        </button>
      ) : (
        <>
          {canAgain && (
            <button class="btn" type="button" disabled={!ready} onClick={again} title="Generate the last answer again">
              Again
            </button>
          )}
          <button class="btn primary" type="submit" disabled={!ready || text.trim() === ""}>
            Send
          </button>
        </>
      )}
    </form>
  );
}
