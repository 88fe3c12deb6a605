import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { cost, deviceTime, energy, measured, readPrice } = await load("state/usage.ts");

test("energy in the unit that fits", () => {
  assert.equal(energy(null), null);
  assert.deepEqual(energy(0), { value: "0.0", unit: "J" });
  assert.deepEqual(energy(12.34), { value: "12.3", unit: "J" });
  assert.deepEqual(energy(3599), { value: "3,599", unit: "J" });
  assert.deepEqual(energy(5400), { value: "1.50", unit: "Wh" });
  assert.deepEqual(energy(7.2e6), { value: "2.00", unit: "kWh" });
});

test("its price", () => {
  assert.equal(cost(3.6e6, 0.3), "0.30");
  assert.equal(cost(36000, 0.3), "0.0030");
  assert.equal(cost(12, 0.3), "under 0.0001");
  assert.equal(cost(0, 0.3), "0.00");
  assert.equal(cost(null, 0.3), null, "what is not reported has no price");
  assert.equal(cost(3.6e6, null), null);
  for (const [text, price] of [["0.30", 0.3], ["0,30", 0.3], [" 1 ", 1], ["0", 0], ["", null], ["-1", null], ["free", null], ["1e9", null]])
    assert.equal(readPrice(text), price, text);
});

test("time of devices", () => {
  assert.deepEqual(deviceTime(0.25), { value: "0.25", unit: "s" });
  assert.deepEqual(deviceTime(90), { value: "90", unit: "s" });
  assert.deepEqual(deviceTime(600), { value: "10", unit: "min" });
  assert.deepEqual(deviceTime(9000), { value: "2.5", unit: "h" });
});

test("what was measured, and how", () => {
  assert.deepEqual(measured([]), { any: false, integrated: false });
  assert.deepEqual(measured([{ energy_source: null }, { energy_source: "counter" }]), { any: true, integrated: false });
  assert.deepEqual(measured([{ energy_source: "integrated" }]), { any: true, integrated: true });
});
