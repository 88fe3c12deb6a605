// Whether a model file says the same here as in llama.cpp: the same ids of text, and the same greedy text.
//
//   node tests/bench/same.mjs FOLDER MODEL.gguf... [--device NAME] [--tokens N]
//
// FOLDER is where `npm install node-llama-cpp` was done. EXOGPU_BINARY is what is asked (build/exogpu), EXOGPU_TOKENS
// the program of tests/engine/text/tokens.c, without which ids are not compared. Where two texts part, it is said by how
// much our likeliest token was likelier than our next: rounding parts those that are about as likely. Ends with 1 if ids
// differ, or texts part where it was by more than TIE.
import { spawnSync } from "node:child_process";
import { basename, resolve } from "node:path";
import { parseArgs } from "node:util";
import { exogpu, importPeer, startServer } from "./beside.mjs";

const TIE = 0.05; // of a logarithm of probability

const { values, positionals } = parseArgs({ allowPositionals: true, options: { device: { type: "string" }, tokens: { type: "string", default: "200" } } });
const [folder, ...files] = positionals;
if (!files.length) {
	console.error("usage: node tests/bench/same.mjs FOLDER MODEL.gguf... [--device NAME] [--tokens N]\n  FOLDER: where `npm install node-llama-cpp` was done");
	process.exit(2);
}
const wanted = Number(values.tokens);
const peer = await importPeer(folder);
const prompts = ["Once upon a time", "Once upon a time, there was a little girl named Lily.", " The dog", "One day", "Tom and Sam went to the park. They saw a big", "\n\nThe end.", "«Ünïcode» 😀 日本"];
const texts = [...prompts, "", " ", "  two  spaces  ", "a\tb\r\nc", "▁under", "\u0000", "<s>", "</s> <unk>", "<0x41>", "1234567890", "e\u0301é", "👩‍👩‍👧‍👦🏳️‍🌈", "שלום عالم नमस्ते", "\u{10FFFF}", "x".repeat(300), " ".repeat(40), "don't DON'T", "\uFEFFbom"];

// As tests/engine/text/tokens.c takes and gives them; with the token of the beginning, where the file wants it.
function ourIds(file, list) {
	const head = (text) => {
		const bytes = Buffer.from(text), head = Buffer.alloc(5);
		head.writeUInt32LE(bytes.length);
		head[4] = 2;
		return [head, bytes];
	};
	const { status, stdout, stderr } = spawnSync(process.env.EXOGPU_TOKENS, [resolve(file)], { input: Buffer.concat(list.flatMap(head)), maxBuffer: 1 << 28 });
	if (status !== 0) throw new Error(`${process.env.EXOGPU_TOKENS}: ${stderr}`);
	let at = 0;
	const u32 = () => stdout.readUInt32LE((at += 4) - 4);
	return list.map(() => {
		const ids = Array.from({ length: u32() }, u32);
		const length = u32();
		at += length;
		return ids;
	});
}

const theirIds = (model, text) => [...(model.tokens.shouldPrependBosToken ? [model.tokens.bos] : []), ...model.tokenize(text, false)];

async function askOurs(server, model, prompt) {
	const answer = await fetch(new URL("/v1/completions", server.url), {
		method: "POST", headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
		body: JSON.stringify({ model, prompt, max_tokens: wanted, temperature: 0, logprobs: 2 }),
	});
	if (!answer.ok) throw new Error(await answer.text());
	return (await answer.json()).choices[0];
}

async function askPeer(model, sequence, ids) {
	await sequence.clearHistory();
	const out = [];
	for await (const token of sequence.evaluate(ids, { temperature: 0, yieldEogToken: true }))
		if (model.isEogToken(token) || out.push(token) === wanted) break;
	return { tokens: out.length, text: model.detokenize(out, false, ids) };
}

// How much likelier the first is than the second, of the token in which ours left theirs.
function margin({ text, logprobs }, other) {
	let at = 0;
	while (at < text.length && text[at] === other[at]) at++;
	const index = Math.max(0, logprobs.text_offset.findLastIndex((offset) => offset <= [...text.slice(0, at)].length));
	const [first = 0, second = -Infinity] = Object.values(logprobs.top_logprobs[index] ?? {}).sort((a, b) => b - a);
	return { index, by: first - second };
}

const llama = await peer.getLlama({ gpu: false, build: "never", skipDownload: true, maxThreads: 1, logLevel: peer.LlamaLogLevel.error });
const server = await startServer((one) => one.verification?.state === "passed" && (!values.device || one.name.includes(values.device)));
let wrong = 0;
console.log(`llama.cpp ${llama.llamaCppRelease.release}; ${wanted} tokens of each prompt, always the likeliest`);
for (const file of files) {
	const name = basename(file, ".gguf");
	exogpu("model", "add", resolve(file), "--name", name);
	const { instance_id } = exogpu("place", name, "--sequences", "1", ...(values.device ? ["--device", values.device] : []));
	const model = await llama.loadModel({ modelPath: resolve(file) });
	const context = await model.createContext({ contextSize: Math.min(model.trainContextSize, wanted + 512), sequences: 1, threads: 1 });
	const sequence = context.getSequence();
	if (process.env.EXOGPU_TOKENS) {
		const got = ourIds(file, texts);
		const off = texts.filter((text, i) => got[i].join() !== theirIds(model, text).join());
		wrong += off.length;
		console.log(`${name}: ids of ${texts.length - off.length} of ${texts.length} texts are the same`);
		for (const text of off) console.log(`  ${JSON.stringify(text)}: ${got[texts.indexOf(text)].join(" ")}, not ${theirIds(model, text).join(" ")}`);
	}
	for (const prompt of prompts) {
		const ids = theirIds(model, prompt);
		if (!ids.length) continue;
		const ours = await askOurs(server, name, prompt), theirs = await askPeer(model, sequence, ids);
		const same = ours.text === theirs.text, at = same ? null : margin(ours, theirs.text);
		wrong += !same && at.by > TIE;
		console.log(`${name} ${JSON.stringify(prompt)}: ${same ? `the same ${theirs.tokens} tokens` : `part at token ${at.index}, where our first is likelier than our second by ${at.by.toFixed(4)}`}`);
		if (!same) console.log(`  ours:   ${JSON.stringify(ours.text)}\n  theirs: ${JSON.stringify(theirs.text)}`);
	}
	await context.dispose();
	await model.dispose();
	exogpu("stop", instance_id);
}
process.exit(wrong ? 1 : 0);
