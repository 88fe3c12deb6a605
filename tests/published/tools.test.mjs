// Published weights (SmolLM2 135M Instruct, whose template knows no tools) call a tool, by the `openai` packages of npm and
// PyPI and the `anthropic` and `ollama` packages of PyPI, end to end: the call is demanded, made here, and its result told. Skipped, with
// the reason, where the weights, or a package for Python, cannot be fetched.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "../api/client.mjs";
import { eventually, patience, startServer } from "../api/server.mjs";
import { fetchPython } from "./packages.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const fetched = spawnSync("python3", ["-B", here("fetch.py")], { encoding: "utf8" });
const skip = fetched.status === 77 ? fetched.stderr.trim() : false;
if (!skip) assert.equal(fetched.status, 0, fetched.stderr || String(fetched.error));

const python = skip ? { why: skip } : fetchPython("openai", "2.54.0");
const ollama = skip ? { why: skip } : fetchPython("ollama", "0.6.3");
const anthropic = skip ? { why: skip } : fetchPython("anthropic", "2.14.0");

describe("tools with SmolLM2 135M Instruct", { skip }, () => {
	let server, admin, openai, token;
	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		const { model_id } = await admin.call("model.add", { source: fetched.stdout.trim(), name: "smollm2" });
		await eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready"), "the file is read", 2 * patience);
		const { instance_id } = await admin.call("instance.create", { model_id, pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }] });
		await eventually(async () => (await admin.call("instance.list")).instances.find((each) => each.instance_id === instance_id)?.state === "running", "it is loaded", 6 * patience);
		({ token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 }));
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	const parameters = { type: "object", required: ["city", "unit"], additionalProperties: false,
		properties: { city: { type: "string", maxLength: 20 }, unit: { type: "string", enum: ["celsius", "fahrenheit"] } } };
	const question = { model: "smollm2", temperature: 0, max_tokens: 200, messages: [{ role: "user", content: "What is the temperature in Paris, in celsius?" }] };

	for (const stream of [false, true])
		test(`by npm's package, ${stream ? "streamed" : "whole"}: the tool is called with valid arguments, and its result is told`, async () => {
			const asked = [];
			const runner = openai.chat.completions.runTools({ ...question, stream, parallel_tool_calls: false,
				tool_choice: { type: "function", function: { name: "get_temperature" } },
				tools: [{ type: "function", function: { name: "get_temperature", description: "The temperature in a city.", parameters, parse: JSON.parse,
					function: (given) => (asked.push(given), "21") } }] }, { maxChatCompletions: 1 });
			await runner.finalChatCompletion();
			assert.equal(asked.length, 1);
			assert.match(asked[0].city, /Paris/);
			assert.ok(["celsius", "fahrenheit"].includes(asked[0].unit));
			const result = runner.messages.find(({ role }) => role === "tool");
			assert.equal(result.content, "21");
			const { choices: [{ message }] } = await openai.chat.completions.create({ ...question, messages: runner.messages });
			assert.ok(message.content.length > 0 && message.tool_calls === undefined);
		});
	test("by PyPI's package, whole and streamed", { skip: python.why ?? false }, async () => {
		const { stdout } = await promisify(execFile)("python3", ["-B", here("tool_loop.py"), `${server.url}v1`],
			{ env: { ...process.env, PYTHONPATH: python.folder, OPENAI_API_KEY: token }, timeout: 8 * patience });
		const { called, streamed, said } = JSON.parse(stdout);
		assert.deepEqual(streamed, called);
		assert.equal(called.length, 1);
		assert.match(called[0][1].city, /Paris/);
		assert.ok(said.length > 0);
	});
	test("by PyPI's package over /v1/responses, whole and streamed", { skip: python.why ?? false }, async () => {
		const { stdout } = await promisify(execFile)("python3", ["-B", here("responses_loop.py"), `${server.url}v1`],
			{ env: { ...process.env, PYTHONPATH: python.folder, OPENAI_API_KEY: token }, timeout: 8 * patience });
		const { called, streamed, said } = JSON.parse(stdout);
		assert.deepEqual(streamed, called);
		assert.equal(called.length, 1);
		assert.match(called[0][1].city, /Paris/);
		assert.ok(said.length > 0);
	});
	test("by PyPI's package for Anthropic's API, whole and streamed", { skip: anthropic.why ?? false }, async () => {
		const { stdout } = await promisify(execFile)("python3", ["-B", here("messages_loop.py"), server.url.href],
			{ env: { ...process.env, PYTHONPATH: anthropic.folder, ANTHROPIC_API_KEY: token }, timeout: 8 * patience });
		const { called, streamed, said, counted, read } = JSON.parse(stdout);
		assert.deepEqual(streamed, called);
		assert.equal(called.length, 1);
		assert.match(called[0][1].city, /Paris/);
		assert.ok(said.length > 0);
		assert.equal(read, counted);
	});
	test("by PyPI's package for Ollama's API", { skip: ollama.why ?? false }, async () => {
		const { stdout } = await promisify(execFile)("python3", ["-B", here("ollama_loop.py"), server.url.origin],
			{ env: { ...process.env, PYTHONPATH: ollama.folder, EXOGPU_TOKEN: token }, timeout: 8 * patience });
		const { whole, streamed, form, told, dimensions, read, ...rest } = JSON.parse(stdout);
		const chat = await openai.chat.completions.create({ ...question, max_tokens: 60 });
		assert.deepEqual([streamed, whole, read], [whole, chat.choices[0].message.content, chat.usage.prompt_tokens], "both APIs ask the same");
		assert.ok(["celsius", "fahrenheit"].includes(form.unit) && told.length > 0);
		assert.deepEqual([dimensions, rest], [[576, 576], { models: ["smollm2"], running: ["smollm2"], capabilities: ["completion", "tools"] }]);
	});
	test("an offered tool does not get in the way of an answer", async () => {
		const tools = [{ type: "function", function: { name: "get_temperature", description: "The temperature in a city.", parameters } }];
		const { choices: [{ message, finish_reason }] } = await openai.chat.completions.create({ ...question, messages: [{ role: "user", content: "Say hello." }], tools });
		if (finish_reason === "tool_calls") message.tool_calls.forEach((call) => assert.equal(typeof JSON.parse(call.function.arguments).city, "string"));
		else assert.ok(message.content.length > 0);
	});
});
