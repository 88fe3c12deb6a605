/* One chart, drawn by uPlot. Colours follow the theme; series differ by dash as well as by colour; gaps stay gaps. */
import type { Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Range, Series } from "../../command/history";
import type { ThermalPoint } from "../../lib/api.gen";
import { clockTime, day } from "../../lib/format";
import { theme } from "../../lib/theme";
import { t } from "../../text/text";

export interface ChartSpec {
  title: string;
  lines: { column: string; name: string }[];
  bottom?: number;
  /** The end of the scale if no value is above it; null: by the data. */
  top: number | null;
  /** Ticks in powers of 1024. */
  binary?: boolean;
  limit?: { value: number; name: string; critical: boolean } | null;
  text: (value: number) => string;
  /** At the axis; the same as text where not given. */
  tick?: (value: number) => string;
}

const HEIGHT = 148;
const dashes: number[][] = [[], [6, 3], [2, 2], [8, 2, 2, 2]];
const seriesColour = (i: number): string => `--series-${i + 1}`;

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const timeText =
  (range: Range) =>
  (_: uPlot, splits: number[]): string[] =>
    splits.map((s) => (range === "30d" ? day(s * 1000) : clockTime(s * 1000).slice(0, 5)));

function shortTick(spec: ChartSpec): (u: uPlot, splits: number[]) => string[] {
  const text = spec.tick ?? spec.text;
  return (_, splits) => splits.map((value: number | null) => (value === null ? "" : text(value)));
}

/** Four or so ticks at round distances, in powers of 1024 where that is the unit. */
function binarySplits(_: uPlot, __: number, min: number, max: number): number[] {
  const raw = (max - min) / 4 || 1;
  const unit = 2 ** (10 * Math.floor(Math.log2(raw) / 10));
  const nice =
    [1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 50, 64, 100, 128, 200, 256, 512].find((n) => n * unit >= raw) ?? 1024;
  const step = nice * unit;
  const splits: number[] = [];
  for (let value = Math.ceil(min / step) * step; value <= max; value += step) splits.push(value);
  return splits;
}

/** The lines of a forecast: what is expected, dashed, within a band. */
const aheadLines = (): uPlot.Series[] => [
  { label: t`at most`, width: 0, points: { show: false } },
  { label: t`at least`, width: 0, points: { show: false } },
  { label: t`expected`, stroke: colour("--series-1"), width: 1.5, dash: [3, 3], points: { show: false } }, // over the band
];

const faint = (line: number, percent: number): string =>
  `color-mix(in srgb, ${colour(seriesColour(line))} ${percent}%, transparent)`;

/** The least and the most of each step, around the band between them: hair lines, so that a spike of one minute shows. */
const extremeLines = (lines: readonly number[]): uPlot.Series[] =>
  lines.flatMap((line) =>
    ["most", "least"].map((label) => ({ label, stroke: faint(line, 55), width: 0.75, spanGaps: false, points: { show: false } })),
  );

/** Those of a line; null where the history keeps none. */
function extremesOf(series: Series, column: string): [(number | null)[], (number | null)[]] | null {
  const [most, least] = [series.columns[`${column}_max`], series.columns[`${column}_min`]];
  return most && least && most.some((value) => value !== null) ? [most, least] : null;
}

interface Shape {
  width: number;
  range: Range;
  ahead: boolean;
  /** By the numbers of the lines: those that have extremes. */
  banded: readonly number[];
}

function optionsOf(
  spec: ChartSpec,
  { width, range, ahead, banded }: Shape,
  hover: Signal<number | null>,
): uPlot.Options {
  const extremes = spec.lines.length + 1;
  const first = extremes + 2 * banded.length;
  const axis = { font: `500 11px ${colour("--font")}`, stroke: colour("--ink-3"), ticks: { show: false }, gap: 4 };
  const bottom = spec.bottom ?? 0;
  const most = spec.limit?.value ?? Infinity;
  // no ticks where the name of the limit stands; uPlot takes null for a tick that is left out
  const belowLimit: uPlot.Axis.Filter = (_, splits) => splits.map((value) => (value > most ? null : value));
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 16, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 }, sync: { key: "device" } },
    scales: {
      x: { time: true },
      y: {
        range: (_, min, max) => {
          const low = Math.min(bottom, min ?? bottom);
          const high = Math.max(spec.top ?? 0, max ?? 0, low + 1);
          // above a limit there is room for its name
          return [low, spec.limit ? high * 1.2 : spec.top !== null && high <= spec.top ? spec.top * 1.04 : high * 1.1];
        },
      },
    },
    axes: [
      { ...axis, grid: { show: false }, values: timeText(range), space: 64, size: 22 },
      {
        ...axis,
        size: spec.tick ? 40 : 66,
        filter: belowLimit,
        grid: { stroke: colour("--line"), width: 1, filter: belowLimit },
        values: shortTick(spec),
        space: 24,
        ...(spec.binary ? { splits: binarySplits } : {}),
      },
    ],
    series: [
      {},
      ...spec.lines.map((line, i): uPlot.Series => ({
        label: line.name,
        stroke: colour(seriesColour(i)),
        width: 1.5,
        dash: dashes[i] ?? [],
        spanGaps: false,
        points: { show: (u, index) => isLone(u.data[index] as (number | null)[]), size: 3 },
      })),
      ...extremeLines(banded),
      ...(ahead ? aheadLines() : []),
    ],
    bands: [
      ...banded.map((line, i): uPlot.Band => ({
        series: [extremes + 2 * i, extremes + 2 * i + 1],
        fill: faint(line, 22),
      })),
      ...(ahead ? [{ series: [first, first + 1], fill: colour("--accent-soft") } as uPlot.Band] : []),
    ],
    hooks: {
      setCursor: [(u) => (hover.value = u.cursor.idx ?? null)],
      draw: [(u) => drawLimit(u, spec)],
    },
  };
}

/** The values of the lines and of their extremes and, behind them, those of the forecast, which begins at `from`. */
function dataOf(
  series: Series,
  lines: (number | null)[][],
  ahead: readonly ThermalPoint[],
  from: number,
): uPlot.AlignedData {
  if (ahead.length < 2) return [series.times, ...lines];
  const none = (n: number): null[] => new Array<null>(n).fill(null);
  const before = none(series.times.length);
  const after = ahead.filter(({ in_s }) => from + in_s > (series.times[series.times.length - 1] ?? 0));
  return [
    [...series.times, ...after.map(({ in_s }) => from + in_s)],
    ...lines.map((values) => [...values, ...none(after.length)]),
    [...before, ...after.map(({ high_celsius }) => high_celsius)],
    [...before, ...after.map(({ low_celsius }) => low_celsius)],
    [...before, ...after.map(({ celsius }) => celsius)],
  ];
}

/** Too few points for a line to be seen? */
const isLone = (values: (number | null)[]): boolean => values.filter((value) => value !== null).length < 3;

function drawLimit(u: uPlot, { limit }: ChartSpec): void {
  if (!limit) return;
  const y = Math.round(u.valToPos(limit.value, "y", true)) + 0.5;
  const { left, width } = u.bbox;
  const { ctx } = u;
  ctx.save();
  ctx.setLineDash([]);
  ctx.strokeStyle = colour(limit.critical ? "--crit" : "--line-strong");
  ctx.lineWidth = limit.critical ? 1.25 * devicePixelRatio : devicePixelRatio;
  if (!limit.critical) ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(left, y);
  ctx.lineTo(left + width, y);
  ctx.stroke();
  ctx.font = `500 ${11 * devicePixelRatio}px ${colour("--font")}`;
  ctx.fillStyle = colour(limit.critical ? "--crit" : "--ink-3");
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  ctx.fillText(limit.name, left + 2 * devicePixelRatio, y - 2 * devicePixelRatio);
  ctx.restore();
}

/** Has the hardware told any of it in this span? */
export const hasData = (spec: ChartSpec, series: Series): boolean =>
  spec.lines.some(({ column }) => series.columns[column]?.some((value) => value !== null));

export function Chart({
  spec,
  series,
  loading,
  reported,
  from,
  to,
  ahead = [],
  range,
  hover,
}: {
  spec: ChartSpec;
  series: Series;
  loading: boolean;
  reported: boolean;
  from: number;
  to: number;
  /** What is expected after `to`; empty where nothing is. */
  ahead?: readonly ThermalPoint[];
  range: Range;
  hover: Signal<number | null>;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const lines = spec.lines.filter(({ column }) => series.columns[column]?.some((value) => value !== null));
  const known = hasData(spec, series);
  const shape = lines.map((line) => line.column).join();
  const foreseen = ahead.length > 1;
  const extremes = lines.map(({ column }) => extremesOf(series, column));
  const banded = extremes.flatMap((pair, i) => (pair ? [i] : []));
  const bandShape = banded.join();
  const data = dataOf(
    series,
    [...lines.map(({ column }) => series.columns[column] ?? []), ...extremes.flatMap((pair) => pair ?? [])],
    ahead,
    to,
  );
  const end = foreseen ? to + ahead[ahead.length - 1]!.in_s : to;

  useEffect(() => {
    const parent = box.current;
    if (!parent) return;
    const width = parent.clientWidth;
    const chart = new uPlot(optionsOf({ ...spec, lines }, { width, range, ahead: foreseen, banded }, hover), data, parent);
    plot.current = chart;
    const resized = new ResizeObserver(() => chart.setSize({ width: parent.clientWidth, height: HEIGHT }));
    resized.observe(parent);
    return () => {
      resized.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [spec, shape, bandShape, range, foreseen, theme.value]);

  useEffect(() => {
    plot.current?.batch(() => {
      plot.current?.setData(data, false);
      plot.current?.setScale("x", { min: from, max: end });
    });
  });

  const at = hover.value;
  const hovered = at !== null && at < series.times.length;
  return (
    <figure class={`chart ${known || (loading && reported) ? "" : "absent"}`} aria-label={`${spec.title}, ${describe(spec, series)}`}>
      <figcaption>
        <b>{spec.title}</b>
        {lines.map(({ column, name }, i) => {
          const values = series.columns[column] ?? [];
          const value = hovered ? values[at] : lastOf(values);
          const [most, least] = (hovered && extremes[i]?.map((one) => one[at] ?? null)) || [null, null];
          return (
            <span class="legend" key={column}>
              {lines.length > 1 && <Dash i={i} />}
              {lines.length > 1 && <span class="faint">{name}</span>}
              <span class="legend-value">{value == null ? t`no reading` : spec.text(value)}</span>
              {most !== null && least !== null && (
                <span class="faint">
                  {t`${spec.text(least!)} to ${spec.text(most!)}`}
                </span>
              )}
            </span>
          );
        })}
      </figcaption>
      {known ? (
        <div class="plot" ref={box} role="img" aria-hidden="true" />
      ) : (
        <div class="no-plot">
          <i class="dots" />
          <span class="not-reported">{loading ? t`loading` : reported ? t`nothing recorded yet` : t`not reported`}</span>
        </div>
      )}
    </figure>
  );
}

const lastOf = (values: (number | null)[]): number | null => values[values.length - 1] ?? null;

function describe(spec: ChartSpec, series: Series): string {
  const said = spec.lines.map(({ column, name }) => {
    const value = lastOf(series.columns[column] ?? []);
    return value === null ? t`${name} not reported` : t`${name} now ${spec.text(value)}`;
  });
  return said.join(", ");
}

const Dash = ({ i }: { i: number }) => (
  <svg class="dash" viewBox="0 0 18 2" aria-hidden="true">
    <path
      d="M0 1h18"
      stroke="currentColor"
      stroke-width="2"
      stroke-dasharray={(dashes[i] ?? []).join(" ")}
      data-series={i + 1}
    />
  </svg>
);
