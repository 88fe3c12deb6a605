import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const format = await load("lib/format.ts");
const { parseRoute, broughtBy, deviceHref, modelHref } = await load("lib/route.ts");
const { backoff } = await load("net/backoff.ts");
const { Calls } = await load("net/calls.ts");
const { isGap, readBetween, seriesOf } = await load("command/history.ts");
const text = ({ value, unit }) => `${value} ${unit}`;

test("memory in powers of 1024", () => {
  assert.equal(text(format.memory(0)), "0 B");
  assert.equal(text(format.memory(512 * 2 ** 20)), "512 MiB");
  assert.equal(text(format.memory(24 * 2 ** 30)), "24.0 GiB");
  assert.equal(text(format.memory(1234.5 * 2 ** 30)), "1,234.5 GiB");
  assert.equal(text(format.memory(12 * 2 ** 40)), "12.00 TiB");
  assert.deepEqual(format.memoryOf(512 * 2 ** 20, 24 * 2 ** 30), { used: "0.5", total: "24.0", unit: "GiB" });
});

test("rates in powers of 1000", () => {
  assert.equal(text(format.rate(0)), "0 B/s");
  assert.equal(text(format.rate(999)), "999 B/s");
  assert.equal(text(format.rate(1.24e6)), "1.2 MB/s");
  assert.equal(text(format.rate(4.1e12)), "4.10 TB/s");
});

test("what the server says is shown as a sentence; names stay as they are", () => {
  assert.equal(format.sentence("not connected since the server started"), "Not connected since the server started.");
  assert.equal(format.sentence("missing"), "Missing.");
  assert.equal(format.sentence("library too old."), "Library too old.");
  assert.equal(format.sentence("can't be read"), "Can't be read.");
  for (const name of ["libcuda.so.1 is too old", "cuInit failed", "vkCreateInstance: -9", "exogpu is old", "libfoo is"])
    assert.equal(format.sentence(name), `${name}.`);
  assert.equal(format.sentence(null), "");
});

test("figures are grouped and never minus zero", () => {
  assert.equal(format.figure(1271.4), "1,271");
  assert.equal(format.figure(-0.2), "0");
  assert.equal(format.figure(-3.26, 1), "-3.3");
});

test("ages", () => {
  const ages = [
    [-5, "0.0 s"],
    [400, "0.4 s"],
    [9949, "9.9 s"],
    [9999, "9.9 s"],
    [10_000, "10 s"],
    [48_000, "48 s"],
    [59_999, "59 s"],
    [60_000, "1 min"],
    [3_600_000, "1 h"],
    [47 * 3_600_000, "47 h"],
    [72 * 3_600_000, "3 d"],
  ];
  for (const [ms, said] of ages) assert.equal(format.age(ms), said, String(ms));
});

test("durations", () => {
  assert.equal(format.took(4.2), "4.2 ms");
  assert.equal(format.took(42), "42 ms");
  assert.equal(format.took(412), "0.4 s");
  assert.equal(format.took(31_000), "31 s");
});

test("addresses", () => {
  assert.deepEqual(parseRoute(""), { page: "overview" });
  assert.deepEqual(parseRoute("#/overview"), { page: "overview" });
  assert.deepEqual(parseRoute("#/devices"), { page: "devices" });
  assert.deepEqual(parseRoute("#/devices/"), { page: "devices" });
  assert.deepEqual(parseRoute(deviceHref("a/b c%")), { page: "device", id: "a/b c%" });
  assert.deepEqual(parseRoute("#/nodes/n1"), { page: "node", id: "n1" });
  assert.equal(parseRoute("#/nodes").page, "unknown");
  assert.deepEqual(parseRoute("#/models"), { page: "models" });
  assert.deepEqual(parseRoute(modelHref("mod_1")), { page: "model", id: "mod_1" });
  assert.deepEqual(parseRoute("#/playground"), { page: "playground", id: "" });
  assert.equal(parseRoute("#/elsewhere").page, "unknown");
  assert.equal(parseRoute("#/devices/%E0%A4%A").page, "device");
});

test("a token in the address", () => {
  assert.deepEqual(broughtBy("#token=exo_1_2_3"), { kind: "token", text: "exo_1_2_3" });
  assert.deepEqual(broughtBy("#token=a%2Bb&x=1"), { kind: "token", text: "a+b" });
  assert.deepEqual(broughtBy("#code=exocode_1"), { kind: "code", text: "exocode_1" });
  for (const hash of ["#/overview", "#token=", "#code=", "#codes=1"]) assert.equal(broughtBy(hash), null);
});

test("the wait before trying again doubles to half a minute, with full jitter", () => {
  assert.equal(backoff(0, 1), 500);
  assert.equal(backoff(1, 1), 1000);
  assert.equal(backoff(4, 0.5), 4000);
  assert.equal(backoff(99, 1), 30_000);
  assert.equal(backoff(99, 0), 100);
});

test("calls: answers, errors, loss and silence", async () => {
  const calls = new Calls();
  const sent = [];
  const make = (ms = 1000) => calls.make("server.info", {}, ms, (head) => sent.push(JSON.parse(head)));
  const good = make();
  assert.equal(sent[0].method, "server.info");
  assert.equal(calls.settle({ id: sent[0].id, result: { name: "x" } }), true);
  assert.deepEqual(await good, { name: "x" });
  assert.equal(calls.settle({ id: sent[0].id, result: 1 }), false, "an answer nobody waits for");
  const bad = make();
  calls.settle({ id: sent[1].id, error: { code: -32003, message: "No", data: { reason: "forbidden", hint: "Ask" } } });
  await assert.rejects(bad, { reason: "forbidden", message: "No", hint: "Ask" });
  const lost = make();
  calls.fail();
  await assert.rejects(lost, { reason: "disconnected" });
  await assert.rejects(make(5), { reason: "timeout" });
});

test("a history becomes columns, with an empty row in each gap", () => {
  const at = (s) => new Date(s * 1000).toISOString();
  const series = seriesOf({
    device_id: "d",
    step_s: 1,
    source: "samples",
    columns: ["at", "power_watts"],
    rows: [
      [at(0), 1],
      [at(1), null],
      [at(1), 9],
      [at(2), 2],
      [at(5), 3],
      [at(6), 4],
    ],
  });
  assert.deepEqual(series.times, [0, 1, 2, 3.5, 5, 6]);
  assert.deepEqual(series.columns.power_watts, [1, null, 2, null, 3, 4]);
  const minutes = seriesOf({
    device_id: "d",
    step_s: 60,
    source: "minutes",
    columns: ["at", "power_watts"],
    rows: [
      [at(0), 1],
      [at(120), 2],
      [at(360), 3],
    ],
  });
  assert.deepEqual(minutes.times, [0, 120, 240, 360], "two minutes apart is a minute missed, four is a gap");
});

test("a change of pace is no gap, silence is", () => {
  assert.equal(isGap(5, 1, 5), false, "nobody watches any more");
  assert.equal(isGap(3, 1, 1), true, "a node was away for a moment");
  assert.equal(isGap(1.5, 0.5, 0.5), false, "a late sample");
  assert.equal(isGap(12, 5, 5), false);
  assert.equal(isGap(13, 5, 5), true);
  assert.equal(isGap(5, undefined, undefined), false);
});

test("two fields with times are a time that the history holds, or say in words why not", () => {
  const at = (text) => Date.parse(text); // as the fields do: by the clock of whoever reads
  const now = at("2026-11-20T14:30");
  assert.deepEqual(readBetween("2026-11-19T14:00", "2026-11-20T08:00", now), { from: at("2026-11-19T14:00"), to: at("2026-11-20T08:00") });
  assert.deepEqual(readBetween("2026-11-20T14:00", "2026-11-20T23:59", now), { from: at("2026-11-20T14:00"), to: now }, "until now at most");
  for (const [from, to, said] of [
    ["", "2026-11-20T08:00", /both times/],
    ["2026-11-19T14:00", "", /both times/],
    ["2026-13-45T99:00", "2026-11-20T08:00", /both times/],
    ["2026-11-20T08:00", "2026-11-19T14:00", /before the second/],
    ["2026-11-20T08:00", "2026-11-20T08:00", /before the second/],
    ["2026-11-21T08:00", "2026-11-22T08:00", /not over yet/],
    ["2020-01-01T00:00", "2026-11-20T08:00", /^The history holds 30 days, back to 21 Oct 2026, /],
    ["+275761-01-01T00:00", "+275762-01-01T00:00", /both times/],
  ])
    assert.match(String(readBetween(from, to, now)), said, `${from} to ${to}`);
});
