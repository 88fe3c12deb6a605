/* Selectors for models and instances: order, words for states, memory of a placement. Pure. */
import type { Instance, Model, ModelArchitecture, Placement, Stage } from "../lib/api.gen";
import { figure, took } from "../lib/format";
import { t } from "../text/text";
import { word } from "../text/words";
import { byName, deviceLabel } from "./select";
import type { State } from "./state";

/** Orders models: those in progress first, then the newest. */
export const sortedModels = (models: State["models"]): Model[] =>
  Object.values(models).sort(
    (a, b) =>
      Number(b.state === "downloading") - Number(a.state === "downloading") ||
      b.added_at.localeCompare(a.added_at) ||
      byName(a.name, b.name),
  );

/** Oldest first, as they were started. */
export const sortedInstances = (instances: State["instances"]): Instance[] =>
  Object.values(instances).sort(
    (a, b) => a.created_at.localeCompare(b.created_at) || byName(a.instance_id, b.instance_id),
  );

export const instancesOf = (state: State, modelId: string): Instance[] =>
  sortedInstances(state.instances).filter((one) => one.model_id === modelId);

/** Instances that can take a request. */
export const readyInstances = (instances: State["instances"]): Instance[] =>
  sortedInstances(instances).filter((one) => one.state === "running");

/** The name of the file that a model was uploaded from, or is being uploaded from; null: it came otherwise. */
export const uploadOf = (model: Model): string | null => (model.source.startsWith("upload:") ? model.source.slice(7) : null);

export interface Crumb {
  readonly name: string;
  readonly path: string;
}

/** The folders from an allowed one down to `dir`, that one first. */
export function crumbs(allowed: readonly string[], dir: string): Crumb[] {
  const within = (root: string): boolean => dir === root || dir.startsWith(root.endsWith("/") ? root : `${root}/`);
  const root = allowed.filter(within).sort((a, b) => b.length - a.length)[0] ?? dir;
  const all: Crumb[] = [{ name: root, path: root }];
  for (const name of dir.slice(root.length).split("/").filter(Boolean))
    all.push({ name, path: `${all.at(-1)!.path.replace(/\/$/, "")}/${name}` });
  return all;
}

/** Whether a model answers a conversation: those for embedding or rerank do not. */
export const talks = (model: Model | undefined): boolean => (model?.architecture?.task ?? "text") === "text";

/** Models that could be loaded for a conversation and do not answer now. */
export function notLoaded(state: State): Model[] {
  const ready = new Set(readyInstances(state.instances).map((one) => one.model_id));
  return sortedModels(state.models).filter((one) => one.state === "ready" && talks(one) && !ready.has(one.model_id));
}

/** What a model does that does not talk; null: it talks. */
export function purpose(of: ModelArchitecture): string | null {
  if (of.task === "rerank") return t`reranker: orders documents by a query (/v1/rerank)`;
  return of.task === "embedding" ? t`embedding model: ${figure(of.embedding)} numbers for a text (/v1/embeddings)` : null;
}

/** "1.1 B", "360 M": numbers of parameters. */
export function parameters(n: number): string {
  if (n >= 1e9) return `${figure(n / 1e9, n < 1e11 ? 1 : 0)} B`;
  return n >= 1e6 ? `${figure(n / 1e6)} M` : figure(n);
}

/** "Q4_0", or "Q4_1, held as F16" where that is how it is computed with. */
export const formatText = (of: ModelArchitecture): string =>
  of.file_format && of.file_format !== of.format ? t`${of.file_format}, held as ${of.format}` : of.format;

/** "llama, 1.1 B parameters, Q4_0" */
export const describeModel = (of: ModelArchitecture): string =>
  t`${of.family}, ${parameters(of.parameters)} parameters, ${formatText(of)}`;

/** What a filter looks at. */
export const modelWords = (one: Model): string[] => [one.name, one.source, one.architecture ? describeModel(one.architecture) : "", word(one.state)];

/** What a filter looks at: also where it runs. */
export function instanceWords(state: State, one: Instance): string[] {
  const model = state.models[one.model_id];
  return [one.model_name, word(one.state), ...(model ? modelWords(model) : []), ...one.stages.map(({ device_id }) => deviceLabel(state, device_id))];
}

/** The share that is done, 0 to 100; null while nothing is known. */
export function shareDone(done: number, total: number | null): number | null {
  return total === null || total <= 0 ? null : Math.min(100, (done / total) * 100);
}

/** Seconds until the rest has come at this rate, or null. */
export function secondsLeft(done: number, total: number | null, perSecond: number | null): number | null {
  if (total === null || !perSecond || perSecond <= 0 || total <= done) return null;
  return (total - done) / perSecond;
}

export interface Segment {
  readonly kind: "weights" | "kv" | "work" | "other" | "free";
  readonly bytes: number;
}

/**
 * What a device's memory would hold with this stage on it; what is used by others comes first. free: of the device,
 * without this stage; null where that is not known, and nothing is said of others or of what is left.
 */
export function segments(stage: Stage, total: number, free: number | null): Segment[] {
  const other = free === null ? 0 : Math.max(0, total - free);
  const mine = stage.weights_bytes + stage.kv_bytes + stage.workspace_bytes;
  return [
    { kind: "other", bytes: other },
    { kind: "weights", bytes: stage.weights_bytes },
    { kind: "kv", bytes: stage.kv_bytes },
    { kind: "work", bytes: stage.workspace_bytes },
    { kind: "free", bytes: free === null ? 0 : Math.max(0, total - other - mine) },
  ];
}

export const stageBytes = (stage: Stage): number => stage.weights_bytes + stage.kv_bytes + stage.workspace_bytes;

const sameLayers = (a: Stage, b: Stage): boolean =>
  a.layer_count > 0 && a.first_layer === b.first_layer && a.layer_count === b.layer_count;

/** A step of the pipeline: a stage, or its slices, which have the same layers, side by side. */
export function inTurn(stages: readonly Stage[]): Stage[][] {
  const turns: Stage[][] = [];
  for (const stage of stages) {
    const last = turns.at(-1);
    if (last && sameLayers(last[0]!, stage)) last.push(stage);
    else turns.push([stage]);
  }
  return turns;
}

/** "slice 1 of 2", or null of a whole one. */
export function sliceWord(stages: readonly Stage[], stage: Stage): string | null {
  const turn = inTurn(stages).find((one) => one.includes(stage));
  return turn && turn.length > 1 ? t`slice ${turn.indexOf(stage) + 1} of ${turn.length}` : null;
}

/** "layers 0 to 21, the embedding and the output" */
export function stageParts(stage: Stage): string {
  const last = stage.first_layer + stage.layer_count - 1;
  const layers =
    stage.layer_count === 0 ? t`no layers` : stage.layer_count === 1 ? t`layer ${last}` : t`layers ${stage.first_layer} to ${last}`;
  if (stage.embeds && stage.predicts) return t`${layers}, the embedding and the output`;
  return stage.embeds ? t`${layers}, the embedding` : stage.predicts ? t`${layers}, the output` : layers;
}

/** "Move to den: 12.3 instead of 8.1 tokens per s, predicted" */
export function offerText(state: State, offer: NonNullable<Instance["offer"]>): string {
  const speed = (rate: number): string => figure(rate, rate < 100 ? 1 : 0);
  const to = offer.device_ids.map((id) => deviceLabel(state, id)).join("; ");
  return t`Move to ${to}: ${speed(offer.tokens_per_s)} instead of ${speed(offer.now_tokens_per_s)} tokens per s, predicted`;
}

const shortWords: Record<NonNullable<Instance["short_of_memory"]>, string> = {
  spilled: t`some layers are in host memory, because the device has too little`,
  smaller_format: t`held in a smaller format, because the device has too little memory`,
  cpu: t`on the CPU, because no GPU has memory for it`,
};
export const shortOfMemory = (one: Instance): string | null =>
  one.short_of_memory === null ? null : shortWords[one.short_of_memory];

const proofWords: Record<Placement["proof"], string> = {
  optimal: t`proven to be the best`,
  bound: t`good, not proven to be the best`,
  infeasible: t`proven not to fit`,
  not_found: t`no place found in the time allowed`,
  none: t`not searched further`,
};
/** "proven to be the best, in 41 ms"; how much better another one could be, where that is not proven. */
export function proofWord({ proof, gap, search_ms }: Placement): string {
  const how = proof === "bound" && gap !== null ? t`${proofWords.bound}: at most ${figure(gap * 100)} % better is possible` : proofWords[proof];
  return proof === "none" ? how : t`${how}, in ${took(search_ms)}`;
}

/** Whether a repository's safetensors are meant, which the server converts. */
export const isConverted = (source: string): boolean => /^hf:.*\/model\.safetensors$/.test(source);

/** Does the text name a source, rather than something to search for? */
export const isSource = (text: string): boolean => /^(https?:\/\/|hf:|ollama:|file:|[/~]|\.{1,2}\/)/.test(text.trim());

/** Tokens a second of all instances together; null where none has told. */
export function tokensPerSecond(instances: State["instances"]): number | null {
  const told = Object.values(instances).filter((one) => one.state === "running" && one.tokens_per_s !== null);
  return told.length ? told.reduce((sum, one) => sum + one.tokens_per_s!, 0) : null;
}

/** May this login add, load and stop models? */
export const mayManage = (login: State["login"]): boolean => login?.scopes.includes("admin") ?? false;
/** May this login ask a model? */
export const mayAsk = (login: State["login"]): boolean => mayManage(login) || (login?.scopes.includes("infer") ?? false);
