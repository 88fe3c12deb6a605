// Long and many requests: prompts as long as a body may be, a queue that is full, more tokens than there is room for.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, patience, startServer, temporary, within } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const context = 524288;

describe("/v1, much of it", () => {
	let server, admin, node, token;

	const post = async (path, body) => {
		const answer = await within(fetch(`${server.url.origin}${path}`, { method: "POST", body: JSON.stringify(body),
			headers: { authorization: `Bearer ${token}`, "content-type": "application/json" } }), "an answer", 12 * patience), text = await answer.text();
		return { status: answer.status, headers: Object.fromEntries(answer.headers), text, json: () => JSON.parse(text) };
	};
	const chat = (content, more = {}) => ({ model: "words", messages: [{ role: "user", content }], ...more });
	const started = (count = 1) => eventually(() => node.worker().requests.size >= count, `${count} requests have come`, 4 * patience);

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ context }));
		await admin.call("model.add", { source: path });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await admin.call("instance.create", { model_id: model.model_id, context_tokens: context });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		({ token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 }));
	});
	afterEach(() => { node.worker().manual = false; });
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("a prompt as long as a body may be reaches the model, also of a request that goes on elsewhere", async () => {
		const long = `first ${"x".repeat(2000000)}`, died = node.worker();
		died.manual = true;
		const whole = post("/v1/chat/completions", chat(long, { max_tokens: 1 }));
		const tokens = post("/v1/completions", { model: "words", prompt: Array(400000).fill(1000), max_tokens: 1 });
		await started(2);
		const prompts = [...died.requests.values()].map(({ params }) => params.prompt); // either may be the first
		assert.ok(prompts.some((one) => one.messages?.[0].text === long), "the text is whole");
		assert.ok(prompts.some((one) => one.tokens?.length === 400000), "so are the tokens");
		died.kill();
		assert.equal((await whole).json().choices[0].message.content, "first");
		assert.equal((await tokens).json().choices[0].text, "1000");
		assert.notEqual(node.worker(), died);
		assert.deepEqual([died.faults, node.worker().faults], [[], []]);
	});
	test("a queue that is full is no prompt that is too long: 429, and when to come again", async () => {
		const worker = node.worker(), many = [];
		worker.socket.pause();
		let refused, ended = 0;
		for (let i = 0; i < 60 && !refused; i++) { // of 64 MiB, and what the socket holds
			many.push(post("/v1/completions", { model: "words", prompt: `x ${"x".repeat(2000000)}`, max_tokens: 1 }));
			many.at(-1).then((answer) => { ended++; if (answer.status !== 200) refused ??= answer; });
			const known = ended;
			if (i >= 30) await Promise.race([many.at(-1), new Promise((resolve) => setTimeout(resolve, 100))]);
			assert.ok(refused || ended === known, "nobody is answered while the worker does not read");
		}
		await eventually(() => refused, "one is refused", 12 * patience);
		assert.deepEqual([refused.status, refused.json().error.code], [429, "rate_limit_exceeded"]);
		assert.match(refused.json().error.message, /queue/);
		assert.ok(Number(refused.headers["retry-after"]) > 0);
		worker.socket.resume();
		for (const answer of await within(Promise.all(many), "the others are answered", 12 * patience)) assert.ok([200, 429].includes(answer.status));
	});
	test("a worker that tells more tokens than the context holds breaks the contract, and nothing more is kept of it", async () => {
		const worker = node.worker(), tokens = Array(4096).fill(1);
		worker.manual = true;
		const whole = post("/v1/chat/completions", chat("one two"));
		await started();
		const [request] = worker.requests.keys();
		for (let told = 0; told < context; told += tokens.length) worker.say(request, "", { tokens });
		worker.say(request, "x", { tokens: [1] });
		await within(worker.closed, "the worker's stream is closed", 4 * patience);
		assert.equal((await whole).status, 200, "it goes on with another");
	});
	test("a client that goes ends its embeddings, those that the worker has and those that it was to get", async () => {
		const worker = node.worker();
		worker.manual = true;
		const request = http.request({ host: "127.0.0.1", port: server.port, path: "/v1/embeddings", method: "POST",
			headers: { authorization: `Bearer ${token}` } }).on("error", () => {});
		request.end(JSON.stringify({ model: "words", input: Array.from({ length: 40 }, (_, i) => `text ${i}`) }));
		await eventually(() => worker.embeds.size === 16, "as many as are asked for at once", 4 * patience);
		const numbers = [...worker.embeds.keys()];
		request.destroy();
		await eventually(() => worker.embeds.size === 0, "they are cancelled", 4 * patience);
		assert.deepEqual(worker.calls.filter((one) => one.method === "generate.cancel").map((one) => one.params.request).slice(-16).sort((a, b) => a - b), numbers);
		const record = async () => (await admin.call("audit.list", { action: "infer.embeddings", limit: 50 })).entries;
		await eventually(async () => (await record()).filter((one) => one.outcome === "ok" && one.detail.reason === "cancelled").length === 16,
			"each is on record", 4 * patience);
		worker.manual = false;
		assert.equal((await post("/v1/embeddings", { model: "words", input: "one" })).json().data.length, 1, "no more of them are asked for, and others are answered");
		assert.equal(worker.calls.filter((one) => one.method === "generate.embed" && one.params.request > numbers.at(-1)).length, 1);
	});
});
