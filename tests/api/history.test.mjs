// telemetry.history: the last ten minutes as sampled. What the minutes of history.db give is tested beside the store,
// where the clock can be chosen.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { isTime } from "./contract.mjs";
import { deviceReadings, deviceRecord, nodeRecord } from "./records.mjs";
import { run, startServer } from "./server.mjs";

describe("history", () => {
	let server, admin, node, begun;
	const ask = (from, to, step_s, device_id = "dev_gpu") => admin.call("telemetry.history",
		{ device_id, from: new Date(from).toISOString(), to: new Date(to).toISOString(), step_s });
	const column = (history, name) => history.rows.map((row) => row[history.columns.indexOf(name)]);

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["inventory", "telemetry"] });
		node = await FakeNode.connect(server, nodeRecord());
		await node.devices([deviceRecord(), deviceRecord({ device_id: "dev_cpu", hardware_key: "cpu" })]);
		await admin.event((one) => one.data.device?.device_id === "dev_cpu");
		begun = Date.now();
		for (let i = 0; i < 50; i++) {
			node.telemetry([deviceReadings({ utilization_percent: i, temperature_celsius: i % 2 ? 50 : null })]);
			await admin.event((one) => one.data.devices?.[0]?.utilization_percent === i, `reading ${i}`);
			const at = Date.now();
			while (Date.now() === at); // one row a millisecond
		}
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("every sample, in order, nothing invented", async () => {
		const history = await ask(begun - 1000, Date.now() + 1000, 0);
		assert.equal(history.source, "samples");
		assert.equal(history.columns[0], "at");
		assert.deepEqual(column(history, "utilization_percent"), Array.from({ length: 50 }, (_, i) => i));
		assert.deepEqual(column(history, "temperature_celsius"), Array.from({ length: 50 }, (_, i) => (i % 2 ? 50 : null)));
		assert.deepEqual([...new Set(column(history, "memory_temperature_celsius"))], [null]);
		const times = column(history, "at");
		assert.ok(times.every(isTime), times[0]);
		assert.deepEqual(times, [...times].sort());
		assert.ok(history.rows.every((row) => row.length === history.columns.length));
	});

	test("steps average what is there", async () => {
		const history = await ask(begun - 1000, begun + 60000, 60);
		assert.equal(history.step_s, 60);
		assert.equal(history.rows.length, 1);
		assert.ok(Math.abs(column(history, "utilization_percent")[0] - 24.5) < 1e-4, column(history, "utilization_percent"));
		assert.equal(column(history, "temperature_celsius")[0], 50, "absent readings do not count");
		const extremes = (name) => ["min", "max"].map((which) => column(history, `${name}_${which}`)[0]);
		assert.deepEqual(extremes("utilization_percent"), [0, 49], "the least and the most are not averaged away");
		assert.deepEqual(extremes("temperature_celsius"), [50, 50]);
		assert.deepEqual(extremes("memory_temperature_celsius"), [null, null]);
		assert.deepEqual(column(await ask(begun - 1000, Date.now() + 1000, 0), "utilization_percent_max"), Array(50).fill(null));
	});

	test("a part of the time, the end left out", async () => {
		const all = await ask(begun - 1000, Date.now() + 1000, 0);
		const [first, last] = [all.rows[10][0], all.rows[20][0]];
		const part = await admin.call("telemetry.history", { device_id: "dev_gpu", from: first, to: last, step_s: 0 });
		assert.deepEqual(part.rows, all.rows.slice(10, 20));
	});

	test("a device without readings, and times without any", async () => {
		assert.deepEqual((await ask(begun - 1000, Date.now() + 1000, 0, "dev_cpu")).rows, []);
		assert.deepEqual((await ask(begun + 3600000, begun + 7200000, 1)).rows, []);
	});

	test("the command line prints them as CSV", async () => {
		const cli = (...words) => run(["history", ...words, "--data", server.data]);
		const { code, stdout, stderr } = await cli("dev_gpu", "--from", "5m");
		assert.equal(code, 0, stderr);
		const [head, ...lines] = stdout.trimEnd().split("\r\n").map((line) => line.split(","));
		const { columns, rows } = await ask(begun - 1000, Date.now() + 1000, 0);
		assert.deepEqual(head, columns);
		assert.deepEqual(lines, rows.map((row) => row.map((value) => (value === null ? "" : `${value}`))));
		assert.equal((await cli("dev_gpu", "--from", "2020-01-02", "--to", "2020-01-01")).code, 2);
		assert.equal((await cli("dev_none")).code, 1);
	});

	test("longer ago comes from the minutes, at most 2,000 rows", async () => {
		const day = await ask(begun - 86400000, begun, 0);
		assert.equal(day.source, "minutes");
		assert.equal(day.step_s, 60);
		const month = await ask(begun - 30 * 86400000, begun, 0);
		assert.ok(month.step_s * 2000 >= 30 * 86400, `${month.step_s} s`);
		assert.ok(month.rows.length <= 2001);
		const long = await ask(0, 253402300799000, 86400);
		assert.equal(long.source, "minutes");
		assert.deepEqual(long.columns, day.columns);
	});
});
