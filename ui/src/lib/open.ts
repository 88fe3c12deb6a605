/* A row leads where its name leads: by a click anywhere on it that is on nothing else, and by Enter in the filter where it
 * is the only one. */

const ROWS = "tbody tr, .model-row, .run-row";
const NAME = "th[scope=row] a[href], th[scope=row] button[aria-pressed], b > a[href]";
/** What a click is for by itself. */
const OWN = "a, button, input, select, textarea, label, summary, dialog";

export function openRows(): void {
  addEventListener("click", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (!(event.target instanceof Element) || event.target.closest(OWN)) return;
    if (String(getSelection())) return; // text is marked, not a row meant
    event.target.closest(ROWS)?.querySelector<HTMLElement>(NAME)?.click();
  });
}

/** Opens what the filter of devices or models has left, if that is one. */
export function openOnlyHit(): void {
  const hits = document.querySelectorAll<HTMLElement>(".devices tbody th a[href], .sheet > a.cell, .models b > a[href]");
  if (hits.length === 1) hits[0]!.click();
}
