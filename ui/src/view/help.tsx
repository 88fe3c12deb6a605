/* The keys, on `?`. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { pages } from "../lib/pages";
import { useApp } from "./app-context";

const mnemonic: Readonly<Record<string, string>> = { access: " (keys)", usage: " (spent)", alerts: " (events)" };
const keys: [string[], string][] = [
  [["Ctrl", "K"], "find a machine, device, model, page or action"],
  ...pages.map(({ page, name, key }): [string[], string] => [["g", key], `go to ${name}${mnemonic[page] ?? ""}`]),
  [["Ctrl", "Z"], "undo what was just asked for, while the corner of the page offers it"],
  [["/"], "filter devices, or the audit log or the server's log on its page"],
  [["?"], "this list"],
  [["Esc"], "close, or clear the filter"],
];

export function Help() {
  const { help } = useApp();
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    if (help.value) dialog.current?.showModal();
  }, [help.value]);
  if (!help.value) return null;
  const licenses = document.documentElement.dataset["licenses"];
  return (
    <dialog ref={dialog} aria-labelledby="help-title" onClose={() => (help.value = false)}>
      <div class="dialog-body">
        <h2 id="help-title">Keys</h2>
        <dl class="keys">
          {keys.map(([strokes, what]) => (
            <>
              <dt>
                {strokes.map((stroke) => (
                  <kbd key={stroke}>{stroke}</kbd>
                ))}
              </dt>
              <dd>{what}</dd>
            </>
          ))}
        </dl>
        <div class="dialog-acts">
          {licenses && (
            <a class="btn plain" href={licenses} target="_blank" rel="noreferrer">
              Licences
            </a>
          )}
          <button class="btn" type="button" onClick={() => dialog.current?.close()}>
            Close
          </button>
        </div>
      </div>
    </dialog>
  );
}
