// /v1/messages as the `@anthropic-ai/sdk` package knows it, and as it is underneath. The worker is made here, so that what it
// says is known; the last part has a real one.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, patience, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const syntax = { calls: "hermes", thoughts: "think", opened: false };
const weather = { name: "get_weather", description: "The weather.", input_schema: { type: "object", properties: { city: { type: "string" } } } };
const alarm = { name: "set-alarm", input_schema: { type: "object", properties: {} } };

describe("/v1/messages", () => {
	let server, admin, node, token, anthropic;

	const client = (apiKey, more = {}) => new Anthropic({ apiKey, authToken: null, baseURL: server.url.href, maxRetries: 0, ...more });
	const chat = (content, more = {}) => ({ model: "words", max_tokens: 100, messages: [{ role: "user", content }], ...more });
	const post = (path, body, headers = { "x-api-key": token }) => server.http(path, { method: "POST",
		headers: { "content-type": "application/json", ...headers }, body: typeof body === "string" ? body : JSON.stringify(body) });
	const calls = () => node.worker().calls.filter((one) => one.method.startsWith("generate."));
	const asked = () => calls().at(-1).params;
	const says = (texts, end) => node.worker().says(texts, syntax, end);
	const call = (name, input) => `<tool_call>\n${JSON.stringify({ name, arguments: input })}\n</tool_call>`;
	const shape = ({ type, text, thinking, name, input }) => type === "text" ? text : type === "thinking" ? [thinking] : [name, input];

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
		anthropic = client(token);
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
		test("models", async () => {
			const { data, has_more, first_id, last_id } = await anthropic.models.list();
			assert.deepEqual([data.map((one) => [one.id, one.type, one.display_name]), has_more, first_id, last_id], [[["words", "model", "words"]], false, "words", "words"]);
			assert.ok(Date.now() - Date.parse(data[0].created_at) < 3600e3);
			assert.equal((await anthropic.models.retrieve("words")).id, "words");
			await assert.rejects(anthropic.models.retrieve("nothing"), (error) => error instanceof Anthropic.NotFoundError && error.error.error.type === "not_found_error");
			const openai = (await server.http("/v1/models", { headers: { "x-api-key": token } })).json();
			assert.equal(openai.object, "list", "without anthropic-version it is OpenAI's");
		});
		test("a message, whole", async () => {
			const { data, request_id } = await anthropic.messages.create(chat("one two three", { temperature: 0.5, top_k: 5, top_p: 0.9, metadata: { user_id: "me" } })).withResponse();
			assert.match(data.id, /^msg_/);
			assert.match(request_id, /^req_/);
			assert.deepEqual({ ...data, id: "" }, { id: "", type: "message", role: "assistant", model: "words", content: [{ type: "text", text: "one two three" }],
				stop_reason: "end_turn", stop_sequence: null,
				usage: { input_tokens: 5, cache_creation_input_tokens: 0, cache_read_input_tokens: 2, output_tokens: 3 } });
			const { owner, request, sampling: { seed, ...sampling }, ...rest } = asked();
			assert.ok(owner > 0 && request > 0 && Number.isInteger(seed));
			assert.deepEqual(rest, { prompt: { messages: [{ role: "user", text: "one two three" }] }, talks: true, max_tokens: 100,
				reasoning_effort: "none", effort_optional: true });
			assert.deepEqual(sampling, { temperature: 0.5, top_k: 5, top_p: 0.9, min_p: 0.05, repetition_penalty: 1 });
		});
		test("tokens that a text foresees are asked for by request, and told in its usage", async () => {
			for (const speculate of [true, false, undefined]) {
				await anthropic.messages.create(chat("one two", { speculate }));
				assert.equal(asked().speculate, speculate || undefined);
			}
			await assert.rejects(anthropic.messages.create(chat("one", { speculate: 1 })), (error) => error instanceof Anthropic.BadRequestError &&
				/^speculate must be true or false/.test(error.error.error.message));
			node.worker().says(["one"], undefined, { proposed_tokens: 5, accepted_tokens: 3 });
			const told = { output_tokens: 1, accepted_prediction_tokens: 3, rejected_prediction_tokens: 2 }, read = { input_tokens: 5, cache_creation_input_tokens: 0, cache_read_input_tokens: 2 };
			assert.deepEqual((await anthropic.messages.create(chat("one"))).usage, { ...read, ...told });
			assert.deepEqual((await anthropic.messages.stream(chat("one")).finalMessage()).usage.output_tokens, 1, "the package's helper takes it as well");
		});
		test("a message, as it comes", async () => {
			const events = [];
			for await (const event of await anthropic.messages.create(chat("one two", { stream: true }))) events.push(event);
			assert.deepEqual(events.filter((one) => one.type !== "content_block_delta").map((one) => one.type),
				["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]);
			assert.deepEqual(events[0].message.usage, { input_tokens: 7, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 0 });
			assert.deepEqual(events.at(-2), { type: "message_delta", delta: { stop_reason: "end_turn", stop_sequence: null },
				usage: { input_tokens: 5, cache_creation_input_tokens: 0, cache_read_input_tokens: 2, output_tokens: 2 } });
			assert.equal(events.filter((one) => one.type === "content_block_delta").map((one) => one.delta.text).join(""), "one two");
			const raw = (await post("/v1/messages?beta=true", chat("one", { stream: true }))).text;
			for (const event of raw.trim().split("\n\n")) {
				const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(event);
				assert.equal(JSON.parse(data).type, name);
			}
			assert.match(raw, /event: ping\ndata: \{"type":"ping"\}/);
		});
		test("its helper for streams", async () => {
			says(["<think>hm", "mm</think>", "so ", "it is", call("get_weather", { city: "Rome" }), "\n", call("set-alarm", {})]);
			const stream = anthropic.messages.stream(chat("x", { tools: [weather, alarm], thinking: { type: "enabled", budget_tokens: 1024 }, max_tokens: 2000 }));
			const { content, stop_reason } = await stream.finalMessage();
			assert.deepEqual([content.map(shape), stop_reason], [[["hmmm"], "so it is", ["get_weather", { city: "Rome" }], ["set-alarm", {}]], "tool_use"]);
			assert.ok(content.slice(2).every((one) => /^[0-9a-z]{9}$/i.test(one.id)));
		});
		test("stop sequences, and length", async () => {
			says(["one"], { stop: "END" });
			const stopped = await anthropic.messages.create(chat("x", { stop_sequences: ["END", "x"] }));
			assert.deepEqual([stopped.stop_reason, stopped.stop_sequence, asked().stop], ["stop_sequence", "END", ["END", "x"]]);
			const cut = await anthropic.messages.stream(chat("x", { stop_sequences: ["END"] })).finalMessage();
			assert.deepEqual([cut.stop_reason, cut.stop_sequence], ["stop_sequence", "END"]);
			says(["one"], { reason: "length" });
			assert.equal((await anthropic.messages.create(chat("x"))).stop_reason, "max_tokens");
			assert.equal((await anthropic.messages.stream(chat("x")).finalMessage()).stop_reason, "max_tokens");
		});
		test("thoughts come to who asks for them", async () => {
			const ask = async (thinking, more = {}) => {
				says(["<think>hm</think>", "\n\n", "so"]);
				const whole = await anthropic.messages.create(chat("x", { thinking, max_tokens: 2000, ...more }));
				const effort = asked().reasoning_effort;
				const streamed = await anthropic.messages.stream(chat("x", { thinking, max_tokens: 2000, ...more })).finalMessage();
				assert.deepEqual(streamed.content.map(shape), whole.content.map(shape));
				assert.equal(asked().effort_optional, true);
				return [whole.content.map(shape).map((one) => typeof one === "string" ? one.trim() : one), effort];
			};
			assert.deepEqual(await ask(undefined), [["so"], "none"]);
			assert.deepEqual(await ask({ type: "disabled" }, { output_config: { effort: "high" } }), [["so"], "none"]);
			assert.deepEqual(await ask({ type: "enabled", budget_tokens: 1024 }), [[["hm"], "so"], "medium"]);
			assert.deepEqual(await ask({ type: "adaptive" }, { output_config: { effort: "low" } }), [[["hm"], "so"], "low"]);
			assert.deepEqual(await ask({ type: "adaptive", display: "omitted" }, { output_config: { effort: "max" } }), [["so"], "xhigh"]);
		});
		test("a call that is broken, or cut off, is text", async () => {
			const tools = [weather];
			for (const [texts, end, said, reason] of [[["<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci"], { reason: "length" }, /\{"ci/, "max_tokens"],
				[["<tool_call>\n{\"name\": 5}\n</tool_call>"], {}, /"name": 5/, "end_turn"]]) {
				says(texts, end);
				const whole = await anthropic.messages.create(chat("x", { tools }));
				const streamed = await anthropic.messages.stream(chat("x", { tools })).finalMessage();
				for (const { content, stop_reason } of [whole, streamed]) {
					assert.deepEqual([content.map((one) => one.type), stop_reason], [["text"], reason]);
					assert.match(content[0].text, said);
				}
			}
		});
		test("a call that is cut off before its first argument is left out", async () => {
			says(["so", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {"], { reason: "length" });
			const whole = await anthropic.messages.create(chat("x", { tools: [weather] }));
			const streamed = await anthropic.messages.stream(chat("x", { tools: [weather] })).finalMessage();
			for (const { content, stop_reason } of [whole, streamed]) assert.deepEqual([content.map(shape), stop_reason], [["so"], "max_tokens"]);
		});
		test("a conversation with tools becomes what a worker is asked", async () => {
			await anthropic.messages.create({ model: "words", max_tokens: 9, tools: [{ ...weather, cache_control: { type: "ephemeral" } }], tool_choice: { type: "auto", disable_parallel_tool_use: true },
				system: [{ type: "text", text: "be brief", cache_control: { type: "ephemeral" } }, { type: "text", text: "be kind" }],
				messages: [{ role: "user", content: "a" }, { role: "user", content: [{ type: "text", text: "b" }] },
					{ role: "assistant", content: [{ type: "thinking", thinking: "hm", signature: "" }, { type: "text", text: "let me see" },
						{ type: "tool_use", id: "abcdefgh1", name: "get_weather", input: { city: "Rome" } }] },
					{ role: "assistant", content: [{ type: "tool_use", id: "abcdefgh2", name: "get_weather", input: {} }] },
					{ role: "user", content: [{ type: "tool_result", tool_use_id: "abcdefgh1", content: "sunny" },
						{ type: "tool_result", tool_use_id: "abcdefgh2", is_error: true, content: [{ type: "text", text: "no" }, { type: "text", text: "city" }] },
						{ type: "tool_result", tool_use_id: "abcdefgh3" }, { type: "text", text: "go on" }] }, { role: "system", content: "now" }] });
			const { prompt, tools, parallel_tool_calls, tool_choice } = asked();
			assert.deepEqual(prompt.messages, [{ role: "system", text: "be brief\n\nbe kind" }, { role: "user", text: "a\n\nb" },
				{ role: "assistant", text: "let me see", thoughts: "hm", calls: [{ id: "abcdefgh1", name: "get_weather", arguments: "{\"city\":\"Rome\"}" },
					{ id: "abcdefgh2", name: "get_weather", arguments: "{}" }] },
				{ role: "tool", text: "sunny", call_id: "abcdefgh1" }, { role: "tool", text: "Error: no\n\ncity", call_id: "abcdefgh2" },
				{ role: "tool", text: "", call_id: "abcdefgh3" }, { role: "user", text: "go on\n\nnow" }]);
			assert.deepEqual(tools, [{ type: "function", function: { name: "get_weather", description: weather.description, parameters: weather.input_schema } }]);
			assert.deepEqual([parallel_tool_calls, tool_choice], [false, { mode: "auto" }]);
		});
		test("which tool is called", async () => {
			const chosen = async (tool_choice, more = {}) => {
				await anthropic.messages.create(chat("x", { tools: [weather, alarm], tool_choice, ...more }));
				return [asked().tool_choice, asked().tools?.length];
			};
			assert.deepEqual(await chosen({ type: "any" }), [{ mode: "required" }, 2]);
			assert.deepEqual(await chosen({ type: "tool", name: "set-alarm" }), [{ mode: "required", name: "set-alarm" }, 2]);
			assert.deepEqual(await chosen({ type: "none" }), [undefined, undefined]);
		});
		test("an answer in a form", async () => {
			const format = { type: "json_schema", schema: { type: "object", properties: { a: { type: "integer" } } } };
			await anthropic.messages.create(chat("x", { output_config: { format } }));
			assert.deepEqual(asked().form, { kind: "schema", text: JSON.stringify(format.schema) });
		});
		test("tokens are counted, and nothing is generated", async () => {
			const before = calls().length;
			const { input_tokens } = await anthropic.messages.countTokens({ model: "words", system: "s", messages: [{ role: "user", content: "x" }], tools: [weather],
				tool_choice: { type: "any" }, thinking: { type: "enabled", budget_tokens: 1024 } });
			const { method, params: { owner, request, ...rest } } = calls().at(-1);
			assert.ok(owner && request);
			assert.deepEqual([method, rest], ["generate.start", { counts: true, prompt: { messages: [{ role: "system", text: "s" }, { role: "user", text: "x" }] },
				tools: [{ type: "function", function: { name: "get_weather", description: weather.description, parameters: weather.input_schema } }],
				reasoning_effort: "medium", effort_optional: true }]);
			assert.equal(input_tokens, JSON.stringify(rest.prompt).length);
			assert.deepEqual([calls().length, node.worker().requests.size], [before + 1, 0]);
			const entry = await eventually(async () => (await admin.call("audit.list", { action: "infer.count_tokens", limit: 5 })).entries[0], "it is on record");
			assert.deepEqual([entry.outcome, entry.detail.prompt_tokens], ["ok", input_tokens]);
		});
		test("errors have their class", async () => {
			const rejects = (promise, type, status, word, pattern) => assert.rejects(promise, (error) => {
				assert.ok(error instanceof type, `${error.constructor.name}: ${error.message}`);
				assert.deepEqual([error.status, error.error.type, error.error.error.type], [status, "error", word]);
				assert.match(error.error.error.message, pattern);
				assert.match(error.error.request_id, /^req_/);
				assert.equal(error.requestID, error.error.request_id);
				return true;
			});
			await rejects(client("exo_nothing").messages.create(chat("x")), Anthropic.AuthenticationError, 401, "authentication_error", /token/);
			await rejects(anthropic.messages.create({ ...chat("x"), model: "none" }), Anthropic.NotFoundError, 404, "not_found_error", /no model none/);
			await rejects(anthropic.messages.create({ ...chat("x"), max_tokens: undefined }), Anthropic.BadRequestError, 400, "invalid_request_error", /max_tokens is missing/);
			const observer = await admin.call("token.create", { name: "observer", scopes: ["observe"], expires_in_s: 3600 });
			await rejects(client(observer.token).models.list(), Anthropic.PermissionDeniedError, 403, "permission_error", /infer/);
			const slow = await admin.call("token.create", { name: "slow", scopes: ["infer"], expires_in_s: 3600, calls_per_s: 1 });
			await rejects(Promise.all(Array.from({ length: 8 }, () => client(slow.token).models.list())), Anthropic.RateLimitError, 429, "rate_limit_error", /./);
			const fails = (code, reason, message) => node.worker().answers["generate.start"] = () => ({ error: { code, message, data: { reason, hint: "shorten it" } } });
			fails(-32006, "limit_exceeded", "the prompt has 9000 tokens; with the answer the context holds 4096");
			await rejects(anthropic.messages.create(chat("x")), Anthropic.BadRequestError, 400, "invalid_request_error", /^prompt is too long: 9000 tokens > 4096 maximum$/);
			fails(-32602, "invalid_params", "the tools: no such type");
			await rejects(anthropic.messages.create(chat("x", { stream: true })), Anthropic.BadRequestError, 400, "invalid_request_error", /no such type; shorten it/);
			delete node.worker().answers["generate.start"];
			const { instances: [{ instance_id, model_id }] } = await admin.call("instance.list");
			await admin.call("instance.delete", { instance_id });
			await rejects(anthropic.messages.create(chat("x")), Anthropic.APIError, 529, "overloaded_error", /exogpu place words/);
			await admin.call("instance.create", { model_id, context_tokens: 65536 });
			await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready again");
		});
	});

	describe("underneath", () => {
		test("what is not done is refused by name", async () => {
			const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "" } };
			const message = (role, ...content) => ({ messages: [{ role: "user", content: "x" }, { role, content }, { role: "user", content: "y" }] });
			for (const [more, pattern] of [
				[message("user", image), /"image" is not supported/], [message("user", { type: "document" }), /"document"/],
				[message("user", { type: "tool_result", tool_use_id: "a", content: [image] }), /"image"/], [message("user", { type: "tool_use", id: "a", name: "a", input: {} }), /tool_use/],
				[message("assistant", { type: "tool_result", tool_use_id: "a" }), /tool_result/], [message("assistant", { type: "redacted_thinking", data: "" }), /redacted_thinking/],
				[message("assistant", { type: "tool_use", id: "a", name: "a", input: "x" }), /input/], [message("assistant", { type: "server_tool_use" }), /server_tool_use/],
				[message("user", { type: "text" }), /text/], [message("user", { type: "text", text: "x", unheard_of: 1 }), /unheard_of/], [message("user", 5), /block/],
				[message("user", { type: "text", text: "x", citations: [1] }), /citations/], [message("user", { type: "tool_result" }), /tool_use_id/],
				[{ messages: [] }, /messages/], [{ messages: "x" }, /messages/], [{ messages: [{ role: "robot", content: "x" }] }, /user, assistant or system/],
				[{ messages: [{ role: "user" }] }, /content/], [{ messages: [{ role: "user", content: [] }] }, /not empty/],
				[{ messages: [{ role: "user", content: "x" }, { role: "assistant", content: "and" }] }, /end with/],
				[{ system: [image] }, /system/], [{ system: 5 }, /system/], [{ container: "c" }, /container/], [{ mcp_servers: [{}] }, /mcp_servers/],
				[{ temperature: 1.5 }, /temperature/], [{ top_p: 2 }, /top_p/], [{ top_k: "x" }, /top_k/], [{ max_tokens: 0 }, /max_tokens/], [{ stop_sequences: [1] }, /stop_sequences/],
				[{ stop_sequences: Array(17).fill("x") }, /stop_sequences/], [{ stream: 1 }, /stream/], [{ thinking: { type: "often" } }, /thinking/], [{ thinking: { type: "enabled" } }, /budget_tokens/],
				[{ thinking: { type: "adaptive", display: "loud" } }, /display/], [{ output_config: { effort: "huge" } }, /effort/], [{ output_config: { format: { type: "text" } } }, /format/],
				[{ output_config: { unheard_of: 1 } }, /unheard_of/], [{ unheard_of: 1 }, /unheard_of/], [{ tools: [{ type: "bash_20250124", name: "bash" }] }, /bash_20250124 is not supported/],
				[{ tools: [{ name: "a" }] }, /input_schema/], [{ tools: [{ name: "a b", input_schema: {} }] }, /name/], [{ tools: [weather, weather] }, /twice/], [{ tools: {} }, /tools/],
				[{ tools: [{ ...weather, defer_loading: true }] }, /defer_loading/], [{ tools: [weather], tool_choice: { type: "some" } }, /tool_choice/],
				[{ tools: [weather], tool_choice: { type: "tool", name: "other" } }, /other/], [{ tool_choice: { type: "any" } }, /tool_choice/],
				[{ tools: [weather], tool_choice: { type: "any" }, output_config: { format: { type: "json_schema", schema: {} } } }, /output_config/], [{ model: "" }, /model/]]) {
				const { status, json } = await post("/v1/messages", { ...chat("x"), ...more });
				const { type, error, request_id } = json();
				assert.deepEqual([status, type, error.type, typeof request_id], [400, "error", "invalid_request_error", "string"], JSON.stringify(more));
				assert.match(error.message, pattern, JSON.stringify(more));
			}
			for (const body of ["", "{", "[]", "null", "{\"model\":\"words\"}", "\u0000"])
				assert.equal((await post("/v1/messages", body)).status, 400, JSON.stringify(body));
			assert.match((await post("/v1/messages/count_tokens", chat("x"))).json().error.message, /no parameter max_tokens/);
			for (const more of [{ tools: [], mcp_servers: [] }, { thinking: null, container: null, stop_sequences: [] }, { cache_control: { type: "ephemeral" }, service_tier: "auto" },
				{ context_management: { edits: [] } }, { tools: [{ ...weather, type: "custom", strict: true, eager_input_streaming: true, defer_loading: false }] }])
				assert.equal((await post("/v1/messages", { ...chat("x"), ...more })).status, 200, JSON.stringify(more));
		});
		test("a token in either header, and never in a log", async () => {
			assert.equal((await post("/v1/messages", chat("x"), { authorization: `Bearer ${token}` })).status, 200);
			assert.equal((await post("/v1/messages", chat("x"), { authorization: `Bearer ${token}`, "x-api-key": "other" })).status, 200, "Authorization comes first");
			const missing = await post("/v1/messages", chat("x"), {});
			assert.deepEqual([missing.status, missing.json().error.type], [401, "authentication_error"]);
			const wrong = `${token.slice(0, -8)}00000000`;
			const refused = await post("/v1/messages", chat("x"), { "x-api-key": wrong });
			assert.equal(refused.status, 401);
			const entries = JSON.stringify((await admin.call("audit.list", { limit: 50 })).entries) + server.output.stderr + server.output.stdout + refused.text;
			for (const secret of [token, wrong].map((one) => one.split("_")[2])) assert.ok(!entries.includes(secret));
			assert.equal((await post("/v1/messages", chat("x"), { "x-api-key": "x".repeat(300) })).status, 401);
		});
		test("addresses and methods", async () => {
			assert.equal((await server.http("/", { method: "HEAD" })).status, 200);
			const unknown = await post("/v1/messages/batches", {}, { "x-api-key": token, "anthropic-version": "2023-06-01" });
			assert.deepEqual([unknown.status, unknown.json().error.type], [404, "not_found_error"]);
			assert.match(unknown.headers["request-id"], /^req_/);
			const openai = await post("/v1/nothing", {});
			assert.deepEqual([openai.status, openai.json().error.code], [404, "not_found"]);
			assert.match(openai.headers["x-request-id"], /^req_/);
		});
		test("a long body is read as a short one", async () => {
			const { json } = await post("/v1/messages", chat("word ".repeat(40000).trim(), { max_tokens: 3 }));
			assert.deepEqual([json().content[0].text, json().stop_reason], ["word word word", "max_tokens"]);
		});
		test("who waits for something to be told gets a ping", async () => {
			node.worker().manual = true;
			const events = [], stream = await anthropic.messages.create(chat("x", { stream: true })).asResponse();
			const reading = (async () => { for await (const piece of stream.body) events.push(Buffer.from(piece).toString()); })();
			await eventually(() => node.worker().requests.size, "it is asked");
			const [request] = node.worker().requests.keys();
			node.worker().tell("generate.delta", { request, tokens: [1], text: "<think>", syntax });
			const pings = () => events.join("").split("event: ping").length - 1;
			await eventually(() => {
				node.worker().say(request, "hm ");
				return pings() >= 2;
			}, "a second ping comes", 4 * patience);
			assert.doesNotMatch(events.join(""), /content_block/, "thoughts that nobody asked for are not told");
			node.worker().finish(request, "stop");
			await reading;
			assert.match(events.join(""), /"stop_reason":"end_turn"[^]*event: message_stop/);
		});
		test("an error in mid-stream is an event", async () => {
			node.worker().manual = true;
			const stream = anthropic.messages.stream(chat("x"));
			const failed = assert.rejects(stream.finalMessage(), (error) => error.error?.error?.type === "api_error" && /burnt/.test(error.error.error.message));
			await eventually(() => node.worker().requests.size, "it is asked");
			const [request] = node.worker().requests.keys();
			node.worker().finish(request, "failed", { error: "burnt" });
			await failed;
		});
	});
});

describe("/v1/messages and the engine", () => {
	let server, admin, anthropic;
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
		anthropic = new Anthropic({ apiKey: token, authToken: null, baseURL: server.url.href, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("what is counted is what is read", async () => {
		const asked = { model: "small", system: "s", tools: [weather], messages: [{ role: "user", content: "abc" },
			{ role: "assistant", content: [{ type: "tool_use", id: "abcdefgh1", name: "get_weather", input: { city: "Rome" } }] },
			{ role: "user", content: [{ type: "tool_result", tool_use_id: "abcdefgh1", content: "sunny" }] }] };
		const { input_tokens } = await anthropic.messages.countTokens(asked);
		const { usage } = await anthropic.messages.create({ ...asked, max_tokens: 1 });
		assert.equal(usage.input_tokens + usage.cache_read_input_tokens, input_tokens);
		const long = { model: "small", messages: [{ role: "user", content: "abc ".repeat(2000) }] };
		const counted = await anthropic.messages.countTokens(long);
		assert.ok(counted.input_tokens > 1024, "also of a prompt that is longer than the context");
		await assert.rejects(anthropic.messages.create({ ...long, max_tokens: 1 }), (error) => error.status === 400 &&
			error.error.error.message === `prompt is too long: ${counted.input_tokens} tokens > 1024 maximum`);
	});
	test("a demanded call is made, whole and as it comes", async () => {
		const ask = { model: "small", max_tokens: 300, temperature: 0, tools: [{ ...alarm, input_schema: { type: "object", properties: { on: { type: "boolean" } }, required: ["on"], additionalProperties: false } }],
			tool_choice: { type: "tool", name: "set-alarm", disable_parallel_tool_use: true }, messages: [{ role: "user", content: "abc" }] };
		const whole = await anthropic.messages.create(ask), streamed = await anthropic.messages.stream(ask).finalMessage();
		for (const { content, stop_reason } of [whole, streamed]) {
			assert.deepEqual([content.map((one) => [one.type, one.name, typeof one.input.on]), stop_reason], [[["tool_use", "set-alarm", "boolean"]], "tool_use"]);
		}
		assert.deepEqual(streamed.content[0].input, whole.content[0].input);
	});
});
