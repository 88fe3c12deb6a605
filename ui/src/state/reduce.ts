/* The next state, from the last one and what happened. Pure; the only way in which state changes.
 *
 * Actions come from the socket file alone. An event of another epoch or one that was already applied changes nothing:
 * replays after a reconnect may overlap with what is known. */
import type {
  Alert,
  AlertEvent,
  AuditEntry,
  Change,
  ChatStatus,
  ConversationChanged,
  Device,
  InventoryEvent,
  LogEvent,
  Login,
  Node,
  PlacementEvent,
  ServerInfo,
  Snapshot,
  TelemetryEvent,
  TopologyEvent,
} from "../lib/api.gen";
import { type Connection, type DeviceEntry, type NodeEntry, RECENT_MAX, AUDIT_MAX, LOG_MAX, type State, initialState } from "./state";
import { linkKey } from "./topology";
import { type HistoryRows, addSample, emptyTrail, sampleOf, trailOf } from "./trail";

/** `at` of an event is the server's clock as text; `now` of an action is the page's own, ms. */
export type Action =
  | { type: "connection"; connection: Connection }
  | { type: "server"; server: ServerInfo }
  | { type: "login"; login: Login }
  | { type: "heard"; now: number }
  | { type: "snapshot"; snapshot: Snapshot }
  | { type: "event"; event: ServerEvent; now: number }
  | { type: "history"; deviceId: string; history: HistoryRows }
  | { type: "device"; device: Device }
  | { type: "chat"; status: ChatStatus }
  | { type: "conversation"; change: ConversationChanged }
  | { type: "logged_out" };

export type ServerEvent = { epoch: string; seq: number; at: string } & (
  | { topic: "inventory"; data: InventoryEvent }
  | { topic: "telemetry"; data: TelemetryEvent }
  | { topic: "audit"; data: AuditEntry }
  | { topic: "placement"; data: PlacementEvent }
  | { topic: "topology"; data: TopologyEvent }
  | { topic: "log"; data: LogEvent }
  | { topic: "alerts"; data: AlertEvent }
);

export function reduce(state: State, action: Action): State {
  switch (action.type) {
    case "connection":
      return { ...state, connection: action.connection };
    case "server":
      return { ...state, server: action.server };
    case "login":
      return { ...state, login: action.login };
    case "heard":
      return { ...state, heardAt: action.now };
    case "snapshot":
      return applySnapshot(state, action.snapshot);
    case "event":
      return applyEvent(state, action.event, action.now);
    case "history":
      return withDevice(state, action.deviceId, (entry) => ({
        ...entry,
        trail: trailOf(action.history, entry.trail),
      }));
    case "device":
      return withDevice(state, action.device.device_id, (entry) => ({ ...entry, record: action.device }));
    case "chat":
      return { ...state, chat: action.status };
    case "conversation":
      return { ...state, conversation: action.change };
    case "logged_out":
      return { ...initialState, server: state.server, connection: state.connection };
  }
}

function withDevice(state: State, id: string, change: (entry: DeviceEntry) => DeviceEntry): State {
  const entry = state.devices[id];
  return entry ? { ...state, devices: { ...state.devices, [id]: change(entry) } } : state;
}

/** Everything anew, but the trails of devices that are still there are kept. */
function applySnapshot(state: State, snapshot: Snapshot): State {
  const nodes: Record<string, NodeEntry> = {};
  for (const record of snapshot.nodes) nodes[record.node_id] = { record, reading: null };
  const devices: Record<string, DeviceEntry> = {};
  for (const record of snapshot.devices) {
    const trail = state.devices[record.device_id]?.trail ?? emptyTrail;
    devices[record.device_id] = { record, reading: null, trail };
  }
  return applyTelemetry(
    {
      ...state,
      epoch: snapshot.epoch,
      seq: snapshot.seq,
      loaded: true,
      discovering: snapshot.discovering,
      nodes,
      devices,
      allocations: Object.fromEntries(snapshot.allocations.map((one) => [one.allocation_id, one])),
      models: Object.fromEntries(snapshot.models.map((one) => [one.model_id, one])),
      instances: Object.fromEntries(snapshot.instances.map((one) => [one.instance_id, one])),
      links: Object.fromEntries(snapshot.links.map((one) => [linkKey(one.from_node_id, one.to_node_id), one])),
      alerts: Object.fromEntries(snapshot.alerts.map((one) => [one.alert_id, one])),
      recent: snapshot.recent,
    },
    snapshot.telemetry,
  );
}

function applyEvent(state: State, event: ServerEvent, now: number): State {
  if (event.epoch !== state.epoch || event.seq <= state.seq) return state;
  const next = { ...state, seq: event.seq, ...judgeClock(state, Date.parse(event.at) - now, now) };
  switch (event.topic) {
    case "inventory":
      return applyInventory(next, event.data);
    case "telemetry":
      return applyTelemetry(next, event.data);
    case "audit":
      return { ...next, audit: [event.data, ...next.audit].slice(0, AUDIT_MAX) };
    case "placement":
      return applyPlacement(next, event.data);
    case "topology":
      return applyTopology(next, event.data);
    case "log":
      return { ...next, log: [{ ...event.data, seq: event.seq, at: event.at }, ...next.log].slice(0, LOG_MAX) };
    case "alerts":
      return { ...next, alerts: putAlert(next.alerts, event.data.alert) };
  }
}

/** Adds an alert, or removes a cleared one. */
function putAlert(alerts: State["alerts"], alert: Alert): State["alerts"] {
  const others = Object.entries(alerts).filter(([id]) => id !== alert.alert_id);
  return Object.fromEntries(alert.cleared_at === null ? [...others, [alert.alert_id, alert]] : others);
}

const CLOCK_MS = 60_000;

/** An event takes time to arrive, so the largest difference is the truest; but either clock may be set meanwhile. */
function judgeClock(state: State, ahead: number, now: number): Pick<State, "serverAheadMs" | "aheadJudgedAt"> {
  const { serverAheadMs, aheadJudgedAt } = state;
  const keep = serverAheadMs !== null && ahead < serverAheadMs && Math.abs(now - aheadJudgedAt) < CLOCK_MS;
  return keep ? { serverAheadMs, aheadJudgedAt } : { serverAheadMs: ahead, aheadJudgedAt: now };
}

/** A node that was removed takes its devices with it. */
function withoutNode(state: State, id: string): State {
  const devices = Object.entries(state.devices).filter(([, entry]) => entry.record.node_id !== id);
  const nodes = Object.entries(state.nodes).filter(([node]) => node !== id);
  return { ...state, nodes: Object.fromEntries(nodes), devices: Object.fromEntries(devices) };
}

function applyInventory(before: State, data: InventoryEvent): State {
  const { change } = data;
  const gone = change?.kind === "node.removed" || change?.kind === "node.refused";
  const state = gone ? withoutNode(before, change.node_id) : before;
  return {
    ...state,
    discovering: data.discovering,
    nodes: data.node && !gone ? putNode(state.nodes, data.node) : state.nodes,
    devices: data.device ? putDevice(state.devices, data.device) : state.devices,
    allocations: putAllocations(state.allocations, data),
    recent: data.change ? prepend(state.recent, data.change) : state.recent,
  };
}

function putAllocations(old: State["allocations"], data: InventoryEvent): State["allocations"] {
  if (data.allocations.length + data.freed.length === 0) return old;
  const next = { ...old };
  for (const one of data.allocations) next[one.allocation_id] = one;
  for (const id of data.freed) delete next[id]; // one that came and went within an event is in both
  return next;
}

function applyPlacement(state: State, data: PlacementEvent): State {
  const models = { ...state.models };
  const instances = { ...state.instances };
  for (const one of data.models) models[one.model_id] = one;
  for (const one of data.instances) instances[one.instance_id] = one;
  for (const id of data.removed_models) delete models[id];
  for (const id of data.removed_instances) delete instances[id];
  return { ...state, models, instances };
}

function applyTopology(state: State, data: TopologyEvent): State {
  const links = { ...state.links };
  for (const one of data.links) links[linkKey(one.from_node_id, one.to_node_id)] = one;
  for (const one of data.removed) delete links[linkKey(one.from_node_id, one.to_node_id)];
  return { ...state, links, heard: data.heard ?? state.heard, servers: data.servers ?? state.servers };
}

function putNode(nodes: State["nodes"], record: Node): State["nodes"] {
  return { ...nodes, [record.node_id]: { record, reading: nodes[record.node_id]?.reading ?? null } };
}

function putDevice(devices: State["devices"], record: Device): State["devices"] {
  const old = devices[record.device_id];
  const entry = { record, reading: old?.reading ?? null, trail: old?.trail ?? emptyTrail };
  return { ...devices, [record.device_id]: entry };
}

function prepend(recent: readonly Change[], change: Change): readonly Change[] {
  return [change, ...recent].slice(0, RECENT_MAX);
}

function applyTelemetry(state: State, data: TelemetryEvent): State {
  const nodes = { ...state.nodes };
  for (const reading of data.nodes) {
    const entry = nodes[reading.node_id];
    if (entry) nodes[reading.node_id] = { ...entry, reading };
  }
  const devices = { ...state.devices };
  for (const reading of data.devices) {
    const entry = devices[reading.device_id];
    if (!entry) continue;
    const trail = addSample(entry.trail, Date.parse(reading.at), sampleOf(reading));
    devices[reading.device_id] = { ...entry, reading, trail };
  }
  return { ...state, nodes, devices };
}
