/* Readings of a device over time, as columns that a chart can draw. */
import type { Methods } from "../lib/api.gen";
import { fullTime } from "../lib/format";
import { CallError } from "../net/calls";
import type { Server } from "../net/socket";
import { t } from "../text/text";
import type { Refusal } from "./tried";

export type Range = "10min" | "1h" | "24h" | "30d";
/** Any time between two moments, ms. */
export interface Between {
  readonly from: number;
  readonly to: number;
}
export const spans: Record<Range, { ms: number; stepS: number; name: string }> = {
  "10min": { ms: 600_000, stepS: 0, name: t`10 min` },
  "1h": { ms: 3_600_000, stepS: 60, name: "1 h" },
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

export type History = Pick<Methods["telemetry.history"]["result"], "columns" | "rows" | "step_s" | "source">;

/** Unknown pace: the slowest one, of a device that is idle and unwatched. */
const SLOWEST_S = 5;

/** Was nothing measured in the `distance` between two samples? Judged by the distances before and behind it, because
 * the pace changes: 5 s when nobody watches, down to half a second. */
export function isGap(distance: number, before: number | undefined, behind: number | undefined): boolean {
  return distance > 2 && distance > 2.5 * Math.max(before ?? SLOWEST_S, behind ?? before ?? SLOWEST_S);
}

/** Rows to columns; a row without readings stands in every gap, so that the line breaks there. */
export function seriesOf(history: History): Series {
  const at = history.columns.indexOf("at");
  const names = history.columns.filter((name) => name !== "at");
  const series: Series = { times: [], columns: Object.fromEntries(names.map((name) => [name, []])) };
  const times = history.rows.map((row) => Date.parse(String(row[at])) / 1000);
  const between = (i: number): number | undefined =>
    times[i] === undefined || times[i - 1] === undefined ? undefined : times[i]! - times[i - 1]!;
  const minute = history.source === "minutes" ? Math.max(60, history.step_s) : null;
  history.rows.forEach((row, i) => {
    const time = times[i]!;
    const last = series.times[series.times.length - 1];
    if (!Number.isFinite(time) || (last !== undefined && time <= last)) return;
    const distance = last === undefined ? 0 : time - last;
    const gap = minute === null ? isGap(distance, between(i - 1), between(i + 1)) : distance > 2.5 * minute;
    if (last !== undefined && gap) push(series, last + distance / 2, () => null);
    push(series, time, (name) => {
      const value = row[history.columns.indexOf(name)];
      return typeof value === "number" ? value : null;
    });
  });
  return series;
}

/** Adds a row at the end. */
export function push(series: Series, time: number, value: (column: string) => number | null): void {
  series.times.push(time);
  for (const [name, values] of Object.entries(series.columns)) values.push(value(name));
}

/** The server keeps minutes for so long. */
const KEPT_MS = 30 * 86_400_000;

/** The time between what two fields of the kind datetime-local say, until `nowMs` at most; or what is wrong with it. */
export function readBetween(from: string, to: string, nowMs: number): Between | string {
  const [begin, end] = [Date.parse(from), Date.parse(to)];
  if (!Number.isFinite(begin) || !Number.isFinite(end)) return t`Give both times, each with its date and its hour.`;
  if (begin >= end) return t`The first time has to be before the second.`;
  if (begin >= nowMs) return t`This time is not over yet: there are no readings of it.`;
  if (begin < nowMs - KEPT_MS) return t`The history holds 30 days, back to ${fullTime(nowMs - KEPT_MS)}. Begin later.`;
  return { from: begin, to: Math.min(end, nowMs) };
}

/** The history up to `nowMs` on the server's clock, or of any time. */
export async function loadHistory(
  server: Server,
  deviceId: string,
  range: Range,
  nowMs: number,
  between?: Between,
): Promise<Series | Refusal> {
  const { ms, stepS } = between ? { ms: between.to - between.from, stepS: 0 } : spans[range];
  if (between) nowMs = between.to;
  try {
    return seriesOf(
      await server.call("telemetry.history", {
        device_id: deviceId,
        from: new Date(nowMs - ms + (between ? 0 : MARGIN_MS)).toISOString(),
        to: new Date(nowMs).toISOString(),
        step_s: stepS,
      }),
    );
  } catch (error) {
    if (error instanceof CallError) return { what: error.message, hint: error.hint };
    throw error;
  }
}
