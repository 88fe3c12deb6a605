// Memory and compute on a device of another machine: a node that joined by TLS, whose workers it relays. What is lost and
// what goes on when the node, a worker, the connection or a token goes, and that nothing passes once the server has not
// been heard for 5 s.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, describe, test } from "node:test";
import WebSocket from "ws";
import { assertContractKept, Client, frame } from "./client.mjs";
import { alive, stopFor, tenant, workers } from "./machine.mjs";
import { startCluster } from "./remote.mjs";
import { eventually, launch, patience, slow, within } from "./server.mjs";
import { pattern } from "./workers.mjs";

const MiB = 1024 * 1024, WAITING = 60; // launches
let cluster;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const allocate = async (client, device, bytes) => (await client.call("memory.allocate", { device_id: device.device_id, bytes })).allocation_id;
// After a node came back: it may be verifying its devices still.
const allocateSoon = (client, device, bytes) => eventually(() => allocate(client, device, bytes).catch((error) => {
	if (error.reason !== "unavailable") throw error;
}), "the device can be used again", 30000 * slow);
const write = (client, allocation_id, offset, body) => client.callWith("memory.write", { allocation_id, offset }, body);
const read = async (client, allocation_id, offset, bytes) => (await client.call("memory.read", { allocation_id, offset, bytes })).body;
const writeAll = (client, id, bytes, piece = MiB) => Promise.all(Array.from({ length: Math.ceil(bytes.length / piece) }, (_, i) =>
	write(client, id, i * piece, bytes.subarray(i * piece, (i + 1) * piece))));
const readAll = async (client, id, size, piece = MiB) => Buffer.concat(await Promise.all(Array.from({ length: Math.ceil(size / piece) },
	(_, i) => read(client, id, i * piece, Math.min(piece, size - i * piece)))));
const held = async (token_id) => (await cluster.admin.call("token.list")).tokens.find((one) => one.token_id === token_id).memory_bytes;
const rate = (bytes, ms) => `${(bytes / MiB / ms * 1000).toFixed(0)} MiB/s`;

const relayedBytes = async () => Number(/direction="relay"\} (\d+)/.exec(
	(await cluster.server.http("/metrics", { headers: { authorization: `Bearer ${cluster.server.token}` } })).text)[1]);
// Once the server knows of a direct link between the two nodes, in both directions.
const linked = () => eventually(async () => {
	const { nodes, links } = await cluster.admin.call("cluster.snapshot"), own = nodes.find((one) => one.local).node_id, other = cluster.remote.node_id;
	return [[own, other], [other, own]].every(([from, to]) => links.some((one) => one.from_node_id === from && one.to_node_id === to && one.state === "up"));
}, "there is a link in both directions", 60000 * slow);

// What `make` gives, with the worker that the second node started for it and the connection by which it is relayed.
async function withRemoteWorker(make) {
	const before = new Set(workers(cluster.remote.child.pid)), pairs = new Set(cluster.proxy.pairs);
	const made = await make();
	let started = workers(cluster.remote.child.pid).filter((pid) => !before.has(pid));
	// one that answers the node a question ends soon
	await eventually(() => (started = started.filter(alive)).length <= 1, () => `one worker is started: ${started}`);
	const opened = cluster.proxy.pairs.filter((pair) => !pairs.has(pair));
	assert.deepEqual([started.length, opened.length], [1, 1], "one worker, with a connection of its own");
	return [made, started[0], opened[0]];
}

// Of a session whose client has gone 10 s later: it may come back.
async function dead(pid, what = "the worker is dead", ms = 60000 * slow) {
	const began = performance.now();
	await eventually(() => !alive(pid), what, ms);
	return performance.now() - began;
}

// A call that may take longer than a call otherwise does.
function later(client, name, params, body) {
	const answered = body ? client.callWith(name, params, body) : client.call(name, params);
	answered.catch(() => {});
	const call = client.calls.get(client.nextId - 1);
	return new Promise((resolve, reject) => Object.assign(call, { resolve, reject }));
}

// Kernels without end, one after the other, WAITING of them with the worker at a time: some 3 s of work, whenever the test looks.
// Each is answered when it is done; `finish` lets those end that are there.
async function startLongWork(client) {
	const { module_id } = await client.call("compute.load", { device_id: cluster.remote.device.device_id, format: "builtin" });
	const launch = async (n) => {
		const [a, b, c] = await Promise.all([1, 2, 3].map(() => allocate(client, cluster.remote.device, n * n * 4)));
		return { module_id, kernel: "matmul_f32", args: [c, a, b].map((allocation_id) => ({ allocation_id })).concat([{ u32: n }, { u32: n }, { u32: n }]) };
	};
	const trial = await launch(512);
	let fastest = Infinity; // of several: others may be at work just now, and done with it later
	for (let i = 0; i < 8; i++) fastest = Math.min(fastest, (await client.call("compute.launch", trial)).device_us);
	const long = await launch(Math.ceil(512 * Math.cbrt(45000 / fastest))); // 45 ms each
	const work = { done: 0, failed: 0, goesOn: true };
	const line = async () => {
		do {
			await later(client, "compute.launch", long);
			work.done++;
		} while (work.goesOn);
	};
	const all = Promise.all(Array.from({ length: WAITING }, () => line().catch(() => { work.failed++; })));
	work.finish = () => {
		work.goesOn = false;
		return within(all, "the work goes on", 300000 * slow);
	};
	await eventually(() => work.done > 3, "the first are done");
	return work;
}

const fence = /no byte from the server for ([\d.]+) s/, lifted = /heard again/;
// What came from the node, once nothing more comes of what was on the way.
async function stands(pair) {
	for (let same = 0, before = -1; same < 3; before = pair.up) {
		await sleep(50);
		same = pair.up === before ? same + 1 : 0;
	}
	return pair.up;
}

describe("a device of another machine", () => {
	before(async () => { cluster = await startCluster(); });
	after(async () => {
		await cluster?.remote.finish();
		cluster?.proxy.close();
		await cluster?.server.finish();
		assertContractKept();
	});

	test("32 MiB bit for bit, fills, kernels, and its end", async () => {
		const client = await tenant(cluster), { device } = cluster.remote, bytes = pattern(32 * MiB, 7);
		const [id, pid] = await withRemoteWorker(() => allocate(client, device, bytes.length));
		const began = performance.now();
		await writeAll(client, id, bytes);
		const written = performance.now();
		assert.ok((await readAll(client, id, bytes.length)).equals(bytes));
		console.log(`by TLS to the server and to the node: ${rate(bytes.length, written - began)} written, ${rate(bytes.length, performance.now() - written)} read`);
		for (const [offset, size] of [[0, 0], [3, 5], [4095, 4098], [1, 16 * MiB], [16 * MiB, 16 * MiB]]) {
			const body = pattern(size, offset + 1);
			assert.deepEqual(await write(client, id, offset, body), { bytes: size });
			assert.ok((await read(client, id, offset, size)).equals(body), `${size} bytes at ${offset}`);
		}
		await client.call("memory.fill", { allocation_id: id, offset: 10, bytes: 1000, value: 7 });
		assert.ok((await read(client, id, 10, 1000)).equals(Buffer.alloc(1000, 7)));
		const { module_id } = await client.call("compute.load", { device_id: device.device_id, format: "builtin" });
		await client.call("compute.launch", { module_id, kernel: "fill_f32", args: [{ allocation_id: id }, { f32: 2.5 }, { u32: 1000 }] });
		assert.equal((await read(client, id, 3996, 4)).readFloatLE(0), 2.5);
		await client.call("compute.unload", { module_id });
		assert.deepEqual(await client.call("memory.free", { allocation_id: id }), { allocation_id: id, bytes: bytes.length });
		await client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "not_found");
		await client.close();
		await dead(pid, "the worker ends with its session");
	});

	test("copies between the machines go by their link, past the server and the client", async () => {
		const client = await tenant(cluster), bytes = pattern(32 * MiB, 9);
		const [here, there, back] = [await allocate(client, cluster.local, bytes.length), await allocate(client, cluster.remote.device, bytes.length + 10),
			await allocate(client, cluster.local, bytes.length)];
		await writeAll(client, here, bytes);
		await linked();
		const relayed = await relayedBytes();
		const wire = () => client.socket._socket.bytesRead + client.socket._socket.bytesWritten, before = wire();
		const times = [];
		for (const [from, from_offset, to, to_offset] of [[here, 0, there, 7], [there, 7, back, 0]]) {
			const began = performance.now();
			assert.deepEqual(await later(client, "memory.copy", { from, from_offset, to, to_offset, bytes: bytes.length }), { bytes: bytes.length, path: "link" });
			times.push(performance.now() - began);
		}
		assert.ok(wire() - before < 64 * 1024, `${wire() - before} bytes went by the client`);
		assert.equal(await relayedBytes(), relayed, "none went by the server");
		console.log(`copied by the link: ${rate(bytes.length, times[0])} to the other machine, ${rate(bytes.length, times[1])} back`);
		assert.ok((await readAll(client, back, bytes.length)).equals(bytes));
		// Four at once, while the client writes and reads on.
		const copies = Array.from({ length: 4 }, (_, i) => later(client, "memory.copy", { from: here, from_offset: i * MiB, to: there, to_offset: i * MiB, bytes: MiB }));
		assert.ok((await read(client, back, 5, MiB)).equals(bytes.subarray(5, 5 + MiB)));
		await Promise.all(copies);
		assert.ok((await readAll(client, there, 4 * MiB)).equals(bytes.subarray(0, 4 * MiB)));
		await client.close();
	});

	test("copies to another machine and back at once, of any size", async () => {
		const client = await tenant(cluster), size = 24 * MiB + 5, bytes = [pattern(size, 31), pattern(size, 32)];
		const ids = [await allocate(client, cluster.local, 2 * size), await allocate(client, cluster.remote.device, 2 * size)];
		await Promise.all(ids.map((id, i) => writeAll(client, id, bytes[i])));
		await linked();
		const copies = [0, 1].map((i) => later(client, "memory.copy", { from: ids[i], from_offset: 0, to: ids[1 - i], to_offset: size, bytes: size }));
		for (const copy of copies) assert.deepEqual(await within(copy, "it is copied", 60000 * slow), { bytes: size, path: "link" });
		for (const i of [0, 1]) {
			const whole = await readAll(client, ids[1 - i], 2 * size);
			assert.ok(whole.subarray(0, size).equals(bytes[1 - i]) && whole.subarray(size).equals(bytes[i]));
		}
		for (const some of [0, 1, 4097]) {
			assert.deepEqual(await later(client, "memory.copy", { from: ids[0], from_offset: 3, to: ids[1], to_offset: 9, bytes: some }), { bytes: some, path: "link" });
			assert.ok((await read(client, ids[1], 9, some)).equals(bytes[0].subarray(3, 3 + some)));
		}
		await client.close();
	});

	test("a copy by the link whose memory is freed, or whose worker is killed, is told so", async () => {
		const client = await tenant(cluster), size = 64 * MiB;
		const [here] = [await allocate(client, cluster.local, size)];
		const [there, pid] = await withRemoteWorker(() => allocate(client, cluster.remote.device, size));
		await linked();
		const freed = later(client, "memory.copy", { from: here, from_offset: 0, to: there, to_offset: 0, bytes: size }).catch((error) => error);
		await client.call("memory.free", { allocation_id: here });
		const outcome = await within(freed, "it is answered", 60000 * slow);
		assert.ok(outcome.reason === "not_found" || outcome.bytes === size, JSON.stringify(outcome));
		const again = await allocate(client, cluster.local, size);
		const copy = later(client, "memory.copy", { from: again, from_offset: 0, to: there, to_offset: 0, bytes: size }).catch((error) => error);
		process.kill(pid, "SIGKILL");
		const end = await within(copy, "it is answered", 60000 * slow);
		assert.ok(end.reason === "device_lost" || end.bytes === size, JSON.stringify(end));
		assert.equal((await read(client, again, 0, 10)).length, 10, "the other one lives");
		await client.close();
	});

	test("two sessions at once have each their own", async () => {
		const clients = [await tenant(cluster), await tenant(cluster)], patterns = [pattern(32 * MiB, 21), pattern(32 * MiB, 22)];
		const made = [];
		for (const client of clients) made.push(await withRemoteWorker(() => allocate(client, cluster.remote.device, 32 * MiB)));
		await Promise.all(clients.map((client, i) => writeAll(client, made[i][0], patterns[i])));
		const back = await Promise.all(clients.map((client, i) => readAll(client, made[i][0], 32 * MiB)));
		back.forEach((bytes, i) => assert.ok(bytes.equals(patterns[i]), `of session ${i}`));
		await clients[0].refused("memory.read", { allocation_id: made[1][0], offset: 0, bytes: 1 }, "not_found");
		for (const client of clients) await client.close();
	});

	test("40 sessions that begin at once all get their worker", async () => {
		const { token } = await cluster.admin.call("token.create", { name: "many", scopes: ["allocate"] });
		const clients = await Promise.all(Array.from({ length: 40 }, () => Client.open(cluster.server, { bearer: token })));
		const ids = await within(Promise.all(clients.map(async (client) =>
			(await later(client, "memory.allocate", { device_id: cluster.remote.device.device_id, bytes: 4096 })).allocation_id)), "all have theirs", 60000 * slow);
		await Promise.all(clients.map((client, i) => write(client, ids[i], 0, Buffer.from([i]))));
		const back = await Promise.all(clients.map((client, i) => read(client, ids[i], 0, 1)));
		assert.deepEqual(back.map((one) => one[0]), clients.map((_, i) => i));
		for (const client of clients) await client.close();
		await eventually(() => workers(cluster.remote.child.pid).length === 0, "they end with their sessions", 30000 * slow);
	});

	test("a client that reads nothing, and a worker that takes nothing, grow nobody", async () => {
		const client = await tenant(cluster, {}, { zeroMask: true }), [id, pid] = await withRemoteWorker(() => allocate(client, cluster.remote.device, 128 * MiB));
		const bytes = pattern(MiB, 4), sizes = () => [cluster.server.residentBytes(), cluster.remote.residentBytes()];
		await write(client, id, 0, bytes);
		const grown = async (what, before) => {
			let more = [0, 0]; // at most
			for (let i = 0; i < 16; i++) { // in 0.8 s all of it would be taken, if it were
				await sleep(50);
				more = sizes().map((size, j) => Math.max(more[j], (size - before[j]) / MiB));
			}
			console.log(`${what}: the server grew by ${more[0].toFixed(1)} MiB, the node by ${more[1].toFixed(1)} MiB`);
			for (const one of more) assert.ok(one < 80 * (slow > 2 ? 4 : 1), `${one} MiB`);
		};
		let before = sizes();
		client.socket.pause();
		const reads = Promise.all(Array.from({ length: 128 }, () => later(client, "memory.read", { allocation_id: id, offset: 0, bytes: MiB })));
		await grown("128 MiB for a client that reads nothing", before);
		client.socket.resume();
		for (const { body } of await reads) assert.ok(body.equals(bytes));
		before = sizes();
		const stops = stopFor(pid, 1000);
		const writes = [];
		for (let i = 0; i < 128; i++) {
			writes.push(later(client, "memory.write", { allocation_id: id, offset: i * MiB }, bytes));
			writes[i].catch(() => {}); // it is looked at below
			if (i % 8 === 7) await new Promise(setImmediate); // the node is heard through this process
		}
		await grown("128 MiB for a worker that takes next to nothing", before);
		stops.child.kill("SIGKILL");
		await stops.exited;
		process.kill(pid, "SIGCONT");
		await within(Promise.all(writes), "all is written", 2 * patience);
		assert.ok((await read(client, id, 127 * MiB, MiB)).equals(bytes));
		await client.close();
	});

	// However long that lasts: the 8 s after which it would be given up are those of the tests below.
	describe("whose server is not heard", () => {
		// Whatever became of the test before, this one begins with a node that is there.
		beforeEach(async () => {
			cluster.server.child.kill("SIGCONT");
			cluster.proxy.mend();
			await cluster.remote.ready();
		});

		test("nothing passes after 5 s, and the work goes on when it is heard in time", async () => {
			const client = await tenant(cluster), from = cluster.remote.output.stderr.length;
			const [work, pid, pair] = await withRemoteWorker(() => startLongWork(client));
			const cut = performance.now(), since = () => performance.now() - cut;
			cluster.proxy.cut("down"); // what the node says still arrives: it alone can stop itself
			await cluster.remote.said(fence, from);
			const fenced = since(), before = work.done;
			const up = await stands(pair);
			for (let i = 0; i < 2; i++) await client.call("server.info"); // a busy server has by then passed on what it had got
			const passed = { up, done: work.done };
			assert.ok(before > 3, `${before} were answered before`);
			assert.ok(alive(pid), "the worker stays");
			await sleep(1000);
			const later = { up: pair.up, done: work.done };
			cluster.proxy.mend();
			assert.deepEqual(later, passed, "nothing passed");
			await cluster.remote.said(lifted, from);
			console.log(`held ${(fenced / 1000).toFixed(1)} s after the cut, lifted after ${(since() / 1000).toFixed(1)} s: ${passed.done} answered before`);
			await work.finish();
			assert.equal(work.failed, 0);
			assert.ok(work.done >= passed.done + WAITING, `${work.done} after ${passed.done}: all that waited`);
			assert.equal(client.notices.length, 0);
			await client.close();
			await dead(pid);
		});

		test("the server's process stands still", async () => {
			const client = await tenant(cluster), from = cluster.remote.output.stderr.length;
			const [work, pid, pair] = await withRemoteWorker(() => startLongWork(client));
			cluster.server.child.kill("SIGSTOP");
			await cluster.remote.said(fence, from);
			const passed = await stands(pair);
			await sleep(1000);
			const later = pair.up;
			cluster.server.child.kill("SIGCONT");
			assert.equal(later, passed, "nothing passed");
			await cluster.remote.said(lifted, from);
			await work.finish();
			assert.equal(work.failed, 0);
			await client.close();
			await dead(pid);
		});
	});
});

describe("what ends on another machine", () => {
	before(async () => { cluster = await startCluster(); });
	after(async () => {
		await cluster?.remote.finish();
		cluster?.proxy.close();
		await cluster?.server.finish();
		assertContractKept();
	});

	// `pieces` writes of 1 MiB are under way without end, until the first is refused: its reason.
	async function endless(client, id, pieces = 8) {
		const bytes = Buffer.alloc(MiB, 5);
		let reason = null, at = 0;
		await Promise.all(Array.from({ length: pieces }, async () => {
			while (!reason) await later(client, "memory.write", { allocation_id: id, offset: (at++ % 16) * MiB }, bytes).catch((error) => { reason ??= error; });
		}));
		return reason;
	}

	test("kill -9 of a worker in mid-transfer is told with its reason, and costs nobody else", async () => {
		const [one, two] = [await tenant(cluster), await tenant(cluster)], bytes = pattern(32 * MiB, 13);
		const [mine, pid] = await withRemoteWorker(() => allocate(one, cluster.remote.device, 16 * MiB));
		const theirs = await allocate(two, cluster.remote.device, bytes.length), whole = writeAll(two, theirs, bytes);
		whole.catch(() => {});
		const reason = endless(one, mine);
		await sleep(300);
		process.kill(pid, "SIGKILL");
		assert.equal((await reason).reason, "device_lost");
		// A call that comes a moment later is told that what it names is lost; the reason has come by then.
		assert.match((await reason).said, /killed from outside: signal 9|is lost/);
		const lost = await one.notice("device_lost");
		assert.deepEqual(lost.allocations, [mine]);
		assert.match(lost.message, /killed from outside: signal 9/);
		await whole;
		assert.ok((await readAll(two, theirs, bytes.length)).equals(bytes), "bit for bit");
		assert.equal(await held(one.token_id), 0);
		await allocate(one, cluster.remote.device, 4096);
		await one.close();
		await two.close();
	});

	test("revoked in mid-transfer: no access, no worker, no memory held", async () => {
		const client = await tenant(cluster);
		const [id, pid] = await withRemoteWorker(() => allocate(client, cluster.remote.device, 16 * MiB));
		const reason = endless(client, id);
		await sleep(300);
		const began = performance.now(), since = () => performance.now() - began;
		const answered = cluster.admin.call("token.revoke", { token_id: client.token_id }).then(since);
		const closed = client.closed.then(since);
		await dead(pid);
		const gone = since();
		console.log(`revoked in mid-transfer: connection closed after ${(await closed).toFixed(1)} ms, worker dead after ${gone.toFixed(1)} ms, answered after ${(await answered).toFixed(1)} ms`);
		assert.equal(client.end.code, 4410);
		assert.equal(await held(client.token_id), 0);
		await reason;
	});

	test("the connection breaks: its workers end, and it comes back", async () => {
		const client = await tenant(cluster), near = await allocate(client, cluster.local, MiB);
		const [id, pid] = await withRemoteWorker(() => allocate(client, cluster.remote.device, 16 * MiB));
		const reason = endless(client, id);
		await sleep(200);
		cluster.proxy.break();
		assert.equal((await reason).reason, "device_lost");
		assert.deepEqual((await client.notice("device_lost")).allocations, [id]);
		await dead(pid);
		assert.equal((await read(client, near, 0, 10)).length, 10, "what lies elsewhere is there");
		await cluster.remote.ready();
		const again = await allocateSoon(client, cluster.remote.device, MiB);
		assert.ok((await read(client, again, 0, 100)).equals(Buffer.alloc(100)));
		await client.close();
	});

	test("one worker's connection alone breaks: that worker ends", async () => {
		const [one, two] = [await tenant(cluster), await tenant(cluster)];
		const [mine, pid, pair] = await withRemoteWorker(() => allocate(one, cluster.remote.device, MiB));
		const theirs = await allocate(two, cluster.remote.device, MiB);
		pair.near.resetAndDestroy();
		pair.far.resetAndDestroy();
		assert.deepEqual((await one.notice("device_lost")).allocations, [mine]);
		await dead(pid);
		assert.equal((await read(two, theirs, 0, 10)).length, 10);
		await allocate(one, cluster.remote.device, MiB);
		await one.close();
		await two.close();
	});

	test("kill -9 of the node takes its workers, and no others; without ticket and address it comes back", async () => {
		const client = await tenant(cluster), near = await allocate(client, cluster.local, MiB);
		const [id, pid] = await withRemoteWorker(() => allocate(client, cluster.remote.device, 16 * MiB));
		const reason = endless(client, id);
		await sleep(200);
		cluster.remote.child.kill("SIGKILL");
		assert.equal((await reason).reason, "device_lost");
		assert.deepEqual((await client.notice("device_lost")).allocations, [id]);
		await dead(pid);
		await write(client, near, 0, Buffer.from("still here"));
		await client.refused("memory.allocate", { device_id: cluster.remote.device.device_id, bytes: 100 }, "unavailable");
		await cluster.remote.start();
		const again = await allocateSoon(client, cluster.remote.device, MiB);
		await client.call("memory.copy", { from: near, from_offset: 0, to: again, to_offset: 5, bytes: 10 });
		assert.equal((await read(client, again, 5, 10)).toString(), "still here");
		await client.close();
	});

	test("workers are brought by their own node only", async () => {
		const url = `wss://127.0.0.1:${cluster.server.port}/node`, pem = readFileSync(join(cluster.remote.data, "node", "tls", "node.pem"));
		const dial = (options) => new WebSocket(url, ["exogpu.worker.v1"], { ca: cluster.server.ca, perMessageDeflate: false, ...options });
		const stranger = dial();
		const [status] = await within(new Promise((resolve, reject) => {
			stranger.on("unexpected-response", (_, response) => { resolve([response.statusCode]); stranger.terminate(); });
			stranger.on("open", () => reject(new Error("a stranger brought a worker")));
			stranger.on("error", () => {});
		}), "a stranger is refused");
		assert.equal(status, 403);
		for (const hello of [
			{ jsonrpc: "2.0", method: "link.hello", params: { worker_id: "wrk_none", key: "0".repeat(64) } },
			{ jsonrpc: "2.0", id: 1, method: "memory.read", params: { handle: 1, offset: 0, bytes: 1 } },
		]) {
			const socket = dial({ cert: pem, key: pem });
			const code = new Promise((resolve) => socket.on("close", resolve));
			socket.on("open", () => socket.send(frame(hello)));
			assert.equal(await within(code, "it is closed"), 4410);
		}
	});

	test("a node that is removed has no worker any more", async () => {
		const client = await tenant(cluster);
		const [id, pid] = await withRemoteWorker(() => allocate(client, cluster.remote.device, 16 * MiB));
		const reason = endless(client, id);
		await sleep(200);
		await cluster.admin.call("node.remove", { node_id: cluster.remote.node_id });
		assert.equal((await reason).reason, "device_lost");
		await dead(pid);
		await within(cluster.remote.exited, "the node says so and ends", 20000 * slow);
		cluster.remote = { finish: () => {} };
		await client.close();
	});
});

describe("a server that is not heard for 8 s", () => {
	before(async () => { cluster = await startCluster({ env: { EXOGPU_TEST_NODE_SILENCE_S: "" } }); });
	after(async () => {
		cluster?.proxy.mend();
		await cluster?.remote.finish();
		cluster?.proxy.close();
		await cluster?.server.finish();
		assertContractKept();
	});

	// Whatever became of the test before, this one begins with a node that is there.
	beforeEach(async () => {
		cluster.server.child.kill("SIGCONT");
		cluster.proxy.mend();
		await cluster.remote.ready();
	});

	test("a token revoked meanwhile: no output after 5 s, the worker dies after 8", async () => {
		const client = await tenant(cluster), from = cluster.remote.output.stderr.length;
		const [work, pid, pair] = await withRemoteWorker(() => startLongWork(client));
		const cut = performance.now(), since = () => performance.now() - cut, before = pair.up;
		cluster.proxy.cut("down");
		await cluster.admin.call("token.revoke", { token_id: client.token_id });
		assert.equal((await client.closed).code, 4410);
		await cluster.remote.said(fence, from);
		const fenced = since(), passed = await stands(pair);
		assert.ok(passed > before, "until then the node does not know");
		await dead(pid);
		const gone = since();
		assert.ok(pair.up - passed < 60, `a farewell at most passed, no answer: ${pair.up - passed} bytes`);
		console.log(`cut off and revoked: nothing from its worker after ${(fenced / 1000).toFixed(1)} s, the worker dead after ${(gone / 1000).toFixed(1)} s`);
		await work.finish();
		assert.equal(work.failed, WAITING);
		cluster.proxy.mend();
		await cluster.remote.ready();
		const other = await tenant(cluster);
		await allocateSoon(other, cluster.remote.device, MiB);
		await other.close();
	});

	test("away for longer than 8 s: lost on both sides, and back", async () => {
		const client = await tenant(cluster), [id, pid] = await withRemoteWorker(() => allocate(client, cluster.remote.device, MiB));
		const cut = performance.now(), since = () => ((performance.now() - cut) / 1000).toFixed(1);
		cluster.proxy.cut("up", "down");
		const lost = await client.until(() => client.notices.find((one) => one.method === "session.device_lost"), "device_lost", 20000 * slow);
		const told = since();
		assert.deepEqual(lost.params.allocations, [id]);
		await dead(pid);
		console.log(`cut off: the server gave it up after ${told} s, the worker was dead after ${since()} s`);
		cluster.proxy.mend();
		cluster.proxy.break();
		await cluster.remote.ready();
		await allocateSoon(client, cluster.remote.device, MiB);
		await client.close();
	});
});
