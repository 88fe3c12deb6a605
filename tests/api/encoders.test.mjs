// Models for embedding and for ranking, beside what transformers computes with them (encoders.json, for XLM-RoBERTa unigram.json, and for Qwen 3 qwen3.json of tests/models): by the
// `openai` package and by plain requests, on this machine's processor.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "./client.mjs";
import { eventually, patience, run, startServer } from "./server.mjs";

const here = (name) => fileURLToPath(new URL(`../models/${name}`, import.meta.url));
const { embeddings, query, scores, long } = JSON.parse(readFileSync(here("encoders.json"), "utf8"));
const unigram = JSON.parse(readFileSync(here("unigram.json"), "utf8"));
const qwen3 = JSON.parse(readFileSync(here("qwen3.json"), "utf8"));
const near = 2e-4; // weights are F16 on both sides, sums are not in the same order

describe("encoders", () => {
	let server, admin, openai, token, models;

	const post = async (path, body) => {
		const answer = await fetch(`${server.url}v1/${path}`, { method: "POST", body: JSON.stringify(body),
			headers: { authorization: `Bearer ${token}`, "content-type": "application/json" } });
		return { status: answer.status, body: await answer.json() };
	};
	const load = async (name) => {
		const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		const { model_id } = await admin.call("model.add", { source: here(`${name}.gguf`), name });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state !== "downloading"), "the file is read");
		assert.equal(model.state, "ready", model.state_reason);
		const { instance_id } = await admin.call("instance.create", { model_id, pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }] });
		await eventually(async () => {
			const one = (await admin.call("instance.list")).instances.find((each) => each.instance_id === instance_id);
			assert.notEqual(one?.state, "failed", one?.state_reason);
			return one?.state === "running";
		}, `${name} is loaded`, 6 * patience);
		return model;
	};

	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		models = { bert: await load("bert"), ranker: await load("bert-rank"), xlm: await load("xlm-roberta"), xlmRanker: await load("xlm-roberta-rank"),
			embedder: await load("qwen3-embedding"), judge: await load("qwen3-reranker"), nomic: await load("nomic-bert") };
		({ token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 }));
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	const isNear = (got, wanted) => {
		assert.equal(got.length, wanted.length);
		const worst = Math.max(...got.map((value, i) => Math.abs(value - wanted[i])));
		assert.ok(worst < near, `off by ${worst}`);
	};
	const texts = embeddings.filter(({ text }) => text); // an empty input is refused

	test("the models say what they are for", async () => {
		const { architecture: bert } = models.bert, { architecture: ranker } = models.ranker;
		assert.deepEqual([bert.family, bert.task, bert.pooling], ["bert", "embedding", "mean"]);
		assert.deepEqual([ranker.family, ranker.task, ranker.pooling], ["bert", "rerank", "rank"]);
		const { stdout } = await run(["model", "list", "--data", server.data]);
		assert.match(stdout, /embedding/);
		assert.match(stdout, /rerank/);
	});
	for (const encoding_format of ["float", "base64", undefined])
		test(`embeddings are those of the reference (${encoding_format ?? "as the package asks"})`, async () => {
			const { data, usage, model } = await openai.embeddings.create({ model: "bert", input: texts.map(({ text }) => text), encoding_format });
			data.forEach(({ embedding, index }, i) => {
				assert.equal(index, i);
				isNear(typeof embedding === "string" ? [...new Float32Array(Uint8Array.from(Buffer.from(embedding, "base64")).buffer)] : embedding, texts[i].embedding);
			});
			const count = texts.reduce((sum, { tokens }) => sum + tokens.length, 0);
			assert.deepEqual([usage.prompt_tokens, usage.total_tokens, model], [count, count, "bert"]);
		});
	test("embeddings and scores of XLM-RoBERTa are those of the reference", async () => {
		const { architecture: xlm } = models.xlm, { architecture: ranker } = models.xlmRanker;
		assert.deepEqual([xlm.family, xlm.task, xlm.pooling, ranker.task, ranker.pooling], ["bert", "embedding", "first", "rerank", "rank"]);
		const { data, usage } = await openai.embeddings.create({ model: "xlm-roberta", input: unigram.embeddings.map(({ text }) => text), encoding_format: "float" });
		data.forEach(({ embedding }, i) => isNear(embedding, unigram.embeddings[i].embedding));
		assert.equal(usage.prompt_tokens, unigram.embeddings.reduce((sum, { tokens }) => sum + tokens.length, 0));
		const { status, body } = await post("rerank", { model: "xlm-roberta-rank", query: unigram.query, documents: unigram.scores.map(({ document }) => document) });
		assert.equal(status, 200, JSON.stringify(body));
		assert.equal(body.usage.prompt_tokens, unigram.scores.reduce((sum, { tokens }) => sum + tokens.length, 0));
		const wanted = unigram.scores.map(({ score }, index) => ({ index, relevance_score: 1 / (1 + Math.exp(-score)) })).sort((a, b) => b.relevance_score - a.relevance_score);
		assert.deepEqual(body.results.map(({ index }) => index), wanted.map(({ index }) => index));
		isNear(body.results.map(({ relevance_score }) => relevance_score), wanted.map(({ relevance_score }) => relevance_score));
	});
	test("embeddings of Qwen3-Embedding and scores of Qwen3-Reranker are those of the reference", async () => {
		const { architecture: embedder } = models.embedder, { architecture: judge } = models.judge;
		assert.deepEqual([embedder.family, embedder.task, embedder.pooling, judge.family, judge.task, judge.pooling], ["qwen3", "embedding", "last", "qwen3", "rerank", "rank"]);
		const { data, usage } = await openai.embeddings.create({ model: "qwen3-embedding", input: qwen3.embeddings.map(({ text }) => text), encoding_format: "float" });
		data.forEach(({ embedding }, i) => isNear(embedding, qwen3.embeddings[i].embedding));
		assert.equal(usage.prompt_tokens, qwen3.embeddings.reduce((sum, { tokens }) => sum + tokens.length, 0));
		const short = await openai.embeddings.create({ model: "qwen3-embedding", input: qwen3.embeddings[0].text, dimensions: 8, encoding_format: "float" });
		const first = qwen3.embeddings[0].embedding.slice(0, 8), length = Math.hypot(...first);
		isNear(short.data[0].embedding, first.map((value) => value / length));
		const { status, body } = await post("rerank", { model: "qwen3-reranker", query: qwen3.query, documents: qwen3.scores.map(({ document }) => document) });
		assert.equal(status, 200, JSON.stringify(body));
		assert.equal(body.usage.prompt_tokens, qwen3.scores.reduce((sum, { tokens }) => sum + tokens.length, 0));
		const wanted = qwen3.scores.map(({ score }, index) => ({ index, score })).sort((a, b) => b.score - a.score);
		assert.deepEqual(body.results.map(({ index }) => index), wanted.map(({ index }) => index));
		isNear(body.results.map(({ relevance_score }) => relevance_score), wanted.map(({ score }) => score));
	});
	test("tokens are taken as they are, alone and as a list", async () => {
		const [first, second] = embeddings;
		const one = await openai.embeddings.create({ model: "bert", input: first.tokens, encoding_format: "float" });
		isNear(one.data[0].embedding, first.embedding);
		const { data } = await openai.embeddings.create({ model: "bert", input: [first.tokens, second.tokens], encoding_format: "float" });
		isNear(data[1].embedding, second.embedding);
	});
	test("many inputs at once have the embeddings that each has alone", async () => {
		const input = Array.from({ length: 100 }, (_, i) => texts[i % texts.length].text);
		const { data } = await openai.embeddings.create({ model: "bert", input, encoding_format: "float" });
		data.forEach(({ embedding }, i) => isNear(embedding, texts[i % texts.length].embedding));
	});
	test("as many inputs as OpenAI takes, 2,048: by default LangChain sends 1,000", async () => {
		const input = Array.from({ length: 2048 }, (_, i) => texts[i % texts.length].text);
		const { data } = await openai.embeddings.create({ model: "bert", input });
		assert.equal(data.length, 2048);
		isNear([...data[2047].embedding], texts[2047 % texts.length].embedding);
		await assert.rejects(openai.embeddings.create({ model: "bert", input: [...input, "one more"] }), (error) => error.status === 400 && error.param === "input");
	});
	test("an input that is too long is refused with the model's limit", async () => {
		await assert.rejects(openai.embeddings.create({ model: "bert", input: "cat ".repeat(700) }),
			(error) => error.status === 400 && error.code === "context_length_exceeded" && error.param === "input" && /702 tokens.*640 at most/.test(error.message));
	});
	test("a text of more than 512 tokens has the embedding of the reference", async () => {
		const { data, usage } = await openai.embeddings.create({ model: "nomic-bert", input: [long.text, "cat"], encoding_format: "float" });
		isNear(data[0].embedding, long.embedding);
		assert.equal(usage.prompt_tokens, long.tokens + 3);
	});
	test("dimensions are refused of a model that was not trained to have fewer", async () => {
		await assert.rejects(openai.embeddings.create({ model: "bert", input: "cat", dimensions: 8 }),
			(error) => error.status === 400 && error.param === "dimensions" && /have 32/.test(error.message));
		const { data } = await openai.embeddings.create({ model: "bert", input: "cat", dimensions: 32, encoding_format: "float" });
		assert.equal(data[0].embedding.length, 32);
	});
	test("a ranking has the order and the scores of the reference", async () => {
		const documents = scores.map(({ document }) => document).filter((_, i) => i < 3);
		const { status, body } = await post("rerank", { model: "bert-rank", query, documents });
		assert.equal(status, 200, JSON.stringify(body));
		const wanted = scores.slice(0, 3).map(({ score }, index) => ({ index, score: 1 / (1 + Math.exp(-score)) })).sort((a, b) => b.score - a.score);
		assert.deepEqual(body.results.map(({ index }) => index), wanted.map(({ index }) => index));
		isNear(body.results.map(({ relevance_score }) => relevance_score), wanted.map(({ score }) => score));
		assert.deepEqual(Object.keys(body.results[0]).sort(), ["index", "relevance_score"]);
		const count = scores.slice(0, 3).reduce((sum, { tokens }) => sum + tokens.length, 0);
		assert.deepEqual([body.model, body.usage], ["bert-rank", { prompt_tokens: count, total_tokens: count }]);
	});
	test("a ranking of the best alone, with the documents", async () => {
		const documents = scores.map(({ document }, i) => i % 2 ? { text: document } : document);
		const { body } = await post("rerank", { model: "bert-rank", query, documents, top_n: 1, return_documents: true });
		const best = scores.reduce((a, b) => a.score > b.score ? a : b);
		assert.deepEqual(body.results.map(({ index, document }) => [index, document]), [[scores.indexOf(best), { text: best.document }]]);
	});
	test("what is wrong with a ranking is named", async () => {
		for (const [body, param] of [[{ query, documents: ["a"] }, "model"], [{ model: "bert-rank", documents: ["a"] }, "query"],
			[{ model: "bert-rank", query }, "documents"], [{ model: "bert-rank", query, documents: [] }, "documents"],
			[{ model: "bert-rank", query, documents: [1] }, "documents"], [{ model: "bert-rank", query: "", documents: ["a"] }, "query"],
			[{ model: "bert-rank", query, documents: ["a"], top_n: 0 }, "top_n"], [{ model: "bert-rank", query, documents: ["cat ".repeat(700)] }, "documents"],
			[{ model: "bert-rank", query, documents: ["a"], max_chunks: 1 }, "max_chunks"]]) {
			const answer = await post("rerank", body);
			assert.deepEqual([answer.status, answer.body.error?.param], [400, param], JSON.stringify(answer.body));
		}
	});
	test("a model is refused what it is not for, with a hint", async () => {
		const messages = [{ role: "user", content: "Hello" }];
		for (const [path, body, hint] of [["chat/completions", { model: "bert", messages }, /for embeddings.*\/v1\/embeddings/], ["completions", { model: "bert", prompt: "a" }, /\/v1\/embeddings/],
			["chat/completions", { model: "bert-rank", messages }, /\/v1\/rerank/],
			["completions", { model: "qwen3-reranker", prompt: "a" }, /\/v1\/rerank/], ["embeddings", { model: "bert-rank", input: "a" }, /\/v1\/rerank/],
			["rerank", { model: "bert", query, documents: ["a"] }, /no reranker.*cross-encoder/]]) {
			const { status, body: { error } } = await post(path, body);
			assert.deepEqual([status, error?.param], [400, "model"], JSON.stringify(error));
			assert.match(error.message, hint);
		}
	});
});
