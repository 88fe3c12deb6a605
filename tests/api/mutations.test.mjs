// Messages that are almost right, thousands of them: each is answered as the contract says or ends its connection, and
// the server goes on. Under the sanitizers this is the fuzz test of the whole way of a call. EXOGPU_SEED repeats a run.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { api, node as nodeContract } from "./contract.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "./records.mjs";
import { startServer, within } from "./server.mjs";

const seed = Number(process.env.EXOGPU_SEED ?? Date.now() % 1e9);
let state = seed;
// mulberry32: small, and the same everywhere.
function random(below) {
	state = (state + 0x6d2b79f5) | 0;
	let t = Math.imul(state ^ (state >>> 15), 1 | state);
	t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
	return ((t ^ (t >>> 14)) >>> 0) % below;
}
const pick = (list) => list[random(list.length)];
const odd = ["null", "true", "-1", "1e308", "0", '""', '"\\u0000"', '"x"', "[]", "{}", "[[[[]]]]", "9007199254740993", '"2026-11-20T14:31:52Z"'];

function mutate(text) {
	let bytes = Buffer.from(text);
	for (let i = random(4); i >= 0; i--) {
		const at = random(bytes.length + 1), length = random(12);
		const piece = pick([() => Buffer.from([random(256)]), () => Buffer.from(pick(odd)), () => bytes.subarray(at, at + length),
			() => Buffer.alloc(0)])();
		bytes = Buffer.concat([bytes.subarray(0, at), piece, bytes.subarray(at + random(2) * length)]);
	}
	return bytes;
}

// One value somewhere in the message exchanged: still JSON, so that it comes further.
function exchange(text) {
	const places = [...text.matchAll(/(?<=[:,[])("(?:[^"\\]|\\.)*"|-?\d[\d.]*|true|false|null)(?=[,\]}])/g)];
	if (!places.length) return Buffer.from(text);
	const { index, 0: old } = pick(places);
	return Buffer.from(text.slice(0, index) + pick(odd) + text.slice(index + old.length));
}

const messages = (document, params) => Object.entries(params).map(([method, value]) =>
	JSON.stringify({ jsonrpc: "2.0", id: 7, method, params: value })).concat(
	document.methods.map(({ name }) => JSON.stringify({ jsonrpc: "2.0", id: "m", method: name, params: {} })));

// Send many, over as many connections as it takes.
async function bombard(open, list, count) {
	let client = await open(), ended = 0;
	for (let i = 0; i < count; i++) {
		if (client.socket.readyState !== 1) {
			await within(client.closed, "the close");
			client = await open();
			ended++;
		}
		let bytes = (random(2) ? mutate : exchange)(pick(list));
		const binary = random(4) === 0;
		if (binary) {
			const length = Buffer.alloc(4);
			length.writeUInt32LE(random(10) ? bytes.length : random(1 << 30));
			bytes = Buffer.concat([length, bytes, Buffer.alloc(random(3))]);
		}
		client.socket.send(bytes, { binary });
		if (i % 50 === 0) await client.raw('{"jsonrpc":"2.0","id":"mark"}').catch(() => {});
	}
	client.socket.terminate();
	return ended;
}

describe(`mutated messages (EXOGPU_SEED=${seed})`, () => {
	let server;
	before(async () => {
		server = await startServer({ args: ["--log-level", "error"] });
	});
	after(async () => {
		await server.finish();
		assertContractKept();
	});

	test("of clients", async () => {
		const node = await FakeNode.connect(server, nodeRecord());
		await node.devices([deviceRecord()]);
		const list = messages(api, { "auth.login": { token: server.token }, "telemetry.history": { device_id: "dev_gpu",
			from: new Date(Date.now() - 60000).toISOString(), to: new Date().toISOString(), step_s: 1 },
			"events.subscribe": { topics: ["inventory", "log"], since: { epoch: "e", seq: 4 } },
			"device.drain": { device_id: "dev_gpu", drain: true }, "device.verify": { device_id: "dev_gpu" },
			"token.create": { name: "n", scopes: ["observe", "infer"], expires_in_s: 100, calls_per_s: 5, max_sessions: 2 },
			"token.revoke": { token_id: "0123456789" } });
		await bombard(() => Client.login(server), list, 3000);
		const admin = await Client.login(server);
		assert.equal((await admin.call("cluster.snapshot")).devices[0].device_id, "dev_gpu");
		await admin.close();
		await node.close();
	});

	test("of nodes", async () => {
		const list = messages(nodeContract, { "node.register": { protocol: 1, node: nodeRecord() },
			"node.devices": { devices: [deviceRecord(), deviceRecord({ device_id: "dev_two", hardware_key: "two" })] },
			"node.telemetry": { node: nodeReadings(), devices: [deviceReadings()] } });
		const admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["inventory", "telemetry"] });
		await bombard(() => FakeNode.connect(server, nodeRecord()), list, 3000);
		await admin.call("cluster.snapshot"); // and every event of it kept to the contract
		await admin.close();
	});
});
