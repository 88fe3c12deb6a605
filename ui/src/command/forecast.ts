/* How hot a device will be. */
import type { ThermalForecast } from "../lib/api.gen";
import type { Server } from "../net/socket";
import { type Refusal, tried } from "./tried";

/** The newest forecast that came, and what is wrong with getting another. */
export interface Foreseen {
  readonly forecast: ThermalForecast | null;
  /** When it came, by the page's own clock, ms. */
  readonly at: number;
  readonly refusal: Refusal | null;
}

export const nothingForeseen: Foreseen = { forecast: null, at: 0, refusal: null };

/** The forecast of a device's core as it draws now. */
export async function readForecast(server: Server, deviceId: string, horizonS: number): Promise<ThermalForecast | Refusal> {
  let forecast: ThermalForecast | null = null;
  const refusal = await tried(async () => (forecast = await server.call("thermal.forecast", { device_id: deviceId, horizon_s: horizonS })));
  return refusal ?? forecast!;
}

/** With an answer that came now; where it is a refusal, the forecast `before` stays. */
export const foresee = (before: Foreseen, answer: ThermalForecast | Refusal, nowMs: number): Foreseen =>
  "what" in answer ? { ...before, refusal: answer } : { forecast: answer, at: nowMs, refusal: null };

/** Older than this, a forecast says how old it is, and is no longer drawn from now on. */
const FRESH_MS = 10_000;

export const isFresh = ({ forecast, at, refusal }: Foreseen, nowMs: number): boolean =>
  forecast !== null && refusal === null && nowMs - at < FRESH_MS;
