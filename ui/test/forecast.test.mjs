// The forecast on a device's page: one call that fails takes nothing away.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { foresee, isFresh, nothingForeseen } = await load("command/forecast.ts");

const forecast = (watts) => ({ device_id: "d", state: "ready", power_watts: watts });
const lost = { what: "The server did not answer thermal.forecast within 15 s", hint: null };

test("the last forecast stays with its time while no other comes", () => {
  const first = foresee(nothingForeseen, forecast(100), 1000);
  assert.deepEqual(first, { forecast: forecast(100), at: 1000, refusal: null });
  const failed = foresee(first, lost, 3000);
  assert.deepEqual(failed, { forecast: forecast(100), at: 1000, refusal: lost });
  assert.deepEqual(foresee(failed, forecast(120), 5000), { forecast: forecast(120), at: 5000, refusal: null }, "the next one takes its place");
});

test("where none has come yet, there is the reason alone", () => {
  assert.deepEqual(foresee(nothingForeseen, lost, 3000), { forecast: null, at: 0, refusal: lost });
});

test("it is of this moment only for a while, and not after a failure", () => {
  const one = foresee(nothingForeseen, forecast(100), 1000);
  assert.deepEqual([1000, 5000, 60_000].map((at) => isFresh(one, at)), [true, true, false]);
  assert.equal(isFresh(foresee(one, lost, 2000), 2000), false);
  assert.equal(isFresh(nothingForeseen, 0), false);
});
