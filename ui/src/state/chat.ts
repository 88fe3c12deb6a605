/* Conversations of the playground: kept in this browser and nowhere else. Pure, but for reading and writing storage. */
import type { SamplingUsed } from "../lib/api.gen";

export interface Figures {
  /** From the question to the first piece, ms. */
  readonly firstMs: number;
  /** From the first piece to the last, ms. */
  readonly restMs: number;
  readonly tokens: number | null;
  readonly promptTokens: number | null;
  readonly reason: string | null;
}

export interface Turn {
  readonly role: "user" | "assistant";
  readonly text: string;
  /** Of an answer: who gave it, and how fast. */
  readonly model?: string;
  readonly figures?: Figures;
}

export interface Conversation {
  readonly id: string;
  readonly at: number;
  readonly system: string;
  readonly turns: readonly Turn[];
}

/** What a person asks for; null: what the server uses where a request does not say. */
export interface Sampling {
  readonly temperature: number | null;
  readonly topP: number | null;
  readonly topK: number | null;
  readonly minP: number | null;
  readonly repetition: number | null;
  readonly presence: number;
  readonly frequency: number;
  readonly maxTokens: number | null;
  /** An answer ends before the first of these. */
  readonly stops: readonly string[];
  readonly seed: number | null;
}

export const usualSampling: Sampling = {
  temperature: null,
  topP: null,
  topK: null,
  minP: null,
  repetition: null,
  presence: 0,
  frequency: 0,
  maxTokens: null,
  stops: [],
  seed: null,
};

/** What is generated where nobody says how much: the server's number of a chat; of a text that only goes on the page's. */
export const usualTokens = (chat: boolean): number => (chat ? 4096 : 256);

/** Who recommends the values that a person leaves empty, in one sentence. */
export function sourceOf(used: SamplingUsed): string {
  const names: Record<keyof SamplingUsed, string> = {
    temperature: "temperature",
    top_k: "top k",
    top_p: "top p",
    min_p: "min p",
    repetition_penalty: "repetition",
  };
  const keys = Object.keys(names) as (keyof SamplingUsed)[];
  const by = (from: string): string => keys.filter((key) => used[key].from === from).map((key) => names[key]).join(", ");
  const parts = [
    by("model") && `${by("model")} by the model's authors`,
    by("instance") && `${by("instance")} as it was loaded with`,
    by("default") && (keys.every((key) => used[key].from === "default") ? "all by default" : "the others by default"),
  ].filter(Boolean);
  return `A field left empty has the value shown in grey: ${parts.join("; ")}.`;
}

/** The server takes so many. */
const MOST_STOPS = 16;

/** Stop texts as they are written, one a line; \n stands for a new line. */
export function stopsOf(text: string): string[] {
  const lines = text.split(/\r?\n/).map((line) => line.replaceAll("\\n", "\n"));
  return [...new Set(lines)].filter((line) => line !== "").slice(0, MOST_STOPS);
}

export const stopsText = (stops: readonly string[]): string => stops.map((stop) => stop.replaceAll("\n", "\\n")).join("\n");

/** What came in less time came in one piece, ms. */
const ONE_PIECE_MS = 20;

/** Tokens a second after the first; null where too little came to say. */
export function speedOf({ tokens, restMs }: Figures): number | null {
  return tokens === null || tokens < 2 || restMs < ONE_PIECE_MS ? null : ((tokens - 1) / restMs) * 1000;
}

/** What a conversation is called: its first question. */
export function titleOf(one: Conversation): string {
  const first = one.turns.find((turn) => turn.role === "user")?.text.trim().split("\n")[0] ?? "";
  return first.length > 60 ? `${first.slice(0, 59)}…` : first || "New conversation";
}

export interface Piece {
  readonly kind: "text" | "code";
  readonly text: string;
}

/** A text in pieces: what stands between lines of ``` is code. An open one runs to the end. */
export function piecesOf(text: string): Piece[] {
  const pieces: Piece[] = [];
  let kind: Piece["kind"] = "text";
  let lines: string[] = [];
  const close = (): void => {
    const body = lines.join("\n");
    if (kind === "code" || body.trim()) pieces.push({ kind, text: kind === "code" ? body : body.replace(/^\n+|\n+$/g, "") });
    lines = [];
  };
  for (const line of text.split("\n")) {
    if (/^\s*```/.test(line)) {
      close();
      kind = kind === "text" ? "code" : "text";
    } else lines.push(line);
  }
  close();
  return pieces;
}

// ---- what is kept ----

const STORE = "exogpu.chats";
const MOST = 50;
const MOST_BYTES = 2 * 1024 * 1024;

const isTurn = (one: unknown): one is Turn =>
  typeof one === "object" &&
  one !== null &&
  ((one as Turn).role === "user" || (one as Turn).role === "assistant") &&
  typeof (one as Turn).text === "string";

function isConversation(one: unknown): one is Conversation {
  if (typeof one !== "object" || one === null) return false;
  const { id, at, system, turns } = one as Conversation;
  return (
    typeof id === "string" && typeof at === "number" && typeof system === "string" && Array.isArray(turns) && turns.every(isTurn)
  );
}

/** The newest first; whatever is not as it was written is left out. */
export function parseConversations(text: string | null): Conversation[] {
  try {
    const kept: unknown = JSON.parse(text ?? "[]");
    return Array.isArray(kept) ? kept.filter(isConversation).sort((a, b) => b.at - a.at) : [];
  } catch {
    return [];
  }
}

/** As text, the oldest left out where there are too many. */
export function printConversations(all: readonly Conversation[]): string {
  const kept = [...all].sort((a, b) => b.at - a.at).slice(0, MOST);
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
