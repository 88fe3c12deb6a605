/* Machines as boxes that hold their devices. Memory bars share one axis, so that a small card looks small. */
import { count, figure, memory, memoryOf, rate } from "../../lib/format";
import { memo } from "../../lib/memo";
import { deviceHref, nodeHref } from "../../lib/route";
import {
  deviceName,
  machinesText,
  memoryAxis,
  memoryTotal,
  isNodeStale,
  nodeMemory,
  sortedNodes,
  backendName,
  onHostMemory,
  poolsOf,
} from "../../state/select";
import type { DeviceEntry, NodeEntry } from "../../state/state";
import { now } from "../../lib/clock";
import { chipSizes, linkedPairs, pairsOf } from "../../state/topology";
import { t, tx } from "../../text/text";
import { word } from "../../text/words";
import { WIRES_MAX, Wires } from "../topology/wires";
import { useApp } from "../app-context";
import { Age, DeviceMark, Figure, Icon, MarkIcon, MemoryBar, MemoryFigure, Named, Panel, StateMark } from "../parts";

/** With more devices than this each is one line. */
const DENSE = 16;
/** With more devices than this, or more machines, a machine is one line. */
const SUMMED = 200;
const SUMMED_MACHINES = 16;

export function Topology({
  shown,
  stale,
  all,
}: {
  shown: readonly DeviceEntry[];
  stale: ReadonlySet<string>;
  all: number;
}) {
  const { state } = useApp();
  const nodes = sortedNodes(state.value);
  const axis = memoryAxis(shown);
  const length = memory(axis);
  const detail = shown.length > SUMMED || nodes.length > SUMMED_MACHINES ? "sum" : shown.length > DENSE ? "line" : "full";
  const byNode = new Map<string, DeviceEntry[]>(nodes.map((node) => [node.record.node_id, []]));
  for (const one of shown) byNode.get(one.record.node_id)?.push(one);
  const boxes = nodes
    .map((node) => ({ node, devices: byNode.get(node.record.node_id) ?? [] }))
    .filter(({ devices }) => devices.length > 0 || shown.length === all);
  const pairs = pairsOf(state.value);
  const wired = detail === "full" && shown.length === all && nodes.length > 1 && nodes.length <= WIRES_MAX && pairs.length > 0;
  const links = linkedPairs(pairs);
  const aside = [machinesText(state.value), count(all, "device"), nodes.length > 1 && count(links, "direct link")];
  return (
    <Panel
      title={<a href="#/topology">{t`Topology`}</a>}
      label={t`Topology`}
      class="topo-panel"
      aside={aside.filter(Boolean).join(", ")}
    >
      {wired ? (
        <div class="wires-room">
          <Wires
            pairs={pairs}
            chosen={null}
            choose={() => (location.hash = "#/topology")}
            sizes={chipSizes}
            content={(node, devices) => <NodeBox node={node} devices={devices} stale={stale} axis={axis} detail={detail} />}
          />
        </div>
      ) : (
      <div class={`topo ${boxes.length === 1 ? "one" : ""} ${detail === "full" ? "" : "dense"}`}>
        {boxes.map(({ node, devices }) => (
          <NodeBox key={node.record.node_id} node={node} devices={devices} stale={stale} axis={axis} detail={detail} />
        ))}
        {boxes.length === 0 && <p class="quiet">{t`No device matches the filter.`}</p>}
      </div>
      )}
      {detail !== "sum" && shown.some((one) => memoryTotal(one) !== null) && (
        <div class="key">
          <span>
            <i class="key-bar" />
            {t`memory in use, all on one axis of ${length.value} ${length.unit}`}
          </span>
          <span>
            <i class="key-host" />
            {t`host memory`}
          </span>
        </div>
      )}
    </Panel>
  );
}

function NodeBox({
  node,
  devices,
  stale,
  axis,
  detail,
}: {
  node: NodeEntry;
  devices: readonly DeviceEntry[];
  stale: ReadonlySet<string>;
  axis: number;
  detail: "full" | "line" | "sum";
}) {
  const { state } = useApp();
  const { record } = node;
  const old = isNodeStale(state.value, node, now.peek());
  return (
    <section class={`node ${record.state === "offline" ? "offline" : ""}`} aria-label={record.name}>
      <a class="node-head" href={nodeHref(record.node_id)}>
        <Icon name={record.local ? "server" : "desktop"} />
        <b class="clip">{record.name}</b>
        <span class="label clip">{[record.local ? t`this host` : null, record.os].filter(Boolean).join(", ")}</span>
      </a>
      <div class="node-devices">
        {detail === "sum" && devices.length > 0 && <Sum node={node} devices={devices} />}
        {detail !== "sum" &&
          devices.map((one) => {
            const id = one.record.device_id;
            const props = { key: id, entry: one, name: deviceName(state.value, id), stale: stale.has(id), axis };
            return detail === "line" ? <Line {...props} /> : <Chip {...props} />;
          })}
        {devices.length === 0 && (
          <p class="t-dev small quiet">
            {record.state === "pending" ? (
              <a href="#/access">{t`Compare its code, and let it in`}</a>
            ) : record.local && state.value.discovering ? (
              t`Still looking for devices.`
            ) : (
              t`No devices found yet.`
            )}
          </p>
        )}
      </div>
      {(detail !== "sum" || record.state !== "online") && <NodeFoot node={node} stale={old} />}
    </section>
  );
}

function NodeFoot({ node, stale }: { node: NodeEntry; stale: boolean }) {
  const { record, reading } = node;
  if (record.state === "offline" || record.state === "pending" || record.state === "draining")
    return (
      <p class="node-foot">
        {record.state === "pending" ? (
          <span class="state" data-state="throttled">
            <MarkIcon mark="throttled" />
            {t`asks to join`}
          </span>
        ) : (
          <StateMark state={record.state} />
        )}
        {record.state === "offline" && <Age at={reading?.at ?? record.last_seen_at} />}
      </p>
    );
  if (!reading) return null;
  const bytes = nodeMemory(reading);
  const host = bytes && memoryOf(bytes.used, bytes.total);
  const down = reading.network_rx_bytes_per_s === null ? null : rate(reading.network_rx_bytes_per_s);
  const up = reading.network_tx_bytes_per_s === null ? null : rate(reading.network_tx_bytes_per_s);
  return (
    <p class={`node-foot ${stale ? "stale" : ""}`}>
      {reading.cpu_percent !== null && (
        <span>
          {t`CPU`}{" "}<b>{figure(reading.cpu_percent)} %</b>
        </span>
      )}
      {host && (
        <span>
          {tx`memory ${<b>{host.used}</b>} of ${host.total} ${host.unit}`}
        </span>
      )}
      {down && up && (
        <span class="net">
          {tx`network ${<b>{down.value}</b>} ${down.unit} in, ${<b>{up.value}</b>} ${up.unit} out`}
        </span>
      )}
      {reading.battery_percent !== null && (
        <span>
          {tx`battery ${<b>{figure(reading.battery_percent)} %</b>}${reading.charging ? t`, charging` : ""}`}
        </span>
      )}
    </p>
  );
}

const Chip = memo(({ entry, name, stale, axis }: { entry: DeviceEntry; name: string; stale: boolean; axis: number }) => {
  const { record, reading } = entry;
  const heat = reading?.temperature_celsius;
  const hot = reading?.thermal_state && reading.thermal_state !== "normal";
  const total = memoryTotal(entry);
  return (
    <a class={`t-dev ${stale ? "stale" : ""}`} href={deviceHref(record.device_id)}>
      <span class="line">
        <span class="name clip">
          <DeviceMark record={record} stale={stale} bare />
          <span class="clip" title={name}>
            <Named text={name} />
          </span>
        </span>
        <span class={`small ${hot ? "warm" : "quiet"}`}>
          {heat != null ? `${figure(heat)} °C${hot ? ` ${word(reading.thermal_state ?? "")}` : ""}` : backendName[record.backend]}
        </span>
      </span>
      <MemoryBar used={reading?.memory_used_bytes ?? null} total={total} axis={axis} other={onHostMemory(record)} />
      <span class="line small faint">
        <span>{stale ? <Age at={reading?.at ?? record.last_seen_at} mark /> : inUse(entry)}</span>
        <span>
          {reading?.memory_used_bytes != null ? (
            <MemoryFigure used={reading.memory_used_bytes} total={total} word={t`of`} />
          ) : (
            total !== null && <Figure {...memory(total)} />
          )}
        </span>
      </span>
    </a>
  );
});

const Line = memo(({ entry, name, stale, axis }: { entry: DeviceEntry; name: string; stale: boolean; axis: number }) => {
  const { record, reading } = entry;
  const total = memoryTotal(entry);
  const used = reading?.memory_used_bytes ?? null;
  return (
    <a class={`t-row ${stale ? "stale" : ""}`} href={deviceHref(record.device_id)}>
      <DeviceMark record={record} stale={stale} bare />
      <span class="clip" title={name}>
        <Named text={name} />
      </span>
      <MemoryBar used={used} total={total} axis={axis} other={onHostMemory(record)} />
      <span class="num">
        {stale ? (
          <Age at={reading?.at ?? record.last_seen_at} />
        ) : used !== null ? (
          <Figure {...memory(used)} />
        ) : (
          inUse(entry)
        )}
      </span>
    </a>
  );
});

function Sum({ node, devices }: { node: NodeEntry; devices: readonly DeviceEntry[] }) {
  const pools = poolsOf(devices).filter((pool) => pool.used !== null && pool.total !== null);
  const used = pools.reduce((sum, pool) => sum + pool.used!, 0);
  const total = pools.reduce((sum, pool) => sum + pool.total!, 0);
  const busy = devices.filter((one) => one.record.state === "computing").length;
  const off = node.record.state === "offline";
  return (
    <a class={`t-row ${off ? "stale" : ""}`} href={nodeHref(node.record.node_id)}>
      <StateMark state={off ? "offline" : busy > 0 ? "computing" : "idle"} bare />
      <span class="clip">
        {count(devices.length, "device")}
        {busy > 0 ? t`, ${busy} computing` : ""}
      </span>
      <MemoryBar used={pools.length ? used : null} total={pools.length ? total : null} />
      <span class="num">{pools.length > 0 && <Figure {...memory(used)} />}</span>
    </a>
  );
}

/** Describes a device in one or two words. */
function inUse({ record, reading }: DeviceEntry): string {
  if (record.support === "unsupported") return word("unsupported");
  if (record.verification.state === "pending") return t`not yet verified`;
  if (record.state === "draining" || record.state === "resting" || record.state === "throttled") return word(record.state);
  return reading?.utilization_percent != null ? t`${figure(reading.utilization_percent)} % in use` : word(record.state);
}
