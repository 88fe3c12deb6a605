/* What the search of the whole page (Ctrl-K) finds: pages, machines, devices, models, tokens, and what can be done. Pure. */
import type { Token } from "../lib/api.gen";
import { pages } from "../lib/pages";
import { deviceHref, modelHref, nodeHref, playgroundHref } from "../lib/route";
import { t } from "../text/text";
import { word } from "../text/words";
import { describeModel, readyInstances, talks } from "./models";
import { backendName, byName, deviceName } from "./select";
import type { State } from "./state";

/** What is done beside opening an address. */
export type Act = "theme" | "keys" | "logout";

export interface Found {
  readonly id: string;
  readonly kind: "page" | "machine" | "device" | "model" | "token" | "action";
  readonly name: string;
  /** What tells it from others of that name; also searched. */
  readonly detail: string;
  readonly go: { readonly href: string } | { readonly act: Act };
}

export const FOUND_MAX = 12;

const actions: readonly Found[] = [
  { id: "act-add", kind: "action", name: t`Add a model`, detail: t`from the catalogue, Hugging Face or a file`, go: { href: "#/models" } },
  { id: "act-token", kind: "action", name: t`Make a token`, detail: t`for an app, a person or a machine`, go: { href: "#/access" } },
  { id: "act-wall", kind: "action", name: t`Wall view`, detail: t`for a large screen: no buttons, large type`, go: { href: "#/wall" } },
  { id: "act-theme", kind: "action", name: t`Switch between light and dark`, detail: t`theme`, go: { act: "theme" } },
  { id: "act-keys", kind: "action", name: t`Show all keys`, detail: t`keyboard shortcuts`, go: { act: "keys" } },
  { id: "act-logout", kind: "action", name: t`Log out`, detail: t`this browser forgets the token`, go: { act: "logout" } },
];

function everything(state: State, tokens: readonly Token[]): Found[] {
  const machine = (id: string): string => state.nodes[id]?.record.name ?? id;
  const ready = readyInstances(state.instances);
  return [
    ...Object.values(state.nodes).map(({ record }): Found => ({
      id: record.node_id,
      kind: "machine",
      name: record.name,
      detail: `${word(record.state)}, ${record.node_id}`,
      go: { href: nodeHref(record.node_id) },
    })),
    ...Object.values(state.devices).map(({ record }): Found => ({
      id: record.device_id,
      kind: "device",
      name: deviceName(state, record.device_id),
      detail: t`${backendName[record.backend]} on ${machine(record.node_id)}, ${word(record.state)}`,
      go: { href: deviceHref(record.device_id) },
    })),
    ...Object.values(state.models).map((model): Found => ({
      id: model.model_id,
      kind: "model",
      name: model.name,
      detail: model.architecture ? describeModel(model.architecture) : model.state,
      go: { href: modelHref(model.model_id) },
    })),
    ...tokens.filter((one) => one.revoked_at === null).map((one): Found => ({
      id: one.token_id,
      kind: "token",
      name: one.name,
      detail: `${one.scopes.join(", ")}, ${one.token_id}`,
      go: { href: "#/access" },
    })),
    ...ready.filter((one) => talks(state.models[one.model_id])).map((one): Found => ({
      id: one.instance_id,
      kind: "action",
      name: t`Chat with ${state.models[one.model_id]?.name ?? one.model_id}`,
      detail: t`opens the Playground`,
      go: { href: playgroundHref(one.instance_id) },
    })),
    ...pages.map(({ page, name, key }): Found => ({ id: `page-${page}`, kind: "page", name, detail: t`page, g ${key}`, go: { href: `#/${page}` } })),
    ...actions,
  ];
}

/** How well one word fits: 0 not at all; the start of the name counts most, then of a word, then anywhere. */
function fits(word: string, { name, detail }: Found): number {
  const text = name.toLowerCase();
  if (text.startsWith(word)) return 4;
  if (text.split(/[^\p{L}\p{N}]+/u).some((part) => part.startsWith(word))) return 3;
  return text.includes(word) ? 2 : detail.toLowerCase().includes(word) ? 1 : 0;
}

/** What fits every word that was typed, the best first; without a word what there is to go to and do. */
export function find(state: State, typed: string, tokens: readonly Token[] = []): Found[] {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const order = ["machine", "device", "model", "action", "token", "page"];
  const ranked = everything(state, tokens)
    .filter((one) => words.length > 0 || (one.id !== "act-logout" && one.kind !== "token"))
    .map((one) => ({ one, points: words.map((word) => fits(word, one)) }))
    .filter(({ points }) => points.every((each) => each > 0))
    .map(({ one, points }) => ({ one, sum: points.reduce((sum, each) => sum + each, 0) }));
  ranked.sort((a, b) => b.sum - a.sum || order.indexOf(a.one.kind) - order.indexOf(b.one.kind) || byName(a.one.name, b.one.name));
  return ranked.slice(0, FOUND_MAX).map(({ one }) => one);
}
