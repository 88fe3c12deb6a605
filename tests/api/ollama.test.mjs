// Ollama's API as the `ollama` package knows it, and as it is underneath: with a token at the server's own address, and
// without one at the listener of --ollama. The worker is made here, so that what it says is known.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { Hub, sha256 } from "./hub.mjs";
import { eventually, patience, run, startServer, temporary, within } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const syntax = { calls: "hermes", thoughts: "think", opened: false };
const weather = { type: "function", function: { name: "get_weather", description: "The weather.", parameters: { type: "object", properties: { city: { type: "string" } } } } };

describe("Ollama's API", () => {
	let server, admin, node, token, token_id, ollama, open, door, hub;

	const post = (path, body, headers = { authorization: `Bearer ${token}` }) => server.http(path, { method: "POST",
		headers: { "content-type": "application/json", ...headers }, body: typeof body === "string" ? body : JSON.stringify(body) });
	const chat = (content, more = {}) => ({ model: "words", messages: [{ role: "user", content }], ...more });
	const asked = () => node.worker().calls.filter((one) => one.method.startsWith("generate.")).at(-1).params;
	const collect = async (stream) => {
		const parts = [];
		for await (const part of await stream) parts.push(part);
		return parts;
	};
	const says = (texts, end) => node.worker().says(texts, syntax, end);
	const call = (name, input) => `<tool_call>\n${JSON.stringify({ name, arguments: input })}\n</tool_call>`;

	before(async () => {
		hub = await Hub.start();
		server = await startServer({ args: ["--ollama-url", hub.url, "--ollama", "clients", "--ollama-listen", "127.0.0.1:0", "--cors-origin", "https://chat.example"] });
		[, open] = /^ollama: (http:\/\/127\.0\.0\.1:\d+)$/m.exec(server.output.stdout);
		door = (path, { method = "GET", headers = {}, body } = {}) => within(new Promise((resolve, reject) => {
			http.request(new URL(path, open), { method, headers }, (incoming) => {
				let text = "";
				incoming.setEncoding("utf8").on("data", (piece) => (text += piece)).on("end", () => resolve({ status: incoming.statusCode, headers: incoming.headers, text, json: () => JSON.parse(text) }));
			}).on("error", reject).end(body);
		}), `${method} ${path} is answered`);
		admin = await Client.login(server);
		assert.equal((await door("/api/tags")).status, 401, "before there is such a token nobody is let in");
		({ token, token_id } = await admin.call("token.create", { name: "clients", scopes: ["infer"], expires_in_s: 3600 }));
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		const source = join(temporary(), "words.gguf");
		writeFileSync(source, modelFile({ context: 65536 }));
		await admin.call("model.add", { source });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await admin.call("instance.create", { model_id: model.model_id, context_tokens: 65536 });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		ollama = new Ollama({ host: open });
	});
	afterEach(() => {
		node.worker().manual = false;
		delete node.worker().answers["generate.start"];
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		hub?.stop();
		assertContractKept();
	});

	describe("with the package", () => {
		test("models", async () => {
			const { models: [tag, ...others] } = await ollama.list(), { models: [running] } = await ollama.ps();
			const [{ sha256, file_bytes, added_at, architecture }] = (await admin.call("model.list")).models;
			assert.deepEqual([tag, others], [{ name: "words", model: "words", modified_at: added_at, size: file_bytes, digest: sha256 ?? "", details: { parent_model: "", format: "gguf",
				family: architecture.family, families: [architecture.family], parameter_size: tag.details.parameter_size, quantization_level: architecture.file_format } }, []]);
			assert.match(tag.details.parameter_size, /^\d+\.\d+[MB]$/);
			const { instances: [{ stages, context_tokens }] } = await admin.call("instance.list");
			const bytes = stages.reduce((sum, one) => sum + one.weights_bytes + one.kv_bytes + one.workspace_bytes + one.host_bytes, 0);
			const { devices } = await admin.call("cluster.snapshot");
			const gpu = devices.find((one) => one.device_id === stages[0].device_id).backend !== "cpu";
			assert.deepEqual([running.name, running.size, running.size_vram, running.context_length, running.expires_at], ["words", bytes, gpu ? bytes - stages[0].host_bytes : 0, context_tokens, null]);
			const { capabilities, model_info, details } = await ollama.show({ model: "words:latest" });
			assert.deepEqual([capabilities, details.format], [["completion", "tools"], "gguf"]);
			assert.equal(model_info[`${architecture.family}.context_length`], architecture.context_tokens);
			assert.match((await ollama.version()).version, /^\d+\.\d+\.\d+/);
			await assert.rejects(ollama.show({ model: "none" }), /no model none/);
		});
		test("a chat, whole and as it comes", async () => {
			const options = { temperature: 0.5, top_k: 5, top_p: 0.9, min_p: 0.1, seed: 42, num_predict: 100, num_ctx: 4096, repeat_penalty: 1.1, stop: ["END"] };
			const { created_at, ...whole } = await ollama.chat(chat("one two three", { options, keep_alive: "5m" }));
			assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 3600e3);
			assert.deepEqual(whole, { model: "words", message: { role: "assistant", content: "one two three" }, done: true, done_reason: "stop", load_duration: 0,
				prompt_eval_duration: 1e6, eval_duration: 2e6, total_duration: 3e6, prompt_eval_count: 7, eval_count: 3 });
			const { prompt, max_tokens, sampling, stop, talks } = asked();
			assert.deepEqual({ prompt, max_tokens, stop, talks, ...sampling }, { prompt: { messages: [{ role: "user", text: "one two three" }] }, max_tokens: 100, stop: ["END"], talks: true,
				temperature: 0.5, top_k: 5, top_p: 0.9, min_p: 0.1, seed: 42, repetition_penalty: 1.1 });
			const parts = await collect(ollama.chat(chat("one two", { stream: true })));
			assert.equal(parts.map(({ message }) => message.content).join(""), "one two");
			assert.deepEqual(parts.map(({ done }) => done), [...Array(parts.length - 1).fill(false), true]);
			assert.equal(asked().max_tokens, 32768);
		});
		test("tokens that a text foresees are asked for by an option, and told with the durations", async () => {
			for (const speculate of [true, false, undefined]) {
				await ollama.chat(chat("one two", { options: { speculate } }));
				assert.equal(asked().speculate, speculate || undefined);
			}
			says(["one"], { proposed_tokens: 5, accepted_tokens: 3 });
			const foreseen = ({ eval_count, accepted_prediction_count, rejected_prediction_count }) => [eval_count, accepted_prediction_count, rejected_prediction_count];
			assert.deepEqual(foreseen(await ollama.chat(chat("one"))), [1, 3, 2]);
			assert.deepEqual(foreseen((await collect(ollama.generate({ model: "words", prompt: "one", stream: true }))).at(-1)), [1, 3, 2]);
		});
		test("what is sent without stream comes as lines", async () => {
			const { headers, text } = await door("/api/chat", { method: "POST", body: JSON.stringify(chat("one two")) });
			assert.match(headers["content-type"], /^application\/x-ndjson/);
			const lines = text.trim().split("\n").map((line) => JSON.parse(line));
			assert.ok(lines.length > 1 && lines.at(-1).done && text.endsWith("\n"));
			assert.match((await door("/api/chat", { method: "POST", body: JSON.stringify(chat("one", { stream: false })) })).headers["content-type"], /^application\/json/);
		});
		test("a prompt", async () => {
			const { response, done_reason } = await ollama.generate({ model: "words", prompt: "one two three", system: "be brief", options: { num_predict: 2 } });
			assert.deepEqual([response, done_reason, asked().prompt], ["one two", "length", { messages: [{ role: "system", text: "be brief" }, { role: "user", text: "one two three" }] }]);
			const parts = await collect(ollama.generate({ model: "words", prompt: "one two", raw: true, stream: true }));
			assert.deepEqual([parts.map((one) => one.response).join(""), asked().prompt, asked().talks], ["one two", { text: "one two" }, undefined]);
		});
		test("a model is loaded by an empty request", async () => {
			for (const one of [await ollama.generate({ model: "words", prompt: "" }), await ollama.chat({ model: "words", messages: [] }), await ollama.generate({ model: "words:latest", keep_alive: -1 }),
				...await collect(ollama.generate({ model: "words", prompt: "", stream: true }))])
				assert.deepEqual([one.model, one.done, one.done_reason], ["words", true, "load"]);
			assert.equal(asked().counts, true);
			await assert.rejects(ollama.generate({ model: "words", prompt: "", keep_alive: 0 }), /keep_alive is not supported here; an admin unloads models/);
		});
		test("tools, whole and streamed, and their results", async () => {
			says(["<think>hm</think>", "let me see", call("get_weather", { city: "Rome" }), call("get_weather", { city: "Oslo" })]);
			const ask = chat("x", { tools: [weather], think: true });
			const { message } = await ollama.chat(ask), parts = await collect(ollama.chat({ ...ask, stream: true }));
			const shape = (calls) => calls.map(({ id, function: made }) => [/^[0-9a-z]{9}$/i.test(id), made.index, made.name, made.arguments]);
			const made = [[true, 0, "get_weather", { city: "Rome" }], [true, 1, "get_weather", { city: "Oslo" }]];
			assert.deepEqual([message.thinking, message.content, shape(message.tool_calls)], ["hm", "let me see", made]);
			assert.deepEqual([parts.map((one) => one.message.thinking ?? "").join(""), parts.map((one) => one.message.content).join(""), shape(parts.flatMap((one) => one.message.tool_calls ?? []))], ["hm", "let me see", made]);
			assert.deepEqual([asked().tools, asked().reasoning_effort], [[weather], "medium"]);
			delete node.worker().answers["generate.start"];
			const ids = message.tool_calls.map(({ id }) => id), said = { role: "assistant", text: "let me see", thoughts: "hm" };
			const given = (at, city) => ({ id: ids[at], name: "get_weather", arguments: JSON.stringify({ city }) });
			// By their ids; and as older clients send them, without any: in their order.
			await ollama.chat({ model: "words", messages: [{ role: "user", content: "x" }, message, { role: "tool", content: "cold", tool_call_id: ids[1] }, { role: "tool", content: "warm", tool_call_id: ids[0] }] });
			assert.deepEqual(asked().prompt.messages, [{ role: "user", text: "x" }, { ...said, calls: [given(0, "Rome"), given(1, "Oslo")] },
				{ role: "tool", text: "cold", call_id: ids[1] }, { role: "tool", text: "warm", call_id: ids[0] }]);
			const older = { ...message, tool_calls: message.tool_calls.map(({ function: { name, arguments: input } }) => ({ function: { name, arguments: input } })) };
			await ollama.chat({ model: "words", messages: [{ role: "user", content: "x" }, older, { role: "tool", content: "warm", tool_name: "get_weather" }, { role: "tool", content: "cold" }] });
			const [, { calls }, ...results] = asked().prompt.messages;
			assert.deepEqual(results.map(({ call_id }) => call_id), calls.map(({ id }) => id));
			assert.equal(new Set(calls.map(({ id }) => id)).size, 2);
		});
		test("thoughts", async () => {
			const ask = async (think) => {
				says(["<think>hm</think>", "so"]);
				const { message: { thinking, content } } = await ollama.chat(chat("x", { think }));
				const { reasoning_effort, effort_optional } = asked();
				return [thinking, content, reasoning_effort, effort_optional];
			};
			assert.deepEqual(await ask(undefined), ["hm", "so", undefined, undefined]);
			assert.deepEqual(await ask(true), ["hm", "so", "medium", true]);
			assert.deepEqual(await ask(false), [undefined, "so", "none", true]);
			assert.deepEqual(await ask("high"), ["hm", "so", "high", false]);
		});
		test("a form", async () => {
			const schema = { type: "object", properties: { a: { type: "integer" } } };
			await ollama.chat(chat("x", { format: schema }));
			assert.deepEqual(asked().form, { kind: "schema", text: JSON.stringify(schema) });
			await ollama.generate({ model: "words", prompt: "x", format: "json" });
			assert.deepEqual(asked().form, { kind: "json" });
		});
		test("embeddings", async () => {
			const values = [0.5, -0.25, 0.125, 0];
			assert.deepEqual(await ollama.embed({ model: "words", input: ["a", "b"], truncate: true }), { model: "words", embeddings: [values, values], prompt_eval_count: 6 });
			assert.deepEqual((await ollama.embed({ model: "words", input: "a" })).embeddings, [values]);
			assert.deepEqual(await ollama.embeddings({ model: "words", prompt: "a" }), { embedding: values });
		});
		test("errors, before and in mid-stream", async () => {
			await assert.rejects(ollama.chat({ ...chat("x"), model: "none" }), (error) => error.status_code === 404 && /no model none/.test(error.message));
			await assert.rejects(ollama.chat(chat("x", { options: { unheard_of: 1 } })), (error) => error.status_code === 400 && /options\.unheard_of/.test(error.message));
			node.worker().manual = true;
			const failed = assert.rejects(collect(ollama.chat(chat("x", { stream: true }))), /burnt/);
			await eventually(() => node.worker().requests.size, "it is asked");
			const [request] = node.worker().requests.keys();
			node.worker().say(request, "so");
			node.worker().finish(request, "failed", { error: "burnt" });
			await failed;
		});
		test("a prompt that is longer than the context", async () => {
			const worker = node.worker();
			for (const method of ["generate.start", "generate.embed"])
				worker.answers[method] = () => ({ error: { code: -32006, message: "the prompt has 9000 tokens; the context holds 4096", data: { reason: "limit_exceeded", hint: "shorten it" } } });
			for (const [path, body] of [["chat", chat("x")], ["generate", { model: "words", prompt: "x" }], ["embed", { model: "words", input: "x" }], ["embeddings", { model: "words", prompt: "x" }]]) {
				const { status, json } = await post(`/api/${path}`, body);
				assert.deepEqual([status, json()], [400, { error: "the prompt has 9000 tokens; the context holds 4096; shorten it" }], path);
			}
			delete worker.answers["generate.embed"];
		});
		test("with a token, at the server's own address", async () => {
			const mine = new Ollama({ host: server.url.origin, headers: { authorization: `Bearer ${token}` } });
			assert.equal((await mine.chat(chat("one"))).message.content, "one");
			const none = await server.http("/api/tags");
			assert.deepEqual([none.status, Object.keys(none.json())], [401, ["error"]]);
		});
		test("OpenAI's API, at Ollama's address, with whatever word its clients send", async () => {
			const openai = new OpenAI({ apiKey: "ollama", baseURL: `${open}/v1`, maxRetries: 0 });
			assert.equal((await openai.chat.completions.create(chat("one"))).choices[0].message.content, "one");
		});
	});

	describe("a model is pulled", () => {
		const puller = () => new Ollama({ host: server.url.origin, headers: { authorization: `Bearer ${server.token}` } });
		const offer = (name, seed) => {
			const bytes = Buffer.from(modelFile({ seed, megabytes: 1 }));
			hub.blobs.set(sha256(bytes), bytes);
			hub.library.set(`library/${name}`, sha256(bytes));
			return bytes;
		};
		afterEach(() => (hub.plan = {}));
		test("with its progress, and once more at once", async () => {
			const bytes = offer("tiny:latest", 5);
			hub.plan = { slow: 100 };
			const lines = await collect(puller().pull({ model: "tiny", stream: true }));
			assert.equal(lines.at(-1).status, "success");
			assert.ok(lines.length > 1 && lines.every(({ status }) => ["pulling manifest", "pulling model", "verifying sha256 digest", "success"].includes(status)), JSON.stringify(lines));
			assert.ok(lines.filter(({ digest }) => digest).every(({ total, completed }) => total === bytes.length && completed <= total), JSON.stringify(lines));
			assert.deepEqual((await ollama.list()).models.map(({ name }) => name).sort(), ["tiny:latest", "words"]);
			assert.deepEqual(await collect(puller().pull({ model: "tiny:latest", stream: true })), [{ status: "success" }]);
			assert.deepEqual(await puller().pull({ model: "tiny", stream: false }), { status: "success" });
		});
		test("one that is not there, and one that is removed meanwhile", async () => {
			await assert.rejects(collect(puller().pull({ model: "nothing", stream: true })), /404/);
			await assert.rejects(puller().pull({ model: "nothing", stream: false }), /404/);
			await assert.rejects(puller().pull({ model: "a b", stream: false }), (error) => error.status_code === 400);
			offer("gone:latest", 6);
			hub.plan = { store: () => true }; // the store says nothing
			const pulling = assert.rejects(collect(puller().pull({ model: "gone", stream: true })), /removed/);
			const find = async () => (await admin.call("model.list")).models.find(({ name }) => name === "gone:latest");
			const { model_id } = await eventually(find, "it is being fetched");
			await admin.call("model.remove", { model_id });
			await pulling;
		});
		test("who goes away ends the telling alone", async () => {
			offer("left:latest", 7);
			hub.plan = { store: () => true };
			const stream = await puller().pull({ model: "left", stream: true });
			await stream[Symbol.asyncIterator]().next();
			stream.abort();
			hub.plan = {};
			for (const socket of hub.sockets) socket.destroy(); // what is asked again is answered
			await eventually(async () => (await admin.call("model.list")).models.find(({ name, state }) => name === "left:latest" && state === "ready"), "it is there", 4 * patience);
		});
		test("by admins alone", async () => {
			await assert.rejects(ollama.pull({ model: "tiny", stream: false }), (error) => error.status_code === 403 && /admin/.test(error.message));
			const { status, json } = await post("/api/pull", { model: "tiny", insecure: true }, { authorization: `Bearer ${server.token}` });
			assert.deepEqual([status, /insecure/.test(json().error)], [400, true]);
		});
	});

	describe("underneath", () => {
		test("what is not done is refused by name", async () => {
			const talk = (...messages) => ({ messages });
			for (const [path, more, pattern] of [
				["chat", talk({ role: "user", content: "x", images: ["AA=="] }), /images/], ["chat", talk({ role: "robot", content: "x" }), /role/], ["chat", talk({ role: "user", content: 5 }), /content/],
				["chat", talk({ role: "user", content: "x", unheard_of: 1 }), /unheard_of/], ["chat", talk({ role: "tool", content: "x" }), /tool/], ["chat", { messages: "x" }, /messages/], ["chat", { model: undefined }, /model is missing/],
				["chat", talk({ role: "assistant", content: "", tool_calls: [{ function: { name: "a", arguments: "{}" } }] }), /arguments/], ["chat", { tools: [{ type: "web" }] }, /function/], ["chat", { tools: {} }, /list/],
				["chat", { format: "yaml" }, /format/], ["chat", { think: "often" }, /think/], ["chat", { think: 1 }, /think/], ["chat", { stream: 1 }, /stream/], ["chat", { keep_alive: {} }, /keep_alive/], ["chat", { logprobs: true }, /logprobs/],
				["chat", { options: [] }, /options/], ["chat", { options: { temperature: 3 } }, /temperature/], ["chat", { options: { mirostat: 1 } }, /mirostat/], ["chat", { options: { num_predict: 0 } }, /num_predict/], ["chat", { options: { typical_p: 0.5 } }, /typical_p/],
				["chat", { options: { repeat_last_n: 5 } }, /repeat_last_n/], ["chat", { options: { stop: [5] } }, /stop/], ["chat", { options: { seed: 1.5 } }, /seed/], ["chat", { options: { speculate: 1 } }, /^options\.speculate must be true or false$/], ["chat", { prompt: "x" }, /no parameter prompt/],
				["generate", { messages: undefined, prompt: "x", suffix: 5 }, /suffix/], ["generate", { messages: undefined, prompt: "x", suffix: "y", system: "s" }, /suffix/], ["generate", { messages: undefined, prompt: "x", template: "{{ .Prompt }}" }, /template/], ["generate", { messages: undefined, prompt: "x", context: [1] }, /context/],
				["generate", { messages: undefined, prompt: "x", images: ["AA=="] }, /images/], ["generate", { messages: undefined, prompt: 5 }, /prompt/], ["generate", { messages: undefined, prompt: "x", raw: true, system: "s" }, /raw/],
				["embed", { messages: undefined }, /input is missing/], ["embed", { messages: undefined, input: [""] }, /input/], ["embed", { messages: undefined, input: [] }, /input/], ["embed", { messages: undefined, input: "x", dimensions: 0 }, /dimensions/],
				["embeddings", { messages: undefined, prompt: ["x"] }, /prompt/], ["show", { messages: undefined, model: "" }, /model/]]) {
				const { status, json } = await post(`/api/${path}`, { ...chat("x"), ...more });
				assert.deepEqual([status, Object.keys(json())], [400, ["error"]], `${path} ${JSON.stringify(more)}`);
				assert.match(json().error, pattern, JSON.stringify(more));
			}
			for (const path of ["chat", "generate", "embed", "embeddings", "show"])
				for (const body of ["", "{", "[]", "null", "\u0000"]) assert.equal((await post(`/api/${path}`, body)).status, 400, `${path} ${JSON.stringify(body)}`);
			for (const more of [{ tools: null, format: "", options: {}, keep_alive: 300 }, { options: { num_ctx: 2048, num_gpu: 1, use_mmap: true, mirostat: 0, tfs_z: 1, top_k: -1, num_predict: -1 } }])
				assert.equal((await post("/api/chat", { ...chat("x"), ...more })).status, 200, JSON.stringify(more));
			const unknown = await post("/api/copy", {});
			assert.deepEqual([unknown.status, Object.keys(unknown.json())], [404, ["error"]]);
		});
		test("it is on record, as the token's", async () => {
			for (const action of ["ollama.chat", "ollama.generate", "ollama.embed"]) {
				const entry = await eventually(async () => (await admin.call("audit.list", { action, limit: 20 })).entries.find((one) => one.outcome === "ok"), `${action} is on record`);
				assert.equal(entry.actor, `token:${token_id}`, JSON.stringify(entry));
			}
		});
	});

	describe("the listener without a token", () => {
		test("it serves nothing else", async () => {
			const hello = await door("/");
			assert.deepEqual([hello.status, hello.text], [200, "Ollama is running"]);
			assert.equal((await door("/", { method: "HEAD" })).status, 200);
			for (const path of ["/metrics", "/healthz", "/ws", "/node", "/ca.pem", "/schema/api.json", "/index.html", "/api"]) assert.equal((await door(path)).status, 404, path);
			const upgrade = await door("/ws", { headers: { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==" } });
			assert.equal(upgrade.status, 404);
		});
		test("pages do not get in, neither by their origin nor by a name that they rebind", async () => {
			const { host } = new URL(open), body = JSON.stringify(chat("x", { stream: false }));
			for (const origin of ["https://evil.example", open, "null", `http://${host.replace("127.0.0.1", "localhost")}`]) {
				assert.equal((await door("/api/tags", { headers: { origin } })).status, 403, origin);
				assert.equal((await door("/api/chat", { method: "POST", headers: { origin, "content-type": "text/plain" }, body })).status, 403, origin);
			}
			for (const name of ["evil.example", `evil.example:${new URL(open).port}`])
				for (const method of ["GET", "POST"]) assert.equal((await door(method === "GET" ? "/api/tags" : "/api/chat", { method, headers: { host: name }, body: method === "POST" ? body : undefined })).status, 403, name);
			// A request without an origin, as of an image in a page, or of a link in one.
			for (const [site, status] of [["cross-site", 403], ["same-site", 403], ["same-origin", 200], ["none", 200]])
				assert.equal((await door("/api/tags", { headers: { "sec-fetch-site": site } })).status, status, site);
			const named = await door("/api/chat", { method: "POST", headers: { "sec-fetch-site": "cross-site", origin: "https://chat.example" }, body });
			assert.deepEqual([named.status, named.headers["access-control-allow-origin"]], [200, "https://chat.example"]);
		});
		test("its token can be revoked, and must be one", async () => {
			const other = await admin.call("token.create", { name: "clients", scopes: ["infer"], expires_in_s: 3600 });
			assert.equal((await door("/api/tags")).status, 200, "the first keeps its place");
			await admin.call("token.revoke", { token_id: other.token_id });
			assert.equal((await door("/api/tags")).status, 200);
			await admin.call("token.revoke", { token_id });
			const none = await door("/api/chat", { method: "POST", body: JSON.stringify(chat("x")) });
			assert.deepEqual([none.status, /revoked/.test(none.json().error)], [401, true]);
			const observer = await admin.call("token.create", { name: "clients", scopes: ["observe"], expires_in_s: 3600 });
			assert.equal((await door("/api/tags")).status, 401, "another of its name does not take its place");
			await admin.call("token.revoke", { token_id: observer.token_id });
		});
		test("it is loopback's alone", async () => {
			for (const [args, pattern] of [[["--ollama", "t", "--ollama-listen", "0.0.0.0:11434"], /loopback/], [["--ollama", "t", "--ollama-listen", "[::]:11434"], /loopback/], [["--ollama-listen", "127.0.0.1:1"], /--ollama TOKEN is missing/],
				[["--ollama", "t", "--ollama-listen", "nowhere"], /--ollama-listen takes/], [["--ollama", ""], /--ollama must not be empty/]]) {
				const { code, stderr } = await run(["serve", "--data", temporary(), ...args]);
				assert.equal(code, 2, args.join(" "));
				assert.match(stderr, pattern);
			}
			const taken = await run(["serve", "--data", temporary(), "--listen", "127.0.0.1:0", "--ollama", "t", "--ollama-listen", new URL(open).host]);
			assert.equal(taken.code, 1);
			assert.match(taken.stderr, /--ollama-listen/);
		});
	});
});

test("where the server has names of its own, the listener without a token takes none of them", async () => {
	const server = await startServer({ listen: "0.0.0.0:0", args: ["--tls-name", "gpu.example", "--ollama", "clients", "--ollama-listen", "127.0.0.1:0"] });
	const [, port] = /^ollama: http:\/\/127\.0\.0\.1:(\d+)$/m.exec(server.output.stdout);
	const ask = (host) => within(new Promise((resolve, reject) => {
		http.get({ host: "127.0.0.1", port, path: "/api/tags", headers: { host } }, (incoming) => incoming.resume().on("end", () => resolve(incoming.statusCode))).on("error", reject);
	}), `${host} is answered`);
	for (const [host, status] of [["gpu.example", 403], [`gpu.example:${port}`, 403], ["localhost", 401], [`127.0.0.1:${port}`, 401]]) assert.equal(await ask(host), status, host);
	await server.finish();
});
