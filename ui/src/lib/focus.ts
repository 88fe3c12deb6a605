/* The focus is never lost. Browsers give it to nobody once what has it goes away or is disabled, and a keyboard then starts
 * at the top of the page again. Here it goes on: to what takes that place, else to the next or the one before it in the same
 * region, else to where it was before that region; and back to a button that was disabled only while it was busy. */

const REGION = "dialog, form, section, aside, nav, .toasts, main";
const USABLE = "a[href], button, input, select, textarea, summary, [tabindex='0']";
const MOST_PLACES = 8;

interface Place {
  readonly element: HTMLElement;
  readonly region: HTMLElement | null;
  /** What could be used in the region at that time, in reading order, with `element`. */
  readonly around: readonly HTMLElement[];
}

const isShown = (one: HTMLElement): boolean => one.isConnected && one.getClientRects().length > 0;
const isUsable = (one: HTMLElement): boolean => isShown(one) && !one.matches(":disabled");
const usableIn = (region: HTMLElement): HTMLElement[] => [...region.querySelectorAll<HTMLElement>(USABLE)].filter(isUsable);

/** What stands where `element` stood, or nearest to it. */
function nearest({ element, region, around }: Place): HTMLElement | undefined {
  if (!region?.isConnected) return undefined;
  const all = usableIn(region);
  const at = around.indexOf(element);
  const after = around.slice(at + 1).find((one) => all.includes(one));
  const before = around.slice(0, Math.max(at, 0)).reverse().find((one) => all.includes(one));
  const here = after ? all[all.indexOf(after) - 1] : before && all[all.indexOf(before) + 1];
  return here && !around.includes(here) ? here : (after ?? before ?? all[0]);
}

/** Elements that are no controls can have it while they are the only ones left. */
function give(one: HTMLElement): void {
  if (!one.matches(`${USABLE}, [tabindex]`)) {
    one.tabIndex = -1;
    one.addEventListener("blur", () => one.removeAttribute("tabindex"), { once: true });
  }
  one.focus({ preventScroll: !one.matches(USABLE) });
}

/** The page, after a change of the address: a screen reader reads its title, and Tab goes on from there. */
export const focusPage = (): void => document.getElementById("main")?.focus({ preventScroll: true });

export function keepFocus(): void {
  let places: Place[] = []; // one for each region, the newest last
  let waits: Place | null = null; // its element is disabled, and its region has the focus until that ends
  const keep = (): void => {
    const last = waits ?? places.at(-1);
    const at = document.activeElement;
    if (!last || document.querySelector("dialog[open]")?.contains(at)) return;
    const { element, region } = last;
    const held = at === null || at === document.body || (waits && at === region) || (at === element && !isUsable(element));
    if (!held) {
      waits = null;
      return;
    }
    if (isUsable(element)) {
      if (!waits) return; // it was left
      waits = null;
      element.focus();
    } else if (element.isConnected && element.matches(":disabled") && region && isShown(region)) {
      if (waits) return;
      waits = last;
      give(region);
    } else {
      waits = null;
      places = places.filter((one) => one !== last);
      const next = nearest(last);
      if (next) give(next);
      else if (places.length > 0) back();
      else focusPage();
    }
  };
  const back = (): void => {
    for (const one of [...places].reverse()) {
      const next = isUsable(one.element) ? one.element : nearest(one);
      if (next) return give(next);
    }
    focusPage();
  };
  addEventListener("focusin", ({ target }) => {
    if (!(target instanceof HTMLElement) || target === waits?.region) return;
    waits = null;
    const region = target.closest<HTMLElement>(REGION);
    const around = region ? usableIn(region) : [];
    places = [...places.filter((one) => one.region !== region), { element: target, region, around }].slice(-MOST_PLACES);
  });
  // who points at nothing that could have it wants it nowhere
  addEventListener("pointerdown", ({ target }) => {
    if (target instanceof Element && !target.closest(`${USABLE}, label`)) places = [];
  });
  new MutationObserver(() => {
    keep();
    if (places.at(-1)?.element.matches(":disabled")) requestAnimationFrame(keep); // only then it is taken away
  }).observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["disabled", "hidden", "open"] });
}
