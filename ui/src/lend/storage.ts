/* What this browser keeps of its being a node: who it is, and what its owner chose. If storage is refused (private
 * windows), nothing is kept, and the page is a new node each time that it is opened with an address. */
import { canKeep } from "./gpu/store";
import type { Identity, Rest } from "./messages";

const NAME = "exogpu.lend";

export interface Kept {
  identity: Identity;
  name: string;
  limit_bytes: number;
  /** Of weights of models; 0: nothing, also where the page that was said yes to did not speak of them. */
  store_bytes: number;
  rest: Rest;
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
    return isKept(kept) ? { ...kept, store_bytes: kept.store_bytes ?? 0, rest: isRest(kept.rest) ? kept.rest : USUAL_REST } : null;
  }, null);

/** False: the browser does not keep it. */
export const writeKept = (kept: Kept): boolean =>
  attempt(() => {
    localStorage.setItem(NAME, JSON.stringify(kept));
    return true;
  }, false);

export const forgetKept = (): void => attempt(() => localStorage.removeItem(NAME), undefined);

/** As the server has it where a tab says nothing. */
export const USUAL_REST: Rest = { hidden: true, below_percent: 20 };

function isRest(rest: unknown): rest is Rest {
  const { hidden, below_percent } = (rest ?? {}) as Record<string, unknown>;
  return typeof hidden === "boolean" && typeof below_percent === "number";
}

function isKept(kept: unknown): kept is Omit<Kept, "store_bytes" | "rest"> & { store_bytes?: number; rest?: unknown } {
  if (!kept || typeof kept !== "object") return false;
  const { identity, name, limit_bytes, store_bytes, paused } = kept as Record<string, unknown>;
  if (!identity || typeof identity !== "object") return false;
  const { node_id, secret } = identity as Record<string, unknown>;
  return (
    typeof node_id === "string" && typeof secret === "string" && typeof name === "string" &&
    typeof limit_bytes === "number" && typeof paused === "boolean" && (store_bytes === undefined || typeof store_bytes === "number")
  );
}

/** The token in the address, which goes from there at once: it is to be in no history and on no screen. */
export function takeToken(): string | null {
  const token = /^#token=([\w]{1,128})$/.exec(location.hash)?.[1] ?? null;
  if (location.hash) history.replaceState(null, "", location.pathname);
  return token;
}

// ---- weights of models ----

const MIB = 2 ** 20;
const STORE_LIMITS = [0, 256, 512, 1024, 2048, 4096, 8192, 16384].map((mib) => mib * MIB);
const STORE_USUAL = 4096 * MIB;
const UNTOLD_MOST = 1024 * MIB; // where the browser does not tell how much it gives

/** What the browser says of its room; undefined: it does not tell. */
export interface Room {
  quota?: number | undefined;
}

/** The limits to choose from, and the one that is proposed: a quarter of what the browser gives a page, 4 GiB at most. */
export function storeLimits(room: Room | null): { choices: number[]; usual: number } {
  if (!room) return { choices: [0], usual: 0 };
  const quota = room.quota ?? 0;
  const most = quota || UNTOLD_MOST;
  const choices = STORE_LIMITS.filter((bytes) => bytes <= most);
  return { choices, usual: Math.max(...choices.filter((bytes) => bytes <= Math.min(quota / 4, STORE_USUAL))) };
}

/** null: it keeps nothing. */
export async function readRoom(): Promise<Room | null> {
  if (!canKeep()) return null;
  return navigator.storage.estimate().catch(() => ({}));
}
