import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { cost, costPerHour, deviceTime, energy, measured, readPrice, subjectOf, sumOf } = await load("state/usage.ts");

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
  assert.equal(costPerHour(500, 0.3), "0.15");
  assert.equal(costPerHour(null, 0.3), null);
  assert.equal(costPerHour(500, null), null);
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
  const of = (...sources) => measured(sources.map((energy_source) => ({ energy_source })));
  assert.deepEqual(of(), { any: false, integrated: false, partly: false });
  assert.deepEqual(of(null), { any: false, integrated: false, partly: false });
  assert.deepEqual(of(null, "counter"), { any: true, integrated: false, partly: true });
  assert.deepEqual(of("integrated"), { any: true, integrated: true, partly: false });
});

const row = (key, more = {}) => ({ key, name: key, at: "2026-11-20T00:00:00.000Z", requests: 2, prompt_tokens: 10, cached_tokens: 4, completion_tokens: 5,
  device_s: 0.5, energy_joules: null, idle_joules: null, energy_source: null, ...more });

test("a sum leaves out what is not reported, and is null where nothing is", () => {
  const known = { energy_joules: 100, idle_joules: 7, energy_source: "counter" };
  assert.deepEqual(sumOf([row("a"), row("b")]), { requests: 4, prompt_tokens: 20, cached_tokens: 8, completion_tokens: 10, device_s: 1,
    energy_joules: null, idle_joules: null, energy_source: null, partly: false });
  const { energy_joules, idle_joules, energy_source, partly } = sumOf([row("a", known), row("b"), row("c", { ...known, energy_joules: 0, idle_joules: null })]);
  assert.deepEqual([energy_joules, idle_joules, energy_source, partly], [100, 7, "counter", true]);
  assert.equal(sumOf([row("a", known), row("b", { ...known, energy_source: "integrated" })]).energy_source, "integrated");
  assert.equal(sumOf([row("a", known), row("b", known)]).partly, false);
  assert.equal(sumOf([]).energy_joules, null);
});

test("who or what a row is about: what was removed says so, and what is not known is no guess", () => {
  const known = { tokens: [{ token_id: "t1", revoked_at: null }, { token_id: "t2", revoked_at: "2026-11-20T00:00:00.000Z" }], models: { m1: {} }, devices: { d1: {} } };
  const unknown = { tokens: null, models: null, devices: null };
  const of = (by, key, name = "n", what = known) => subjectOf({ key, name }, by, what);
  assert.deepEqual(of("token", "t1"), { name: "n", link: false, note: null });
  assert.deepEqual(of("token", "t2"), { name: "n", link: false, note: "revoked" });
  assert.deepEqual(of("token", "t9"), { name: "n", link: false, note: "deleted token" });
  assert.deepEqual(of("token", "owner", "the machine's owner"), { name: "the machine's owner", link: false, note: null });
  assert.deepEqual(of("token", "t9", "n", unknown), { name: "n", link: false, note: null });
  assert.deepEqual(of("model", "m1"), { name: "n", link: true, note: null });
  assert.deepEqual(of("model", "m9"), { name: "n", link: false, note: "removed model" });
  assert.deepEqual(of("model", "constructor"), { name: "n", link: false, note: "removed model" });
  assert.deepEqual(of("model", "qwen", "qwen", unknown), { name: "qwen", link: false, note: null }, "its key is its name");
  assert.deepEqual(of("device", "d9", ""), { name: "d9", link: false, note: "removed device" }, "without a name it has its id");
  for (const by of ["token", "model", "device"]) assert.match(of(by, "others", "others").note, /512/);
});
