/* A sparkline: the last ten minutes of one reading. A gap in the data is a gap in the line. */
import { memo } from "../lib/memo";
import { BRIDGED_STEPS, STEPS, type Values } from "../state/trail";

const WIDTH = 120;
const HEIGHT = 20;

/** The trace and the area below it as SVG paths; values between min and max fill the height. */
export function sparkPaths(values: Values, min: number, max: number): { trace: string; area: string } {
  const y = (value: number): string =>
    (HEIGHT - Math.min(1, Math.max(0, (value - min) / (max - min || 1))) * (HEIGHT - 1.5)).toFixed(1);
  let trace = "";
  let area = "";
  let run: string[] = [];
  let last = -Infinity;
  let begin = 0;
  const x = (i: number): string => ((i / (STEPS - 1)) * WIDTH).toFixed(1);
  const end = (): void => {
    if (run.length === 0) return;
    // a lone value is drawn as a short dash, so that it is seen
    if (run.length === 1) run.push(`${(Number(x(last)) + 1).toFixed(1)} ${run[0]!.split(" ")[1]}`);
    const path = `M${run.join("L")}`;
    trace += path;
    area += `${path}L${run[run.length - 1]!.split(" ")[0]} ${HEIGHT}L${x(begin)} ${HEIGHT}Z`;
    run = [];
  };
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (value === null || value === undefined) continue;
    if (i - last > BRIDGED_STEPS + 1) {
      end();
      begin = i;
    }
    run.push(`${x(i)} ${y(value)}`);
    last = i;
  }
  end();
  return { trace, area };
}

export type Tone = "accent" | "grey" | "warm";

interface SparkProps {
  values: Values;
  min?: number;
  max: number;
  tone: Tone;
}

/** How far the newest value may move, as a share of the height, before the line is drawn again: too little to see. */
const UNSEEN = 0.04;

/** Does the line look the same? The newest step is a mean that moves a little with every sample. */
function looksSame(before: SparkProps, after: SparkProps): boolean {
  if (before.values === after.values && before.max === after.max && before.tone === after.tone) return true;
  if (before.tone !== after.tone || before.min !== after.min) return false;
  const span = after.max - (after.min ?? 0) || 1;
  if (Math.abs(before.max - after.max) > UNSEEN * span) return false;
  const end = after.values.length - 1;
  for (let i = 0; i <= end; i++) {
    const a = before.values[i] ?? null;
    const b = after.values[i] ?? null;
    if (a === b) continue;
    if (i < end || a === null || b === null || Math.abs(a - b) > UNSEEN * span) return false;
  }
  return true;
}

export const Spark = memo(({ values, min = 0, max, tone }: SparkProps) => {
  const { trace, area } = sparkPaths(values, min, max);
  if (trace === "") return <i class="dots" />;
  return (
    <svg
      class={`spark ${tone === "accent" ? "" : tone}`}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      <path class="area" d={area} />
      <path class="trace" d={trace} />
    </svg>
  );
}, looksSame);

/** The upper end of the scale of a reading without a limit of its own. */
export function ceilingOf(values: Values, least: number): number {
  let most = least;
  for (const value of values) if (value !== null && value > most) most = value;
  return most * 1.15;
}
