/* A button that asks for confirmation: it says what its command does. */
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import type { Refusal } from "../command/tried";
import { t } from "../text/text";
import { RefusalNote } from "./parts";

export function AskButton({
  word,
  busyWord,
  label,
  title,
  confirm,
  why,
  run,
  class: name = "small-btn",
  children,
}: {
  word: string;
  /** While it runs. */
  busyWord: string;
  /** The button's text for screen readers. */
  label: string;
  title: string;
  confirm: string;
  /** Why it cannot be done now, or null. */
  why: string | null;
  run: () => Promise<Refusal | null>;
  class?: string;
  children: ComponentChildren;
}) {
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  const go = async (): Promise<void> => {
    dialog.current?.close();
    setBusy(true);
    setRefusal(await run());
    setBusy(false);
  };
  return (
    <>
      <button
        class={`btn ${name}`}
        type="button"
        disabled={why !== null || busy}
        title={why ?? undefined}
        aria-label={label}
        onClick={() => dialog.current?.showModal()}
      >
        {busy ? busyWord : word}
      </button>
      <RefusalNote refusal={refusal} />
      <dialog ref={dialog} aria-label={title}>
        <div class="dialog-body">
          <h2>{title}</h2>
          {children}
          <div class="dialog-acts">
            <button class="btn" type="button" onClick={() => dialog.current?.close()}>
              {t`Cancel`}
            </button>
            <button class="btn primary" type="button" onClick={() => void go()}>
              {confirm}
            </button>
          </div>
        </div>
      </dialog>
    </>
  );
}
