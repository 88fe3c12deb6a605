/* Usage as people read it: energy in the unit that fits, its price, sums. Pure. */
import type { UsageRow } from "../lib/api.gen";
import { type Quantity, figure } from "../lib/format";

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
}

export function measured(rows: readonly UsageRow[]): Measured {
  return {
    any: rows.some((one) => one.energy_source !== null),
    integrated: rows.some((one) => one.energy_source === "integrated"),
  };
}
