// Times measured by workers and by running steps: the predictions from them, how long they count, and faster places
// found with them. Nodes and workers are made here.
import assert from "node:assert/strict";
import { after, afterEach, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { deviceRecord } from "./records.mjs";
import { LONG, Restarted, wordsFile } from "./restarted.mjs";
import { eventually, run } from "./server.mjs";
import { WorkerNode, cpu, gpu, small, twins } from "./workers.mjs";

const path = wordsFile({ megabytes: 0.8 });
const fast = deviceRecord({ device_id: "dev_fast", hardware_key: "uuid:fast", name: "Fast", memory_pool: "uuid:fast", memory_bytes: 1 << 30 });
const quick = { layers_s: 0.0004, output_s: 0.0001, batch_s: [], prompt_row_s: 0.0004 };
const slower = { layers_s: 0.004, output_s: 0.001, batch_s: [], prompt_row_s: 0.004 };
const near = (a, b, share = 0.05) => Math.abs(a / b - 1) < share;
const on = (device_id) => ({ pins: [{ device_id, first_layer: 0, layer_count: 0 }] });
const says = ({ why }) => why.map((one) => one.text).join("\n");

// A server, a node with these devices, and a model.
async function start(devices, options = {}) {
	const it = new Restarted(options);
	await it.start();
	it.node = await WorkerNode.start(it.server, { Worker: ModelWorker, devices });
	const { model_id } = await it.add(path);
	it.create = async (more = {}) => (await it.admin.call("instance.create", { model_id, ...more })).instance_id;
	it.loaded = async (more) => it.ready(await it.create(more));
	it.stop = (instance_id) => it.admin.call("instance.delete", { instance_id });
	it.drain = (drain) => it.admin.call("device.drain", { device_id: "dev_fast", drain });
	it.preview = (more = {}) => it.admin.call("placement.preview", { model_id, ...more });
	// Once it has moved for the nth time.
	it.moved = (id, n) => it.is(id, `moved ${n} times`, (one) => one.state === "running" && one.moves === n);
	it.finish = async () => {
		it.node.socket.close();
		await it.server.finish();
	};
	return it;
}

const state = (more) => ({ running: 0, waiting: 0, pages_used: 0, pages_cached: 0, page_count: 30, prompt_tokens: 1, generated_tokens: 1, preemptions: 0, ...more });

describe("what layers take", () => {
	afterEach(() => { ModelWorker.times = undefined; });
	after(assertContractKept);

	test("counts from when they are timed on, and a device that makes it faster is offered and taken", async () => {
		const it = await start([cpu, gpu, small, ...twins]);
		assert.match(says(await it.preview()), /a layer on GPU takes [\d.]+ ms: estimated from its memory's bandwidth/);
		await it.node.devices([cpu, gpu, small, ...twins, fast]);
		ModelWorker.times = quick;
		await it.stop((await it.loaded(on("dev_fast"))).instance_id);
		await it.drain(true);
		ModelWorker.times = slower;
		const { instance_id, stages, offer, ties } = await it.loaded();
		assert.deepEqual([stages.map((one) => one.device_id), stages[0].seconds_per_token, offer, ties], [["dev_gpu"], 0.005, null, 0]);
		const after = await it.preview(on("dev_gpu"));
		assert.match(says(after), /a layer on GPU takes [\d.]+ ms: measured just now/);
		assert.ok(near(after.predicted.prompt_tokens_per_s, 1 / 0.004, 0.001), `${after.predicted.prompt_tokens_per_s} of a prompt`);
		assert.equal((await it.preview(on("dev_cpu"))).predicted.prompt_tokens_per_s, null);
		assert.ok(near(after.predicted.seconds_per_token, 0.005), `${after.predicted.seconds_per_token} after 0.005`);
		const first = it.node.worker();
		first.tell("instance.state", state({ ties: 3 }));
		await it.is(instance_id, "told of with its ties", (one) => one.ties === 3);

		await it.drain(false); // it is back
		const { offer: offered, stages: [{ device_id }] } = await it.is(instance_id, "offered a place", (one) => one.offer);
		assert.equal(offered.device_ids.length, 1);
		const [to] = offered.device_ids; // or a twin, which by its bandwidth is as fast
		assert.ok(["dev_fast", "dev_twin1", "dev_twin2"].includes(to), to);
		assert.ok(offered.tokens_per_s > 1.25 * offered.now_tokens_per_s, JSON.stringify(offered));
		assert.ok(near(offered.now_tokens_per_s, 1 / 0.005), JSON.stringify(offered));
		assert.equal(device_id, "dev_gpu"); // it is not taken by itself
		const table = await run(["instances", "--data", it.data]);
		assert.match(table.stdout, /OFFERED[^]*\d\.\d x/, table.stdout);
		ModelWorker.times = quick;
		const moved = await run(["move", instance_id, "--data", it.data]);
		assert.equal(moved.code, 0, moved.stderr);
		const there = await it.moved(instance_id, 1);
		assert.equal(there.recoveries, 0, "nothing was lost");
		const told = await eventually(async () => (await it.admin.call("audit.list", { action: "instance.moved", limit: 1 })).entries[0], "it is on record", LONG);
		assert.deepEqual([told.actor, told.target], ["server", instance_id]);
		assert.match(told.detail.reason, /it moves to .*, where it is faster/);
		assert.deepEqual([there.stages[0].device_id, there.offer, there.ties, there.stages[0].seconds_per_token], [to, null, 3, 0.0005]);
		assert.notEqual(it.node.worker(), first);
		await it.stop(instance_id);
		const pinned = await it.loaded(on("dev_gpu")); // which was slower: both runs count, half each
		assert.ok(near(pinned.stages[0].seconds_per_token, (0.005 + 0.0005) / 2, 0.01), JSON.stringify(pinned.stages));
		await it.admin.refused("instance.move", { instance_id: pinned.instance_id }, "conflict");
		await it.admin.refused("instance.move", { instance_id: "ins_none" }, "not_found");
		await it.finish();
	});

	test("takes a model to the device that makes it faster by itself, with --take-better", async () => {
		const it = await start([gpu, fast], { args: ["--take-better"] });
		ModelWorker.times = quick;
		await it.stop((await it.loaded(on("dev_fast"))).instance_id);
		await it.drain(true);
		ModelWorker.times = slower;
		const { instance_id, stages } = await it.loaded();
		assert.equal(stages[0].device_id, "dev_gpu");
		ModelWorker.times = quick;
		const worker = it.node.worker();
		await it.drain(false);
		const there = await it.moved(instance_id, 1);
		assert.deepEqual([there.stages[0].device_id, there.recoveries, there.epoch, there.offer], ["dev_fast", 0, 2, null]);
		await it.node.endOf(worker);
		await it.finish();
	});

	test("is put together of what instances on a device measure and tell, of nodes before batch_s too; the log says why one is ended", async () => {
		const it = await start([gpu]);
		const prompts = async () => (await it.preview()).predicted.prompt_tokens_per_s;
		ModelWorker.times = { layers_s: 0.004, output_s: 0.001, batch_share: 0.3 };
		const first = await it.loaded(), worker = it.node.worker();
		assert.deepEqual([first.stages[0].seconds_per_token, await prompts()], [0.005, null]);
		ModelWorker.times = { layers_s: 0.004, output_s: 0.001, batch_s: [0.006], prompt_row_s: 0.004 };
		await it.loaded();
		assert.ok(near(await prompts(), 1 / 0.004, 0.001), "of a prompt by the second");
		worker.tell("instance.state", state({ steps_took: [{ rows: 1, generating: true, alone: true, parts_ms: [2.5] }] })); // what steps really take
		await it.is(first.instance_id, "corrected", (one) => one.stages[0].seconds_per_token < 0.0049);
		assert.ok(near(await prompts(), 1 / 0.004, 0.001), "still by the second");
		ModelWorker.times = { output_s: 0.001 };
		const { state_reason } = await it.is(await it.create(), "failed", (one) => one.state === "failed");
		assert.match(state_reason, /broke the protocol/);
		await eventually(() => /breaks the protocol and is ended: result\.times/.test(it.server.output.stderr), "the log says why");
		await it.finish();
	});

	test("is corrected by what steps of several requests and of prompts take, and single rows do not undo that", async () => {
		const it = await start([gpu]);
		ModelWorker.times = { layers_s: 0.004, output_s: 0.001, batch_s: [0.006, 0.008, 0.012, 0.02, 0.036], prompt_row_s: 0.004 };
		await it.loaded(on("dev_gpu"));
		const worker = it.node.worker();
		const predicted = async (sequences) => (await it.preview({ ...on("dev_gpu"), sequences, objective: "throughput" })).predicted;
		const took = (rows, ms, more = {}) => worker.tell("instance.state", state({ steps_took: [{ rows, generating: true, alone: true, parts_ms: [ms], ...more }] }));
		const until = async (what, sequences, name, wanted, ...told) => {
			for (let i = 0; i < 24; i++) took(...told);
			await eventually(async () => near((await predicted(sequences))[name], wanted), what);
		};
		assert.ok(near((await predicted(8)).together_tokens_per_s, 8 / 0.015), "as it was timed");
		await until("of 8 as they ran", 8, "together_tokens_per_s", 8 / 0.03, 8, 30);
		assert.ok(near((await predicted(2)).together_tokens_per_s, 2 / 0.0075), "of 2 as it was timed still");
		await until("of 2 and of 4 by what 3 took", 3, "together_tokens_per_s", 3 / 0.011, 3, 11, { alone: false });
		await until("of one as it ran", 1, "seconds_per_token", 0.004, 1, 4);
		assert.ok(near((await predicted(8)).together_tokens_per_s, 8 / 0.03), "of 8 as they ran still");
		await until("of a prompt as it ran", 1, "prompt_tokens_per_s", 125, 128, 1024, { generating: false });
		for (const [rows, ms] of [[8, 0], [8, 1e9], [1e6, 30], [33, 1e-4]]) took(rows, ms); // is not believed, or changes nothing
		took(1, 9, { parts_ms: [9, 9] });
		await until("the last is taken", 1, "prompt_tokens_per_s", 250, 128, 512, { generating: false });
		assert.ok(near((await predicted(8)).together_tokens_per_s, 8 / 0.03), "nothing else has changed it");
		await it.finish();
	});

	test("is told as timed on a busy device where its runs differed, and counts for little then beside another timing", async () => {
		const it = await start([gpu]);
		const timed = async (layers_s, spread) => {
			ModelWorker.times = { layers_s, output_s: 0, batch_s: [], spread };
			const { instance_id, stages: [stage] } = await it.loaded(on("dev_gpu"));
			await it.stop(instance_id);
			return { seconds: stage.seconds_per_token, why: says(await it.preview(on("dev_gpu"))) };
		};
		const busy = await timed(0.04, 4), idle = await timed(0.004, 1), again = await timed(0.04, 4);
		assert.match(busy.why, /measured just now, when it was busy/);
		assert.ok(idle.seconds < 0.007, `${idle.seconds}: nearly as it was measured now`);
		assert.match(idle.why, /measured just now(?!, when)/);
		assert.ok(again.seconds < 0.01, `${again.seconds}: nearly as it was measured before`);
		await it.finish();
	});
});
