/* Conversations of the playground: kept in this browser, and on the server only where the person asks for it
 * (keeping.ts). Pure. */
import type { SamplingUsed } from "../lib/api.gen";
import { figure } from "../lib/format";
import { t } from "../text/text";
import type { Kept } from "./keeping";

export interface Figures {
  /** From the question to the first piece, ms. */
  readonly firstMs: number;
  /** From the first piece to the last, ms. */
  readonly restMs: number;
  readonly tokens: number | null;
  readonly promptTokens: number | null;
  /** It was stopped: its tokens were counted here, by the pieces that came. */
  readonly about?: true;
  /** What it took above idle; absent: not reported. */
  readonly joules?: number;
  /** Tokens that the text foresaw and that were computed; of these, those that were chosen. Absent: there were none. */
  readonly foreseen?: Foreseen;
  /** Another device computed the prompt. Absent: the one that answered did. */
  readonly prefill?: Prefill;
  readonly reason: string | null;
}

/** Devices by their names; seconds until the prompt was there, and as predicted for the one that answered. */
export interface Prefill {
  readonly prompt: string;
  readonly answer: string;
  readonly seconds: number;
  readonly insteadSeconds: number;
}

export const prefillText = ({ prompt, answer, seconds, insteadSeconds }: Prefill): string =>
  t`prompt on ${prompt}, ${figure(seconds, 1)} s instead of ${figure(insteadSeconds, 1)}; answer on ${answer}`;

export interface Foreseen {
  readonly proposed: number;
  readonly accepted: number;
}

/** A tool that the model calls. */
export interface Call {
  readonly id: string;
  readonly name: string;
  /** JSON, as the model wrote it. */
  readonly args: string;
}

export interface Turn {
  /** tool: what a tool answers to the call `callId`. */
  readonly role: "user" | "assistant" | "tool";
  readonly text: string;
  /** Of an answer: what the model thought before it. */
  readonly thought?: string;
  readonly calls?: readonly Call[];
  readonly callId?: string;
  /** Of an answer: who gave it, and how fast. */
  readonly model?: string;
  readonly figures?: Figures;
  /** The place of the turn that it follows; absent: the one before it. -1: it begins the conversation. */
  readonly after?: number;
}

export interface Conversation {
  readonly id: string;
  readonly at: number;
  readonly system: string;
  /** A JSON list of functions that the model may call, as the API takes them; absent or "": none. */
  readonly tools?: string;
  /** In the order in which they came, of all branches: see conversation/branches.ts. */
  readonly turns: readonly Turn[];
  /** The place of the last turn that is shown; absent: the last one. */
  readonly leaf?: number;
  /** What the server has of it; absent: nothing, as far as this browser knows. */
  readonly kept?: Kept;
}

/** As the server takes an id: letters, digits and -. */
export const freshId = (): string =>
  crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-");

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
    temperature: t`temperature`,
    top_k: t`top k`,
    top_p: t`top p`,
    min_p: t`min p`,
    repetition_penalty: t`repetition`,
  };
  const keys = Object.keys(names) as (keyof SamplingUsed)[];
  const by = (from: string): string => keys.filter((key) => used[key].from === from).map((key) => names[key]).join(", ");
  const parts = [
    by("model") && t`${by("model")} by the model's authors`,
    by("instance") && t`${by("instance")} as it was loaded with`,
    by("default") && (keys.every((key) => used[key].from === "default") ? t`all by default` : t`the others by default`),
  ].filter(Boolean);
  return t`A field left empty has the value shown in grey: ${parts.join("; ")}.`;
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

/** How many of the foreseen tokens were right; null where none were foreseen. */
export function foreseenText(of: Foreseen | undefined): string | null {
  return of?.proposed ? t`${figure((of.accepted / of.proposed) * 100)} % accepted` : null;
}

/** A draft model, and how many of its tokens were right. */
export function draftText({ name, ...of }: Foreseen & { name: string | null }): string {
  return `${name ?? t`no longer there`}: ${foreseenText(of) ?? t`nothing proposed yet`}`;
}

// ---- an answer, as it comes ----

export interface Said {
  readonly text: string;
  readonly thought: string;
  readonly calls: readonly Call[];
}

export const nothingSaid: Said = { text: "", thought: "", calls: [] };
export const isSaid = ({ text, thought, calls }: Said): boolean => text !== "" || thought !== "" || calls.length > 0;

/** The tokens that the last answer of these turns had before it and in it; null: that was not told. */
export function contextUsed(turns: readonly Turn[]): number | null {
  const figures = turns.filter((turn) => turn.role === "assistant").at(-1)?.figures;
  return figures && figures.promptTokens !== null && figures.tokens !== null ? figures.promptTokens + figures.tokens : null;
}

/** A delta of /v1/chat/completions, or the text of a completion. */
export interface Delta {
  content?: string | null;
  reasoning_content?: string | null;
  tool_calls?: { index: number; id?: string; function?: { name?: string; arguments?: string } }[];
}

export function hear(said: Said, delta: Delta): Said {
  const calls = [...said.calls];
  for (const piece of delta.tool_calls ?? []) {
    const { id, name, args } = calls[piece.index] ?? { id: "", name: "", args: "" };
    calls[piece.index] = { id: piece.id ?? id, name: piece.function?.name ?? name, args: args + (piece.function?.arguments ?? "") };
  }
  return { text: said.text + (delta.content ?? ""), thought: said.thought + (delta.reasoning_content ?? ""), calls };
}

/** Arguments as they are read best: set out in lines once they are whole. */
export function argsText(args: string): string {
  try {
    return JSON.stringify(JSON.parse(args), null, 2);
  } catch {
    return args;
  }
}

/** The calls of the last answer that no tool has answered yet. */
export function openCalls(turns: readonly Turn[]): readonly Call[] {
  const last = turns.map((turn) => turn.role).lastIndexOf("assistant");
  const answered = new Set(turns.slice(last + 1).map((turn) => turn.callId));
  if (turns.slice(last + 1).some((turn) => turn.role === "user")) return [];
  return (turns[last]?.calls ?? []).filter((call) => !answered.has(call.id));
}

/** What is wrong with a list of tools; null: nothing, or there is none. The server looks at the rest. */
export function toolsFault(text: string): string | null {
  if (text.trim() === "") return null;
  try {
    return Array.isArray(JSON.parse(text)) ? null : t`Tools must be a JSON list.`;
  } catch (error) {
    return t`Not JSON: ${error instanceof Error ? error.message : ""}`;
  }
}

/** What a conversation is called: its first question. */
export function titleOf(one: Conversation): string {
  const first = one.turns.find((turn) => turn.role === "user")?.text.trim().split("\n")[0] ?? "";
  return first.length > 60 ? `${first.slice(0, 59)}…` : first || t`New conversation`;
}

export const sortConversations = (all: readonly Conversation[]): Conversation[] => [...all].sort((a, b) => b.at - a.at);
