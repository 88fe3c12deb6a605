/* The keys, on `?`. */
import { useEffect, useRef } from "preact/hooks";
import { useApp } from "./app-context";

const keys: [string[], string][] = [
  [["g", "o"], "go to Overview"],
  [["g", "d"], "go to Devices"],
  [["g", "t"], "go to Topology"],
  [["g", "m"], "go to Models"],
  [["g", "p"], "go to Playground"],
  [["g", "a"], "go to Allocations"],
  [["g", "k"], "go to Access (keys)"],
  [["g", "e"], "go to Alerts (events)"],
  [["g", "u"], "go to Audit"],
  [["g", "l"], "go to Logs"],
  [["/"], "filter devices, or the audit log or the server's log on its page"],
  [["?"], "this list"],
  [["Esc"], "close, or clear the filter"],
];

export function Help() {
  const { help } = useApp();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
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
