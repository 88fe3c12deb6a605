// A model on several machines: network namespaces of this one, on a wire that is told what to do (tests/cluster).
//
//   node tests/bench/cluster.mjs FOLDER [PART...] [--format Q4_0] [--layers 22] [--rounds 3] [--lesser 0.7]
//                                [--streams 8,16] [--better-cpus 0] [--lesser-cpus 1] [--scale 1] [--backend cpu] [--prompt 8192]
//
// EXOGPU_BINARY, EXOGPU_WIRE and EXOGPU_GENERATE_MODEL are what is measured, the wire, and what makes models, of the 1.1B
// shape with random weights, in FOLDER. Needs root, `ip`, control groups, two processors. Parts, all of them unless some
// are named; each prints a table in Markdown:
//
//   split   Two nodes, one with a processor, one with so much of another (--lesser; of which processors: --better-cpus,
//           --lesser-cpus, all of them if that is as much), against the better one alone: a long prompt, 8 and 16 requests at once. Where layers go is
//           the product's own decision, and what it predicts just before each measurement stands beside. Of requests at
//           once the rates from each one's first token on are added up. Ratios are medians of those of each round. The
//           server and the wire have what nodes leave of the processors.
//   wire    Round trips, loss and throughput as nodes measure them, beside what the wire was told, and what one plain TCP
//           stream gets there.
//   hop     What a token sends, counted at the interfaces, and how much longer it takes than on one node.
//   kill    From SIGKILL of a node in the middle of an answer to the next token of that answer.
//   pair    Two unlike devices, emulated: the one computes prompts faster, the other tokens. Steps take as long as a published
//           table says (PAIR; EXOGPU_TEST_PACE, so that nodes are a build with assertions, EXOGPU_PACED_BINARY); keys and values
//           of an 8B model, pages, TLS and the wire are real. A prompt of 8,192 and 32 tokens of answer on each alone and on
//           both; and, to see what overlapping brings, on both where a piece of the prompt is computed only once the keys
//           and values of the last one have gone. --scale N: all times are N times as long, and the wire is that much
//           slower, where the machine is slow. --backend cuda: what is real is computed by a GPU, for both nodes. --prompt N: a shorter one.
//
// With EXOGPU_RELAY and EXOGPU_DETOUR (relay.c, detour.c of tests/cluster) there are no namespaces: nodes of this machine
// are connected by a relay, which is also faster than the wire.
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { eventually } from "../api/server.mjs";
import { becomes, complete, cpuOf, deviceOf, instanceBecomes, instanceOf, letIn, node, serve, snapshot } from "../cluster/cluster.mjs";
import { Net, groupsMissing, long, relayed } from "../cluster/net.mjs";

const SHAPE = "tinyllama-1.1b", PROMPT = 1024, TOKENS = 48, STEADY_TOKENS = 160, CONTEXT = PROMPT + 64;
const { values, positionals: [folder, ...asked] } = parseArgs({ allowPositionals: true, options: {
	format: { type: "string", default: "Q4_0" }, layers: { type: "string", default: "22" }, rounds: { type: "string", default: "3" },
	streams: { type: "string", default: "8,16" }, lesser: { type: "string", default: "0.7" }, scale: { type: "string", default: "1" }, backend: { type: "string", default: "cpu" }, prompt: { type: "string", default: "8192" }, "better-cpus": { type: "string", default: "0" }, "lesser-cpus": { type: "string", default: "1" } } });
const numbers = (list) => list.split(",").flatMap((one) => { // "0-3,8"
	const [first, last = first] = one.split("-").map(Number);
	return Array.from({ length: last - first + 1 }, (_, i) => first + i);
});
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const row = (...cells) => console.log(`| ${cells.join(" | ")} |`);
const heads = (title, ...cells) => {
	console.log(`\n### ${title}\n`);
	row(...cells);
	console.log(`|${"---|".repeat(cells.length)}`);
};
const STREAMS = numbers(values.streams), layers = Number(values.layers), rounds = Number(values.rounds), lesser = Number(values.lesser);
const everywhere = `0-${availableParallelism() - 1}`;

// How far it is, beside the tables: a machine that stops it half way leaves what it has seen.
const says = (text) => console.error(`cluster: ${(performance.now() / 1000).toFixed(0)} s: ${text}`);

let prompts = 0;
const prompt = (length) => {
	prompts++;
	return Array.from({ length }, (_, i) => 300 + ((i * 7919 + prompts * 104729) % 20000));
};

// ---- a cluster ----

async function start(names, limits = {}) {
	const net = await Net.make(["home", ...names]), one = { net, nodes: [] };
	for (const name of names) net.machines[name].limit(limits[name] ?? { cpus: everywhere });
	one.server = await serve(net.machines.home, ["--no-local-node", "--log-level", "warning"]);
	one.admin = await one.server.login();
	return one;
}

async function enter(cluster, machine, args = [], data) {
	const { net, admin } = cluster, known = data !== undefined;
	const started = await node(machine, ["--join", `${net.machines.home.address}:52415`, ...args], data);
	if (!known) await letIn(admin, started);
	started.cpu = known ? null : await cpuOf(admin, started.id);
	return started;
}

// Their direct links, once each direction has a throughput.
async function linked(cluster, nodes) {
	return eventually(async () => {
		const all = (await snapshot(cluster.admin)).links, find = (a, b) => all.find((one) => one.from_node_id === a.id && one.to_node_id === b.id);
		const links = nodes.flatMap((a) => nodes.filter((b) => b !== a).map((b) => find(a, b)));
		return links.every((one) => one?.state === "up" && one.throughput_bytes_per_s !== null) && links;
	}, "every link is measured", 4 * long);
}

// Requests name a model: each instance has one of its own, which differs by its random numbers.
const models = [];
async function model(cluster, count) {
	const { admin } = cluster, path = join(folder, `model-${models.length}.gguf`);
	models.push(path);
	execFileSync(process.env.EXOGPU_GENERATE_MODEL, [path, SHAPE, values.format, "--layers", String(count), "--seed", String(models.length)], { stdio: "ignore" });
	const { model_id } = await admin.call("model.add", { source: path });
	return eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready" && one.sha256),
		"the model is known", 2 * long);
}

async function load(cluster, wanted) {
	const { instance_id } = await cluster.admin.call("instance.create", wanted);
	return instanceBecomes(cluster.admin, instance_id, "running");
}

async function unload(cluster, { instance_id }) {
	await cluster.admin.call("instance.delete", { instance_id });
	await eventually(async () => !(await instanceOf(cluster.admin, instance_id)), "the instance is gone", long);
}

const halves = (a, b, count) => [{ device_id: a.cpu.device_id, first_layer: 0, layer_count: Math.floor(count / 2) },
	{ device_id: b.cpu.device_id, first_layer: Math.floor(count / 2), layer_count: Math.ceil(count / 2) }];
const whole = (one, count) => [{ device_id: one.cpu.device_id, first_layer: 0, layer_count: count }];

function ask(cluster, instance, length, max_tokens) {
	return complete(cluster.server, { model: instance.model_name, prompt: prompt(length), max_tokens, ignore_eos: true,
		stream_options: { include_usage: true } });
}

async function end(cluster) {
	await cluster.server.stop();
	cluster.net.destroy();
}

// ---- split ----

async function askAll(cluster, instance, count) {
	const streams = Array.from({ length: count }, () => ask(cluster, instance, 4, STEADY_TOKENS));
	await Promise.all(streams.map((one) => one.done));
	for (const { usage } of streams) if (usage?.completion_tokens !== STEADY_TOKENS) throw new Error(`${usage?.completion_tokens} tokens of ${STEADY_TOKENS}`);
	return streams.reduce((sum, one) => sum + (STEADY_TOKENS - 1) * 1000 / (one.at.at(-1) - one.at[0]), 0);
}

async function readPrompt(cluster, instance) {
	const began = performance.now(), stream = ask(cluster, instance, PROMPT, 1);
	await stream.done;
	return stream.usage.prompt_tokens * 1000 / (performance.now() - began);
}

// Tokens a second of `sequences` together, as the preview says it.
async function predicted(cluster, wanted) {
	const { feasible, stages, why, predicted: told } = await cluster.admin.call("placement.preview", { ...wanted, objective: "throughput" });
	if (!feasible) throw new Error(`it does not fit: ${JSON.stringify(why)}`);
	return { rate: told?.together_tokens_per_s ?? NaN, prompt: told?.prompt_tokens_per_s ?? NaN, stages, why };
}

// What was predicted just before each of the measurements, and by how much it was too fast.
function beside(rates, measured) {
	const more = 100 * (median(rates.map((rate, i) => rate / measured[i])) - 1);
	return Number.isNaN(more) ? "not predicted" : `${median(rates).toFixed(1)} (${more >= 0 ? "+" : ""}${more.toFixed(0)} %)`;
}

// What steps take on each device is learnt while it runs, once a second: of one row, of many, and of prompts.
async function warmUp(cluster, instance) {
	await ask(cluster, instance, 4, 4 * TOKENS).done;
	for (const count of STREAMS) await askAll(cluster, instance, count);
	await readPrompt(cluster, instance);
	await readPrompt(cluster, instance);
	await sleep(1500);
}

// What a round took in the last second that was told, of an instance in parts.
const timed = ({ timing }) => !timing ? "" :
	`; a round ${timing.step_ms.toFixed(1)} ms, parts ${timing.parts.map((one) => one.compute_ms.toFixed(1)).join(" and ")}, hops ${timing.hops_ms.toFixed(1)}`;

async function benchSplit() {
	const cpus = values["lesser-cpus"], less = lesser < numbers(cpus).length ? { cpus, cpu: lesser } : { cpus };
	const cluster = await start(["better", "lesser"], { better: { cpus: values["better-cpus"] }, lesser: less }), { net, admin } = cluster;
	const better = await enter(cluster, net.machines.better), other = await enter(cluster, net.machines.lesser);
	const wantedOf = async (sequences) => ({ model_id: (await model(cluster, layers)).model_id, context_tokens: CONTEXT, sequences, objective: "throughput" });
	const split = ({ stages }) => stages.map((one) => `${one.layer_count} ${one.device_id === better.cpu.device_id ? "better" : "lesser"}`).join(", ");
	await linked(cluster, [better, other]);
	// The first time nothing is known of either but its memory's bandwidth; what it then learns is what counts.
	const most = await wantedOf(Math.max(...STREAMS)), before = await predicted(cluster, { ...most, sequences: STREAMS[0] });
	const first = await load(cluster, { ...most, pins: halves(better, other, layers) });
	says("both, half the layers each, for what they learn");
	await warmUp(cluster, first);
	await unload(cluster, first);
	says("the better one alone");
	const alone = await load(cluster, { ...most, pins: whole(better, layers) }), rates = new Map();
	await warmUp(cluster, alone);
	for (const count of STREAMS) {
		const wanted = await wantedOf(count), instance = await load(cluster, wanted);
		rates.set(count, { wanted, instance, alone: [], both: [], guesses: { alone: [], both: [] } });
		if (instance.stages.length < 2)
			console.log(`\nThe product's own placement takes one node: ${(await predicted(cluster, wanted)).why.map(({ text }) => text).join("; ")}`);
	}
	// A prompt goes to the first instance that has both.
	const reads = [...rates.values()].find((one) => one.instance.stages.length > 1) ?? rates.get(STREAMS[0]);
	const prompts = { alone: [], both: [], guesses: { alone: [], both: [] } };
	const figuresOf = async (figures, which, name, wanted, instance, measure) => {
		const pins = instance.stages.map(({ device_id, first_layer, layer_count }) => ({ device_id, first_layer, layer_count }));
		const guess = (await predicted(cluster, { ...wanted, pins }))[name], rate = await measure(cluster, instance);
		figures.guesses[which].push(guess);
		figures[which].push(rate);
		says(`${name} of ${wanted.sequences}, ${which}: ${rate.toFixed(1)} tokens/s, ${guess.toFixed(1)} predicted${timed(await instanceOf(admin, instance.instance_id))}`);
	};
	for (let round = 0; round < rounds; round++) {
		const { wanted, instance } = reads;
		says(`round ${round + 1} of ${rounds}`);
		await figuresOf(prompts, "alone", "prompt", wanted, alone, readPrompt);
		await figuresOf(prompts, "both", "prompt", wanted, instance, readPrompt);
		for (const [count, figures] of rates) {
			const askThem = (...those) => askAll(...those, count);
			await figuresOf(figures, "alone", "rate", figures.wanted, alone, askThem);
			await figuresOf(figures, "both", "rate", figures.wanted, figures.instance, askThem);
		}
	}
	heads(`Processors ${values["better-cpus"]}, and ${lesser} of ${values["lesser-cpus"]}: ${SHAPE} ${values.format}, ${layers} layers; medians of ${rounds}`,
		"tokens/s", "layers", "better alone", "both", "ratio", "predicted, alone", "predicted, both");
	const ratio = (one) => [median(one.alone).toFixed(1), median(one.both).toFixed(1), `**${median(one.both.map((rate, i) => rate / one.alone[i])).toFixed(2)}**`];
	const guessed = ({ guesses, alone, both }) => [beside(guesses.alone, alone), beside(guesses.both, both)];
	row(`a prompt of ${PROMPT}`, split(reads.instance), ...ratio(prompts), ...guessed(prompts));
	for (const [count, figures] of rates)
		row(`${count} requests at once`, split(figures.instance), ...ratio(figures), ...guessed(figures));
	console.log(`\nBefore anything had run, for ${STREAMS[0]}: ${split(before)}, ${before.rate.toFixed(1)} tokens/s predicted.`);
	await end(cluster);
}

// ---- wire ----

const wires = [
	{ bits_per_s: 400e6, delay_ms: 1 },
	{ bits_per_s: 100e6, delay_ms: 5 },
	{ bits_per_s: 10e6 },
	{ bits_per_s: 10e6, delay_ms: 50, loss_percent: 1 },
	{ bits_per_s: 100e6, delay_ms: 10, loss_percent: 5 },
	{ bits_per_s: 50e6, delay_ms: 200, jitter_ms: 10 },
];
const LOSS_WINDOW_S = 60, WATCHED_S = 90, STREAM_S = 12, STREAM_BEGINS_S = 4;

// Mbit/s of one TCP stream, of anybody's, once it has begun: what comes from one machine at the other.
async function plainStream(from, to) {
	const sink = to.spawn(process.execPath, ["-e", `require("net").createServer((s) => { let bytes = 0; s.on("data", (d) => bytes += d.length);
		setTimeout(() => { const before = bytes, at = performance.now(); setTimeout(() => {
			console.log("Mbit/s", (bytes - before) * 8e-3 / (performance.now() - at)); process.exit(); }, ${1000 * (STREAM_S - STREAM_BEGINS_S)}); }, ${1000 * STREAM_BEGINS_S});
	}).listen(7000, () => console.log("listening"))`]);
	await eventually(() => sink.output.stdout.includes("listening"), "it listens", long);
	const source = from.spawn(process.execPath, ["-e", `const s = require("net").connect(7000, "${to.address}"), b = Buffer.alloc(65536);
		const more = () => { while (s.write(b)); }; s.on("drain", more); s.on("connect", more); s.on("error", () => process.exit());`]);
	const { stdout } = await sink.exited;
	source.child.kill("SIGKILL");
	return Number(/Mbit\/s (\S+)/.exec(stdout)[1]);
}

async function benchWire() {
	const names = ["a", "b", "c", "d"], cluster = await start(names), { net } = cluster, pairs = [];
	for (const [i, a] of names.entries()) for (const b of names.slice(i + 1)) pairs.push([a, b]);
	for (const [i, [a, b]] of pairs.entries())
		for (const [from, to] of [[a, b], [b, a]]) await net.set(net.machines[from], net.machines[to], wires[i]);
	const streams = []; // before there is anything else on the wires
	for (const [a, b] of pairs) streams.push(await plainStream(net.machines[a], net.machines[b]));
	for (const name of names) cluster.nodes.push(await enter(cluster, net.machines[name]));
	await linked(cluster, cluster.nodes);
	const readings = [];
	for (let i = 0; i < 3; i++) { // in the second half of it: what is smoothed has settled
		await sleep(1000 * (i ? WATCHED_S / 6 : 2 * WATCHED_S / 3));
		readings.push((await snapshot(cluster.admin)).links);
	}
	const idOf = (name) => cluster.nodes[names.indexOf(name)].id;
	const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;
	heads(`Links as they are measured, beside what the wire was told (${WATCHED_S} s; loss of the last ${LOSS_WINDOW_S} s; both directions)`,
		"told: round trip, ms", "measured", "jitter", "told: lost", "sent again", "told: Mbit/s", "a TCP stream", "measured");
	for (const [i, [a, b]] of pairs.entries()) {
		const { delay_ms = 0, jitter_ms = 0, loss_percent = 0, bits_per_s } = wires[i];
		const seen = (name) => readings.flatMap((links) => links.filter((one) => one.state === "up" && [idOf(a), idOf(b)].includes(one.from_node_id) &&
			[idOf(a), idOf(b)].includes(one.to_node_id)).map((one) => one[name])).filter((value) => value !== null);
		const shown = (name, digits, factor = 1) => seen(name).length ? (mean(seen(name)) * factor).toFixed(digits) : "none";
		const rates = seen("throughput_bytes_per_s").map((value) => value * 8e-6);
		row(jitter_ms ? `${2 * delay_ms} to ${2 * (delay_ms + jitter_ms)}` : 2 * delay_ms, shown("rtt_ms", 1), shown("jitter_ms", 1), `${loss_percent} %`,
			`${shown("loss_percent", 2)} %`, bits_per_s / 1e6, streams[i].toFixed(1), `${mean(rates).toFixed(1)} (${Math.min(...rates).toFixed(1)} to ${Math.max(...rates).toFixed(1)})`);
	}
	const { lost, taken } = await net.count();
	console.log(`\nOf ${taken} frames on all wires ${lost} were lost on purpose.`);
	await end(cluster);
}

// ---- hop ----

const HOP_TOKENS = 64, IDLE_MS = 3000;

// Milliseconds a token of one stream, from its first token on.
async function tokenMs(cluster, instance) {
	const stream = ask(cluster, instance, 4, HOP_TOKENS);
	await stream.done;
	return (stream.at.at(-1) - stream.at[0]) / (HOP_TOKENS - 1);
}

async function bytesPerToken(cluster, instance, counter) {
	const idle = counter();
	await sleep(IDLE_MS);
	const perMs = (counter() - idle) / IDLE_MS, before = counter(), began = performance.now();
	await tokenMs(cluster, instance);
	return (counter() - before - perMs * (performance.now() - began)) / HOP_TOKENS;
}

async function benchHop() {
	const cluster = await start(["one", "two"]), { net, admin } = cluster, { one, two } = net.machines;
	const a = await enter(cluster, one), b = await enter(cluster, two), c = await enter(cluster, two);
	await linked(cluster, [a, b, c]);
	const ways = { "the wire": { pair: [a, b], counter: () => one.bytes("eth0") }, loopback: { pair: [c, b], counter: () => two.bytes("lo") } };
	heads(`One stream over two nodes, ${SHAPE} ${values.format}; medians of ${rounds}`, "by", "layers", "one node, ms a token", "two nodes", "more, ms",
		"told: hops, ms", "bytes a token, counted", "told");
	for (const count of [2, layers]) {
		const wanted = { model_id: (await model(cluster, count)).model_id, context_tokens: 256, sequences: 1 };
		const alone = await load(cluster, { ...wanted, pins: whole(b, count) }), { model_id } = await model(cluster, count);
		for (const [name, { pair, counter }] of Object.entries(ways)) {
			const over = await load(cluster, { ...wanted, model_id, pins: halves(...pair, count) }), times = [[], []], told = [];
			for (let round = -1; round < rounds; round++) // the first of each is not counted
				for (const [i, instance] of [alone, over].entries()) {
					const ms = await tokenMs(cluster, instance);
					if (round < 0) continue;
					times[i].push(ms);
					if (i) await eventually(async () => (await instanceOf(admin, over.instance_id)).timing, "a time is told", long);
					if (i) told.push((await instanceOf(admin, over.instance_id)).timing);
				}
			const counted = []; // a burst that measures the way may fall into one of them
			for (let round = 0; round < 3; round++) counted.push(await bytesPerToken(cluster, over, counter));
			const bytes = median(counted), [ms, both] = times.map(median);
			row(name, count, ms.toFixed(2), both.toFixed(2), (both - ms).toFixed(2), median(told.map((timing) => timing.hops_ms)).toFixed(2),
				bytes.toFixed(0), median(told.map((timing) => timing.sent_bytes_per_token ?? NaN)).toFixed(0));
			await unload(cluster, over);
		}
		await unload(cluster, alone);
	}
	console.log("\nA token is one hop of activations and one back. Counted: frames of the interface, both ways, less those of as long without a request.");
	await end(cluster);
}

// ---- kill ----

const KILL_TOKENS = 128, KILL_AFTER = 24;

async function benchKill() {
	const cluster = await start(["one", "two"]), { net, admin } = cluster, machines = [net.machines.one, net.machines.two];
	for (const machine of machines) cluster.nodes.push(await enter(cluster, machine));
	await linked(cluster, cluster.nodes);
	const { model_id } = await model(cluster, layers), wanted = { model_id, context_tokens: 512, sequences: 1 };
	heads(`From SIGKILL of a node in the middle of an answer to the next token: ${SHAPE} ${values.format}, ${layers} layers on two nodes`,
		"killed", "the survivor had the missing layers' file", "ms", "tokens before");
	for (const cached of [false, true])
		for (const at of [0, 1]) {
			const instance = await load(cluster, { ...wanted, pins: halves(...cluster.nodes, layers) }), stream = ask(cluster, instance, 16, KILL_TOKENS), victim = cluster.nodes[at];
			await eventually(() => stream.pieces >= KILL_AFTER, "it has begun", 2 * long);
			const killed = performance.now(), before = stream.pieces;
			victim.child.kill("SIGKILL");
			await stream.done;
			if (stream.usage.completion_tokens !== KILL_TOKENS) throw new Error(`${stream.usage.completion_tokens} tokens of ${KILL_TOKENS}`);
			const gaps = stream.at.map((time, i) => ({ time, gap: time - (stream.at[i - 1] ?? time) })).filter(({ time }) => time > killed);
			const next = gaps.reduce((most, one) => one.gap > most.gap ? one : most);
			row(at ? "the last part, which chooses tokens" : "the first part", cached ? "yes" : "no, by the wire", (next.time - killed).toFixed(0), before);
			await unload(cluster, instance);
			const again = await enter(cluster, machines[at], [], victim.data);
			cluster.nodes[at] = { ...again, id: victim.id, cpu: victim.cpu };
			await becomes(admin, victim.id, "online");
			await cpuOf(admin, victim.id);
			await linked(cluster, cluster.nodes);
		}
	await end(cluster);
}

// ---- pair ----

// What exo published for Llama 3.1 8B (F16): a DGX Spark takes 1.47 s for a prompt of 8,192 and 2.87 s for 32 tokens, a Mac Studio
// 5.57 and 0.85 s; together, at 10 Gbit/s, 2.32 s. Rows and milliseconds of a step.
const PAIR = { prompt: Number(values.prompt), answer: 32, bits_per_s: 10e9, desk: { 1: 89.7, 64: 89.7, 512: 91.9 }, attic: { 1: 26.6, 64: 43.5, 512: 348 } };

async function benchPair() {
	const scale = Number(values.scale), paced = (table) => Object.entries(table).map(([rows, ms]) => `${rows}:${ms * scale}`).join(",");
	const cluster = await start(["desk", "attic", "waiting"]), { net, admin } = cluster, { attic: two, ...others } = net.machines;
	for (const one of [others.desk, others.waiting])
		for (const [from, to] of [[one, two], [two, one]]) await net.set(from, to, { bits_per_s: PAIR.bits_per_s / scale });
	const there = [];
	for (const [machine, table, env] of [[others.desk, PAIR.desk], [two, PAIR.attic], [others.waiting, PAIR.desk, { EXOGPU_TEST_PREFIX_ALONE: "1" }]]) {
		const started = await node(machine, ["--join", `${net.machines.home.address}:52415`], undefined,
			{ program: process.env.EXOGPU_PACED_BINARY, env: { ...env, EXOGPU_TEST_PACE: paced(table) }, backend: values.backend });
		await letIn(admin, started);
		started.cpu = await deviceOf(admin, started.id, values.backend);
		there.push(started);
	}
	const links = await linked(cluster, there), [desk, attic, waiting] = there;
	const path = join(folder, "pair.gguf");
	models.push(path);
	execFileSync(process.env.EXOGPU_GENERATE_MODEL, [path, "8b-cache", "F16"], { stdio: "ignore" });
	const { model_id } = await admin.call("model.add", { source: path });
	const known = await eventually(async () => (await admin.call("model.list")).models.find((each) => each.model_id === model_id && each.state === "ready" && each.sha256),
		"the model is known", 2 * long);
	const on = (device) => load(cluster, { model_id, context_tokens: PAIR.prompt + 64, sequences: 2, pins: whole(device, known.architecture.layers) });
	const tokens = () => { prompts++; return Array.from({ length: PAIR.prompt }, (_, i) => 300 + ((i * 7919 + prompts * 104729) % 700)); };
	const measure = async (instance) => {
		const began = performance.now(), stream = complete(cluster.server, { model: instance.model_name, prompt: tokens(), max_tokens: PAIR.answer,
			ignore_eos: true, stream_options: { include_usage: true } });
		await stream.done;
		if (stream.usage.completion_tokens !== PAIR.answer) throw new Error(`${stream.usage.completion_tokens} tokens of ${PAIR.answer}`);
		return { first: (stream.at[0] - began) / 1000, all: (stream.at.at(-1) - began) / 1000, prefill: stream.prefill };
	};
	const found = {};
	for (const [name, devices] of [["desk alone", [desk]], ["attic alone", [attic]], ["both", [desk, attic]], ["both, by turns", [waiting, attic]]]) {
		const loaded = [];
		for (const device of devices) loaded.push(await on(device));
		found[name] = [];
		for (let round = 0; round < rounds; round++) {
			const figures = await measure(loaded.at(-1));
			found[name].push(figures);
			says(`${name}: first token after ${figures.first.toFixed(2)} s, all after ${figures.all.toFixed(2)} s ${JSON.stringify(figures.prefill ?? {})}`);
		}
		for (const instance of loaded) await unload(cluster, instance);
	}
	const of = (name, figure) => median(found[name].map((each) => each[figure]));
	const way = links.find((each) => each.from_node_id === desk.id && each.to_node_id === attic.id);
	heads(`An emulated pair: a prompt of ${PAIR.prompt} and ${PAIR.answer} tokens; times are ${scale} times the table's, the wire ${(PAIR.bits_per_s / scale / 1e9).toFixed(2)} Gbit/s, `
		+ `measured ${(way.throughput_bytes_per_s * 8e-9).toFixed(2)}; medians of ${rounds}`, "on", "first token, s", "all, s", "by the table, s", "both are so many times as fast");
	for (const [name, table] of [["desk alone", 4.34], ["attic alone", 6.42], ["both", 2.32], ["both, by turns", NaN]])
		row(name, of(name, "first").toFixed(2), of(name, "all").toFixed(2), table && PAIR.prompt === 8192 ? (table * scale).toFixed(2) : "", `**${(of(name, "all") / of("both", "all")).toFixed(2)}**`);
	const told = found.both.map(({ prefill }) => prefill).filter(Boolean);
	console.log(`\nOf ${rounds} prompts ${told.length} were computed on the desk; ${told.map((each) => `${(each.bytes / 1e6).toFixed(0)} MB in ${each.seconds.toFixed(2)} s, ${each.predicted_seconds.toFixed(2)} predicted`).join("; ")}.`);
	await end(cluster);
}

// ---- all of it ----

const parts = { split: benchSplit, wire: benchWire, hop: benchHop, kill: benchKill, pair: benchPair };
for (const name of asked) if (!parts[name]) throw new Error(`no such part: ${name}; there are ${Object.keys(parts).join(", ")}`);
const why = (relayed ? null : groupsMissing) ?? (availableParallelism() < 2 ? "there is one processor only" : null);
if (why) {
	console.log(`\nSKIPPED: models over several machines: ${why}`);
	process.exit(0);
}
// This program, the server and the wire are beside neither node, or else beside the lesser one.
const nodesHave = new Set([values["better-cpus"], values["lesser-cpus"]].flatMap(numbers));
const others = numbers(everywhere).filter((one) => !nodesHave.has(one)).join(",");
execFileSync("taskset", ["-apc", others || values["lesser-cpus"], String(process.pid)], { stdio: "ignore" });
for (const [name, bench] of Object.entries(parts)) {
	if (asked.length && !asked.includes(name)) continue;
	try {
		await bench();
	} catch (error) { // an end of this program by itself would leave the machines behind
		console.error(`cluster: ${name}: ${error.stack}`);
		process.exit(1);
	}
	for (const path of models) rmSync(path, { force: true });
}
process.exit(0);
