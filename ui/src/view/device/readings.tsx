/* The newest readings of a device in one line; what the hardware does not tell is said as such. */
import type { ComponentChildren } from "preact";
import { clock, figure, memory, rate } from "../../lib/format";
import { memoryTotal } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { Age, MarkIcon, MemoryBar, MemoryFigure, NotReported } from "../parts";

export function Readings({ entry, stale }: { entry: DeviceEntry; stale: boolean }) {
  const { reading } = entry;
  const total = memoryTotal(entry);
  const used = reading?.memory_used_bytes ?? null;
  const hot = reading?.thermal_state != null && reading.thermal_state !== "normal";
  const throttle = reading?.throttle?.length ? reading.throttle.join(", ") : null;
  const free = used !== null && total !== null ? memory(total - used) : null;
  return (
    <section class={`panel vitals ${stale ? "stale" : ""}`} aria-label={t`Readings`}>
      <One label={t`Use`} value={reading?.utilization_percent} unit="%" sub={availability(entry)} />
      <div class="vital">
        <p class="label">{t`Memory`}</p>
        <div class="row">
          {used === null ? (
            <NotReported />
          ) : (
            <>
              <span class="value">
                <MemoryFigure used={used} total={total} word={t`of`} />
              </span>
              <MemoryBar used={used} total={total} />
            </>
          )}
        </div>
        <p class="small quiet">
          {free
            ? t`${free.value} ${free.unit} free`
            : total !== null
              ? t`of ${memory(total).value} ${memory(total).unit}`
              : ""}
        </p>
      </div>
      <One
        label={t`Power`}
        value={reading?.power_watts}
        unit="W"
        sub={reading?.power_limit_watts != null ? t`limit ${figure(reading.power_limit_watts)} W` : ""}
      />
      <One
        label={t`Temperature`}
        value={reading?.temperature_celsius}
        unit="°C"
        warn={hot ? word(reading.thermal_state ?? "") : null}
        sub={[
          reading?.slowdown_celsius != null && t`limit ${figure(reading.slowdown_celsius)} °C`,
          reading?.memory_temperature_celsius != null && t`memory ${figure(reading.memory_temperature_celsius)} °C`,
          reading?.memory_slowdown_celsius != null && t`limit ${figure(reading.memory_slowdown_celsius)} °C`,
        ]
          .filter(Boolean)
          .join(", ")}
      />
      <One
        label={t`Clock`}
        value={reading?.clock_mhz}
        unit="MHz"
        sub={
          throttle
            ? t`held down: ${throttle}`
            : reading?.memory_clock_mhz != null
              ? t`memory ${clock(reading.memory_clock_mhz).value} MHz`
              : ""
        }
      />
      {stale && (
        <p class="vitals-age small">
          <Age at={reading?.at ?? entry.record.last_seen_at} mark /> {reading ? t`these are the last readings` : t`last contact; no reading since the server started`}
        </p>
      )}
    </section>
  );
}

function availability({ reading }: DeviceEntry): string {
  return reading?.availability_score != null ? t`availability ${figure(reading.availability_score, 2)}` : "";
}

/** One reading: its name, its value, what belongs to it. */
export function One({
  label,
  value,
  unit,
  sub,
  warn,
}: {
  label: string;
  value: number | null | undefined;
  unit: string;
  sub: ComponentChildren;
  warn?: string | null;
}) {
  return (
    <div class="vital">
      <p class="label">{label}</p>
      <div class="row">
        {value == null ? (
          <NotReported />
        ) : (
          <span class={`value ${warn ? "warm" : ""}`}>
            {warn && <MarkIcon mark="throttled" class="mini" />} {figure(value)}
            <span class="unit">
              {" "}
              {unit}
              {warn ? `, ${warn}` : ""}
            </span>
          </span>
        )}
      </div>
      <p class="small quiet clip">{sub}</p>
    </div>
  );
}

/** Bytes a second as text, for lists of facts. */
export const rateText = (value: number | null | undefined): string | null =>
  value == null ? null : `${rate(value).value} ${rate(value).unit}`;
