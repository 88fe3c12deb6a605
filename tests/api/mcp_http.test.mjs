// `exogpu mcp --listen`: MCP over HTTP against a real server. Each request acts by the token that it brings. Streams of events
// are read here as they come; tests/published/mcp.test.mjs has the protocol's own client.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { eventually, launch, run, startServer, within } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

// A process that listens: {child, output, port}.
async function listen(...args) {
	const made = launch(["mcp", "--listen", "0", ...args], { EXOGPU_TEST_MCP_PULSE_MS: "100" });
	const port = await eventually(() => {
		if (made.child.exitCode !== null) throw new Error(`it ended: ${made.output.stderr}`);
		return Number(/^MCP at http:\/\/127\.0\.0\.1:(\d+)\/mcp$/m.exec(made.output.stdout)?.[1]);
	}, "it listens");
	return { ...made, port };
}

describe("exogpu mcp --listen", () => {
	let server, admin, token, door;
	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		({ token } = await admin.call("token.create", { name: "agent", scopes: ["observe"] }));
		door = await listen("--url", server.url.origin);
	});
	after(async () => {
		door?.child.kill();
		await door?.exited;
		await server?.finish();
		assertContractKept();
	});

	async function send(body, { headers = {}, path = "/mcp", method = "POST", port = door.port } = {}) {
		const text = typeof body === "string" ? body : JSON.stringify({ jsonrpc: "2.0", ...body });
		const request = http.request({ host: "127.0.0.1", port, path, method, agent: false, headers: {
			authorization: `Bearer ${token}`, accept: "application/json, text/event-stream",
			...(method === "POST" ? { "content-type": "application/json", "content-length": Buffer.byteLength(text) } : {}), ...headers } });
		request.end(method === "POST" ? text : undefined);
		const [response] = await within(once(request, "response"), "an answer");
		let answer = "";
		for await (const piece of response.setEncoding("utf8")) answer += piece;
		const stream = response.headers["content-type"] === "text/event-stream";
		return { status: response.statusCode, headers: response.headers, text: answer, json: answer && !stream ? JSON.parse(answer) : null };
	}
	// A GET's stream: {status, headers, events, text(), close()}.
	async function open(headers = {}) {
		const request = http.request({ host: "127.0.0.1", port: door.port, path: "/mcp", agent: false, headers: { authorization: `Bearer ${token}`, accept: "text/event-stream", ...headers } });
		request.end();
		const [response] = await within(once(request, "response"), "an answer");
		const one = { status: response.statusCode, headers: response.headers, text: "", close: () => request.destroy() };
		one.ended = new Promise((resolve) => response.on("close", resolve));
		response.on("error", () => {});
		response.setEncoding("utf8").on("data", (piece) => (one.text += piece));
		one.events = () => eventsOf(one.text);
		return one;
	}
	const eventsOf = (text) => text.split("\n\n").filter((part) => part.includes("data: ")).map((part) => ({ id: /^id: (.*)$/m.exec(part)?.[1], ...JSON.parse(/^data: (.*)$/m.exec(part)[1]) }));
	const tool = async (name, args) => (await send({ id: 1, method: "tools/call", params: { name, arguments: args } })).json.result;

	test("an agent begins, sees the tools and calls one", async () => {
		const { status, headers, json } = await send({ id: "a", method: "initialize", params: { protocolVersion: "2025-06-18" } });
		assert.deepEqual([status, headers["content-type"], json.id, json.result.serverInfo.name], [200, "application/json", "a", "exogpu"]);
		const told = await send({ method: "notifications/initialized" });
		assert.deepEqual([told.status, told.text], [202, ""]);
		assert.ok((await send({ id: 2, method: "tools/list" })).json.result.tools.some(({ name }) => name === "compute_run"));
		const { structuredContent, isError } = await tool("cluster_snapshot", {});
		assert.equal(isError, false);
		assert.deepEqual(structuredContent.devices, []);
	});

	test("it may what its token may", async () => {
		assert.equal((await tool("model_list", {})).isError, false);
		const { isError, content } = await tool("instance_delete", { instance_id: "ins_none" });
		assert.ok(isError && content[0].text.startsWith("forbidden: "), content[0].text);
		const revoked = await admin.call("token.create", { name: "short", scopes: ["observe"] });
		const headers = { authorization: `Bearer ${revoked.token}` };
		assert.equal((await send({ id: 1, method: "ping" }, { headers })).status, 200);
		await admin.call("token.revoke", { token_id: revoked.token_id });
		assert.equal((await send({ id: 1, method: "ping" }, { headers })).status, 401);
	});

	test("without a token that counts it is 401", async () => {
		for (const authorization of ["", "Bearer ", "Basic YTpi", "Bearer exo_none", `Bearer ${"x".repeat(200)}`]) {
			const { status, headers, json } = await send({ id: 1, method: "initialize" }, { headers: { authorization } });
			assert.deepEqual([status, headers["www-authenticate"]], [401, 'Bearer realm="exogpu"'], authorization);
			assert.ok(json.error.message);
		}
	});

	test("pages of other places are refused", async () => {
		const ping = { id: 1, method: "ping" };
		for (const headers of [{ origin: "http://evil.example" }, { origin: "null" }, { host: "evil.example" }, { host: `evil.example:${door.port}` }])
			assert.equal((await send(ping, { headers })).status, 403, JSON.stringify(headers));
		for (const headers of [{ origin: `http://127.0.0.1:${door.port}` }, { host: `localhost:${door.port}` }])
			assert.equal((await send(ping, { headers })).status, 200, JSON.stringify(headers));
	});

	test("what is no request gets the protocol's error", async () => {
		for (const [body, status, code] of [["{", 400, -32700], ["", 400, -32700], ["[]", 400, -32600], ['"text"', 400, -32600],
			['{"jsonrpc":"2.0","id":1,"method":"nothing"}', 200, -32601],
			['{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"token_create"}}', 200, -32602]]) {
			const answer = await send(body);
			assert.deepEqual([answer.status, answer.json.error.code], [status, code], body);
		}
		assert.equal((await send({ id: 1, method: "ping" }, { path: "/other" })).status, 404);
		assert.equal((await send("", { method: "GET", headers: { accept: "application/json" } })).status, 405);
		assert.equal((await send("", { method: "DELETE" })).status, 405);
		assert.equal((await send("x".repeat(3 << 20)).catch((error) => ({ status: error.code }))).status === 200, false);
	});

	test("one who leaves ends nothing for others", async () => {
		for (let i = 0; i < 20; i++) {
			const request = http.request({ host: "127.0.0.1", port: door.port, path: "/mcp", method: "POST", agent: false, headers: { authorization: `Bearer ${token}` } });
			request.on("error", () => {});
			request.end(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "cluster_snapshot" } }));
			await within(once(request, "finish"), "it is sent");
			request.destroy();
		}
		const answers = await Promise.all(Array.from({ length: 5 }, () => tool("model_list", {})));
		assert.ok(answers.every(({ isError }) => isError === false));
		assert.equal(door.child.exitCode, null);
	});

	test("a call that asks for its progress is answered by a stream, which ends with the answer", async () => {
		const ask = (accept, meta) => send({ id: 7, method: "tools/call", params: { name: "model_list", arguments: {}, ...meta && { _meta: meta } } }, { headers: { accept } });
		const { status, headers, text } = await ask("application/json, text/event-stream", { progressToken: "mine" });
		assert.deepEqual([status, headers["content-type"]], [200, "text/event-stream"]);
		const events = eventsOf(text), last = events.pop();
		assert.deepEqual([last.id, last.result.isError], [7, false]);
		assert.ok(events.length > 0);
		for (const { method, params } of events) assert.deepEqual([method, params.progressToken, params.progress >= 0], ["notifications/progress", "mine", true]);
		assert.equal((await ask("application/json", { progressToken: "mine" })).json.result.isError, false, "who takes no events gets none");
		assert.equal((await ask("application/json, text/event-stream", {})).json.result.isError, false);
		const refused = await send({ id: 8, method: "tools/call", params: { name: "instance_delete", arguments: { instance_id: "ins_none" }, _meta: { progressToken: 3 } } });
		assert.match(eventsOf(refused.text).pop().result.content[0].text, /^forbidden: /);
		assert.equal((await send({ id: 9, method: "tools/call", params: { name: "none", _meta: { progressToken: 3 } } })).json.error.code, -32602);
	});

	test("a stream tells that the list of devices has changed, once for what comes together", async () => {
		const stream = await open();
		assert.deepEqual([stream.status, stream.headers["content-type"]], [200, "text/event-stream"]);
		await eventually(() => stream.text.includes(": \n\n"), "it shows that it is there");
		assert.deepEqual(stream.events(), []);
		const node = await WorkerNode.start(server);
		const [event] = await eventually(() => stream.events().length && stream.events(), "a change is told");
		const { json: { result: { resources } } } = await send({ id: 1, method: "resources/list" });
		assert.ok(resources.length > 0 && resources.every(({ uri }) => uri.startsWith("exogpu://device/dev_")));
		assert.deepEqual([event.method, Number(event.id) > 0], ["notifications/resources/list_changed", true]);
		node.socket.close();
		stream.close();
		const again = await open({ "last-event-id": event.id });
		await eventually(() => again.events().length === 1, "whoever comes back is told, since it may have missed one");
		again.close();
	});

	test("a stream ends with its token, and more than 32 are not opened", async () => {
		for (const authorization of ["", "Bearer exo_none"]) assert.equal((await open({ authorization })).status, 401);
		assert.equal((await open({ "mcp-protocol-version": "1999-01-01" })).status, 400);
		assert.equal((await open({ origin: "http://evil.example" })).status, 403);
		const other = await admin.call("token.create", { name: "streams", scopes: ["observe"] }), headers = { authorization: `Bearer ${other.token}` };
		const streams = [];
		for (let i = 0; i < 32; i++) streams.push(await open(headers));
		assert.ok(streams.every(({ status }) => status === 200), streams.map(({ status }) => status).join());
		assert.equal((await open(headers)).status, 429);
		assert.equal((await tool("model_list", {})).isError, false, "calls are answered all the same");
		await admin.call("token.revoke", { token_id: other.token_id });
		await within(Promise.all(streams.map(({ ended }) => ended)), "they end");
		assert.equal((await open(headers)).status, 401);
		const one = await open();
		assert.equal(one.status, 200, "and there is room again");
		one.close();
	});

	test("a revision that is not spoken is refused at once", async () => {
		const ping = { id: 1, method: "ping" };
		for (const revision of ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
			assert.equal((await send(ping, { headers: { "mcp-protocol-version": revision } })).status, 200, revision);
		for (const revision of ["2026-01-01", "x", "2025-11-2", "9".repeat(100)]) {
			const { status, json } = await send(ping, { headers: { "mcp-protocol-version": revision } });
			assert.deepEqual([status, json.error.code], [400, -32600], revision);
		}
	});

	test("where no server is, it says so", async () => {
		const lost = await listen("--url", "http://127.0.0.1:1");
		const { status, json } = await send({ id: 1, method: "initialize" }, { port: lost.port });
		assert.equal(status, 503);
		assert.match(json.error.message, /127\.0\.0\.1:1/);
		lost.child.kill();
		await lost.exited;
	});

	test("only loopback is listened at", async () => {
		for (const place of ["0.0.0.0:0", "192.0.2.1:80", "[::]:0", "host:0", "70000", "x", "", ":0"]) {
			const { code, stderr } = await run(["mcp", "--listen", place, "--url", server.url.origin]);
			assert.equal(code, 2, `${place}: ${stderr}`);
		}
		assert.ok(!`${door.output.stdout}${door.output.stderr}`.includes(token));
	});
});
