/* What the catalogue's entries say in words, and which of them to show first. Pure. */
import type { CatalogEntry, Instance, Model } from "../lib/api.gen";
import { figure, memory } from "../lib/format";
import { told } from "../text/said";
import { t } from "../text/text";
import { word } from "../text/words";
import { parameters, readyInstances } from "./models";
import type { State } from "./state";

/** Tokens a second: slower than this a person waits for the text while reading it. */
const READING = 8;
/** Bytes: a first download should not take long. */
const SOON = 8 * 2 ** 30;

/** An entry, with what there is of it now: newer than what the catalogue said when it was asked. */
export interface Offer {
  readonly entry: CatalogEntry;
  readonly model: Model | null;
  /** One that answers, else one that is being loaded or has failed. */
  readonly instance: Instance | null;
}

export function offers(state: State, entries: readonly CatalogEntry[]): Offer[] {
  const bySource = new Map(Object.values(state.models).map((one) => [one.source, one]));
  const ready = readyInstances(state.instances);
  return entries.map((entry) => {
    const model = bySource.get(entry.source) ?? null;
    const of = (one: Instance): boolean => one.model_id === model?.model_id;
    return { entry, model, instance: ready.find(of) ?? Object.values(state.instances).find(of) ?? null };
  });
}

/** "0.6 B parameters, 610 MiB, apache-2.0, English"; what could not be read is said to be unverified. */
export function entryFacts(entry: CatalogEntry): string {
  const size = entry.bytes === null ? null : memory(entry.bytes);
  return [
    entry.parameters === null ? t`parameters unverified` : t`${parameters(entry.parameters)} parameters`,
    size ? `${size.value} ${size.unit}` : t`size unverified`,
    entry.licence ?? t`licence unverified`,
    entry.languages === null ? t`languages unverified` : /^\d|^more/.test(entry.languages) && !/language/.test(entry.languages) ? t`${told(entry.languages)} languages` : told(entry.languages),
  ].join(" · ");
}

/** What a filter looks at. */
export const offerWords = ({ entry, instance }: Offer): string[] => [entry.name, entry.source, entryFacts(entry), told(entry.good_at), word(instance?.state ?? "")];

const speed = (perSecond: number): string => t`about ${figure(perSecond, perSecond < 10 ? 1 : 0)} tokens/s`;

/** "fits, about 45 tokens/s here" */
export function fitText(entry: CatalogEntry): string {
  const rate = entry.predicted_tokens_per_s;
  const fast = rate === null ? t`speed not known before it is loaded` : t`${speed(rate)} here`;
  if (entry.fits === "device") return t`fits, ${fast}`;
  if (entry.fits === "devices") return t`fits across several devices, ${fast}`;
  if (entry.fits === "no") {
    const missing = entry.missing_bytes === null ? null : memory(entry.missing_bytes);
    return missing ? t`needs ${missing.value} ${missing.unit} more memory` : t`does not fit here`;
  }
  return entry.why ? t`not known: ${entry.why}` : t`not known whether it fits`;
}

/** Is what came another file than the one that the catalogue describes? */
export const isAnother = ({ entry, model }: Offer): boolean =>
  Boolean(model?.sha256 && entry.sha256 && model.sha256 !== entry.sha256);

/** The entry to begin with: of those that talk, fit and are not large, the one of most parameters that is fast enough to read along; else the fastest. */
export function recommended(entries: readonly CatalogEntry[]): CatalogEntry | null {
  const able = entries.filter((one) => one.task === "text" && (one.fits === "device" || one.fits === "devices") && one.predicted_tokens_per_s !== null && (one.bytes ?? Infinity) <= SOON);
  const rate = (one: CatalogEntry): number => one.predicted_tokens_per_s!;
  const fast = able.filter((one) => rate(one) >= READING);
  if (fast.length > 0) return fast.reduce((best, one) => ((one.parameters ?? 0) > (best.parameters ?? 0) ? one : best));
  return able.length > 0 ? able.reduce((best, one) => (rate(one) > rate(best) ? one : best)) : null;
}

/** A few to begin with: the recommended one, and beside it the fastest ones. */
export function firstFew(entries: readonly CatalogEntry[], most: number): CatalogEntry[] {
  const best = recommended(entries);
  if (!best) return entries.slice(0, most);
  const others = entries
    .filter((one) => one !== best && one.task === "text" && (one.fits === "device" || one.fits === "devices"))
    .sort((a, b) => (b.predicted_tokens_per_s ?? 0) - (a.predicted_tokens_per_s ?? 0));
  return [best, ...others.slice(0, most - 1)];
}
