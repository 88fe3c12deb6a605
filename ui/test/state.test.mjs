import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";
import { change, device, deviceReading, node, nodeReading, snapshot } from "./records.mjs";

const { reduce } = await load("state/reduce.ts");
const { LOG_MAX, initialState } = await load("state/state.ts");
const { shownLog, withOlder } = await load("state/log.ts");

const from = (...actions) => actions.reduce(reduce, initialState);
const event = (seq, topic, data, more = {}) => ({
  type: "event",
  now: 1000,
  event: { topic, epoch: "e1", seq, at: "1970-01-01T00:00:01.250Z", data, ...more },
});
const loaded = { type: "snapshot", snapshot: snapshot() };

test("a snapshot replaces everything", () => {
  const state = from(loaded);
  assert.equal(state.loaded, true);
  assert.equal(state.epoch, "e1");
  assert.equal(state.seq, 10);
  assert.deepEqual(Object.keys(state.devices), ["d1", "d2"]);
  assert.equal(state.devices.d1.reading.utilization_percent, 50);
  const next = reduce(state, {
    type: "snapshot",
    snapshot: { ...snapshot(), epoch: "e2", seq: 1, devices: [device("d9")] },
  });
  assert.deepEqual(Object.keys(next.devices), ["d9"]);
  assert.equal(next.epoch, "e2");
});

test("a snapshot keeps the trails of devices that are still there", () => {
  const state = from(loaded);
  const again = reduce(state, { type: "snapshot", snapshot: { ...snapshot(), telemetry: { nodes: [], devices: [] } } });
  assert.deepEqual(again.devices.d1.trail, state.devices.d1.trail);
  assert.equal(again.devices.d1.reading, null);
});

test("an inventory event replaces the record and leads the last changes", () => {
  const one = change({ summary: "verified in 0.4 s" });
  const state = from(
    loaded,
    event(11, "inventory", { allocations: [], freed: [], change: one, node: null, device: device("d1", { state: "computing" }) }),
  );
  assert.equal(state.devices.d1.record.state, "computing");
  assert.equal(state.devices.d1.reading.utilization_percent, 50, "the reading stays");
  assert.equal(state.recent[0], one);
  assert.equal(state.seq, 11);
});

test("whether devices are still looked for comes with a snapshot, and ends by an event", () => {
  const nothing = { allocations: [], freed: [], change: null, node: null, device: null, discovering: true };
  const looking = from({ type: "snapshot", snapshot: { ...snapshot(), discovering: true } });
  assert.equal(looking.discovering, true);
  const next = reduce(looking, event(11, "inventory", nothing));
  assert.equal(next.discovering, true, "it goes on");
  assert.equal(reduce(next, event(12, "inventory", { ...nothing, discovering: false })).discovering, false);
  assert.equal(from(loaded).discovering, false);
});

test("a new device and a new node appear by event", () => {
  const state = from(
    loaded,
    event(11, "inventory", { allocations: [], freed: [], change: change(), node: node("n2"), device: device("d7", { node_id: "n2" }) }),
  );
  assert.ok(state.nodes.n2);
  assert.equal(state.devices.d7.reading, null);
});

test("a node that was removed goes with its devices, though the event still tells what it was", () => {
  const [one] = Object.values(from(loaded).nodes);
  const { node_id } = one.record;
  const removed = { allocations: [], freed: [], change: change({ kind: "node.removed", node_id }), node: node(node_id), device: null };
  const state = from(loaded, event(11, "inventory", removed));
  assert.equal(state.nodes[node_id], undefined);
  assert.deepEqual(Object.values(state.devices).filter((entry) => entry.record.node_id === node_id), []);
  assert.equal(state.recent[0].kind, "node.removed");
});

test("lines of the log are kept with their time, the newest first, so many at most, and found by level and words", () => {
  const line = (seq, level, text) => event(11 + seq, "log", { level, area: "node", text, dropped: 0, node_id: null, node_name: null, said_at: null });
  let state = from(loaded);
  for (let seq = 0; seq < 1010; seq++) state = reduce(state, line(seq, seq % 10 ? "info" : "warning", `line ${seq}`));
  assert.equal(state.log.length, LOG_MAX);
  assert.deepEqual({ ...state.log[0] }, { seq: 1020, at: "1970-01-01T00:00:01.250Z", level: "info", area: "node", text: "line 1009", dropped: 0, node_id: null, node_name: null, said_at: null });
  assert.equal(shownLog(state.log, { level: "info", text: "" }).length, LOG_MAX);
  assert.equal(shownLog(state.log, { level: "warning", text: "" }).length, LOG_MAX / 10);
  assert.equal(shownLog(state.log, { level: "error", text: "" }).length, 0);
  assert.deepEqual(shownLog(state.log, { level: "info", text: " NODE: line 777 " }).map((one) => one.text), ["line 777"]);
});

test("lines from before the page was opened stand below those that were heard, each once", () => {
  const line = (seq) => ({ seq, at: "2026-11-20T14:31:52.000Z", level: "info", area: "node", text: `line ${seq}`, dropped: 0, node_id: null, node_name: null, said_at: null });
  const heard = [line(9), line(8)];
  assert.deepEqual(withOlder(heard, [line(3), line(7), line(8), line(9)]).map((one) => one.seq), [9, 8, 7, 3]);
  assert.equal(withOlder(heard, [line(8)]), heard);
  assert.equal(withOlder([], Array.from({ length: LOG_MAX + 5 }, (_, i) => line(i))).length, LOG_MAX);
});

test("entries of the audit log are kept, the newest first, so many at most", () => {
  let state = from(loaded);
  for (let seq = 0; seq < 510; seq++) state = reduce(state, event(11 + seq, "audit", { seq }));
  assert.equal(state.audit.length, 500);
  assert.equal(state.audit[0].seq, 509);
});

test("telemetry changes only those it names, and ignores strangers", () => {
  const before = from(loaded);
  const data = {
    nodes: [nodeReading("n1", { cpu_percent: 77 })],
    devices: [deviceReading("d1", { utilization_percent: 90 }), deviceReading("x")],
  };
  const after = reduce(before, event(11, "telemetry", data));
  assert.equal(after.devices.d1.reading.utilization_percent, 90);
  assert.equal(after.devices.d2, before.devices.d2, "the same object: nothing to draw");
  assert.equal(after.nodes.n1.reading.cpu_percent, 77);
  assert.equal(after.devices.x, undefined);
});

test("events of another epoch and those applied before change nothing", () => {
  const state = from(loaded);
  const data = { nodes: [], devices: [deviceReading("d1", { utilization_percent: 1 })] };
  assert.equal(reduce(state, event(11, "telemetry", data, { epoch: "old" })), state);
  assert.equal(reduce(state, event(10, "telemetry", data)), state);
});

test("the last changes are bounded", () => {
  let state = from(loaded);
  for (let seq = 11; seq < 111; seq++)
    state = reduce(state, event(seq, "inventory", { allocations: [], freed: [], change: change(), node: null, device: null }));
  assert.equal(state.recent.length, 50);
});

test("the server's clock is judged by the fastest event", () => {
  let state = from(loaded, event(11, "telemetry", { nodes: [], devices: [] }));
  assert.equal(state.serverAheadMs, 250);
  state = reduce(state, { ...event(12, "telemetry", { nodes: [], devices: [] }), now: 1200 });
  assert.equal(state.serverAheadMs, 250, "a slow one does not move it");
  state = reduce(state, { ...event(13, "telemetry", { nodes: [], devices: [] }), now: 3_600_000 });
  assert.equal(state.serverAheadMs, 1250 - 3_600_000, "this page's clock was set forward");
});

test("logging out forgets everything but the server", () => {
  const server = { name: "atelier" };
  const state = from({ type: "server", server }, { type: "login", login: { name: "admin" } }, loaded, {
    type: "logged_out",
  });
  assert.equal(state.server, server);
  assert.equal(state.login, null);
  assert.equal(state.loaded, false);
  assert.deepEqual(state.devices, {});
});

test("an alert stands from its event, or the snapshot, until it is cleared", () => {
  const alert = (id, cleared_at = null) => ({ alert_id: id, kind: "audit_forked", cleared_at });
  const event = (seq, data) => ({ type: "event", event: { topic: "alerts", epoch: "e1", seq, at: "2026-11-20T14:31:52.000Z", data }, now: 0 });
  let state = reduce(initialState, { type: "snapshot", snapshot: snapshot({ alerts: [alert("a1")] }) });
  state = reduce(state, event(11, { alert: alert("a2") }));
  assert.deepEqual(Object.keys(state.alerts), ["a1", "a2"]);
  state = reduce(state, event(12, { alert: alert("a1", "2026-11-20T14:31:53.000Z") }));
  assert.deepEqual(Object.keys(state.alerts), ["a2"]);
  state = reduce(state, { type: "snapshot", snapshot: snapshot() });
  assert.deepEqual(state.alerts, {});
});

test("the store publishes once a frame", async () => {
  const { createStore } = await load("state/store.ts");
  const frames = [];
  const store = createStore((draw) => frames.push(draw));
  store.dispatch({ type: "heard", now: 1 });
  store.dispatch({ type: "heard", now: 2 });
  assert.equal(frames.length, 1);
  assert.equal(store.state.value.heardAt, null, "not drawn yet");
  assert.equal(store.current().heardAt, 2);
  frames.pop()();
  assert.equal(store.state.value.heardAt, 2);
  store.dispatch({ type: "heard", now: 3 });
  assert.equal(frames.length, 1);
});
