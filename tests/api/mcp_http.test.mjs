// `exogpu mcp --listen`: MCP over HTTP against a real server. Each request acts by the token that it brings.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { eventually, launch, run, startServer, within } from "./server.mjs";

// A process that listens: {child, output, port}.
async function listen(...args) {
	const made = launch(["mcp", "--listen", "0", ...args]);
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
		return { status: response.statusCode, headers: response.headers, text: answer, json: answer ? JSON.parse(answer) : null };
	}
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
		assert.equal((await send("", { method: "GET" })).status, 405);
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
