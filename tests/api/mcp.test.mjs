// `exogpu mcp`: a client of the protocol on its standard input and output, against a real server with this machine's devices.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { binary, eventually, launch, patience, startServer, within } from "./server.mjs";

// The program, and its answers by their ids.
class Agent {
	constructor(args, env = {}) {
		this.child = spawn(binary, ["mcp", ...args], { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, EXOGPU_DATA: "", EXOGPU_TOKEN: "", EXOGPU_URL: "", ...env } });
		Object.assign(this, { lines: [], said: "", stderr: "", last: 0 });
		this.child.stderr.setEncoding("utf8").on("data", (text) => (this.stderr += text));
		this.child.stdout.setEncoding("utf8").on("data", (text) => {
			const pieces = (this.said + text).split("\n");
			this.said = pieces.pop();
			this.lines.push(...pieces.map((line) => JSON.parse(line)));
		});
		this.ended = once(this.child, "close").then(([code]) => code);
	}

	write(text) {
		this.child.stdin.write(text);
	}

	async ask(method, params) {
		const id = ++this.last;
		this.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
		return eventually(() => this.lines.find((one) => one.id === id), `${method} is answered; it said: ${this.stderr}`);
	}

	async tool(name, args) {
		const { result, error } = await this.ask("tools/call", { name, arguments: args });
		assert.equal(error, undefined);
		return result;
	}

	async finish() {
		this.child.stdin.end();
		assert.equal(await within(this.ended, "it ends with its input"), 0, this.stderr);
		assert.equal(this.said, "");
	}
}

describe("exogpu mcp", () => {
	let server, admin, agent;
	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		agent = new Agent(["--data", server.data]);
	});
	after(async () => {
		await agent?.finish();
		await server?.finish();
		assertContractKept();
	});

	test("it agrees on a revision and says what it is", async () => {
		const { result } = await agent.ask("initialize", { protocolVersion: "2025-03-26", capabilities: {}, clientInfo: { name: "test", version: "1" } });
		assert.equal(result.protocolVersion, "2025-03-26");
		assert.deepEqual([result.serverInfo.name, result.capabilities], ["exogpu", { tools: {}, resources: {} }]);
		assert.equal((await agent.ask("initialize", { protocolVersion: "1999-01-01" })).result.protocolVersion, "2025-11-25");
		agent.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n');
		assert.deepEqual((await agent.ask("ping")).result, {});
	});

	test("its tools are methods of the contract, with schemas that stand alone", async () => {
		const { result: { tools } } = await agent.ask("tools/list");
		assert.ok(tools.length >= 10);
		for (const tool of tools) {
			assert.match(tool.name, /^[a-z_]+$/);
			assert.ok(tool.description.length > 10);
			assert.equal(tool.inputSchema.type, "object");
			assert.ok(!JSON.stringify(tool).includes("$ref"), tool.name);
		}
		const run = tools.find(({ name }) => name === "compute_run");
		assert.deepEqual(run.inputSchema.required, ["device_id", "kernel", "args"]);
		assert.equal(run.annotations.readOnlyHint, false);
		assert.ok(!tools.some(({ name }) => /token|node_|audit|ticket|memory/.test(name)), "nothing that gives rights");
	});

	test("an agent finds a device, and computes on it", async () => {
		const device = await eventually(async () => {
			const { structuredContent, isError } = await agent.tool("cluster_snapshot", {});
			assert.equal(isError, false);
			return structuredContent.devices.find((one) => one.backend === "cpu" && one.verification.state === "passed");
		}, "the processor is verified", 6 * patience);
		const { structuredContent, content, isError } = await agent.tool("compute_run", { device_id: device.device_id, kernel: "matmul_f32",
			args: [{ zeros: 4 }, { f32s: [1, 2, 3, 4] }, { f32s: [5, 6, 7, 8] }, { u32: 2 }, { u32: 2 }, { u32: 2 }] });
		assert.equal(isError, false, content[0].text);
		assert.deepEqual(structuredContent.f32s, [19, 22, 43, 50]);
		assert.deepEqual(JSON.parse(content[0].text), structuredContent);
	});

	test("devices are resources, which stand alone", async () => {
		const { result: { resources } } = await agent.ask("resources/list"), { structuredContent: { devices } } = await agent.tool("cluster_snapshot", {});
		assert.deepEqual(resources.map(({ uri, title, mimeType }) => [uri, title, mimeType]), devices.map(({ device_id, name }) => [`exogpu://device/${device_id}`, name, "application/json"]));
		const [{ uri }] = resources, { result: { contents: [one, ...more] } } = await agent.ask("resources/read", { uri });
		assert.deepEqual([one.uri, one.mimeType, JSON.parse(one.text).device_id, more], [uri, "application/json", devices[0].device_id, []]);
		assert.deepEqual((await agent.ask("resources/templates/list")).result, { resourceTemplates: [] });
		for (const uri of ["exogpu://device/dev_none", "exogpu://device/", "file:///etc/passwd", "", undefined]) {
			const { error } = await agent.ask("resources/read", { uri });
			assert.deepEqual([error.code, error.message], [-32602, `Resource not found: ${uri ?? ""}`]);
		}
	});

	test("what the server refuses is told to the model, with the hint", async () => {
		const { isError, content } = await agent.tool("compute_run", { device_id: "dev_none", kernel: "sum_f32", args: [{ zeros: 1 }] });
		assert.equal(isError, true);
		assert.match(content[0].text, /^not_found: /);
		assert.match((await agent.tool("compute_run", { device_id: 5 })).content[0].text, /^invalid_params: /);
	});

	test("a token may do what its scopes say", async () => {
		const { token } = await admin.call("token.create", { name: "agent", scopes: ["observe"] });
		const other = new Agent(["--url", server.url.origin], { EXOGPU_TOKEN: token });
		assert.equal((await other.tool("model_list")).isError, false);
		const { isError, content } = await other.tool("instance_delete", { instance_id: "ins_none" });
		assert.ok(isError && content[0].text.startsWith("forbidden: "), content[0].text);
		assert.ok(!(other.stderr + JSON.stringify(other.lines)).includes(token));
		await other.finish();
	});

	test("what is no request gets the protocol's error, and is no end", async () => {
		for (const [line, code, id] of [["{", -32700, null], ["[]", -32600, null], ['{"id":"a","method":5}', -32600, "a"],
			['{"jsonrpc":"2.0","id":"b","method":"nothing"}', -32601, "b"],
			['{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"token_create","arguments":{}}}', -32602, "c"],
			['{"jsonrpc":"2.0","id":"d","method":"tools/call"}', -32602, "d"]]) {
			const before = agent.lines.length;
			agent.write(`${line}\n`);
			await eventually(() => agent.lines.length > before, `an answer to ${line}`);
			assert.deepEqual([agent.lines[before].id, agent.lines[before].error.code], [id, code], line);
		}
		agent.write('\n{"jsonrpc":"2.0","id":1,"result":{}}\n');
		assert.deepEqual((await agent.ask("ping")).result, {});
	});

	test("a line without an end is refused, and a wrong address is said", async () => {
		const other = new Agent(["--data", server.data]);
		other.child.stdin.on("error", () => {}); // it is closed meanwhile
		other.write("x".repeat(3 << 20));
		assert.equal(await within(other.ended, "it ends"), 1);
		assert.match(other.stderr, /more than \d+ bytes/);
		const lost = launch(["mcp", "--url", "ftp://nowhere"]);
		assert.equal((await within(lost.exited, "it ends")).code, 2);
	});
});
