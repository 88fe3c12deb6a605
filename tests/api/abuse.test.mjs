// Attacks, client mistakes and a full disk, after which the same server must still answer. Each of these once stopped a
// server, or destroyed another user's file.
import assert from "node:assert/strict";
import { linkSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { deviceRecord, nodeRecord } from "./records.mjs";
import { connectRaw, run, slow, startServer, temporary, upgradeHead } from "./server.mjs";

const register = (id) => JSON.stringify({
	jsonrpc: "2.0", id, method: "node.register", params: { protocol: 1, node: nodeRecord() } });

describe("a node that means harm", () => {
	let server, admin;
	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	for (const [what, letter] of [["2", "é"], ["4", "🖥"]])
		test(`ids of 64 characters with ${what} bytes each are refused`, async () => {
			const long = letter.repeat(64);
			const stranger = await FakeNode.connect(server);
			await stranger.refused("node.register", { protocol: 1, node: nodeRecord({ node_id: long }) }, "invalid_params");
			await stranger.call("node.register", { protocol: 1, node: nodeRecord({ node_id: "nod_long" }) });
			await stranger.refused("node.devices", { devices: [deviceRecord({ device_id: long })] }, "invalid_params");
			await stranger.refused("node.devices",
				{ devices: [deviceRecord({ hardware_key: letter.repeat(256) })] }, "invalid_params");
			await stranger.close();
			const { nodes, devices } = await admin.call("cluster.snapshot");
			assert.deepEqual([nodes.map((one) => one.node_id), devices], [["nod_long"], []]);
		});

	// The registrations overtake each other: the one that was superseded speaks again before it knows.
	test("two that speak for one node at the same time", async () => {
		for (let round = 0; round < 12; round++) {
			const one = await FakeNode.connect(server, nodeRecord()), other = await FakeNode.connect(server);
			other.socket.send(register(1001));
			await new Promise((resolve) => setImmediate(resolve));
			for (let i = 0; i <= round % 4; i++) one.socket.send(register(2000 + i));
			if (round % 2) await other.until(() => other.answers.length || other.end, "an answer").catch(() => {});
			one.socket.terminate();
			other.socket.terminate();
		}
		const last = await FakeNode.connect(server, nodeRecord());
		await last.devices([deviceRecord()]);
		const { nodes } = await admin.call("cluster.snapshot");
		assert.equal(nodes.find((one) => one.node_id === "nod_test").state, "online");
		await last.close();
	});
});

describe("a handshake that is none", () => {
	let server;
	before(async () => { server = await startServer(); });
	after(() => server?.finish());

	for (const [what, from, to] of [
		["another version", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 12"],
		["no version", /Sec-WebSocket-Version: .*\r\n/, ""],
		["a short key", /Sec-WebSocket-Key: .*\r\n/, "Sec-WebSocket-Key: aa\r\n"],
		["a subprotocol that only begins as ours", "\r\n\r\n", "\r\nSec-WebSocket-Protocol: exogpu.v12\r\n\r\n"],
	])
		test(what, async () => {
			const head = upgradeHead(server).replace(/Sec-WebSocket-Protocol: .*\r\n/, "");
			assert.notEqual(head.replace(from, to), head);
			const raw = connectRaw(server, head.replace(from, to));
			assert.match(await raw.until(/HTTP\/1\.. \d+/), /HTTP\/1\.. 400/);
			raw.socket.destroy();
		});

	test("asking on without reading is held back, ended after a while, and hurts nobody else", async () => {
		const request = `GET /schema/api.json HTTP/1.1\r\nHost: ${new URL(server.url).host}\r\n\r\n`;
		const answersAfter = async (ms) => {
			const raw = connectRaw(server, "");
			raw.socket.pause();
			raw.socket.write(request.repeat(399) + request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
			await new Promise((done) => setTimeout(done, ms));
			assert.equal((await fetch(`${server.url}healthz`)).status, 200);
			raw.socket.resume();
			await raw.ended;
			return raw.received.split("HTTP/1.1 200").length - 1;
		};
		const before = server.residentBytes(), soon = answersAfter(300), late = answersAfter(18000);
		assert.equal(await soon, 400);
		if (slow <= 2) // a sanitizer keeps what was freed
			assert.ok(server.residentBytes() < before + 64e6, "what is held back is not made");
		assert.ok(await late < 400, "a stranger takes what was asked for in time");
	});
});

describe("a data directory that was prepared by somebody else", () => {
	for (const [what, prepare] of [["a symbolic link", symlinkSync], ["a second name of another file", linkSync]])
		test(`a lock that is ${what} is not written through`, async () => {
			const data = join(temporary(), "data"), precious = join(temporary(), "precious");
			mkdirSync(data, { mode: 0o700 });
			writeFileSync(precious, "precious\n");
			prepare(precious, join(data, "lock"));
			const { code, stderr } = await run(["serve", "--data", data, "--listen", "127.0.0.1:0", "--no-local-node"]);
			assert.equal(code, 1);
			assert.match(stderr, /lock.*\n.*--data DIR/);
			assert.equal(readFileSync(precious, "utf8"), "precious\n");
		});
});
