/* Readings of a device over time, as columns that a chart can draw. */
import type { Methods } from "../lib/api.gen";
import { CallError } from "../net/calls";
import type { Server } from "../net/socket";
import type { Refusal } from "./devices";

export type Range = "10min" | "24h" | "30d";
export const spans: Record<Range, { ms: number; stepS: number; name: string }> = {
  "10min": { ms: 600_000, stepS: 0, name: "10 min" },
  "24h": { ms: 86_400_000, stepS: 60, name: "24 h" },
  "30d": { ms: 30 * 86_400_000, stepS: 1_500, name: "30 d" },
};

/** Times (s) and, by the name of its column, the readings at each; null where there is none. */
export interface Series {
  times: number[];
  columns: Record<string, (number | null)[]>;
}

/** The server has samples of ten minutes; a clock that is a little behind must not ask for more. */
const MARGIN_MS = 5_000;

type History = Methods["telemetry.history"]["result"];

/** Distance of two rows beyond which nothing was measured in between. Idle and unwatched, samples are 5 s apart. */
const gapS = (history: History): number =>
  history.source === "samples" ? Math.max(12, history.step_s * 2.5) : Math.max(150, history.step_s * 2.5);

/** Rows to columns; a row without readings stands in every gap, so that the line breaks there. */
export function seriesOf(history: History): Series {
  const at = history.columns.indexOf("at");
  const names = history.columns.filter((name) => name !== "at");
  const series: Series = { times: [], columns: Object.fromEntries(names.map((name) => [name, []])) };
  const gap = gapS(history);
  for (const row of history.rows) {
    const time = Date.parse(String(row[at])) / 1000;
    const last = series.times[series.times.length - 1];
    if (!Number.isFinite(time) || (last !== undefined && time <= last)) continue;
    if (last !== undefined && time - last > gap) push(series, last + gap / 2, () => null);
    push(series, time, (name) => {
      const value = row[history.columns.indexOf(name)];
      return typeof value === "number" ? value : null;
    });
  }
  return series;
}

/** Adds a row at the end. */
export function push(series: Series, time: number, value: (column: string) => number | null): void {
  series.times.push(time);
  for (const [name, values] of Object.entries(series.columns)) values.push(value(name));
}

/** The history up to `nowMs` on the server's clock. */
export async function loadHistory(server: Server, deviceId: string, range: Range, nowMs: number): Promise<Series | Refusal> {
  const { ms, stepS } = spans[range];
  try {
    return seriesOf(await server.call("telemetry.history", {
      device_id: deviceId, from: new Date(nowMs - ms + MARGIN_MS).toISOString(), to: new Date(nowMs).toISOString(), step_s: stepS,
    }));
  } catch (error) {
    if (error instanceof CallError) return { what: error.message, hint: error.hint };
    throw error;
  }
}
