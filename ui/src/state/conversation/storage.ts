/* The conversations of this browser, in its storage. */
import { type Conversation, sortConversations } from "../chat";
import { conversationFrom } from "./read";

const STORE = "exogpu.chats";
/** So many conversations stay in a browser. */
export const MOST_KEPT = 50;
const MOST_BYTES = 2 * 1024 * 1024;

/** The newest first; whatever is not as it was written is left out. */
export function parseConversations(text: string | null): Conversation[] {
  try {
    const kept: unknown = JSON.parse(text ?? "[]");
    return Array.isArray(kept) ? sortConversations(kept.map(conversationFrom).filter((one) => one !== null)) : [];
  } catch {
    return [];
  }
}

/** As text, the oldest left out where there are too many. */
export function printConversations(all: readonly Conversation[]): string {
  const kept = sortConversations(all).slice(0, MOST_KEPT);
  let text = JSON.stringify(kept);
  while (text.length > MOST_BYTES && kept.length > 1) {
    kept.pop();
    text = JSON.stringify(kept);
  }
  return text;
}

export function readConversations(): Conversation[] {
  try {
    return parseConversations(localStorage.getItem(STORE));
  } catch {
    return [];
  }
}

/** False where the browser keeps nothing. */
export function keepConversations(all: readonly Conversation[]): boolean {
  try {
    if (all.length) localStorage.setItem(STORE, printConversations(all));
    else localStorage.removeItem(STORE);
    return true;
  } catch {
    return false;
  }
}
