/* One device as a row of the table; on a phone the row becomes a card. */
import type { ComponentChildren } from "preact";
import { figure } from "../../lib/format";
import { deviceHref, nodeHref } from "../../lib/route";
import { row } from "../../lib/rows";
import { lastHeard, memoryTotal, onHostMemory } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import type { Values } from "../../state/trail";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { Age, DeviceMark, Figure, MemoryBar, MemoryFigure, Named, NotReported } from "../parts";
import { describe } from "../overview/cells";
import { Spark, type Tone, ceilingOf } from "../spark";

interface Props {
  entry: DeviceEntry;
  name: string;
  stale: boolean;
  axis: number;
  node: string;
  nodeId: string;
}

export const DeviceRow = row<Props>(
  ({ entry, name, stale, axis, node, nodeId }, ref) => {
    const { record, reading, trail } = entry;
    const tone: Tone = record.state === "computing" ? "accent" : "grey";
    const hot = reading?.thermal_state != null && reading.thermal_state !== "normal";
    const total = memoryTotal(entry);
    const used = reading?.memory_used_bytes ?? null;
    return (
      <tr ref={ref} class={stale ? "stale" : undefined}>
        <th scope="row" class="c-name">
          <a href={deviceHref(record.device_id)} title={name}>
            <Named text={name} />
          </a>
          <span class="small faint clip">
            <span class="on-node">{node} · </span>
            {record.state === "resting" ? record.state_reason : describe(entry)}
          </span>
        </th>
        <td class="c-node">
          <a class="clip" href={nodeHref(nodeId)} title={node}>
            {node}
          </a>
        </td>
        <td class="c-state">
          <DeviceMark record={record} stale={stale} />
          {stale && (
            <span class="small faint">
              <Age at={lastHeard(entry)} />
            </span>
          )}
        </td>
        <td class="c-support">
          <span class={!stale && record.state === record.support ? "said" : undefined}>{word(record.support)}</span>
          {record.verification.state === "pending" && <span class="small faint">{t`not yet verified`}</span>}
          {record.verification.state === "failed" && <span class="small crit">{t`check failed`}</span>}
        </td>
        <Reading name={t`Use`} values={trail.use} max={100} tone={tone}>
          {reading?.utilization_percent != null && <Figure value={figure(reading.utilization_percent)} unit="%" />}
        </Reading>
        <td class="c-mem" data-name={t`Memory`}>
          <span class="pair">
            <MemoryBar used={used} total={total} axis={axis} other={onHostMemory(record)} />
            <span class="num">
              <MemoryFigure used={used} total={total} />
            </span>
          </span>
        </td>
        <Reading
          name={t`Power`}
          values={trail.power}
          max={reading?.power_limit_watts ?? ceilingOf(trail.power, 10)}
          tone={tone}
        >
          {reading?.power_watts != null && <Figure value={figure(reading.power_watts)} unit="W" />}
        </Reading>
        <Reading
          name={t`Heat`}
          values={trail.heat}
          min={20}
          max={reading?.slowdown_celsius ?? 100}
          tone={hot ? "warm" : tone}
        >
          {reading?.temperature_celsius != null && (
            <span class={hot ? "warm" : undefined}>
              <Figure value={figure(reading.temperature_celsius)} unit="°C" />
              {hot && <span class="sr">{word(reading.thermal_state ?? "")}</span>}
            </span>
          )}
        </Reading>
      </tr>
    );
  },
  (before, after) => before.entry.record === after.entry.record && before.stale === after.stale && before.name === after.name,
);

function Reading({
  name,
  values,
  min,
  max,
  tone,
  children,
}: {
  name: string;
  values: Values;
  min?: number;
  max: number;
  tone: Tone;
  children: ComponentChildren;
}) {
  return (
    <td class="c-reading" data-name={name}>
      <span class="pair">
        <Spark values={values} min={min ?? 0} max={max} tone={tone} />
        <span class="num">{children || <NotReported />}</span>
      </span>
    </td>
  );
}
