// Evicted instances come back: all of them, also after a restart of the server, and where it does not work at once.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { folder, long, pin, prepare, start, tight } from "./giving.mjs";
import { modelFile } from "./gguf.mjs";
import { deviceReadings, nodeRecord } from "./records.mjs";
import { eventually, slow } from "./server.mjs";
import { cpu } from "./workers.mjs";

before(prepare);

const idle = { args: ["--give-way-after", "0"] }, fails = () => ({ error: { code: -32005, message: "3 GiB are missing", data: { reason: "out_of_memory", hint: null } } });
const whole = (one) => one.state === "running" && one.stages[0].device_id === "dev_tight" && one.stages[0].host_layers === 0;
// The server ends, and the next one begins with what it had stored.
const again = async (it, signal, options) => {
	await it.stored();
	it.beats.forEach(clearInterval);
	const { code, stderr } = await it.server.stop(signal);
	if (signal === "SIGTERM") assert.equal(code, 0, stderr.slice(-4000));
	return start({ ...options, data: it.server.data });
};

describe("those that were evicted", { timeout: 900000 * slow }, () => {
	for (const signal of ["SIGTERM", "SIGKILL"]) {
		test(`to the host's memory go back after ${signal} and a start of the server`, async () => {
			const options = { models: 1.75, beside: [cpu], ...idle }, was = await start(options);
			const { instance_id } = await was.place("first");
			const second = await was.place("second");
			await was.is(instance_id, "it was evicted", (one) => one.state === "running" && one.short_of_memory === "spilled");
			await was.admin.call("instance.delete", { instance_id: second.instance_id });
			const it = await again(was, signal, { ...options, models: 0.75 }); // something else has taken much of the device meanwhile
			const spilled = await it.is(instance_id, "it is spilled once more", (one) => one.state === "running" && one.short_of_memory === "spilled");
			assert.match(spilled.state_reason, /it was evicted for second: more of its layers are in the host's memory/);
			await it.node.devices([tight(2 * it.memory), cpu]);
			const back = await it.is(instance_id, "it is whole", whole);
			assert.deepEqual([back.short_of_memory, back.state_reason], [null, null]);
			await it.finish();
		});
		test(`and were unloaded are kept over ${signal} for as long as the other one is not up`, async () => {
			const was = await start(idle);
			const { instance_id } = await was.place("first", { gives_way: "unload" });
			was.opens(() => null); // it loads for ever
			const second = await was.create("second");
			assert.equal(await was.has(), "first second");
			const it = await again(was, signal, { ...idle, stuck: "second" });
			const waits = /^idle for \d+ s, it was evicted for second: it is loaded again if that one does not come up$/;
			await it.is(instance_id, "it waits for what becomes of second", (one) => one.state === "paused" && waits.test(one.state_reason));
			await it.admin.call("instance.delete", { instance_id: second });
			const { gives_way } = await it.is(instance_id, "it is loaded again", whole);
			assert.equal(gives_way, "unload");
			await it.log(/of first is loaded again: what it was unloaded for did not come up/);
			// The same, and now the other one comes up: nobody comes back.
			it.opens(() => null);
			const third = await it.create("third");
			const next = await again(it, signal, idle);
			await next.is(third, "it is up", whole);
			const last = await again(next, signal, idle);
			await last.is(third, "it is up once more", whole);
			assert.equal(await last.has(), "third");
			await last.finish();
		});
	}
	test("and were unloaded in vain are kept over a restart while there is no room for them", async () => {
		const was = await start(idle);
		const { instance_id } = await was.place("first", { gives_way: "unload" });
		was.opens(() => null);
		const second = await was.create("second");
		was.node.telemetry([deviceReadings({ device_id: "dev_tight", memory_used_bytes: was.memory, memory_total_bytes: was.memory })]);
		await was.admin.call("instance.delete", { instance_id: second });
		await was.is(instance_id, "it waits", (one) => one.state === "paused" && /it was evicted for second, which did not come up/.test(one.state_reason));
		const it = await again(was, "SIGTERM", idle);
		await it.is(instance_id, "it is loaded again", whole);
		await it.finish();
	});
	test("come back both where they are of one model", async () => {
		const it = await start({ models: 2.2, ...idle });
		writeFileSync(join(folder, "large.gguf"), modelFile({ seed: 6, megabytes: 16 }));
		it.ids.large = await it.add(join(folder, "large.gguf"));
		const two = [await it.place("first", { gives_way: "unload" }), await it.place("first", { gives_way: "unload" })].map((one) => one.instance_id);
		it.opens(fails);
		await it.create("large");
		for (const id of two) await it.is(id, "it is loaded again", whole);
		await it.finish();
	});
	test("come back as many as were not begun by somebody else meanwhile", async () => {
		const it = await start({ models: 2.2, ...idle });
		it.ids.large = await it.add(join(folder, "large.gguf"));
		const two = [await it.place("first", { gives_way: "unload" }), await it.place("first", { gives_way: "unload" })].map((one) => one.instance_id);
		it.opens(() => null);
		const large = await it.create("large");
		const record = { ...tight(it.memory), device_id: "dev_other", hardware_key: "uuid:other", name: "Other", memory_pool: "uuid:other" };
		const other = await it.join([record], { record: nodeRecord({ node_id: "node_other", name: "other" }) });
		const { instance_id } = await it.place("first", pin("dev_other"));
		await it.admin.call("instance.delete", { instance_id: large });
		await it.log(/of first, which was unloaded for a model that did not come up, is not loaded again: it was begun meanwhile/);
		const all = await eventually(async () => {
			const now = await it.instances();
			return now.length === 2 && now.every((one) => one.state === "running") && now;
		}, "one of the two comes back", long);
		assert.ok(all.some((one) => one.instance_id === instance_id) && all.some((one) => two.includes(one.instance_id)), JSON.stringify(all));
		other.socket.close();
		await it.finish();
	});
	test("wait for their device where its node is gone, and say so", async () => {
		const it = await start(idle);
		const { instance_id } = await it.place("first", { gives_way: "unload", ...pin("dev_tight") });
		it.opens(() => null);
		await it.create("second");
		it.node.socket.close();
		await it.is(instance_id, "it waits", (one) => one.state === "paused" && /evicted for second, which did not come up: it waits for Tight/.test(one.state_reason));
		await it.log(/of first is not loaded again yet: /);
		it.node = await it.join();
		const back = await it.is(instance_id, "it is loaded again", whole);
		assert.deepEqual([back.gives_way, back.state_reason], ["unload", null]);
		await it.finish();
	});
	test("to the host's memory try again where the first attempts to go back end in vain", async () => {
		const it = await start({ models: 1.75, beside: [cpu], ...idle });
		const { instance_id } = await it.place("first");
		const second = await it.place("second");
		await it.is(instance_id, "it was evicted", (one) => one.state === "running" && one.short_of_memory === "spilled");
		let refused = 0;
		it.node.open = (message) => {
			if (++refused === 2) it.node.open = undefined;
			it.node.fail(message, -32053, "unavailable", "the device is in a reset");
		};
		await it.admin.call("instance.delete", { instance_id: second.instance_id });
		const elsewhere = await it.is(instance_id, "it is on the processor", (one) => one.state === "running" && one.stages[0].device_id === "dev_cpu");
		assert.equal(refused, 2);
		assert.match(elsewhere.state_reason, /it was evicted for second: it goes back once there is room for it/);
		await it.is(instance_id, "it is whole", whole);
		await it.log(/of first, which was evicted, stays as it is for \d+ s more: it was to go back, and could not be loaded so/);
		await it.finish();
	});
});
