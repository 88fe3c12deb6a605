// memory.* on this machine's devices, through server, node and worker: what is written is what is read, on each back end
// and between them; and what is left when a worker, a client or a token goes.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { alive, sharing, startMachine, stopFor, tenant, withWorker, workers } from "./machine.mjs";
import { eventually, patience, slow, within } from "./server.mjs";
import { pattern } from "./workers.mjs";

const MiB = 1024 * 1024;
let machine;

const allocate = async (client, device, bytes) => (await client.call("memory.allocate", { device_id: device.device_id, bytes })).allocation_id;
const write = (client, allocation_id, offset, body) => client.callWith("memory.write", { allocation_id, offset }, body);
const read = async (client, allocation_id, offset, bytes) => (await client.call("memory.read", { allocation_id, offset, bytes })).body;
const writeAll = (client, id, bytes, piece = MiB) => Promise.all(Array.from({ length: Math.ceil(bytes.length / piece) }, (_, i) =>
	write(client, id, i * piece, bytes.subarray(i * piece, (i + 1) * piece))));
const readAll = async (client, id, size, piece = MiB) => Buffer.concat(await Promise.all(Array.from({ length: Math.ceil(size / piece) },
	(_, i) => read(client, id, i * piece, Math.min(piece, size - i * piece)))));
const held = async (token_id) => (await machine.admin.call("token.list")).tokens.find((one) => one.token_id === token_id).memory_bytes;

// A call that may take longer than a call otherwise does.
function later(client, name, params) {
	client.call(name, params).catch(() => {});
	const call = client.calls.get(client.nextId - 1);
	return within(new Promise((resolve, reject) => Object.assign(call, { resolve, reject })), `${name} is answered`, 120000 * slow);
}

// So many kernels of some 0.3 s for a device, which it does one after the other before what comes next: when they are done.
async function longWork(client, device, kernels) {
	const { module_id } = await client.call("compute.load", { device_id: device.device_id, format: "builtin" });
	const launch = async (n) => {
		const args = [];
		for (let i = 0; i < 3; i++) args.push({ allocation_id: await allocate(client, device, n * n * 4) });
		return { module_id, kernel: "matmul_f32", args: [...args, { u32: n }, { u32: n }, { u32: n }] };
	};
	const trial = await launch(256);
	let fastest = Infinity; // of several: others may be at work just now, and done with it later
	for (let i = 0; i < 8; i++) fastest = Math.min(fastest, (await client.call("compute.launch", trial)).device_us);
	const lasting = (n, us) => Math.min(Math.ceil(n * Math.cbrt(300000 / us)), 12288);
	const n = lasting(256, fastest);
	let long = await launch(n);
	const { device_us } = await client.call("compute.launch", long);
	if (device_us < 100000) long = await launch(lasting(n, device_us)); // a GPU is far faster with a large product
	return { done: Promise.all(Array.from({ length: kernels }, () => later(client, "compute.launch", long))) };
}

describe("memory on this machine", () => {
	before(async () => { machine = await startMachine(); });
	after(async () => {
		await machine?.server.finish();
		assertContractKept();
	});

	for (const backend of ["cpu", "vulkan", "cuda"])
		describe(`on ${backend}`, () => {
			const here = (what, body) => test(what, async (context) =>
				machine[backend] ? body(machine[backend]) : context.skip(`no ${backend} device that passed`));

			here("what is written is what is read, at every size and offset", async (device) => {
				const client = await tenant(machine), size = 20 * MiB + 3;
				const id = await allocate(client, device, size);
				assert.ok((await readAll(client, id, size)).equals(Buffer.alloc(size)), "it begins as zeros");
				for (const [offset, bytes] of [[0, 0], [size, 0], [0, 1], [1, 1], [3, 5], [size - 1, 1], [4095, 4098], [1, 16 * MiB], [size - 16 * MiB, 16 * MiB]]) {
					const body = pattern(bytes, offset + bytes + 1);
					assert.deepEqual(await write(client, id, offset, body), { bytes });
					assert.ok((await read(client, id, offset, bytes)).equals(body), `${bytes} bytes at ${offset}`);
				}
				await client.close();
			});

			here("64 MiB in pieces, many under way", async (device) => {
				const client = await tenant(machine), bytes = pattern(64 * MiB, 7);
				const id = await allocate(client, device, bytes.length);
				const began = performance.now();
				await writeAll(client, id, bytes);
				const written = performance.now();
				assert.ok((await readAll(client, id, bytes.length)).equals(bytes));
				console.log(`${device.name}: 64 MiB written in ${(written - began).toFixed(0)} ms, read in ${(performance.now() - written).toFixed(0)} ms`);
				await client.close();
			});

			here("fills and copies", async (device) => {
				const client = await tenant(machine), size = 100003, bytes = pattern(size, 11);
				const [one, two] = [await allocate(client, device, size), await allocate(client, device, size)];
				await write(client, one, 0, bytes);
				const expected = Buffer.alloc(size);
				for (const [from_offset, to_offset, count] of [[0, 0, size], [1, 3, 1001], [size - 7, 0, 7], [5, 5, 0]]) {
					const { path } = await client.call("memory.copy", { from: one, from_offset, to: two, to_offset, bytes: count });
					assert.equal(path, "device");
					bytes.copy(expected, to_offset, from_offset, from_offset + count);
				}
				await client.call("memory.copy", { from: two, from_offset: 0, to: two, to_offset: 5000, bytes: 5000 });
				expected.copyWithin(5000, 0, 5000);
				for (const [offset, count, value] of [[0, 3, 255], [10001, 9999, 1], [size - 1, 1, 2], [7, 0, 9]]) {
					await client.call("memory.fill", { allocation_id: two, offset, bytes: count, value });
					expected.fill(value, offset, offset + count);
				}
				assert.ok((await read(client, two, 0, size)).equals(expected));
				await client.close();
			});

			here("a copy that takes long tells how far it is", async (device) => {
				const client = await tenant(machine), size = 130 * MiB, bytes = pattern(MiB, 23), marks = [0, 63.5 * MiB, size - MiB];
				const [from, to] = [await allocate(client, device, size), await allocate(client, device, size)];
				for (const at of marks) await write(client, from, at, bytes);
				let told = [];
				// A copy that waits for a second of work tells it, but how long the work takes is known by a trial only.
				for (let kernels = 8; !told.length && kernels <= 64; kernels *= 2) {
					const work = await longWork(client, device, kernels), copying = client.nextId;
					assert.deepEqual(await later(client, "memory.copy", { from, from_offset: 0, to, to_offset: 0, bytes: size }), { bytes: size, path: "device" });
					await work.done;
					told = client.notices.filter(({ method, params }) => method === "session.progress" && params.id === copying).map(({ params }) => params);
				}
				assert.ok(told.length, "progress was told");
				for (const [i, one] of told.entries()) {
					assert.equal(one.total_bytes, size);
					assert.ok(one.done_bytes > (told[i - 1]?.done_bytes ?? 0) && one.done_bytes < size, JSON.stringify(told));
				}
				for (const at of marks) assert.ok((await read(client, to, at, MiB)).equals(bytes), `at ${at}`);
				await client.close();
			});

			here("a session sees nothing of what another left", async (device) => {
				for (let round = 0; round < 3; round++) {
					const client = await tenant(machine), id = await allocate(client, device, 8 * MiB);
					assert.ok((await readAll(client, id, 8 * MiB)).equals(Buffer.alloc(8 * MiB)), `round ${round}`);
					await client.call("memory.fill", { allocation_id: id, offset: 0, bytes: 8 * MiB, value: 0xa5 });
					await client.call("memory.free", { allocation_id: id });
					const again = await allocate(client, device, 8 * MiB);
					assert.ok((await readAll(client, again, 8 * MiB)).equals(Buffer.alloc(8 * MiB)), `round ${round}, after it was freed`);
					await client.close();
				}
			});

			here("what the device cannot have is refused", async (device) => {
				const client = await tenant(machine);
				await client.refused("memory.allocate", { device_id: device.device_id, bytes: device.memory_bytes + 1 }, "limit_exceeded");
				const limited = await tenant(machine, { memory_limit_bytes: MiB });
				await limited.refused("memory.allocate", { device_id: device.device_id, bytes: MiB + 1 }, "limit_exceeded");
				await allocate(limited, device, MiB);
				await client.close();
				await limited.close();
			});

			here("SIGKILL of one session's worker in mid-transfer leaves another's transfer whole", async (device) => {
				const [one, two] = [await tenant(machine), await tenant(machine)], bytes = pattern(64 * MiB, 13);
				const [mine, pid] = await withWorker(machine.server, () => allocate(one, device, bytes.length));
				const theirs = await allocate(two, device, bytes.length);
				const whole = writeAll(two, theirs, bytes);
				let written = 0, reason = null;
				const piece = async () => {
					while (!reason) {
						await write(one, mine, (written % 64) * MiB, bytes.subarray(0, MiB)).then(() => {
							if (++written === 3) process.kill(pid, "SIGKILL");
						}, (error) => { reason ??= error.reason ?? error; });
					}
				};
				await within(Promise.all(Array.from({ length: 8 }, piece)), "the worker's end is noticed");
				assert.equal(reason, "device_lost");
				const lost = await one.notice("device_lost");
				assert.deepEqual([lost.device_id, lost.allocations], [device.device_id, [mine]]);
				await one.refused("memory.read", { allocation_id: mine, offset: 0, bytes: 1 }, "device_lost");
				await whole;
				assert.ok((await readAll(two, theirs, bytes.length)).equals(bytes), "bit for bit");
				assert.equal(two.notices.length, 0);
				assert.equal(await held(one.token_id), 0);
				const again = await allocate(one, device, 4096);
				assert.ok((await read(one, again, 0, 4096)).equals(Buffer.alloc(4096)), "and it goes on, with another worker");
				await one.close();
				await two.close();
			});

			here("revoked in mid-transfer: no access, no worker, no memory held", async (device) => {
				const client = await tenant(machine), bytes = Buffer.alloc(MiB, 1);
				const [id, pid] = await withWorker(machine.server, () => allocate(client, device, 64 * MiB));
				const pieces = Array.from({ length: 64 }, (_, i) => write(client, id, i * MiB, bytes).catch((error) => error));
				await pieces[1];
				const began = performance.now(), since = () => performance.now() - began;
				const answered = machine.admin.call("token.revoke", { token_id: client.token_id }).then(since);
				const closed = client.closed.then(since);
				let dead = null;
				while (dead === null) {
					if (!alive(pid)) dead = since();
					else if (since() > patience) assert.fail("the worker lives on");
					else await new Promise((resolve) => setTimeout(resolve, 1));
				}
				console.log(`${device.name}, revoked in mid-transfer: connection closed after ${(await closed).toFixed(1)} ms, worker dead after ${dead.toFixed(1)} ms, answered after ${(await answered).toFixed(1)} ms`);
				assert.equal(client.end.code, 4410);
				assert.equal(await held(client.token_id), 0);
				await Promise.all(pieces);
			});
		});

	// The server asks a worker for it that is read from and written to much, and tells in its log what stood in the way.
	test("memory that a worker shares is given back, and done without if no descriptor is left for it", async () => {
		const client = await tenant(machine), pid = machine.server.child.pid;
		let bytes = pattern(48 * MiB, 17);
		const id = await allocate(client, machine.cpu, bytes.length);
		const shares = () => sharing(pid).length;
		const readIt = async () => { // how many shared at most meanwhile
			let most = 0;
			const look = setInterval(() => { most = Math.max(most, shares()); }, 50);
			const back = await readAll(client, id, bytes.length);
			clearInterval(look);
			assert.ok(back.equals(bytes));
			return Math.max(most, shares());
		};
		await writeAll(client, id, bytes);
		await eventually(() => shares() === 0, "what other sessions shared is given back", 30000 * slow);
		await eventually(async () => await readIt() === 2, "the server and the worker share memory while there is much to read");
		bytes = pattern(bytes.length, 18);
		await writeAll(client, id, bytes);
		await readIt();
		await eventually(() => shares() === 0, "it is given back", 30000 * slow);
		const [, before] = readFileSync(`/proc/${pid}/limits`, "latin1").match(/^Max open files +(\d+)/m);
		execFileSync("prlimit", ["--pid", pid, "--nofile=8:"]);
		try {
			assert.ok(await readIt() < 2);
		} finally {
			execFileSync("prlimit", ["--pid", pid, `--nofile=${before}:`]);
		}
		await eventually(() => /does without shared memory for now: its descriptor did not arrive/.test(machine.server.output.stderr), "the log says so");
		await readIt();
		await client.close();
	});

	describe("between back ends", () => {
		test("a copy goes from worker to worker, there and back", async (context) => {
			if (!machine.vulkan) return context.skip("no vulkan device that passed");
			const client = await tenant(machine), bytes = pattern(24 * MiB + 5, 17);
			const near = await allocate(client, machine.cpu, bytes.length), far = await allocate(client, machine.vulkan, bytes.length + 100);
			const back = await allocate(client, machine.cpu, bytes.length);
			await writeAll(client, near, bytes);
			const began = performance.now();
			assert.deepEqual(await client.call("memory.copy", { from: near, from_offset: 0, to: far, to_offset: 33, bytes: bytes.length }),
				{ bytes: bytes.length, path: "local" });
			console.log(`24 MiB from ${machine.cpu.name} to ${machine.vulkan.name} from worker to worker: ${(performance.now() - began).toFixed(0)} ms`);
			await client.call("memory.copy", { from: far, from_offset: 33, to: back, to_offset: 0, bytes: bytes.length });
			assert.ok((await readAll(client, back, bytes.length)).equals(bytes));
			assert.deepEqual([...await read(client, far, 0, 33)], Array(33).fill(0));
			await client.close();
		});
	});

	describe("ends on the CPU", () => {
		test("a client that vanishes: the worker ends and the memory is free after the time of grace", async () => {
			const client = await tenant(machine);
			const [, pid] = await withWorker(machine.server, () => allocate(client, machine.cpu, 32 * MiB));
			assert.equal(await held(client.token_id), 32 * MiB);
			client.socket.terminate();
			await eventually(() => !alive(pid), "the worker is gone", 30000 * slow);
			assert.equal(await held(client.token_id), 0);
		});

		test("a session that joins again within the time of grace has all that it had", async () => {
			const made = await machine.admin.call("token.create", { name: "again", scopes: ["allocate"] });
			const client = await Client.login(machine.server, made.token), id = await allocate(client, machine.cpu, MiB);
			await write(client, id, 5, Buffer.from("still here"));
			client.socket.terminate();
			await client.closed;
			const later = await Client.open(machine.server);
			await later.call("auth.login", { token: made.token, session_id: client.session.session_id });
			assert.equal((await read(later, id, 5, 10)).toString(), "still here");
			await later.close();
		});

		async function hangs() {
			const [one, two] = [await tenant(machine), await tenant(machine)];
			const [mine, pid] = await withWorker(machine.server, () => allocate(one, machine.cpu, MiB));
			const theirs = await allocate(two, machine.cpu, MiB);
			process.kill(pid, "SIGSTOP");
			const stopped = performance.now();
			const stuck = one.call("memory.read", { allocation_id: mine, offset: 0, bytes: 1 }).then(() => "read", (error) => error);
			const bytes = pattern(MiB, 19);
			await write(two, theirs, 0, bytes);
			assert.ok((await read(two, theirs, 0, MiB)).equals(bytes));
			const lost = await one.until(() => one.notices.find((told) => told.method === "session.device_lost"), "device_lost", 30000 * slow);
			assert.deepEqual(lost.params.allocations, [mine]);
			await stuck;
			assert.ok(!alive(pid));
			await allocate(one, machine.cpu, MiB);
			console.log(`from the hang to the next allocation: ${(performance.now() - stopped).toFixed(0)} ms`);
			await one.close();
			await two.close();
		}

		test("a worker that is stopped is found out, and only its session waits", hangs);

		test("a worker that is stopped for less, or computes for long, goes on", async () => {
			const client = await tenant(machine);
			const [id, pid] = await withWorker(machine.server, () => allocate(client, machine.cpu, 64 * MiB));
			for (let times = 0; times < 2; times++) {
				const still = stopFor(pid);
				await write(client, id, times, Buffer.from([times]));
				await still.exited;
			}
			const n = 1024, product = await allocate(client, machine.cpu, 4 * n * n), begun = performance.now();
			const { module_id } = await client.call("compute.load", { device_id: machine.cpu.device_id, format: "builtin" });
			const args = [product, id, id].map((allocation_id) => ({ allocation_id })).concat([{ u32: n }, { u32: n }, { u32: n }]);
			const atOnce = slow > 2 ? 4 : 32; // a sanitizer makes seconds of each
			while (performance.now() - begun < 4000) // many at once keep its processors for longer than a silent worker has
				await Promise.all(Array.from({ length: atOnce }, () => client.call("compute.launch", { module_id, kernel: "matmul_f32", args })));
			assert.equal((await read(client, id, 1, 1))[0], 1);
			assert.ok(alive(pid));
			await client.close();
		});

		test("a clean stop ends every worker", async () => {
			const other = await startMachine();
			const client = await tenant(other);
			const [, pid] = await withWorker(other.server, () => allocate(client, other.cpu, MiB));
			assert.ok(workers(other.server.child.pid).includes(pid));
			await other.server.finish();
			await within(eventually(() => !alive(pid), "the worker is gone"), "the worker is gone");
		});
	});
});
