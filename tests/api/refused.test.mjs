// An instance that is placed anew where a device has no room for what it is reckoned to have: because what the instance
// held there does not come back, or because the device refuses more than its readings say. Played nodes and workers.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { deviceReadings, deviceRecord } from "./records.mjs";
import { eventually, patience, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const long = 12 * patience, sum = (list, of) => list.reduce((all, one) => all + of(one), 0);

describe("a device without the room that was reckoned", { timeout: 20 * long }, () => {
	let server, admin, params, whole, layers, node, path;
	const used = {}; // of each device, as its readings say
	const first = async () => (await admin.call("instance.list")).instances[0];
	const is = (what, matches) => {
		let last;
		return eventually(async () => (last = await first()) && matches(last) && last, what, long).catch((error) => {
			throw new Error(`${error.message}; it is ${JSON.stringify(last)}; the server said: ${server.output.stderr.slice(-2000)}`);
		});
	};
	const tell = () => node.telemetry(Object.entries(used).map(([device_id, memory_used_bytes]) =>
		deviceReadings({ device_id, memory_used_bytes, memory_total_bytes: node.has.find((one) => one.device_id === device_id).memory_bytes })));
	const device = (name, memory_bytes, memory_bandwidth_bytes_per_s) => deviceRecord({ device_id: `dev_${name}`, hardware_key: `uuid:${name}`, name,
		memory_pool: `uuid:${name}`, memory_bytes: Math.floor(memory_bytes), memory_bandwidth_bytes_per_s });
	const load = (worker, { stages }) => ({ result: { ...worker.run("instance.load", { stages }).result,
		memory: stages.map(({ layer_count }) => ({ weights_bytes: Math.floor(whole * layer_count / layers), kv_bytes: 0, workspace_bytes: 0, host_bytes: 0 })) } });
	// From now on workers take no more layers on the fast device than these, and what each was asked for there is kept.
	const asked = [];
	const allow = (most) => {
		asked.length = 0;
		node.Worker = class extends ModelWorker {
			constructor(...args) {
				super(...args);
				this.answers["instance.load"] = (params) => {
					const there = sum(params.stages, (one) => one.hardware_key === "uuid:fast" ? one.layer_count : 0);
					asked.push(there);
					return there <= most ? load(this, params) : { error: { code: -32005, message: "36864000 bytes; 100 are available",
						data: { reason: "out_of_memory", hint: null } } };
				};
			}
		};
	};

	before(async () => {
		path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 24, context: 256 }));
	});
	// The fast device holds the model alone; the other one only most of it.
	beforeEach(async () => {
		server = await startServer({ args: ["--headroom", "0"] });
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker, devices: [device("fast", 2 ** 30, 4e11)] });
		await admin.call("model.add", { source: path });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready", long);
		params = { model_id: model.model_id, context_tokens: 64, sequences: 1 };
		layers = model.architecture.layers;
		whole = (await admin.call("placement.preview", params)).devices[0].needed_bytes;
		node.has = [device("fast", 1.3 * whole, 4e11), device("slow", 0.85 * whole, 4e10)];
		Object.assign(used, { dev_fast: 0, dev_slow: 0 });
		await node.devices(node.has);
		tell();
		node.beat = setInterval(tell, 500);
		allow(layers);
		await admin.call("instance.create", params);
		const { stages } = await is("it is ready", (one) => one.state === "running");
		assert.deepEqual(stages.map((one) => one.device_id), ["dev_fast"]);
	});
	afterEach(async () => {
		clearInterval(node?.beat);
		node?.socket.close();
		await server?.finish();
		for (const worker of node?.workers ?? []) assert.deepEqual(worker.faults, [], "what the server asks of a worker keeps to the contract");
	});
	after(assertContractKept);

	test("what it held there and is not free any more is not counted on: it goes where there is room", async () => {
		allow(layers / 2);
		used.dev_fast = Math.floor(0.7 * whole); // another program has taken it
		tell();
		node.worker().kill();
		const { stages } = await is("it goes on", (one) => one.state === "running" && one.recoveries === 1);
		assert.deepEqual(stages.map((one) => one.device_id).sort(), ["dev_fast", "dev_slow"]);
		assert.ok(asked.length <= 3, `it was loaded ${asked.length} times: ${asked}`);
	});

	test("what a device has refused is not asked of it again, though it reads as free", async () => {
		allow(layers / 2);
		node.worker().kill();
		const { stages } = await is("it goes on", (one) => one.state === "running" && one.recoveries === 1);
		assert.deepEqual(stages.map((one) => one.device_id).sort(), ["dev_fast", "dev_slow"]);
		assert.ok(asked.length > 1 && asked.every((one, i) => !i || one < asked[i - 1]), `fewer each time: ${asked}`);
	});
});
