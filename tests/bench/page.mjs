// What the dashboard costs a browser, and what Lighthouse says of it: node tests/bench/page.mjs [live] [lighthouse [RUNS]] [PAGE...]
//
// live: a server with 64 devices on one machine, each with new readings every second. First paint on loopback, median of
//   five loads by a browser that is logged in; then each page for EXOGPU_BENCH_S seconds (60): the time of the page's main
//   thread as a share of a core, and its tasks of over 50 ms. Both are told by the thread's own clock, which other programs
//   on the processor do not move, and the tasks by the wall's, too. EXOGPU_BENCH_TRACES=FOLDER keeps the traces.
// lighthouse: performance, accessibility and best practices of each page, median of RUNS (five), with a model and the
//   devices of this machine; needs `npm install --prefix build/lighthouse lighthouse`. It goes by the wall's clock: on a busy
//   machine its performance says nothing.
// PAGE: only pages that begin so (/#/models). EXOGPU_BINARY names the program. Chromium as in tests/e2e/browser.mjs.
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { Client, FakeNode } from "../api/client.mjs";
import { modelFile } from "../api/gguf.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "../api/records.mjs";
import { eventually, freePort, startServer, temporary } from "../api/server.mjs";
import { devicesUp, executable, flags, goTo, openDashboard } from "../e2e/browser.mjs";

const DEVICES = 64, SECONDS = Number(process.env.EXOGPU_BENCH_S ?? 60), LOADS = 5;
const words = process.argv.slice(2);
const wants = (name) => words.length === 0 || words.includes(name);
const only = words.filter((one) => one.startsWith("/"));
const runs = Number(words.find((one) => /^\d+$/.test(one)) ?? 5);
const median = (all) => [...all].sort((a, b) => a - b)[all.length >> 1];
const chosen = (path) => only.length === 0 || only.some((start) => path.startsWith(start));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// What the main thread of the page does for SECONDS: its share of a core by its own clock, of that script, style and layout by
// the wall's; its longest task and the number of those over 50 ms, by the thread's clock, then by the wall's.
async function watched(browser, page, hash) {
	const chrome = await page.context().newCDPSession(page);
	await chrome.send("Performance.enable");
	const metrics = async () => Object.fromEntries((await chrome.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]));
	await browser.startTracing(page, { categories: ["devtools.timeline", "disabled-by-default-devtools.timeline"] });
	const before = await metrics(), began = performance.now();
	await pause(SECONDS * 1000);
	const after = await metrics(), seconds = (performance.now() - began) / 1000;
	const trace = await browser.stopTracing();
	if (process.env.EXOGPU_BENCH_TRACES) writeFileSync(join(process.env.EXOGPU_BENCH_TRACES, `${hash.replaceAll("/", "_")}.json`), trace);
	const { traceEvents } = JSON.parse(trace);
	await chrome.detach();
	const renderer = traceEvents.find((one) => one.name === "TracingStartedInBrowser")?.args.data.frames[0]?.processId;
	const main = traceEvents.find((one) => one.name === "thread_name" && one.pid === renderer && one.args.name === "CrRendererMain").tid;
	const tasks = traceEvents.filter((one) => one.pid === renderer && one.tid === main && one.name === "RunTask");
	const share = (metric) => `${((100 * (after[metric] - before[metric])) / seconds).toFixed(1)} %`;
	const over = (clock) => tasks.filter((one) => one[clock] > 50000).length;
	return [...["ThreadTime", "ScriptDuration", "RecalcStyleDuration", "LayoutDuration"].map(share), (Math.max(...tasks.map((one) => one.tdur ?? 0)) / 1000).toFixed(0), over("tdur"), over("dur")];
}

async function live() {
	const server = await startServer();
	const fake = await FakeNode.connect(server, nodeRecord({ node_id: "nod_many", name: "rack 7" }));
	const id = (i) => `dev_card${String(i).padStart(2, "0")}`;
	await fake.devices(Array.from({ length: DEVICES }, (_, i) => deviceRecord({ device_id: id(i), hardware_key: `uuid:${i}`, uuid: null,
		name: `Card ${i + 1}`, memory_pool: `uuid:${i}`, pci_address: `0000:${i.toString(16).padStart(2, "0")}:00.0` })));
	let beats = 0;
	const tell = () => {
		beats++;
		fake.telemetry(Array.from({ length: DEVICES }, (_, i) => {
			const use = 50 + 45 * Math.sin(beats / (3 + i / 9) + i);
			return deviceReadings({ device_id: id(i), utilization_percent: use, power_watts: 60 + 2.2 * use, memory_used_bytes: Math.round((4 + (i % 11)) * 2 ** 30 + use * 1e7),
				temperature_celsius: 40 + use / 3, clock_mhz: 1200 + 6 * use, at: new Date().toISOString() });
		}), nodeReadings({ node_id: "nod_many" }));
	};
	tell();
	const timer = setInterval(tell, 1000);
	const browser = await chromium.launch({ executablePath: executable, args: flags });
	const page = await browser.newPage({ viewport: { width: 1440, height: 1000 } });
	await openDashboard(page, server);
	const paints = [];
	for (let i = 0; i < LOADS; i++) {
		await page.reload();
		await page.getByRole("status", { name: "Connection: live" }).waitFor();
		paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
	}
	console.log(`first paint on loopback: ${median(paints).toFixed(0)} ms, median of ${paints.map((one) => one.toFixed(0)).join(", ")}`);
	const hashes = ["overview", "devices", `devices/${id(0)}`, "nodes/nod_many", "topology", "models", "playground", "allocations", "access", "usage", "alerts", "audit", "logs", "wall"];
	console.log(`| page, ${SECONDS} s, ${DEVICES} devices | of a core | script | style | layout | longest task, ms | over 50 ms | the same by the clock |\n|---|---|---|---|---|---|---|---|`);
	for (const hash of hashes.map((one) => `/#/${one}`).filter(chosen)) {
		await goTo(page, hash.slice(1));
		await pause(5000); // what is drawn once
		console.log(`| ${hash.replace(/(dev|nod)_\w+/, "$1")} | ${(await watched(browser, page, hash)).join(" | ")} |`);
	}
	clearInterval(timer);
	await browser.close();
	fake.socket.close();
	await server.stop();
}

async function lighthouse() {
	const place = fileURLToPath(new URL("../../build/lighthouse/node_modules/lighthouse/core/index.js", import.meta.url));
	if (!existsSync(place)) return console.log("lighthouse is not there: npm install --prefix build/lighthouse lighthouse");
	const { default: judge, desktopConfig } = await import(place);
	const server = await startServer({ localNode: true });
	const admin = await Client.login(server);
	const [device] = await devicesUp(admin);
	const file = join(temporary(), "small.gguf");
	writeFileSync(file, modelFile());
	await admin.call("model.add", { source: file });
	const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is there", 60000);
	await admin.call("instance.create", { model_id: model.model_id });
	const port = await freePort();
	const context = await chromium.launchPersistentContext(temporary(), { executablePath: executable, args: [...flags, `--remote-debugging-port=${port}`] });
	const page = context.pages()[0] ?? (await context.newPage());
	await page.goto(server.url.origin);
	await page.getByLabel("Keep on this device").check();
	await page.getByRole("textbox", { name: "Token" }).fill(server.token);
	await page.getByRole("button", { name: "Log in" }).click();
	await page.getByRole("status", { name: "Connection: live" }).waitFor();
	await page.goto("about:blank");
	const hashes = ["overview", "devices", `devices/${device.device_id}`, `nodes/${device.node_id}`, "topology", "models", `models/${model.model_id}`, "playground", "allocations",
		"access", "usage", "alerts", "audit", "logs", "wall"];
	console.log(`| page | performance | accessibility | best practices |\n|---|---|---|---|`);
	for (const path of ["/lend", ...hashes.map((hash) => `/#/${hash}`)].filter(chosen)) {
		const all = [];
		const missed = new Set();
		for (let i = 0; i < runs; i++) {
			const { lhr } = await judge(server.url.origin + path, { port, logLevel: "silent", disableStorageReset: true, onlyCategories: ["performance", "accessibility", "best-practices"] }, desktopConfig);
			if (lhr.runtimeError) {
				missed.add(`not judged: ${lhr.runtimeError.code}`);
				continue;
			}
			all.push(["performance", "accessibility", "best-practices"].map((name) => Math.round(100 * lhr.categories[name].score)));
			for (const [name, least] of [["performance", 0.9], ["accessibility", 1], ["best-practices", 1]])
				for (const { id, weight } of lhr.categories[name].auditRefs) {
					const { score, displayValue } = lhr.audits[id];
					if (weight > 0 && score !== null && score < least) missed.add(`${id} ${displayValue ?? ""}`.trim());
				}
		}
		console.log(`| ${path.replace(/(dev|nod|mod)_\w+/, "$1")} | ${[0, 1, 2].map((i) => median(all.map((one) => one[i])) ?? "?").join(" | ")} |${missed.size ? ` ${[...missed].join(", ")}` : ""}`);
	}
	await context.close();
	await server.stop();
}

if (wants("live")) await live();
if (wants("lighthouse")) await lighthouse();
process.exit(0);
