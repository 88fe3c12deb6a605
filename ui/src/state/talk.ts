/* With whom the playground talks, and what it says while that model moves. Pure. */
import type { Instance, Model } from "../lib/api.gen";
import { sentence } from "../lib/format";
import { plural, t } from "../text/text";
import { mayManage, notLoaded, sortedInstances, talks } from "./models";
import { devicePlace } from "./select";
import type { State } from "./state";

/** What was chosen: an instance, or a model that is not loaded. An instance that is gone stands for its model. */
export interface Held {
  readonly id: string;
  readonly model: string;
}

/** Those that can be talked to, and models that would have to be loaded first. */
export interface Choice {
  readonly instances: readonly Instance[];
  readonly instance: Instance | null;
  readonly models: readonly Model[];
  readonly model: Model | null;
}

/** What is chosen now: what the address names, else what was chosen before. */
export function hold({ instances }: State, id: string, before: Held | null): Held | null {
  const key = id || before?.id;
  if (!key) return null;
  const instance = instances[key];
  if (instance) return { id: key, model: instance.model_id };
  return before?.id === key ? before : { id: key, model: key };
}

/** One that moves or waits for a place keeps its place here: no other model takes it. */
export function choiceOf(state: State, held: Held | null): Choice {
  const instances = sortedInstances(state.instances).filter(
    (one) => (one.state === "running" || one.state === "paused") && talks(state.models[one.model_id]),
  );
  const talking = new Set(instances.map((one) => one.model_id));
  const waiting = notLoaded(state).filter((one) => !talking.has(one.model_id));
  const of = instances.filter((one) => one.model_id === held?.model);
  const wanted = waiting.find((one) => one.model_id === held?.model) ?? null;
  const models = mayManage(state.login) ? waiting : wanted ? [wanted] : [];
  const running = (all: readonly Instance[]): Instance | undefined => all.find((one) => one.state === "running") ?? all[0];
  const own = instances.find((one) => one.instance_id === held?.id) ?? running(of);
  const instance = own ?? (wanted ? null : (running(instances) ?? null));
  return { instances, instance, models, model: instance ? null : (wanted ?? models[0] ?? null) };
}

export const isMoving = ({ state, missing }: Instance): boolean =>
  state === "paused" && missing.length > 0 && missing.every((one) => one.to_device_id !== null);

/** "words", "words (moving)": what a choice of models shows. */
export const choiceWord = (one: Instance): string =>
  one.state === "running" ? one.model_name : `${one.model_name} (${isMoving(one) ? t`moving` : t`paused`})`;

const listed = (names: readonly string[]): string => {
  const all = [...new Set(names)];
  const last = all.pop() ?? "";
  return all.length === 0 ? last : t`${all.join(", ")} and ${last}`;
};

/** Why it had to leave a device, in words; null where its state does not tell. */
function whyLeft(state: State, id: string): string | null {
  const record = state.devices[id]?.record;
  const node = state.nodes[record?.node_id ?? ""]?.record;
  const place = devicePlace(state, id);
  if (!record || node?.state === "offline") return t`${place} is offline`;
  return record.draining ? t`${place} is draining` : record.state === "offline" ? t`${place} is gone` : null;
}

/** What happens to a model that moves, waits for a place or is about to leave one; null where it just answers. */
export function moveText(state: State, instance: Instance): string | null {
  const place = (id: string): string => devicePlace(state, id);
  const reason = sentence(instance.state_reason);
  if (instance.state === "running") {
    const draining = instance.stages.map((one) => one.device_id).filter((id) => state.devices[id]?.record.draining);
    if (draining.length === 0) return null;
    const places = listed(draining.map(place));
    const left = plural(new Set(draining).size, t`${places} is draining`, t`${places} are draining`);
    if (!reason) return t`${left}; searching for a place for ${instance.model_name} on other devices.`;
    return t`${left}. ${reason} Answers that have begun are finished here; new requests are refused.`;
  }
  if (instance.state !== "paused") return null;
  const from = [...new Set(instance.missing.map((one) => one.device_id))];
  const left = from.flatMap((id) => whyLeft(state, id) ?? []);
  const goes = t`No text is lost: answers continue where they stopped.`;
  if (isMoving(instance)) {
    const to = listed(instance.missing.map((one) => place(one.to_device_id!)));
    if (left.length > 0) return t`${listed(left)}; continuing on ${to}. ${goes}`;
    return t`${reason || t`A part of the model was lost.`} It continues on ${to}. ${goes}`;
  }
  return `${left.length ? `${sentence(listed(left))} ` : ""}${reason || t`It waits for a place.`} ${goes}`;
}
