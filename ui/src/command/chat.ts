/* One answer of a model, as it is generated: the server's /v1, which other programs use as well. */
import { readToken } from "../lib/prefs";
import { EventReader } from "../net/sse";
import { type Delta, type Foreseen, type Prefill, type Sampling, type Turn, toolsFault, usualTokens } from "../state/chat";
import { inLanguage } from "../text/said";
import { t } from "../text/text";
import type { Refusal } from "./tried";

export interface Answer {
  /** Why it ended: stop, length; null: it was stopped here. */
  readonly reason: string | null;
  readonly promptTokens: number | null;
  readonly tokens: number | null;
  readonly joules?: number;
  readonly foreseen?: Foreseen;
  readonly prefill?: Prefill;
}

export interface Ask {
  readonly model: string;
  /** Whether the model has a chat template; without one it goes on from the last text. */
  readonly chat: boolean;
  readonly system: string;
  readonly turns: readonly Turn[];
  readonly sampling: Sampling;
  readonly signal: AbortSignal;
  /** A JSON list of functions that the model may call; "": none. */
  readonly tools: string;
  /** Whether its energy is asked for, which comes up to a second after the last piece. */
  readonly energy: boolean;
  /** A piece of the answer. */
  readonly onDelta: (delta: Delta) => void;
}

function messageOf(turn: Turn): object {
  if (turn.role === "tool") return { role: "tool", tool_call_id: turn.callId, content: turn.text };
  if (!turn.calls?.length) return { role: turn.role, content: turn.text };
  const calls = turn.calls.map(({ id, name, args }) => ({ id, type: "function", function: { name, arguments: args } }));
  return { role: "assistant", content: turn.text || null, tool_calls: calls };
}

function requestOf(ask: Ask): object {
  const { sampling } = ask;
  const settings = {
    model: ask.model,
    stream: true,
    stream_options: { include_usage: true },
    ...(ask.energy ? { include_energy: true } : {}),
    temperature: sampling.temperature, // null counts as absent
    top_p: sampling.topP,
    top_k: sampling.topK,
    min_p: sampling.minP,
    repetition_penalty: sampling.repetition,
    presence_penalty: sampling.presence,
    frequency_penalty: sampling.frequency,
    ...(sampling.stops.length ? { stop: sampling.stops } : {}),
    ...(sampling.seed === null ? {} : { seed: sampling.seed }),
  };
  const messages = [
    ...(ask.system.trim() ? [{ role: "system", content: ask.system }] : []),
    ...ask.turns.map(messageOf),
  ];
  const tools = ask.tools.trim() ? { tools: JSON.parse(ask.tools) as unknown } : {};
  if (ask.chat) return { ...settings, ...tools, messages, max_completion_tokens: sampling.maxTokens };
  const texts = [ask.system.trim() ? ask.system : "", ...ask.turns.map((turn) => turn.text)];
  return { ...settings, prompt: texts.join(""), max_tokens: sampling.maxTokens ?? usualTokens(false) };
}

/** Null once it has ended by itself or was stopped; else what went wrong. */
export async function ask(what: Ask): Promise<Answer | Refusal> {
  const fault = what.chat ? toolsFault(what.tools) : null;
  if (fault) return { what: fault, hint: t`Correct the tools in the settings.` };
  try {
    const response = await fetch(what.chat ? "/v1/chat/completions" : "/v1/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${readToken() ?? ""}` },
      body: JSON.stringify(requestOf(what)),
      signal: what.signal,
    });
    if (!response.ok || !response.body) return refusalOf(await response.text(), response.status);
    return await follow(response.body, what);
  } catch (error) {
    if (what.signal.aborted) return { reason: null, promptTokens: null, tokens: null };
    return { what: t`the connection broke before the answer was complete`, hint: error instanceof Error ? error.message : null };
  }
}

interface Chunk {
  error?: { message?: string };
  choices?: { delta?: Delta; text?: string; finish_reason?: string | null; prefill?: ToldPrefill }[];
  usage?: Usage | null;
}

interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
  energy_joules?: number | null;
  completion_tokens_details?: { accepted_prediction_tokens?: number; rejected_prediction_tokens?: number };
}

function foreseenOf({ completion_tokens_details: told }: Usage): { foreseen?: Foreseen } {
  const accepted = told?.accepted_prediction_tokens ?? 0;
  const proposed = accepted + (told?.rejected_prediction_tokens ?? 0);
  return proposed > 0 ? { foreseen: { proposed, accepted } } : {};
}

/** docs/inference.md, "A prompt on another device". */
interface ToldPrefill {
  prompt_device: string;
  answer_device: string;
  seconds: number;
  instead_seconds: number;
}

function prefillOf(told: ToldPrefill | undefined): { prefill?: Prefill } {
  if (!told) return {};
  const { prompt_device: prompt, answer_device: answer, seconds, instead_seconds: insteadSeconds } = told;
  return { prefill: { prompt, answer, seconds, insteadSeconds } };
}

async function follow(body: ReadableStream<Uint8Array>, what: Ask): Promise<Answer | Refusal> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const events = new EventReader();
  let answer: Answer = { reason: null, promptTokens: null, tokens: null };
  let whole = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    for (const data of events.add(decoder.decode(value, { stream: true }))) {
      if (data === "[DONE]") {
        whole = true;
        continue;
      }
      const chunk = inLanguage(JSON.parse(data) as Chunk);
      if (chunk.error) return { what: chunk.error.message ?? t`the model failed`, hint: null };
      const choice = chunk.choices?.[0];
      if (choice) what.onDelta(choice.delta ?? { content: choice.text ?? "" });
      if (choice?.finish_reason) answer = { ...answer, reason: choice.finish_reason, ...prefillOf(choice.prefill) };
      if (chunk.usage)
        answer = {
          ...answer,
          promptTokens: chunk.usage.prompt_tokens ?? null,
          tokens: chunk.usage.completion_tokens ?? null,
          ...(typeof chunk.usage.energy_joules === "number" ? { joules: chunk.usage.energy_joules } : {}),
          ...foreseenOf(chunk.usage),
        };
    }
  }
  return whole ? answer : { what: t`the answer broke off`, hint: t`Ask again; what has come stays.` };
}

function refusalOf(text: string, status: number): Refusal {
  try {
    const { error } = inLanguage(JSON.parse(text) as Chunk);
    if (error?.message) return { what: error.message, hint: null };
  } catch {
    // not the server's own words
  }
  return { what: t`the server answered ${status}`, hint: status === 401 ? t`Log in again.` : null };
}
