// How far a model is while it is loaded: in all, and on each of the devices that it is spread over.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { long, prepare, start, tight } from "./giving.mjs";
import { eventually, run } from "./server.mjs";

before(prepare);

test("each device of a model that is loaded onto two tells how far it is, in the API, in events and to the command line", async () => {
	const second = (memory_bytes) => ({ ...tight(memory_bytes), device_id: "dev_second", hardware_key: "uuid:second", name: "Second", memory_pool: "uuid:second" });
	const scout = await start(), half = Math.floor(scout.memory / 1.5 * 0.75);
	await scout.finish();
	const it = await start({ models: 0.75, beside: [second(half)] });
	it.opens(() => null); // it loads for ever, and says how far it is
	const id = await it.create("first");
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
