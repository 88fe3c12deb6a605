/* Usage as people read it: energy in the unit that fits, its price, sums. Pure. */
import type { By } from "../command/usage";
import type { Token, UsageRow } from "../lib/api.gen";
import { type Quantity, figure } from "../lib/format";
import { t } from "../text/text";

const J_PER_KWH = 3.6e6;

/** 5400 → 1.50 Wh; null: not reported. */
export function energy(joules: number | null): Quantity | null {
  if (joules === null) return null;
  if (joules < 3600) return { value: figure(joules, joules < 100 ? 1 : 0), unit: "J" };
  if (joules < J_PER_KWH) return { value: figure(joules / 3600, 2), unit: "Wh" };
  return { value: figure(joules / J_PER_KWH, 2), unit: "kWh" };
}

/** What the energy costs at this price per kWh, in the price's currency. Null: no energy is reported, or no price is set. */
export function cost(joules: number | null, perKwh: number | null): string | null {
  if (joules === null || perKwh === null) return null;
  const price = (joules / J_PER_KWH) * perKwh;
  if (price > 0 && price < 0.0001) return "under 0.0001";
  return price > 0 && price < 0.01 ? price.toFixed(4) : figure(price, 2);
}

/** What an hour at this power costs. */
export const costPerHour = (watts: number | null, perKwh: number | null): string | null => cost(watts === null ? null : watts * 3600, perKwh);

/** Seconds that devices computed: "0.25 s", "12 min", "3.5 h". */
export function deviceTime(seconds: number): Quantity {
  if (seconds < 120) return { value: figure(seconds, seconds < 10 ? 2 : 0), unit: "s" };
  if (seconds < 7200) return { value: figure(seconds / 60, 0), unit: "min" };
  return { value: figure(seconds / 3600, 1), unit: "h" };
}

/** A price as it was typed: "0.32" or "0,32". Null: none, or no price. */
export function readPrice(text: string): number | null {
  const price = Number(text.trim().replace(",", "."));
  return text.trim() !== "" && Number.isFinite(price) && price >= 0 && price <= 1000 ? price : null;
}

export interface Measured {
  /** Some rows have energy, some of these by power times time. */
  readonly any: boolean;
  readonly integrated: boolean;
  /** Some rows report energy, and others none. */
  readonly partly: boolean;
}

export function measured(rows: readonly UsageRow[]): Measured {
  const reported = rows.some((one) => one.energy_source !== null);
  return {
    any: reported,
    integrated: rows.some((one) => one.energy_source === "integrated"),
    partly: reported && rows.some((one) => one.energy_source === null),
  };
}

/** What there is to know of who or what a row is about; null: not known, as for tokens that are no admin's. */
export interface Subjects {
  readonly tokens: readonly Token[] | null;
  readonly models: Readonly<Record<string, unknown>> | null;
  readonly devices: Readonly<Record<string, unknown>> | null;
}

/** A row's name, whether it has a page of its own, and what has become of it. */
export interface Subject {
  readonly name: string;
  readonly link: boolean;
  readonly note: string | null;
}

export function subjectOf({ key, name }: Pick<UsageRow, "key" | "name">, by: By, known: Subjects): Subject {
  if (key === "others") return { name: t`others`, link: false, note: t`beyond the 512 that are counted apart` };
  const called = name || key;
  if (by === "token") {
    const token = known.tokens?.find((one) => one.token_id === key);
    const note = known.tokens === null || key === "owner" ? null : !token ? t`deleted token` : token.revoked_at ? t`revoked` : null;
    return { name: called, link: false, note };
  }
  const there = by === "model" ? known.models : known.devices;
  if (there === null) return { name: called, link: false, note: null };
  const found = Object.hasOwn(there, key);
  return { name: called, link: found, note: found ? null : by === "model" ? t`removed model` : t`removed device` };
}

export type Sum = Pick<UsageRow, "requests" | "prompt_tokens" | "cached_tokens" | "completion_tokens" | "device_s" | "energy_joules" | "idle_joules" | "energy_source"> & {
  /** Some rows report no energy: the sum is that of the others. */
  readonly partly: boolean;
};

/** All rows together. What no row reports is null, and what some do not report is not counted as 0 but left out. */
export function sumOf(rows: readonly UsageRow[]): Sum {
  const add = (of: (row: UsageRow) => number): number => rows.reduce((sum, row) => sum + of(row), 0);
  const addKnown = (of: (row: UsageRow) => number | null): number | null => {
    const known = rows.flatMap((row) => of(row) ?? []);
    return known.length === 0 ? null : known.reduce((sum, one) => sum + one, 0);
  };
  const how = measured(rows);
  return {
    requests: add((one) => one.requests),
    prompt_tokens: add((one) => one.prompt_tokens),
    cached_tokens: add((one) => one.cached_tokens),
    completion_tokens: add((one) => one.completion_tokens),
    device_s: add((one) => one.device_s),
    energy_joules: addKnown((one) => one.energy_joules),
    idle_joules: addKnown((one) => one.idle_joules),
    energy_source: how.integrated ? "integrated" : how.any ? "counter" : null,
    partly: how.partly,
  };
}
