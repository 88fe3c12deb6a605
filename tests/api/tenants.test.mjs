// Objects of sessions, with a node and workers that the test plays: names, limits, ends, events.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client } from "./client.mjs";
import { passed, pending } from "./records.mjs";
import { eventually, slow, startServer, within } from "./server.mjs";
import { admin, allocate, allocations, held, MiB, node, read, server, start, startNode, stop, tenant, token, write } from "./stage.mjs";
import { FakeWorker, WorkerNode, cpu, pattern } from "./workers.mjs";

describe("memory of a session", () => {
	before(start);
	after(stop);

	test("is written, read, filled, copied and freed", async () => {
		const client = await tenant();
		const one = await allocate(client, 8 * MiB), two = await allocate(client, 8 * MiB);
		const bytes = pattern(3 * MiB);
		assert.deepEqual(await write(client, one, 12345, bytes), { bytes: bytes.length });
		assert.ok((await read(client, one, 12345, bytes.length)).equals(bytes));
		assert.deepEqual(await client.call("memory.copy", { from: one, from_offset: 12345, to: two, to_offset: 1, bytes: bytes.length }),
			{ bytes: bytes.length, path: "device" });
		assert.ok((await read(client, two, 1, bytes.length)).equals(bytes));
		assert.deepEqual(await client.call("memory.fill", { allocation_id: two, offset: 2, bytes: 3, value: 7 }), { bytes: 3 });
		assert.deepEqual([...await read(client, two, 1, 5)], [bytes[0], 7, 7, 7, bytes[4]]);
		assert.deepEqual(await client.call("memory.free", { allocation_id: one }), { allocation_id: one, bytes: 8 * MiB });
		await client.refused("memory.free", { allocation_id: one }, "not_found"); // twice
		await client.refused("memory.read", { allocation_id: one, offset: 0, bytes: 1 }, "not_found");
		await client.close();
	});

	test("bodies of 0 bytes, 1 byte and 16 MiB", async () => {
		const client = await tenant();
		const id = await allocate(client, 16 * MiB);
		for (const size of [0, 1, 16 * MiB]) {
			const bytes = pattern(size, size + 1);
			assert.deepEqual(await write(client, id, 0, bytes), { bytes: size });
			assert.ok((await read(client, id, 0, size)).equals(bytes), `${size} bytes`);
		}
		assert.deepEqual(await client.call("memory.copy", { from: id, from_offset: 5, to: id, to_offset: 5, bytes: 0 }),
			{ bytes: 0, path: "device" });
		await client.close();
	});

	test("many pieces under way at once, answered in order", async () => {
		const client = await tenant();
		const id = await allocate(client, 64 * MiB), bytes = pattern(64 * MiB, 3), order = [];
		await Promise.all(Array.from({ length: 64 }, (_, i) =>
			write(client, id, i * MiB, bytes.subarray(i * MiB, (i + 1) * MiB)).then(() => order.push(i))));
		assert.deepEqual(order, order.slice().sort((a, b) => a - b));
		const back = await Promise.all(Array.from({ length: 64 }, (_, i) => read(client, id, i * MiB, MiB)));
		assert.ok(Buffer.concat(back).equals(bytes));
		await client.close();
	});

	test("ranges that do not fit are refused before the worker hears of them", async () => {
		const client = await tenant();
		const id = await allocate(client, 1000), asked = node.worker().calls.length;
		const most = Number.MAX_SAFE_INTEGER;
		for (const [offset, bytes] of [[0, 1001], [1000, 1], [1001, 0], [999, 2], [most, 1], [most, most], [1, most]]) {
			if (bytes <= 16 * MiB) await client.refused("memory.read", { allocation_id: id, offset, bytes }, "invalid_params");
			const why = await client.refused("memory.fill", { allocation_id: id, offset, bytes, value: 0 }, "invalid_params");
			assert.match(why.said, /1000 bytes/);
			await client.refused("memory.copy", { from: id, from_offset: offset, to: id, to_offset: 0, bytes }, "invalid_params");
			await client.refused("memory.copy", { from: id, from_offset: 0, to: id, to_offset: offset, bytes }, "invalid_params");
		}
		await client.refused("memory.write", { allocation_id: id, offset: 998 }, "invalid_params", Buffer.alloc(3));
		await client.refused("memory.copy", { from: id, from_offset: 0, to: id, to_offset: 99, bytes: 100 }, "invalid_params");
		await client.refused("memory.copy", { from: id, from_offset: 5, to: id, to_offset: 5, bytes: 1 }, "invalid_params");
		assert.equal(node.worker().calls.length, asked, "nothing reached the worker");
		assert.equal((await client.call("memory.copy", { from: id, from_offset: 0, to: id, to_offset: 100, bytes: 100 })).bytes, 100);
		await client.close();
	});

	test("a body where it is due and nowhere else", async () => {
		const client = await tenant();
		const id = await allocate(client);
		const why = await client.refused("memory.write", { allocation_id: id, offset: 0 }, "invalid_params");
		assert.match(why.hint, /head/);
		await client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "invalid_params", Buffer.from("x"));
		await client.close();
	});

	test("an admin that frees what nobody has is told that nobody has it", async () => {
		const why = await admin.refused("memory.free", { allocation_id: "alloc_none" }, "not_found");
		assert.match(why.said, /no session has an allocation alloc_none/);
		assert.match(why.hint, /memory\.list/);
	});

	test("bad sizes and devices", async () => {
		const client = await tenant();
		for (const bytes of [0, -1, 1.5, "1", null]) await client.refused("memory.allocate", { device_id: "dev_cpu", bytes }, "invalid_params");
		await client.refused("memory.allocate", { device_id: "dev_none", bytes: 1 }, "not_found");
		const why = await client.refused("memory.allocate", { device_id: "dev_small", bytes: MiB + 1 }, "limit_exceeded");
		assert.match(why.said, /1048577.*1048576/);
		await client.refused("memory.allocate", { device_id: "dev_small", bytes: Number.MAX_SAFE_INTEGER }, "limit_exceeded");
		await client.refused("memory.allocate", { device_id: "dev_small", bytes: 1, label: "" }, "invalid_params");
		await client.close();
	});

	test("devices of one memory share it, and give it back", async () => {
		const client = await tenant();
		const most = await allocate(client, 1000 * MiB, "dev_twin1");
		const why = await client.refused("memory.allocate", { device_id: "dev_twin2", bytes: 25 * MiB }, "limit_exceeded");
		assert.match(why.said, /of the 1073741824 bytes that Twin 2 lends, 25165824/);
		await allocate(client, 24 * MiB, "dev_twin2");
		await client.refused("memory.allocate", { device_id: "dev_twin1", bytes: 1 }, "limit_exceeded");
		await client.call("memory.free", { allocation_id: most });
		await allocate(client, 25 * MiB, "dev_twin2");
		await client.close();
	});

	test("of the machine's own memory a sixteenth stays free, and a worker is told what others were just given", async () => {
		const [one, two] = [await tenant(), await tenant()];
		await allocate(one, 1);
		await allocate(two, 1, "dev_gpu");
		const [mine, theirs] = node.workers.slice(-2), awaited = () => theirs.calls.at(-1).params.awaited_bytes;
		let asked;
		mine.answers["memory.allocate"] = (params, body, id) => void (asked = id);
		theirs.answers["memory.allocate"] = () => ({ result: {} });
		const waits = allocate(one, 300 * MiB);
		await eventually(() => asked, "the worker is asked");
		assert.ok(!("awaited_bytes" in mine.calls.at(-1).params), "a worker of a build before does not know it");
		await allocate(two, 200 * MiB, "dev_gpu");
		assert.equal(awaited(), 300 * MiB);
		mine.send({ jsonrpc: "2.0", id: asked, result: {} });
		await waits;
		await allocate(two, 100 * MiB, "dev_gpu");
		assert.equal(awaited(), undefined);
		// What is left, to the byte, and no more: both hold 600 MiB, and sessions before them may still hold something.
		const why = await two.refused("memory.allocate", { device_id: "dev_gpu", bytes: 1024 * MiB }, "limit_exceeded");
		const [, lent, left] = /of the (\d+) bytes that GPU lends, (\d+) are not held/.exec(why.said);
		assert.equal(Number(lent), 960 * MiB);
		assert.ok(left <= 360 * MiB);
		await one.close();
		await two.close();
	});

	test("the token's own limit counts all of its sessions", async () => {
		const limited = await token({ memory_limit_bytes: 1000 });
		const [one, two] = [await Client.login(server, limited.token), await Client.login(server, limited.token)];
		const id = await allocate(one, 600);
		assert.equal(node.requests.findLast((request) => request.method === "tenant.open").params.memory_limit_bytes, 1000);
		const why = await two.refused("memory.allocate", { device_id: "dev_cpu", bytes: 401 }, "limit_exceeded");
		assert.match(why.said, /1000, 400 are left/);
		await allocate(two, 400, "dev_gpu");
		assert.equal(await held(limited.token_id), 1000);
		await one.call("memory.free", { allocation_id: id });
		assert.equal(await held(limited.token_id), 400);
		const { tokens } = await admin.call("token.list");
		assert.equal(tokens.find((each) => each.token_id === limited.token_id).memory_limit_bytes, 1000);
		await one.close();
		await two.close();
	});

	test("a reservation that the worker cannot keep is given back", async () => {
		const limited = await token({ memory_limit_bytes: 1000 });
		const client = await Client.login(server, limited.token);
		await allocate(client, 1);
		node.worker().answers["memory.allocate"] = () => ({ error: { code: -32005, message: "the device is full", data: { reason: "out_of_memory", hint: null } } });
		await client.refused("memory.allocate", { device_id: "dev_cpu", bytes: 999 }, "out_of_memory");
		assert.equal(await held(limited.token_id), 1);
		delete node.worker().answers["memory.allocate"];
		await allocate(client, 999);
		await client.close();
	});

	test("another session's names are not known, whoever's token it is", async () => {
		const same = await token();
		const [one, two, other] = [await Client.login(server, same.token), await Client.login(server, same.token), await tenant()];
		const id = await allocate(one);
		const { module_id } = await one.call("compute.load", { device_id: "dev_cpu", format: "builtin" });
		for (const client of [two, other]) {
			await client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "not_found");
			await client.refused("memory.write", { allocation_id: id, offset: 0 }, "not_found", Buffer.from("x"));
			await client.refused("memory.free", { allocation_id: id }, "not_found");
			await client.refused("compute.unload", { module_id }, "not_found");
			await client.refused("compute.launch", { module_id, kernel: "k", args: [] }, "not_found");
			const own = await client.call("compute.load", { device_id: "dev_cpu", format: "builtin" });
			await client.refused("compute.launch", { module_id: own.module_id, kernel: "k", args: [{ allocation_id: id }] }, "not_found");
		}
		await one.refused("memory.free", { allocation_id: module_id }, "not_found"); // a module is no allocation
		await one.refused("compute.unload", { module_id: id }, "not_found");
		for (const client of [one, two, other]) await client.close();
	});

	test("a second connection of the session has the same names", async () => {
		const same = await token(), one = await Client.login(server, same.token), two = await Client.open(server);
		await two.call("auth.login", { token: same.token, session_id: one.session.session_id });
		const id = await allocate(one);
		await write(two, id, 0, Buffer.from("hello"));
		assert.equal((await read(one, id, 0, 5)).toString(), "hello");
		await one.close();
		assert.equal((await read(two, id, 0, 5)).toString(), "hello");
		await two.close();
	});

	test("limits of number", async () => {
		const client = await tenant();
		const { limits: { allocations_of_session: most, modules_of_session: modules } } = await client.call("server.info");
		for (let done = 0; done < most; done += 128)
			await Promise.all(Array.from({ length: 128 }, () => allocate(client, 1)));
		await client.refused("memory.allocate", { device_id: "dev_cpu", bytes: 1 }, "limit_exceeded");
		await Promise.all(Array.from({ length: modules }, () => client.call("compute.load", { device_id: "dev_cpu", format: "builtin" })));
		await client.refused("compute.load", { device_id: "dev_cpu", format: "builtin" }, "limit_exceeded");
		await client.close();
	});

	test("labels are for the owner and admins", async () => {
		const client = await tenant(), other = await tenant();
		await admin.call("events.subscribe", { topics: ["inventory"] });
		const id = await allocate(client, 10, "dev_cpu", { label: "my weights" });
		const listed = async (from) => (await from.call("memory.list")).allocations.find((one) => one.allocation_id === id);
		const mine = await listed(client);
		assert.deepEqual([mine.label, mine.bytes, mine.session_id, mine.token_id, mine.device_id],
			["my weights", 10, client.session.session_id, client.session.token_id, "dev_cpu"]);
		assert.equal((await listed(admin)).label, "my weights");
		assert.equal(await listed(other), undefined);
		const event = await admin.event((one) => one.data.allocations.some((each) => each.allocation_id === id), "the event");
		assert.deepEqual([event.data.change, event.data.allocations.find((one) => one.allocation_id === id).label], [null, null]);
		assert.equal((await allocations()).find((one) => one.allocation_id === id).label, null);
		await client.call("memory.free", { allocation_id: id });
		await admin.event((one) => one.data.freed.includes(id), "that it is freed");
		await client.close();
		await other.close();
	});

	test("an admin frees anybody's, and its owner is told", async () => {
		const client = await tenant();
		const id = await allocate(client);
		assert.equal((await admin.call("memory.free", { allocation_id: id })).allocation_id, id);
		const lost = await client.notice("device_lost");
		assert.deepEqual([lost.allocations, lost.modules, lost.device_id], [[id], [], "dev_cpu"]);
		await client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "device_lost");
		await client.close();
	});

	test("figures", async () => {
		const client = await tenant();
		await allocate(client, 777, "dev_small");
		const { text } = await server.http("/metrics", { headers: { authorization: `Bearer ${server.token}` } });
		assert.match(text, /exogpu_allocated_bytes\{device="dev_small"[^}]*\} 777\n/);
		for (const name of ["exogpu_allocations", "exogpu_workers", 'exogpu_transfer_bytes_total{direction="write"}'])
			assert.ok(Number(new RegExp(`^${name.replace(/[{}]/g, "\\$&")} (\\d+)$`, "m").exec(text)?.[1]) > 0, name);
		await client.close();
	});
});

describe("kernels of a session", () => {
	before(start);
	after(stop);

	test("arguments become handles", async () => {
		const client = await tenant();
		const id = await allocate(client), module = await client.call("compute.load", { device_id: "dev_cpu", format: "builtin" });
		assert.deepEqual(module.kernels, ["k"]);
		const args = [{ allocation_id: id }, { f32: 0.5 }, { i32: -1 }, { u32: 1 }, { u64: "18446744073709551615" }];
		assert.deepEqual(await client.call("compute.launch", { module_id: module.module_id, kernel: "k", grid: [1, 2, 3], args }), { device_us: 1.5 });
		const asked = node.worker().calls.at(-1).params;
		assert.deepEqual([asked.grid, asked.block, asked.args.slice(1), asked.timeout_ms], [[1, 2, 3], undefined, args.slice(1), 60000]);
		assert.equal(typeof asked.args[0].handle, "number");
		await client.call("compute.unload", { module_id: module.module_id });
		await client.refused("compute.launch", { module_id: module.module_id, kernel: "k", args: [] }, "not_found");
		await client.close();
	});

	test("memory of another device is refused", async () => {
		const client = await tenant();
		const near = await allocate(client, 8, "dev_gpu"), far = await allocate(client, 8, "dev_small");
		const { module_id } = await client.call("compute.load", { device_id: "dev_gpu", format: "builtin" });
		await client.call("compute.launch", { module_id, kernel: "k", args: [{ allocation_id: near }] });
		const why = await client.refused("compute.launch", { module_id, kernel: "k", args: [{ f32: 1 }, { allocation_id: far }] }, "invalid_params");
		assert.match(why.said, /args\[1\]/);
		await client.close();
	});

	test("formats that a device does not take", async () => {
		const client = await tenant();
		for (const [device_id, format] of [["dev_cpu", "ptx"], ["dev_cpu", "spirv"], ["dev_gpu", "ptx"], ["dev_gpu", "wgsl"]])
			await client.refused("compute.load", { device_id, format }, "unavailable", Buffer.from("module"));
		await client.refused("compute.load", { device_id: "dev_gpu", format: "spirv" }, "invalid_params");
		await client.refused("compute.load", { device_id: "dev_gpu", format: "builtin" }, "invalid_params", Buffer.from("x"));
		await client.call("compute.load", { device_id: "dev_gpu", format: "builtin" });
		await client.close();
	});

	test("a module of 16 MiB waits for its worker, whole", async () => {
		const client = await tenant(), bytes = pattern(16 * MiB, 9);
		let seen;
		node.open = (request) => setTimeout(() => {
			const worker = new FakeWorker(server, request.params);
			worker.answers["compute.load"] = (params, body) => {
				seen = body;
				return { result: { signatures: [] } };
			};
			node.workers.push(worker);
			node.reply(request, { started_ms: 50, sandbox: { applied: [], missing: [] } });
		}, 50);
		await client.callWith("compute.load", { device_id: "dev_gpu", format: "spirv" }, bytes);
		delete node.open;
		assert.ok(seen.equals(bytes));
		await client.close();
	});

	test("a kernel that outlasts its time ends the worker", async () => {
		const client = await tenant();
		const id = await allocate(client), { module_id } = await client.call("compute.load", { device_id: "dev_cpu", format: "builtin" });
		const worker = node.worker();
		worker.answers["compute.launch"] = () => ({ error: { code: -32008, message: "not done in 10 ms", data: { reason: "timeout", hint: null } } });
		await client.refused("compute.launch", { module_id, kernel: "k", args: [], timeout_ms: 10 }, "timeout");
		const lost = await client.notice("device_lost");
		assert.deepEqual([lost.allocations, lost.modules], [[id], [module_id]]);
		await node.endOf(worker);
		await client.refused("compute.launch", { module_id, kernel: "k", args: [] }, "device_lost");
		await allocate(client); // by another worker
		await client.close();
	});
});

describe("what stands in the way of a device", () => {
	before(start);
	after(stop);

	test("it drains, is not verified, is not supported, is away", async () => {
		const client = await tenant();
		const id = await allocate(client);
		const refused = async (word) => {
			const why = await client.refused("memory.allocate", { device_id: "dev_cpu", bytes: 1 }, "unavailable");
			assert.match(why.said, word);
			assert.ok(why.hint, "and says what to do");
			await client.refused("compute.load", { device_id: "dev_cpu", format: "builtin" }, "unavailable");
		};
		await admin.call("device.drain", { device_id: "dev_cpu", drain: true });
		await refused(/draining/);
		assert.equal((await read(client, id, 0, 1)).length, 1, "what is held goes on");
		await admin.call("device.drain", { device_id: "dev_cpu", drain: false });
		await node.devices([{ ...cpu, verification: pending }]);
		await refused(/being verified/);
		await node.devices([{ ...cpu, verification: { ...passed, state: "failed", error: "wrong sums" } }]);
		await refused(/wrong sums/);
		await node.devices([{ ...cpu, support: "unsupported", support_reason: "too old" }]);
		await refused(/too old/);
		await node.devices([{ ...cpu, present: false }]);
		const lost = await client.notice("device_lost");
		assert.deepEqual(lost.allocations, [id]);
		await refused(/no longer finds it/);
		await node.devices([cpu]);
		await allocate(client);
		await client.close();
	});

	test("its node goes: what was held is lost, and held no more", async () => {
		const mine = await token(), client = await Client.login(server, mine.token);
		const id = await allocate(client);
		node.worker().answers["memory.read"] = () => null;
		const waits = client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "device_lost");
		await eventually(() => node.worker().calls.at(-1).method === "memory.read", "the read is under way");
		const [worker] = node.workers.slice(-1);
		node.socket.terminate();
		await waits;
		assert.deepEqual((await client.notice("device_lost")).allocations, [id]);
		await node.gone(worker);
		await client.refused("memory.allocate", { device_id: "dev_cpu", bytes: 1 }, "unavailable");
		assert.equal(await held(mine.token_id), 0);
		assert.deepEqual(await allocations(), []);
		await startNode();
		await eventually(() => client.call("memory.allocate", { device_id: "dev_cpu", bytes: 1 }).catch(() => null), "it is back");
		await client.close();
	});
});

describe("ends", () => {
	before(start);
	after(stop);

	test("a client that vanishes is forgotten after the time of grace", async () => {
		const mine = await token(), client = await Client.login(server, mine.token);
		const id = await allocate(client, 5 * MiB);
		const worker = node.worker(), began = performance.now();
		await admin.call("events.subscribe", { topics: ["inventory"] });
		client.socket.terminate();
		await admin.until(() => admin.events.some((one) => one.data.freed?.includes(id)), "the memory is free", 20000 * slow);
		assert.ok(performance.now() - began > 9000, "not before 10 s");
		await node.endOf(worker);
		assert.equal(await held(mine.token_id), 0);
	});

	test("revoking ends workers in the same turn, before the disk has it", async () => {
		const mine = await token(), client = await Client.login(server, mine.token), other = await tenant();
		const id = await allocate(client, 64 * MiB), theirs = await allocate(other, 4 * MiB);
		const worker = node.workers.at(-2);
		const pieces = Array.from({ length: 64 }, (_, i) => write(client, id, i * MiB, Buffer.alloc(MiB)).catch((error) => error));
		const bytes = pattern(4 * MiB);
		const transfer = write(other, theirs, 0, bytes);
		await pieces[0];
		const began = performance.now();
		const answered = admin.call("token.revoke", { token_id: mine.token_id }).then(() => performance.now());
		const [asked, closed, done] = await Promise.all([node.endOf(worker), client.closed.then(() => performance.now()), answered]);
		console.log(`revoke: tenant.close ${(asked.at - began).toFixed(1)} ms, connection closed ${(closed - began).toFixed(1)} ms, answered ${(done - began).toFixed(1)} ms`);
		assert.equal(client.end.code, 4410);
		await Promise.allSettled(pieces);
		await transfer;
		assert.ok((await read(other, theirs, 0, bytes.length)).equals(bytes), "another's transfer is whole");
		assert.equal(await held(mine.token_id), 0);
		await other.close();
	});

	test("a token that expires ends its workers too", async () => {
		const mine = await token({ expires_in_s: 8 }), client = await Client.login(server, mine.token);
		await allocate(client);
		const worker = node.worker();
		await node.endOf(worker);
		assert.equal((await within(client.closed, "the close")).code, 4410);
	});

	test("a worker that dies takes its own session's things and no others", async () => {
		const [one, two] = [await tenant(), await tenant()];
		const [mine, theirs] = [await allocate(one, 32 * MiB), await allocate(two, 32 * MiB)];
		const module = await one.call("compute.load", { device_id: "dev_cpu", format: "builtin" });
		const dying = node.workers.at(-2), bytes = pattern(32 * MiB, 77);
		let taken = 0;
		dying.answers["memory.write"] = (params, body) => (++taken < 4 ? dying.run("memory.write", params, body) : (dying.kill(), null));
		const transfer = Promise.all(Array.from({ length: 32 }, (_, i) => write(two, theirs, i * MiB, bytes.subarray(i * MiB, (i + 1) * MiB))));
		const broken = await Promise.all(Array.from({ length: 32 }, (_, i) =>
			write(one, mine, i * MiB, bytes.subarray(i * MiB, (i + 1) * MiB)).then(() => "written", (error) => error.reason)));
		assert.deepEqual([...new Set(broken)], ["written", "device_lost"], broken.join());
		const lost = await one.notice("device_lost");
		assert.deepEqual([lost.allocations, lost.modules], [[mine], [module.module_id]]);
		await one.refused("memory.read", { allocation_id: mine, offset: 0, bytes: 1 }, "device_lost");
		await transfer;
		const back = await Promise.all(Array.from({ length: 32 }, (_, i) => read(two, theirs, i * MiB, MiB)));
		assert.ok(Buffer.concat(back).equals(bytes), "bit for bit");
		assert.equal(two.notices.length, 0);
		const again = await allocate(one);
		assert.equal((await read(one, again, 0, 4)).readUInt32LE(0), 0);
		await one.close();
		await two.close();
	});

	test("what the node says of a worker's end is told", async () => {
		const client = await tenant();
		await allocate(client);
		const worker = node.worker();
		node.notify("tenant.ended", { worker_id: worker.worker_id, message: "it did not answer for 5 s" });
		assert.match((await client.notice("device_lost")).message, /did not answer for 5 s/);
		await node.gone(worker);
		assert.ok(!node.ended.some((one) => one.worker_id === worker.worker_id), "it need not be told");
		node.notify("tenant.ended", { worker_id: "wrk_none", message: "x" }); // one that nobody knows changes nothing
		await allocate(client);
		await client.close();
	});

	test("a worker that cannot be started", async () => {
		const mine = await token({ memory_limit_bytes: 100 }), client = await Client.login(server, mine.token);
		node.open = (request) => node.fail(request, -32053, "unavailable", "no more processes");
		const why = await client.refused("memory.allocate", { device_id: "dev_cpu", bytes: 100 }, "unavailable");
		assert.match(why.said, /no more processes/);
		delete node.open;
		node.device = (request) => node.fail(request, -32010, "device_lost", "no context");
		await client.refused("memory.allocate", { device_id: "dev_cpu", bytes: 100 }, "device_lost");
		delete node.device;
		assert.equal(await held(mine.token_id), 0);
		await allocate(client, 100);
		await client.close();
	});

	test("a clean stop with workers, calls and transfers under way", async () => {
		const other = await startServer(), workers = await WorkerNode.start(other), client = await Client.login(other);
		const id = await allocate(client, 64 * MiB);
		workers.worker().answers["memory.read"] = () => null;
		client.call("memory.read", { allocation_id: id, offset: 0, bytes: MiB }).catch(() => {});
		await eventually(() => workers.worker().calls.length > 1, "it is under way");
		workers.worker().socket.pause();
		for (let i = 0; i < 32; i++) write(client, id, 0, Buffer.alloc(MiB)).catch(() => {});
		await eventually(() => client.socket.bufferedAmount < 31 * MiB, "some of it is on its way");
		await other.finish();
		const second = await startServer({ data: other.data });
		const later = await Client.login(second);
		assert.deepEqual((await later.call("memory.list")).allocations, [], "nothing is held after a restart");
		await second.finish();
	});
});
