/* Keys of the whole page: Ctrl-K, Ctrl-Z, g and a letter, /, ?, Esc. Not while a dialog is open; all but Ctrl-K not while
 * something is being typed. In the filter, Esc clears it and Enter opens the only hit. */
import type { Signal } from "@preact/signals";
import { undoNewest } from "../command/toasts";
import { focusPage } from "../lib/focus";
import { openOnlyHit } from "../lib/open";
import { pages } from "../lib/pages";
import type { App } from "./app-context";

const G_MS = 1500;
const targets: Readonly<Record<string, string>> = Object.fromEntries(pages.map(({ page, key }) => [key, `#/${page}`]));

/** The filter field that is seen: the one in the head on a desk, the one above the list on a phone. */
function filterField(): HTMLInputElement | undefined {
  const fields = document.querySelectorAll<HTMLInputElement>("[data-filter]");
  return [...fields].find((field) => field.offsetParent !== null);
}

/** Once it is drawn. */
function focusFilter(frames = 60): void {
  const field = filterField();
  if (field) field.focus();
  else if (frames > 0) requestAnimationFrame(() => focusFilter(frames - 1));
}

/** Open a dialog; also one that was closed a moment ago, and whose close event is still to come. */
function show(shown: Signal<boolean>, dialog: string): void {
  const closing = shown.value ? document.querySelector<HTMLDialogElement>(`dialog${dialog}`) : null;
  if (closing) closing.showModal();
  else shown.value = true;
}

function clearFilter(field: HTMLInputElement | undefined): void {
  if (!field || field.value === "") return;
  field.value = "";
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

export function startKeys({ finding, help, current }: App): void {
  let pressedG = -Infinity; // by the time of the event: a page that is slow to handle both keys counts no less
  addEventListener("keydown", (event) => {
    if (current().chat) return; // there is nowhere to go
    if (document.querySelector("dialog[open]")) return;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k" && current().loaded) {
      show(finding, ".find");
      event.preventDefault();
    }
    const { target } = event;
    const typing = target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "z" && !typing) {
      if (undoNewest()) event.preventDefault();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement) return;
    if (target instanceof HTMLInputElement && target.type !== "checkbox") {
      if (event.key === "Escape" && "filter" in target.dataset) {
        clearFilter(target);
        focusPage();
      } else if (event.key === "Enter" && "filter" in target.dataset) openOnlyHit();
      return;
    }
    const afterG = event.timeStamp - pressedG < G_MS;
    pressedG = -Infinity;
    const goal = targets[event.key];
    if (afterG && goal) location.hash = goal;
    else if (event.key === "g") pressedG = event.timeStamp;
    else if (event.key === "?") show(help, ".help");
    else if (event.key === "Escape") clearFilter(filterField());
    else if (event.key === "/") {
      const field = filterField();
      if (field) field.focus();
      else {
        location.hash = "#/devices";
        focusFilter();
      }
      event.preventDefault();
    } else return;
  });
}
