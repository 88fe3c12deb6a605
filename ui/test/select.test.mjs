import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";
import { GIB, change, device, deviceReading, instance, link, model, node, nodeReading, snapshot } from "./records.mjs";

const select = await load("state/select.ts");
const { attention, worstLevel } = await load("state/attention.ts");
const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");
const { changeHref, happenings } = await load("state/recent.ts");
const { sortBy } = await load("view/devices/sort.ts");

const NOW = Date.parse("2026-11-20T14:31:53.000Z");
const state = (more = {}, phase = "live") =>
  [
    { type: "connection", connection: { phase } },
    { type: "snapshot", snapshot: snapshot(more) },
  ].reduce(reduce, initialState);
const integrated = { kind: "integrated", backend: "vulkan", memory_pool: "host", memory_bytes: 64 * GIB };

test("vitals count, sum what is reported and say how many report", () => {
  const sums = select.vitals(state());
  assert.equal(sums.devices, 2);
  assert.equal(sums.online, 2);
  assert.deepEqual(sums.states, [["idle", 2]]);
  assert.deepEqual(sums.power, { watts: 300, reporting: 1 });
  assert.deepEqual(sums.cpu, { percent: 20, reporting: 1, nodes: 1 });
  assert.deepEqual(sums.memory, { kind: "gpu", used: 40 * GIB, total: 100 * GIB, pools: 1, reporting: 1 });
});

test("the hottest device and the one that is nearest to its limit may be two", () => {
  const reading = (id, temperature_celsius, slowdown_celsius) => deviceReading(id, { temperature_celsius, slowdown_celsius });
  const heat = (readings, devices = readings.map((one) => device(one.device_id))) =>
    select.vitals(state({ devices, telemetry: { nodes: [], devices: readings } })).heat;
  assert.deepEqual(heat([reading("d1", 70, 90), reading("d2", 60, 65)]), { hottest: { id: "d1", celsius: 70 }, nearest: { id: "d2", margin: 5 } });
  assert.deepEqual(heat([reading("d1", 70, null)]), { hottest: { id: "d1", celsius: 70 }, nearest: null });
  assert.equal(heat([reading("d1", null, 90)]), null);
  assert.equal(heat([reading("d1", 70, 90)], [device("d1", { state: "offline" })]), null);
});

test("a device that other programs use is not computing", () => {
  const reason = "in use, but no model or session of exogpu works on it";
  const all = state({ devices: [device("d1", { state_reason: reason }), device("d2"), device("d3", { state: "computing" })] });
  assert.deepEqual(select.vitals(all).states, [["computing", 1], ["used by others", 1], ["idle", 1]]);
  assert.deepEqual(select.shownState(all.devices.d1.record), { mark: "idle", word: "used by others" });
  assert.deepEqual(select.shownState(all.devices.d1.record, true), { mark: "stale", word: "stale" });
  assert.deepEqual(select.shownState(device("d", { state: "offline", state_reason: "its node is offline" }), true), { mark: "offline", word: "offline" });
});

test("a machine that asks to join is no machine yet", () => {
  const nodes = [node("n1"), node("n2"), node("n3", { state: "offline" }), node("n4", { state: "pending" })];
  assert.equal(select.machinesText(state({ nodes })), "3 machines, 1 asks to join");
  assert.equal(select.machinesText(state()), "1 machine");
  assert.equal(select.members(state({ nodes })).length, 3);
});

test("what is said of an offline node's devices is true before and after a start of the server", () => {
  const off = (more) => attention(state({ nodes: [node("n1", { state: "offline" })], ...more }))[0].text;
  assert.match(off(), /Its devices show their last readings\./);
  const none = off({ telemetry: { nodes: [], devices: [] } });
  assert.match(none, /Its devices have no readings, because the server has started since\./);
  assert.doesNotMatch(none, /last readings/);
  assert.match(off({ devices: [] }), /It has no known devices\./);
});

test("a badge is as red as the worst that it stands for, and alerts count", () => {
  const throttled = [device("d1", { state: "throttled", state_reason: "too hot" })];
  assert.equal(worstLevel(attention(state())), null);
  assert.equal(worstLevel(attention(state({ devices: throttled }))), "attention");
  const forked = { alert_id: "a1", kind: "audit_forked", severity: "critical", subject: { type: "node", id: "n1", name: "n1" }, message: "node n1 holds another audit log", hint: "compare both", raised_at: "2026-11-20T14:31:52.000Z", cleared_at: null, acknowledged_at: null, acknowledged_by: null };
  const found = attention(state({ devices: throttled, alerts: [forked] }));
  assert.equal(worstLevel(found), "error");
  assert.deepEqual([found[0].title, found[0].href, found[0].level], ["Node n1 holds another audit log", "#/audit", "error"]);
});

test("what an alert says is not said twice, and not at all once somebody has seen it", () => {
  const hot = { kind: "throttled", severity: "warning", subject: { type: "device", id: "d1", name: "d1" }, message: "d1 is throttled", hint: "check its fans", raised_at: "2026-11-20T14:31:52.000Z", cleared_at: null, acknowledged_at: null, acknowledged_by: null, alert_id: "a1" };
  const devices = [device("d1", { state: "throttled", state_reason: "too hot" })];
  const found = attention(state({ devices, alerts: [hot] }));
  assert.deepEqual(found.map((one) => [one.key, one.href, one.open]), [["a1", "#/devices/d1", "Open the device"]]);
  const seen = { ...hot, acknowledged_at: "2026-11-20T14:32:52.000Z", acknowledged_by: "admin" };
  assert.deepEqual(attention(state({ devices, alerts: [seen] })), []);
  const other = { ...hot, subject: { ...hot.subject, id: "d2" } };
  assert.equal(attention(state({ devices, alerts: [other] })).length, 2);
});

test("nothing reported is null, not 0", () => {
  const sums = select.vitals(state({ telemetry: { nodes: [], devices: [] } }));
  assert.equal(sums.power.watts, null);
  assert.equal(sums.cpu.percent, null);
  assert.equal(sums.memory.used, null);
  assert.equal(sums.memory.total, 100 * GIB, "the size is known from the record");
});

test("a memory that devices share is counted once", () => {
  const devices = [
    device("i1", integrated),
    device("i2", integrated),
    device("c", { kind: "cpu", backend: "cpu", memory_pool: "host", memory_bytes: 64 * GIB }),
  ];
  const readings = [
    deviceReading("i1", { memory_used_bytes: 2 * GIB, memory_total_bytes: 64 * GIB }),
    deviceReading("c", { memory_used_bytes: 16 * GIB, memory_total_bytes: 64 * GIB }),
  ];
  const { memory } = select.vitals(state({ devices, telemetry: { nodes: [], devices: readings } }));
  assert.deepEqual(memory, { kind: "gpu", used: 16 * GIB, total: 64 * GIB, pools: 1, reporting: 1 });
});

test("pools of the same name on two nodes are two pools", () => {
  const devices = [device("a", { memory_pool: "host" }), device("b", { memory_pool: "host", node_id: "n2" })];
  assert.equal(select.poolsOf(Object.values(state({ devices }).devices)).length, 2);
});

test("without a real GPU it is the host's memory that counts; software rasterisers are none", () => {
  const devices = [
    device("c", { kind: "cpu", backend: "cpu", memory_pool: "host", memory_bytes: 64 * GIB }),
    device("llvmpipe", { kind: "virtual", backend: "vulkan", support: "experimental", memory_pool: "host" }),
  ];
  const { memory } = select.vitals(state({ devices, telemetry: { nodes: [], devices: [] } }));
  assert.equal(memory.kind, "host");
  assert.equal(memory.total, 64 * GIB);
});

test("offline devices count in the total only", () => {
  const sums = select.vitals(state({ devices: [device("d1", { state: "offline" }), device("d2")] }));
  assert.equal(sums.online, 1);
  assert.equal(sums.devices, 2);
  assert.equal(sums.power.reporting, 0);
});

test("old values are stale: no connection, node offline, readings stopped", () => {
  const live = state();
  const one = live.devices.d1;
  assert.equal(select.isStale(live, one, NOW), false);
  assert.equal(select.isStale(live, one, NOW + select.STALE_MS), true);
  assert.equal(select.isStale(state({}, "lost"), one, NOW), true);
  assert.equal(select.isStale(state({ nodes: [node("n1", { state: "offline" })] }), one, NOW), true);
  assert.equal(select.isStale(live, { ...one, reading: null }, NOW), false, "nothing reported is not old");
});

test("ages follow the server's clock", () => {
  const skewed = { ...state(), serverAheadMs: 60_000 };
  assert.equal(select.ageOf(skewed, "2026-11-20T14:32:53.000Z", NOW), 0);
  assert.equal(select.ageOf(skewed, "2026-11-20T14:32:43.000Z", NOW), 10_000);
  assert.equal(select.ageOf(skewed, null, NOW), null);
});

test("the filter takes every word, in any of a device's names", () => {
  const { devices, nodes } = state();
  const fits = (text) => select.matches(devices.d1, nodes.n1, text);
  assert.ok(fits("nvidia h200"));
  assert.ok(fits("GPU n1"));
  assert.ok(fits("cuda  idle"));
  assert.ok(!fits("nvidia vulkan"));
  assert.ok(!select.matches(devices.d2, nodes.n1, "gpu"));
});

test("sorting puts what is not known last, both ways", () => {
  const all = state({
    devices: [device("a"), device("b"), device("c")],
    telemetry: { nodes: [], devices: [deviceReading("a", { power_watts: 5 }), deviceReading("c", { power_watts: 9 })] },
  });
  const order = (column, descending) =>
    sortBy(Object.values(all.devices), { column, descending }, all.nodes)
      .map((one) => one.record.device_id)
      .join("");
  assert.equal(order("power", false), "acb");
  assert.equal(order("power", true), "cab");
  assert.equal(order("name", true), "cba");
});

test("the usual order: GPUs, CPU, software, unsupported; numbers in names count", () => {
  const all = state({
    devices: [
      device("x", { name: "GPU 10", support: "unsupported" }),
      device("s", { name: "soft", support: "experimental" }),
      device("c", { name: "cpu", kind: "cpu" }),
      device("g10", { name: "GPU 10" }),
      device("g2", { name: "GPU 2" }),
    ],
  });
  assert.deepEqual(
    select.sortedDevices(all).map((one) => one.record.device_id),
    ["g2", "g10", "c", "s", "x"],
  );
});

test("a sum of trails holds each reading until the next, and is null where nobody reports", () => {
  const trails = Object.values(state().devices).map((one) => one.trail);
  const sum = select.sumTrails(trails, "power");
  assert.equal(sum.at(-1), 300);
  assert.equal(sum.at(0), null);
  assert.equal(select.sumTrails(trails, "use", true).at(-1), 50);
});

test("what wants attention, worst first, each said once", () => {
  const failed = { state: "failed", at: null, duration_ms: null, error: "read back 0" };
  const all = state({
    nodes: [
      node("n1", {
        libraries: [
          {
            name: "NVML",
            file: null,
            state: "too_old",
            version: "1",
            minimum_version: "2",
            reason: "is version 1",
            hint: "update it",
          },
        ],
      }),
      node("n2", { state: "offline" }),
    ],
    devices: [
      device("full"),
      device("bad", { verification: failed, state: "unsupported" }),
      device("gone", { node_id: "n2", state: "offline" }),
      device("hot", { state: "throttled", state_reason: "too hot" }),
    ],
    telemetry: { nodes: [], devices: [deviceReading("full", { memory_used_bytes: 99 * GIB })] },
  });
  const found = attention(all);
  assert.deepEqual(
    found.map((one) => one.level),
    ["error", "error", "attention", "attention", "attention"],
  );
  assert.deepEqual(found.map((one) => one.key).sort(), ["bad", "full", "hot", "n1/NVML", "n2/offline"]);
  assert.equal(found.find((one) => one.key === "n1/NVML").text, "Is version 1. Update it.");
  assert.deepEqual(attention(state()), []);
});

test("models without a place, and links that are not as they should be, want attention too", () => {
  const all = state({
    nodes: [node("n1"), node("n2")],
    instances: [
      instance("runs"),
      instance("waits", { state: "paused", state_reason: "it waits for a place: memory binds", model_name: "llama" }),
      instance("broke", { state: "failed", state_reason: "it ended three times", model_id: "m2" }),
    ],
    links: [link("n1", "n2", { degraded: true, degraded_reason: "its round trip is 80 ms" }), link("n2", "n1")],
  });
  const found = attention(all);
  assert.deepEqual(
    found.map(({ key, level, href }) => [key, level, href]),
    [
      ["broke", "error", "#/models/m2"],
      ["waits", "attention", "#/models/m1"],
      ["n1\nn2", "attention", "#/topology"],
    ],
  );
  assert.match(found[1].title, /llama is paused/);
  assert.match(found[1].text, /^It waits for a place: memory binds\. Its requests wait/);
  assert.match(found[2].text, /^Its round trip is 80 ms\./);
});

test("many that ask to join, and many links that are not as they should be, are one thing each", () => {
  const ids = ["n1", "n2", "n3"];
  const worse = { degraded: true, degraded_reason: "a round trip takes 80 ms" };
  const links = [link("n1", "n2", worse), link("n1", "n3", worse), link("n2", "n3", worse)];
  const summed = attention(state({ nodes: ids.map((id) => node(id)), links }));
  assert.deepEqual(summed.map((one) => one.title), ["3 links are degraded"]);
  assert.match(summed[0].text, /^The first, from n1 to n2: a round trip takes 80 ms\. Model placement/);
  const ask = (n) => attention(state({ nodes: ids.slice(0, n).map((id) => node(id, { state: "pending" })) }));
  assert.deepEqual(ask(3).map((one) => [one.title, one.href]), [["3 machines ask to join", "#/access"]]);
  assert.deepEqual(ask(2).map((one) => one.title), ["n1 asks to join", "n2 asks to join"]);
});

test("devices of one name are told apart: numbered on a machine, by its name among several", () => {
  const devices = [
    device("z", { name: "H200", pci_address: "0000:1a:00.0" }),
    device("a", { name: "H200", pci_address: "0000:9b:00.0" }),
    device("only", { name: "H100" }),
  ];
  const named = (of, name) => of.map((id) => name(all, id));
  let all = state({ devices });
  assert.deepEqual(named(["z", "a", "only", "gone"], select.deviceName), ["H200 · 0", "H200 · 1", "H100", "gone"]);
  assert.deepEqual(named(["z", "only"], select.deviceLabel), ["H200 · 0", "H100"]);
  assert.deepEqual(select.sortedDevices(all).map((one) => one.record.device_id), ["only", "z", "a"]);
  all = state({ nodes: [node("n1"), node("n2")], devices: [...devices, device("far", { name: "H200", node_id: "n2" })] });
  assert.deepEqual(named(["a", "far", "only"], select.deviceLabel), ["n1, H200 · 1", "n2, H200", "H100"]);
});

test("node memory is used of total, or null", () => {
  assert.deepEqual(select.nodeMemory(nodeReading("n1")), { used: 16 * GIB, total: 64 * GIB });
  assert.equal(select.nodeMemory(nodeReading("n1", { memory_available_bytes: null })), null);
  assert.equal(select.nodeMemory(null), null);
});

test("an event leads to what it is about", () => {
  const all = state({ models: [model("m7", { name: "tiny" })] });
  assert.equal(changeHref(all, change({ device_id: "d1" })), "#/devices/d1");
  assert.equal(changeHref(all, change({ kind: "node.online", device_id: null })), "#/nodes/n1");
  assert.equal(changeHref(all, change({ kind: "model.loaded", device_id: null, name: "tiny" })), "#/models/m7");
  assert.equal(changeHref(all, change({ kind: "model.unloaded", device_id: null, name: "gone" })), "#/nodes/n1");
});

test("what happens to several devices at once is one line", () => {
  const gone = (id, more) =>
    change({ kind: "device.changed", device_id: id, name: id, summary: "its node is offline", ...more });
  const lines = happenings([
    gone("a"),
    gone("b"),
    gone("c"),
    change({ kind: "node.offline", device_id: null }),
    gone("d", { at: "2026-11-20T14:00:00.000Z" }),
  ]);
  assert.deepEqual(
    lines.map((one) => [one.change.device_id, one.more]),
    [
      ["a", 2],
      [null, 0],
      ["d", 0],
    ],
  );
  assert.equal(happenings([gone("a"), gone("a")]).length, 2, "the same device twice is said twice");
});
