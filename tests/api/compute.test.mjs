// compute.* on this machine's devices: the built-in kernels against references in double precision, users' modules, and
// what is no module, no argument, or never ends.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { startMachine, tenant, withWorker } from "./machine.mjs";
import { counter } from "./spirv.mjs";
import { slow, within } from "./server.mjs";
import { pattern } from "./workers.mjs";

let machine;

// Floats in [-1, 1), the same each time.
function floats(count, seed) {
	const bytes = pattern(count * 4, seed);
	return Float32Array.from({ length: count }, (_, i) => bytes.readInt32LE(i * 4) / 2 ** 31);
}

class Bench {
	static async open(device, params) {
		const client = await tenant(machine, params);
		const module = await client.call("compute.load", { device_id: device.device_id, format: "builtin" });
		return Object.assign(new Bench(), { client, device, module });
	}

	async put(values) {
		const bytes = typeof values === "number" ? Buffer.alloc(values * 4) : Buffer.from(values.buffer, values.byteOffset, values.byteLength);
		const { allocation_id } = await this.client.call("memory.allocate", { device_id: this.device.device_id, bytes: bytes.length });
		for (let at = 0; at < bytes.length; at += 16 << 20)
			await this.client.callWith("memory.write", { allocation_id, offset: at }, bytes.subarray(at, at + (16 << 20)));
		return allocation_id;
	}

	async get(allocation_id, count) {
		const { body } = await this.client.call("memory.read", { allocation_id, offset: 0, bytes: count * 4 });
		return new Float32Array(body.buffer.slice(body.byteOffset, body.byteOffset + body.length));
	}

	params(kernel, args, more = {}) {
		return { module_id: this.module.module_id, kernel, args, ...more };
	}

	async run(kernel, args, more) {
		const { device_us } = await this.client.call("compute.launch", this.params(kernel, args, more));
		assert.ok(device_us >= 0);
	}
}

// Each value within `bound` of its reference, or the first that is not.
function close(got, wanted, bound, what) {
	for (let i = 0; i < wanted.length; i++)
		if (!(Math.abs(got[i] - wanted[i]) <= bound(i))) assert.fail(`${what}: [${i}] is ${got[i]}, not ${wanted[i]} within ${bound(i)}`);
}

const buffer = (allocation_id) => ({ allocation_id });

describe("compute on this machine", () => {
	before(async () => { machine = await startMachine(); });
	after(async () => {
		await machine?.server.finish();
		assertContractKept();
	});

	for (const backend of ["cpu", "vulkan", "cuda"])
		describe(`on ${backend}`, () => {
			const here = (what, body) => test(what, async (context) =>
				machine[backend] ? body(machine[backend], context) : context.skip(`no ${backend} device that passed`));

			here("the built-in kernels are named with what they take", async (device) => {
				const bench = await Bench.open(device);
				assert.deepEqual(bench.module.kernels.slice().sort(), ["fill_f32", "matmul_f32", "saxpy_f32", "sum_f32"]);
				const matmul = bench.module.signatures.find((one) => one.kernel === "matmul_f32");
				assert.deepEqual(matmul.parameters.map((one) => one.name), ["c", "a", "b", "m", "n", "k"]);
				assert.deepEqual(matmul.parameters.map((one) => one.kind), ["allocation", "allocation", "allocation", "count", "count", "count"]);
				await bench.client.close();
			});

			for (const [m, n, k] of [[1, 1, 1], [3, 5, 7], [64, 64, 64], [65, 33, 129], [200, 100, 300], [1, 257, 1], [2, 3, 0]])
				here(`matmul ${m} x ${n} x ${k} against double precision`, async (device) => {
					const bench = await Bench.open(device), a = floats(m * k, 21), b = floats(k * n, 22);
					const c = await bench.put(floats(m * n, 23));
					const [ab, bb] = [await bench.put(k ? a : 1), await bench.put(k ? b : 1)];
					await bench.run("matmul_f32", [buffer(c), buffer(ab), buffer(bb), { u32: m }, { u32: n }, { u64: k }]);
					const wanted = new Float64Array(m * n), sizes = new Float64Array(m * n);
					for (let i = 0; i < m; i++) for (let j = 0; j < n; j++) for (let l = 0; l < k; l++) {
						wanted[i * n + j] += a[i * k + l] * b[l * n + j];
						sizes[i * n + j] += Math.abs(a[i * k + l] * b[l * n + j]);
					}
					close(await bench.get(c, m * n), wanted, (i) => (k + 1) * 2 ** -23 * sizes[i], "c");
					await bench.client.close();
				});

			here("fill, saxpy and sum", async (device) => {
				const n = 100003, bench = await Bench.open(device), x = floats(n, 31), y = floats(n, 32);
				const [xb, yb, out] = [await bench.put(x), await bench.put(y), await bench.put(1)];
				await bench.run("saxpy_f32", [buffer(yb), buffer(xb), { f32: 0.75 }, { u32: n }]);
				close(await bench.get(yb, n), y.map((value, i) => value + 0.75 * x[i]), () => 2 ** -22, "y");
				await bench.run("sum_f32", [buffer(out), buffer(xb), { u64: `${n}` }]);
				const exact = x.reduce((sum, value) => sum + value, 0);
				close(await bench.get(out, 1), [exact], () => n * 2 ** -23 * 2, "the sum");
				await bench.run("fill_f32", [buffer(xb), { f32: 2.5 }, { u32: n - 1 }], { grid: [1, 1, 1], block: [1, 1, 1] });
				const filled = await bench.get(xb, n);
				assert.ok(filled.subarray(0, n - 1).every((value) => value === 2.5));
				assert.equal(filled[n - 1], x[n - 1], "and not one more");
				await bench.client.close();
			});

			here("launches are done in order", async (device) => {
				const bench = await Bench.open(device), y = await bench.put(1), x = await bench.put(Float32Array.of(1));
				await Promise.all(Array.from({ length: 100 }, (_, i) => (i % 10
					? bench.run("saxpy_f32", [buffer(y), buffer(x), { f32: 1 }, { u32: 1 }])
					: bench.run("fill_f32", [buffer(y), { f32: i }, { u32: 1 }]))));
				assert.equal((await bench.get(y, 1))[0], 99);
				await bench.client.close();
			});

			here("a kernel with its numbers in one call, and nothing is held after it", async (device) => {
				const client = await tenant(machine, { scopes: ["compute"], memory_limit_bytes: 1 << 17 }), { device_id } = device;
				const run = (kernel, args) => { // a software device compiles it first
					client.call("compute.run", { device_id, kernel, args }).catch(() => {});
					const call = client.calls.get(client.nextId - 1);
					return within(new Promise((resolve, reject) => Object.assign(call, { resolve, reject })), `${kernel} has run`, 60000 * slow);
				};
				const two = { u32: 2 }, product = await run("matmul_f32", [{ zeros: 4 }, { f32s: [1, 2, 3, 4] }, { f32s: [5, 6, 7, 8] }, two, two, two]);
				assert.deepEqual(product.f32s, [19, 22, 43, 50]);
				assert.ok(product.device_us >= 0);
				assert.deepEqual((await run("saxpy_f32", [{ f32s: [1, 2] }, { f32s: [3, 4] }, { f32: -0.5 }, two])).f32s, [-0.5, 0]);
				const many = Array.from(floats(10000, 41));
				assert.deepEqual((await run("saxpy_f32", [{ zeros: many.length }, { f32s: many }, { f32: 1 }, { u64: `${many.length}` }])).f32s, many);
				assert.deepEqual((await run("saxpy_f32", [{ f32s: [3e38, 1] }, { f32s: [3e38, 1] }, { f32: 1 }, two])).f32s, [null, 2]);
				const refused = (kernel, args, reason) => client.refused("compute.run", { device_id, kernel, args }, reason);
				await refused("fill_f32", [{ f32: 1 }, { f32: 1 }, { u32: 1 }], "invalid_params");
				await refused("fill_f32", [{ f32s: [1e39] }, { f32: 1 }, { u32: 1 }], "invalid_params");
				await refused("fill_f32", [{ zeros: 3 }, { f32: 1 }, { u32: 4 }], "invalid_params");
				await refused("fill_f32", [{ zeros: 3 }], "invalid_params");
				await refused("none", [{ zeros: 3 }], "not_found");
				const third = { f32s: Array(11000).fill(0) }, over = await refused("fill_f32", [third, third, third], "invalid_params");
				assert.match(over.said, /32768/);
				assert.match(over.hint ?? "", /memory\.write/);
				await refused("matmul_f32", [third, third, { f32s: [0] }, two], "invalid_params"); // by the kernel: so many are taken
				await refused("matmul_f32", [{ zeros: 16384 }, { zeros: 16384 }, { zeros: 16384 }, two, two, two], "limit_exceeded");
				await Promise.all(Array.from({ length: 20 }, (_, i) => run("fill_f32", [{ zeros: 100 }, { f32: i }, { u32: 100 }]).then(({ f32s }) =>
					assert.deepEqual(f32s, Array(100).fill(i)))));
				const { tokens } = await machine.admin.call("token.list");
				assert.equal(tokens.find((one) => one.token_id === client.token_id).memory_bytes, 0);
				assert.deepEqual((await machine.admin.call("memory.list")).allocations.filter((one) => one.token_id === client.token_id), []);
				assert.equal(client.notices.length, 0);
				await client.close();
			});

			here("wrong arguments are refused, and nothing runs", async (device) => {
				const bench = await Bench.open(device), n = 16, x = await bench.put(n), y = await bench.put(n);
				const wrong = [
					["fill_f32", []], ["fill_f32", [buffer(x), { f32: 1 }]], ["fill_f32", [buffer(x), { f32: 1 }, { u32: n }, { u32: n }]],
					["fill_f32", [{ f32: 1 }, { f32: 1 }, { u32: n }]], ["fill_f32", [buffer(x), { u32: 1 }, { u32: n }]],
					["fill_f32", [buffer(x), { f32: 1 }, { f32: n }]], ["fill_f32", [buffer(x), { f32: 1 }, { u32: n + 1 }]],
					["fill_f32", [buffer(x), { f32: 1 }, { u64: "4611686018427387905" }]], ["fill_f32", [buffer(x), { f32: 1 }, { u64: "x" }]],
					["fill_f32", [buffer(x), { f32: 1 }, { i32: -1 }]],
					["matmul_f32", [buffer(x), buffer(x), buffer(y), { u32: 4 }, { u32: 4 }, { u32: 4 }]],
					["matmul_f32", [buffer(x), buffer(y), buffer(y), { u64: "4294967296" }, { u64: "4294967296" }, { u32: 1 }]],
					["sum_f32", [buffer(x), buffer(x), { u32: n }]], ["saxpy_f32", [buffer(y), buffer(x), { f32: 1 }, { u32: 17 }]]];
				for (const [kernel, args] of wrong) await bench.client.refused("compute.launch", bench.params(kernel, args), "invalid_params");
				for (const [value, said] of [[{ u32: -1 }, /args\[2\]\.u32 must be at least 0/], [{ u32: 2 ** 32 }, /args\[2\]\.u32 must be at most 4294967295/],
					[{ u32: n, f32: 1 }, /args\[2\] has the unknown member "u32"/]])
					assert.match((await bench.client.refused("compute.launch", bench.params("fill_f32", [buffer(x), { f32: 1 }, value]), "invalid_params")).said, said);
				await bench.client.refused("compute.launch", bench.params("none", [buffer(x), { f32: 1 }, { u32: n }]), "not_found");
				assert.ok((await bench.get(x, n)).every((value) => value === 0));
				await bench.run("fill_f32", [buffer(x), { f32: 1 }, { u32: n }]);
				await bench.client.close();
			});

			here("formats of other back ends", async (device) => {
				const { client } = await Bench.open(device);
				const load = (format) => client.refused("compute.load", { device_id: device.device_id, format }, "unavailable", Buffer.from("module"));
				for (const [format, taker] of [["ptx", "cuda"], ["spirv", "vulkan"], ["wgsl", "webgpu"]])
					if (backend !== taker) await load(format);
				await client.close();
			});
		});

	describe("a user's SPIR-V", () => {
		const here = (what, body) => test(what, async (context) =>
			machine.vulkan ? body(machine.vulkan) : context.skip("no vulkan device that passed"));
		// llvmpipe gives up a loop after 65,536 rounds: that many of them, then.
		const forever = [60000, 60000, 1];
		const load = (client, device, module) => client.callWith("compute.load", { device_id: device.device_id, format: "spirv" }, module);

		here("runs", async (device) => {
			const bench = await Bench.open(device), module = await load(bench.client, device, counter(false));
			assert.deepEqual(module.kernels, ["main"]);
			const data = await bench.put(Uint32Array.of(41, 0));
			for (let i = 0; i < 3; i++)
				await bench.client.call("compute.launch", { module_id: module.module_id, kernel: "main", grid: [1, 1, 1], args: [buffer(data)] });
			const { body } = await bench.client.call("memory.read", { allocation_id: data, offset: 0, bytes: 8 });
			assert.deepEqual([body.readUInt32LE(0), body.readUInt32LE(4)], [44, 0]);
			await bench.client.refused("compute.launch", { module_id: module.module_id, kernel: "main", grid: [1, 1, 1], args: [] }, "invalid_params");
			await bench.client.refused("compute.launch", { module_id: module.module_id, kernel: "other", grid: [1, 1, 1], args: [buffer(data)] }, "not_found");
			await bench.client.close();
		});

		here("that is garbage or cut off is refused, and the worker lives", async (device) => {
			const bench = await Bench.open(device), whole = counter(false);
			const data = await bench.put(Uint32Array.of(1, 0));
			const cuts = Array.from({ length: whole.length / 4 - 1 }, (_, i) => whole.subarray(0, 4 * i + 4));
			for (const module of [Buffer.from("garbage"), pattern(4096, 3), whole.subarray(0, 19), whole.subarray(0, whole.length - 6),
				Buffer.concat([whole, Buffer.from([1])]), Buffer.alloc(20), ...cuts])
				await load(bench.client, device, module).then(() => assert.fail(`${module.length} bytes were taken`),
					(error) => assert.equal(error.reason, "invalid_params", error.message));
			const { body } = await bench.client.call("memory.read", { allocation_id: data, offset: 0, bytes: 4 });
			assert.equal(body.readUInt32LE(0), 1);
			assert.equal(bench.client.notices.length, 0);
			await bench.client.close();
		});

		here("that loops for ever is ended at its time, with its session's things and no others", async (device) => {
			const other = await Bench.open(device), theirs = await other.put(Float32Array.of(1, 2, 3));
			const bench = await Bench.open(device), module = await load(bench.client, device, counter(true));
			const data = await bench.put(Uint32Array.of(0, 1)), began = performance.now();
			await bench.client.refused("compute.launch",
				{ module_id: module.module_id, kernel: "main", grid: forever, args: [buffer(data)], timeout_ms: 300 }, "timeout");
			console.log(`an endless kernel with timeout_ms 300 was answered after ${(performance.now() - began).toFixed(0)} ms`);
			const lost = await bench.client.notice("device_lost");
			assert.deepEqual(lost.allocations, [data]);
			assert.ok(lost.modules.includes(module.module_id));
			assert.deepEqual([...await other.get(theirs, 3)], [1, 2, 3]);
			await bench.put(Float32Array.of(1)); // by a fresh worker
			await bench.client.close();
			await other.client.close();
		});

		here("that loops for ever is ended by a revoke", async (device) => {
			const bench = await Bench.open(device), module = await load(bench.client, device, counter(true));
			const data = await bench.put(Uint32Array.of(0, 1));
			bench.client.call("compute.launch", { module_id: module.module_id, kernel: "main", grid: forever, args: [buffer(data)] }).catch(() => {});
			await bench.client.call("server.info");
			await machine.admin.call("token.revoke", { token_id: bench.client.token_id });
			assert.equal((await bench.client.closed).code, 4410);
			const { tokens } = await machine.admin.call("token.list");
			assert.equal(tokens.find((one) => one.token_id === bench.client.token_id).memory_bytes, 0);
		});
	});

	// A software device compiles a module to code of the worker: without all of its sandbox that is refused.
	describe("a user's SPIR-V on a kernel that lacks part of the sandbox", () => {
		const deny = process.env.EXOGPU_DENY;
		for (const [what, said] of [["landlock", "files (Landlock)"], ["seccomp", "system calls (seccomp)"]])
			test(`${what}: refused on a software device, and nothing else is`, { skip: deny ? false : "EXOGPU_DENY is not set" }, async (context) => {
				if (machine.vulkan?.kind !== "cpu") return context.skip("no software Vulkan device that passed");
				const bare = await startMachine({ under: [deny, what] }), client = await tenant(bare), { device_id } = bare.vulkan;
				const load = () => client.refused("compute.load", { device_id, format: "spirv" }, "unavailable", counter(false));
				const why = await load();
				assert.match(why.said, /not fully confined/);
				assert.match(why.hint, /seccomp and Landlock/);
				const { module_id } = await client.call("compute.load", { device_id, format: "builtin" });
				const { allocation_id } = await client.call("memory.allocate", { device_id, bytes: 4 });
				await client.call("compute.launch", { module_id, kernel: "fill_f32", args: [buffer(allocation_id), { f32: 2.5 }, { u32: 1 }] });
				assert.equal((await client.call("memory.read", { allocation_id, offset: 0, bytes: 4 })).body.readFloatLE(0), 2.5);
				await load();
				assert.deepEqual(client.notices, [], "the worker lives");
				assert.ok(bare.server.output.stderr.includes(`workers of sessions are not fully confined here: ${said}: `), bare.server.output.stderr);
				await client.close();
				await bare.server.finish();
			});
	});

	describe("a worker that was taken over", () => {
		test("is refused what is not on its list, which the log tells once for each call", async (context) => {
			const attacked = await startMachine({ env: { EXOGPU_FAULT: "escape:cpu", HF_TOKEN: "hf_secret" } });
			const told = () => attacked.server.output.stderr.match(/a worker of CPU made a system call that is not on its list, and was refused it: \S+/g) ?? [];
			for (let i = 0; i < 2; i++) {
				const client = await tenant(attacked);
				await client.call("memory.allocate", { device_id: attacked.cpu.device_id, bytes: 4 });
				await client.close();
			}
			await attacked.server.finish(); // by then all that its node says has come
			const lines = told();
			if (!lines.length) return context.skip("a release build does not attack itself, or the kernel does not tell");
			assert.equal(new Set(lines).size, lines.length, lines.join("\n"));
			for (const name of ["shmget", "unshare", "execve", "socketpair", "bpf"])
				assert.ok(lines.some((line) => line.endsWith(` ${name}`)), `${name} is told: ${lines.join("\n")}`);
		});
	});

	describe("a user's PTX", () => {
		test("that is garbage or cut off is refused", async (context) => {
			if (!machine.cuda) return context.skip("no cuda device that passed");
			const bench = await Bench.open(machine.cuda);
			for (const module of [Buffer.from("garbage"), pattern(4096, 3), Buffer.from(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(")])
				await bench.client.refused("compute.load", { device_id: machine.cuda.device_id, format: "ptx" }, "invalid_params", module);
			await bench.client.close();
		});
	});

	describe("how soon", () => {
		for (const backend of ["cpu", "vulkan", "cuda"])
			test(`the first allocation and an empty launch on ${backend}`, async (context) => {
				const device = machine[backend];
				if (!device) return context.skip(`no ${backend} device that passed`);
				const client = await tenant(machine), began = performance.now();
				const [{ allocation_id }] = await withWorker(machine.server, () => client.call("memory.allocate", { device_id: device.device_id, bytes: 4 }));
				const first = performance.now() - began;
				const { module_id } = await client.call("compute.load", { device_id: device.device_id, format: "builtin" });
				const launch = () => client.call("compute.launch", { module_id, kernel: "fill_f32", args: [buffer(allocation_id), { f32: 0 }, { u32: 0 }] });
				await launch();
				const times = [];
				for (let i = 0; i < 200; i++) {
					const from = performance.now();
					await launch();
					times.push(performance.now() - from);
				}
				times.sort((a, b) => a - b);
				console.log(`${device.name}: first allocation ${first.toFixed(0)} ms (with its worker), empty launch ${(times[100] * 1000).toFixed(0)} us, 99th of 100 ${(times[198] * 1000).toFixed(0)} us`);
				assert.ok(first < 30000 * slow);
				await client.close();
			});
	});
});
