// The history of a device as CSV: cells that no spreadsheet takes for a formula, a bound, and what the bound leaves out.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { csvOf, exportHistory, fileName, historyCommand } = await load("command/export.ts");
const { cell, quoted } = await load("lib/csv.ts");

const DAY_MS = 86_400_000, start = Date.parse("2026-11-01T00:00:00.000Z");
const iso = (ms) => new Date(ms).toISOString();

/** A server that keeps a reading each hour; notes what it was asked. */
function server(reading = (ms) => [iso(ms), 1]) {
  const asked = [];
  const call = async (method, params) => {
    asked.push([method, params]);
    const rows = [];
    // as the server does: a row for each step that the time touches
    for (let at = Math.floor(Date.parse(params.from) / 3.6e6) * 3.6e6; at < Date.parse(params.to); at += 3.6e6) rows.push(reading(at));
    return { device_id: params.device_id, columns: ["at", "power_watts"], rows, step_s: 60, source: "minutes" };
  };
  return { call, asked };
}

test("a history as CSV: what is not reported is empty", () => {
  const rows = [
    ["2026-11-20T14:31:00.000Z", 12.5, null],
    ["2026-11-20T14:32:00.000Z", 0, -7],
  ];
  assert.equal(
    csvOf({ columns: ["at", "power_watts", "power_watts_max"], rows }),
    "at,power_watts,power_watts_max\r\n2026-11-20T14:31:00.000Z,12.5,\r\n2026-11-20T14:32:00.000Z,0,-7\r\n",
  );
});

test("text that begins like a formula stays text; numbers stay numbers", () => {
  for (const text of ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"]) assert.equal(cell(text), `"'${text}"`);
  assert.deepEqual([-1, 0.5, null, "plain", 'a "b"', "a,b", "a\nb"].map(cell), ["-1", "0.5", "", "plain", '"a ""b"""', '"a,b"', '"a\nb"']);
  assert.equal(quoted('=cmd|"x"'), `"'=cmd|""x"""`);
});

test("it is asked for day by day, and no step comes twice", async () => {
  const { call, asked } = server();
  const from = start + 30 * 60_000; // both days touch the hour between them
  const { csv, rest } = await exportHistory({ call }, "dev_1", { from, to: from + 2 * DAY_MS });
  assert.deepEqual(asked.map(([method, { from, to, step_s }]) => [method, Date.parse(to) - Date.parse(from), step_s]), [
    ["telemetry.history", DAY_MS, 0],
    ["telemetry.history", DAY_MS, 0],
  ]);
  const times = csv.trim().split("\r\n").slice(1).map((line) => line.split(",")[0]);
  assert.equal(times.length, 49);
  assert.equal(new Set(times).size, 49);
  assert.equal(rest, null);
});

test("a row without a date is left out", async () => {
  const { call } = server((ms) => [ms === start ? "soon" : iso(ms), 1]);
  const { csv } = await exportHistory({ call }, "dev_1", { from: start, to: start + 3 * 3.6e6 });
  assert.equal(csv, `at,power_watts\r\n${iso(start + 3.6e6)},1\r\n${iso(start + 7.2e6)},1\r\n`);
});

test("it ends at its bound, asks for nothing more, and says where the rest is", async () => {
  const { call, asked } = server();
  const span = { from: start, to: start + 9 * DAY_MS };
  const { csv, rest } = await exportHistory({ call }, "dev_1", span, 30);
  assert.equal(csv.trim().split("\r\n").length, 31);
  assert.equal(asked.length, 2);
  assert.deepEqual(rest, { from: start + 30 * 3.6e6, to: span.to });
  assert.equal(historyCommand("dev_1", rest), "exogpu history dev_1 --from 2026-11-02T06:00:00.000Z --to 2026-11-10T00:00:00.000Z");
  const whole = await exportHistory(server(), "dev_1", { from: start, to: start + 30 * 3.6e6 }, 30);
  assert.equal(whole.rest, null, "as many as there may be");
});

test("the name of the file is one on every system", () => {
  assert.equal(fileName("dev_1", { from: 0, to: Date.parse("2026-11-20T14:31:52.000Z") }), "exogpu-dev_1-2026-11-20T1431.csv");
  assert.equal(fileName("../a b", { from: 0, to: 0 }), "exogpu-..-a-b-1970-01-01T0000.csv");
});
