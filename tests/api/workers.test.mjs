// The server and workers that the test plays: copies between them, who is held back, and what those that mean harm can do.
import assert from "node:assert/strict";
import net from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import WebSocket from "ws";
import { Client, frame } from "./client.mjs";
import { eventually, slow, within } from "./server.mjs";
import { admin, allocate, held, MiB, node, read, server, start, startNode, startWith, stop, tenant, token, write } from "./stage.mjs";
import { devices, FakeWorker, limits, pattern, RelayedWorker } from "./workers.mjs";

describe("starting", () => {
	before(start);
	after(stop);

	test("calls for two devices wait for theirs, each in its order", async () => {
		const client = await tenant(), asked = [];
		node.device = (request) => asked.push(request);
		const module = Buffer.from("a small module");
		const load = client.callWith("compute.load", { device_id: "dev_gpu", format: "spirv" }, module);
		const far = allocate(client, 8, "dev_twin1"), near = allocate(client, 8, "dev_gpu");
		await eventually(() => asked.length === 2, "both devices are asked for");
		delete node.device;
		node.reply(asked[1], { opened_ms: 1, limits });
		await far;
		assert.deepEqual(node.worker().calls.map((one) => [one.method, one.params.device]), [["memory.allocate", 1]]);
		node.reply(asked[0], { opened_ms: 1, limits });
		await load;
		await near;
		assert.deepEqual(node.worker().calls.slice(1).map((one) => [one.method, one.bytes]), [["compute.load", module.length], ["memory.allocate", 0]]);
		await client.close();
	});

	for (const step of ["open", "device"])
		test(`the token is revoked while tenant.${step} is under way`, async () => {
			const mine = await token(), client = await Client.login(server, mine.token), asked = [];
			node[step] = (request) => asked.push(request);
			client.call("memory.allocate", { device_id: "dev_cpu", bytes: 100 }).catch(() => {});
			await eventually(() => asked.length === 1, "it is asked for");
			delete node[step];
			await admin.call("token.revoke", { token_id: mine.token_id });
			await node.endOf(asked[0].params);
			node.reply(asked[0], step === "open" ? { started_ms: 1, sandbox: { applied: [], missing: [] } } : { opened_ms: 1, limits });
			assert.equal(await held(mine.token_id), 0);
			const other = await tenant();
			await allocate(other); // all goes on
			await other.close();
		});

	test("the node goes while a worker starts", async () => {
		const client = await tenant();
		node.open = () => node.socket.terminate();
		await client.refused("memory.allocate", { device_id: "dev_cpu", bytes: 100 }, "device_lost");
		await startNode();
		await eventually(() => allocate(client).catch(() => null), "it is back");
		await client.close();
	});

	test("a device that says it is lost is opened anew, in a new worker", async () => {
		const client = await tenant(), id = await allocate(client), worker = node.worker();
		worker.answers["memory.fill"] = () => ({ error: { code: -32010, message: "illegal address", data: { reason: "device_lost", hint: null } } });
		const why = await client.refused("memory.fill", { allocation_id: id, offset: 0, bytes: 1, value: 0 }, "device_lost");
		assert.match(why.said, /illegal address/);
		assert.deepEqual((await client.notice("device_lost")).allocations, [id]);
		await node.endOf(worker);
		await allocate(client);
		await client.close();
	});
});

const kinds = { "of this machine": FakeWorker, "relayed by their node": RelayedWorker };

describe("copies by a channel from worker to worker", () => {
	before(startWith(FakeWorker));
	after(stop);

	// Two allocations of `size`, the first full of a pattern, with a worker each; and the copy of all from the one to the
	// other, of which the workers' channel moves `most` bytes.
	async function begin(size, most = size) {
		const client = await tenant(), bytes = pattern(size, 7);
		const from = await allocate(client, size), to = await allocate(client, size, "dev_gpu");
		for (let at = 0; at < size; at += MiB) await write(client, from, at, bytes.subarray(at, at + MiB));
		const [reader, writer] = node.workers.slice(-2);
		node.connects = [];
		node.connect = (message) => node.reply(message, {});
		reader.answers["memory.send"] = (p) => ({ result: { bytes: p.bytes } });
		writer.answers["memory.receive"] = (p) => {
			bytes.copy(writer.memory.get(p.handle), p.offset, 0, most);
			return { result: { bytes: most } };
		};
		return { client, bytes, from, to, reader, writer, copy: { from, from_offset: 0, to, to_offset: 0, bytes: size } };
	}

	const finish = async ({ client, reader, writer }) => {
		node.connect = undefined;
		assert.deepEqual([reader.faults, writer.faults], [[], []]);
		await client.close();
	};

	test("are asked of both nodes, then of both workers, and pass the server by", async () => {
		const all = await begin(5 * MiB + 3), { client, reader, writer } = all;
		assert.deepEqual(await client.call("memory.copy", all.copy), { bytes: all.bytes.length, path: "local" });
		const [one, other] = node.connects;
		assert.deepEqual(node.connects.map(({ worker_id, end, via }) => ({ worker_id, end, via })), [
			{ worker_id: writer.worker_id, end: "in", via: "local" }, { worker_id: reader.worker_id, end: "out", via: "local" }]);
		assert.ok(one.hop_id === other.hop_id && one.key === other.key && one.key.length === 64);
		assert.ok(!reader.calls.some(({ method }) => method === "memory.read"));
		const { channel, ...range } = reader.calls.find(({ method }) => method === "memory.send").params;
		assert.equal(channel, one.hop_id);
		assert.deepEqual(range, { handle: 1, offset: 0, bytes: all.bytes.length });
		assert.ok((await read(client, all.to, 0, all.bytes.length)).equals(all.bytes));
		await finish(all);
	});

	test("that break off go on through the server, from where they are", async () => {
		const most = 3 * MiB - 5, all = await begin(6 * MiB, most);
		assert.deepEqual(await all.client.call("memory.copy", all.copy), { bytes: all.bytes.length, path: "relay" });
		assert.equal(all.reader.calls.find(({ method }) => method === "memory.read").params.offset, most);
		assert.ok((await read(all.client, all.to, 0, all.bytes.length)).equals(all.bytes));
		await finish(all);
	});

	test("tell how far they are, of their own only", async () => {
		const all = await begin(4 * MiB), { client, writer, bytes } = all;
		let answer;
		writer.answers["memory.receive"] = (p, _, id) => {
			const tell = (channel, done_bytes) => writer.send({ jsonrpc: "2.0", method: "memory.moved", params: { channel, done_bytes } });
			tell("cpy_another", 99);
			tell(p.channel, bytes.length + 1);
			tell(p.channel, 12345);
			answer = () => {
				bytes.copy(writer.memory.get(p.handle));
				writer.send({ jsonrpc: "2.0", id, result: { bytes: p.bytes } });
			};
			return null;
		};
		const copy = client.call("memory.copy", all.copy), told = await client.notice("progress", ({ done_bytes }) => done_bytes > 0);
		assert.deepEqual([told.done_bytes, told.total_bytes], [12345, bytes.length]);
		answer();
		assert.equal((await copy).path, "local");
		await finish(all);
	});

	test("fail with what a worker says of its memory", async () => {
		const all = await begin(MiB);
		all.reader.answers["memory.send"] = () => ({ error: { code: -32004, message: "there is no allocation 1 here", data: { reason: "not_found", hint: null } } });
		all.writer.answers["memory.receive"] = () => ({ result: { bytes: 0 } });
		await all.client.refused("memory.copy", all.copy, "not_found");
		await finish(all);
	});

	test("end cleanly when a worker dies meanwhile", async () => {
		const all = await begin(MiB), { client } = all;
		all.reader.answers["memory.send"] = () => null;
		all.writer.answers["memory.receive"] = () => (all.writer.kill(), null);
		await client.refused("memory.copy", all.copy, "device_lost");
		assert.deepEqual((await client.notice("device_lost")).allocations, [all.to]);
		assert.equal((await read(client, all.from, 0, 1)).length, 1, "the other one lives");
		await finish(all);
	});

	test("a worker that says anything else by itself is ended", async () => {
		for (const params of [{ channel: "cpy_1", done_bytes: -1 }, { channel: "cpy_1", done_bytes: 1 }, { call: 1, done_bytes: 1 }]) {
			const all = await begin(MiB);
			all.writer.send({ jsonrpc: "2.0", method: "memory.moved", params });
			assert.deepEqual((await all.client.notice("device_lost")).allocations, [all.to]);
			await finish(all);
		}
	});
});

for (const [kind, Worker] of Object.entries(kinds)) describe(`copies between workers ${kind}`, () => {
	before(startWith(Worker));
	after(stop);

	test("go through the server in pieces", async () => {
		const client = await tenant(), size = 9 * MiB + 12345, bytes = pattern(size, 5);
		const from = await allocate(client, size + 10), to = await allocate(client, size + 20, "dev_gpu");
		for (let at = 0; at < size; at += MiB) await write(client, from, 3 + at, bytes.subarray(at, at + MiB));
		const copy = { from, from_offset: 3, to, to_offset: 7, bytes: size };
		assert.deepEqual(await client.call("memory.copy", copy), { bytes: size, path: "relay" });
		assert.ok((await read(client, to, 7, size)).equals(bytes));
		assert.deepEqual([...await read(client, to, 0, 7)], [0, 0, 0, 0, 0, 0, 0]);
		assert.deepEqual(await client.call("memory.copy", { ...copy, bytes: 0 }), { bytes: 0, path: "local" });
		await client.refused("memory.copy", { ...copy, bytes: size + 14 }, "invalid_params");
		await client.close();
	});

	test("tell how far they are", async () => {
		const client = await tenant(), size = 8 * MiB;
		const from = await allocate(client, size), to = await allocate(client, size, "dev_gpu"), last = node.worker();
		let first = true, goesOn; // after the first piece it is told how far it is before another one is written
		const goes = new Promise((resolve) => { goesOn = resolve; });
		last.answers["memory.write"] = (params, body, id) => {
			const answer = () => last.send({ jsonrpc: "2.0", id, result: { bytes: body.length } });
			if (first) answer();
			else goes.then(answer);
			first = false;
			return null;
		};
		const copy = client.call("memory.copy", { from, from_offset: 0, to, to_offset: 0, bytes: size });
		const told = await client.notice("progress");
		assert.deepEqual([told.id, told.total_bytes], [client.nextId - 1, size]);
		goesOn();
		await copy;
		await client.close();
	});

	for (const which of ["from", "to"])
		test(`end cleanly when the worker ${which === "from" ? "that is read" : "that is written"} dies`, async () => {
			const client = await tenant(), size = 32 * MiB;
			const from = await allocate(client, size), to = await allocate(client, size, "dev_gpu");
			const [reader, writer] = node.workers.slice(-2), dying = which === "from" ? reader : writer;
			const method = which === "from" ? "memory.read" : "memory.write";
			let taken = 0;
			dying.answers[method] = (params, body) => (++taken < 6 ? dying.run(method, params, body) : (dying.kill(), null));
			await client.refused("memory.copy", { from, from_offset: 0, to, to_offset: 0, bytes: size }, "device_lost");
			const lost = await client.notice("device_lost");
			assert.deepEqual(lost.allocations, [which === "from" ? from : to]);
			assert.equal((await read(client, which === "from" ? to : from, 0, 1)).length, 1, "the other one lives");
			await client.close();
		});

	test("with all pieces in the hands of one, the other may go", async () => {
		const client = await tenant(), size = 32 * MiB;
		const from = await allocate(client, size), to = await allocate(client, size, "dev_gpu");
		const [reader, writer] = node.workers.slice(-2), asked = [];
		reader.answers["memory.read"] = (params, body, id) => (asked.push({ id, params }), null);
		const copy = client.refused("memory.copy", { from, from_offset: 0, to, to_offset: 0, bytes: size }, "device_lost");
		await eventually(() => asked.length === 4, "four pieces are asked for");
		writer.kill();
		await copy;
		for (const { id, params } of asked) reader.send({ jsonrpc: "2.0", id, result: { bytes: params.bytes } }, Buffer.alloc(params.bytes));
		delete reader.answers["memory.read"];
		assert.equal((await read(client, from, 0, 1)).length, 1);
		await client.close();
	});

	test("at most four at once", async () => {
		const client = await tenant();
		const from = await allocate(client, 100), to = await allocate(client, 100, "dev_gpu"), waiting = [];
		node.worker().answers["memory.write"] = (params, body, id) => (waiting.push(id), null);
		const copy = { from, from_offset: 0, to, to_offset: 0, bytes: 100 };
		const under = Array.from({ length: 4 }, () => client.call("memory.copy", copy));
		await eventually(() => waiting.length === 4, "four are under way");
		await client.refused("memory.copy", copy, "limit_exceeded");
		for (const id of waiting) node.worker().send({ jsonrpc: "2.0", id, result: { bytes: 100 } });
		await Promise.all(under);
		await client.close();
	});
});

for (const [kind, Worker] of Object.entries(kinds)) describe(`holding back workers ${kind}`, () => {
	before(startWith(Worker));
	after(stop);

	const amount = 128; // MiB, of which a quarter may come to be in the server
	const assertSmall = (before, what) => {
		const grown = server.residentBytes() - before;
		console.log(`${amount} MiB ${what}: the server grew by ${(grown / MiB).toFixed(1)} MiB`);
		assert.ok(grown < amount / 4 * MiB * (slow > 2 ? 3 : 1), `${grown} bytes`);
	};
	// Until no more of what these have to send is taken.
	const stands = async (...senders) => {
		const left = () => senders.reduce((sum, { socket }) => sum + (socket.bufferedAmount ?? socket.writableLength), 0);
		for (let before = -1, same = 0; same < 5; before = left()) {
			await new Promise((resolve) => setTimeout(resolve, 100));
			same = left() === before ? same + 1 : 0;
		}
		return left();
	};

	test("a worker that takes nothing stops its sender, not the server", async () => {
		const client = await tenant(), id = await allocate(client, amount * MiB), worker = node.worker();
		const other = await tenant(), theirs = await allocate(other, MiB);
		const before = server.residentBytes();
		worker.socket.pause();
		const bytes = pattern(MiB, 4);
		const all = Promise.all(Array.from({ length: amount }, (_, i) => write(client, id, i * MiB, bytes)));
		all.catch(() => {});
		assert.ok(await stands(client) > amount / 2 * MiB, "it is held back");
		assertSmall(before, "to a worker that reads nothing");
		await write(other, theirs, 0, bytes); // nobody else waits
		worker.socket.resume();
		await all;
		assert.ok((await read(client, id, (amount - 1) * MiB, MiB)).equals(bytes));
		await client.close();
		await other.close();
	});

	test("many connections of a session with large bodies are held back, not refused", async () => {
		const { token: text } = await token(), clients = [await Client.login(server, text, { zeroMask: true })];
		const id = await allocate(clients[0], 16 * MiB), worker = node.worker(), bytes = Buffer.alloc(16 * MiB, 3);
		for (let i = 0; i < 6; i++) {
			clients.push(await Client.open(server, { zeroMask: true }));
			await clients.at(-1).call("auth.login", { token: text, session_id: clients[0].session.session_id });
		}
		worker.socket.pause();
		const all = Promise.all(clients.flatMap((client) => [1, 2].map(() => write(client, id, 0, bytes))));
		all.catch(() => {});
		assert.ok(await stands(...clients) > 0, "they are held back");
		worker.socket.resume();
		assert.equal((await all).length, 14);
		for (const client of clients) await client.close();
	});

	test("a client that reads nothing stops its worker, not the server", async () => {
		const client = await tenant(), id = await allocate(client, MiB), worker = node.worker();
		const before = server.residentBytes();
		client.socket.pause();
		const all = Promise.all(Array.from({ length: amount }, () => read(client, id, 0, MiB)));
		all.catch(() => {});
		await eventually(() => worker.calls.length >= amount, "the worker has been asked");
		assert.ok(await stands(worker) > amount / 2 * MiB, "it is held back");
		assertSmall(before, "for a client that reads nothing");
		client.socket.resume();
		await all;
		await client.close();
	});

	test("what a client asked for does not make its events too much for it", async () => {
		const client = await tenant(), other = await tenant(), id = await allocate(client, 16 * MiB);
		await client.call("events.subscribe", { topics: ["inventory"] });
		client.socket.pause();
		const all = [16, 1.5, 16, 3, 1.9, 16, 0.5, 16].map((size) => read(client, id, 0, Math.round(size * MiB)));
		for (let i = 0; i < 30; i++) await admin.call("device.drain", { device_id: "dev_small", drain: i % 2 === 0 });
		await allocate(other, 100);
		client.socket.resume();
		assert.equal((await Promise.all(all)).length, 8);
		assert.equal(client.end, undefined);
		await client.close();
		await other.close();
	});

	test("no other token while calls of the one before are under way", async () => {
		const client = await tenant(), id = await allocate(client), { token: text } = await token();
		node.worker().answers["memory.read"] = () => null;
		const waits = client.call("memory.read", { allocation_id: id, offset: 0, bytes: 1 }).catch((error) => error.reason);
		await client.refused("auth.login", { token: text }, "conflict");
		node.worker().kill();
		assert.equal(await waits, "device_lost");
		await client.call("auth.login", { token: text });
		await client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "not_found");
		await client.close();
	});

	test("a client held back that goes, and one that is read again after its worker died", async () => {
		const client = await tenant(), id = await allocate(client, MiB), worker = node.worker();
		const bytes = Buffer.alloc(MiB);
		worker.socket.pause();
		const all = Array.from({ length: 100 }, () => write(client, id, 0, bytes).then(() => "written", (error) => error.reason));
		await stands(client);
		worker.kill();
		const outcomes = await Promise.all(all);
		assert.deepEqual([...new Set(outcomes)], ["device_lost"]);
		const again = await allocate(client, MiB);
		node.worker().socket.pause();
		for (let i = 0; i < 100; i++) write(client, again, 0, bytes).catch(() => {});
		await stands(client);
		client.socket.terminate();
		await admin.call("server.info");
		node.worker().socket.resume();
		await admin.call("server.info");
	});
});

// What is said after the node's word: the server has that, since it has answered what the node asked after it.
const told = async (worker, message) => {
	node.notify("tenant.ended", { worker_id: worker.worker_id, message });
	await node.devices(devices);
};

// The server waits for the second of the two for a second or two; for the tests of their order, as long as it takes.
for (const [kind, Worker] of Object.entries(kinds)) describe(`a node's word and the end of a stream, ${kind}`, () => {
	before(startWith(Worker, { env: { EXOGPU_TEST_LAST_WAIT_MS: "600000" } }));
	after(stop);

	test("the node's word comes after the end of the stream, and is told", async () => {
		const client = await tenant(), id = await allocate(client), worker = node.worker();
		worker.answers["memory.read"] = () => null;
		const before = client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "device_lost");
		await eventually(() => worker.calls.some((one) => one.method === "memory.read"), "the worker has the call");
		worker.kill();
		await worker.closed;
		// Between the two it is taken for alive.
		const between = client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "device_lost");
		const anew = client.refused("memory.allocate", { device_id: "dev_cpu", bytes: 100 }, "device_lost");
		await client.call("server.info"); // on the same connection: the server has read those before it
		node.notify("tenant.ended", { worker_id: worker.worker_id, message: "the worker crashed: signal 11" });
		for (const one of [before, between, anew]) assert.match((await one).said, /its worker ended: the worker crashed: signal 11/);
		assert.match((await client.notice("device_lost")).message, /signal 11/);
		assert.ok(!node.ended.some((one) => one.worker_id === worker.worker_id), "the node knows");
		await allocate(client);
		await client.close();
	});

	test("the node's word comes first, and what the worker answered before its end is heard", async () => {
		const client = await tenant(), id = await allocate(client), worker = node.worker(), asked = [];
		for (const method of ["memory.write", "memory.fill", "memory.read", "memory.allocate"])
			worker.answers[method] = (_, body, id) => void asked.push([id, body.length]);
		const written = write(client, id, 0, Buffer.alloc(64)), bytes = { allocation_id: id, offset: 0, bytes: 1 };
		const late = client.refused("memory.fill", { ...bytes, value: 1 }, "timeout");
		const never = client.refused("memory.read", bytes, "device_lost");
		await eventually(() => asked.length === 3, "the worker has the calls");
		await told(worker, "exit status 3");
		const between = client.refused("memory.read", bytes, "device_lost");
		const anew = client.refused("memory.allocate", { device_id: "dev_cpu", bytes: 100 }, "device_lost");
		await client.call("server.info"); // on the same connection: the server has read those before it
		worker.send({ jsonrpc: "2.0", id: asked[0][0], result: { bytes: asked[0][1] } });
		worker.send({ jsonrpc: "2.0", id: asked[1][0], error: { code: -32008, message: "still running", data: { reason: "timeout", hint: null } } });
		assert.equal((await written).bytes, 64);
		await late;
		worker.kill();
		for (const one of [never, between, anew]) assert.match((await one).said, /a kernel outlasted its time limit/);
		assert.deepEqual((await client.notice("device_lost")).allocations, [id]);
		assert.ok(!node.ended.some((one) => one.worker_id === worker.worker_id), "the node knows");
		await allocate(client);
		await client.close();
	});
});

for (const [kind, Worker] of Object.entries(kinds)) describe(`how workers end, ${kind}`, () => {
	before(startWith(Worker));
	after(stop);

	test("the node's word comes first, and the stream ends or stays", async () => {
		for (const ends of [true, false]) {
			const client = await tenant(), id = await allocate(client), worker = node.worker();
			worker.answers["memory.read"] = () => null;
			const read = client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "device_lost");
			await eventually(() => worker.calls.some((one) => one.method === "memory.read"), "the worker has the call");
			await told(worker, "the worker crashed: signal 11");
			if (ends) worker.kill();
			assert.match((await read).said, /its worker ended: the worker crashed: signal 11/);
			await node.gone(worker);
			await allocate(client);
			await client.close();
		}
	});

	test("the token is revoked, or the node goes, after its word and before the end of the stream", async () => {
		const mine = await token(), client = await Client.login(server, mine.token);
		await allocate(client);
		await told(node.worker(), "exit status 3");
		await admin.call("token.revoke", { token_id: mine.token_id });
		assert.equal((await client.closed).code, 4410);
		assert.equal(await held(mine.token_id), 0);
		const other = await tenant();
		await allocate(other);
		await told(node.worker(), "exit status 3");
		node.socket.terminate();
		assert.match((await other.notice("device_lost")).message, /its node is offline|exit status 3/);
		await startNode();
		await eventually(() => allocate(other).catch(() => null), "it is back");
		await other.close();
	});

	test("a node that says nothing is not waited for", async () => {
		const client = await tenant(), id = await allocate(client), worker = node.worker(), begun = performance.now();
		worker.kill();
		assert.equal((await client.notice("device_lost")).message, "its worker ended");
		console.log(`told ${(performance.now() - begun).toFixed(0)} ms after the end of its stream`);
		await client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "device_lost");
		await node.endOf(worker);
		await client.close();
	});

	test("the token is revoked, or the node goes, while its word is waited for", async () => {
		const mine = await token(), client = await Client.login(server, mine.token);
		await allocate(client);
		const worker = node.worker();
		worker.kill();
		await worker.closed;
		await admin.call("token.revoke", { token_id: mine.token_id });
		assert.equal((await client.closed).code, 4410);
		await node.endOf(worker);
		const other = await tenant();
		await allocate(other);
		node.worker().kill();
		node.socket.terminate();
		assert.match((await other.notice("device_lost")).message, /its node is offline|its worker ended/);
		await startNode();
		await eventually(() => allocate(other).catch(() => null), "it is back");
		await other.close();
	});
});

for (const [kind, Worker] of Object.entries(kinds)) describe(`workers that mean harm, ${kind}`, () => {
	before(startWith(Worker));
	after(stop);

	// Someone who sends these bytes; resolves once the server has closed the stream.
	const thrown = (bytes) => within(new Promise((resolve) => {
		if (Worker === RelayedWorker) {
			const socket = new WebSocket(`ws+unix:${server.socket}:/node`, ["exogpu.worker.v1"]);
			socket.on("open", () => socket.send(bytes.subarray(4)));
			socket.on("error", () => {});
			return socket.on("close", resolve);
		}
		const socket = net.connect(join(server.data, "workers.sock"), () => socket.write(bytes));
		socket.on("error", () => {});
		socket.on("close", resolve);
		socket.resume();
	}), "the stream is closed");
	const message = (head, body) => {
		const inner = frame(head, body), total = Buffer.alloc(4);
		total.writeUInt32LE(inner.length);
		return Buffer.concat([total, inner]);
	};
	const hello = (params) => ({ jsonrpc: "2.0", method: "link.hello", params });

	test("streams that are nobody's", async () => {
		const client = await tenant();
		await allocate(client);
		const { worker_id, key } = node.requests.findLast((one) => one.method === "tenant.open").params;
		assert.match(key, /^[0-9a-f]{64}$/);
		await thrown(message(hello({ worker_id: "wrk_none", key })));
		await thrown(message(hello({ worker_id, key: "0".repeat(64) })));
		await thrown(message(hello({ worker_id, key }))); // it is linked already, and the key was for once
		await thrown(message(hello({ worker_id })));
		await thrown(message({ jsonrpc: "2.0", id: 1, method: "memory.read", params: { handle: 1, offset: 0, bytes: 1 } }));
		await thrown(message({ jsonrpc: "2.0", id: 1, result: {} }));
		await thrown(Buffer.from("GET / HTTP/1.1\r\n\r\n"));
		await thrown(Buffer.from([255, 255, 255, 255]));
		await thrown(Buffer.alloc(0)); // says nothing for 5 s
		assert.equal((await client.call("memory.list")).allocations.length, 1, "the real one lives");
		await client.close();
	});

	const lies = {
		"an answer that nobody waits for": (worker) => worker.send({ jsonrpc: "2.0", id: 999999, result: {} }),
		"an answer with another kind of id": (worker, id) => worker.send({ jsonrpc: "2.0", id: `${id}`, result: { bytes: 100 } }, Buffer.alloc(100)),
		"a call of its own": (worker) => worker.send({ jsonrpc: "2.0", id: 1, method: "memory.read", params: {} }),
		"a notification": (worker) => worker.send({ jsonrpc: "2.0", method: "tenant.ended", params: {} }),
		"a body that is too short": (worker, id) => worker.send({ jsonrpc: "2.0", id, result: { bytes: 100 } }, Buffer.alloc(99)),
		"a body that is too long": (worker, id) => worker.send({ jsonrpc: "2.0", id, result: { bytes: 100 } }, Buffer.alloc(101)),
		"no body": (worker, id) => worker.send({ jsonrpc: "2.0", id, result: { bytes: 100 } }),
		"a body with an error": (worker, id) => worker.send({ jsonrpc: "2.0", id, error: { code: -32004, message: "x" } }, Buffer.alloc(100)),
		"another number of bytes": (worker, id) => worker.send({ jsonrpc: "2.0", id, result: { bytes: 101 } }, Buffer.alloc(100)),
		"a result that breaks the contract": (worker, id) => worker.send({ jsonrpc: "2.0", id, result: { bytes: 100, extra: 1 } }, Buffer.alloc(100)),
		"a body in memory that it has not shared": (worker, id) => worker.send({ jsonrpc: "2.0", id, result: { bytes: 100, at: 0 } }),
		"an empty message, which is for who shares memory": (worker) => worker.write(Buffer.from([4, 0, 0, 0, 0, 0, 0, 0])),
		"no JSON": (worker) => worker.write(Buffer.concat([Buffer.from([8, 0, 0, 0, 4, 0, 0, 0]), Buffer.from("{{{{")])),
		...(Worker === FakeWorker
			? { "a total that is too large": (worker) => worker.write(Buffer.from([255, 255, 255, 127, 2, 0, 0, 0])) }
			: {
				"a text frame": (worker) => worker.socket.send("{}"),
				"an empty frame": (worker) => worker.socket.send(Buffer.alloc(0)),
				"no WebSocket": (worker) => worker.socket._socket.write("GET / HTTP/1.1\r\n\r\n"),
				"a message over the limit": (worker) => worker.socket.send(Buffer.alloc(18 * MiB), { fin: false }),
			}),
		"a head longer than the message": (worker) => worker.write(Buffer.from([8, 0, 0, 0, 9, 0, 0, 0, 1, 2, 3, 4])),
		"an answer twice": (worker, id) => {
			worker.send({ jsonrpc: "2.0", id: id - 1, result: { bytes: 100 } });
		},
	};
	for (const [what, lie] of Object.entries(lies))
		test(`${what} ends the worker, and it alone`, async () => {
			const [client, other] = [await tenant(), await tenant()];
			const id = await allocate(client, 1000), worker = node.worker(), theirs = await allocate(other, 1000);
			await write(client, id, 0, Buffer.alloc(100));
			worker.answers["memory.read"] = (params, body, call) => (lie(worker, call), null);
			await client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 100 }, "device_lost");
			assert.deepEqual((await client.notice("device_lost")).allocations, [id]);
			await node.endOf(worker);
			await node.gone(worker);
			assert.equal((await read(other, theirs, 0, 1000)).length, 1000);
			await allocate(client);
			await client.close();
			await other.close();
		});

	test("errors of every kind become those of the contract", async () => {
		const client = await tenant(), id = await allocate(client, 1000);
		for (const [code, reason] of [[-32004, "not_found"], [-32602, "invalid_params"], [-32001, "internal"], [-32700, "internal"], [12345, "internal"]]) {
			node.worker().answers["memory.read"] = () => ({ error: { code, message: "\u0007 é".repeat(300), data: { reason: "lies", hint: 5 } } });
			await client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 100 }, reason);
		}
		await client.close();
	});
});
