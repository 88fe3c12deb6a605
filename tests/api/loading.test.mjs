// How far a model is while it is loaded: in all, and on each of the devices that it is spread over.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { DistantNode } from "./distant.mjs";
import { long, prepare, start, tight } from "./giving.mjs";
import { deviceRecord } from "./records.mjs";
import { Restarted, wordsFile } from "./restarted.mjs";
import { eventually, run } from "./server.mjs";

before(prepare);

test("each device of a model that is loaded onto two tells how far it is, in the API, in events and to the command line", async () => {
	const second = (memory_bytes) => ({ ...tight(memory_bytes), device_id: "dev_second", hardware_key: "uuid:second", name: "Second", memory_pool: "uuid:second" });
	const scout = await start(), half = Math.floor(scout.memory / 1.5 * 0.75);
	await scout.finish();
	const it = await start({ models: 0.75, beside: [second(half)] });
	it.opens(() => null); // it loads for ever, and says how far it is
	const id = await it.create("first", { sequences: 8 }); // as the scout asked
	const one = await it.is(id, "it is loading", (now) => now.state === "starting" && it.node.worker()?.calls.some(({ method }) => method === "instance.load"));
	assert.equal(one.stages.length, 2, JSON.stringify(one.stages));
	const [a, b] = one.stages.map(({ weights_bytes }) => weights_bytes), total = a + b;
	await it.admin.call("events.subscribe", { topics: ["placement"] });
	const told = async (loaded_bytes) => {
		it.node.worker().tell("instance.progress", { loaded_bytes, total_bytes: total });
		const { progress } = await it.is(id, `${loaded_bytes} bytes are loaded`, (now) => now.progress?.loaded_bytes === loaded_bytes);
		assert.equal(progress.parts.length, 1);
		const { devices } = progress.parts[0];
		assert.deepEqual(devices.map(({ device_id }) => device_id), one.stages.map(({ device_id }) => device_id));
		return devices.map(({ loaded_bytes: loaded, total_bytes }) => [loaded, total_bytes]);
	};
	assert.deepEqual(await told(0), [[0, a], [0, b]]);
	assert.deepEqual(await told(a / 2), [[a / 2, a], [0, b]]);
	assert.deepEqual(await told(a + Math.floor(b / 4)), [[a, a], [Math.floor(b / 4), b]]);
	const { stdout } = await run(["instances", "--data", it.server.data]);
	assert.match(stdout, new RegExp(`starting ${Math.floor(100 * (a + Math.floor(b / 4)) / total)} %`));
	const [first, next] = one.stages.map(({ device_id }) => device_id === "dev_tight" ? "Tight" : "Second");
	assert.match(stdout, new RegExp(`first: ${first} 100 %, ${next} 2[45] %`));
	await told(Number.MAX_SAFE_INTEGER);
	assert.match((await run(["instances", "--data", it.server.data])).stdout, /starting 100 %/);
	await it.admin.event(({ topic, data }) => topic === "placement" && data.instances.some(({ progress }) => progress?.parts[0].devices.length === 2), "an event with both");
	await it.admin.call("instance.delete", { instance_id: id });
	await eventually(async () => !(await it.instances()).length, "it is gone", long);
	await it.finish();
});

// A node elsewhere that is asked for a part of the model's file, and says how far it is when it is told to.
class FetchingNode extends DistantNode {
	receiveRequest(message) {
		if (message.method === "model.fetch") this.fetch = message;
		else super.receiveRequest(message);
	}
}

test("what a node elsewhere has of the file counts once, when it is loaded; one that waits for its node has no progress, and says what it lacks", async () => {
	process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
	const cluster = new Restarted({ host: "0.0.0.0" });
	await cluster.start();
	const far = await FetchingNode.join(cluster, "nod_far", deviceRecord({ device_id: "dev_far", hardware_key: "uuid:far", name: "Far", memory_pool: "uuid:far", memory_bytes: 1 << 30 }));
	await DistantNode.join(cluster, "nod_other"); // which does not come
	const node = await FetchingNode.come(cluster, far), { model_id, architecture: { layers } } = await cluster.add(wordsFile({ megabytes: 0.8 }));
	node.open = (message) => {
		node.open = undefined;
		node.receiveRequest(message);
		node.worker().answers["instance.load"] = () => null; // it loads until it is told to be ready
	};
	const { instance_id } = await cluster.admin.call("instance.create", { model_id, pins: [{ device_id: "dev_far", first_layer: 0, layer_count: 0 }] });
	await eventually(() => node.fetch, "it is asked for its part of the file", long);
	const needs = node.fetch.params.ranges.reduce((sum, [, bytes]) => sum + bytes, 0), half = Math.floor(needs / 2), quarter = Math.floor(needs / 4);
	const progress = (loaded_bytes, total_bytes) => cluster.is(instance_id, `at ${loaded_bytes} of ${total_bytes}`, ({ progress: now }) =>
		now?.loaded_bytes === loaded_bytes && now.total_bytes === total_bytes && now.parts[0].devices.every((one) => Math.abs(one.loaded_bytes - loaded_bytes) <= 1));
	const says = (fetched_bytes, reused_bytes, total_bytes = needs) => node.notify("model.fetching", { model_id, fetched_bytes, reused_bytes, total_bytes });
	const { stages: [{ weights_bytes }] } = await cluster.is(instance_id, "fetching", (one) => one.progress);
	await progress(0, needs + weights_bytes);
	says(quarter, quarter);
	await progress(0, needs - quarter + weights_bytes);
	says(half + quarter, half);
	await progress(quarter, needs - half + weights_bytes);
	says(needs, 0, needs + 1); // is of something else
	says(Number.MAX_SAFE_INTEGER, half);
	await progress(needs - half, needs - half + weights_bytes);
	node.reply(node.fetch, { fetched_bytes: 0, reused_bytes: needs }); // as it turns out: all of it
	await progress(0, weights_bytes);
	const worker = await eventually(() => node.worker()?.calls.some(({ method }) => method === "instance.load") && node.worker(), "it loads", long);
	worker.send({ jsonrpc: "2.0", method: "instance.progress", params: { loaded_bytes: 1000, total_bytes: weights_bytes } });
	await progress(1000, weights_bytes);
	delete worker.answers["instance.load"];
	worker.answer(worker.calls.find(({ method }) => method === "instance.load"));
	await cluster.ready(instance_id);

	node.socket.terminate();
	const paused = await cluster.is(instance_id, "cut off", (one) => one.state === "paused" && one.missing.length);
	assert.equal(paused.progress, null);
	const { stdout, stderr } = await run(["instances", "--data", cluster.data]);
	assert.match(stdout, /words +paused +\S/, stderr);
	assert.doesNotMatch(stdout, /paused \d/);
	assert.match(stdout, new RegExp(`words: missing: layers 0 to ${layers - 1}, which Far of nod_far held`));
	await cluster.admin.call("instance.delete", { instance_id });
	await cluster.server.finish();
	assertContractKept();
});
