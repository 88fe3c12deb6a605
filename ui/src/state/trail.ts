/* The last ten minutes of a device's four headline readings, for sparklines: 120 steps of 5 s, each the mean of what
 * fell into it, null where nothing did. Values are immutable; adding gives a new trail. */
import type { DeviceTelemetry } from "../lib/api.gen";

export const STEP_MS = 5000;
export const STEPS = 120;
const MINUTE_MS = 60_000;
/** Up to so many empty steps are bridged when drawn: an idle, unwatched device is read every 5 s. */
export const BRIDGED_STEPS = 2;

export type Line = "use" | "memory" | "power" | "heat";
export const lines: readonly Line[] = ["use", "memory", "power", "heat"];
const columnOf: Record<Line, keyof DeviceTelemetry> = {
  use: "utilization_percent",
  memory: "memory_used_bytes",
  power: "power_watts",
  heat: "temperature_celsius",
};

export type Values = readonly (number | null)[];

export interface Trail extends Readonly<Record<Line, Values>> {
  /** The newest step: time / STEP_MS. */
  readonly newest: number;
  /** Number of samples in the newest step. */
  readonly samples: number;
}

export type Sample = Record<Line, number | null>;

export function sampleOf(reading: DeviceTelemetry): Sample {
  return {
    use: reading.utilization_percent,
    memory: reading.memory_used_bytes,
    power: reading.power_watts,
    heat: reading.temperature_celsius,
  };
}

const none: Values = new Array<null>(STEPS).fill(null);
export const emptyTrail: Trail = { newest: 0, samples: 0, use: none, memory: none, power: none, heat: none };

function mean(old: number | null | undefined, value: number | null, samples: number): number | null {
  if (value === null) return old ?? null;
  return old === null || old === undefined ? value : old + (value - old) / (samples + 1);
}

/** With a sample taken at `ms`. One that is older than the newest step is left out. */
export function addSample(trail: Trail, ms: number, sample: Sample): Trail {
  const step = Math.floor(ms / STEP_MS);
  if (step < trail.newest) return trail;
  const shift = Math.min(STEPS, step - trail.newest);
  const samples = shift === 0 ? trail.samples : 0;
  const moved = (line: Line): Values => {
    const values = shift === 0 ? trail[line].slice() : [...trail[line].slice(shift), ...none.slice(0, shift)];
    values[STEPS - 1] = mean(values[STEPS - 1], sample[line], samples);
    return values;
  };
  return {
    newest: step,
    samples: samples + 1,
    use: moved("use"),
    memory: moved("memory"),
    power: moved("power"),
    heat: moved("heat"),
  };
}

/** The answer of telemetry.history. */
export interface HistoryRows {
  columns: string[];
  rows: (string | number | null)[][];
}

/** A trail of the rows of a history, with what `live` has that is newer. */
export function trailOf(history: HistoryRows, live: Trail): Trail {
  const at = history.columns.indexOf("at");
  if (at < 0) return live;
  const columns = lines.map((line) => [line, history.columns.indexOf(columnOf[line])] as const);
  let trail = emptyTrail;
  const times = history.rows.map((row) => Date.parse(String(row[at])));
  history.rows.forEach((row, i) => {
    const sample: Sample = { use: null, memory: null, power: null, heat: null };
    for (const [line, column] of columns) {
      const value = row[column];
      sample[line] = typeof value === "number" ? value : null;
    }
    // What was read before the server started is kept as means of whole minutes: each stands for all of its steps.
    const ms = times[i]!;
    const steps = ms % MINUTE_MS === 0 && (times[i + 1] ?? Infinity) - ms >= MINUTE_MS ? MINUTE_MS / STEP_MS : 1;
    for (let step = 0; step < steps; step++) trail = addSample(trail, ms + step * STEP_MS, sample);
  });
  return merge(trail, live);
}

/** The live values where there are some, else those of the history. */
function merge(history: Trail, live: Trail): Trail {
  if (live.newest === 0) return history;
  if (history.newest === 0) return live;
  const newest = Math.max(history.newest, live.newest);
  const pick = (line: Line): Values =>
    none.map((_, i) => {
      const step = newest - (STEPS - 1 - i);
      const of = (trail: Trail): number | null => trail[line][STEPS - 1 - (trail.newest - step)] ?? null;
      return of(live) ?? of(history);
    });
  return {
    newest,
    samples: newest === live.newest ? live.samples : history.samples,
    use: pick("use"),
    memory: pick("memory"),
    power: pick("power"),
    heat: pick("heat"),
  };
}
