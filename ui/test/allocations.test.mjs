/* Who holds what: how events change it, how it is summed up, what a device's memory is parted into. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";
import { allocation, device, deviceReading, GIB, instance, snapshot, stage } from "./records.mjs";

const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");
const { heldByModels, lentMemory, mayFree, mayList, memoryParts } = await load("state/allocations.ts");

const begin = (allocations) => reduce(initialState, { type: "snapshot", snapshot: snapshot({ allocations }) });
const event = (seq, allocations, freed) => ({
  type: "event",
  now: 0,
  event: {
    epoch: "e1",
    seq,
    at: "2026-11-20T14:31:52.000Z",
    topic: "inventory",
    data: { change: null, node: null, device: null, allocations, freed },
  },
});

test("a snapshot brings all, events add and take away", () => {
  let state = begin([allocation("a1")]);
  assert.deepEqual(Object.keys(state.allocations), ["a1"]);
  state = reduce(state, event(11, [allocation("a2"), allocation("a3")], ["a1"]));
  assert.deepEqual(Object.keys(state.allocations), ["a2", "a3"]);
  assert.deepEqual(state.recent, [], "allocations are nothing to tell a person");
  state = reduce(state, event(12, [allocation("a4")], ["a4", "a2", "unknown"]));
  assert.deepEqual(Object.keys(state.allocations), ["a3"], "one that came and went is not there");
});

test("an event without allocations leaves them as they are", () => {
  const state = begin([allocation("a1")]);
  assert.equal(reduce(state, event(11, [], [])).allocations, state.allocations);
});

test("what is lent is summed by device and session, the largest first", () => {
  const state = begin([
    allocation("a1", { bytes: 1 }),
    allocation("a2", { bytes: 5, session_id: "s2", holder: "bob" }),
    allocation("a3", { bytes: 2, created_at: "2026-11-20T14:00:00.000Z" }),
    allocation("a4", { bytes: 7, device_id: "d2" }),
  ]);
  const lent = lentMemory(state.allocations);
  assert.deepEqual([...lent.keys()], ["d1", "d2"]);
  assert.equal(lent.get("d1").bytes, 8);
  assert.deepEqual(
    lent.get("d1").holdings.map((one) => [one.holder, one.bytes, one.allocations.map((a) => a.allocation_id)]),
    [
      ["bob", 5, ["a2"]],
      ["alice", 3, ["a3", "a1"]],
    ],
  );
});

test("memory that is lent and not touched does not count as used twice", () => {
  const entry = (used) => ({
    record: device("d1", { memory_bytes: 10 * GIB }),
    reading: deviceReading("d1", { memory_used_bytes: used, memory_total_bytes: 10 * GIB }),
    trail: null,
  });
  assert.deepEqual(memoryParts(entry(6 * GIB), 4 * GIB), { lent: 4 * GIB, models: 0, other: 2 * GIB, free: 4 * GIB, total: 10 * GIB });
  assert.deepEqual(memoryParts(entry(1 * GIB), 4 * GIB), { lent: 4 * GIB, models: 0, other: 0, free: 6 * GIB, total: 10 * GIB });
  assert.deepEqual(memoryParts(entry(null), 4 * GIB), { lent: 4 * GIB, models: 0, other: null, free: null, total: 10 * GIB });
  assert.deepEqual(memoryParts(undefined, 4), { lent: 4, models: 0, other: null, free: null, total: null });
});

test("what models hold is theirs, and not other use", () => {
  const loading = { loaded_bytes: 3, total_bytes: 9, parts: [{ node_id: "n1", loaded_bytes: 3, total_bytes: 9, devices: [{ device_id: "d1", loaded_bytes: 3, total_bytes: 9 }] }] };
  const own = stage("d1", { weights_bytes: 2 * GIB, kv_bytes: GIB, workspace_bytes: 0 });
  const instances = {
    a: instance("a", { stages: [own, { ...own, device_id: "d2" }] }),
    b: instance("b", { state: "starting", progress: loading }),
    c: instance("c", { state: "failed" }),
  };
  assert.equal(heldByModels(instances, "d1"), 3 * GIB + 3);
  const entry = { record: device("d1", { memory_bytes: 10 * GIB }), reading: deviceReading("d1", { memory_used_bytes: 6 * GIB, memory_total_bytes: 10 * GIB }), trail: null };
  assert.deepEqual(memoryParts(entry, GIB, 3 * GIB), { lent: GIB, models: 3 * GIB, other: 2 * GIB, free: 4 * GIB, total: 10 * GIB });
});

test("who may see labels, and who may take memory back", () => {
  const login = (...scopes) => ({ scopes });
  assert.deepEqual([mayFree(login("admin")), mayList(login("admin"))], [true, true]);
  assert.deepEqual([mayFree(login("allocate")), mayList(login("allocate"))], [false, true]);
  assert.deepEqual([mayFree(login("observe")), mayList(login("observe")), mayFree(null), mayList(null)], [false, false, false, false]);
});
