// /v1/responses as the `openai` package knows it, and as it is underneath. The worker is made here, so that what it says
// is known; the last part has a real one.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, patience, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const syntax = { calls: "hermes", thoughts: "think", opened: false };
const weather = { type: "function", name: "get_weather", description: "The weather.", strict: false, parameters: { type: "object", properties: { city: { type: "string" } } } };
const alarm = { type: "function", name: "set-alarm", strict: null, parameters: { type: "object", properties: {} } };
const asFunction = ({ name, description, parameters }) => ({ type: "function", function: { name, ...description && { description }, parameters } });

describe("/v1/responses", () => {
	let server, admin, node, token, openai;

	const client = (apiKey) => new OpenAI({ apiKey, baseURL: `${server.url}v1`, maxRetries: 0 });
	const ask = (input, more = {}) => ({ model: "words", input, ...more });
	const post = (body, headers = { authorization: `Bearer ${token}` }) => server.http("/v1/responses", { method: "POST",
		headers: { "content-type": "application/json", ...headers }, body: typeof body === "string" ? body : JSON.stringify(body) });
	const asked = () => node.worker().calls.filter((one) => one.method.startsWith("generate.")).at(-1).params;
	const says = (texts, end) => node.worker().says(texts, syntax, end);
	const call = (name, input) => `<tool_call>\n${JSON.stringify({ name, arguments: input })}\n</tool_call>`;
	const shape = ({ type, status, content, name, arguments: given }) => type === "function_call" ? [name, JSON.parse(given), status] : [type, content.map(({ text }) => text).join(), status];

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		const source = join(temporary(), "words.gguf");
		writeFileSync(source, modelFile({ context: 65536 }));
		await admin.call("model.add", { source });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await admin.call("instance.create", { model_id: model.model_id, context_tokens: 65536 });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		({ token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 }));
		openai = client(token);
	});
	afterEach(() => {
		node.worker().manual = false;
		delete node.worker().answers["generate.start"];
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	describe("with the package", () => {
		test("a response, whole", async () => {
			const { data, response } = await openai.responses.create(ask("one two three", { instructions: "be brief", temperature: 0.5, top_p: 0.9, max_output_tokens: 100,
				metadata: { a: "b" }, prompt_cache_key: "k", store: false })).withResponse();
			assert.match(response.headers.get("x-request-id"), /^req_/);
			assert.match(data.id, /^resp_/);
			assert.match(data.output[0].id, /^msg_/);
			assert.ok(Math.abs(data.created_at - Date.now() / 1000) < 3600 && data.completed_at >= data.created_at);
			const { output, output_text, sampling, created_at, completed_at, ...rest } = data;
			assert.deepEqual(output, [{ type: "message", id: output[0].id, status: "completed", role: "assistant",
				content: [{ type: "output_text", text: "one two three", annotations: [], logprobs: [] }] }]);
			assert.equal(output_text, "one two three");
			assert.deepEqual(sampling.temperature, { value: 0.5, from: "request" });
			assert.deepEqual({ ...rest, id: "" }, { id: "", object: "response", status: "completed", model: "words", error: null, incomplete_details: null, instructions: "be brief",
				max_output_tokens: 100, previous_response_id: null, prompt_cache_key: "k", safety_identifier: null, user: null, text: { format: { type: "text" } },
				reasoning: { effort: null, summary: null }, tools: [], tool_choice: "auto", parallel_tool_calls: true, metadata: { a: "b" }, truncation: "disabled",
				service_tier: "default", top_logprobs: 0, background: false, store: false, temperature: 0.5, top_p: 0.9,
				usage: { input_tokens: 7, input_tokens_details: { cached_tokens: 2 }, output_tokens: 3, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 10 } });
			const { owner, request, sampling: { seed, ...drawn }, ...question } = asked();
			assert.ok(owner > 0 && request > 0 && Number.isInteger(seed));
			assert.deepEqual(question, { prompt: { messages: [{ role: "system", text: "be brief" }, { role: "user", text: "one two three" }] }, talks: true, max_tokens: 100 });
			assert.deepEqual([drawn.temperature, drawn.top_p], [0.5, 0.9]);
		});
		test("tokens that a text foresees are asked for by request, and told in its usage", async () => {
			for (const speculate of [true, false, undefined]) {
				await openai.responses.create(ask("one two", { speculate }));
				assert.equal(asked().speculate, speculate || undefined);
			}
			await assert.rejects(openai.responses.create(ask("one", { speculate: "yes" })), (error) => error.status === 400 && error.param === "speculate" && /must be true or false/.test(error.message));
			node.worker().says(["one"], undefined, { proposed_tokens: 5, accepted_tokens: 3 });
			const { usage } = await openai.responses.create(ask("one"));
			assert.deepEqual(usage.output_tokens_details, { reasoning_tokens: 0, accepted_prediction_tokens: 3, rejected_prediction_tokens: 2 });
		});
		test("a response, as it comes", async () => {
			const events = [];
			for await (const event of await openai.responses.create(ask("one two", { stream: true }))) events.push(event);
			assert.deepEqual(events.map((one) => one.sequence_number), events.map((_, at) => at));
			assert.deepEqual(events.filter((one) => one.type !== "response.output_text.delta").map((one) => one.type),
				["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.done",
					"response.content_part.done", "response.output_item.done", "response.completed"]);
			assert.equal(events.filter((one) => one.type === "response.output_text.delta").map((one) => one.delta).join(""), "one two");
			const [first, last] = [events[0].response, events.at(-1).response];
			assert.deepEqual([first.status, first.output, first.id], ["in_progress", [], last.id]);
			assert.deepEqual([last.status, last.output.map(shape), last.usage.total_tokens], ["completed", [["message", "one two", "completed"]], 9]);
			const item = last.output[0].id;
			assert.ok(events.filter((one) => one.item_id).every((one) => one.item_id === item && one.output_index === 0 && one.content_index === 0));
			const raw = (await post(ask("one", { stream: true }))).text;
			for (const event of raw.trim().split("\n\n")) {
				const [, name, data] = /^event: ([\w.]+)\ndata: (.*)$/.exec(event);
				assert.equal(JSON.parse(data).type, name);
			}
		});
		test("its helper for streams: thoughts, text and calls", async () => {
			says(["<think>hm", "mm</think>", "so ", "it is", call("get_weather", { city: "Rome" }), "\n", call("set-alarm", {})]);
			const ask1 = ask("x", { tools: [weather, alarm], include: ["reasoning.encrypted_content"], reasoning: { effort: "low", summary: "auto" } });
			const whole = await openai.responses.create(ask1), streamed = await openai.responses.stream(ask1).finalResponse();
			for (const { output, output_text, usage } of [whole, streamed]) {
				assert.deepEqual(output.map(shape), [["reasoning", "hmmm", "completed"], ["message", "so it is", "completed"],
					["get_weather", { city: "Rome" }, "completed"], ["set-alarm", {}, "completed"]]);
				assert.equal(output_text, "so it is");
				assert.deepEqual(output.map(({ id }) => id.split("_")[0]), ["rs", "msg", "fc", "fc"]);
				assert.ok(output.slice(2).every((one) => /^[0-9a-z]{9}$/i.test(one.call_id)));
				assert.deepEqual(output[0].content, [{ type: "reasoning_text", text: "hmmm" }]);
				assert.match(output[0].encrypted_content, /^exo\./);
				assert.equal(usage.output_tokens, 7);
			}
			assert.deepEqual([asked().reasoning_effort, whole.reasoning, whole.tools.map(({ name }) => name)], ["low", ask1.reasoning, ["get_weather", "set-alarm"]]);
		});
		test("events of calls", async () => {
			says([call("get_weather", { city: "Rome" }), call("set-alarm", {})]);
			const events = [];
			for await (const event of await openai.responses.create(ask("x", { tools: [weather, alarm], stream: true }))) events.push(event);
			assert.deepEqual(events.slice(2, -1).map(({ type, output_index }) => [type.slice(9), output_index]), [0, 1].flatMap((at) => ["output_item.added",
				"function_call_arguments.delta", "function_call_arguments.done", "output_item.done"].map((type) => [type, at])));
			assert.deepEqual(events.filter(({ type }) => type.endsWith("arguments.done")).map((one) => [one.name, JSON.parse(one.arguments)]), [["get_weather", { city: "Rome" }], ["set-alarm", {}]]);
		});
		test("an answer that was cut off", async () => {
			for (const [texts, tools, output] of [[["one"], [], [["message", "one", "incomplete"]]], [[call("set-alarm", {}), "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {"],
				[weather, alarm], [["set-alarm", {}, "completed"]]]]) {
				says(texts, { reason: "length" });
				for (const one of [await openai.responses.create(ask("x", { tools })), await openai.responses.stream(ask("x", { tools })).finalResponse()])
					assert.deepEqual([one.status, one.incomplete_details, one.output.map(shape)], ["incomplete", { reason: "max_output_tokens" }, output]);
			}
		});
		test("a call that is broken, or cut off, is text", async () => {
			for (const [texts, end, said] of [[["<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci"], { reason: "length" }, /\{"ci/], [["<tool_call>\n{\"name\": 5}\n</tool_call>"], {}, /"name": 5/]]) {
				says(texts, end);
				for (const { output } of [await openai.responses.create(ask("x", { tools: [weather] })), await openai.responses.stream(ask("x", { tools: [weather] })).finalResponse()]) {
					assert.deepEqual(output.map(({ type }) => type), ["message"]);
					assert.match(output[0].content[0].text, said);
				}
			}
		});
		test("a conversation becomes what a worker is asked, and an answer can be sent back", async () => {
			says(["<think>hm</think>", "let me see", call("get_weather", { city: "Rome" }), call("get_weather", {})]);
			const tools = [weather], include = ["reasoning.encrypted_content"];
			const first = await openai.responses.create(ask("a", { tools, include }));
			delete node.worker().answers["generate.start"];
			const results = first.output.filter(({ type }) => type === "function_call").map(({ call_id }, at) => ({ type: "function_call_output", call_id,
				output: at ? [{ type: "input_text", text: "no" }, { type: "input_text", text: "city" }] : "sunny" }));
			const [thought, ...said] = first.output, { content, ...sealed } = thought;
			for (const reasoning of [thought, sealed]) {
				await openai.responses.create(ask([{ role: "developer", content: "be brief" }, { type: "message", role: "system", content: [{ type: "input_text", text: "be kind" }] },
					{ role: "user", content: "a" }, { role: "user", content: [{ type: "input_text", text: "b" }, { type: "input_text", text: "c" }] }, reasoning, ...said, ...results,
					{ role: "user", content: "go on" }, { role: "developer", content: "now" }], { instructions: "i", tools, parallel_tool_calls: false }));
				const { prompt, tools: offered, parallel_tool_calls } = asked();
				const [one, two] = first.output.slice(2).map(({ call_id }) => call_id);
				assert.deepEqual(prompt.messages, [{ role: "system", text: "i\n\nbe brief\n\nbe kind" }, { role: "user", text: "a\n\nb\n\nc" },
					{ role: "assistant", text: "let me see", thoughts: "hm", calls: [{ id: one, name: "get_weather", arguments: "{\"city\":\"Rome\"}" }, { id: two, name: "get_weather", arguments: "{}" }] },
					{ role: "tool", text: "sunny", call_id: one }, { role: "tool", text: "no\n\ncity", call_id: two }, { role: "user", text: "go on\n\nnow" }]);
				assert.deepEqual([offered, parallel_tool_calls], [[asFunction(weather)], false]);
			}
			await openai.responses.create(ask([{ type: "reasoning", id: "rs_1", summary: [{ type: "summary_text", text: "so" }] }, { role: "user", content: "x" }]));
			assert.deepEqual(asked().prompt.messages[0], { role: "assistant", text: "", thoughts: "so" });
		});
		test("which tool is called", async () => {
			const chosen = async (tool_choice) => {
				await openai.responses.create(ask("x", { tools: [weather, alarm], tool_choice }));
				return [asked().tool_choice, asked().tools?.length];
			};
			assert.deepEqual(await chosen("required"), [{ mode: "required" }, 2]);
			assert.deepEqual(await chosen({ type: "function", name: "set-alarm" }), [{ mode: "required", name: "set-alarm" }, 2]);
			assert.deepEqual(await chosen("none"), [undefined, undefined]);
		});
		test("an answer in a form", async () => {
			const schema = { type: "object", properties: { a: { type: "integer" } } };
			await openai.responses.create(ask("x", { text: { format: { type: "json_schema", name: "a", schema, strict: true } } }));
			assert.deepEqual(asked().form, { kind: "schema", text: JSON.stringify(schema) });
			await openai.responses.create(ask("x", { text: { format: { type: "json_object" }, verbosity: "medium" } }));
			assert.deepEqual(asked().form, { kind: "json" });
		});
		test("tools that are not here are left out, by name", async () => {
			const tools = [{ type: "web_search", external_web_access: true }, weather, { type: "namespace", name: "agents", description: "", tools: [] }, { type: "image_generation" },
				{ type: "custom", name: "apply" }, { type: "local_shell" }, { type: "web_search_2025_08_26" }];
			for (const more of [{}, { metadata: { mine: "kept" } }]) {
				const one = await openai.responses.create(ask("x", { ...more, tools }));
				assert.deepEqual(one.metadata, { ...more.metadata, exogpu_tools_left_out: "web_search, agents (namespace), image_generation, apply (custom), local_shell, web_search" });
				assert.deepEqual([one.tools, asked().tools], [[weather], [asFunction(weather)]]);
			}
			const { metadata, tools: none } = await openai.responses.create({ metadata: { mine: "kept" }, ...ask("x"), tools: Array(200).fill({ type: "mcp" }) });
			assert.deepEqual([none, metadata.mine, metadata.exogpu_tools_left_out.length <= 512], [[], "kept", true]);
			for (const type of ["web_search", "namespace", "local_shell"])
				await eventually(() => server.output.stderr.match(new RegExp(`the type ${type} is left out`, "g"))?.length === 1, "the log says so, once");
		});
		test("errors have their class", async () => {
			const rejects = (promise, type, status, code, param, pattern) => assert.rejects(promise, (error) => {
				assert.ok(error instanceof type, `${error.constructor.name}: ${error.message}`);
				assert.deepEqual([error.status, error.code, error.param], [status, code, param]);
				assert.match(error.message, pattern);
				return true;
			});
			await rejects(client("exo_nothing").responses.create(ask("x")), OpenAI.AuthenticationError, 401, "invalid_api_key", null, /token/);
			await rejects(openai.responses.create({ ...ask("x"), model: "none" }), OpenAI.NotFoundError, 404, "model_not_found", "model", /no model none/);
			await rejects(openai.responses.create(ask("x", { previous_response_id: "resp_1" })), OpenAI.BadRequestError, 400, null, "previous_response_id", /send the whole conversation/);
			const fails = (code, reason, message) => node.worker().answers["generate.start"] = () => ({ error: { code, message, data: { reason, hint: null } } });
			fails(-32006, "limit_exceeded", "the prompt has 9000 tokens; with the answer the context holds 4096");
			await rejects(openai.responses.create(ask("x", { stream: true })), OpenAI.BadRequestError, 400, "context_length_exceeded", "input", /9000 tokens/);
			fails(-32602, "invalid_params", "the form of the answer: no such type");
			await rejects(openai.responses.create(ask("x")), OpenAI.BadRequestError, 400, null, "text.format", /no such type/);
		});
		test("models, as Codex asks for them", async () => {
			const { data, models } = (await server.http("/v1/models?client_version=0.169.0", { headers: { authorization: `Bearer ${token}` } })).json();
			assert.deepEqual([data.map(({ id }) => id), models], [["words"], []]);
		});
	});

	describe("underneath", () => {
		test("what is not done is refused by name", async () => {
			const item = (one) => ({ input: [one, { role: "user", content: "x" }] });
			for (const [more, param, pattern] of [
				[item({ role: "user", content: [{ type: "input_image", image_url: "data:" }] }), "input", /"input_image" is not supported/], [item({ role: "robot", content: "x" }), "input", /roles/],
				[item({ role: "user", content: [{ type: "input_text", text: "x", unheard_of: 1 }] }), "input", /unheard_of/], [item({ role: "user" }), "input", /text/], [item(5), "input", /type/],
				[item({ type: "item_reference", id: "msg_1" }), "input", /item_reference/], [item({ type: "local_shell_call" }), "input", /local_shell_call/], [item({ type: "function_call" }), "input", /call_id/],
				[item({ type: "function_call", call_id: "a", name: "a", arguments: {} }), "input", /arguments/], [item({ type: "function_call", call_id: "a", name: "a", arguments: "{}", namespace: "n" }), "input", /namespace/],
				[item({ type: "function_call_output", output: "x" }), "input", /call_id/], [item({ type: "function_call_output", call_id: "a", output: [{ type: "input_image" }] }), "input", /input_image/],
				[item({ type: "reasoning", id: "r", summary: [], encrypted_content: "gAAAA" }), "input", /encrypted_content/], [item({ type: "reasoning", summary: [], encrypted_content: "exo.AAA=" }), "input", /encrypted_content/],
				[{ input: [] }, "input", /input/], [{ input: 5 }, "input", /input/], [{ input: undefined }, "input", /missing/], [{ instructions: [] }, "instructions", /text/], [{ model: "" }, "model", /model/],
				[{ temperature: 3 }, "temperature", /0 to 2/], [{ top_p: 2 }, "top_p", /0 to 1/], [{ max_output_tokens: 0 }, "max_output_tokens", /integer/], [{ stream: 1 }, "stream", /true/], [{ stream_options: { a: 1 } }, "stream_options", /a of/],
				[{ tools: {} }, "tools", /list/], [{ tools: [{ type: "function", name: "a b" }] }, "tools", /name/], [{ tools: [{ type: "unheard_of" }] }, "tools", /unheard_of/], [{ tools: [weather, weather] }, "tools", /twice/],
				[{ tools: [{ ...weather, defer_loading: true }] }, "tools", /defer_loading/], [{ tools: [weather], tool_choice: { type: "web_search" } }, "tool_choice", /tool_choice/], [{ tool_choice: "required" }, "tool_choice", /no tools/],
				[{ tools: [weather], tool_choice: { type: "function", name: "other" } }, "tool_choice", /other/], [{ tools: [weather], tool_choice: { type: "allowed_tools", mode: "auto", tools: [] } }, "tool_choice", /tool_choice/],
				[{ tools: [weather], tool_choice: "required", text: { format: { type: "json_object" } } }, "tool_choice", /text.format/], [{ parallel_tool_calls: 1 }, "parallel_tool_calls", /true/],
				[{ reasoning: "low" }, "reasoning", /object/], [{ reasoning: { effort: "huge" } }, "reasoning.effort", /xhigh/], [{ reasoning: { mode: "x" } }, "reasoning", /mode/], [{ text: { verbosity: "low" } }, "text.verbosity", /verbosity/],
				[{ text: { format: { type: "grammar" } } }, "text.format", /type/], [{ text: { format: { type: "json_schema", name: "a" } } }, "text.format", /schema/], [{ include: ["message.output_text.logprobs"] }, "include", /logprobs/],
				[{ include: "x" }, "include", /list/], [{ store: true }, "store", /store/], [{ background: true }, "background", /background/], [{ truncation: "auto" }, "truncation", /disabled/], [{ top_logprobs: 2 }, "top_logprobs", /chat/],
				[{ metadata: { a: 1 } }, "metadata", /texts/], [{ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [i, ""])) }, "metadata", /16/], [{ conversation: "c" }, "conversation", /not kept/], [{ prompt: { id: "p" } }, "prompt", /prompt/],
				[{ context_management: [{ type: "compaction" }] }, "context_management", /context_management/], [{ moderation: {} }, "moderation", /moderation/], [{ seed: 1 }, "seed", /no parameter seed/]]) {
				const { status, json } = await post({ ...ask("x"), ...more });
				const { error } = json();
				assert.deepEqual([status, error.type, error.param], [400, "invalid_request_error", param], JSON.stringify(more));
				assert.match(error.message, pattern, JSON.stringify(more));
			}
			for (const body of ["", "{", "[]", "null", "{\"model\":\"words\"}", "\u0000"])
				assert.equal((await post(body)).status, 400, JSON.stringify(body));
			for (const more of [{ previous_response_id: null, tools: null, reasoning: {}, text: {} }, { include: ["web_search_call.results", "reasoning.encrypted_content"], background: false, context_management: [] },
				{ client_metadata: { a: "b" }, service_tier: "auto", prompt_cache_retention: "24h", max_tool_calls: 3, top_logprobs: 0, truncation: "disabled", stream_options: { include_obfuscation: false } }])
				assert.equal((await post({ ...ask("x"), ...more })).status, 200, JSON.stringify(more));
		});
		test("a long body is read as a short one", async () => {
			const { json } = await post(ask("word ".repeat(40000).trim(), { max_output_tokens: 3 }));
			assert.deepEqual([json().output[0].content[0].text, json().status], ["word word word", "incomplete"]);
		});
		test("who waits for something to be told is told that it lives", async () => {
			node.worker().manual = true;
			const events = [], stream = await openai.responses.create(ask("x", { stream: true, tools: [weather] })).asResponse();
			const reading = (async () => { for await (const piece of stream.body) events.push(Buffer.from(piece).toString()); })();
			await eventually(() => node.worker().requests.size, "it is asked");
			const [request] = node.worker().requests.keys();
			node.worker().tell("generate.delta", { request, tokens: [1], text: "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"", syntax });
			await eventually(() => {
				node.worker().say(request, "a");
				return events.join("").includes("event: keepalive");
			}, "it is told", 4 * patience);
			assert.doesNotMatch(events.join(""), /output_item/, "a call that is not whole is not told");
			node.worker().say(request, "\"}}\n</tool_call>");
			node.worker().finish(request, "stop");
			await reading;
			assert.match(events.join(""), /"name":"get_weather"[^]*event: response.completed/);
		});
		test("an error in mid-stream is a response that failed", async () => {
			node.worker().manual = true;
			const stream = openai.responses.stream(ask("x"));
			const done = stream.finalResponse();
			await eventually(() => node.worker().requests.size, "it is asked");
			const [request] = node.worker().requests.keys();
			node.worker().say(request, "so ");
			node.worker().finish(request, "failed", { error: "burnt" });
			const { status, error, output } = await done;
			assert.deepEqual([status, error.code], ["failed", "server_error"]);
			assert.deepEqual(output.map(shape), [["message", "so ", "incomplete"]], "what was said until then");
			assert.match(error.message, /burnt/);
		});
		test("it is on record", async () => {
			const entry = await eventually(async () => (await admin.call("audit.list", { action: "infer.responses", limit: 5 })).entries.find((one) => one.outcome === "ok"), "it is on record");
			assert.equal(entry.detail.prompt_tokens, 7);
		});
	});
});

describe("/v1/responses and the engine", () => {
	let server, admin, openai;
	const template = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ '<' + m.role + '>' }}{{ m.content or '' }}{% for c in m.tool_calls or [] %}" +
		"<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{{ '\n' }}{% endfor %}{{ '<assistant>' }}";

	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		const source = join(temporary(), "small.gguf");
		writeFileSync(source, modelFile({ megabytes: 0.2, context: 1024, template }));
		const { model_id } = await admin.call("model.add", { source });
		await eventually(async () => (await admin.call("model.list")).models[0]?.state === "ready", "the model is read");
		await admin.call("instance.create", { model_id, context_tokens: 1024, pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }] });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready", 6 * patience);
		const { token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 });
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("a demanded call is made, whole and as it comes, and its result is read", async () => {
		const ask = { model: "small", max_output_tokens: 300, temperature: 0, tool_choice: { type: "function", name: "set-alarm" }, parallel_tool_calls: false, input: "abc",
			tools: [{ ...alarm, parameters: { type: "object", properties: { on: { type: "boolean" } }, required: ["on"], additionalProperties: false } }] };
		const whole = await openai.responses.create(ask), streamed = await openai.responses.stream(ask).finalResponse();
		for (const { output, status } of [whole, streamed])
			assert.deepEqual([output.map(({ type, name, arguments: given }) => [type, name, typeof JSON.parse(given).on]), status], [[["function_call", "set-alarm", "boolean"]], "completed"]);
		const [{ call_id, arguments: given }] = whole.output;
		assert.equal(streamed.output[0].arguments, given);
		const next = await openai.responses.create({ ...ask, tool_choice: "none", max_output_tokens: 3, input: [{ role: "user", content: "abc" }, ...whole.output, { type: "function_call_output", call_id, output: "set" }] });
		assert.ok(next.usage.input_tokens > 0 && next.output_text.length > 0);
		const chat = await openai.chat.completions.create({ model: "small", max_tokens: 3, temperature: 0, messages: [{ role: "user", content: "abc" },
			{ role: "assistant", content: null, tool_calls: [{ id: call_id, type: "function", function: { name: "set-alarm", arguments: given } }] }, { role: "tool", tool_call_id: call_id, content: "set" }] });
		assert.deepEqual([next.output_text, next.usage.input_tokens], [chat.choices[0].message.content, chat.usage.prompt_tokens], "both APIs ask the same");
	});
	test("a prompt that is longer than the context", async () => {
		await assert.rejects(openai.responses.create({ model: "small", input: "abc ".repeat(2000) }), (error) => error.status === 400 && error.code === "context_length_exceeded" && error.param === "input");
	});
});
