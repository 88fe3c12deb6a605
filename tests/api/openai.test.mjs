// /v1 as the `openai` package knows it, and as it is underneath. The worker is made here, so that what it says is known.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { connectRaw, eventually, launch, patience, slow, startServer, temporary, within } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const page = "https://chat.example.com";
const context = 65536;

describe("/v1", () => {
	let server, admin, node, model, token, openai;

	const client = (apiKey) => new OpenAI({ apiKey, baseURL: `${server.url}v1`, maxRetries: 0 });
	const make = async (name, scopes, more = {}) => admin.call("token.create", { name, scopes, expires_in_s: 3600, ...more });
	const post = (path, body, headers = {}) => server.http(path, { method: "POST",
		headers: { authorization: `Bearer ${token}`, "content-type": "application/json", ...headers },
		body: typeof body === "string" ? body : JSON.stringify(body) });
	const chat = (content, more = {}) => ({ model: "words", messages: [{ role: "user", content }], ...more });
	const asked = () => node.worker().calls.filter((one) => one.method.startsWith("generate.")).at(-1).params;
	const started = (count = 1) => eventually(() => node.worker().requests.size >= count, `${count} requests have come`);
	const entries = async (action) => (await admin.call("audit.list", { action, limit: 20 })).entries;
	// Read a stream that is under way: {status, next(pattern), destroy()}.
	const open = (path, body) => within(new Promise((resolve, reject) => {
		const request = http.request({ host: "127.0.0.1", port: server.port, path, method: "POST",
			headers: { authorization: `Bearer ${token}` } }, (response) => {
			const stream = { status: response.statusCode, headers: response.headers, text: "", request, response };
			response.setEncoding("utf8").on("data", (piece) => (stream.text += piece)).on("error", () => {});
			stream.next = (pattern) => eventually(() => pattern.test(stream.text), `${pattern} comes; came ${stream.text.slice(-300)}`);
			stream.ended = new Promise((done) => response.on("close", done));
			resolve(stream);
		});
		request.on("error", reject);
		request.end(JSON.stringify(body));
	}), `POST ${path} is answered`);

	before(async () => {
		server = await startServer({ args: ["--cors-origin", page] });
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		const folder = temporary();
		for (const [name, seed] of [["words", 1], ["other", 2]]) {
			writeFileSync(join(folder, `${name}.gguf`), modelFile({ seed, context }));
			await admin.call("model.add", { source: join(folder, `${name}.gguf`) });
		}
		model = await eventually(async () => {
			const { models } = await admin.call("model.list");
			return models.every((one) => one.state === "ready") && models.find((one) => one.name === "words");
		}, "the models are ready");
		await admin.call("instance.create", { model_id: model.model_id, context_tokens: context });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		({ token } = await make("infer", ["infer"]));
		openai = client(token);
	});
	afterEach(() => { node.worker().manual = false; });
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	describe("with the openai package", () => {
		test("models", async () => {
			const { data } = await openai.models.list();
			assert.deepEqual(data.map((one) => [one.id, one.object, one.loaded]), [["words", "model", true], ["other", "model", false]]);
			assert.equal((await openai.models.retrieve("words")).id, "words");
			await assert.rejects(openai.models.retrieve("nothing"), (error) => error.status === 404 && error.code === "model_not_found");
		});
		test("a chat, whole", async () => {
			const answer = await openai.chat.completions.create(chat("one two three", { temperature: 0.5, seed: 7, max_completion_tokens: 50 }));
			assert.deepEqual(answer.choices, [{ index: 0, message: { role: "assistant", content: "one two three", refusal: null }, logprobs: null,
				finish_reason: "stop" }]);
			assert.deepEqual(answer.usage, { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10, prompt_tokens_details: { cached_tokens: 2 } });
			assert.equal(answer.object, "chat.completion");
			const { owner, request, ...rest } = asked();
			assert.ok(owner > 0 && request > 0);
			assert.deepEqual(rest, { prompt: { messages: [{ role: "user", text: "one two three" }] }, talks: true, max_tokens: 50,
				sampling: { temperature: 0.5, seed: 7, top_k: 40, top_p: 0.95, min_p: 0.05, repetition_penalty: 1 } });
			assert.deepEqual(answer.sampling, { temperature: { value: 0.5, from: "request" }, top_k: { value: 40, from: "default" },
				top_p: { value: 0.95, from: "default" }, min_p: { value: 0.05, from: "default" }, repetition_penalty: { value: 1, from: "default" } });
		});
		test("a chat, as it comes", async () => {
			const chunks = [];
			for await (const chunk of await openai.chat.completions.create(chat("one two three", { stream: true, stream_options: { include_usage: true } })))
				chunks.push(chunk);
			const deltas = chunks.flatMap((one) => one.choices).map((one) => one.delta);
			assert.deepEqual(deltas[0], { role: "assistant", content: "" });
			assert.equal(deltas.map((one) => one.content ?? "").join(""), "one two three");
			for (const delta of deltas) assert.ok(!Object.values(delta).includes(null), JSON.stringify(delta));
			assert.equal(chunks.at(-2).choices[0].finish_reason, "stop");
			assert.deepEqual(chunks.map((one) => one.sampling?.temperature), [...chunks.slice(2).map(() => undefined), { value: 0.8, from: "default" }, undefined]);
			assert.equal(asked().max_tokens, 4096, "an answer is bounded where nobody says how long it may be");
			assert.deepEqual(chunks.at(-1).choices, []);
			assert.equal(chunks.at(-1).usage.completion_tokens, 3);
			assert.equal(new Set(chunks.map((one) => one.id)).size, 1);
		});
		test("its helper for streams", async () => {
			const runner = openai.chat.completions.stream(chat("four five"));
			assert.equal(await runner.finalContent(), "four five");
		});
		test("log-probabilities, stop, and length", async () => {
			const answer = await openai.chat.completions.create(chat("one two", { logprobs: true, top_logprobs: 2 }));
			const [first] = answer.choices[0].logprobs.content;
			assert.deepEqual([first.token, first.logprob, first.bytes], ["one", -0.5, [111, 110, 101]]);
			assert.deepEqual(first.top_logprobs[1], { token: "bytes:\\xff", logprob: -1.5, bytes: [255] });
			const stopped = await openai.chat.completions.create(chat("one two three", { stop: ["three", "x"] }));
			assert.deepEqual([stopped.choices[0].message.content, asked().stop], ["one two", ["three", "x"]]);
			const cut = await openai.chat.completions.create(chat("one two three", { max_tokens: 1, logit_bias: { 5: -100 } }));
			assert.equal(cut.choices[0].finish_reason, "length");
			assert.deepEqual(asked().sampling.logit_bias, [{ token: 5, bias: -100 }]);
		});
		test("tokens that a text foresees are asked for by request", async () => {
			for (const speculate of [true, false, undefined]) {
				await openai.completions.create({ model: "words", prompt: "one two", speculate });
				assert.equal(asked().speculate, speculate || undefined);
			}
			await assert.rejects(openai.completions.create({ model: "words", prompt: "one", speculate: 1 }), /speculate/);
		});
		test("completions", async () => {
			const answer = await openai.completions.create({ model: "words", prompt: "one tw\u00f6 three", logprobs: 1 });
			assert.equal(answer.choices[0].text, "one tw\u00f6 three");
			assert.deepEqual(answer.choices[0].logprobs.tokens, ["one", " tw\u00f6", " three"]);
			assert.deepEqual(answer.choices[0].logprobs.text_offset, [0, 3, 7]);
			assert.equal(asked().max_tokens, 16);
			const echoed = await openai.completions.create({ model: "words", prompt: "one two", echo: true });
			assert.equal(echoed.choices[0].text, "one twoone two");
			const tokens = await openai.completions.create({ model: "words", prompt: [1, 2, 3], max_tokens: 9 });
			assert.equal(tokens.choices[0].text, "1 2 3");
			let text = "";
			for await (const chunk of await openai.completions.create({ model: "words", prompt: ["a b c"], stream: true })) text += chunk.choices[0].text;
			assert.equal(text, "a b c");
		});
		test("embeddings", async () => {
			for (const encoding_format of [undefined, "float", "base64"]) {
				const answer = await openai.embeddings.create({ model: "words", input: ["one", "two"], encoding_format });
				assert.deepEqual(answer.data.map((one) => one.index), [0, 1]);
				const [{ embedding }] = answer.data;
				assert.deepEqual(encoding_format === "base64" ? embedding : [...embedding],
					encoding_format === "base64" ? Buffer.from(new Float32Array([0.5, -0.25, 0.125, 0]).buffer).toString("base64") : [0.5, -0.25, 0.125, 0]);
				assert.deepEqual(answer.usage, { prompt_tokens: 6, total_tokens: 6 });
			}
			await openai.embeddings.create({ model: "words", input: [1, 2] });
			assert.deepEqual(asked().prompt, { tokens: [1, 2] });
		});
		test("embeddings of many inputs are asked for side by side, and come in order", async () => {
			const worker = node.worker(), held = [], input = Array.from({ length: 40 }, (_, i) => `text ${i}`);
			const answer = (id, text) => worker.send({ jsonrpc: "2.0", id, result: { embedding: [Number(text.split(" ")[1]), 0.5], prompt_tokens: 2 } });
			worker.answers["generate.embed"] = (params, body, id) => { held.push([id, params.prompt.text]); return null; };
			const all = openai.embeddings.create({ model: "words", input, encoding_format: "float" });
			await eventually(() => held.length === 16, "so many at once");
			const asked = [];
			while (asked.length < 40) {
				await eventually(() => held.length, "more are asked for");
				const [id, text] = held.pop(); // the newest first
				asked.push(text);
				answer(id, text);
			}
			const { data, usage } = await all;
			assert.deepEqual(data.map((one) => [one.index, ...one.embedding]), input.map((_, i) => [i, i, 0.5]));
			assert.deepEqual([usage.prompt_tokens, new Set(asked).size], [80, 40]);
			const refused = openai.embeddings.create({ model: "words", input });
			const thrown = assert.rejects(refused, (error) => error.status === 400 && /too long/.test(error.message));
			await eventually(() => held.length === 16, "they are asked for");
			worker.send({ jsonrpc: "2.0", id: held[7][0], error: { code: -32602, message: "too long", data: { reason: "invalid_params", hint: null } } });
			await thrown;
			held.forEach(([id, text], i) => i !== 7 && answer(id, text)); // nobody waits for these
			held.length = 0;
			const made = await make("short", ["infer"]);
			const revoked = assert.rejects(client(made.token).embeddings.create({ model: "words", input }), (error) => error.status === 401);
			await eventually(() => held.length === 16, "they are asked for");
			await admin.call("token.revoke", { token_id: made.token_id });
			await revoked;
			held.forEach(([id, text]) => answer(id, text));
			delete worker.answers["generate.embed"];
			assert.equal((await openai.embeddings.create({ model: "words", input: "one" })).data.length, 1);
		});
		test("content in parts, and every role", async () => {
			await openai.chat.completions.create({ model: "words", messages: [{ role: "developer", content: "be brief" },
				{ role: "user", content: [{ type: "text", text: "one " }, { type: "text", text: "two" }] }, { role: "assistant", content: "so" },
				{ role: "user", content: "on" }] });
			assert.deepEqual(asked().prompt.messages, [{ role: "system", text: "be brief" }, { role: "user", text: "one two" },
				{ role: "assistant", text: "so" }, { role: "user", text: "on" }]);
		});
		test("answers that are sent back, with all that they had, and names", async () => {
			const { choices: [{ message }] } = await openai.chat.completions.create(chat("one"));
			await openai.chat.completions.create({ model: "words", messages: [{ role: "user", content: "x", name: "ann" },
				{ ...message, annotations: [], audio: null, function_call: null, tool_calls: [] }, { role: "user", content: "on" }] });
			assert.deepEqual(asked().prompt.messages.map((one) => one.text), ["x", "one", "on"]);
		});
		test("extensions, and seeds of 64 bits", async () => {
			await openai.chat.completions.create(chat("x", { top_k: 40, min_p: 0.05, repetition_penalty: 1.1, seed: -1, user: "me", metadata: { a: "b" } }));
			const { sampling } = asked();
			assert.deepEqual(sampling, { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, repetition_penalty: 1.1, seed: 2 ** 53 - 1 });
			await openai.chat.completions.create(chat("x"));
			const one = asked().sampling.seed;
			await openai.chat.completions.create(chat("x"));
			assert.notEqual(asked().sampling.seed, one, "another draw each time");
		});
		test("errors have their class", async () => {
			const rejects = (promise, type, status, pattern) => assert.rejects(promise, (error) => {
				assert.ok(error instanceof type, `${error.constructor.name}: ${error.message}`);
				assert.equal(error.status, status);
				assert.match(error.message, pattern);
				return true;
			});
			await rejects(client("exo_nothing").chat.completions.create(chat("x")), OpenAI.AuthenticationError, 401, /token/);
			await rejects(openai.chat.completions.create({ ...chat("x"), model: "none" }), OpenAI.NotFoundError, 404, /no model none/);
			await rejects(openai.chat.completions.create({ ...chat("x"), model: "other" }), OpenAI.InternalServerError, 503, /exogpu place other/);
			await rejects(openai.chat.completions.create(chat("x", { audio: {} })), OpenAI.BadRequestError, 400, /audio is not supported/);
			const observer = await make("observer", ["observe"]);
			await rejects(client(observer.token).models.list(), OpenAI.PermissionDeniedError, 403, /infer/);
			const slow = await make("slow", ["infer"], { calls_per_s: 1 });
			await rejects(Promise.all(Array.from({ length: 8 }, () => client(slow.token).models.list())), OpenAI.RateLimitError, 429, /./);
		});
		test("a prompt that is too long for the model has OpenAI's code", async () => {
			const worker = node.worker();
			for (const method of ["generate.start", "generate.embed"])
				worker.answers[method] = () => ({ error: { code: -32006, message: "the prompt has 9000 tokens; the context holds 4096",
					data: { reason: "limit_exceeded", hint: "shorten it" } } });
			for (const [asked, param] of [[() => openai.chat.completions.create(chat("x", { stream: true })), "messages"],
				[() => openai.chat.completions.create(chat("x")), "messages"], [() => openai.completions.create({ model: "words", prompt: "x" }), "prompt"],
				[() => openai.embeddings.create({ model: "words", input: ["x", "y"] }), "input"]])
				await assert.rejects(asked(), (error) => {
					assert.ok(error instanceof OpenAI.BadRequestError, error.message);
					assert.deepEqual([error.status, error.code, error.param, error.type], [400, "context_length_exceeded", param, "invalid_request_error"]);
					assert.match(error.message, /9000 tokens.*shorten it/);
					return true;
				});
			for (const method of ["generate.start", "generate.embed"]) delete worker.answers[method];
		});
		test("what only the worker can tell to be wrong is named, too", async () => {
			const worker = node.worker();
			for (const [message, param] of [["a bias is for token 99999, outside the vocabulary of 300", "logit_bias"],
				["enable_thinking is not known to it (chat template chatml)", "chat_template_kwargs"],
				["the form of the answer: the keyword not at #/ cannot be kept", "response_format"], ["a message has no text", "messages"]]) {
				worker.answers["generate.start"] = () => ({ error: { code: -32602, message, data: { reason: "invalid_params", hint: null } } });
				const { status, json } = await post("/v1/chat/completions", chat("x"));
				assert.deepEqual([status, json().error.param], [400, param], message);
			}
			delete worker.answers["generate.start"];
		});
	});

	describe("underneath", () => {
		test("what is not done is refused by name", async () => {
			for (const [more, param] of [[{ n: 0 }, "n"], [{ n: 129 }, "n"], [{ n: 1.5 }, "n"], [{ tools: [{ type: "function" }] }, "tools"], ...[{ type: "xml" }, {}, "json_object", { type: "json_object", schema: {} },
					{ type: "json_schema" }, { type: "json_schema", json_schema: {} }, { type: "json_schema", json_schema: { name: "a", schema: 1 } },
					{ type: "json_schema", json_schema: { name: "a", schema: {}, strict: "yes" } }, { type: "json_schema", json_schema: { name: 1, schema: {} } },
					{ type: "grammar" }, { type: "grammar", grammar: 1 }, { type: "regex", regex: ["a"] }, { type: "regex", regex: "a".repeat(262145) }]
					.map((one) => [{ response_format: one }, "response_format"]),
				[{ audio: {} }, "audio"], [{ modalities: ["audio"] }, "modalities"], [{ temperature: 3 }, "temperature"], [{ temperature: "1" }, "temperature"],
				[{ top_p: -1 }, "top_p"], [{ stop: [1] }, "stop"], [{ stop: Array(17).fill("a") }, "stop"], [{ logit_bias: { a: 1 } }, "logit_bias"],
				[{ logit_bias: { 1: 101 } }, "logit_bias"], [{ max_tokens: 0 }, "max_tokens"], [{ max_tokens: 1.5 }, "max_tokens"],
				[{ top_logprobs: 3 }, "top_logprobs"], [{ stream: "yes" }, "stream"], [{ stream_options: { include_usage: true } }, "stream_options"],
				[{ seed: 1.5 }, "seed"], [{ messages: [] }, "messages"], [{ messages: [{ role: "robot", content: "x" }] }, "messages"],
				[{ messages: [{ role: "user", content: [{ type: "image_url" }] }] }, "messages"], [{ messages: [{ role: "user" }] }, "messages"],
				...[{ unheard_of: 1 }, { name: 5 }, { tool_calls: [] }, { refusal: "no" }, { content: [{ type: "text", text: "x", unheard_of: 1 }] }]
					.map((more) => [{ messages: [{ role: "user", content: "x", ...more }] }, "messages"]),
				...[{ tool_calls: [{}] }, { tool_calls: "x" }, { function_call: {} }, { audio: {} }, { annotations: 1 }]
					.map((more) => [{ messages: [{ role: "assistant", content: "x", ...more }] }, "messages"]),
				[{ model: "" }, "model"], [{ prompt: "x" }, "prompt"], [{ unheard_of: 1 }, "unheard_of"], [{ ["x".repeat(65)]: 1 }, null]]) {
				const { status, json } = await post("/v1/chat/completions", { ...chat("x"), ...more });
				assert.deepEqual([status, json().error.param, json().error.type], [400, param, "invalid_request_error"], JSON.stringify(more));
			}
			for (const body of ["", "{", "[]", "null", "{\"model\":\"words\"}", "\u0000", "{\"model\":\"words\",\"model\":\"words\"}"])
				assert.equal((await post("/v1/chat/completions", body)).status, 400, JSON.stringify(body));
			for (const [more, param] of [[{ prompt: ["a", 5] }, "prompt"], [{ prompt: Array(129).fill("a") }, "prompt"], [{ prompt: Array(65).fill("a"), n: 2 }, "n"], [{ best_of: 2 }, "best_of"],
				[{ n: 2, best_of: 3 }, "best_of"], [{ prompt: ["a", [1]], suffix: "b" }, "suffix"]])
				assert.equal((await post("/v1/completions", { model: "words", prompt: "a", ...more })).json().error?.param, param, JSON.stringify(more));
			for (const more of [{ prompt: [1, 2], suffix: "b" }, { suffix: 5 }, { suffix: "b", echo: true }])
				assert.equal((await post("/v1/completions", { model: "words", prompt: "a", ...more })).json().error.param, "suffix", JSON.stringify(more));
			assert.equal((await post("/v1/embeddings", { model: "words", input: [] })).json().error.param, "input");
			assert.equal((await post("/v1/chat/completions", { ...chat("x"), tools: [], n: 1, temperature: null })).status, 200);
		});
		test("addresses and methods", async () => {
			assert.equal((await post("/v1/images/generations", {})).status, 404);
			assert.equal((await server.http("/v1/chat/completions", { headers: { authorization: `Bearer ${token}` } })).status, 404);
			assert.equal((await server.http("/v1/models")).status, 401);
			assert.equal((await post("/healthz", {})).status, 405);
			assert.equal((await server.http("/v1/models", { unix: true })).status, 200, "the machine's owner");
		});
		test("bodies: their length is said, and bounded", async () => {
			const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${token}\r\n`;
			assert.match(await connectRaw(server, `${head}Content-Length: 99999999\r\n\r\n`).until(/may have/), /^HTTP\/1.1 413/);
			assert.match(await connectRaw(server, `${head}Content-Length: 2200000\r\n\r\n`).until(/too_large/), /^HTTP\/1.1 413/);
		});
		test("a connection is used again", async () => {
			const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
			const ports = new Set();
			for (const stream of [false, true, false]) {
				const { port, status } = await server.http("/v1/chat/completions", { method: "POST", agent,
					headers: { authorization: `Bearer ${token}` }, body: JSON.stringify(chat("a b", { stream })) });
				assert.equal(status, 200);
				ports.add(port);
			}
			ports.add((await server.http("/healthz", { agent })).port);
			agent.destroy();
			assert.equal(ports.size, 1);
		});
		test("pages of other origins: those that the operator named", async () => {
			const asks = (origin) => server.http("/v1/chat/completions", { method: "OPTIONS", headers: { origin, "access-control-request-method": "POST" } });
			const good = await asks(page), bad = await asks("https://evil.example");
			assert.deepEqual([good.status, good.headers["access-control-allow-origin"]], [204, page]);
			for (const name of ["authorization", "content-type", "openai-organization", "openai-project", "x-stainless-lang", "x-api-key", "anthropic-version", "traceparent"])
				assert.ok(good.headers["access-control-allow-headers"].split(", ").includes(name), name);
			assert.deepEqual([bad.status, bad.headers["access-control-allow-origin"]], [403, undefined]);
			assert.deepEqual([good.headers.vary, bad.headers.vary], ["origin", "origin"], "what a cache keeps is for one origin");
			assert.equal((await post("/v1/chat/completions", "{")).headers.vary, "origin", "also of an answer to no page");
			const answer = await post("/v1/chat/completions", chat("x"), { origin: page });
			assert.equal(answer.headers["access-control-allow-origin"], page);
			for (const origin of ["https://evil.example", "null", `${page}.evil.example`]) {
				const refused = await post("/v1/chat/completions", chat("x"), { origin });
				assert.deepEqual([refused.status, refused.headers["access-control-allow-origin"]], [403, undefined], origin);
				const listed = await server.http("/v1/models", { headers: { origin, authorization: `Bearer ${server.token}` } });
				assert.equal(listed.status, 403, origin);
			}
			const own = await server.http("/v1/models", { headers: { origin: `http://127.0.0.1:${server.port}`, host: `127.0.0.1:${server.port}`, authorization: `Bearer ${server.token}` } });
			assert.equal(own.status, 200, "this server's own page");
		});
		test("events come as they are said", async () => {
			node.worker().manual = true;
			const stream = await open("/v1/chat/completions", chat("x", { stream: true }));
			assert.match(stream.headers["content-type"], /^text\/event-stream/);
			await started();
			const [request] = node.worker().requests.keys();
			for (const word of ["first", "second"]) {
				node.worker().say(request, word);
				await stream.next(new RegExp(`"content":"${word}"`));
			}
			node.worker().finish(request, "stop");
			await stream.next(/data: \[DONE\]\n\n$/);
		});
		for (const streams of [true, false])
			test(`a client that goes ends its request${streams ? ", in mid-stream" : ""}`, async () => {
				node.worker().manual = true;
				const request = http.request({ host: "127.0.0.1", port: server.port, path: "/v1/chat/completions", method: "POST",
					headers: { authorization: `Bearer ${token}` } }).on("error", () => {});
				request.end(JSON.stringify(chat("x", { stream: streams })));
				await started();
				request.destroy();
				await eventually(() => node.worker().requests.size === 0, "it is cancelled");
				const cancelled = await eventually(async () => (await entries("infer.chat")).find((one) => one.detail.reason === "cancelled"), "it is on record");
				assert.equal(cancelled.target, "words");
			});
		test("choices multiply what a request takes: so much of it is refused", async () => {
			const large = "x".repeat(1 << 20);
			for (const [path, body, param] of [["/v1/chat/completions", chat(large, { n: 17 }), "n"],
				["/v1/completions", { model: "words", prompt: large, n: 17 }, "n"],
				["/v1/completions", { model: "words", prompt: Array(17).fill("a"), user: large }, "prompt"]]) {
				const { status, json } = await post(path, body), { error } = json();
				assert.deepEqual([status, error.param], [400, param], error.message);
				assert.match(error.message, /copied for each/);
			}
			const list = await post("/v1/completions", { model: "words", prompt: Array(32).fill("x".repeat(32768)), max_tokens: 1 });
			assert.deepEqual([list.status, list.json().choices?.length], [200, 32], "each choice has its own prompt alone");
		});
		test("an answer that is longer than one may be is an error, which says so", async () => {
			const piece = "\u0001".repeat(100000), pieces = 30; // of 6 bytes each, as JSON
			node.worker().manual = true;
			const asked = post("/v1/chat/completions", chat("x"));
			await started();
			const [request] = node.worker().requests.keys();
			for (let i = 0; i < pieces; i++) node.worker().say(request, piece);
			node.worker().finish(request, "stop");
			const { status, json } = await asked;
			assert.deepEqual([status, json().error.code], [413, "too_large"]);
			assert.match(json().error.message, /longer than 16777216 bytes.*stream/);
		});
		test("a client that goes ends all choices that it asked for; one that fails ends the others, and the answer", async () => {
			node.worker().manual = true;
			const request = http.request({ host: "127.0.0.1", port: server.port, path: "/v1/chat/completions", method: "POST",
				headers: { authorization: `Bearer ${token}` } }).on("error", () => {});
			request.end(JSON.stringify(chat("x", { n: 3 })));
			await eventually(() => node.worker().requests.size === 3, "all are asked for");
			request.destroy();
			await eventually(() => node.worker().requests.size === 0, "all are cancelled");
			const asked = post("/v1/chat/completions", chat("x", { n: 3 }));
			await eventually(() => node.worker().requests.size === 3, "all are asked for");
			node.worker().finish([...node.worker().requests.keys()][1], "failed", { error: "it broke" });
			const { status, json } = await asked;
			assert.ok(status >= 500 && json().error.message, `${status}`);
			await eventually(() => node.worker().requests.size === 0, "the others are cancelled");
			node.worker().manual = false;
		});
		test("a client that does not take its answer costs no memory, and loses nothing", async () => {
			node.worker().manual = true;
			const stream = await open("/v1/chat/completions", chat("x", { stream: true }));
			await started();
			const [request] = node.worker().requests.keys();
			stream.response.pause();
			const before = server.residentBytes(), words = 60000;
			for (let i = 0; i < words; i++) {
				node.worker().say(request, `word${i} `);
				if (i % 2000 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
			}
			node.worker().finish(request, "stop");
			await eventually(() => node.worker().requests.size === 0, "it has all been said");
			stream.response.resume();
			await within(stream.ended, "the answer ends", 4 * patience);
			const text = stream.text.split("\n").filter((line) => line.startsWith("data: {")).map((line) => JSON.parse(line.slice(6)))
				.map((one) => one.choices[0].delta.content ?? "").join("");
			assert.equal(text, Array.from({ length: words }, (_, i) => `word${i} `).join(""));
			assert.ok(server.residentBytes() - before < 64e6, `${server.residentBytes() - before} bytes more`);
		});
		test("a worker that ends: requests under way go on behind what was delivered", async () => {
			const died = node.worker();
			died.manual = true;
			const stream = await open("/v1/chat/completions", chat("one two three four", { stream: true }));
			const whole = post("/v1/chat/completions", chat("five six"));
			await started(2);
			const [first, second] = [...died.requests.values()].map((one) => one.params);
			died.say(first.request, "one");
			died.say(first.request, " two");
			await stream.next(/two/);
			died.kill();
			await stream.next(/\[DONE\]/);
			const text = stream.text.split("\n").filter((line) => line.startsWith("data: {")).map((line) => JSON.parse(line.slice(6)))
				.map((one) => one.choices[0]?.delta.content ?? "").join("");
			assert.equal(text, "one two three four");
			const { status, json } = await whole;
			assert.deepEqual([status, json().choices[0].message.content], [200, "five six"]);
			const again = node.worker().calls.filter((one) => one.method === "generate.start").map((one) => one.params);
			assert.notEqual(node.worker(), died);
			assert.deepEqual(again.map((one) => [one.request, one.generated, one.delivered_bytes]),
				[[first.request, [3, 4], 7], [second.request, undefined, undefined]], "in the order in which they came");
			assert.deepEqual(again.map((one) => one.sampling.seed), [first.sampling.seed, second.sampling.seed]);
			assert.ok(Number.isInteger(first.sampling.seed) && first.sampling.seed !== second.sampling.seed);
		});
		test("one that is cancelled while its instance is paused is started no more", async () => {
			node.worker().manual = true;
			const stream = await open("/v1/chat/completions", chat("a b", { stream: true }));
			const other = post("/v1/chat/completions", chat("c d"));
			await started(2);
			const held = [];
			node.open = (message) => held.push(message);
			node.worker().kill();
			await eventually(async () => (await admin.call("instance.list")).instances[0].state === "paused" && held.length, "it is paused");
			const waiting = post("/v1/chat/completions", chat("e f"));
			stream.request.destroy();
			await eventually(async () => (await admin.call("audit.list", { limit: 20 })).entries.filter((one) => one.action === "infer.chat")
				.some((one) => one.detail.generated_tokens === 0), "the cancelled one is on record", 15000 * slow);
			node.open = undefined;
			held.forEach((message) => node.receiveRequest(message));
			assert.equal((await other).json().choices[0].message.content, "c d");
			assert.equal((await waiting).json().choices[0].message.content, "e f");
			assert.equal(node.worker().calls.filter((one) => one.method === "generate.start").length, 2);
		});
		test("a worker that ends again and again: requests under way say so", async () => {
			const instance = async () => (await admin.call("instance.list")).instances[0];
			let last, failed = false;
			for (let deaths = 0; !failed; deaths++) {
				assert.ok(deaths < 3, `it goes on after ${deaths} deaths`);
				const worker = node.worker();
				worker.manual = true;
				last = post("/v1/chat/completions", chat("x"));
				await eventually(() => worker.calls.at(-1)?.method === "generate.start", "it has begun");
				worker.kill();
				failed = await eventually(async () => (node.worker() !== worker && "no") || (await instance()).state === "failed" && "yes",
					"another worker comes, or none any more") === "yes";
			}
			const { status, json } = await last;
			assert.deepEqual([status, json().error.code], [503, "device_lost"]);
			const later = await post("/v1/chat/completions", chat("x"));
			assert.equal(later.status, 503);
			assert.match(later.json().error.message, /exogpu place words/);
			await admin.call("instance.create", { model_id: model.model_id });
			await eventually(async () => (await instance())?.state === "running", "it is ready again");
		});
		test("a token that is revoked ends its requests", async () => {
			node.worker().manual = true;
			const made = await make("short", ["infer"]);
			const whole = post("/v1/chat/completions", chat("x"), { authorization: `Bearer ${made.token}` });
			await started();
			await admin.call("token.revoke", { token_id: made.token_id });
			assert.equal((await whole).status, 401);
			const again = await post("/v1/chat/completions", chat("x"), { authorization: `Bearer ${made.token}` });
			assert.match(again.json().error.message, /exogpu token create --name NAME --scopes infer$/);
			await eventually(() => node.worker().requests.size === 0, "it is cancelled");
		});
		test("a token that is revoked while its request is on the way is refused", async () => {
			const made = await make("short", ["infer"]), body = JSON.stringify(chat("x")), calls = node.worker().calls.length;
			const raw = connectRaw(server, `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${made.token}\r\n` +
				`Content-Length: ${body.length}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n`);
			await raw.until(/^HTTP\/1.1 100 /); // its headers are admitted
			await admin.call("token.revoke", { token_id: made.token_id });
			raw.socket.write(body);
			await raw.until(/HTTP\/1.1 401 [^]*www-authenticate[^]*this token was revoked/i);
			raw.socket.destroy();
			assert.equal(node.worker().calls.length, calls, "no worker was asked");
		});
		test("tokens share no prefixes with each other", async () => {
			const made = await make("another", ["infer"]);
			await post("/v1/chat/completions", chat("x"));
			const { owner } = asked();
			await post("/v1/chat/completions", chat("x"));
			assert.equal(asked().owner, owner);
			await post("/v1/chat/completions", chat("x"), { authorization: `Bearer ${made.token}` });
			assert.notEqual(asked().owner, owner);
		});
		test("200 at once", async () => {
			const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => post("/v1/chat/completions", chat(`number ${i}`, { stream: i % 2 === 0 }))));
			assert.deepEqual([...new Set(answers.map((one) => one.status))], [200]);
		});
		test("more than the line takes: 429, and when to come again", async () => {
			node.worker().manual = true;
			const many = Array.from({ length: 400 }, () => post("/v1/chat/completions", chat("x")));
			const refused = await Promise.race(many.map((one) => one.then((answer) => (answer.status === 429 ? answer : new Promise(() => {})))));
			assert.ok(Number(refused.headers["retry-after"]) > 0);
			let answered = 0; // others may still be on their way when the first is refused
			for (const one of many) one.then(() => answered++);
			await eventually(() => {
				for (const request of [...node.worker().requests.keys()]) node.worker().finish(request, "stop");
				return answered === many.length;
			}, "all are answered", 4 * patience);
		});
		test("each request is an entry, without its words", async () => {
			const secret = "neverinthelog";
			await post("/v1/chat/completions", chat(`${secret} two`));
			const entry = await eventually(async () => (await entries("infer.chat")).find((one) => one.outcome === "ok" && one.detail.generated_tokens === 2), "an entry");
			assert.deepEqual([entry.target, entry.outcome, entry.device_id, entry.detail.model, entry.detail.prompt_tokens, entry.detail.generated_tokens],
				["words", "ok", "dev_gpu", "words", 7, 2]);
			assert.match(entry.actor, /^token:/);
			assert.ok(entry.duration_ms > 0);
			assert.doesNotMatch(JSON.stringify(await entries("infer.chat")) + server.output.stderr, new RegExp(secret));
		});
		test("exogpu run waits for an instance that is being loaded, and makes no second one", async () => {
			const held = [], instances = async () => (await admin.call("instance.list")).instances;
			node.open = (message) => held.push(message);
			const other = (await admin.call("model.list")).models.find((one) => one.name === "other");
			const { instance_id } = await admin.call("instance.create", { model_id: other.model_id });
			const asking = launch(["run", "other", "one two", "--data", server.data]);
			await eventually(() => held.length && /being loaded already: other/.test(asking.output.stderr), "it waits");
			node.open = undefined;
			held.forEach((message) => node.receiveRequest(message));
			assert.equal((await within(asking.exited, "it has its answer")).stdout, "one two\n");
			assert.equal((await instances()).filter((one) => one.model_id === other.model_id).length, 1);
			await admin.call("instance.delete", { instance_id });
		});
	});
});
