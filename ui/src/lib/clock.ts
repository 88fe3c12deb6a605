/* The time as views show it: a signal that moves twice a second while the page is seen. */
import { type ReadonlySignal, signal } from "@preact/signals";

const ticking = signal(Date.now());
/** The page's own clock, ms. */
export const now: ReadonlySignal<number> = ticking;

export function startClock(): void {
  const tick = (): void => {
    if (!document.hidden) ticking.value = Date.now();
  };
  setInterval(tick, 500);
  document.addEventListener("visibilitychange", tick);
}
