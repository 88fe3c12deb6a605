// Stages in slices over the equal GPUs of a machine, by a node and workers that only say they have some.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { deviceRecord, passed } from "./records.mjs";
import { eventually, run, slow, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const linked = [0, 1].map((n) => deviceRecord({ device_id: `dev_${n}`, hardware_key: `uuid:${n}`, name: `GPU ${n}`, memory_pool: `uuid:${n}`,
	memory_bytes: 1 << 30, backend: "cuda", peers: [`uuid:${1 - n}`],
	apis: [{ backend: "cuda", api_version: null, driver_version: null, verification: passed }] }));

describe("slices", () => {
	let server, admin, node, model;
	const list = async () => (await admin.call("instance.list")).instances;
	const ready = (id, more = () => true) => eventually(async () =>
		(await list()).find((one) => one.instance_id === id && one.state === "running" && more(one)), "it is ready", 60000 * slow);
	const layers = (stages) => stages.map((one) => [one.device_id, one.first_layer, one.layer_count]);
	const pins = ["dev_1", "dev_0"].map((device_id) => ({ device_id, first_layer: 0, layer_count: 0 }));

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker, devices: linked });
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.8, inner: 192 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
	});
	after(async () => {
		ModelWorker.times = undefined;
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("each GPU has a slice of every layer where that is asked for, and is told so", async () => {
		const count = model.architecture.layers, model_id = model.model_id;
		const preview = (more) => admin.call("placement.preview", { model_id, ...more });
		assert.equal((await preview()).stages.length, 1); // layers as small as these gain nothing
		assert.deepEqual(layers((await preview({ strategy: "tensor" })).stages), [["dev_0", 0, count], ["dev_1", 0, count]]);
		assert.deepEqual(layers((await preview({ pins })).stages), [["dev_1", 0, count], ["dev_0", 0, count]]);
		await admin.refused("placement.preview", { model_id, pins: [pins[0], pins[0]] }, "unavailable");
		await admin.refused("placement.preview", { model_id, pins, strategy: "pipeline" }, "unavailable");
		await admin.refused("placement.preview", { model_id, pins: [pins[0]], strategy: "tensor" }, "unavailable");

		const placed = await run(["place", model.name, "--strategy", "tensor", "--data", server.data]);
		assert.equal(placed.code, 0, placed.stderr);
		const { instance_id, strategy, stages } = await ready((await list())[0].instance_id);
		assert.deepEqual([strategy, layers(stages)], ["tensor", [["dev_0", 0, count], ["dev_1", 0, count]]]);
		const load = node.worker().calls.find((one) => one.method === "instance.load").params;
		assert.deepEqual(load.stages, [0, 1].map((slice) => ({ hardware_key: `uuid:${slice}`, first_layer: 0, layer_count: count, host_layers: 0,
			slices: 2, slice })));

		// Without one of them there is no group: it goes on as it can.
		await admin.call("device.drain", { device_id: "dev_1", drain: true });
		await admin.call("instance.delete", { instance_id });
		await admin.refused("placement.preview", { model_id, strategy: "tensor" }, "unavailable");
		await admin.call("device.drain", { device_id: "dev_1", drain: false });
	});

	test("where layers take long, both are taken without being asked for", async () => {
		const one = { model_id: model.model_id, strategy: "pipeline" };
		ModelWorker.times = { layers_s: 0.04, output_s: 0.0001, batch_s: [], prompt_row_s: 0.04 };
		const { instance_id } = await admin.call("instance.create", one);
		assert.equal((await ready(instance_id)).stages.length, 1);
		await admin.call("instance.delete", { instance_id });
		const { stages, why, predicted } = await admin.call("placement.preview", { model_id: model.model_id });
		const alone = await admin.call("placement.preview", one);
		assert.equal(stages.length, 2);
		assert.match(why.map(({ text }) => text).join("\n"), /computes a slice of every layer/);
		const gain = alone.predicted.seconds_per_token / predicted.seconds_per_token;
		assert.ok(gain > 1.5 && gain < 2, `${gain} times as fast`);
	});

	test("not those whose copies were refused the direct way, but where it is asked for", async () => {
		const placed = async (more) => (await admin.call("placement.preview", { model_id: model.model_id, ...more }));
		const directly = await placed();
		assert.equal(directly.stages.length, 2);
		const bytes = 1000, [from, to] = await Promise.all(["dev_0", "dev_1"].map(async (device_id) =>
			(await admin.call("memory.allocate", { device_id, bytes })).allocation_id));
		const copy = (path) => {
			for (const worker of node.workers) worker.answers["memory.copy"] = () => ({ result: { bytes, path } });
			return admin.call("memory.copy", { from, from_offset: 0, to, to_offset: 0, bytes });
		};
		await copy("staged");
		const { stages, devices } = await placed();
		assert.equal(stages.length, 1);
		assert.deepEqual(devices.map(({ score }) => score.bandwidth), [0.5, 0.5]);
		const asked = await placed({ strategy: "tensor" });
		assert.deepEqual(asked.stages.map(({ device_id }) => device_id), ["dev_0", "dev_1"]);
		assert.ok(asked.predicted.seconds_per_token > directly.predicted.seconds_per_token, "it costs more");
		await copy("peer"); // it is well again
		assert.equal((await placed()).stages.length, 2);
	});
});
