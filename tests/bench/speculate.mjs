// Measures what proposed tokens bring (docs/inference.md): SmolLM2's published weights on this machine's processor, each
// prompt by turns with and without them, greedy, 96 tokens at most.
//
//   node tests/bench/speculate.mjs [FILE.gguf [PARTS [ROUNDS]]]
//
// EXOGPU_BINARY is what is measured; FILE.gguf is what tests/published/fetch.py leaves; ROUNDS (default 5): turns of each
// prompt, of which the median counts. PARTS (default 1): nodes of this machine that the layers are cut over. The time is
// that of the answer behind its first token. Fails if a text differs. Prints a table in Markdown.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Client } from "../api/client.mjs";
import { eventually, launch, startServer, temporary } from "../api/server.mjs";
import { kinds } from "./speculate_prompts.mjs";

const [file = execFileSync("python3", ["-B", fileURLToPath(new URL("../published/fetch.py", import.meta.url))], { encoding: "utf8" }).trim(),
	parts = "1", rounds = "5"] = process.argv.slice(2);
const PATIENCE = 300000, TOKENS = 96;
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

async function ask(server, token, content, speculate) {
	const answer = await fetch(new URL("/v1/chat/completions", server.url), { method: "POST",
		headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
		body: JSON.stringify({ model: "smollm2", messages: [{ role: "user", content }], max_tokens: TOKENS, temperature: 0, speculate,
			stream: true, stream_options: { include_usage: true } }) });
	if (!answer.ok) throw new Error(await answer.text());
	let first, last, text = "", usage, rest = "";
	for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
		const lines = (rest + piece).split("\n");
		rest = lines.pop();
		for (const line of lines) {
			if (!line.startsWith("data: {")) continue;
			const event = JSON.parse(line.slice(6));
			if (event.choices[0]?.delta?.content) {
				first ??= performance.now();
				last = performance.now();
				text += event.choices[0].delta.content;
			}
			usage = event.usage ?? usage;
		}
	}
	const { accepted_prediction_tokens: accepted = 0, rejected_prediction_tokens: rejected = 0 } = usage.completion_tokens_details ?? {};
	return { text, ms: last - first, tokens: usage.completion_tokens, accepted, rejected };
}

const server = await startServer({ localNode: true, listen: parts === "1" ? "127.0.0.1:0" : "0.0.0.0:0" });
process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
const nodes = [];
try {
	const admin = await Client.login(server);
	for (let i = 1; i < Number(parts); i++) {
		const { ticket } = await admin.call("node.ticket", {});
		nodes.push(launch(["node", "--join", `127.0.0.1:${server.port}`, "--ticket", ticket, "--data", temporary(), "--backends", "cpu",
			"--name", `part-${i + 1}`]));
	}
	const cpus = await eventually(async () => {
		const list = (await admin.call("cluster.snapshot")).devices
			.filter((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed");
		return list.length >= Number(parts) && list;
	}, "the processors are verified", PATIENCE);
	const added = await admin.call("model.add", { source: file, name: "smollm2" });
	const model = await eventually(async () => (await admin.call("model.list")).models
		.find((one) => one.model_id === added.model_id && one.state === "ready"), "the file is read", PATIENCE);
	const { layers } = model.architecture, each = Math.ceil(layers / Number(parts));
	const pins = parts === "1" ? [{ device_id: cpus[0].device_id, first_layer: 0, layer_count: 0 }]
		: cpus.slice(0, Number(parts)).map((cpu, i) => ({ device_id: cpu.device_id, first_layer: i * each, layer_count: Math.min(each, layers - i * each) }));
	const { instance_id } = await admin.call("instance.create", { model_id: model.model_id, pins });
	await eventually(async () => {
		const one = (await admin.call("instance.list")).instances.find((item) => item.instance_id === instance_id);
		if (one?.state === "failed") throw new Error(one.state_reason);
		return one?.state === "running";
	}, "it is loaded", PATIENCE);
	const { token } = await admin.call("token.create", { name: "bench", scopes: ["infer"], expires_in_s: 86400 });
	const ratios = [];
	console.log("| prompts | tokens/s without | with | ratio, median | least | proposed | accepted |\n| --- | --- | --- | --- | --- | --- | --- |");
	for (const { name, prompts } of kinds) {
		const rows = [];
		for (const content of prompts) {
			const times = { false: [], true: [] };
			let said;
			await ask(server, token, content, false); // the prompt is cached from now on
			for (let round = 0; round < Number(rounds); round++)
				for (const speculate of round % 2 ? [true, false] : [false, true]) {
					const answer = await ask(server, token, content, speculate);
					if (speculate) said = answer;
					times[speculate].push(answer.ms / (answer.tokens - 1));
					rows.text ??= {};
					rows.text[content] ??= answer.text;
					if (rows.text[content] !== answer.text) throw new Error(`texts differ: ${JSON.stringify([rows.text[content], answer.text])}`);
				}
			const without = median(times.false), withIt = median(times.true);
			rows.push({ without: 1000 / without, withIt: 1000 / withIt, ratio: without / withIt, ...said });
			if (process.env.VERBOSE) console.error(name, (without / withIt).toFixed(3), said.accepted, said.rejected, said.tokens, JSON.stringify(said.text.slice(0, 60)));
		}
		const of = (field) => rows.map((row) => row[field]), sum = (field) => of(field).reduce((a, b) => a + b);
		ratios.push(...of("ratio"));
		console.log(`| ${[name, median(of("without")).toFixed(1), median(of("withIt")).toFixed(1), median(of("ratio")).toFixed(2), Math.min(...of("ratio")).toFixed(2),
			sum("accepted") + sum("rejected"), sum("accepted")].join(" | ")} |`);
	}
	console.log(`| all | | | ${median(ratios).toFixed(2)} | ${Math.min(...ratios).toFixed(2)} | | |`);
} finally {
	for (const { child, exited } of nodes) {
		child.kill("SIGTERM");
		await exited;
	}
	await server.finish();
}
