/* What this browser keeps of its being a node: who it is, and what its owner chose. If storage is refused (private
 * windows), nothing is kept, and the page is a new node each time that it is opened with an address. */
import type { Identity } from "./messages";

const NAME = "exogpu.lend";

export interface Kept {
  identity: Identity;
  name: string;
  limit_bytes: number;
  /** It was stopped by hand: it does not begin by itself. */
  paused: boolean;
}

function attempt<T>(action: () => T, otherwise: T): T {
  try {
    return action();
  } catch {
    return otherwise;
  }
}

export const readKept = (): Kept | null =>
  attempt(() => {
    const kept: unknown = JSON.parse(localStorage.getItem(NAME) ?? "null");
    return isKept(kept) ? kept : null;
  }, null);

/** False: the browser does not keep it. */
export const writeKept = (kept: Kept): boolean =>
  attempt(() => {
    localStorage.setItem(NAME, JSON.stringify(kept));
    return true;
  }, false);

export const forgetKept = (): void => attempt(() => localStorage.removeItem(NAME), undefined);

function isKept(kept: unknown): kept is Kept {
  if (!kept || typeof kept !== "object") return false;
  const { identity, name, limit_bytes, paused } = kept as Record<string, unknown>;
  if (!identity || typeof identity !== "object") return false;
  const { node_id, secret } = identity as Record<string, unknown>;
  return (
    typeof node_id === "string" && typeof secret === "string" && typeof name === "string" &&
    typeof limit_bytes === "number" && typeof paused === "boolean"
  );
}

/** The token in the address, which goes from there at once: it is to be in no history and on no screen. */
export function takeToken(): string | null {
  const token = /^#token=([\w]{1,128})$/.exec(location.hash)?.[1] ?? null;
  if (location.hash) history.replaceState(null, "", location.pathname);
  return token;
}
