/* The keys, on `?`. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { pages } from "../lib/pages";
import { t } from "../text/text";
import { useApp } from "./app-context";

const mnemonic: Readonly<Record<string, string>> = { access: t` (keys)`, usage: t` (spent)`, alerts: t` (events)` };
const keys: [string[], string][] = [
  [["Ctrl", "K"], t`find a machine, device, model, page or action`],
  ...pages.map(({ page, name, key }): [string[], string] => [["g", key], t`go to ${name}${mnemonic[page] ?? ""}`]),
  [["Ctrl", "Z"], t`undo what was just asked for, while the corner of the page offers it`],
  [["/"], t`filter what the page lists; elsewhere, devices`],
  [["?"], t`this list`],
  [["Esc"], t`close, or clear the filter`],
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
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={({ currentTarget }) => (help.value = currentTarget.open)}>
      <div class="dialog-body">
        <h2 id="help-title">{t`Keys`}</h2>
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
              {t`Licences`}
            </a>
          )}
          <button class="btn" type="button" onClick={() => dialog.current?.close()}>
            {t`Close`}
          </button>
        </div>
      </div>
    </dialog>
  );
}
