/* A hidden tab draws nothing: what changes while nobody sees the page is rendered once, when it is seen again. */
import { options } from "preact";

export function renderWhenSeen(): void {
  let waiting: (() => void) | null = null;
  options.debounceRendering = (renderAll) => {
    if (document.hidden) waiting = renderAll;
    else queueMicrotask(renderAll);
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || !waiting) return;
    const renderAll = waiting;
    waiting = null;
    renderAll();
  });
}
