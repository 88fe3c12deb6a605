// Idle models are evicted for one that has no room beside them: which, how, and how it is told; and what is known of a model
// that fits nowhere is not found out anew by each question.
import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { freemem } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { Holding, folder, long, pin, prepare, start, tight } from "./giving.mjs";
import { modelFile } from "./gguf.mjs";
import { alive, startMachine, workers } from "./machine.mjs";
import { deviceReadings, nodeRecord } from "./records.mjs";
import { eventually, run, temporary } from "./server.mjs";
import { WorkerNode, cpu } from "./workers.mjs";

before(prepare);

describe("models that questions load", () => {
	let it;
	before(async () => { it = await start({ models: 2.5, args: ["--give-way-after", "0"] }); });
	after(() => it.finish());

	test("the one that was used the longest ago is unloaded for another, as the preview says, and comes back when it is asked", async () => {
		for (const name of ["first", "second"]) assert.deepEqual(await it.ask(name), { status: 200, said: "one two" });
		assert.deepEqual((await it.instances()).map((one) => [one.gives_way, one.idle_since !== null]), [["unload", true], ["unload", true]]);
		await new Promise((resolve) => setTimeout(resolve, 20)); // so that the clock tells which was used last
		assert.deepEqual(await it.ask("first"), { status: 200, said: "one two" });
		const { feasible, why: [{ text }], devices: [device] } = await it.preview("third");
		assert.ok(feasible && device.given_bytes > 0, JSON.stringify(device));
		assert.match(text, /there is room for it once second is evicted, idle for \d+ s: it is unloaded/);
		assert.equal(await it.has(), "first second", "looking changes nothing");
		const left = (await it.instances()).find((one) => one.model_name === "second").instance_id;
		assert.deepEqual(await it.ask("third"), { status: 200, said: "one two" });
		assert.equal(await it.has(), "first third");
		const [entry] = await eventually(async () => { const all = await it.entries("instance.gave_way"); return all.length && all; }, "it is on record", long);
		assert.deepEqual([entry.target, entry.actor, entry.detail.model, entry.detail.to, entry.detail.how], [left, "server", "second", "third", "unloaded"]);
		assert.match(it.server.output.stderr, /of second, idle for \d+ s, is evicted for third: it is unloaded/);
		assert.deepEqual(await it.ask("second"), { status: 200, said: "one two" });
		assert.equal(await it.has(), "second third");
	});
	test("one that has a request stays; who asks for another is told, until it is over", async () => {
		for (const { instance_id } of await it.instances()) await it.admin.call("instance.delete", { instance_id });
		for (const name of ["first", "second"]) await it.ask(name);
		const busy = ["first", "second"].map((name) => it.workerOf(name));
		busy.forEach((worker) => { worker.manual = true; });
		const under = ["first", "second"].map((name) => it.ask(name));
		await eventually(() => busy.every((worker) => worker.requests.size), "both have a request", long);
		assert.ok((await it.instances()).every((one) => one.idle_since === null));
		const { status, said } = await it.ask("third");
		assert.equal(status, 503);
		assert.match(said, /third could not be loaded: third fits nowhere: .*(first|second) holds memory, too, and may be evicted once nobody has used it/);
		assert.equal(await it.has(), "first second");
		await it.stored();
		const begun = (await it.entries("instance.create")).length;
		assert.deepEqual(await it.ask("third"), { status, said }, "what is known is told at once");
		await it.stored();
		assert.equal((await it.entries("instance.create")).length, begun, "and no place is looked for");
		for (const [i, worker] of busy.entries()) {
			const [request] = worker.requests.keys();
			worker.manual = false;
			worker.babble(worker.requests.get(request).params);
			assert.deepEqual(await under[i], { status: 200, said: "one two" });
			if (i === 0) assert.deepEqual(await it.ask("third"), { status: 200, said: "one two" }, "one of them is idle now");
		}
		assert.equal(await it.has(), "second third");
	});
});

describe("models that somebody placed", () => {
	test("are never unloaded, unless they were placed so", async () => {
		const it = await start({ args: ["--give-way-after", "0"] });
		const { instance_id, gives_way } = await it.place("first");
		assert.equal(gives_way, "spill");
		assert.equal((await it.ask("second")).status, 503, "there is no host whose memory it could go to");
		assert.equal(await it.has(), "first");
		await it.admin.refused("instance.create", { model_id: it.ids.second }, "out_of_memory");
		await it.admin.call("instance.delete", { instance_id });
		assert.equal((await it.ask("second")).status, 200, "there is more memory than when it was looked for a place");
		const [{ instance_id: second }] = await it.instances();
		await it.admin.call("instance.delete", { instance_id: second });
		const placed = await run(["place", "first", "--gives-way", "unload", "--data", it.server.data]);
		assert.equal(placed.code, 0, placed.stderr);
		assert.equal((await it.ask("second")).status, 200);
		assert.equal(await it.has(), "second");
		await it.place("third", { gives_way: "never" });
		assert.equal(await it.has(), "third", "an admin's, too, is given room");
		assert.equal((await it.ask("second")).status, 503);
		await it.finish();
	});
	test("are spilled to the host's memory, as few layers as make room, and say so", async () => {
		const it = await start({ models: 1.75, args: ["--give-way-after", "0"], beside: [cpu] });
		const first = await it.place("first");
		assert.deepEqual(first.stages.map((one) => [one.device_id, one.host_layers]), [["dev_tight", 0]]);
		const { why: [{ text }], devices, stages } = await it.preview("second");
		assert.match(text, /once first is evicted, idle for \d+ s: \d+ more of its layers go to the host's memory/);
		assert.deepEqual(stages.map((one) => [one.device_id, one.host_layers]), [["dev_tight", 0]]);
		assert.ok(devices.find((one) => one.device_id === "dev_tight").given_bytes > 0);
		assert.equal((await it.ask("second")).status, 200);
		const [spilled, second] = await eventually(async () => {
			const all = await it.instances();
			return all.every((one) => one.state === "running") && all;
		}, "both are ready", long);
		assert.deepEqual([spilled.instance_id, spilled.short_of_memory, spilled.moves, second.model_name, second.short_of_memory],
			[first.instance_id, "spilled", 1, "second", null]);
		const [{ device_id, host_layers, layer_count, host_bytes }] = spilled.stages;
		assert.equal(device_id, "dev_tight");
		assert.ok(host_layers > 0 && host_layers < layer_count && host_bytes > 0, JSON.stringify(spilled.stages));
		assert.match(spilled.state_reason, /it was evicted for second: more of its layers are in the host's memory/);
		const [{ detail }] = await eventually(async () => { const all = await it.entries("instance.gave_way"); return all.length && all; }, "it is on record", long);
		assert.deepEqual([detail.model, detail.to, detail.how], ["first", "second", "spilled"]);
		assert.deepEqual(await it.ask("first"), { status: 200, said: "one two" });
		await it.admin.call("instance.delete", { instance_id: second.instance_id });
		const back = await eventually(async () => {
			const [one] = await it.instances();
			return one.state === "running" && one.stages[0].host_layers === 0 && one;
		}, "it goes back once there is room", long);
		assert.deepEqual([back.instance_id, back.short_of_memory, back.state_reason, back.moves], [first.instance_id, null, null, 2]);
		await it.finish();
	});
	test("are evicted for one that has lost its device, too", async () => {
		const it = await start({ args: ["--give-way-after", "0"] });
		const record = { ...tight(it.memory), device_id: "dev_other", hardware_key: "uuid:other", name: "Other", memory_pool: "uuid:other" };
		const other = await WorkerNode.start(it.server, { Worker: Holding, devices: [record], record: nodeRecord({ node_id: "node_other", name: "other" }) });
		await it.place("first", { ...pin("dev_tight"), gives_way: "unload" });
		const { instance_id } = await it.place("second", pin("dev_other"));
		other.socket.close();
		const moved = await eventually(async () => {
			const one = (await it.instances()).find((each) => each.instance_id === instance_id);
			return one.state === "running" && one.stages[0].device_id === "dev_tight" && one;
		}, "it is where the other one was", long);
		assert.equal(moved.recoveries, 1);
		assert.equal(await it.has(), "second");
		await it.finish();
	});
	test("go back once there is room, also while another one waits for a place that it never finds", async () => {
		const it = await start({ models: 1.75, args: ["--give-way-after", "0"], beside: [cpu] });
		const first = await it.place("first", pin("dev_tight"));
		assert.equal((await it.ask("second")).status, 200);
		const find = async (id) => (await it.instances()).find((one) => one.instance_id === id);
		const spilled = await eventually(async () => { const one = await find(first.instance_id); return one.state === "running" && one.stages[0].host_layers > 0 && one; }, "it was evicted", long);
		assert.equal(spilled.short_of_memory, "spilled");
		// Keys and values of a million tokens have room on one device, which is drained, and then their worker ends.
		writeFileSync(join(folder, "wide.gguf"), modelFile({ seed: 4, megabytes: 8, context: 1 << 20 }));
		const record = { ...tight(2 ** 40), device_id: "dev_vast", hardware_key: "uuid:vast", name: "Vast", memory_pool: "uuid:vast" };
		const vast = await WorkerNode.start(it.server, { Worker: Holding, devices: [record], record: nodeRecord({ node_id: "node_vast", name: "vast" }) });
		it.ids.wide = (await it.admin.call("model.add", { source: join(folder, "wide.gguf") })).model_id;
		await eventually(async () => (await it.admin.call("model.list")).models.every((one) => one.state === "ready"), "it is ready", long);
		const wide = await it.place("wide", { ...pin("dev_vast"), context_tokens: 1 << 20, sequences: 1 });
		await it.admin.call("device.drain", { device_id: "dev_vast", drain: true });
		vast.worker().kill();
		await eventually(async () => /^it waits for a place/.test((await find(wide.instance_id)).state_reason), "it has none", long);
		const { instance_id } = (await it.instances()).find((one) => one.model_name === "second");
		await it.admin.call("instance.delete", { instance_id });
		await eventually(async () => { const one = await find(first.instance_id); return one.state === "running" && one.stages[0].host_layers === 0; }, "it is back", long);
		assert.equal((await find(wide.instance_id)).state, "paused", "the other one waits on");
		vast.socket.close();
		await it.finish();
	});
	test("stay where what would take their place cannot be begun, and are loaded again where it does not come up", async () => {
		const it = await start({ args: ["--give-way-after", "0"] });
		const first = await it.place("first", { gives_way: "unload" });
		const gone = join(folder, "gone.gguf");
		writeFileSync(gone, modelFile({ seed: 5, megabytes: 8 }));
		it.ids.gone = (await it.admin.call("model.add", { source: gone })).model_id;
		await eventually(async () => (await it.admin.call("model.list")).models.every((one) => one.state === "ready"), "it is ready", long);
		rmSync(gone);
		const { message } = await it.admin.refused("instance.create", { model_id: it.ids.gone }, "conflict");
		assert.match(message, /gone cannot be used/);
		assert.deepEqual((await it.instances()).map((one) => [one.instance_id, one.state]), [[first.instance_id, "running"]], "nothing was evicted for it");
		await it.stored();
		assert.deepEqual(await it.entries("instance.gave_way"), []);

		const back = () => eventually(async () => (await it.instances()).find((one) => one.model_name === "first" && one.state === "running"), "first is loaded again", long);
		it.opens(() => ({ error: { code: -32005, message: "3 GiB are missing", data: { reason: "out_of_memory", hint: null } } }));
		const before = Date.now(), failed = await it.admin.call("instance.create", { model_id: it.ids.second });
		const again = await back();
		assert.ok(Date.parse(again.idle_since) <= before, `it has not been used since: ${again.idle_since}`);
		assert.equal(again.instance_id, first.instance_id, "it is the same one");
		assert.equal(again.gives_way, "unload");
		assert.equal((await it.instances()).find((one) => one.instance_id === failed.instance_id).state, "failed");
		await eventually(() => /instance \S+ of first is loaded again: what it was unloaded for did not come up/.test(it.server.output.stderr), "the log says so", long);
		await eventually(async () => (await it.entries("instance.create")).some((one) => one.target === again.instance_id && one.actor === "server"), "it is on record", long);

		it.opens(() => null); // it loads for ever
		const { instance_id } = await it.admin.call("instance.create", { model_id: it.ids.second });
		assert.deepEqual((await it.instances()).map((one) => one.instance_id), [instance_id, first.instance_id]);
		await it.admin.call("instance.delete", { instance_id });
		assert.equal((await back()).instance_id, again.instance_id);
		assert.equal(await it.has(), "first");
		assert.equal((await it.ask("first")).status, 200);
		await it.finish();
	});
	test("are listed as paused, with the reason, until what they were unloaded for is up, and can be stopped there", async () => {
		const it = await start({ args: ["--give-way-after", "0"] });
		await it.admin.call("events.subscribe", { topics: ["placement"] });
		const told = (has) => eventually(() => it.admin.events.some(({ data }) => has(data)), "it is told", long);
		let first = await it.place("first", { gives_way: "unload" });
		const paused = (why) => it.is(first.instance_id, "it is paused", (one) => one.state === "paused" && why.test(one.state_reason));
		it.opens(() => null); // it loads for ever
		let { instance_id } = await it.admin.call("instance.create", { model_id: it.ids.second });
		const waits = await paused(/^idle for \d+ s, it was evicted for second: it is loaded again if that one does not come up$/);
		assert.deepEqual([waits.stages, waits.ready_at, waits.idle_since, waits.progress], [[], null, null, null]);
		assert.deepEqual(waits.missing.map((one) => one.device_id), ["dev_tight"]);
		await told(({ instances }) => instances.some((one) => one.instance_id === first.instance_id && one.state === "paused"));
		assert.deepEqual((await it.admin.call("cluster.snapshot")).instances.map((one) => one.model_name), ["second", "first"]);
		assert.match((await run(["instances", "--data", it.server.data])).stdout, /first[^\n]*paused/);
		assert.match((await it.admin.refused("instance.move", { instance_id: first.instance_id }, "conflict")).message, /is not loaded: idle for \d+ s, it was evicted for second/);
		await it.admin.call("instance.delete", { instance_id: first.instance_id });
		assert.equal(await it.has(), "second");
		await told(({ removed_instances }) => removed_instances.includes(first.instance_id));
		await it.admin.call("instance.delete", { instance_id });
		assert.equal(await it.has(), "", "nobody comes back");

		first = await it.place("first", { gives_way: "unload" });
		it.opens(() => null);
		({ instance_id } = await it.admin.call("instance.create", { model_id: it.ids.second }));
		it.node.telemetry([deviceReadings({ device_id: "dev_tight", memory_used_bytes: it.memory, memory_total_bytes: it.memory })]);
		await it.admin.call("instance.delete", { instance_id });
		await paused(/it was evicted for second, which did not come up/);
		await it.admin.call("instance.delete", { instance_id: first.instance_id });
		assert.equal(await it.has(), "");

		it.node.telemetry([deviceReadings({ device_id: "dev_tight", memory_used_bytes: 0, memory_total_bytes: it.memory })]);
		first = await it.place("first", { gives_way: "unload" });
		await it.place("second");
		assert.equal(await it.has(), "second", "that is up");
		await told(({ removed_instances }) => removed_instances.includes(first.instance_id));
		await it.finish();
	});
	test("stay as they are for a minute after they were used, if nothing else is said", async () => {
		const it = await start();
		await it.place("first", { gives_way: "unload" });
		const { status, said } = await it.ask("second");
		assert.equal(status, 503);
		assert.match(said, /first holds memory, too, and may be evicted once nobody has used it for 60 s/);
		const { why } = await it.preview("second");
		assert.match(why.at(-1).text, /may be evicted once nobody has used it for 60 s/);
		assert.equal(await it.has(), "first");
		await it.finish();
		const refused = await run(["serve", "--give-way-after", "soon", "--data", temporary()]);
		assert.notEqual(refused.code, 0);
		assert.match(refused.stderr, /--give-way-after takes 0 to 86400 seconds, or never/);
	});
});

// Whether a process has one piece of about so many bytes.
const hasPiece = (pid, bytes) => {
	try {
		return readFileSync(`/proc/${pid}/maps`, "latin1").split("\n").some((line) => {
			const [, from, to] = /^([0-9a-f]+)-([0-9a-f]+) /.exec(line) ?? [0, "0", "0"], size = parseInt(to, 16) - parseInt(from, 16);
			return size >= bytes && size < bytes * 1.1;
		});
	} catch {
		return false; // it ended meanwhile
	}
};

// Most of this machine's free memory is asked for, for keys and values, and none of it is touched.
describe("on this machine", () => {
	test("a worker ends before the one that takes its place begins, and both answer", async () => {
		const layers = Math.min(500, Math.max(4, Math.round(0.7 * freemem() / 256e6))); // about a million tokens, of 256 bytes in each
		for (const [i, name] of ["one", "other"].entries())
			writeFileSync(join(folder, `${name}.gguf`), modelFile({ seed: i + 1, megabytes: 0.19 * layers, context: 1 << 24 }));
		const machine = await startMachine({ args: ["--headroom", "0", "--give-way-after", "0", "--log-level", "debug"] }), { server, admin } = machine;
		const ids = {};
		for (const name of ["one", "other"]) ids[name] = (await admin.call("model.add", { source: join(folder, `${name}.gguf`) })).model_id;
		await eventually(async () => (await admin.call("model.list")).models.every((one) => one.state === "ready"), "the models are ready", long);
		const pins = [{ device_id: machine.cpu.device_id, first_layer: 0, layer_count: 0 }];
		const params = (name, context_tokens) => ({ model_id: ids[name], pins, sequences: 1, context_tokens, gives_way: "unload" });
		const look = async (name, context) => (await admin.call("placement.preview", { ...params(name, context), timeout_s: 1 })).devices.find((one) => one.device_id === machine.cpu.device_id);
		const [less, twice] = [await look("one", 1024), await look("one", 2048)], free = less.free_bytes ?? less.memory_bytes;
		const context = 1024 + Math.floor((0.7 * free - less.needed_bytes) / (twice.needed_bytes - less.needed_bytes)) * 1024;
		const place = async (name) => {
			const { instance_id } = await admin.call("instance.create", params(name, context));
			return eventually(async () => {
				const one = (await admin.call("instance.list")).instances.find((each) => each.instance_id === instance_id);
				assert.notEqual(one?.state, "failed", one?.state_reason);
				return one?.state === "running" && one;
			}, `${name} is ready`, long);
		};
		const ask = async (name) => (await (await fetch(`${server.url.origin}/v1/completions`, { method: "POST", headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model: name, prompt: "abc", max_tokens: 2, ignore_eos: true }) })).json()).usage?.completion_tokens;
		const { stages: [{ kv_bytes }] } = await place("one");
		const large = () => workers(server.child.pid).filter((pid) => hasPiece(pid, kv_bytes)); // others answer questions of the node
		const [first, ...none] = large();
		assert.deepEqual([first > 0, none], [true, []]);
		assert.equal(await ask("one"), 2);
		await place("other");
		const [second, ...more] = large();
		assert.deepEqual([second > 0, second === first, alive(first), more], [true, false, false, []], "its process is gone");
		assert.deepEqual((await admin.call("instance.list")).instances.map((one) => one.model_name), ["other"]);
		assert.equal(await ask("other"), 2);
		await server.finish();
		assertContractKept();
	});
});
