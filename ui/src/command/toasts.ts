/* Toasts: what was just done or is about to be done, each with the way back.
 *
 * An action with an opposite (drain) is done at once, and its toast offers the opposite. An action without one (stop,
 * remove) is done once the toast has counted down; until then Undo leaves everything as it is. The view counts: see
 * count(). When the page is hidden or left, and before a log-out, actions that still wait are done at once. */
import { signal } from "@preact/signals";
import { t } from "../text/text";
import type { Refusal } from "./tried";

/** How long a wish waits. */
export const WAIT_MS = 5_000;
/** How long the opposite is offered. */
export const OFFER_MS = 10_000;
/** The longest that a log-out waits for answers. */
export const FLUSH_MS = 2_000;
/** The most that one step counts: a page that stood still takes nobody's time to think away. */
const STEP_MAX_MS = 1_000;

type Run = () => Promise<Refusal | null>;

/** Something that is done later. */
export interface Wish {
  /** The id of what it is about. */
  readonly key: string;
  /** "small stops", before "in 5 s" */
  readonly text: string;
  /** What that brings about. */
  readonly note: string;
  /** "Stop": on the button that does not wait. */
  readonly act: string;
  /** "Stopping small" */
  readonly busy: string;
  readonly run: Run;
}

/** Something that is done already and can be taken back. */
export interface Done {
  readonly key: string;
  /** "GPU is draining" */
  readonly text: string;
  readonly note: string;
  /** "Returning GPU to service": while it is taken back. */
  readonly busy: string;
  readonly undo: Run;
}

export type Toast =
  | { readonly stage: "waiting"; readonly key: string; readonly wish: Wish; readonly leftMs: number }
  | { readonly stage: "offered"; readonly key: string; readonly done: Done; readonly leftMs: number }
  | { readonly stage: "busy"; readonly key: string; readonly text: string }
  | { readonly stage: "refused"; readonly key: string; readonly text: string; readonly refusal: Refusal };

/** Oldest first. */
export const toasts = signal<readonly Toast[]>([]);
/** What a screen reader is told: the newest toast, once and without its count, or the newest alert. */
export const announced = signal("");

const ended = new Map<string, Promise<void>>(); // of those that are busy

const find = (key: string): Toast | undefined => toasts.value.find((one) => one.key === key);

function put(next: Toast): void {
  const known = toasts.value.some((one) => one.key === next.key);
  toasts.value = known ? toasts.value.map((one) => (one.key === next.key ? next : one)) : [...toasts.value, next];
}

export function dismiss(key: string): void {
  toasts.value = toasts.value.filter((one) => one.key !== key);
  if (toasts.value.length === 0) announced.value = ""; // so that the same is said again
}

/** Runs it; it goes when that was done, and says why when it was not. */
function perform(key: string, text: string, run: Run): void {
  put({ stage: "busy", key, text });
  const end = run().then((refusal) => {
    ended.delete(key);
    if (refusal) put({ stage: "refused", key, text, refusal });
    else dismiss(key);
  });
  ended.set(key, end);
}

/** Do it once the time is over. */
export function later(wish: Wish): void {
  if (isAsked(wish.key)) return;
  put({ stage: "waiting", key: wish.key, wish, leftMs: WAIT_MS });
  announced.value = t`${wish.text} in ${WAIT_MS / 1000} seconds. ${wish.note} Control Z undoes this.`;
}

/** It was done: offer the way back for a while. */
export function offer(done: Done): void {
  put({ stage: "offered", key: done.key, done, leftMs: OFFER_MS });
  announced.value = t`${done.text}. ${done.note} Control Z undoes this.`;
}

/** Is it about to be done, or being done? */
export function isAsked(key: string): boolean {
  const stage = find(key)?.stage;
  return stage === "waiting" || stage === "busy";
}

/** Do what waits now. */
export function hasten(key: string): void {
  const toast = find(key);
  if (toast?.stage === "waiting") perform(key, toast.wish.busy, toast.wish.run);
}

export function undo(key: string): void {
  const toast = find(key);
  if (toast?.stage === "waiting") {
    dismiss(key);
    announced.value = t`Undone: ${toast.wish.text}.`;
  } else if (toast?.stage === "offered") {
    announced.value = `${toast.done.busy}.`;
    perform(key, toast.done.busy, toast.done.undo);
  }
}

/** The newest that can be undone. False: there is none. */
export function undoNewest(): boolean {
  const newest = toasts.value.filter((one) => one.stage === "waiting" || one.stage === "offered").at(-1);
  if (newest) undo(newest.key);
  return newest !== undefined;
}

/** So much time has passed in which nobody was at the toasts. */
export function count(ms: number): void {
  const passed = Math.min(ms, STEP_MAX_MS);
  for (const one of toasts.value) {
    if (one.stage !== "waiting" && one.stage !== "offered") continue;
    if (one.leftMs > passed) put({ ...one, leftMs: one.leftMs - passed });
    else if (one.stage === "waiting") hasten(one.key);
    else dismiss(one.key);
  }
}

/** Do all that waits, now. Resolves when it is done or refused, and after FLUSH_MS in any case. */
export async function flush(): Promise<void> {
  for (const one of toasts.value) hasten(one.key);
  if (ended.size === 0) return;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const enough = new Promise<void>((resolve) => (timer = setTimeout(resolve, FLUSH_MS)));
  await Promise.race([Promise.allSettled(ended.values()), enough]);
  clearTimeout(timer);
}

/** Nothing waits in a page that nobody sees. Firefox no longer sends what is said at "pagehide", others know no "beforeunload". */
export function flushWhenHidden(): void {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) void flush();
  });
  addEventListener("pagehide", () => void flush());
  addEventListener("beforeunload", () => void flush());
}
