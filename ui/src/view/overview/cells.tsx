/* The devices on one sheet ruled into cells: four readings each, now and over the last ten minutes. */
import type { ComponentChildren } from "preact";
import type { Device } from "../../lib/api.gen";
import { figure } from "../../lib/format";
import { deviceHref } from "../../lib/route";
import { row } from "../../lib/rows";
import { backendName, deviceName, isSoftware, isSystem, memoryTotal } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import type { Values } from "../../state/trail";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { Age, DeviceMark, Figure, MarkIcon, MemoryFigure, Named, NotReported, Panel } from "../parts";
import { Spark, type Tone, ceilingOf } from "../spark";

/** More than this are better read in the table. */
const SHOWN = 24;

export function DeviceSheet({
  shown,
  stale,
  all,
}: {
  shown: readonly DeviceEntry[];
  stale: ReadonlySet<string>;
  all: number;
}) {
  const { state } = useApp();
  const { nodes } = state.value;
  const several = Object.keys(nodes).length > 1;
  const cells = shown.slice(0, SHOWN);
  return (
    <Panel
      title={t`Devices`}
      class="dev-panel"
      aside={shown.length < all ? t`${shown.length} of ${all} match the filter, last 10 min` : t`last 10 min`}
    >
      {shown.length === 0 ? (
        <p class="panel-body quiet">
          {all > 0
            ? t`No device matches the filter.`
            : state.value.discovering
              ? t`Still looking for devices.`
              : t`No devices found yet. The node looks for them as it starts.`}
        </p>
      ) : (
        <div class="sheet">
          {cells.map((one) => (
            <Cell
              key={one.record.device_id}
              entry={one}
              name={deviceName(state.value, one.record.device_id)}
              stale={stale.has(one.record.device_id)}
              where={several ? (nodes[one.record.node_id]?.record.name ?? "") : ""}
            />
          ))}
        </div>
      )}
      {shown.length > cells.length && (
        <p class="more small">
          <a class="link" href="#/devices">
            {t`${shown.length - cells.length} more in the table of devices`}
          </a>
        </p>
      )}
    </Panel>
  );
}

const kinds: Record<Device["kind"], string> = {
  integrated: t`integrated GPU`,
  discrete: t`discrete GPU`,
  virtual: t`virtual GPU`,
  cpu: "CPU",
};

/** "discrete GPU", "software on the CPU" */
export const kindOf = (record: Device): string => (isSoftware(record) ? t`software on the CPU` : kinds[record.kind]);

export function describe({ record }: DeviceEntry): string {
  const api = isSystem(record) ? null : backendName[record.backend];
  return [api, record.family, kindOf(record)].filter(Boolean).join(" · ");
}

interface CellProps {
  entry: DeviceEntry;
  name: string;
  stale: boolean;
  where: string;
}

const Cell = row<CellProps>(({ entry, name, stale, where }, ref) => {
  const { record, reading, trail } = entry;
  const tone: Tone = record.state === "computing" ? "accent" : "grey";
  const hot = reading?.thermal_state != null && reading.thermal_state !== "normal";
  const total = memoryTotal(entry);
  return (
    <a ref={ref} class={`cell ${stale ? "stale" : ""}`} href={deviceHref(record.device_id)}>
      <span class="id">
        <b title={name}>
          <Named text={name} />
        </b>
        {stale ? <Age at={reading?.at ?? record.last_seen_at} mark /> : <DeviceMark record={record} />}
      </span>
      <p class="where">
        {where ? `${where} · ` : ""}
        {describe(entry)}
      </p>
      <dl>
        <Row name={t`Use`} values={trail.use} max={100} tone={tone}>
          {reading?.utilization_percent != null && <Figure value={figure(reading.utilization_percent)} unit="%" />}
        </Row>
        <Row name={t`Memory`} values={trail.memory} max={total ?? ceilingOf(trail.memory, 1)} tone={tone}>
          {reading?.memory_used_bytes != null && <MemoryFigure used={reading.memory_used_bytes} total={total} />}
        </Row>
        <Row
          name={t`Power`}
          values={trail.power}
          max={reading?.power_limit_watts ?? ceilingOf(trail.power, 10)}
          tone={tone}
        >
          {reading?.power_watts != null && (
            <Figure value={limited(reading.power_watts, reading.power_limit_watts)} unit="W" />
          )}
        </Row>
        <Row name={t`Heat`} values={trail.heat} min={20} max={reading?.slowdown_celsius ?? 100} tone={hot ? "warm" : tone}>
          {reading?.temperature_celsius != null && (
            <>
              {hot && (
                <span class="warm">
                  <MarkIcon mark="throttled" class="mini" />
                  <span class="sr">{word(reading.thermal_state ?? "")} </span>{" "}
                </span>
              )}
              <Figure value={limited(reading.temperature_celsius, reading.slowdown_celsius)} unit="°C" />
            </>
          )}
        </Row>
      </dl>
    </a>
  );
}, (before, after) => before.entry.record === after.entry.record && before.stale === after.stale && before.name === after.name);

const limited = (value: number, limit: number | null): string =>
  limit === null ? figure(value) : `${figure(value)} / ${figure(limit)}`;

function Row({
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
    <>
      <dt>{name}</dt>
      <dd>
        <Spark values={values} min={min ?? 0} max={max} tone={tone} />
      </dd>
      <dd class="num">{children || <NotReported />}</dd>
    </>
  );
}
