/* What views ask of the state: freshness, totals, what wants attention, filtered and sorted lists. Pure.
 *
 * Times: `now` is the page's own clock, ms; what a record says is on the server's, serverTime() goes between. */
import type { Backend, Device, NodeTelemetry } from "../lib/api.gen";
import { fits } from "../lib/fits";
import { count } from "../lib/format";
import { remember } from "../lib/remember";
import { plural, t } from "../text/text";
import type { DeviceEntry, NodeEntry, State } from "./state";
import { BRIDGED_STEPS, type Line, STEP_MS, STEPS, type Trail } from "./trail";

/** A reading older than this is drawn as stale; the slowest pace of sampling is 5 s. */
export const STALE_MS = 15_000;

export const serverTime = (state: State, now: number): number => now + (state.serverAheadMs ?? 0);
export const isLive = (state: State): boolean => state.connection.phase === "live";
/** Why nothing can be changed now, or null. */
export const obstacle = (state: State): string | null =>
  isLive(state) ? null : t`Nothing can be changed while the connection is lost.`;

/** Age in ms of a time from the server; null without a time. */
export function ageOf(state: State, at: string | null | undefined, now: number): number | null {
  if (!at) return null;
  const ms = Date.parse(at);
  return Number.isNaN(ms) ? null : Math.max(0, serverTime(state, now) - ms);
}

/** Old values: the connection is lost, the node is offline, or its readings have stopped. */
export function isStale(state: State, entry: DeviceEntry, now: number): boolean {
  if (!isLive(state)) return true;
  if (entry.record.state === "offline" || state.nodes[entry.record.node_id]?.record.state === "offline") return true;
  const age = ageOf(state, entry.reading?.at, now);
  return age !== null && age > STALE_MS;
}

export function isNodeStale(state: State, entry: NodeEntry, now: number): boolean {
  if (!isLive(state) || entry.record.state === "offline") return true;
  const age = ageOf(state, entry.reading?.at, now);
  return age !== null && age > STALE_MS;
}

export interface ShownState {
  readonly mark: Device["state"] | "stale";
  readonly word: string;
}

/** A device's state as it is shown. One that is idle for a reason is in use by something else than exogpu. */
export function shownState({ state, state_reason }: Device, stale = false): ShownState {
  if (stale && state !== "offline") return { mark: "stale", word: "stale" };
  return { mark: state, word: state === "idle" && state_reason !== null ? "used by others" : state };
}

/** The time of the last reading of a device, else when it was last seen. */
export const lastHeard = (entry: DeviceEntry): string => entry.reading?.at ?? entry.record.last_seen_at;

/** Devices of one machine in the order in which its drivers count them. */
function bySlot(a: Device, b: Device): number {
  const [x, y] = a.pci_address === b.pci_address ? [a.device_id, b.device_id] : [a.pci_address ?? "", b.pci_address ?? ""];
  return x < y ? -1 : 1;
}

const deviceNames = remember((devices: State["devices"]): ReadonlyMap<string, string> => {
  const alike = new Map<string, Device[]>();
  for (const { record } of Object.values(devices)) {
    const key = `${record.node_id}\n${record.name}`;
    alike.set(key, [...(alike.get(key) ?? []), record]);
  }
  const names = new Map<string, string>();
  for (const ones of alike.values())
    ones.sort(bySlot).forEach((one, i) => names.set(one.device_id, ones.length > 1 ? `${one.name} · ${i}` : one.name));
  return names;
});

/** A device's name; those that have one name on one machine are numbered from 0. The id of one that is not here. */
export const deviceName = ({ devices }: State, id: string): string => deviceNames(devices).get(id) ?? id;

/** Its name; of those that have one name on several machines, behind its machine's. */
export function deviceLabel(state: State, id: string): string {
  const { devices, nodes } = state;
  const record = devices[id]?.record;
  if (!record) return id;
  const twice = Object.values(devices).some(({ record: other }) => other.name === record.name && other.node_id !== record.node_id);
  return twice ? `${nodes[record.node_id]?.record.name ?? record.node_id}, ${deviceName(state, id)}` : deviceName(state, id);
}

/** "Fast GPU of atelier"; on a single machine only its name. */
export function devicePlace(state: State, id: string): string {
  const node = state.nodes[state.devices[id]?.record.node_id ?? ""]?.record.name;
  return members(state).length > 1 && node ? t`${deviceName(state, id)} of ${node}` : deviceName(state, id);
}

export const isGpu = (device: Device): boolean => device.kind !== "cpu";
/** The CPU as such, the host memory with it. */
export const isSystem = (device: Device): boolean => device.backend === "cpu";
/** A renderer that runs on the CPU and is listed as a GPU: llvmpipe and the like. */
export const isSoftware = (device: Device): boolean =>
  !isSystem(device) && (device.kind === "cpu" || device.support === "experimental");
/** A GPU that counts as one: no software rasteriser, nothing that failed. */
export const isRealGpu = (device: Device): boolean =>
  isGpu(device) && !isSystem(device) && (device.support === "full" || device.support === "partial");

export const backendName: Record<Backend, string> = {
  cuda: "CUDA",
  hip: "HIP",
  vulkan: "Vulkan",
  webgpu: "WebGPU",
  cpu: "CPU",
};

/** Does its memory bar show memory of the host? */
export const onHostMemory = (device: Device): boolean =>
  device.unified_memory || isSystem(device) || isSoftware(device);

/** Devices of one node that share a memory: counted once. */
export interface Pool {
  readonly total: number | null;
  readonly used: number | null;
  readonly shared: boolean;
}

export function poolsOf(entries: readonly DeviceEntry[]): Pool[] {
  const groups = new Map<string, DeviceEntry[]>();
  for (const entry of entries) {
    const key = `${entry.record.node_id}\n${entry.record.memory_pool || entry.record.device_id}`;
    groups.set(key, [...(groups.get(key) ?? []), entry]);
  }
  return [...groups.values()].map((members) => {
    // the CPU's reading of a shared memory counts all of it
    const best =
      members.find((one) => isSystem(one.record) && one.reading?.memory_used_bytes != null) ??
      members.find((one) => one.reading?.memory_used_bytes != null) ??
      members[0]!;
    return {
      total: memoryTotal(best),
      used: best.reading?.memory_used_bytes ?? null,
      shared: members.length > 1,
    };
  });
}

export const memoryTotal = (entry: DeviceEntry): number | null =>
  entry.reading?.memory_total_bytes ?? entry.record.memory_bytes;

export interface MemoryVital {
  kind: "gpu" | "host";
  used: number | null;
  total: number | null;
  pools: number;
  reporting: number;
}

/** The hottest device, and the one that is nearest to the temperature at which it slows down. */
export interface HeatVital {
  hottest: { id: string; celsius: number };
  nearest: { id: string; margin: number } | null;
}

export interface Vitals {
  devices: number;
  online: number;
  /** How many devices are in which state, in words. */
  states: [string, number][];
  memory: MemoryVital;
  power: { watts: number | null; reporting: number };
  heat: HeatVital | null;
  /** Mean over the nodes that report, weighted by their threads. */
  cpu: { percent: number | null; reporting: number; nodes: number };
}

const stateOrder = ["computing", "used by others", "idle", "throttled", "draining", "resting", "unsupported", "offline"];

export function vitals(state: State): Vitals {
  const entries = Object.values(state.devices);
  const states = stateOrder
    .map((word): [string, number] => [word, entries.filter((one) => shownState(one.record).word === word).length])
    .filter(([, n]) => n > 0);
  const powered = entries.filter((one) => one.reading?.power_watts != null && one.record.state !== "offline");
  const nodes = members(state);
  const busy = nodes.filter((one) => one.reading?.cpu_percent != null && one.record.state !== "offline");
  const weight = (one: NodeEntry): number => one.record.cpu_threads ?? 1;
  const threads = busy.reduce((sum, one) => sum + weight(one), 0);
  return {
    devices: entries.length,
    online: entries.filter((one) => one.record.state !== "offline").length,
    states,
    memory: memoryVital(entries),
    power: {
      watts: powered.length ? powered.reduce((sum, one) => sum + one.reading!.power_watts!, 0) : null,
      reporting: powered.length,
    },
    heat: heatVital(entries),
    cpu: {
      percent: busy.length
        ? busy.reduce((sum, one) => sum + one.reading!.cpu_percent! * weight(one), 0) / threads
        : null,
      reporting: busy.length,
      nodes: nodes.length,
    },
  };
}

function heatVital(all: readonly DeviceEntry[]): HeatVital | null {
  let heat: HeatVital | null = null;
  for (const { record, reading } of all) {
    const celsius = reading?.temperature_celsius;
    if (celsius == null || record.state === "offline") continue;
    const id = record.device_id;
    const margin = reading!.slowdown_celsius == null ? null : reading!.slowdown_celsius - celsius;
    const before: HeatVital = heat ?? { hottest: { id, celsius }, nearest: null };
    heat = {
      hottest: celsius > before.hottest.celsius ? { id, celsius } : before.hottest,
      nearest:
        margin !== null && (before.nearest === null || margin < before.nearest.margin) ? { id, margin } : before.nearest,
    };
  }
  return heat;
}

function memoryVital(all: readonly DeviceEntry[]): MemoryVital {
  const here = all.filter((one) => one.record.state !== "offline");
  const gpus = here.filter((one) => isRealGpu(one.record));
  const kind = gpus.length ? "gpu" : "host";
  // the whole pool, so that a CPU that shares it is asked for its better reading
  const key = (one: DeviceEntry): string => `${one.record.node_id}\n${one.record.memory_pool || one.record.device_id}`;
  const keys = new Set((kind === "gpu" ? gpus : here.filter((one) => isSystem(one.record))).map(key));
  const pools = poolsOf(here.filter((one) => keys.has(key(one))));
  const reporting = pools.filter((pool) => pool.used !== null && pool.total !== null);
  const totals = pools.filter((pool) => pool.total !== null);
  return {
    kind,
    used: reporting.length ? reporting.reduce((sum, pool) => sum + pool.used!, 0) : null,
    total: totals.length ? totals.reduce((sum, pool) => sum + pool.total!, 0) : null,
    pools: pools.length,
    reporting: reporting.length,
  };
}

/** A line summed (or, for use, averaged) over devices, on the steps of the newest trail; gaps of one are left out. */
export function sumTrails(trails: readonly Trail[], line: Line, mean = false): (number | null)[] {
  const newest = Math.max(0, ...trails.map((trail) => trail.newest));
  return Array.from({ length: STEPS }, (_, i) => {
    let sum = 0;
    let n = 0;
    for (const trail of trails) {
      let value: number | null = null;
      // the reading of the last few steps stands until the next one
      for (let back = 0; back <= BRIDGED_STEPS && value === null; back++)
        value = trail[line][i + (trail.newest - newest) - back] ?? null;
      if (value === null) continue;
      sum += value;
      n++;
    }
    return n === 0 ? null : mean ? sum / n : sum;
  });
}

/** The server's time at the right edge of a trail, ms. */
export const trailEnd = (trail: Trail): number => (trail.newest + 1) * STEP_MS;

/** Nodes: the server's own first, then by name. */
export function sortedNodes(state: State): NodeEntry[] {
  return Object.values(state.nodes).sort(
    (a, b) => Number(b.record.local) - Number(a.record.local) || byName(a.record.name, b.record.name),
  );
}

/** The machines that belong to the cluster; those that ask to join are none yet. */
export const members = (state: State): NodeEntry[] => Object.values(state.nodes).filter((one) => one.record.state !== "pending");

/** "3 machines, 1 asks to join" */
export function machinesText(state: State): string {
  const here = members(state).length;
  const asking = Object.keys(state.nodes).length - here;
  const text = count(here, "machine");
  return asking === 0 ? text : plural(asking, t`${text}, ${asking} asks to join`, t`${text}, ${asking} ask to join`);
}

const names = new Intl.Collator("en", { numeric: true });
export const byName = (a: string, b: string): number => names.compare(a, b);

/** Devices in their usual order: by node, GPUs before the CPU, then by name and id. */
export const sortedDevices = remember((state: State): readonly DeviceEntry[] => {
  const place = new Map(sortedNodes(state).map((node, i) => [node.record.node_id, i]));
  const at = (entry: DeviceEntry): number => place.get(entry.record.node_id) ?? place.size;
  const rank = ({ record }: DeviceEntry): number =>
    record.support === "unsupported" ? 3 : isRealGpu(record) ? 0 : isSystem(record) ? 1 : 2;
  return Object.values(state.devices).sort(
    (a, b) =>
      at(a) - at(b) ||
      rank(a) - rank(b) ||
      byName(a.record.name, b.record.name) ||
      bySlot(a.record, b.record),
  );
});

/** Does every word of the filter occur somewhere in what is said about the device? */
export function matches(entry: DeviceEntry, node: NodeEntry | undefined, filter: string): boolean {
  const { record } = entry;
  return fits(filter, [
    record.name,
    record.vendor,
    record.model,
    record.family,
    record.backend,
    backendName[record.backend],
    record.kind,
    isGpu(record) ? "gpu" : "",
    record.state,
    record.support,
    record.pci_address,
    node?.record.name,
    node?.record.host_name,
  ]);
}

export type NodeMemory = { used: number; total: number } | null;

export function nodeMemory(reading: NodeTelemetry | null): NodeMemory {
  const total = reading?.memory_total_bytes;
  const available = reading?.memory_available_bytes;
  return total == null || available == null ? null : { used: total - available, total };
}

/** The largest memory shown: the length of the axis that all memory bars share. */
export function memoryAxis(entries: readonly DeviceEntry[]): number {
  return Math.max(1, ...entries.map((entry) => memoryTotal(entry) ?? 0));
}
