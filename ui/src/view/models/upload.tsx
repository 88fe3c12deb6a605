/* Files of this machine for the server: chosen, or dropped on the page; what is wrong with them; and how to go on. */
import { useEffect, useRef, useState } from "preact/hooks";
import { dismiss, isSending, sending, upload } from "../../command/upload";
import type { Model } from "../../lib/api.gen";
import { sentence } from "../../lib/format";
import { route } from "../../lib/route";
import { uploadOf } from "../../state/models";
import { obstacle } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { MarkIcon, Panel, RefusalNote } from "../parts";

export function ChooseFiles({ word, label, class: name = "" }: { word: string; label?: string; class?: string }) {
  const app = useApp();
  const input = useRef<HTMLInputElement>(null);
  const why = obstacle(app.state.value);
  const chosen = (): void => {
    for (const file of input.current?.files ?? []) void upload(app, file);
    if (route.value.page !== "models") location.hash = "#/models"; // where it is told how far they are
    if (input.current) input.current.value = ""; // so that the same file can be chosen again
  };
  return (
    <>
      <button
        class={`btn ${name}`}
        type="button"
        disabled={why !== null}
        title={why ?? undefined}
        aria-label={label}
        onClick={() => input.current?.click()}
      >
        {word}
      </button>
      <input ref={input} type="file" accept=".gguf" multiple hidden aria-label={label ?? word} onChange={chosen} />
    </>
  );
}

const isStalled = (model: Model): boolean => {
  const file = uploadOf(model);
  return file !== null && model.progress?.step === "uploading" && !isSending(file);
};

/** How far it is; of an upload that may have stopped, not how fast. */
export const progressOf = (model: Model): Model["progress"] =>
  model.progress && isStalled(model) ? { ...model.progress, bytes_per_s: null } : model.progress;

/** An upload that this page does not send: its file is chosen again, as after the page was loaded again. */
export function GoOn({ model }: { model: Model }) {
  const file = uploadOf(model);
  if (file === null || !isStalled(model)) return null;
  return (
    <span class="small warm trouble">
      <MarkIcon mark="throttled" class="mini" />
      <span>
        {t`This page does not send it. If no other page does, choose ${file} again to go on.`}{" "}
        <ChooseFiles word={t`Choose the file`} label={t`Choose ${file} again`} class="small-btn" />
      </span>
    </span>
  );
}

/** What was refused, or waits. How far the others are stands with their models. */
export function Uploads() {
  const { state } = useApp();
  const { models } = state.value;
  const told = (id: string | null): boolean => id !== null && (models[id]?.state ?? "failed") === "failed"; // beside the model
  const all = Object.values(sending.value).filter((one) => (one.refusal && !told(one.modelId)) || one.waits);
  if (all.length === 0) return null;
  return (
    <Panel title={t`Uploads`}>
      <ul class="rows" aria-live="polite">
        {all.map((one) => (
          <li key={one.file} class="upload-row">
            <b class="clip">{one.file}</b>
            {one.refusal ? (
              <>
                <RefusalNote refusal={{ ...one.refusal, what: sentence(one.refusal.what) }} />
                <button class="btn small-btn" type="button" aria-label={t`Dismiss ${one.file}`} onClick={() => dismiss(one.file)}>
                  {t`Dismiss`}
                </button>
              </>
            ) : (
              <span class="small warm">{t`The connection is lost. The upload goes on when it is back.`}</span>
            )}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;

/** The whole page takes files while it is shown. */
export function DropZone() {
  const app = useApp();
  const [over, setOver] = useState(false);
  const why = obstacle(app.state.value);
  useEffect(() => {
    const drag = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      event.preventDefault(); // else the browser opens the file in place of this page
      if (event.dataTransfer) event.dataTransfer.dropEffect = why ? "none" : "copy";
      setOver(true);
    };
    const leave = (event: DragEvent): void => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(false);
      if (!why) for (const file of event.dataTransfer?.files ?? []) void upload(app, file);
    };
    addEventListener("dragover", drag);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", drag);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, [why]);
  return over ? (
    <div class="drop-zone" aria-hidden="true">
      <p>{why ?? t`Drop .gguf files to upload them to the server`}</p>
    </div>
  ) : null;
}
