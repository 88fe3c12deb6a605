// A model of ours beside llama.cpp, on the CPU of this machine: the same file, the same threads, by turns.
//
//   node tests/bench/peer.mjs FOLDER MODEL.gguf... [--rounds N] [--threads N]
//
// FOLDER is where `npm install node-llama-cpp` was done: its prebuilt llama.cpp chooses its code by the processor, as
// ours does. EXOGPU_BINARY is what is measured (build/exogpu). A round of each: a prompt of 512 tokens that nobody has
// seen, then 64 more, always the likeliest. Ours goes by way of the server, HTTP and server-sent events, as a program
// has it; llama.cpp is called in this process. Medians of the rounds, and ours by theirs. For a file of 16- or 32-bit
// weights both should choose the same tokens: llama.cpp rounds what it multiplies with quantised weights to 8 bits.
import { availableParallelism } from "node:os";
import { basename, resolve } from "node:path";
import { parseArgs } from "node:util";
import { exogpu, importPeer, startServer } from "./beside.mjs";

const PROMPT = 512, GENERATED = 64;

const { values, positionals } = parseArgs({ allowPositionals: true, options: { rounds: { type: "string", default: "5" }, threads: { type: "string", default: String(availableParallelism()) } } });
const [folder, ...files] = positionals;
if (!files.length) {
	console.error("usage: node tests/bench/peer.mjs FOLDER MODEL.gguf... [--rounds N] [--threads N]\n  FOLDER: where `npm install node-llama-cpp` was done");
	process.exit(2);
}
const rounds = Number(values.rounds), threads = Number(values.threads);
const peer = await importPeer(folder);

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

// Tokens that every vocabulary has as plain pieces, others each round.
const prompt = (round) => Array.from({ length: PROMPT }, (_, i) => 300 + ((i * 7919 + (round + 1) * 104729 + 13) % 20000));

// {prompt, generated}: tokens a second; text.
async function askOurs(server, model, tokens) {
	const began = performance.now();
	const answer = await fetch(new URL("/v1/completions", server.url), {
		method: "POST", headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
		body: JSON.stringify({ model, prompt: tokens, max_tokens: GENERATED, temperature: 0, ignore_eos: true, stream: true }),
	});
	if (!answer.ok) throw new Error(await answer.text());
	let first, last, text = "", rest = "";
	for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
		last = performance.now();
		first ??= last;
		const lines = (rest + piece).split("\n");
		rest = lines.pop();
		for (const line of lines) {
			if (!line.startsWith("data: {")) continue;
			const event = JSON.parse(line.slice(6));
			if (event.error) throw new Error(event.error.message);
			text += event.choices[0]?.text ?? "";
		}
	}
	return { prompt: (tokens.length / (first - began)) * 1000, generated: ((GENERATED - 1) / (last - first)) * 1000, text };
}

async function askPeer(model, sequence, tokens) {
	await sequence.clearHistory();
	const began = performance.now(), out = [];
	let first;
	for await (const token of sequence.evaluate(tokens, { temperature: 0, yieldEogToken: true })) {
		first ??= performance.now();
		if (out.push(token) === GENERATED) break;
	}
	const last = performance.now();
	return { prompt: (tokens.length / (first - began)) * 1000, generated: ((out.length - 1) / (last - first)) * 1000, text: model.detokenize(out, true) };
}

const alike = (a, b) => {
	let n = 0;
	while (n < a.length && a[n] === b[n]) n++;
	return n / Math.max(1, a.length, b.length);
};

const llama = await peer.getLlama({ gpu: false, build: "never", skipDownload: true, maxThreads: threads, logLevel: peer.LlamaLogLevel.error });
const server = await startServer((one) => one.backend === "cpu" && one.memory_bandwidth_bytes_per_s);
console.log(`${threads} threads; llama.cpp ${llama.llamaCppRelease.release}; tokens a second, medians of ${rounds}`);
for (const file of files) {
	const name = basename(file);
	exogpu("model", "add", resolve(file), "--name", name);
	const { instance_id } = exogpu("place", name, "--context", "2048", "--sequences", "1");
	const model = await llama.loadModel({ modelPath: resolve(file) });
	const context = await model.createContext({ contextSize: PROMPT + GENERATED + 64, batchSize: PROMPT, threads });
	const sequence = context.getSequence(), ours = [], theirs = [];
	for (let round = -1; round < rounds; round++) { // the first of each is not counted
		const one = await askOurs(server, name, prompt(round)), other = await askPeer(model, sequence, prompt(round));
		if (round < 0) continue;
		ours.push({ ...one, same: alike(one.text.trim(), other.text.trim()) });
		theirs.push(other);
	}
	for (const what of ["prompt", "generated"]) {
		const a = median(ours.map((one) => one[what])), b = median(theirs.map((one) => one[what]));
		console.log(`${name} ${what}: ${a.toFixed(1)} beside ${b.toFixed(1)}, ${(a / b).toFixed(2)} of it`);
	}
	console.log(`${name} the same text: ${ours.map((one) => `${Math.round(one.same * 100)} %`).join(", ")}`);
	await context.dispose();
	await model.dispose();
	exogpu("stop", instance_id);
}
process.exit(0);
