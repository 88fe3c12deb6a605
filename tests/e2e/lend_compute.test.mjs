// A GPU that a browser lends beside this machine's own devices: its tab hidden and frozen, and copies from device to
// device. The tab has joined by its address, as a person's does.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Client, assertContractKept } from "../api/client.mjs";
import { binary, eventually, patience, startServer } from "../api/server.mjs";
import { pattern } from "../api/workers.mjs";
import { gpuFlags, suite } from "./browser.mjs";
import { openTab } from "./tab.mjs";

const MIB = 2 ** 20;

suite("a lent GPU beside other devices", () => {
	let server, client, tab, gpu, cpu;
	const snapshot = () => client.call("cluster.snapshot");
	const press = (name) => eventually(() => tab.evaluate(`(() => {
		const button = [...document.querySelectorAll("button")].find((one) => one.textContent.trim() === ${JSON.stringify(name)});
		button?.click();
		return Boolean(button);
	})()`), `there is a button ${name}`);
	const lent = () => eventually(async () => (await snapshot()).devices.find((one) => one.backend === "webgpu" && one.state !== "offline" &&
		one.verification.state === "passed"), "the browser's GPU is lent and verified", 4 * patience);
	const allocate = async ({ device_id }, bytes) => (await client.call("memory.allocate", { device_id, bytes })).allocation_id;
	const sum = async () => (await client.call("compute.run", { device_id: gpu.device_id, kernel: "sum_f32", args: [{ zeros: 1 }, { f32s: [1, 2, 4] }, { u32: 3 }] })).f32s;

	before(async () => {
		server = await startServer({ localNode: true });
		client = await Client.login(server);
		const { stdout } = await promisify(execFile)(binary, ["lend", "--data", server.data]);
		tab = await openTab(stdout.trim(), gpuFlags);
		await press("Yes, lend it");
		gpu = await lent();
		cpu = await eventually(async () => (await snapshot()).devices.find((one) => one.backend === "cpu" && one.verification.state === "passed"), "the CPU is verified", 2 * patience);
	});
	after(async () => {
		await tab?.close();
		await server?.stop();
		assertContractKept();
	});

	test("what is copied to it and back is what it was", async () => {
		const bytes = 3 * MIB + 5, sent = pattern(bytes), from = await allocate(cpu, bytes), there = await allocate(gpu, bytes + 3), back = await allocate(cpu, bytes);
		for (let at = 0; at < bytes; at += MIB) await client.callWith("memory.write", { allocation_id: from, offset: at }, sent.subarray(at, at + MIB));
		const copy = (a, from_offset, b, to_offset) => client.call("memory.copy", { from: a, from_offset, to: b, to_offset, bytes });
		assert.deepEqual(await copy(from, 0, there, 3), { bytes, path: "relay" });
		assert.deepEqual(await copy(there, 3, back, 0), { bytes, path: "relay" });
		assert.deepEqual((await client.call("memory.read", { allocation_id: back, offset: 0, bytes })).body, sent);
		for (const allocation_id of [from, there, back]) await client.call("memory.free", { allocation_id });
	});

	test("it computes while its tab is hidden where its owner wants that; else it rests until it is shown", async () => {
		const id = await allocate(gpu, MIB), sent = pattern(MIB, 3);
		const choose = () => tab.evaluate(`[...document.querySelectorAll("label")].find((one) => one.textContent.includes("in the background")).click()`);
		const state = async () => (await snapshot()).devices.find((one) => one.device_id === gpu.device_id);
		await choose();
		await tab.hide();
		await client.callWith("memory.write", { allocation_id: id, offset: 0 }, sent);
		assert.deepEqual((await client.call("memory.read", { allocation_id: id, offset: 0, bytes: MIB })).body, sent);
		assert.deepEqual(await sum(), [7]);
		await choose();
		const rests = await eventually(async () => ((await state()).state === "resting" ? state() : null), "it rests", 2 * patience);
		assert.equal(rests.state_reason, "its page is in the background");
		const { said } = await client.refused("compute.run", { device_id: gpu.device_id, kernel: "sum_f32", args: [{ zeros: 1 }, { f32s: [1] }, { u32: 1 }] }, "unavailable");
		assert.match(said, /gets no new work: its page is in the background/);
		await tab.show();
		await eventually(async () => (await state()).state === "idle", "it works again", 2 * patience);
		assert.deepEqual(await sum(), [7]);
		await client.call("memory.free", { allocation_id: id });
	});

	test("a tab that is frozen loses what its sessions had, and is back by itself", async () => {
		const id = await allocate(gpu, 4096);
		await tab.hide();
		await tab.freeze();
		await client.notice("device_lost", (told) => told.device_id === gpu.device_id);
		await client.refused("memory.read", { allocation_id: id, offset: 0, bytes: 1 }, "device_lost");
		await tab.thaw();
		await tab.show();
		assert.equal((await lent()).device_id, gpu.device_id);
		assert.deepEqual(await eventually(() => sum().catch(() => null), "it computes again"), [7]);
	});
});
