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
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "ready", "the instance is ready");
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
		const head = post11("Transfer-Encoding: chunked\r\n"), last = "0\r\n\r\n";
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
			await refused(head + body, /^HTTP\/1.1 400[^]*connection: close[^]*not in chunks/i);
		for (const body of ["ffffffff\r\n", `1;${"x".repeat(300)}`, `0\r\n${"a: b\r\n".repeat(4000)}`])
			await refused(head + body, /^HTTP\/1.1 413[^]*too_large/);
		for (const coding of ["gzip, chunked", "chunked, chunked", "identity", "xchunked"])
			await refused(`${post11(`Transfer-Encoding: ${coding}\r\n`)}2\r\n{}\r\n0\r\n\r\n`, /^HTTP\/1.1 400[^]*how long it is/);
		for (const length of [2, 14]) // two lengths: whatever is made of the rest, it is no request
			await refused(`${post11(`Transfer-Encoding: chunked\r\nContent-Length: ${length}\r\n`)}2\r\n{}\r\n0\r\n\r\n`, /^(HTTP\/1.1 400[^]*how long it is[^]*)?$/);
		await refused(`${head.replace("1.1", "1.0")}2\r\n{}\r\n0\r\n\r\n`, /^HTTP\/1.[01] 400/);
		await refused(`${head}${whole}GET /healthz HTTP/1.1\r\n\r\n`, /^$/); // it asks on before it has its answer
		await refused(`${head.replace(token, "exo_none")}${whole}`, /^HTTP\/1.1 401/);
		connectRaw(server, `${head}5\r\nhel`).socket.end(); // its other half never comes
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
});
