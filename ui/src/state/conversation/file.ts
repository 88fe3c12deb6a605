/* Conversations as a file: what Export saves (and `exogpu conversations export`), and what Import reads of it. A file
 * may come from anywhere: its size, their number, and each of them is checked, and what is wrong is said. Pure. */
import { t } from "../../text/text";
import { type Conversation, freshId, sortConversations } from "../chat";
import { textOf } from "../keeping";
import { conversationFrom } from "./read";

const MIB = 1024 * 1024;
export const MOST_FILE_BYTES = 8 * MIB;
/** The server keeps so many of a token. */
const MOST_CONVERSATIONS = 100;
/** As the server takes an id. */
const ID = /^[0-9A-Za-z_-]{1,64}$/;

/** All of them, for a file. */
export const exportOf = (all: readonly Conversation[]): Blob =>
  new Blob([JSON.stringify({ conversations: all.map(({ kept: _, ...one }) => one) }, null, 1), "\n"], { type: "application/json" });

export interface Refused {
  readonly what: string;
  readonly hint: string;
}

const ours = t`Choose a file that Export of this page, or the command exogpu conversations export, has saved.`;
const refused = (what: string, hint = ours): Refused => ({ what, hint });

export const tooLarge = (bytes: number): Refused | null =>
  bytes > MOST_FILE_BYTES ? refused(t`This file has ${Math.ceil(bytes / MIB)} MiB; at most ${MOST_FILE_BYTES / MIB} MiB are read`) : null;

/** The conversations of a file, or what is wrong with it. */
export function importFrom(file: string): readonly Conversation[] | Refused {
  let all: unknown;
  try {
    const parsed: unknown = JSON.parse(file);
    all = typeof parsed === "object" && parsed !== null && Object.hasOwn(parsed, "conversations") ? (parsed as { conversations: unknown }).conversations : null;
  } catch {
    return refused(t`This file is not JSON`);
  }
  if (!Array.isArray(all)) return refused(t`This file holds no conversations`);
  if (all.length === 0) return refused(t`This file holds no conversation: its list is empty`);
  if (all.length > MOST_CONVERSATIONS) return refused(t`This file holds ${all.length} conversations; at most ${MOST_CONVERSATIONS} are read`, t`Divide it into several files.`);
  const found = all.map(conversationFrom);
  const wrong = found.indexOf(null);
  if (wrong >= 0) return refused(t`Conversation ${wrong + 1} of ${all.length} in this file is not as the Playground writes it; nothing was imported`);
  return found.filter((one) => one !== null);
}

export interface Imported {
  /** To be put beside those that are here. */
  readonly added: readonly Conversation[];
  /** How many are here already, just as they are in the file. */
  readonly known: number;
}

/** One whose id is here with another text becomes a copy: nothing that is here is changed, and nothing comes twice. */
export function importInto(here: readonly Conversation[], from: readonly Conversation[], now: number): Imported {
  const ids = new Set(here.map((one) => one.id));
  const texts = new Set(here.map(textOf));
  const added: Conversation[] = [];
  let known = 0;
  for (const { kept: _, ...one } of from) {
    if (one.turns.length === 0) continue;
    const at = Math.min(Math.max(one.at, 0), now);
    const next = { ...one, at, id: !ids.has(one.id) && ID.test(one.id) ? one.id : freshId() };
    if (texts.has(textOf(next))) known++;
    else added.push(next);
    ids.add(next.id);
    texts.add(textOf(next));
  }
  return { added: sortConversations(added), known };
}
