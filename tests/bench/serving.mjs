// Measures the speed of a model through the server, on this machine's processor or another device of it:
//
//   node tests/bench/serving.mjs FOLDER [cuda|vulkan|cpu] [SHAPE:FORMAT[:LAYERS] ...]
//
// EXOGPU_BINARY and EXOGPU_GENERATE_MODEL are what is measured and what makes the files, of random weights, in FOLDER;
// each is
// removed afterwards. All requests go by HTTP and server-sent events, with prompts that nobody has seen. Prints two
// tables in Markdown:
//
//   loading The file is out of the page cache when it is loaded, and when `dd` reads it for comparison; then once more
//             from the cache. Memory is what the worker holds of its own after all requests, on a GPU what its driver
//             counts as used more than before; what is beyond the weights, and the keys and values that there is room
//             for, is its program, workspace and what it sends.
//   serving Time to the first token of a prompt of 16 and of 512 tokens, alone; then 1, 8 and 32 requests at once with
//             prompts of 16 tokens and answers of 32: tokens a second of all together, from the first request to the
//             last token, and the median time to the first token.
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { Client } from "../api/client.mjs";
import { eventually, startServer } from "../api/server.mjs";

const [folder, ...words] = process.argv.slice(2);
const backend = ["cuda", "vulkan", "cpu"].includes(words[0]) ? words.shift() : "cpu", asked = words;
const models = asked.length ? asked : ["F16", "Q8_0", "Q4_0", "Q4_K"].map((format) => `tinyllama-1.1b:${format}`).concat("llama-3-8b:Q4_0");
const PATIENCE = 300000, ROUNDS = 3, ROUNDS_MS = 60000, TOKENS = 32, AT_ONCE = [1, 8, 32], SHORT = 16, LONG = 512;

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const row = (...cells) => `| ${cells.join(" | ")} |`;

let prompts = 0;
const prompt = (length) => {
	prompts++;
	return Array.from({ length }, (_, i) => 300 + ((i * 7919 + prompts * 104729) % 20000));
};

// Milliseconds from the request to its first token.
async function ask(server, model, length, max_tokens) {
	const began = performance.now();
	const answer = await fetch(new URL("/v1/completions", server.url), { method: "POST",
		headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
		body: JSON.stringify({ model, prompt: prompt(length), max_tokens, temperature: 0, ignore_eos: true, stream: true,
			stream_options: { include_usage: true } }) });
	if (!answer.ok) throw new Error(await answer.text());
	let first, text = "";
	for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
		first ??= performance.now() - began;
		text += piece;
	}
	const made = Number(/"completion_tokens":(\d+)/.exec(text)?.[1]);
	if (made !== max_tokens) throw new Error(`${made} tokens of ${max_tokens}: ${text.slice(-400)}`);
	return first;
}

async function askMany(server, model, count) {
	const began = performance.now();
	const firsts = await Promise.all(Array.from({ length: count }, () => ask(server, model, SHORT, TOKENS)));
	return { rate: count * TOKENS * 1000 / (performance.now() - began), first: median(firsts) };
}

// The file leaves the page cache, if nobody maps it.
const forget = (path) => spawnSync("dd", [`if=${path}`, "iflag=nocache", "count=0", "status=none"]);

function readDisk(path) {
	forget(path);
	const began = performance.now();
	execFileSync("dd", [`if=${path}`, "of=/dev/null", "bs=8M", "status=none"]);
	return statSync(path).size / (performance.now() - began) / 1000; // MB/s
}

// Bytes of its own, not of files, of the process below `pid` that has the most.
function workerBytes(pid) {
	const parents = new Map(readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((name) => {
		try {
			const text = readFileSync(`/proc/${name}/status`, "utf8"), number = (key) => Number(new RegExp(`^${key}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0);
			return [[Number(name), { parent: number("PPid"), bytes: 1024 * (number("RssAnon") + number("RssShmem")) }]];
		} catch { // it ended meanwhile
			return [];
		}
	}));
	const below = (one) => one && (one.parent === pid || below(parents.get(one.parent)));
	return Math.max(...[...parents.values()].filter(below).map((one) => one.bytes));
}

// Bytes in use on a GPU, as its driver counts them, of a reading that was taken after this was asked; NaN: it does not tell.
async function deviceBytes(admin) {
	const from = new Date().toISOString();
	const bytes = await eventually(async () => {
		const { columns, rows } = await admin.call("telemetry.history", { device_id: device.device_id, from, to: new Date(Date.now() + 1000).toISOString(), step_s: 0 });
		return rows.length && rows.map((values) => [values[columns.indexOf("memory_used_bytes")]]).at(-1);
	}, "a reading of the device", PATIENCE);
	return bytes[0] ?? NaN;
}

async function load(admin, model_id, layers) {
	const { instance_id } = await admin.call("instance.create", { model_id, context_tokens: 1024, sequences: Math.max(...AT_ONCE),
		pins: [{ device_id: device.device_id, first_layer: 0, layer_count: layers }] });
	return eventually(async () => {
		const one = (await admin.call("instance.list")).instances.find((instance) => instance.instance_id === instance_id);
		if (one.state === "failed") throw new Error(one.state_reason);
		return one.state === "running" && one;
	}, "the model is loaded", PATIENCE);
}

async function unload(admin, { instance_id }) {
	await admin.call("instance.delete", { instance_id });
	await eventually(async () => !(await admin.call("instance.list")).instances.length, "the model is gone", PATIENCE);
}

async function measure(server, admin, model) {
	const [shape, format, layers] = model.split(":"), path = join(folder, `${shape}-${format}.gguf`), megabytes = (bytes) => (bytes / 1e6).toFixed(0);
	execFileSync(process.env.EXOGPU_GENERATE_MODEL, [path, shape, format, ...(layers ? ["--layers", layers] : [])], { stdio: "ignore" });
	const { model_id } = await admin.call("model.add", { source: path });
	const added = await eventually(async () => (await admin.call("model.list")).models.find((one) => {
		if (one.model_id === model_id && one.state === "failed") throw new Error(one.state_reason);
		return one.model_id === model_id && one.state === "ready";
	}), "the model is ready", PATIENCE);
	const size = statSync(path).size, disk = readDisk(path), before = backend === "cpu" ? 0 : await deviceBytes(admin);
	forget(path);
	const cold = await load(admin, model_id, added.architecture.layers);
	await unload(admin, cold);
	const warm = await load(admin, model_id, added.architecture.layers), name = warm.model_name, [stage] = warm.stages;
	const firsts = { [SHORT]: [], [LONG]: [] }, many = new Map(AT_ONCE.map((count) => [count, []]));
	await ask(server, name, LONG, 4); // not counted
	for (let round = 0, began = performance.now(); round < ROUNDS && (!round || performance.now() - began < ROUNDS_MS); round++) {
		for (const length of [SHORT, LONG]) firsts[length].push(await ask(server, name, length, 1));
		for (const count of AT_ONCE) many.get(count).push(await askMany(server, name, count));
	}
	const bytes = backend === "cpu" ? workerBytes(server.child.pid) : await deviceBytes(admin) - before, rate = size / cold.load_ms / 1000;
	await unload(admin, warm);
	await admin.call("model.remove", { model_id });
	rmSync(path);
	return {
		loading: row(model.replaceAll(":", " "), megabytes(size), disk.toFixed(0), (cold.load_ms / 1000).toFixed(1), rate.toFixed(0),
			`${(100 * rate / disk).toFixed(0)} %`, (warm.load_ms / 1000).toFixed(1), megabytes(bytes), megabytes(stage.weights_bytes),
			megabytes(stage.kv_bytes), megabytes(bytes - stage.weights_bytes - stage.kv_bytes)),
		serving: row(model.replaceAll(":", " "), ...[SHORT, LONG].map((length) => median(firsts[length]).toFixed(0)),
			...AT_ONCE.flatMap((count) => [median(many.get(count).map((one) => one.rate)).toFixed(1), median(many.get(count).map((one) => one.first)).toFixed(0)])),
	};
}

const server = await startServer({ localNode: true, args: ["--log-level", "error"] }), admin = await Client.login(server);
const device = await eventually(async () => (await admin.call("cluster.snapshot")).devices
	.find((one) => one.backend === backend && one.verification.state === "passed" && one.memory_bandwidth_bytes_per_s > 0), `a device of ${backend} is verified`, PATIENCE);
const results = [];
for (const model of models) results.push(await measure(server, admin, model));
console.log(`### Served by ${device.name} (${backend}), medians of ${ROUNDS} rounds, of fewer where they take more than a minute\n`);
console.log(row("", "file, MB", "disk, MB/s", "loaded from it, s", "MB/s", "of the disk", "from the cache, s", "memory, MB", "weights", "keys and values", "beyond both"));
console.log(`|${"---|".repeat(11)}`);
for (const { loading } of results) console.log(loading);
console.log(`\n${row("", `first token of ${SHORT}, ms`, `of ${LONG}, ms`, ...AT_ONCE.flatMap((count) => [`${count} at once, tokens/s`, "first token, ms"]))}`);
console.log(`|${"---|".repeat(3 + 2 * AT_ONCE.length)}`);
for (const { serving } of results) console.log(serving);
await server.finish();
process.exit(0);
