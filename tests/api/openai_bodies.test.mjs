// How the body of a POST to /v1 may come: in chunks, after `Expect: 100-continue`; and what is refused of either.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { connectRaw, eventually, startServer, temporary, within } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

describe("bodies of /v1", () => {
	let server, node, token;
	const chat = (content, more = {}) => ({ model: "words", messages: [{ role: "user", content }], ...more });
	const post = (path, body) => server.http(path, { method: "POST", headers: { authorization: `Bearer ${token}` }, body });

	before(async () => {
		server = await startServer();
		const admin = await Client.login(server), path = join(temporary(), "words.gguf");
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		writeFileSync(path, modelFile());
		const { model_id } = await admin.call("model.add", { source: path });
		await eventually(async () => (await admin.call("model.list")).models[0].state === "ready", "the model is ready");
		await admin.call("instance.create", { model_id });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		({ token } = await admin.call("token.create", { name: "bodies", scopes: ["infer"], expires_in_s: 3600 }));
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	const ask = JSON.stringify(chat("one two"));
	const sizeOf = (text) => text.length.toString(16);
	const post11 = (more) => `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${token}\r\n${more}\r\n`;
	test("bodies in chunks", async () => {
		const head = post11("Transfer-Encoding: chunked\r\nConnection: close\r\n"), last = "0\r\n\r\n";
		const whole = `${sizeOf(ask)}\r\n${ask}\r\n${last}`;
		const pieces = `${ask.replace(/./gs, (byte) => `1;x=y\r\n${byte}\r\n`)}0\r\nChecksum: none\r\n\r\n`;
		for (const body of [whole, pieces])
			assert.match(await within(connectRaw(server, head + body).ended, "an answer, and the end"), /^HTTP\/1.1 200[^]*connection: close[^]*"content":"one two"/i);
		const slowly = connectRaw(server, head);
		for (const byte of whole) slowly.socket.write(byte);
		assert.match(await within(slowly.ended, "byte by byte"), /^HTTP\/1.1 200[^]*"content":"one two"/);
		const streamed = JSON.stringify(chat("one two", { stream: true })), events = connectRaw(server, `${head}${sizeOf(streamed)}\r\n${streamed}\r\n${last}`);
		assert.match(await within(events.ended, "a stream"), /transfer-encoding: chunked[^]*data: \[DONE\]\n\n\r\n0\r\n\r\n$/i);
		const refused = async (text, pattern) => assert.match(await within(connectRaw(server, text).ended, `${text.slice(-60)} is refused`), pattern);
		for (const body of ["g\r\n", "5\nhello", "-1\r\n", "2\r\n{}0\r\n\r\n", "123456789\r\n", "0\r\nx\ny\r\n\r\n"])
			await refused(head + body, /^HTTP\/1.1 400[^]*connection: close[^]*not validly chunked/i);
		for (const body of ["ffffffff\r\n", `1;${"x".repeat(300)}`, `0\r\n${"a: b\r\n".repeat(4000)}`])
			await refused(head + body, /^HTTP\/1.1 413[^]*too_large/);
		for (const coding of ["gzip, chunked", "chunked, chunked", "identity", "xchunked"])
			await refused(`${post11(`Transfer-Encoding: ${coding}\r\n`)}2\r\n{}\r\n0\r\n\r\n`, /^HTTP\/1.1 400[^]*how long it is/);
		for (const length of [2, 14]) // two lengths: whatever is made of the rest, it is no request
			await refused(`${post11(`Transfer-Encoding: chunked\r\nContent-Length: ${length}\r\n`)}2\r\n{}\r\n0\r\n\r\n`, /^(HTTP\/1.1 400[^]*how long it is[^]*)?$/);
		await refused(`${head.replace("1.1", "1.0")}2\r\n{}\r\n0\r\n\r\n`, /^HTTP\/1.[01] 400/);
		const kept = connectRaw(server, `${head.replace("Connection: close\r\n", "")}${whole}GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
		await kept.until(/"content":"one two"[^]*HTTP\/1.1 200[^]*"ready":true/); // it asks on before it has its answer
		kept.socket.destroy();
		await refused(`${head.replace(token, "exo_none")}${whole}`, /^HTTP\/1.1 401/);
		connectRaw(server, `${head}5\r\nhel`).socket.end(); // its other half never comes
		assert.equal((await post("/v1/chat/completions", ask)).status, 200);
	});
	test("a body that is not UTF-8 is refused as that, and the next one answered", async () => {
		const body = Buffer.from(ask.replace("one two", "one?two"));
		body[body.indexOf("?")] = 0xff;
		const refused = await post("/v1/chat/completions", body);
		assert.equal(refused.status, 400);
		assert.match(refused.json().error.message, /not UTF-8/);
		assert.equal((await post("/v1/chat/completions", ask)).status, 200);
	});
	test("a client that waits to be told to go on", async () => {
		const head = post11(`Expect: 100-continue\r\nContent-Length: ${ask.length}\r\n`), go = /^HTTP\/1.1 100 Continue\r\n\r\n/;
		const raw = connectRaw(server, head);
		assert.match(await raw.until(/\r\n\r\n/), go);
		raw.socket.write(ask);
		assert.match(await raw.until(/\}$/), /^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 200[^]*"content":"one two"/);
		raw.socket.destroy();
		const impatient = connectRaw(server, head + ask);
		assert.match(await impatient.until(/\}$/), /HTTP\/1.1 200[^]*"content":"one two"/);
		impatient.socket.destroy();
		assert.match(await connectRaw(server, head.replace(token, "exo_none")).ended, /^HTTP\/1.1 401/, "the body is not asked for");
		assert.match(await connectRaw(server, head.replace(/Length: \d+/, "Length: 99999999")).ended, /^HTTP\/1.1 413/);
		assert.match(await connectRaw(server, head.replace("/v1/chat/completions", "/healthz")).ended, /^HTTP\/1.1 405/);
		for (const chunks of [false, true]) {
			const answer = await within(new Promise((resolve, reject) => {
				const request = http.request({ host: "127.0.0.1", port: server.port, path: "/v1/chat/completions", method: "POST",
					headers: { authorization: `Bearer ${token}`, expect: "100-continue", ...(chunks ? {} : { "content-length": ask.length }) } });
				let told = false;
				request.on("continue", () => { told = true; request.write(ask.slice(0, 9)); request.end(ask.slice(9)); });
				request.on("response", (response) => response.resume().on("end", () => resolve([told, response.statusCode])));
				request.on("error", reject);
				request.flushHeaders();
			}), "node's client is answered");
			assert.deepEqual(answer, [true, 200]);
		}
	});
	test("large bodies are read aside, and answered as small ones are", async () => {
		const words = "one two three ".repeat(9000).trim(), large = JSON.stringify(chat(words, { max_tokens: 2 }));
		assert.ok(large.length > 100000);
		const many = await Promise.all(Array.from({ length: 4 }, () => post("/v1/chat/completions", large)));
		for (const one of many) assert.deepEqual([one.status, one.json().choices?.[0].message.content], [200, "one two"], one.text);
		const list = Array(90000).fill(1); // the model's context is 256
		for (const [path, body] of [["/v1/completions", { model: "words", prompt: list }], ["/v1/embeddings", { model: "words", input: list }]]) {
			const refused = await post(path, JSON.stringify(body));
			assert.deepEqual([refused.status, refused.json().error.code], [400, "context_length_exceeded"], refused.text);
			assert.match(refused.json().error.message, /the prompt has 90000 tokens; the context has room for 256/);
		}
		const wrong = await post("/v1/chat/completions", `${large.slice(0, -1)},`);
		assert.equal(wrong.status, 400, wrong.text);
		for (let i = 0; i < 8; i++) { // a client that goes while its body is read
			const control = new AbortController(), asked = fetch(`${server.url.origin}/v1/completions`, { method: "POST", signal: control.signal,
				headers: { authorization: `Bearer ${token}` }, body: JSON.stringify({ model: "words", prompt: list }) });
			setTimeout(() => control.abort(), i);
			await asked.then((answer) => answer.text(), () => {}).catch(() => {});
		}
		assert.equal((await post("/v1/chat/completions", ask)).status, 200);
	});
	test("a worker that gives no embedding is told as that", async () => {
		node.worker().answers["generate.embed"] = () => ({ result: { prompt_tokens: 3 } });
		for (const encoding_format of ["float", "base64"]) {
			const { status, json } = await post("/v1/embeddings", JSON.stringify({ model: "words", input: "one", encoding_format }));
			assert.deepEqual([status, json().error?.message], [500, "the model's worker has given no result"]);
		}
		delete node.worker().answers["generate.embed"];
	});
});

describe("tokens that wait", () => {
	test("have a bound: of prompts that wait for a model, and of inputs of embeddings", async () => {
		const server = await startServer({ args: ["--limit", "line_tokens=1000"] });
		const admin = await Client.login(server), path = join(temporary(), "words.gguf");
		const node = await WorkerNode.start(server, { Worker: ModelWorker });
		writeFileSync(path, modelFile());
		const { model_id } = await admin.call("model.add", { source: path });
		await eventually(async () => (await admin.call("model.list")).models[0].state === "ready", "the model is ready");
		await admin.call("instance.create", { model_id });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		const worker = node.worker(), list = (count) => Array(count).fill(1);
		worker.manual = true;
		const waiting = [], control = new AbortController();
		const post = async (endpoint, body) => {
			const answer = await fetch(`${server.url.origin}/v1/${endpoint}`, { method: "POST", signal: control.signal,
				headers: { authorization: `Bearer ${server.token}` }, body: JSON.stringify({ model: "words", ...body }) });
			return { status: answer.status, ...(await answer.json()) };
		};
		const refused = async (endpoint, body, pattern) => {
			const { status, error } = await within(post(endpoint, body), `${endpoint} is refused`);
			assert.deepEqual([status, error.code], [429, "rate_limit_exceeded"]);
			assert.match(error.message, pattern);
		};
		const waits = async (endpoint, body, there) => {
			waiting.push(post(endpoint, body).catch(() => {}));
			await eventually(there, `${endpoint} waits`);
		};
		await waits("embeddings", { input: Array(4).fill(list(200)) }, () => worker.embeds.size === 4);
		await refused("embeddings", { input: list(201) }, /inputs with 800 tokens already wait; with these 201 they would exceed 1000/);
		await waits("embeddings", { input: "text counts nothing" }, () => worker.embeds.size === 5);
		await waits("embeddings", { input: list(200) }, () => worker.embeds.size === 6);
		await refused("completions", { prompt: list(1) }, /prompts of 1000 tokens wait for this model already/);
		control.abort();
		await Promise.all(waiting);
		await eventually(() => !worker.embeds.size, "all are cancelled");
		worker.manual = false;
		const asked = async (endpoint, body) => (await fetch(`${server.url.origin}/v1/${endpoint}`, { method: "POST",
			headers: { authorization: `Bearer ${server.token}` }, body: JSON.stringify({ model: "words", ...body }) })).status;
		await eventually(async () => await asked("completions", { prompt: list(200) }) === 200, "there is room again");
		assert.equal(await asked("embeddings", { input: Array(5).fill(list(200)) }), 200);
		node.socket.close();
		await server.finish();
		assertContractKept();
	});
});
