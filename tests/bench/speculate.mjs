// What foreseen tokens bring, from a text itself and by a draft model (docs/inference.md): SmolLM2's published weights on
// this machine's processors, each prompt by turns without, with those of the text, and with the draft's, too; greedy.
//
//   ./dev bench speculate [--draft N] [--delay MS] [--rounds N] [--prompts N] [--tokens N] [--cpus N]
//
// --draft: layers of the draft, which are the model's own first ones (default 10; 0: no draft), or which of them ("0-5,24-29"). --delay: two halves on
// two nodes, in network namespaces, with so many ms of round trip between them; the draft is with the second. --rounds
// (default 5): turns of each prompt, of which the median counts. --prompts (default 20): of each kind. --tokens (default
// 96): of an answer, at most. --cpus: so many processors for each node, the first ones for the first. The time is that of the answer behind its first token. Prints a table in Markdown, and how
// many texts differ from those without.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Client } from "../api/client.mjs";
import { eventually, startServer, temporary } from "../api/server.mjs";
import { cpuOf, letIn, node, serve } from "../cluster/cluster.mjs";
import { Net, missing, relayed } from "../cluster/net.mjs";
import { cutLayers, keptLayers } from "../published/cut_layers.mjs";
import { kinds } from "./speculate_prompts.mjs";

const options = { draft: "10", delay: "", rounds: "5", prompts: "20", tokens: "96", cpus: "" };
const { values } = parseArgs({ options: Object.fromEntries(Object.entries(options).map(([name, value]) => [name, { type: "string", default: value }])) });
const [rounds, count, tokens] = [values.rounds, values.prompts, values.tokens].map(Number);
const kept = keptLayers(values.draft), layers = kept.length;
const file = execFileSync("python3", ["-B", fileURLToPath(new URL("../published/fetch.py", import.meta.url))], { encoding: "utf8" }).trim();
const PATIENCE = 600000, each = Number(values.cpus), cpusOf = (place) => `${place * each}-${(place + 1) * each - 1}`;
const sorted = (list) => [...list].sort((a, b) => a - b);
const median = (list) => sorted(list)[Math.floor(list.length / 2)];

// On this machine, or on two with a wire between.
async function begin() {
	if (!values.delay) {
		const server = await startServer({ localNode: true, under: each ? ["taskset", "-c", cpusOf(0)] : [] }), admin = await Client.login(server);
		const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", PATIENCE);
		const post = (body, token) => fetch(new URL("/v1/chat/completions", server.url), { method: "POST",
			headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, body: JSON.stringify(body) }).then((answer) => answer.text());
		return { admin, cpus: [cpu], post, end: () => server.finish() };
	}
	if (missing && !relayed) throw new Error(missing);
	const net = await Net.make(["home", "one", "two"]), { home, one, two } = net.machines;
	const server = await serve(home), admin = await server.login(), cpus = [];
	for (const [place, machine] of [one, two].entries()) {
		if (each) machine.limit({ cpus: cpusOf(place) });
		const started = await node(machine, ["--join", `${home.address}:52415`]);
		await letIn(admin, started);
		cpus.push(await cpuOf(admin, started.id));
	}
	const none = { jitter_ms: 0, loss_percent: 0, reorder_percent: 0, bits_per_s: 0 };
	const slow = () => Promise.all([[one, two], [two, one]].map(([from, to]) => net.set(from, to, { ...none, delay_ms: Number(values.delay) / 2 })));
	const post = async (body, token) => (await server.http("/v1/chat/completions", { method: "POST",
		headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, body: JSON.stringify(body), ms: PATIENCE })).body.toString();
	return { admin, cpus, post, slow, end: async () => { await server.stop(); net.destroy(); } };
}

const cluster = await begin();
try {
	const { admin, cpus } = cluster, folder = temporary();
	const known = async (path, name) => {
		const { model_id } = await admin.call("model.add", { source: path, name });
		return eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready"), "the file is read", PATIENCE);
	};
	const load = async (model, more) => {
		const all = model.architecture.layers, half = Math.ceil(all / cpus.length);
		const pins = cpus.map((cpu, i) => ({ device_id: cpu.device_id, first_layer: i * half, layer_count: Math.min(half, all - i * half) }));
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id, context_tokens: 2048, sequences: 1, pins, ...more });
		return eventually(async () => {
			const one = (await admin.call("instance.list")).instances.find((item) => item.instance_id === instance_id);
			if (one?.state === "failed") throw new Error(one.state_reason);
			return one?.state === "running" && one;
		}, "it is loaded", PATIENCE);
	};
	const other = join(folder, "other.gguf");
	writeFileSync(other, readFileSync(file));
	await load(await known(file, "plain"));
	if (layers) {
		writeFileSync(join(folder, "draft.gguf"), cutLayers(readFileSync(file), kept));
		await load(await known(other, "drafted"), { draft_model_id: (await known(join(folder, "draft.gguf"), "draft")).model_id });
	}
	await cluster.slow?.();
	const { token } = await admin.call("token.create", { name: "bench", scopes: ["infer"], expires_in_s: 86400 });
	const ask = async (model, content, speculate, max_tokens = tokens) => {
		const began = performance.now();
		const answer = JSON.parse(await cluster.post({ model, messages: [{ role: "user", content }], max_tokens, temperature: 0, speculate }, token));
		if (!answer.choices) throw new Error(JSON.stringify(answer));
		const details = answer.usage.completion_tokens_details ?? {};
		return { text: answer.choices[0].message.content, ms: performance.now() - began, tokens: answer.usage.completion_tokens, details };
	};
	const ways = { without: ["plain", false], text: ["plain", true], ...(layers ? { draft: ["drafted", true] } : {}) }, names = Object.keys(ways).slice(1);
	let differ = 0;
	const ratios = Object.fromEntries(names.map((name) => [name, []]));
	console.log(`| prompts | tokens/s without | ${names.map((name) => `${name}: ratio, median (least to most) | accepted of proposed`).join(" | ")} |\n|${" --- |".repeat(2 + 2 * names.length)}`);
	for (const { name: kind, prompts } of kinds) {
		const rows = [];
		for (const content of prompts.slice(0, count)) {
			const times = Object.fromEntries(Object.keys(ways).map((name) => [name, []])), row = { last: {} };
			for (const [model] of Object.values(ways)) await ask(model, content, false, 1); // the prompt is cached from now on
			for (let round = 0; round < rounds; round++)
				for (const name of round % 2 ? Object.keys(ways).reverse() : Object.keys(ways)) {
					const answer = await ask(ways[name][0], content, ways[name][1]);
					times[name].push(answer.ms / answer.tokens);
					row.last[name] = answer;
				}
			row.rate = 1000 / median(times.without);
			for (const name of names) {
				row[name] = median(times.without) / median(times[name]);
				ratios[name].push(row[name]);
				differ += row.last[name].text !== row.last.without.text;
			}
			rows.push(row);
			if (process.env.VERBOSE) console.error(kind, row.rate.toFixed(1), names.map((name) => `${name} ${row[name].toFixed(2)} ${JSON.stringify(row.last[name].details)}`).join(" "));
		}
		const cells = names.map((name) => {
			const of = rows.map((row) => row[name]), sum = (field) => rows.reduce((all, row) => all + (row.last[name].details[field] ?? 0), 0);
			const accepted = sum("accepted_prediction_tokens"), drafted = sum("drafted_tokens");
			return `${median(of).toFixed(2)} (${Math.min(...of).toFixed(2)} to ${Math.max(...of).toFixed(2)}) | ${accepted} of ${accepted + sum("rejected_prediction_tokens")}` +
				(drafted ? `, the draft's ${sum("draft_accepted_tokens")} of ${drafted}` : "");
		});
		console.log(`| ${kind}, ${rows.length} | ${median(rows.map((row) => row.rate)).toFixed(1)} | ${cells.join(" | ")} |`);
	}
	console.log(`| all | | ${names.map((name) => `${median(ratios[name]).toFixed(2)} (${Math.min(...ratios[name]).toFixed(2)} to ${Math.max(...ratios[name]).toFixed(2)}) |`).join(" | ")} |`);
	console.log(`\n${differ} texts differ from those without.`);
} finally {
	await cluster.end();
}
