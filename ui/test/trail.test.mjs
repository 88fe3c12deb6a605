import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { STEPS, STEP_MS, addSample, emptyTrail, trailOf } = await load("state/trail.ts");
const { sparkPaths } = await load("view/spark.tsx");
const sample = (use, more = {}) => ({ use, memory: null, power: null, heat: null, ...more });
const T = 1_000_000 * STEP_MS;
const tail = (trail, n) => trail.use.slice(-n);

test("samples of one step are averaged", () => {
  const trail = [10, 20, 60].reduce((one, use, i) => addSample(one, T + i * 1000, sample(use)), emptyTrail);
  assert.deepEqual(tail(trail, 2), [null, 30]);
  assert.equal(trail.samples, 3);
});

test("a later sample moves the rest along and leaves a gap", () => {
  let trail = addSample(emptyTrail, T, sample(1));
  trail = addSample(trail, T + 3 * STEP_MS, sample(2));
  assert.deepEqual(tail(trail, 4), [1, null, null, 2]);
  assert.equal(trail.use.length, STEPS);
});

test("a null reading stays absent, also after one that was not", () => {
  let trail = addSample(emptyTrail, T, sample(null));
  assert.deepEqual(tail(trail, 1), [null]);
  trail = addSample(trail, T + STEP_MS, sample(5));
  trail = addSample(trail, T + 2 * STEP_MS, sample(null));
  assert.deepEqual(tail(trail, 3), [null, 5, null]);
});

test("an old sample is left out, and nothing is changed in place", () => {
  const trail = addSample(emptyTrail, T, sample(1));
  assert.equal(addSample(trail, T - STEP_MS, sample(9)), trail);
  assert.deepEqual(tail(emptyTrail, 1), [null]);
});

test("a jump of more than the whole span starts over", () => {
  const trail = addSample(addSample(emptyTrail, T, sample(1)), T + 1000 * STEP_MS, sample(2));
  assert.equal(trail.use.filter((value) => value !== null).length, 1);
});

test("a history fills in what came before the live values", () => {
  const at = (step) => new Date(T + step * STEP_MS).toISOString();
  const history = {
    columns: ["at", "utilization_percent", "power_watts"],
    rows: [
      [at(0), 1, 100],
      [at(1), 2, null],
      [at(2), 3, 120],
    ],
  };
  const live = addSample(addSample(emptyTrail, T + 2 * STEP_MS, sample(30)), T + 3 * STEP_MS, sample(40));
  const trail = trailOf(history, live);
  assert.deepEqual(tail(trail, 4), [1, 2, 30, 40]);
  assert.deepEqual(trail.power.slice(-4), [100, null, 120, null]);
  assert.deepEqual(
    trail.heat.filter((value) => value !== null),
    [],
  );
  assert.equal(trailOf({ columns: [], rows: [] }, live), live);
});

test("minutes from before a start of the server are a line, not islands", () => {
  const minute = 60_000;
  const M = Math.floor(T / minute) * minute;
  const at = (ms) => new Date(M + ms).toISOString();
  const rows = [[at(0), 10], [at(minute), 20], [at(2 * minute), 30], [at(3 * minute + 5000), 40], [at(3 * minute + 10_000), 50]];
  const trail = trailOf({ columns: ["at", "utilization_percent"], rows }, emptyTrail);
  const use = trail.use.slice(trail.use.findIndex((value) => value !== null));
  assert.deepEqual(use, [...new Array(12).fill(10), ...new Array(12).fill(20), ...new Array(12).fill(30), null, 40, 50]);
  assert.equal(sparkPaths(trail.use, 0, 100).trace.split("M").length - 1, 1);
});

test("a sparkline breaks where nothing was read, and bridges a missed sample", () => {
  const values = new Array(STEPS).fill(null);
  assert.deepEqual(sparkPaths(values, 0, 100), { trace: "", area: "" });
  const line = values.slice();
  for (const i of [0, 1, 3, 4, 20, 21]) line[i] = 50;
  assert.equal(sparkPaths(line, 0, 100).trace.split("M").length - 1, 2);
  const clamped = values.slice();
  clamped[0] = 500;
  clamped[1] = -500;
  assert.match(sparkPaths(clamped, 0, 100).trace, /^M0\.0 1\.5L1\.0 20\.0$/);
});
