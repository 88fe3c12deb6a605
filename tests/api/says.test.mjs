// What a test has the model say, token by token, behind which all is real: the mask, the detokeniser, the parser and each API. So a call in
// each syntax can be written down, and comes out as it was written; what the mask forbids ends the request with an error.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { Says, mute } from "./says.mjs";
import { eventually, patience, startServer, temporary } from "./server.mjs";
import { callings, templates } from "./syntaxes.mjs";

const models = Object.keys(templates);
const text = { type: "string" };
const tools = [
	{ type: "function", function: { name: "write", parameters: { type: "object", properties: { path: text, content: text, mode: { enum: ["new", "more"] } }, required: ["path", "content"], additionalProperties: false } } },
	{ type: "function", function: { name: "look", parameters: { type: "object", properties: { path: text }, required: ["path"], additionalProperties: false } } },
];
const hard = "größe 'a' \"b\" \\ \\n {\"x\": [1, 2]} <b> 日本\n\tthe end";
const written = [["write", { path: "a/ü.txt", content: hard, mode: "new" }], ["look", { path: "b" }]];

describe("what a test has the model say", { skip: mute || false }, () => {
	let server, openai, says;
	before(async () => {
		says = await Says.start();
		server = await startServer({ localNode: true, env: says.env });
		const admin = await Client.login(server);
		await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		for (const name of models) {
			const path = join(temporary(), `${name}.gguf`);
			writeFileSync(path, modelFile({ megabytes: 0.2, context: 2048, ...templates[name] }));
			const { model_id } = await admin.call("model.add", { source: path, name });
			await eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready"), "the model is read");
			await admin.call("instance.create", { model_id, context_tokens: 2048, sequences: 2 });
		}
		await eventually(async () => (await admin.call("instance.list")).instances.every((one) => one.state === "running"), "the instances are ready", 12 * patience);
		const { token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 });
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		says?.stop();
		assertContractKept();
	});

	const ask = (model, say, more = {}) => {
		says.answer = () => ({ text: say, ends: true });
		return openai.chat.completions.create({ model, messages: [{ role: "user", content: "abc" }], max_tokens: 1500, ...more });
	};

	for (const model of models)
		test(`${model}: calls are read as they were said, whole and as they come`, async () => {
			const calls = model === "harmony" ? written.slice(0, 1) : written, before = ["llama3", "harmony"].includes(model) ? "" : "First this.\n";
			const opened = model === "thinker" ? "What to do?</think>" : "", said = opened + before + callings[model](calls);
			const { choices: [{ message, finish_reason }], usage } = await ask(model, said, { tools, temperature: 1, seed: 1 });
			assert.equal(finish_reason, "tool_calls", JSON.stringify(message));
			assert.deepEqual(message.tool_calls.map(({ function: { name, arguments: args } }) => [name, JSON.parse(args)]), calls);
			assert.equal((message.content ?? "").trim(), before.trim());
			assert.equal(message.reasoning_content, opened ? "What to do?" : undefined);
			assert.ok(usage.completion_tokens > 20);
			const got = [];
			for await (const { choices: [choice] } of await ask(model, said, { tools, stream: true }))
				for (const piece of choice?.delta.tool_calls ?? []) {
					got[piece.index] ??= [piece.function.name, ""];
					got[piece.index][1] += piece.function.arguments ?? "";
				}
			assert.deepEqual(got.map(([name, args]) => [name, JSON.parse(args)]), calls);
		});

	test("neither temperature, penalties nor biases change what is said, nor tokens that are foreseen", async () => {
		const said = "abc abc abc abc abc abc";
		for (const more of [{ temperature: 2, seed: 5 }, { temperature: 0 }, { frequency_penalty: 2, presence_penalty: 2 }, { logit_bias: { 260: -100 } }, { speculate: true }, { logprobs: true, top_logprobs: 2 }, { top_p: 0.1 }]) {
			const { choices: [{ message, finish_reason }] } = await ask("hermes", said, more);
			assert.deepEqual([message.content, finish_reason], [said, "stop"], JSON.stringify(more));
		}
	});

	test("what the mask forbids ends the request with an error", async () => {
		const forbidden = (model, said, more) => assert.rejects(ask(model, said, more), (error) => error.status === 500 && /forbids a token that a test/.test(error.message));
		await ask("hermes", "123", { response_format: { type: "regex", regex: "[0-9]{3}" } });
		await forbidden("hermes", "12x", { response_format: { type: "regex", regex: "[0-9]{3}" } });
		await forbidden("hermes", "12", { response_format: { type: "regex", regex: "[0-9]{3}" } }); // its end
		for (const model of models.filter((one) => !["gemma", "thinker"].includes(one))) {
			await forbidden(model, callings[model]([["write", { path: "a", content: "b", mode: "old" }]]), { tools });
			await forbidden(model, callings[model]([["look", { path: "a" }]]), { tools, tool_choice: { type: "function", function: { name: "write" } } });
		}
	});

	test("to what it says nothing the weights answer, and behind its words they go on", async () => {
		says.answer = () => ({});
		const asked = { model: "hermes", messages: [{ role: "user", content: "abc" }], max_tokens: 20, temperature: 0, ignore_eos: true };
		const own = (await openai.chat.completions.create(asked)).choices[0].message.content;
		assert.equal((await openai.chat.completions.create(asked)).choices[0].message.content, own);
		says.answer = () => ({ text: "abc" });
		const { choices: [{ message }], usage } = await openai.chat.completions.create(asked);
		assert.ok(message.content.startsWith("abc") && message.content !== own, message.content);
		assert.equal(usage.completion_tokens, 20);
	});
});
