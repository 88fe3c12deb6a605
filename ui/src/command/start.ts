/* From a name in the catalogue to a conversation: adds the model, waits until it is here, loads it, and opens the
 * Playground. It goes on while other pages are looked at, and after the page was loaded again; the conversation opens
 * by itself only for who still looks at the models. */
import { signal } from "@preact/signals";
import type { CatalogEntry } from "../lib/api.gen";
import { playgroundHref, route } from "../lib/route";
import type { Server } from "../net/socket";
import { mayManage, readyInstances, talks } from "../state/models";
import { isLive } from "../state/select";
import type { State } from "../state/state";
import { addModel, loadModel } from "./models";
import { type Refusal, tried } from "./tried";

const KEY = "exogpu.starting";
const LOOK_MS = 1000;

export interface Begun {
  readonly refusal: Refusal | null; // it has ended with this
}
/** What was begun, by the source of its model. */
export const begun = signal<Readonly<Record<string, Begun>>>({});

export interface Starter {
  server: Server;
  /** The newest state, also while the tab is hidden. */
  current: () => State;
}

function keep(source: string, one: Begun | null): void {
  const { [source]: _, ...others } = begun.value;
  begun.value = one ? { ...others, [source]: one } : others;
  const open = Object.entries(begun.value).filter(([, each]) => !each.refusal);
  try {
    sessionStorage.setItem(KEY, JSON.stringify(open.map(([name]) => name)));
  } catch {
    // a browser that keeps nothing: then it does not go on after a reload
  }
}

/** What was begun before the page was loaded anew. */
function kept(): string[] {
  try {
    const names: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
    return Array.isArray(names) ? names.filter((one): one is string => typeof one === "string") : [];
  } catch {
    return [];
  }
}

const pause = (): Promise<void> => new Promise((done) => setTimeout(done, LOOK_MS));

/** What to do next for a model of this source: a pure function of what there is. */
export type Next = { do: "wait" | "load" | "open"; model_id: string; instance_id: string } | { do: "end"; why: string | null };
export function nextStep(state: State, source: string): Next {
  const model = Object.values(state.models).find((one) => one.source === source);
  if (!model) return { do: "end", why: null }; // it was removed: given up
  if (model.state === "failed" || model.state === "missing") return { do: "end", why: null }; // its row says why
  const of = { model_id: model.model_id, instance_id: "" };
  if (model.state !== "ready") return { do: "wait", ...of };
  const instances = Object.values(state.instances).filter((one) => one.model_id === model.model_id);
  const ready = readyInstances(state.instances).find((one) => one.model_id === model.model_id);
  if (ready) return talks(model) ? { do: "open", model_id: model.model_id, instance_id: ready.instance_id } : { do: "end", why: null };
  if (instances.some((one) => one.state === "failed")) return { do: "end", why: null }; // its panel says why
  return { do: instances.length > 0 ? "wait" : "load", ...of };
}

async function follow({ server, current }: Starter, source: string): Promise<void> {
  for (;;) {
    if (isLive(current())) {
      const next = nextStep(current(), source);
      if (next.do === "end") return keep(source, null);
      if (next.do === "open") {
        keep(source, null);
        if (route.value.page === "models" || route.value.page === "overview") location.hash = playgroundHref(next.instance_id);
        return;
      }
      if (next.do === "load") {
        const refusal = await loadModel(server, { model_id: next.model_id });
        if (refusal) return keep(source, { refusal });
      }
    }
    await pause();
  }
}

/** Is it on its way? */
export const isBegun = (source: string): boolean => begun.value[source]?.refusal === null;

/** Begin with the model of this source, or begin again after a failure. */
export async function start(starter: Starter, source: string): Promise<void> {
  if (isBegun(source)) return;
  keep(source, { refusal: null });
  const { models, instances } = starter.current();
  const model = Object.values(models).find((one) => one.source === source && one.state === "ready");
  const held = Object.values(instances).filter((one) => one.model_id === model?.model_id);
  const refusal = !model
    ? await addModel(starter.server, source, null)
    : held.length > 0 && held.every((one) => one.state === "failed")
      ? await loadModel(starter.server, { model_id: model.model_id }) // which clears what has failed
      : null;
  if (refusal) return keep(source, { refusal });
  await pause(); // the model is in the state by then
  await follow(starter, source);
}

/** Goes on with what was begun before the page was loaded again. */
export function goOn(starter: Starter): void {
  if (!mayManage(starter.current().login)) return;
  for (const source of kept()) {
    if (begun.value[source]) continue;
    keep(source, { refusal: null });
    void follow(starter, source);
  }
}

export async function askCatalog(server: Server): Promise<readonly CatalogEntry[] | Refusal> {
  let entries: readonly CatalogEntry[] = [];
  const refusal = await tried(async () => (entries = (await server.call("model.catalog", {})).models));
  return refusal ?? entries;
}

/** The hubs that do not answer the server, each with the reason; null while that is not known. */
export async function askReach(server: Server): Promise<readonly string[] | null> {
  let silent: readonly string[] | null = null;
  await tried(async () => (silent = (await server.call("model.reach", {})).unreachable));
  return silent;
}
