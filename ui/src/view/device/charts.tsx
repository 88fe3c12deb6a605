/* The charts of a device over 10 min, 24 h or 30 d, on one time axis and with one cursor. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Between, type Range, type Series, isGap, loadHistory, push, spans } from "../../command/history";
import type { Refusal } from "../../command/tried";
import type { ThermalForecast } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { clock, clockTime, day, figure, memoryOf, rate, sentence } from "../../lib/format";
import { isLive, isSystem, memoryTotal, serverTime } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Chart, type ChartSpec, hasData } from "./chart";
import { AnyTime, type Cut, CutNote, SaveCsv } from "./span";

const ranges: readonly Range[] = ["10min", "24h", "30d"];

function specsOf(entry: DeviceEntry): ChartSpec[] {
  const { record, reading } = entry;
  const total = memoryTotal(entry);
  const watts = reading?.power_limit_watts ?? null;
  const slow = reading?.slowdown_celsius ?? null;
  const number =
    (unit: string) =>
    (value: number): string =>
      `${figure(value)} ${unit}`;
  const bare = (value: number): string => figure(value);
  const bytes = (value: number): string => {
    const { used, unit } = memoryOf(value, total ?? value);
    return `${used} ${unit}`;
  };
  const perSecond = (value: number): string => `${rate(value).value} ${rate(value).unit}`;
  return [
    { title: t`Use`, lines: [{ column: "utilization_percent", name: t`use` }], top: 100, text: number("%"), tick: bare },
    {
      title: t`Memory`,
      lines: [{ column: "memory_used_bytes", name: t`used` }],
      top: total,
      binary: true,
      text: bytes,
      tick: (value) => bytes(value).replace(/([.,]0)? \w+$/, ""),
      limit: total === null ? null : { value: total, name: t`all of it, ${bytes(total)}`, critical: false },
    },
    {
      title: t`Power`,
      lines: [{ column: "power_watts", name: t`power` }],
      top: watts,
      text: number("W"),
      tick: bare,
      limit: watts === null ? null : { value: watts, name: t`limit ${figure(watts)} W`, critical: false },
    },
    {
      title: t`Temperature`,
      lines: [
        { column: "temperature_celsius", name: isSystem(record) ? "CPU" : "GPU" },
        { column: "memory_temperature_celsius", name: t`memory` },
      ],
      bottom: 20,
      top: slow ?? 90,
      text: number("°C"),
      tick: bare,
      limit:
        slow === null
          ? null
          : {
              value: slow,
              name: isSystem(record) ? t`slowdown limit ${figure(slow)} °C, reported by the CPU` : t`slowdown limit ${figure(slow)} °C, reported by the card`,
              critical: true,
            },
    },
    {
      title: t`Clocks`,
      lines: [
        { column: "clock_mhz", name: isSystem(record) ? "CPU" : "GPU" },
        { column: "memory_clock_mhz", name: t`memory` },
      ],
      top: null,
      text: (value) => `${clock(value).value} MHz`,
      tick: bare,
    },
    ...(isSystem(record)
      ? []
      : [
          {
            title: "PCIe",
            lines: [
              { column: "pcie_rx_bytes_per_s", name: t`in` },
              { column: "pcie_tx_bytes_per_s", name: t`out` },
            ],
            top: null,
            text: perSecond,
          },
        ]),
  ];
}

const emptySeries: Series = { times: [], columns: {} };

export function Charts({ entry, forecast }: { entry: DeviceEntry; forecast: ThermalForecast | null }) {
  const { state, server } = useApp();
  const [range, setRange] = useState<Range>("10min");
  const [between, setBetween] = useState<Between | null>(null);
  const [series, setSeries] = useState<Series>(emptySeries);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [cut, setCut] = useState<Cut | null>(null);
  const [loading, setLoading] = useState(true);
  const hover = useSignal<number | null>(null);
  const { device_id: id } = entry.record;
  const live = isLive(state.value);
  const { reading } = entry;
  const fields = (reading ?? {}) as unknown as Readonly<Record<string, unknown>>;

  useEffect(() => {
    if (!live) return;
    let wanted = true;
    setLoading(true);
    setCut(null);
    void loadHistory(server, id, range, serverTime(state.peek(), Date.now()), between ?? undefined).then((result) => {
      if (!wanted) return;
      setLoading(false);
      hover.value = null;
      if ("what" in result) setRefusal(result);
      else {
        setRefusal(null);
        setSeries(result);
      }
    });
    return () => ((wanted = false), undefined);
  }, [id, range, between, live]);

  // what comes live is added behind the history
  useEffect(() => {
    if (!reading || loading || between) return;
    const time = Date.parse(reading.at) / 1000;
    setSeries((old) => withReading(old, time, fields, range));
  }, [reading?.at, loading]);

  const shownSpan = (): Between => {
    if (between) return between;
    const to = serverTime(state.peek(), Date.now());
    return { from: to - spans[range].ms, to };
  };
  const specs = useMemo(
    () => specsOf(entry),
    [entry.record, reading?.power_limit_watts, reading?.slowdown_celsius, reading?.memory_total_bytes],
  );
  const told = (spec: ChartSpec): boolean => spec.lines.some(({ column }) => fields[column] != null);
  const pointed = hover.value === null ? undefined : series.times[hover.value];
  // what is not reported takes little room, at the end; until the history is there, what the newest reading lacks
  const drawn = (spec: ChartSpec): number => Number(hasData(spec, series) || (loading && told(spec)));
  const ordered = [...specs].sort((a, b) => drawn(b) - drawn(a));
  const newest = series.times[series.times.length - 1];
  const end = between
    ? between.to / 1000
    : live
    ? serverTime(state.value, now.peek()) / 1000
    : (newest ?? serverTime(state.value, now.peek()) / 1000);
  return (
    <section class="panel charts-panel" aria-label={t`Charts`}>
      <div class="panel-head">
        <h2>{t`Readings over time`}</h2>
        <span class="aside small" aria-live="off">
          {pointed === undefined
            ? ""
            : t`at ${range === "30d" || between ? `${day(pointed * 1000)}, ` : ""}${clockTime(pointed * 1000)}`}
        </span>
        <div class="seg" role="group" aria-label={t`Time span`}>
          {ranges.map((one) => (
            <button
              key={one}
              type="button"
              aria-pressed={!between && range === one}
              onClick={() => {
                setBetween(null);
                setRange(one);
              }}
            >
              {spans[one].name}
            </button>
          ))}
        </div>
        <AnyTime chosen={setBetween} />
        <SaveCsv
          id={id}
          span={shownSpan}
          saved={(outcome) => {
            setCut(outcome && "rest" in outcome ? outcome : null);
            setRefusal(outcome && "what" in outcome ? outcome : null);
          }}
        />
      </div>
      {refusal && (
        <p class="panel-body quiet">
          {t`The history could not be read. ${sentence(refusal.what)} ${sentence(refusal.hint)}`}
        </p>
      )}
      {cut && <CutNote cut={cut} />}
      <div class="charts">
        {ordered.map((spec) => (
          <Chart
            key={spec.title}
            spec={spec}
            series={series}
            loading={loading}
            reported={told(spec)}
            from={between ? between.from / 1000 : end - spans[range].ms / 1000}
            to={end}
            ahead={!between && range === "10min" && spec.lines[0]?.column === "temperature_celsius" ? (forecast?.points ?? []) : []}
            range={between ? rangeLike(between) : range}
            hover={hover}
          />
        ))}
      </div>
      {!loading && !refusal && between && series.times.length === 0 && (
        <p class="panel-body small quiet">{t`There are no readings of this time.`}</p>
      )}
      {!loading && !refusal && !between && range !== "10min" && series.times.length < 3 && (
        <p class="panel-body small quiet">
          {t`Minute averages begin when the server first sees the device; there is little to show yet.`}
        </p>
      )}
    </section>
  );
}

/** How the axis of a time names its moments: as the shortest range that holds it. */
const rangeLike = ({ from, to }: Between): Range => (to - from <= spans["24h"].ms ? "24h" : "30d");

/** With a live reading behind it, without what has moved out of the span. */
function withReading(old: Series, time: number, reading: Readonly<Record<string, unknown>>, range: Range): Series {
  const last = old.times[old.times.length - 1];
  if (last !== undefined && time < last + Math.max(spans[range].stepS, 0.2)) return old;
  if (old.times.length === 0) return old;
  const columns = Object.fromEntries(Object.entries(old.columns).map(([name, values]) => [name, values.slice()]));
  const next: Series = { times: old.times.slice(), columns };
  const before = old.times[old.times.length - 2];
  if (
    range === "10min" &&
    last !== undefined &&
    isGap(time - last, before === undefined ? undefined : last - before, undefined)
  )
    push(next, (last + time) / 2, () => null);
  push(next, time, (name) => {
    const value = reading[name];
    return typeof value === "number" ? value : null;
  });
  let out = 0;
  while (out < next.times.length - 1 && next.times[out + 1]! < time - spans[range].ms / 1000) out++;
  if (out > 0) {
    next.times.splice(0, out);
    for (const values of Object.values(next.columns)) values.splice(0, out);
  }
  return next;
}
