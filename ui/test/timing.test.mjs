// What holds a model up: colours follow the server's words, and an idle model has none.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";
import { device, instance, node, snapshot, timing } from "./records.mjs";

const { holdsUp, isHeldUp } = await load("state/timing.ts");
const { offerText } = await load("state/models.ts");
const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");

const stages = (one) => one.timing.parts.flatMap((part) => part.stages);
const marked = (one) => stages(one).map((stage) => holdsUp(one, stage));

test("where the parts take about equally long nothing is amber, whichever takes the longest", () => {
  const even = instance("i", { running: 1, timing: timing() });
  assert.deepEqual([marked(even), holdsUp(even, "hops"), isHeldUp(even)], [[false, false], false, false]);
});

test("amber is what the words are about, not what takes the longest just now", () => {
  const slowest = { kind: "stage", device_id: "d1", first_layer: 0 };
  const first = instance("i", { running: 1, timing: timing({ slowest }) });
  assert.ok(stages(first)[0].compute_ms < stages(first)[1].compute_ms);
  assert.deepEqual([marked(first), holdsUp(first, "hops"), isHeldUp(first)], [[true, false], false, true]);
  const waits = instance("i", { running: 1, timing: timing({ slowest: { ...slowest, kind: "wait", device_id: "d2", first_layer: 11 } }) });
  assert.deepEqual(marked(waits), [false, true]);
  const hops = instance("i", { running: 1, timing: timing({ slowest: { kind: "hops", device_id: null, first_layer: null } }) });
  assert.deepEqual([marked(hops), holdsUp(hops, "hops")], [[false, false], true]);
});

test("a model that does nothing keeps no amber bar", () => {
  const idle = instance("i", { running: 0, timing: timing({ slowest: { kind: "stage", device_id: "d1", first_layer: 0 } }) });
  assert.deepEqual([marked(idle), isHeldUp(idle)], [[false, false], false]);
  assert.equal(isHeldUp(instance("i", { running: 1 })), false);
});

test("a remedy is named with its gain", () => {
  const state = reduce(initialState, { type: "snapshot", snapshot: snapshot({ nodes: [node("n1")], devices: [device("d1", { name: "H200" })] }) });
  const offer = { device_ids: ["d1"], tokens_per_s: 120.4, now_tokens_per_s: 8.14 };
  assert.equal(offerText(state, offer), "Move to H200: 120 instead of 8.1 tokens per s, predicted");
});
