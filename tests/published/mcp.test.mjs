// The Model Context Protocol's own client (npm's @modelcontextprotocol/sdk, at the version that docs/clients.md names) against
// `exogpu mcp`, over standard input and output and over HTTP. Skipped, with the reason, where the package cannot be fetched.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import { after, before, describe, test } from "node:test";
import { Client as Admin, assertContractKept } from "../api/client.mjs";
import { binary, eventually, launch, startServer } from "../api/server.mjs";
import { WorkerNode } from "../api/workers.mjs";
import { fetchNode } from "./packages.mjs";

const version = "1.32.2", revision = "2025-11-25";
const sdk = fetchNode("@modelcontextprotocol/sdk", version);

describe(`@modelcontextprotocol/sdk ${version}`, { skip: sdk.why ?? false }, () => {
	let server, admin, token, door, before_it, Client, StdioClientTransport, StreamableHTTPClientTransport, schemas;
	const seen = []; // {method, headers}: what came to the door

	before(async () => {
		const load = (path) => import(new URL(`dist/esm/${path}`, sdk.url));
		({ Client } = await load("client/index.js"));
		({ StdioClientTransport } = await load("client/stdio.js"));
		({ StreamableHTTPClientTransport } = await load("client/streamableHttp.js"));
		schemas = await load("types.js");
		server = await startServer();
		admin = await Admin.login(server);
		({ token } = await admin.call("token.create", { name: "agent", scopes: ["observe"] }));
		door = launch(["mcp", "--listen", "0", "--url", server.url.origin], { EXOGPU_TEST_MCP_PULSE_MS: "100" });
		const port = await eventually(() => Number(/:(\d+)\/mcp$/m.exec(door.output.stdout)?.[1]), "it listens");
		// What the client sends passes through here, and is noted.
		before_it = http.createServer((request, response) => {
			seen.push({ method: request.method, headers: request.headers });
			const asked = http.request({ host: "127.0.0.1", port, path: request.url, method: request.method, headers: { ...request.headers, host: `127.0.0.1:${port}` } }, (answer) => {
				response.writeHead(answer.statusCode, answer.headers);
				answer.pipe(response);
			});
			response.on("close", () => asked.destroy());
			asked.on("error", () => response.destroy());
			request.pipe(asked);
		}).listen(0, "127.0.0.1");
	});
	after(async () => {
		before_it?.closeAllConnections();
		before_it?.close();
		door?.child.kill();
		await door?.exited;
		await server?.finish();
		assertContractKept();
	});

	async function use(transport, changed) {
		const client = new Client({ name: "test", version: "1" });
		if (changed) client.setNotificationHandler(schemas.ResourceListChangedNotificationSchema, changed);
		await client.connect(transport);
		assert.equal(client.getServerVersion().name, "exogpu");
		const { tools } = await client.listTools(), progress = [];
		assert.ok(tools.some(({ name }) => name === "placement_preview"));
		const { structuredContent, isError } = await client.callTool({ name: "model_list", arguments: {} }, undefined, { onprogress: (one) => progress.push(one) });
		assert.deepEqual([isError, structuredContent], [false, { models: [] }]);
		assert.deepEqual((await client.listResources()).resources, []);
		await assert.rejects(client.readResource({ uri: "exogpu://device/dev_none" }), /Resource not found/);
		return { client, progress };
	}

	test("over standard input and output", async () => {
		const { client } = await use(new StdioClientTransport({ command: binary, args: ["mcp", "--url", server.url.origin], env: { EXOGPU_TOKEN: token } }));
		await client.close();
	});

	test("over HTTP: the revision is named, progress and changes come by streams", async () => {
		let changes = 0;
		const transport = new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${before_it.address().port}/mcp`), { requestInit: { headers: { authorization: `Bearer ${token}` } } });
		const { client, progress } = await use(transport, () => changes++);
		assert.equal(transport.protocolVersion, revision);
		assert.ok(progress.length > 0 && progress[0].progress >= 0);
		const [first, ...more] = seen;
		assert.equal(first.headers["mcp-protocol-version"], undefined);
		assert.ok(more.every(({ headers }) => headers["mcp-protocol-version"] === revision));
		assert.ok(more.some(({ method, headers }) => method === "GET" && headers.accept === "text/event-stream"), "it opened a stream");
		const node = await WorkerNode.start(server);
		await eventually(() => changes > 0, "it hears of a new device");
		const [{ uri }] = (await client.listResources()).resources, { contents: [{ text }] } = await client.readResource({ uri });
		assert.equal(`exogpu://device/${JSON.parse(text).device_id}`, uri);
		node.socket.close();
		await client.close();
	});

	test("is the version that docs/clients.md names", () => {
		assert.match(readFileSync(new URL("../../docs/clients.md", import.meta.url), "utf8"), new RegExp(`@modelcontextprotocol/sdk\` ${version.replaceAll(".", "[.]")}`));
	});
});
