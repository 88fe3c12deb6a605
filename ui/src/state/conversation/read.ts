/* Conversations from outside of the page: from the browser's storage, the server, or a file. What is not as this page
 * writes it is no conversation; members that it does not know are left out. Pure. */
import type { Call, Conversation, Figures, Turn } from "../chat";
import type { Kept } from "../keeping";

/** No more turns than this are read. */
export const MOST_TURNS = 20_000;

type Check = (value: unknown) => boolean;
type Shape = Readonly<Record<string, Check>>;

const text: Check = (value) => typeof value === "string";
const number: Check = (value) => typeof value === "number" && Number.isFinite(value);
const optional = (check: Check): Check => (value) => value === undefined || check(value);
const orNull = (check: Check): Check => (value) => value === null || check(value);
const list = (check: Check, most: number): Check => (value) => Array.isArray(value) && value.length <= most && value.every(check);
const shaped = (shape: Shape): Check => (value) => isShaped(shape, value);

function isShaped(shape: Shape, value: unknown): boolean {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  return Object.entries(shape).every(([name, check]) => check(Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined));
}

const call: Shape = { id: text, name: text, args: text };
const figures: Shape = {
  firstMs: number,
  restMs: number,
  tokens: orNull(number),
  promptTokens: orNull(number),
  about: optional((value) => value === true),
  joules: optional(number),
  foreseen: optional(shaped({ proposed: number, accepted: number })),
  prefill: optional(shaped({ prompt: text, answer: text, seconds: number, insteadSeconds: number })),
  reason: orNull(text),
};
const turn: Shape = {
  role: (value) => value === "user" || value === "assistant" || value === "tool",
  text,
  thought: optional(text),
  calls: optional(list(shaped(call), 1000)),
  callId: optional(text),
  model: optional(text),
  figures: optional(shaped(figures)),
  after: optional(Number.isInteger),
};
const kept: Shape = { token: text, version: number, mark: text, until: number };
const conversation: Shape = {
  id: text,
  at: number,
  system: text,
  tools: optional(text),
  turns: list(shaped(turn), MOST_TURNS),
  leaf: optional(Number.isInteger),
  kept: optional(shaped(kept)),
};

/** The known members alone, in their order. */
const known = <T>(shape: Shape, value: object): T =>
  Object.fromEntries(Object.entries(value).filter(([name, one]) => Object.hasOwn(shape, name) && one !== undefined)) as T;

function knownTurn(one: Turn): Turn {
  return {
    ...known<Turn>(turn, one),
    ...(one.calls ? { calls: one.calls.map((each) => known<Call>(call, each)) } : {}),
    ...(one.figures ? { figures: known<Figures>(figures, one.figures) } : {}),
  };
}

/** Each turn follows an earlier one, and the shown end is one of them. */
function holdsTogether({ turns, leaf }: Conversation): boolean {
  const earlier = (after: number | undefined, at: number): boolean => after === undefined || (after >= -1 && after < at);
  return turns.every((one, at) => earlier(one.after, at)) && (leaf === undefined || (leaf >= 0 && leaf < turns.length));
}

/** Null: it is no conversation, or of a later version of this page. */
export function conversationFrom(value: unknown): Conversation | null {
  if (!isShaped(conversation, value) || !holdsTogether(value as Conversation)) return null;
  const one = value as Conversation;
  return {
    ...known<Conversation>(conversation, one),
    turns: one.turns.map(knownTurn),
    ...(one.kept ? { kept: known<Kept>(kept, one.kept) } : {}),
  };
}
