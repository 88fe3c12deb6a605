// The wall view: its verdict, the devices that it shows, and what it says may go wrong.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";
import { GIB, device, deviceReading, node, snapshot } from "./records.mjs";

const { ahead, verdict, wallDevices } = await load("state/wall.ts");
const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");
const { parseRoute } = await load("lib/route.ts");

const NOW = Date.parse("2026-11-20T14:31:53.000Z");
const state = (more = {}, phase = "live") =>
  [
    { type: "connection", connection: { phase } },
    { type: "snapshot", snapshot: snapshot(more) },
  ].reduce(reduce, initialState);

test("it has an address of its own", () => {
  assert.deepEqual(parseRoute("#/wall"), { page: "wall" });
  assert.equal(parseRoute("#/wall/x").page, "unknown");
});

test("the verdict: well, one thing by its name, several, nothing known", () => {
  assert.deepEqual(verdict(state()), { level: "well", text: "Nothing needs attention" });
  const hot = device("d1", { name: "GPU", state: "throttled", state_reason: "heat" });
  assert.deepEqual(verdict(state({ devices: [hot] })), { level: "attention", text: "GPU is throttled" });
  const gone = node("n2", { state: "offline", state_reason: "it is gone" });
  assert.deepEqual(verdict(state({ nodes: [node("n1"), gone], devices: [hot] })), { level: "error", text: "2 things need attention" });
  assert.deepEqual(verdict(state({ nodes: [], devices: [] })), { level: "unknown", text: "No machine is connected" });
  assert.deepEqual(verdict(state({ nodes: [], devices: [], discovering: true })), { level: "unknown", text: "Looking for devices" });
  assert.deepEqual(verdict(state({}, "lost")), { level: "unknown", text: "No connection to the server" });
  assert.deepEqual(verdict(initialState), { level: "unknown", text: "Waiting for the server" });
});

test("where not all devices fit, those that need to be seen are shown, and the others counted", () => {
  const states = ["idle", "idle", "computing", "idle", "throttled", "offline"];
  const all = state({ devices: states.map((one, i) => device(`d${i}`, { state: one })), telemetry: { nodes: [], devices: [] } });
  const ids = (most) => wallDevices(all, most).shown.map((one) => one.record.device_id);
  assert.deepEqual([ids(6), wallDevices(all, 6).rest], [["d0", "d1", "d2", "d3", "d4", "d5"], ""]);
  assert.deepEqual([ids(3), wallDevices(all, 3).rest], [["d5", "d4", "d2"], "and 3 more: 3 idle"]);
  assert.equal(wallDevices(all, 2).rest, "and 4 more: 1 computing, 3 idle");
});

test("what to watch: what is wrong first, then what is nearest to it; nothing that is not reported", () => {
  const texts = (of, most = 6) => ahead(of, NOW, most).lines.map((one) => `${one.level}: ${one.text}`);
  const watched = ["watch: d1 is 30 °C below its slowdown, the nearest of all", "watch: Memory of d1 is 40 % full, the fullest of all"];
  assert.deepEqual(texts(state()), watched);
  const hot = state({ telemetry: { nodes: [], devices: [deviceReading("d1", { temperature_celsius: 91 })] } });
  assert.equal(texts(hot)[0], "watch: d1 has reached the temperature of its slowdown");
  const bare = deviceReading("d1", { slowdown_celsius: null, memory_used_bytes: null });
  assert.deepEqual(texts(state({ devices: [device("d1")], telemetry: { nodes: [], devices: [bare] } })), []);
  const troubled = state({ devices: [device("d1", { state: "throttled" }), device("d2", { memory_bytes: 64 * GIB, state: "throttled" })] });
  const { lines, more } = ahead(troubled, NOW, 3);
  assert.deepEqual([lines.map((one) => one.level), more], [["attention", "watch", "watch"], 1]);
});

test("a token of the screen that expires within two weeks", () => {
  const until = (at) => ahead({ ...state({ devices: [] }), login: { token_id: "t", name: "wall", scopes: ["observe"], expires_at: at, session_id: "s" } }, NOW, 6).lines;
  assert.deepEqual(until("2026-11-25T15:00:00.000Z").map((one) => one.text), ["This screen's token expires in 5 days"]);
  assert.deepEqual(until("2026-11-20T20:00:00.000Z").map((one) => one.text), ["This screen's token expires within a day"]);
  assert.deepEqual([until("2026-12-20T15:00:00.000Z"), until(null)], [[], []]);
});
