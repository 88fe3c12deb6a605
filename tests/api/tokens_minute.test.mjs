// --tokens-per-minute: a token that has had so many tokens computed waits, by every API and with the time, and no other does.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, run, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

describe("tokens a minute", () => {
	let server, admin, node;
	const token = async (scopes) => (await admin.call("token.create", { name: scopes[0], scopes, expires_in_s: 3600 })).token;
	const post = (path, of, body) => fetch(`${server.url.origin}${path}`, { method: "POST", body: JSON.stringify({ model: "words", ...body }),
		headers: { authorization: `Bearer ${of}`, "content-type": "application/json" } });
	const messages = [{ role: "user", content: "one two three four five six seven eight nine ten" }];

	before(async () => {
		server = await startServer({ args: ["--tokens-per-minute", "10"] });
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({}));
		await admin.call("model.add", { source: path });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await admin.call("instance.create", { model_id: model.model_id });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("a request is answered whole; the next ones wait, by each API in its own words", async () => {
		const spends = await token(["infer"]), other = await token(["infer"]);
		const first = await (await post("/v1/chat/completions", spends, { messages, max_tokens: 10 })).json();
		assert.equal(first.usage.completion_tokens, 10, "more than is left is no reason to cut an answer");
		const used = first.usage.prompt_tokens - first.usage.prompt_tokens_details.cached_tokens + 10;
		for (const [path, body, said] of [["/v1/chat/completions", { messages }, (one) => one.error.message], ["/v1/responses", { input: "x" }, (one) => one.error.message],
			["/v1/messages", { messages, max_tokens: 1 }, (one) => one.error.type === "rate_limit_error" && one.error.message], ["/api/chat", { messages }, (one) => one.error],
			["/v1/embeddings", { input: ["a", "b"] }, (one) => one.error.message]]) {
			const refused = await post(path, spends, body), wait = Number(refused.headers.get("retry-after"));
			assert.equal(refused.status, 429, path);
			assert.ok(wait > 0 && wait <= (used - 10) / 10 * 60 + 1, `${path}: ${wait} s`);
			assert.match(said(await refused.json()), /has used up its 10 tokens a minute.*ask again in \d+ s/s, path);
		}
		assert.equal((await post("/v1/messages/count_tokens", spends, { messages })).status, 200, "nothing is computed for this");
		assert.equal((await post("/v1/chat/completions", other, { messages, max_tokens: 1 })).status, 200, "another token has its own");
	});

	test("a list of inputs that was let in is answered whole, and counts", async () => {
		const embeds = await token(["infer"]);
		const { data } = await (await post("/v1/embeddings", embeds, { input: Array(40).fill("a") })).json();
		assert.equal(data.length, 40);
		assert.equal((await post("/v1/embeddings", embeds, { input: "a" })).status, 429);
	});

	test("a token of the scope admin has no such limit", async () => {
		const free = await token(["admin", "infer"]);
		for (let i = 0; i < 3; i++) assert.equal((await post("/v1/chat/completions", free, { messages, max_tokens: 10 })).status, 200);
	});

	test("what is no number of tokens is refused", async () => {
		for (const wrong of ["0", "-1", "ten", "1e3", "1000000001"]) {
			const said = await run(["serve", "--tokens-per-minute", wrong]);
			assert.ok(said.code > 0 && /--tokens-per-minute takes 1 to 1000000000/.test(said.stderr), said.stderr);
		}
	});
});
