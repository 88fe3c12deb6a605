// What the device's page shows of a real GPU: the recording of an H200 (tests/vectors/thermal-h200.csv, one reading a
// second) at its own pace, after a model has learnt from it. The curves are read off the canvas by their axes, as a person
// would: temperature and power against the recording, the limit, and the forecast with its band against what came then.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { Client, FakeNode } from "../api/client.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "../api/records.mjs";
import { eventually, slow, startServer } from "../api/server.mjs";
import { openDashboard, picture, startBrowser, suite } from "./browser.mjs";

const LIMIT = 89;
const recorded = readFileSync(new URL("../vectors/thermal-h200.csv", import.meta.url), "utf8").split("\n").filter((line) => /^\d/.test(line))
	.map((line) => line.split(",").map(Number)).map(([, celsius, watts]) => ({ celsius, watts }));

// Keeps of each canvas what was drawn on it last: words where they stand, lines, and paths with their dashes.
function watchCanvases() {
	const points = new WeakMap(), { Path2D: path } = window, context = CanvasRenderingContext2D.prototype;
	const before = (owner, name, does) => {
		const was = owner[name];
		owner[name] = function (...args) { does.call(this, ...args); return was.apply(this, args); };
	};
	const keep = (of, x, y) => points.set(of, [...(points.get(of) ?? []), [x, y]]);
	const drawn = (canvas) => (canvas.drawn ??= { words: [], paths: [], lines: [] });
	for (const name of ["moveTo", "lineTo"]) {
		before(path.prototype, name, function (x, y) { (points.get(this) ?? points.set(this, []).get(this)).push([x, y]); });
		before(context, name, function (x, y) { keep(this, x, y); });
	}
	before(context, "beginPath", function () { points.delete(this); });
	before(context, "clearRect", function () { this.canvas.drawn = undefined; });
	before(context, "fillText", function (text, x, y) { drawn(this.canvas).words.push({ text, x, y }); });
	before(context, "stroke", function (one) {
		if (one) drawn(this.canvas).paths.push({ dash: this.getLineDash(), points: points.get(one) ?? [] });
		else drawn(this.canvas).lines.push(points.get(this) ?? []);
	});
}

// The line through two points of an axis.
const through = ([a, at], [b, to]) => (x) => at + ((x - a) * (to - at)) / (b - a);

// The values of a chart, by the ticks at its axes: {solid, dashed: [[time in s of the day, value]], limit}.
function readOff({ words, paths, lines }, limitName) {
	const ticks = words.filter(({ text }) => /^\d+$/.test(text)).map(({ text, y }) => [y, Number(text)]);
	const times = words.filter(({ text }) => /^\d\d:\d\d$/.test(text)).map(({ text, x }) => [x, Number(text.slice(0, 2)) * 3600 + Number(text.slice(3)) * 60]);
	const value = through(ticks[0], ticks.at(-1)), time = through(times[0], times.at(-1));
	const read = (found) => found.flatMap((path) => path.points).map(([x, y]) => [time(x), value(y)]);
	const name = words.find(({ text }) => text.startsWith(limitName));
	const limit = name && lines.map((line) => line[0]?.[1]).find((y) => y > name.y && y < name.y + 8);
	return { solid: read(paths.filter(({ dash, points }) => !dash.length && points.length > 20)), dashed: read(paths.filter(({ dash }) => dash.length)),
		limit: limit && value(limit), name: name?.text };
}

suite("the recording of a GPU on its page", () => {
	let server, admin, browser, node;
	const readings = (i, at) => deviceReadings({ at: new Date(at).toISOString(), temperature_celsius: recorded[i].celsius, power_watts: recorded[i].watts,
		power_limit_watts: 700, slowdown_celsius: LIMIT });

	before(async () => {
		server = await startServer({ env: { EXOGPU_THERMAL_CLOCK: "readings" } });
		admin = await Client.login(server);
		node = await FakeNode.connect(server, nodeRecord());
		await node.devices([deviceRecord({ name: "H200" })]);
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	test("its curve, its limit, and what was foreseen with its band, beside what then came", { timeout: 1200000 * slow }, async (t) => {
		const count = recorded.length, learnt = Date.now() - 2 * count * 1000;
		for (let from = 0; from < 2 * count; from += 30) // twice before, at once: it is learnt from, and lies in one moment of the curve
			node.telemetry(Array.from({ length: Math.min(30, 2 * count - from) }, (_, i) => readings((from + i) % count, learnt + (from + i) * 1000)), nodeReadings());
		const forecast = () => admin.call("thermal.forecast", { device_id: "dev_gpu", horizon_s: 300 });
		await eventually(async () => (await forecast()).state === "ready", "a forecast is made");
		const page = await browser.page();
		await page.addInitScript(watchCanvases);
		await openDashboard(page, server, "#/devices/dev_gpu");
		const heat = page.getByRole("region", { name: "Heat ahead" });
		await heat.getByText(`${LIMIT} °C, reported by the card`).waitFor();

		// At its own pace. What the page says of the next minute, with the reading that it said it at.
		const begun = Date.now(), said = [];
		for (let i = 0; i < count; i++) {
			await new Promise((resolve) => setTimeout(resolve, Math.max(begun + i * 1000 - Date.now(), 0)));
			node.telemetry([readings(i, begun + i * 1000)], nodeReadings());
			const text = await heat.evaluate((one) => one.textContent);
			const [, watts, ahead, low, high] = /at (\d+) W.*In 1 min(\d+) °C, from (\d+) to (\d+)In 5 min/.exec(text) ?? [];
			if (ahead !== undefined && text !== said.at(-1)?.text) said.push({ text, i, watts: Number(watts), ahead: Number(ahead), low: Number(low), high: Number(high) });
		}
		const last = recorded[count - 1].celsius;
		await page.getByRole("figure", { name: `Temperature, GPU now ${last} °C` }).waitFor();

		// The forecast, as far as power stayed within 10 % of what it was made for: it says what comes if it does.
		const kept = said.filter(({ i, watts }) => i + 60 < count && recorded.slice(i, i + 61).every((one, k, all) =>
			k % 10 || Math.abs(all.slice(k, k + 10).reduce((sum, { watts: now }) => sum + now, 0) / all.slice(k, k + 10).length / watts - 1) < 0.1));
		const off = kept.map(({ i, ahead }) => Math.abs(ahead - recorded[i + 60].celsius)), mean = off.reduce((sum, one) => sum + one, 0) / off.length;
		const inside = kept.filter(({ i, low, high }) => low <= recorded[i + 60].celsius && recorded[i + 60].celsius <= high).length;
		t.diagnostic(`${said.length} forecasts were shown; of ${kept.length} the power stayed within 10 %: off by ${mean.toFixed(2)} °C on average, ${inside} in the band`);
		assert.ok(said.length > count / 10 && kept.length >= 10, `${said.length}, ${kept.length}`);
		assert.ok(mean <= 1.5 && inside >= 0.8 * kept.length, `${mean} ${inside}`);

		// The curves: each point that is drawn is a reading of its time, and all of the recording is drawn.
		const charts = {};
		for (const title of ["Temperature", "Power"])
			charts[title] = await page.getByRole("figure", { name: new RegExp(`^${title},`) }).locator("canvas").evaluate((canvas) => canvas.drawn);
		const day = (ms) => { const at = new Date(ms); return at.getHours() * 3600 + at.getMinutes() * 60 + at.getSeconds() + at.getMilliseconds() / 1000; };
		const first = day(begun);
		for (const [title, name, tolerance] of [["Temperature", "celsius", 0.8], ["Power", "watts", 12]]) {
			const { solid, limit, name: limitName } = readOff(charts[title], title === "Temperature" ? "slowdown limit" : "limit");
			const drawn = solid.map(([time, value]) => [time - first, value]).filter(([s]) => s >= 3 && s < count - 1);
			const near = (s) => recorded.slice(Math.max(Math.floor(s) - 3, 0), Math.ceil(s) + 4).map((one) => one[name]);
			const wrong = drawn.filter(([s, value]) => !near(s).some((one) => Math.abs(one - value) <= tolerance));
			t.diagnostic(`${title}: ${drawn.length} points are drawn of ${count} readings, ${wrong.length} off by more than ${tolerance}; limit at ${limit?.toFixed(1)}`);
			assert.ok(drawn.length > count / 2 && wrong.length === 0, `${title}: ${JSON.stringify(wrong.slice(0, 5))}`);
			const holes = drawn.slice(1).filter(([s], k) => s - drawn[k][0] > 6);
			assert.deepEqual(holes, [], "nothing is left out");
			if (title !== "Temperature") continue;
			assert.equal(limitName, `slowdown limit ${LIMIT} °C, reported by the card`);
			assert.ok(Math.abs(limit - LIMIT) < 1.5, `the limit is drawn at ${limit}`);
		}

		// The dashed curve is the server's forecast, which no reading has changed since.
		const { points } = await forecast(), { dashed } = readOff(charts.Temperature, "slowdown limit");
		assert.ok(dashed.length > 20, `${dashed.length} points of a forecast are drawn`);
		const [begins] = dashed;
		for (const [time, value] of dashed) {
			const there = points.filter(({ in_s }) => Math.abs(in_s - (time - begins[0])) < 12).map(({ celsius }) => celsius);
			assert.ok(there.some((one) => Math.abs(one - value) < 1), `${value} at ${time - begins[0]} s, of ${there}`);
		}
		await picture(page, "heat-recorded");
		await page.context().close();
	});
});
