/* The toasts, in the corner of the page. They count while nobody points at them and none of them has the focus. */
import { useEffect, useRef } from "preact/hooks";
import { type Toast, announced, count, dismiss, hasten, toasts, undo } from "../command/toasts";
import { t } from "../text/text";
import { MarkIcon, RefusalNote } from "./parts";

const COUNT_MS = 250;

/** Is somebody at it? On a screen that is touched, the last touch would count as pointing for ever. */
const isVisited = (list: HTMLElement): boolean =>
  list.contains(document.activeElement) || (matchMedia("(hover: hover)").matches && list.matches(":hover"));

export function Toasts() {
  const list = useRef<HTMLUListElement>(null);
  const all = toasts.value;
  const counts = all.some((one) => one.stage === "waiting" || one.stage === "offered");
  useEffect(() => {
    if (!counts) return;
    let last = performance.now();
    const timer = setInterval(() => {
      const now = performance.now();
      if (list.current && !isVisited(list.current)) count(now - last);
      last = now;
    }, COUNT_MS);
    return () => clearInterval(timer);
  }, [counts]);
  return (
    <>
      <p class="sr toast-said" role="status">
        {announced.value}
      </p>
      {all.length > 0 && (
        <ul class="toasts" ref={list} aria-label={t`Undo`}>
          {all.map((one) => (
            <li key={one.key}>
              <One toast={one} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function One({ toast }: { toast: Toast }) {
  const { key } = toast;
  switch (toast.stage) {
    case "waiting": {
      const { text, note, act } = toast.wish;
      return (
        <>
          <p class="lead">
            {t`${text} in ${Math.ceil(toast.leftMs / 1000)} s`}
          </p>
          <p class="small quiet">{note}</p>
          <p class="acts">
            <UndoButton toast={toast} what={text} />
            <button class="btn plain" type="button" onClick={() => hasten(key)}>
              {t`${act} now`}
            </button>
          </p>
        </>
      );
    }
    case "offered":
      return (
        <>
          <p class="lead">{toast.done.text}</p>
          <p class="small quiet">{toast.done.note}</p>
          <p class="acts">
            <UndoButton toast={toast} what={toast.done.text} />
            <CloseButton id={key} />
          </p>
        </>
      );
    case "busy":
      return (
        <p class="lead">
          <MarkIcon mark="stale" class="mini" /> {toast.text}
        </p>
      );
    case "refused":
      return (
        <>
          <p class="lead">{toast.text}</p>
          <RefusalNote refusal={toast.refusal} />
          <p class="acts">
            <CloseButton id={key} />
          </p>
        </>
      );
  }
}

const UndoButton = ({ toast, what }: { toast: Toast; what: string }) => (
  <button class="btn primary" type="button" aria-keyshortcuts="Control+Z" aria-label={t`Undo: ${what}`} onClick={() => undo(toast.key)}>
    {t`Undo`}
  </button>
);

const CloseButton = ({ id }: { id: string }) => (
  <button class="btn plain" type="button" onClick={() => dismiss(id)}>
    {t`Close`}
  </button>
);
