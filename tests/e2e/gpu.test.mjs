// The GPU of a browser tab, lent to sessions: Chromium computes on SwiftShader through WebGPU, in the tab's own workers,
// for a real client of a real server. What it computes is compared with this process.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, assertContractKept, frame, unframe } from "../api/client.mjs";
import { eventually, startServer, within } from "../api/server.mjs";
import { pattern } from "../api/workers.mjs";
import { gpuFlags, startBrowser, suite } from "./browser.mjs";
import { MIB, lendAgain, servePage, startTabNode } from "./gpu_node.mjs";
import { formatsGiven, given, loadStage } from "./rows.mjs";

const CHUNK = MIB / 4; // of a buffer here, so that little memory lies in many
const device_id = "dev_tab";
const buffer = (allocation_id) => ({ allocation_id });
const floats = (body) => new Float32Array(Uint8Array.from(body).buffer);
const bytesOf = (values) => Buffer.from(Float32Array.from(values).buffer);

suite("a browser's GPU", () => {
	let server, served, browser, page, node, client;
	const allocate = async (bytes) => (await client.call("memory.allocate", { device_id, bytes })).allocation_id;
	const write = (allocation_id, offset, body) => client.callWith("memory.write", { allocation_id, offset }, body);
	const read = async (allocation_id, offset, bytes) => (await client.call("memory.read", { allocation_id, offset, bytes })).body;
	const put = async (values) => {
		const allocation_id = await allocate(values.length * 4);
		await write(allocation_id, 0, bytesOf(values));
		return allocation_id;
	};
	const load = (text, format = "wgsl") => client.callWith("compute.load", { device_id, format }, Buffer.from(text));
	const launch = (module, kernel, args, more = {}) => client.call("compute.launch", { module_id: module.module_id, kernel, args, ...more });

	before(async () => {
		server = await startServer();
		served = await servePage(`ws+unix:${server.socket}:/node`);
		// Chromium takes the GPU from pages whose GPU process has died more than once; here that is what is tested.
		browser = await startBrowser({ more: [...gpuFlags, "--disable-domain-blocking-for-3d-apis", "--disable-gpu-process-crash-limit"] });
		page = await browser.page();
		await page.goto(served.origin);
		node = await startTabNode(server, page, served, { more: { buffer_bytes: CHUNK } });
		client = await Client.login(server);
	});
	after(async () => {
		await browser?.close();
		served?.close();
		await server?.stop();
		assertContractKept();
	});

	test("it is described, and what the browser hides is null", async () => {
		const told = await page.evaluate(() => gpu.describe());
		assert.deepEqual([told.software, told.architecture], [true, "swiftshader"]);
		assert.ok(told.buffer_bytes >= 256 * MIB && told.binding_bytes >= 128 * MIB && told.storage_buffers >= 8);
		for (const name of ["vendor", "device", "description"]) assert.ok(told[name] === null || told[name].length > 0, name);
	});

	test("it is verified by computing", async () => {
		const { state, error, memory_bandwidth_bytes_per_s, duration_ms } = await page.evaluate(() => gpu.verify());
		assert.deepEqual([state, error], ["passed", null]);
		assert.ok(memory_bandwidth_bytes_per_s > 0 && duration_ms > 0);
	});

	test("memory that lies in several buffers is one to its client", async () => {
		const bytes = 4 * CHUNK + 7, sent = pattern(bytes), id = await allocate(bytes);
		assert.ok((await read(id, 0, bytes)).every((one) => one === 0), "it is zeroed");
		await write(id, 0, sent);
		assert.deepEqual(await read(id, 0, bytes), sent);
		for (const [offset, count] of [[1, 1], [CHUNK - 1, 2], [CHUNK - 3, CHUNK + 6], [bytes - 5, 5], [bytes, 0], [2, 4096]]) {
			const more = pattern(count, offset + 2);
			await write(id, offset, more);
			more.copy(sent, offset);
			assert.deepEqual(await read(id, offset, count), sent.subarray(offset, offset + count), `${count} bytes at ${offset}`);
		}
		for (const [offset, count, value] of [[0, 3, 7], [CHUNK - 2, 5, 255], [4, CHUNK, 0], [CHUNK + 9, 2 * CHUNK + 1, 0], [bytes - 1, 1, 1]]) {
			await client.call("memory.fill", { allocation_id: id, offset, bytes: count, value });
			sent.fill(value, offset, offset + count);
		}
		assert.deepEqual(await read(id, 0, bytes), sent);
		await client.call("memory.free", { allocation_id: id });
		await client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "not_found");
	});

	test("copies, from any byte to any byte", async () => {
		const bytes = 3 * CHUNK, source = pattern(bytes), target = pattern(bytes, 5), from = await allocate(bytes), to = await allocate(bytes);
		await write(from, 0, source);
		await write(to, 0, target);
		const copy = async (a, a_offset, b, b_offset, count) => {
			const told = await client.call("memory.copy", { from: a, from_offset: a_offset, to: b, to_offset: b_offset, bytes: count });
			assert.deepEqual(told, { bytes: count, path: "device" });
		};
		for (const [a, b, count] of [[0, 0, 64], [4, 8, CHUNK], [1, 2, 5], [3, 3, CHUNK + 8], [CHUNK - 1, 2 * CHUNK - 2, 9], [2, CHUNK + 1, CHUNK], [9, 9, 0]]) {
			await copy(from, a, to, b, count);
			source.copy(target, b, a, a + count);
		}
		assert.deepEqual(await read(to, 0, bytes), target);
		for (const [a, b, count] of [[0, 1001, 999], [CHUNK - 10, CHUNK + 14, 24], [3, 2 * CHUNK + 1, 70001]]) { // within one
			await copy(to, a, to, b, count);
			target.copy(target, b, a, a + count);
		}
		assert.deepEqual(await read(to, 0, bytes), target);
		await client.refused("memory.copy", { from: to, from_offset: 0, to, to_offset: 10, bytes: 11 }, "invalid_params");
		for (const allocation_id of [from, to]) await client.call("memory.free", { allocation_id });
	});

	test("calls that are sent at once are done in their order", async () => {
		const id = await allocate(4096), sent = Array.from({ length: 60 }, (_, i) => pattern(101, i + 1));
		const all = sent.flatMap((body, i) => [write(id, i % 7, body), read(id, i % 7, 101)]);
		const answers = await Promise.all(all);
		sent.forEach((body, i) => assert.deepEqual(answers[2 * i + 1], body, `read ${i}`));
		await client.call("memory.free", { allocation_id: id });
	});

	test("the built-in kernels agree with this process", async () => {
		const module = await client.call("compute.load", { device_id, format: "builtin" });
		assert.deepEqual(module.kernels, ["fill_f32", "saxpy_f32", "matmul_f32", "sum_f32"]);
		const n = CHUNK / 4 + 1001; // over two buffers
		const values = Array.from({ length: n }, (_, i) => Math.fround(Math.sin(i))), x = await put(values), y = await allocate(n * 4), out = await allocate(4);
		await launch(module, "fill_f32", [buffer(y), { f32: 0.5 }, { u32: n }]);
		await launch(module, "saxpy_f32", [buffer(y), buffer(x), { f32: 3 }, { u64: String(n) }]);
		floats(await read(y, 0, n * 4)).forEach((one, i) => assert.ok(Math.abs(one - (0.5 + 3 * values[i])) < 1e-6, `y[${i}] ${one}`));
		await launch(module, "saxpy_f32", [buffer(x), buffer(x), { f32: 1 }, { u32: n }]); // one buffer
		const began = performance.now(), told = await launch(module, "sum_f32", [buffer(out), buffer(x), { u32: n }]);
		assert.ok(told.device_us > 0 && told.device_us <= (performance.now() - began) * 1000 + 1000, `${told.device_us} us on the device`);
		const sum = values.reduce((total, one) => total + 2 * one, 0);
		assert.ok(Math.abs(floats(await read(out, 0, 4))[0] - sum) < 1e-2, `${floats(await read(out, 0, 4))[0]} and ${sum}`);
		await launch(module, "sum_f32", [buffer(out), buffer(x), { u32: 0 }]);
		assert.equal(floats(await read(out, 0, 4))[0], 0);
		for (const id of [x, y, out]) await client.call("memory.free", { allocation_id: id });

		const [m, cols, k] = [33, 45, 70], a = Array.from({ length: m * k }, (_, i) => Math.fround(Math.cos(i))), b = Array.from({ length: k * cols }, (_, i) => Math.fround(Math.sin(3 * i)));
		const ids = [await allocate(m * cols * 4), await put(a), await put(b)];
		await launch(module, "matmul_f32", [...ids.map(buffer), { u32: m }, { u32: cols }, { u32: k }]);
		floats(await read(ids[0], 0, m * cols * 4)).forEach((one, at) => {
			let wanted = 0;
			for (let i = 0; i < k; i++) wanted += a[Math.floor(at / cols) * k + i] * b[i * cols + (at % cols)];
			assert.ok(Math.abs(one - wanted) < 1e-4, `c[${at}] is ${one}, not ${wanted}`);
		});
		await client.refused("compute.launch", { module_id: module.module_id, kernel: "matmul_f32", args: [...ids.map(buffer), { u32: m }, { u32: cols }, { u32: k + 1 }] }, "invalid_params");
		const large = await allocate(CHUNK + 4), args = [buffer(ids[0]), buffer(large), buffer(ids[2]), { u32: 1 }, { u32: 1 }, { u32: 1 }];
		assert.match((await client.refused("compute.launch", { module_id: module.module_id, kernel: "matmul_f32", args }, "limit_exceeded")).said, /reaches 262144 bytes/);
		for (const id of [...ids, large]) await client.call("memory.free", { allocation_id: id });
		const ran = await client.call("compute.run", { device_id, kernel: "saxpy_f32", args: [{ f32s: [1, 2] }, { f32s: [10, 20] }, { f32: 2 }, { u32: 2 }] });
		assert.deepEqual(ran.f32s, [21, 42]);
		await client.call("compute.unload", { module_id: module.module_id });
	});

	test("a user's WGSL runs, and is refused where it cannot", async () => {
		const module = await load(`
			struct P { n: u32, a: f32 }
			@group(0) @binding(0) var<storage, read_write> y: array<f32>;
			@group(0) @binding(1) var<storage, read> x: array<f32>;
			@group(0) @binding(2) var<uniform> p: P;
			@compute @workgroup_size(64) fn axpy(@builtin(global_invocation_id) id: vec3u) { if (id.x < p.n) { y[id.x] += p.a * x[id.x]; } }`);
		assert.deepEqual(module.signatures, [{ kernel: "axpy", block: [64, 1, 1], parameters: [
			{ name: "y", kind: "allocation" }, { name: "x", kind: "allocation" }, { name: "n", kind: "u32" }, { name: "a", kind: "f32" }] }]);
		const x = await put(Array(1000).fill(2)), y = await put(Array(1000).fill(1)), args = [buffer(y), buffer(x), { u32: 999 }, { f32: 1.5 }];
		for (let i = 0; i < 3; i++) await launch(module, "axpy", args, { grid: [16, 1, 1], block: [64, 1, 1] });
		assert.deepEqual([...floats(await read(y, 998 * 4, 8))], [10, 1]);
		const refused = (reason, said, given, more = {}, kernel = "axpy") =>
			client.refused("compute.launch", { module_id: module.module_id, kernel, args: given, ...more }, reason).then((error) => assert.match(error.said, said));
		await refused("invalid_params", /one allocation/, [buffer(y), buffer(y), { u32: 1 }, { f32: 1 }]);
		await refused("invalid_params", /takes a u32/, [buffer(y), buffer(x), { f32: 1 }, { f32: 1 }]);
		await refused("invalid_params", /4 arguments/, [buffer(y), buffer(x)]);
		await refused("invalid_params", /fixes block\[0\] at 64/, args, { block: [32, 1, 1] });
		await refused("limit_exceeded", /the device takes 65535/, args, { grid: [65536, 1, 1] });
		await refused("not_found", /no kernel other/, args, {}, "other");
		const large = await allocate(CHUNK + 4);
		await refused("limit_exceeded", /reaches 262144 bytes/, [buffer(large), buffer(x), { u32: 1 }, { f32: 1 }]);
		for (const id of [x, y, large]) await client.call("memory.free", { allocation_id: id });

		const not = async (text, said) => assert.match((await client.refused("compute.load", { device_id, format: "wgsl" }, "invalid_params", Buffer.from(text))).said, said);
		await not("@compute @workgroup_size(1) fn k() { let x: u32 = 1.5; }", /does not compile: 1:\d+ .*u32/);
		await not("@compute @workgroup_size(100000) fn k() {}", /^k: /);
		await not("fn k() {}", /no @compute/);
		await client.refused("compute.load", { device_id, format: "spirv" }, "unavailable", Buffer.from("x"));
		const { said } = await client.refused("compute.load", { device_id, format: "wgsl" }, "limit_exceeded", Buffer.alloc(257 * 1024, " "));
		assert.match(said, /at most 262144/);
	});

	test("products of rows in every format of model files are those of gguf and numpy", async () => {
		const { productText, rowBytes, MATRIX_ROWS, BATCH } = await loadStage(), { rows, columns, vectors, x } = given;
		const ids = [await allocate(rows * BATCH * 4), await put([...x, ...Array((BATCH - vectors) * columns).fill(NaN)])]; // rows that nobody asks for
		for (const { name, file, products } of formatsGiven) {
			const bytes = rowBytes(name, columns), weights = await allocate(Math.ceil(rows * bytes / 4) * 4);
			assert.equal(file.length, rows * bytes);
			await write(weights, 0, Buffer.from(file));
			for (const batch of [1, BATCH]) {
				const module = await load(productText(name, batch));
				await launch(module, "main", [buffer(ids[0]), buffer(weights), buffer(ids[1]), ...[rows, 0, rows, columns / 32, bytes, 0].map((u32) => ({ u32 }))],
					{ grid: [Math.ceil(rows / MATRIX_ROWS), Math.ceil(vectors / batch), 1] });
				floats(await read(ids[0], 0, rows * vectors * 4)).forEach((one, i) =>
					assert.ok(Math.abs(one - products[i]) < 1e-4 * Math.max(1, Math.abs(products[i])), `${name}: ${i} is ${one}, not ${products[i]}`));
			}
			await client.call("memory.free", { allocation_id: weights });
		}
		for (const id of ids) await client.call("memory.free", { allocation_id: id });
	});

	test("what the tab lends is the most that all sessions hold, and comes back", async () => {
		const held = () => page.evaluate(() => gpu.memory());
		const before = await held(), id = await allocate(8 * MIB);
		assert.equal((await held()).held_bytes, before.held_bytes + 8 * MIB);
		await page.evaluate(() => gpu.setMemoryLimit(9 * 2 ** 20)); // less than the server was told
		const other = await Client.login(server);
		const { said } = await other.refused("memory.allocate", { device_id, bytes: 2 * MIB }, "out_of_memory");
		assert.match(said, /this browser lends/);
		const small = await other.call("memory.allocate", { device_id, bytes: MIB / 2 });
		await other.call("memory.free", { allocation_id: small.allocation_id });
		assert.equal((await held()).held_bytes, before.held_bytes + 8 * MIB);
		await client.call("memory.free", { allocation_id: id });
		await page.evaluate((bytes) => gpu.setMemoryLimit(bytes), before.limit_bytes);
		assert.equal((await held()).held_bytes, before.held_bytes);
	});

	test("a token that is revoked loses its worker, and with it what that holds", async () => {
		const { token, token_id } = await client.call("token.create", { name: "gone soon", scopes: ["allocate", "compute"] });
		const other = await Client.login(server, token), count = node.workers.length, { held_bytes } = await page.evaluate(() => gpu.memory());
		await other.call("memory.allocate", { device_id, bytes: 4096 });
		assert.equal((await page.evaluate(() => gpu.memory())).held_bytes, held_bytes + 4096);
		await client.call("token.revoke", { token_id });
		await node.endOf(node.workers[count]);
		await eventually(() => page.evaluate((bytes) => gpu.memory().held_bytes === bytes, held_bytes), "nothing of it is held");
	});

	test("a server that breaks the protocol ends the worker, and nothing else", async () => {
		const call = (method, params, id = 1) => frame({ jsonrpc: "2.0", id, method, params });
		const cases = [
			["text", (socket) => socket.send('{"jsonrpc":"2.0","id":1,"method":"memory.free","params":{"handle":1}}')],
			["empty", (socket) => socket.send(Buffer.alloc(0))],
			["lengths", (socket) => socket.send(Buffer.from([255, 255, 255, 255, 1]))],
			["no JSON", (socket) => socket.send(Buffer.from([1, 0, 0, 0, 123]))],
			["nested", (socket) => socket.send(Buffer.concat([Buffer.from([200, 0, 0, 0]), Buffer.alloc(200, "[")]))],
			["notification", (socket) => socket.send(frame({ jsonrpc: "2.0", method: "memory.free", params: { handle: 1 } }))],
			["answer", (socket) => socket.send(frame({ jsonrpc: "2.0", id: 1, result: {} }))],
			["a body of 17 MiB", (socket) => socket.send(frame({ jsonrpc: "2.0", id: 1, method: "memory.write", params: { handle: 1, offset: 0 } }, Buffer.alloc(17 * MIB)))],
		];
		const open = async (worker_id, act) => {
			const met = new Promise((resolve) => (served.greet = (socket) => {
				const said = [];
				socket.on("error", () => {}).on("close", () => resolve(said)).on("message", (bytes) => {
					const { head } = unframe(bytes);
					said.push(head);
					act(socket, head, said);
				});
			}));
			const params = { worker_id, key: "k".repeat(64), url: served.sockets };
			const reason = await within(page.evaluate((given) => new Promise((resolve) => gpu.openWorker(given, { ended: resolve })), params), `${worker_id} ends`);
			return { reason, said: await met };
		};
		try {
			for (const [name, act] of cases) {
				const { reason, said } = await open(`wrk_${name.length}`, (socket, head) => head.method === "link.hello" && act(socket));
				assert.deepEqual(said[0], { jsonrpc: "2.0", method: "link.hello", params: { worker_id: `wrk_${name.length}`, key: "k".repeat(64) } }, name);
				assert.match(reason, /^the server broke the protocol: /, name);
			}
			// What a worker refuses, and answers: it goes on until the server leaves.
			const wrong = [["memory.share", { wanted: true }, -32601], ["memory.free", {}, -32602], ["memory.free", { handle: 1 }, -32004],
				["memory.allocate", { device: 3, handle: 1, bytes: 8 }, -32004], ["memory.read", { handle: 9, offset: 0, bytes: 2 ** 30 }, -32602]];
			const { reason, said } = await open("wrk_wrong", (socket, head, all) => {
				if (head.method === "link.hello") wrong.forEach(([method, params], i) => socket.send(call(method, params, i + 1)));
				else if (all.length === 1 + wrong.length) socket.close(1000);
			});
			assert.deepEqual(said.slice(1).map((one) => [one.id, one.error.code]), wrong.map(([, , code], i) => [i + 1, code]));
			assert.match(reason, /closed the connection/);
		} finally {
			served.greet = undefined;
		}
		await client.call("memory.free", { allocation_id: await allocate(64) }); // the session's own has noticed nothing
	});

	test("a tab that goes in mid-transfer loses its sessions' memory, and the next page lends again", async () => {
		const other = await Client.login(server), id = (await other.call("memory.allocate", { device_id, bytes: 16 * MIB })).allocation_id;
		const body = Buffer.alloc(MIB), writes = Array.from({ length: 64 }, (_, i) => other.callWith("memory.write", { allocation_id: id, offset: (i % 16) * MIB }, body));
		const ends = Promise.allSettled(writes);
		await writes[0];
		await page.reload();
		for (const { status, reason } of await ends) if (status === "rejected") assert.equal(reason.reason, "device_lost");
		await other.notice("device_lost");
		await other.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "device_lost");
		await lendAgain(page, 256 * MIB);
		const fresh = (await other.call("memory.allocate", { device_id, bytes: 64 })).allocation_id;
		assert.ok((await other.call("memory.read", { allocation_id: fresh, offset: 0, bytes: 64 })).body.every((one) => one === 0));
		await other.call("memory.free", { allocation_id: fresh });
	});

	// A kernel that ends once its first word is 77; that of the memory `id`.
	const spinner = async (owner, id) => {
		const module = await owner.callWith("compute.load", { device_id, format: "wgsl" }, Buffer.from(`
			@group(0) @binding(0) var<storage, read_write> y: array<atomic<u32>>;
			@compute @workgroup_size(1) fn spin() { loop { if (atomicLoad(&y[0]) == 77u) { break; } atomicAdd(&y[1], 1u); } }`));
		const launch = { module_id: module.module_id, kernel: "spin", args: [buffer(id)] };
		await owner.callWith("memory.write", { allocation_id: id, offset: 0 }, Buffer.from([77, 0, 0, 0]));
		await owner.call("compute.launch", launch);
		await owner.call("memory.fill", { allocation_id: id, offset: 0, bytes: 4, value: 0 });
		return launch;
	};
	const crashGpu = async () => {
		const session = await browser.browser.newBrowserCDPSession();
		await session.send("Browser.crashGpuProcess");
		await session.detach();
	};
	// Memory of a session that has lost its worker, on the next one.
	const again = (owner) => eventually(() => owner.call("memory.allocate", { device_id, bytes: 64 }).catch(() => null), "the GPU is lent again");

	test("a GPU that is lost in the middle of a kernel: the call and the sessions are told, and the next worker has it again", async () => {
		const [other, third] = await Promise.all([Client.login(server), Client.login(server)]);
		const id = (await other.call("memory.allocate", { device_id, bytes: 64 })).allocation_id;
		await third.call("memory.allocate", { device_id, bytes: 64 });
		const launch = other.refused("compute.launch", await spinner(other, id), "device_lost");
		await crashGpu();
		await launch;
		await Promise.all([other.notice("device_lost"), third.notice("device_lost")]);
		for (const owner of [other, third, client]) await again(owner);
		const ran = await other.call("compute.run", { device_id, kernel: "sum_f32", args: [{ zeros: 1 }, { f32s: [1, 2, 3] }, { u32: 3 }] });
		assert.deepEqual(ran.f32s, [6]);
	});

	test("a kernel without an end is ended with its worker; a GPU that hangs on it is told to all, and is lent again when it answers", async () => {
		const [other, third] = await Promise.all([Client.login(server), Client.login(server)]);
		const id = (await other.call("memory.allocate", { device_id, bytes: 64 })).allocation_id;
		const own = (await third.call("memory.allocate", { device_id, bytes: 64 })).allocation_id;
		const { said } = await other.refused("compute.launch", { ...(await spinner(other, id)), timeout_ms: 1000 }, "timeout");
		assert.match(said, /not done within 1000 ms; the worker has ended/);
		await other.notice("device_lost");
		await other.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "device_lost");
		// On a busy machine the device may be given up before the kernel has begun: then the GPU works on.
		const told = third.notice("device_lost"), works = third.call("memory.read", { allocation_id: own, offset: 0, bytes: 4 });
		const message = await Promise.race([told.then((one) => one.message), works.then(() => null, (error) => error.said)]);
		for (const one of [told, works]) one.catch(() => {});
		assert.equal(await page.evaluate(() => gpu.hangs()), message !== null);
		if (message === null) return;
		assert.match((await told).message, /the browser's GPU does not answer since a kernel has outlasted/);
		await third.refused("memory.allocate", { device_id, bytes: 64 });
		await crashGpu(); // what a driver, or a browser with a screen, does by itself
		await eventually(() => page.evaluate(() => !gpu.hangs()), "the GPU answers");
		await again(third);
	});
});
