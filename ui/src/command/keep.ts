/* Keeping conversations on the server: one round makes this browser and the server have the same. */
import { signal } from "@preact/signals";
import type { Methods, Conversation as Remote } from "../lib/api.gen";
import { CallError } from "../net/calls";
import type { Server } from "../net/socket";
import { type Conversation, freshId, titleOf } from "../state/chat";
import { type Kept, type Step, fromText, markOf, planOf, textOf } from "../state/keeping";
import { t } from "../text/text";
import { type Refusal, tried } from "./tried";

/** Whether this page keeps conversations on the server. */
export const keepsChats = signal(false);

/** Where what is said stays, for whoever is about to say something. */
export const whereItStays = (): string =>
  keepsChats.value
    ? t`The conversation stays in this browser and, encrypted, on the server.`
    : t`The conversation stays in this browser; the server records how many tokens were used, never the text.`;

/** The conversations of this page, while they are brought together. */
export interface Shelf {
  /** The newest ones. */
  all: () => readonly Conversation[];
  /** Put one in place of that of the same id. */
  put: (one: Conversation) => void;
  drop: (id: string) => void;
  /** What was written here goes on under another id. */
  rename: (id: string, to: string) => void;
}

export interface Round {
  readonly refusal: Refusal | null;
  /** The titles of those that were changed here and there. */
  readonly forked: readonly string[];
  /** The connection was lost. */
  readonly offline: boolean;
  /** How many the server has, as it said. */
  readonly held: number;
}

const keptOf = (token: string, text: string, { version, expires_at }: Remote): Kept => ({
  token,
  version,
  mark: markOf(text),
  until: Date.parse(expires_at),
});

async function write({ server, shelf, token }: Bringing, { id, version }: Step & { do: "write" }): Promise<void> {
  const text = textOf(shelf.all().find((one) => one.id === id)!);
  const body = new TextEncoder().encode(text);
  const kept = keptOf(token, text, await server.callWith("conversation.write", { conversation_id: id, version }, body));
  const now = shelf.all().find((one) => one.id === id);
  if (now) shelf.put({ ...now, kept }); // it may have been changed meanwhile: its mark tells
}

async function read({ server, shelf, token }: Bringing, id: string): Promise<void> {
  const before = shelf.all().find((one) => one.id === id);
  const { result, body } = await server.callFor("conversation.read", { conversation_id: id });
  const one = fromText(id, new TextDecoder().decode(body));
  const now = shelf.all().find((other) => other.id === id);
  if (one && (!now || (before && textOf(now) === textOf(before)))) shelf.put({ ...one, kept: keptOf(token, textOf(one), result) });
}

/** Fetches the other one, under the id; the same text is no conflict. Whether it was one. */
async function fork({ server, shelf, token, busy }: Bringing, id: string): Promise<boolean> {
  const { result, body } = await server.callFor("conversation.read", { conversation_id: id });
  const one = fromText(id, new TextDecoder().decode(body));
  const mine = shelf.all().find((other) => other.id === id);
  if (!one || !mine || busy() === id) return false;
  const differs = textOf(one) !== textOf(mine);
  if (differs) shelf.rename(id, freshId());
  shelf.put({ ...one, kept: keptOf(token, textOf(one), result) });
  return differs;
}

/** The title of one that was changed here and there. */
async function take(bringing: Bringing, step: Step): Promise<string | null> {
  const { shelf } = bringing;
  const mine = shelf.all().find((one) => one.id === step.id);
  if (step.do === "drop") shelf.drop(step.id);
  else if (step.do === "read") await read(bringing, step.id);
  else if (!mine) return null; // it was deleted meanwhile
  else if (step.do === "write") await write(bringing, step);
  else if (await fork(bringing, step.id)) return titleOf(mine);
  return null;
}

export interface Bringing {
  readonly server: Server;
  readonly shelf: Shelf;
  readonly token: string;
  /** The conversation that is being answered now: it waits for the next round. */
  readonly busy: () => string | null;
  /** Only look how many the server has. */
  readonly looks: boolean;
}

/** What one round leaves to the next: a copy to be sent, or what was changed in that very moment. */
const PASSES = 3;

/** A pass over all that differs. True: there is more to do. */
async function pass(bringing: Bringing, round: { -readonly [K in keyof Round]: Round[K] }): Promise<boolean> {
  const { server, shelf, token, busy, looks } = bringing;
  const { conversations } = await server.call("conversation.list", { watch: !looks });
  let more = false;
  round.held = conversations.filter((one) => !one.deleted).length;
  for (const step of looks ? [] : planOf(shelf.all(), conversations, token, Date.now())) {
    if (step.id === busy()) continue;
    try {
      const title = await take(bringing, step);
      if (title) round.forked = [...round.forked, title];
      more ||= title !== null;
    } catch (error) {
      if (!(error instanceof CallError) || error.reason === "disconnected") throw error;
      if (error.reason === "conflict" || error.reason === "not_found") more = true;
      else round.refusal ??= { what: error.message, hint: error.hint };
    }
  }
  return more;
}

/** One call after the other, so that a slow connection carries answers of the model as well. */
export async function bringTogether(bringing: Bringing): Promise<Round> {
  const round = { refusal: null as Refusal | null, forked: [] as readonly string[], offline: false, held: 0 };
  try {
    for (let i = 0; i < PASSES && (await pass(bringing, round)); i++);
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    if (error.reason === "disconnected") return { ...round, refusal: null, offline: true };
    round.refusal ??= { what: error.message, hint: error.hint };
  }
  return round;
}

/** Deletes on the server; what is not there is deleted. */
export const tellServer = (server: Server, params: Methods["conversation.delete"]["params"]): Promise<Refusal | null> =>
  tried(() =>
    server.call("conversation.delete", params).catch((error: unknown) => {
      if (!(error instanceof CallError) || error.reason !== "not_found") throw error;
    }),
  );

/** Deletes all on the server; this browser keeps its own, and knows of nothing there any more. */
export async function forgetAll(server: Server, shelf: Shelf): Promise<Refusal | null> {
  const refusal = await tellServer(server, { all: true });
  for (const { kept: _, ...mine } of refusal ? [] : shelf.all()) shelf.put(mine);
  return refusal;
}
