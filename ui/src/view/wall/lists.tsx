/* The lists of the wall view: devices with their readings, and models that are loaded. Each shows what fits a screen. */
import { figure } from "../../lib/format";
import { sortedInstances } from "../../state/models";
import { deviceName, memoryTotal, onHostMemory } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import { wallDevices } from "../../state/wall";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp, useStale } from "../app-context";
import { InstanceState } from "../models/state";
import { DeviceMark, Figure, MemoryBar, MemoryFigure, Named } from "../parts";

const DEVICES = 9;
/** Up to so many are shown larger. */
const FEW = 4;
const MODELS = 3;

export function WallDevices() {
  const { state } = useApp();
  const stale = useStale();
  const { shown, rest } = wallDevices(state.value, DEVICES);
  return (
    <section class={`panel wall-panel ${shown.length <= FEW ? "few" : ""}`} aria-label={t`Devices`}>
      <h2 class="wall-title">{t`Devices`}</h2>
      <ul>
        {shown.map((one) => (
          <Device key={one.record.device_id} entry={one} stale={stale.has(one.record.device_id)} />
        ))}
        {shown.length === 0 && <li class="wall-line quiet">{t`None was found yet.`}</li>}
      </ul>
      {rest && <p class="wall-more">{rest}</p>}
    </section>
  );
}

const Missing = () => (
  <>
    <i class="dots" />
    <span class="sr">{t`not reported`}</span>
  </>
);

function Device({ entry, stale }: { entry: DeviceEntry; stale: boolean }) {
  const { state } = useApp();
  const { record, reading } = entry;
  const total = memoryTotal(entry);
  const used = reading?.memory_used_bytes ?? null;
  const hot = reading?.thermal_state != null && reading.thermal_state !== "normal";
  return (
    <li class={`wall-device ${stale ? "stale" : ""}`}>
      <span class="wall-name">
        <b>
          <Named text={deviceName(state.value, record.device_id)} />
        </b>
        <span class="wall-sub clip">{state.value.nodes[record.node_id]?.record.name}</span>
      </span>
      <DeviceMark record={record} stale={stale} />
      <span class="num">{reading?.utilization_percent != null ? <Figure value={figure(reading.utilization_percent)} unit="%" /> : <Missing />}</span>
      <span class="wall-memory">
        <MemoryBar used={used} total={total} other={onHostMemory(record)} />
        <span class="num">{used !== null && <MemoryFigure used={used} total={total} />}</span>
      </span>
      <span class={`num ${hot ? "warm" : ""}`}>
        {reading?.temperature_celsius != null ? <Figure value={figure(reading.temperature_celsius)} unit="°C" /> : <Missing />}
        {hot && <span class="sr"> {word(reading.thermal_state ?? "")}</span>}
      </span>
    </li>
  );
}

export function WallModels() {
  const { state } = useApp();
  const all = sortedInstances(state.value.instances);
  return (
    <section class="panel wall-panel" aria-label={t`Models`}>
      <h2 class="wall-title">{t`Models`}</h2>
      <ul>
        {all.slice(0, MODELS).map((one) => (
          <li key={one.instance_id} class="wall-model">
            <b class="clip">{one.model_name}</b>
            <InstanceState instance={one} />
            <span class="num">
              {one.tokens_per_s ? <Figure value={figure(one.tokens_per_s, one.tokens_per_s < 100 ? 1 : 0)} unit={t`tokens per s`} /> : ""}
            </span>
          </li>
        ))}
        {all.length === 0 && <li class="wall-line quiet">{t`None is loaded.`}</li>}
      </ul>
      {all.length > MODELS && <p class="wall-more">{t`and ${all.length - MODELS} more`}</p>}
    </section>
  );
}
