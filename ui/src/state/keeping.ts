/* Conversations that are kept on the server as well: what has to be sent, fetched or deleted so that this browser and
 * the server have the same. Pure. */
import type { Conversation as Remote } from "../lib/api.gen";
import type { Conversation } from "./chat";
import { conversationFrom } from "./conversation/read";

/** What the server had of a conversation when this browser sent or fetched it last. */
export interface Kept {
  /** Whose it is: another token's is nothing to this one. */
  readonly token: string;
  readonly version: number;
  /** Of the text that was sent or fetched: with another one it was changed here since. */
  readonly mark: string;
  /** When the server deletes it, ms. */
  readonly until: number;
}

/** What the server keeps: all that this browser does, but for what it knows of the server. */
export function textOf({ at, system, tools, turns, leaf }: Conversation): string {
  return JSON.stringify({ at, system, ...(tools ? { tools } : {}), turns, ...(leaf === undefined ? {} : { leaf }) });
}

/** Null: it is no conversation, or of a later version of this page. */
export function fromText(id: string, text: string): Conversation | null {
  try {
    return conversationFrom({ ...(JSON.parse(text) as object), id });
  } catch {
    return null;
  }
}

/** 64 bits (FNV-1a, forwards and backwards) that another text is very unlikely to have. */
export function markOf(text: string): string {
  let forwards = 0x811c9dc5;
  let backwards = 0x811c9dc5;
  for (let i = 0, j = text.length - 1; j >= 0; i++, j--) {
    forwards = Math.imul(forwards ^ text.charCodeAt(i), 0x01000193);
    backwards = Math.imul(backwards ^ text.charCodeAt(j), 0x01000193);
  }
  return `${text.length}-${(forwards >>> 0).toString(36)}-${(backwards >>> 0).toString(36)}`;
}

export const keptNow = (one: Conversation, token: string): Kept | null => (one.kept?.token === token ? one.kept : null);

/** Of conversations that were asked about: they do not change, and may be long. */
const marks = new WeakMap<Conversation, string>();

/** Whether the server has it as it is here, as far as this browser knows. */
export function isKept(one: Conversation, token: string): boolean {
  const kept = keptNow(one, token);
  if (kept === null) return false;
  const mark = marks.get(one) ?? markOf(textOf(one));
  marks.set(one, mark);
  return kept.mark === mark;
}

export type Step =
  /** Send it; version: what it replaces. */
  | { do: "write"; id: string; version: number }
  /** Fetch it: it is newer there, or not here. */
  | { do: "read"; id: string }
  /** It was changed here and there: this browser's goes on as a copy, and the other one is fetched. */
  | { do: "fork"; id: string }
  /** It was deleted in another browser. */
  | { do: "drop"; id: string };

function stepOf(mine: Conversation | undefined, there: Remote, token: string): Step | null {
  const id = there.conversation_id;
  const kept = mine && keptNow(mine, token);
  if (there.deleted) {
    if (!mine || (kept && kept.version >= there.version)) return null;
    return kept && isKept(mine, token) ? { do: "drop", id } : { do: "write", id, version: there.version };
  }
  if (!mine) return { do: "read", id };
  if (!kept) return { do: "fork", id };
  if (kept.version > there.version) return { do: "write", id, version: there.version }; // it was put back from a backup
  if (isKept(mine, token)) return kept.version === there.version ? null : { do: "read", id };
  return kept.version === there.version ? { do: "write", id, version: there.version } : { do: "fork", id };
}

/** What is to be done, the newest conversation first. What has expired on the server stays here, and is sent again only
 * once it is changed. */
export function planOf(here: readonly Conversation[], there: readonly Remote[], token: string, now: number): Step[] {
  const known = new Map(here.map((one) => [one.id, one]));
  const listed = new Set(there.map((one) => one.conversation_id));
  const expired = (one: Conversation): boolean => isKept(one, token) && one.kept!.until <= now;
  const sent = here
    .filter((one) => !listed.has(one.id) && one.turns.length > 0 && !expired(one))
    .map((one): Step => ({ do: "write", id: one.id, version: 0 }));
  const steps = there.map((one) => stepOf(known.get(one.conversation_id), one, token)).filter((one) => one !== null);
  return [...steps, ...sent];
}
