// Tools and thoughts in /v1/chat/completions through the `openai` package, on models of random weights, one for each syntax
// of calls: whatever such a model says, a call that is demanded is made, and its arguments are valid, as ajv sees them.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, patience, run, startServer, temporary } from "./server.mjs";
import { templates } from "./syntaxes.mjs";

const Ajv = createRequire(import.meta.url)("ajv/dist/2020").default;

const paired = (model) => ["qwen3-coder", "glm"].includes(model); // whose texts have no quotes, and no bounds
const parameters = { type: "object", properties: { city: { type: "string", maxLength: 6 }, days: { type: "integer", minimum: 1, maximum: 9 },
	unit: { $ref: "#/$defs/unit" } }, required: ["city", "days"], additionalProperties: false, $defs: { unit: { enum: ["C", "F"] } } };
const other = { type: "object", properties: { yes: { type: "boolean" } }, required: ["yes"], additionalProperties: false };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather of some days.", parameters } },
	{ type: "function", function: { name: "set-alarm", parameters: other } }];
const schemas = { get_weather: parameters, "set-alarm": other };
const plain = structuredClone(tools);
delete plain[0].function.parameters.properties.city.maxLength;
plain[0].function.parameters.properties.deep = { type: "array", items: { type: "boolean" }, maxItems: 2 };
schemas.paired = plain[0].function.parameters;
const ajv = new Ajv({ strict: false });
const validate = Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, ajv.compile(schema)]));

function assertCall({ id, type, function: { name, arguments: text } }) {
	assert.match(id, /^[0-9a-z]{9}$/i);
	assert.equal(type, "function");
	assert.ok(validate[name], name);
	if ("deep" in JSON.parse(text) || (JSON.parse(text).city ?? "").length > 6) name = "paired";
	assert.ok(validate[name](JSON.parse(text)), `${name} ${text}: ${ajv.errorsText(validate[name].errors)}`);
}

describe("tools", () => {
	let server, openai, admin;
	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		for (const [name, { template, marks, architecture }] of Object.entries(templates)) {
			const path = join(temporary(), `${name}.gguf`);
			writeFileSync(path, modelFile({ megabytes: 0.2, context: 2048, template, marks, architecture }));
			const { model_id } = await admin.call("model.add", { source: path, name });
			await eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready"), "the model is read");
			await admin.call("instance.create", { model_id, context_tokens: 2048, sequences: 4, pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }] });
		}
		await eventually(async () => (await admin.call("instance.list")).instances.every((one) => one.state === "running"), "the instances are ready", 12 * patience);
		const { token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 });
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	const ask = (model, more = {}) => openai.chat.completions.create({ model, messages: [{ role: "user", content: "abc" }], tools: paired(model) ? plain : tools,
		max_tokens: 500, temperature: 1, top_k: 0, top_p: 1, min_p: 0, ...more });

	for (const model of Object.keys(templates).filter((one) => one !== "gemma"))
		test(`${model}: a demanded call is made, whole and as it comes`, async () => {
			let ended = 0;
			await Promise.all(Array.from({ length: 6 }, async (_, seed) => {
				const more = { tool_choice: "required", seed, parallel_tool_calls: seed % 2 === 0 };
				if (model === "thinker") more.chat_template_kwargs = { enable_thinking: false };
				const [{ choices: [{ message, finish_reason }], usage }, stream] = await Promise.all([ask(model, more), ask(model, { ...more, stream: true })]);
				if (finish_reason !== "length") {
					ended++;
					assert.equal(finish_reason, "tool_calls", JSON.stringify(message));
					assert.equal(message.content, null);
					assert.ok(message.tool_calls.length >= 1 && (more.parallel_tool_calls || message.tool_calls.length === 1));
					message.tool_calls.forEach(assertCall);
					assert.equal(usage.completion_tokens_details.reasoning_tokens, 0);
				}
				const calls = [];
				let reason, content = "";
				for await (const { choices: [choice] } of stream) {
					content += choice?.delta.content ?? "";
					reason = choice?.finish_reason ?? reason;
					for (const piece of choice?.delta.tool_calls ?? []) {
						const call = calls[piece.index] ??= { id: piece.id, type: piece.type, function: { name: piece.function.name, arguments: "" } };
						call.function.arguments += piece.function.arguments ?? "";
					}
				}
				assert.equal(reason, finish_reason);
				assert.deepEqual(calls.map((one) => one.function), (message.tool_calls ?? []).map((one) => one.function));
				assert.equal(content, message.content ?? "");
			}));
			assert.ok(ended >= (paired(model) ? 1 : 3), `${ended} of 6 ended`);
			const { choices: [{ message }] } = await ask(model, { tool_choice: { type: "function", function: { name: "set-alarm" } }, parallel_tool_calls: false,
				...model === "thinker" ? { reasoning_effort: "none" } : {} });
			assert.deepEqual(message.tool_calls.map((one) => one.function.name), ["set-alarm"]);
			message.tool_calls.forEach(assertCall);
		});

	// Of the vocabulary of modelFile: 300 tokens, then the marks.
	const mark = (model, text) => 300 + templates[model].marks.indexOf(text);
	const gather = async (stream, seen = () => {}) => {
		const said = { content: "", reasoning: "", calls: [], reason: null, usage: null };
		for await (const { choices: [choice], usage } of stream) {
			said.usage = usage ?? said.usage;
			said.content += choice?.delta.content ?? "";
			said.reasoning += choice?.delta.reasoning_content ?? "";
			said.reason = choice?.finish_reason ?? said.reason;
			for (const piece of choice?.delta.tool_calls ?? []) {
				said.calls[piece.index] ??= { id: piece.id, type: piece.type, function: { name: piece.function.name, arguments: "" } };
				said.calls[piece.index].function.arguments += piece.function.arguments ?? "";
			}
			await seen(said);
		}
		return said;
	};

	test("an offered tool: what the model says is free until a call begins, and then keeps to its schema", async () => {
		for (const [model, begins] of [["hermes-tokens", "<tool_call>"], ["mistral", "[TOOL_CALLS]"], ["mistral-args", "[TOOL_CALLS]"], ["glm", "<tool_call>"], ["deepseek", "<｜tool▁calls▁begin｜>"]]) {
			let called = 0, spoke = 0;
			for (let seed = 0; seed < 6; seed++) {
				const logit_bias = { [mark(model, begins)]: 3 };
				const said = await gather(await ask(model, { seed, logit_bias, stream: true, max_tokens: 300 }));
				const whole = said.reason === "length" ? said.calls.slice(0, -1) : said.calls;
				whole.forEach(assertCall);
				called += whole.length;
				spoke += said.content.length > 0;
				if (said.reason !== "length") assert.ok(!said.content.includes(begins), said.content);
				if (said.reason !== "length") assert.equal(said.reason, said.calls.length ? "tool_calls" : "stop");
			}
			assert.ok(called >= 3 && spoke >= 1, `${model}: ${called} calls`);
		}
	});
	test("without a call it is a plain answer; with tool_choice none nothing is read as one", async () => {
		const logit_bias = { [mark("hermes-tokens", "<tool_call>")]: -100 };
		const { choices: [{ message, finish_reason }] } = await ask("hermes-tokens", { logit_bias, max_tokens: 20, ignore_eos: true });
		assert.deepEqual([message.tool_calls, finish_reason], [undefined, "length"]);
		assert.ok(message.content.length);
		const none = await ask("hermes", { tool_choice: "none", response_format: { type: "regex", regex: "<tool_call>\\{\"name\": \"set-alarm\", \"arguments\": \\{\\}\\}</tool_call>" } });
		assert.match(none.choices[0].message.content, /^<tool_call>.*<\/tool_call>$/);
		const plain = await openai.chat.completions.create({ model: "hermes", messages: [{ role: "user", content: "abc" }], max_tokens: 5 });
		assert.ok(none.usage.prompt_tokens === plain.usage.prompt_tokens, "the model is not told of the tools");
	});
	test("with a response_format the answer has the form, or is calls", async () => {
		const response_format = { type: "regex", regex: "[0-9]{3}" };
		const seen = new Set();
		for (const bias of [-100, 100])
			for (let seed = 0; seed < 3; seed++) {
				const { choices: [{ message, finish_reason }] } = await ask("hermes-tokens", { seed, response_format, parallel_tool_calls: false,
					logit_bias: { [mark("hermes-tokens", "<tool_call>")]: bias } });
				if (finish_reason === "length") continue;
				seen.add(finish_reason);
				if (finish_reason === "tool_calls") message.tool_calls.forEach(assertCall);
				else assert.match(message.content, /^[0-9]{3}$/);
			}
		assert.deepEqual([...seen].sort(), ["stop", "tool_calls"]);
	});
	test("what a model thinks is apart from what it says, and counted; a demanded call and a form begin behind it", async () => {
		const logit_bias = { [mark("thinker", "</think>")]: 2.5 };
		const more = { logit_bias, max_tokens: 400, tools: undefined };
		const ends = [];
		for (let seed = 0; seed < 5; seed++) {
			const [{ choices: [{ message }], usage }, said] = await Promise.all([ask("thinker", { ...more, seed }),
				ask("thinker", { ...more, seed, stream: true, stream_options: { include_usage: true } }).then(gather)]);
			assert.deepEqual([said.content, said.reasoning], [message.content ?? "", message.reasoning_content ?? ""]);
			assert.deepEqual(said.usage, usage);
			const { reasoning_tokens } = usage.completion_tokens_details;
			assert.ok(reasoning_tokens > 0 && reasoning_tokens <= usage.completion_tokens, JSON.stringify(usage));
			ends.push(reasoning_tokens);
			const demanded = await gather(await ask("thinker", { ...more, tools, tool_choice: "required", seed, stream: true }));
			if (demanded.reason !== "length") {
				demanded.calls.forEach(assertCall);
				assert.equal(demanded.content, "");
			}
			const form = await ask("thinker", { ...more, seed, response_format: { type: "regex", regex: "[0-9]{3}" } });
			if (form.choices[0].finish_reason === "stop") assert.match(form.choices[0].message.content, /^[0-9]{3}$/);
		}
		assert.ok(ends.some((count) => count < 400), `${ends}`);
		const off = await ask("thinker", { ...more, reasoning_effort: "none", max_tokens: 30 });
		assert.deepEqual([off.choices[0].message.reasoning_content, off.usage.completion_tokens_details.reasoning_tokens], [undefined, 0]);
	});
	test("calls and what tools answered are sent back, in the template's own way or as text", async () => {
		const call = { id: "abc123def", type: "function", function: { name: "get_weather", arguments: "{\"city\": \"Oslo\", \"days\": 2}" } };
		const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: "abc" }, { role: "assistant", content: null, tool_calls: [call] },
			{ role: "tool", tool_call_id: call.id, content: "cold" }, { role: "assistant", reasoning_content: "hm", content: "It is cold.", tool_calls: [] }, { role: "user", content: "so" }];
		for (const model of Object.keys(templates)) {
			const { usage } = await ask(model, { messages: messages.slice(model === "toolless" ? 1 : 0), max_tokens: 1 });
			assert.ok(usage.prompt_tokens > 60, `${model}: ${usage.prompt_tokens}`);
		}
	});
	test("an answer goes on in its call where its instance is moved to", async () => {
		const long = { type: "function", function: { name: "long", parameters: { type: "object", required: ["list"], additionalProperties: false,
			properties: { list: { type: "array", items: { type: "integer", minimum: 100, maximum: 999 }, minItems: 120, maxItems: 120 } } } } };
		const more = { tools: [long], tool_choice: "required", parallel_tool_calls: false, temperature: 0, max_tokens: 900 };
		let killed = false;
		const said = await gather(await ask("hermes", { ...more, stream: true }), async ({ calls }) => {
			if (killed || (calls[0]?.function.arguments.length ?? 0) < 60) return;
			killed = true;
			const { instance_id } = (await admin.call("instance.list")).instances.find((one) => one.model_name === "hermes");
			await admin.call("instance.move", { instance_id, format: "Q8_0" });
		});
		assert.ok(killed);
		assert.deepEqual([said.calls.length, said.calls[0].function.name, said.content, said.reason], [1, "long", "", "tool_calls"]);
		const { list } = JSON.parse(said.calls[0].function.arguments); // what was delivered is not repeated, or this is no list of 120
		assert.ok(list.length === 120 && list.every((one) => Number.isInteger(one) && one >= 100 && one <= 999));
	});
	test("exogpu run: thoughts are not the answer; tools come from a file", async () => {
		const said = (model, ...more) => run(["run", model, "abc", "--seed", "3", "--max-tokens", "20", "--data", server.data, ...more]);
		const { code, stdout, stderr } = await said("thinker");
		assert.deepEqual([code, stdout], [0, "\n"], stderr); // it has thought all the time
		const path = join(temporary(), "tools.json");
		writeFileSync(path, JSON.stringify(tools));
		assert.equal((await said("hermes", "--tools", path)).code, 0);
		writeFileSync(path, "[");
		assert.match((await said("hermes", "--tools", path)).stderr, /no JSON/);
		assert.match((await said("hermes", "--tools", `${path}.none`)).stderr, /cannot be opened/);
	});
	test("a call that a stop string breaks is text, and no reason to end", async () => {
		const more = { tool_choice: { type: "function", function: { name: "get_weather" } }, stop: ["ty\""], temperature: 0 };
		const { choices: [{ message, finish_reason }] } = await ask("hermes", more);
		assert.deepEqual([message.tool_calls, finish_reason], [undefined, "stop"]);
		assert.match(message.content, /^<tool_call>[^]*"arguments": *\{[^]*"ci$/);
		const said = await gather(await ask("hermes", { ...more, stream: true })); // which has been told of the call by then
		assert.deepEqual([said.calls.length, said.reason], [1, "stop"]);
	});
	test("tools that are made to cost much cost no worker", async () => {
		const lost = async () => (await admin.call("instance.list")).instances.map(({ model_name, state, recoveries }) => [model_name, state, recoveries]);
		const before = await lost();
		const tool = (parameters, name = "f") => ({ type: "function", function: { name, parameters } });
		// Of these the mask is made, and then the prompt may be too long.
		const cost = (model, tools) => ask(model, { tools, max_tokens: 1 }).catch((error) => assert.match(error.message, /context/));
		const nested = (depth) => depth > 1 ? { a: nested(depth - 1) } : {};
		const option = (i) => ({ type: "object", required: ["k"],
			properties: { ...Object.fromEntries(Array.from({ length: 30 }, (_, k) => [`q${i}_${k}`, { type: "null" }])), k: { const: i } } });
		const slow = (name) => tool({ type: "object", properties: { p: { oneOf: Array.from({ length: 64 }, (_, i) => option(i)) },
			...Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`y${i}`, { type: "integer", not: {} }])) } }, name);
		for (const model of ["hermes", "glm"]) {
			await ask(model, { tools: [tool(nested(24))], max_tokens: 1 });
			await assert.rejects(ask(model, { tools: [tool(nested(28))], max_tokens: 1 }), // as deep as a body may be
				(error) => error.status === 400 && error.param === "tools" && /nested deeper/.test(error.message));
			await cost(model, [tool({ type: "object", properties: Object.fromEntries(Array.from({ length: 8000 }, (_, i) => [`p${i}`, { type: "null" }])) })]);
			await cost(model, [slow("f"), slow("g"), slow("h")]);
		}
		assert.deepEqual(await lost(), before);
	});
	test("what cannot be kept is refused where it is demanded, and left out where it is offered", async () => {
		const tool = (more, strict) => [{ type: "function", function: { name: "f", strict, parameters: { type: "object", properties: { a: { type: "string", pattern: "(?=x)y" } }, ...more } } }];
		const refused = (more, param, why) => assert.rejects(ask("hermes", more), (error) => {
			assert.deepEqual([error.status, error.param], [400, param], error.message);
			assert.match(error.message, why);
			return true;
		});
		await refused({ tools: tool(), tool_choice: "required" }, "tools", /pattern/);
		await refused({ tools: tool({}, true) }, "tools", /pattern/);
		const logit_bias = { [mark("hermes-tokens", "<tool_call>")]: 100 }, kept = { b: { type: "integer", minimum: 7, maximum: 7 } };
		const [offered] = tool({});
		Object.assign(offered.function.parameters, { required: ["b"], additionalProperties: false, not: { required: ["c"] } });
		Object.assign(offered.function.parameters.properties, kept);
		const { choices: [{ message }] } = await ask("hermes-tokens", { tools: [offered], logit_bias, max_tokens: 150 });
		assert.ok(message.tool_calls.length);
		for (const call of message.tool_calls.slice(0, -1)) assert.equal(JSON.parse(call.function.arguments).b, 7, "what can be kept is");
		await refused({ tool_choice: { type: "function", function: { name: "none" } } }, "tool_choice", /none/);
		await assert.rejects(ask("gemma", { tool_choice: "required" }), (error) => error.param === "tool_choice" && /cannot be demanded/.test(error.message));
		await assert.rejects(ask("glm", { tools, tool_choice: "required" }), (error) => error.param === "tools" && /maxLength/.test(error.message));
		await refused({ tools: undefined, tool_choice: "required" }, "tool_choice", /no tools/);
		await refused({ tool_choice: "sometimes" }, "tool_choice", /must be/);
		await refused({ tool_choice: "required", response_format: { type: "json_object" } }, "tool_choice", /response_format/);
		await refused({ parallel_tool_calls: "yes" }, "parallel_tool_calls", /true or false/);
		await refused({ reasoning_effort: "much" }, "reasoning_effort", /must be/);
		for (const [wrong, why] of [["x", /list/], [[{ type: "web_search" }], /type function/], [[{ type: "function", function: { name: "a b" } }], /name/],
			[[...tools, tools[0]], /twice/], [[{ type: "function", function: { name: "f", parameters: [] } }], /object/], [[{ type: "function", function: { name: "f", strict: 1 } }], /strict/]])
			await refused({ tools: wrong }, "tools", why);
		for (const message of [{ role: "tool", content: "x" }, { role: "assistant", content: null }, { role: "assistant", tool_calls: [{ id: "a", type: "function" }] }])
			await refused({ messages: [{ role: "user", content: "x" }, message] }, "messages", /./);
	});
});
