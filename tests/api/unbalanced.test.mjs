// The alert about a model whose parts are unlike: raised while one of them takes far longer than the others and a new
// placement would make more tokens, silent else. The words are those of the model's page (InstanceTiming.bottleneck).
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { deviceRecord } from "./records.mjs";
import { LONG, Restarted, wordsFile } from "./restarted.mjs";
import { eventually } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

after(assertContractKept);

// Cards that have room for a part of the model each.
const cards = ["one", "two", "three"].map((name) => deviceRecord({ device_id: `dev_${name}`, hardware_key: `uuid:${name}`, name: `Card ${name}`,
	memory_pool: `uuid:${name}`, memory_bytes: 6 << 20, memory_bandwidth_bytes_per_s: 1e9 }));
const state = { running: 1, waiting: 0, pages_used: 1, pages_cached: 0, page_count: 30, prompt_tokens: 1, generated_tokens: 1, preemptions: 0 };
const ring = (...stages_ms) => {
	const compute_ms = stages_ms.reduce((sum, ms) => sum + ms);
	return { steps: 10, tokens: 10, step_ms: compute_ms, hops_ms: 0, parts: [{ waited_ms: 0, compute_ms, came_bytes: 0, stages_ms }] };
};

test("a part that slows the others down is told once, with what another place would gain, and cleared once", async () => {
	const it = new Restarted({ args: ["--headroom", "0"] });
	await it.start();
	const node = await WorkerNode.start(it.server, { Worker: ModelWorker, devices: cards });
	ModelWorker.times = { layers_s: 0.003, output_s: 0.0001, batch_s: [], prompt_row_s: 0.003 };
	const { model_id } = await it.add(wordsFile({ megabytes: 4 }));
	const { admin } = it, rule = await admin.call("alert.rule_set", { rule_id: "shards_unbalanced", for_s: 4 });
	assert.deepEqual([rule.unit, rule.threshold, rule.clear_threshold, rule.subject_type], ["percent", 25, 10, "instance"]);
	const place = async (more) => (await admin.call("instance.create", { model_id, ...more })).instance_id;
	for (const card of ["dev_one", "dev_three"]) { // so that it is known how fast each of them is
		const measured = await place({ pins: [{ device_id: card, first_layer: 0, layer_count: 11 }, { device_id: "dev_two", first_layer: 11, layer_count: 0 }] });
		await it.ready(measured);
		await admin.call("instance.delete", { instance_id: measured });
	}
	const instance_id = await place();
	const placed = await it.ready(instance_id);
	assert.equal(placed.stages.length, 2, JSON.stringify(placed.stages));
	const alerts = async () => (await admin.call("alert.list", { state: "all" })).alerts.filter((one) => one.kind === "shards_unbalanced");
	const worker = node.worker(), all_ms = 1000 * placed.stages.reduce((sum, one) => sum + one.seconds_per_token, 0);
	let timing = ring(all_ms / 2, all_ms / 2), took = all_ms;
	const feed = setInterval(() => worker.tell("instance.state", { ...state, timing, steps_took: [{ rows: 1, generating: true, alone: true, parts_ms: [took] }] }), 200);

	const even = await it.is(instance_id, "even", (one) => one.timing?.slowest.kind === "none");
	assert.deepEqual([even.offer, await alerts()], [null, []]);

	took = 10 * all_ms; // both are slow: the third card would be faster. That alone is no alert
	timing = ring(5 * all_ms, 5 * all_ms);
	await it.is(instance_id, "slow", (one) => one.stages.reduce((sum, { seconds_per_token }) => sum + seconds_per_token, 0) > all_ms * 0.008);
	assert.deepEqual(await alerts(), []);

	timing = ring(all_ms, 9 * all_ms);
	const uneven = await it.is(instance_id, "uneven", (one) => one.timing?.slowest.kind === "stage" && one.offer);
	assert.match(uneven.timing.bottleneck, /take 90 % of each token, 9\.0 times as long as the others on average; fewer layers there/);
	const [alert] = await eventually(async () => { const all = await alerts(); return all.length && all; }, "it is raised", LONG);
	const gain = 100 * (uneven.offer.tokens_per_s / uneven.offer.now_tokens_per_s - 1);
	assert.ok(gain >= 25 && Math.abs(alert.value - gain) < gain / 2, `${alert.value} of ${gain}`);
	assert.deepEqual([alert.severity, alert.subject], ["warning", { type: "instance", id: instance_id, name: "words" }]);
	assert.match(alert.message, /^words would make \d+ % more tokens at another place: layers \d+ to \d+ on Card \w+ take 90 % of each token, 9\.0 times as long/);
	assert.match(alert.hint, new RegExp(`^exogpu move ${instance_id} `));

	timing = ring(5 * all_ms, 5 * all_ms);
	await eventually(async () => (await alerts()).every((one) => one.cleared_at), "it is cleared", LONG);
	assert.deepEqual((await alerts()).map((one) => one.alert_id), [alert.alert_id]);
	clearInterval(feed);
	node.socket.close();
	await it.server.finish();
});
