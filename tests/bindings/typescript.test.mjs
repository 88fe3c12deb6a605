// bindings/typescript: the package as it is built, with ws beside it, against a real server in Node; and in Chromium, where
// there is one.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { startMachine } from "../api/machine.mjs";
import { Proxy } from "../api/remote.mjs";
import { eventually, slow, startServer, temporary, within } from "../api/server.mjs";
import { executable, startBrowser } from "../e2e/browser.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const source = here("../../bindings/typescript");
const ui = createRequire(here("../../ui/package.json"));
const has = (name) => { try { return Boolean(ui.resolve(`${name}/package.json`)); } catch { return false; } };
const skip = !has("esbuild") && "the dashboard's packages are not installed: npm ci in ui/";

describe("the TypeScript client", { skip }, () => {
	let machine, exogpu, client, bundle, folder, parts;
	const connect = (options = {}, url = machine.server.url.origin) =>
		exogpu.Client.connect(url, { token: machine.server.token, ...options });

	before(async () => {
		folder = temporary();
		const place = join(folder, "node_modules/exogpu");
		mkdirSync(place, { recursive: true });
		cpSync(join(source, "package.json"), join(place, "package.json"));
		symlinkSync(here("../node_modules/ws"), join(folder, "node_modules/ws"));
		execFileSync(process.execPath, [join(source, "build.mjs"), ...(has("typescript") ? ["--types"] : []), join(place, "dist")]);
		bundle = readFileSync(join(place, "dist/index.js"), "utf8");
		writeFileSync(join(folder, "find.mjs"), 'export * from "exogpu";\n');
		exogpu = await import(pathToFileURL(join(folder, "find.mjs")));
		await ui("esbuild").build({ entryPoints: [join(source, "src/socket.ts")], outfile: join(folder, "socket.mjs"), bundle: true,
			format: "esm", platform: "neutral", external: ["ws"], logLevel: "warning" });
		parts = await import(pathToFileURL(join(folder, "socket.mjs")));
		machine = await startMachine();
		client = await connect();
	});
	after(async () => {
		client?.close();
		await machine?.server.finish();
	});

	const put = async (values, owner = client, { device_id } = machine.cpu) => {
		const { allocation_id } = await owner.call("memory.allocate", { device_id, bytes: values.byteLength });
		await owner.write(allocation_id, values);
		return allocation_id;
	};
	const get = async (allocation_id, count, owner = client) =>
		[...new Float32Array((await owner.read(allocation_id, 4 * count)).buffer)];

	for (const backend of ["cpu", "vulkan"])
		test(`a product is computed on the device of ${backend}`, async (context) => {
			const device = machine[backend];
			if (!device) return context.skip(`no ${backend} device that passed`);
			const { module_id } = await client.call("compute.load", { device_id: device.device_id, format: "builtin" });
			const [a, b, c] = await Promise.all([Float32Array.of(1, 2, 3, 4), Float32Array.of(5, 6, 7, 8), new Float32Array(4)]
				.map((each) => put(each, client, device)));
			const args = [c, a, b].map((allocation_id) => ({ allocation_id }));
			const { device_us } = await client.call("compute.launch", { module_id, kernel: "matmul_f32", args: [...args, { u32: 2 }, { u32: 2 }, { u32: 2 }] });
			assert.ok(device_us >= 0);
			assert.deepEqual(await get(c, 4), [19, 22, 43, 50]);
		});

	test("memory goes in pieces and comes back as it was", async () => {
		const values = Uint32Array.from({ length: (5 << 18) + 3 }, (_, i) => Math.imul(i, 2654435761));
		const back = await client.read(await put(values), values.byteLength);
		assert.ok(Buffer.from(values.buffer).equals(back));
	});

	test("after a piece that fails no other is begun", async () => {
		const mine = await connect(), begun = [];
		mine.call = async (method, { offset }) => {
			begun.push(offset);
			if (offset === 0) throw new Error("of the first piece");
			await new Promise((resolve) => setImmediate(resolve));
		};
		await assert.rejects(mine.write("alloc_none", new Uint8Array(40 << 20)), /of the first piece/);
		await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
		assert.equal(begun.length, 8, "those that were under way");
		mine.close();
	});

	test("an address has the port of its scheme, and without one the server's", () => {
		for (const [url, wanted] of [["host", "ws://host:52415"], ["host:80", "ws://host:80"], ["[::1]", "ws://[::1]:52415"],
			["http://host", "ws://host"], ["https://host", "wss://host"], ["wss://host:52415", "wss://host:52415"], ["127.0.0.1:443", "ws://127.0.0.1:443"]])
			assert.equal(parts.socketUrl(url), `${wanted}/ws`, url);
		for (const url of ["", "ftp://host", "host:port"]) assert.throws(() => parts.socketUrl(url), TypeError, url);
	});

	test("an error has its reason, and the server's hint", async () => {
		const error = await client.call("memory.free", { allocation_id: "alloc_none" }).then(() => assert.fail("freed"), (one) => one);
		assert.ok(error instanceof exogpu.ApiError && error.reason === "not_found" && error.method === "memory.free", error.stack);
		await assert.rejects(connect({ token: "exo_none" }), { name: "ApiError", reason: "unauthenticated" });
		await assert.rejects(connect({}, "http://127.0.0.1:1"), { name: "ConnectionLostError" });
		assert.equal(exogpu.errors.not_found.code, error.code);
	});

	test("a call has a time, and can be given up", async () => {
		const proxy = await Proxy.start(machine.server.port), mine = await connect({}, `http://127.0.0.1:${proxy.port}`);
		proxy.cut("down");
		await assert.rejects(mine.call("server.info", {}, { timeoutMs: 30 }), { name: "CallTimeoutError" });
		const giving = new AbortController(), waiting = mine.call("server.info", {}, { signal: giving.signal });
		giving.abort(new Error("enough"));
		await assert.rejects(waiting, /enough/);
		proxy.mend();
		assert.ok((await mine.call("server.info", {}, { timeoutMs: 2 ** 40 })).version, "also one that no timer can hold");
		mine.close();
		proxy.close();
	});

	test("a connection on which nothing is heard is lost", async () => {
		const proxy = await Proxy.start(machine.server.port), mine = await connect({ silenceMs: 3000 * slow }, `http://127.0.0.1:${proxy.port}`);
		const [pair] = proxy.pairs, { down } = pair;
		await eventually(() => pair.down > down, "what was asked for is answered");
		proxy.cut("down");
		await assert.rejects(mine.call("server.info"), { name: "ConnectionLostError", message: /nothing was heard/ });
		proxy.mend();
		assert.ok((await mine.call("server.info")).version);
		mine.close();
		proxy.close();
	});

	test("an error in onNotification is told, and the connection goes on", async (context) => {
		const told = context.mock.method(console, "error", () => {}).mock;
		for (const onNotification of [() => { throw new Error("my own"); }, async () => { throw new Error("my own"); }]) {
			const mine = await connect({ onNotification }), before = told.callCount();
			const { allocation_id } = await mine.call("memory.allocate", { device_id: machine.cpu.device_id, bytes: 16 });
			await client.call("memory.free", { allocation_id });
			await eventually(() => told.callCount() > before, "it is told");
			assert.match(told.calls.at(-1).arguments.join(" "), /session\.device_lost.*my own/);
			assert.ok((await mine.call("server.info")).version);
			mine.close();
		}
	});

	test("memory outlives a connection, and events that were missed are replayed", async () => {
		const proxy = await Proxy.start(machine.server.port), mine = await connect({}, `http://127.0.0.1:${proxy.port}`);
		const { device_id } = machine.cpu, kept = await put(Float32Array.of(1, 2, 3), mine), { session_id } = mine.login;
		const stream = mine.events(["inventory"]), topics = [];
		const drained = async (wanted) => {
			for (;;) {
				const { value } = await within(stream.next(), "an event");
				topics.push(value.topic);
				if (value.topic === "inventory" && value.data.device?.device_id === device_id && value.data.device.draining === wanted) return value.seq;
			}
		};
		const { value } = await within(stream.next(), "the snapshot");
		assert.equal(value.topic, "snapshot");
		assert.ok(value.data.devices.some((one) => one.device_id === device_id));
		await client.call("device.drain", { device_id, drain: true });
		const seq = await drained(true);
		proxy.break();
		await client.call("device.drain", { device_id, drain: false });
		assert.ok(await drained(false) > seq);
		assert.ok(!topics.includes("snapshot"), "they were replayed");
		assert.deepEqual([await get(kept, 3, mine), mine.login.session_id], [[1, 2, 3], session_id]);
		await assert.rejects(mine.events(["telemetry"]).next(), /one stream/);
		await stream.return();
		proxy.cut("up");
		const waiting = mine.call("server.info");
		await eventually(() => proxy.pairs.some(({ kept: { up } }) => up.length), "the call is under way");
		proxy.pairs.forEach((pair) => (pair.kept.up = []));
		proxy.break();
		await assert.rejects(waiting, { name: "ConnectionLostError" });
		mine.close();
		await assert.rejects(mine.call("server.info"), /was closed/);
		proxy.close();
	});

	test("a revoked token ends it for good", async () => {
		const { token, token_id } = await client.call("token.create", { name: "short", scopes: ["observe"] });
		const mine = await connect({ token });
		await client.call("token.revoke", { token_id });
		await eventually(() => mine.call("server.info").then(() => false, (error) => error.code === 4410), "it says so");
	});

	test("by TLS with the cluster's authority, and not without", async () => {
		const secure = await startServer({ listen: "0.0.0.0:0" }), url = `https://127.0.0.1:${secure.port}`;
		const mine = await connect({ token: secure.token, ca: String(secure.ca) }, url);
		assert.equal((await mine.call("server.info")).tls, true);
		mine.close();
		await assert.rejects(connect({ token: secure.token }, url), { name: "ConnectionLostError" });
		await secure.finish();
	});

	test("its types are checked: right programs pass and wrong ones do not", { skip: !has("typescript") && "TypeScript is not installed: npm ci in ui/" }, () => {
		const program = (body) => {
			writeFileSync(join(folder, "program.ts"), `import { Client } from "exogpu";\nconst client = await Client.connect("", { token: "" });\n${body}\n`);
			const options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "--types", ""];
			writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
			const compiler = join(ui.resolve("typescript/package.json"), "../bin/tsc");
			try {
				execFileSync(process.execPath, [compiler, ...options, "program.ts"], { cwd: folder, encoding: "utf8" });
				return "";
			} catch (error) {
				return error.stdout;
			}
		};
		assert.equal(program(`const { bytes }: { bytes: number } = await client.call("memory.allocate", { device_id: "", bytes: 1 });
			const { body }: { body: Uint8Array } = await client.call("memory.read", { allocation_id: "", offset: 0, bytes });
			await client.call("memory.write", { allocation_id: "", offset: 0 }, { body });
			await client.call("cluster.snapshot");
			for await (const event of client.events(["telemetry"])) if (event.topic === "telemetry") event.data.devices.at(0)?.power_watts;`), "");
		const wrong = program(`client.call("memory.alocate", {});
			client.call("memory.allocate", { device_id: 1, bytes: 1 });
			client.call("memory.write", { allocation_id: "", offset: 0 });
			client.call("memory.free");
			(await client.call("server.info")).vresion;`);
		for (const line of [3, 4, 5, 6, 7]) assert.match(wrong, new RegExp(`program.ts\\(${line},`), wrong);
	});

	test("in a browser", { skip: !existsSync(executable) && `there is no browser at ${executable}` }, async () => {
		const browser = await startBrowser();
		const page = await browser.page({ bypassCSP: true });
		await page.goto(machine.server.url.origin);
		const sum = await page.evaluate(async ({ text, token, device_id }) => {
			const { Client } = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
			const client = await Client.connect(location.origin, { token });
			const { allocation_id } = await client.call("memory.allocate", { device_id, bytes: 8 });
			await client.write(allocation_id, Float32Array.of(40, 2));
			const [one, other] = new Float32Array((await client.read(allocation_id, 8)).buffer);
			client.close();
			return one + other;
		}, { text: bundle, token: machine.server.token, device_id: machine.cpu.device_id });
		assert.equal(sum, 42);
		await browser.close();
	});
});
