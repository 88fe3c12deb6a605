// Instances outlive the server: they are restored after a kill and after a stop, and no client waits for an answer that
// never comes. First with a node and workers made here, then with real ones.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { renameSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { LONG, Restarted, RestartedWithNodes, holding, wordsFile } from "./restarted.mjs";
import { eventually, slow, within } from "./server.mjs";
import { WorkerNode, cpu, gpu, small } from "./workers.mjs";

describe("instances over a restart", () => {
	let cluster, node, model;
	const join_ = async (devices = [cpu, gpu, small]) => {
		node = await WorkerNode.start(cluster.server, { Worker: ModelWorker, devices });
	};
	const create = async (more = {}) => {
		const { instance_id } = await cluster.admin.call("instance.create", { model_id: model.model_id, ...more });
		return cluster.ready(instance_id);
	};
	const loaded = () => node.worker().calls.find((one) => one.method === "instance.load").params;
	const clear = async () => {
		for (const { instance_id } of await cluster.list()) await cluster.admin.call("instance.delete", { instance_id });
	};

	before(async () => {
		cluster = new Restarted({});
		await cluster.start();
		await join_();
		model = await cluster.add(wordsFile({ megabytes: 0.8 }));
	});
	after(async () => {
		node?.socket.close();
		await cluster?.server?.finish();
		assertContractKept();
	});

	for (const signal of ["SIGKILL", "SIGTERM"])
		test(`after ${signal} it is there under its id, waits for its device, and answers as before`, async () => {
			const before = await create({ context_tokens: 128, sequences: 2, objective: "throughput" });
			const [layers] = loaded().stages;
			assert.equal(await cluster.says("one two"), "one two");
			await cluster.stored();
			await cluster.again(signal);
			const paused = await cluster.is(before.instance_id, "paused", (one) => one.state === "paused");
			for (const key of ["instance_id", "model_id", "model_name", "created_at", "format", "context_tokens", "sequences", "strategy", "chat"])
				assert.deepEqual(paused[key], before[key], key);
			assert.match(paused.state_reason, /the server was restarted: it waits for GPU/);
			assert.deepEqual([paused.stages, paused.missing], [[], [{ device_id: "dev_gpu", first_layer: 0,
				layer_count: model.architecture.layers, to_device_id: null }]]);
			await cluster.admin.refused("model.remove", { model_id: model.model_id }, "conflict");
			const waits = cluster.says("three four");
			await join_();
			const now = await cluster.ready(before.instance_id);
			assert.deepEqual([now.stages[0].device_id, now.missing, now.state_reason, now.recoveries, now.moves], ["dev_gpu", [], null, 1, 0]);
			assert.ok(now.epoch > before.epoch, `${now.epoch} after ${before.epoch}`);
			assert.equal(await waits, "three four");
			const load = loaded();
			assert.deepEqual([load.context_tokens, load.sequences, load.stages], [128, 2, [layers]]);
			const [told] = await eventually(async () => {
				const { entries } = await cluster.admin.call("audit.list", { action: "instance.placed_anew", limit: 1 });
				return entries[0]?.target === before.instance_id && entries;
			}, "it is on record", 15000 * slow);
			assert.match(told.detail.reason, /the server was restarted/);
			await clear();
		});

	test("a stop tells open streams and requests that wait to try again, and a client that does gets its answer", async () => {
		const { instance_id } = await create();
		node.worker().manual = true;
		const stream = cluster.stream("one two"), waits = cluster.ask("three");
		await eventually(() => node.worker().requests.size === 2, "both are asked");
		node.worker().say([...node.worker().requests].find(([, { params }]) => params.prompt.text === "one two")[0], "one");
		await stream.begun();
		const openai = new OpenAI({ apiKey: cluster.server.token, baseURL: `${cluster.server.url}v1`, maxRetries: 100 });
		const retried = openai.completions.create({ model: "words", prompt: "five six" });
		await eventually(() => node.worker().requests.size === 3, "it is asked, too");
		await cluster.server.stop();
		await stream.done;
		assert.deepEqual([stream.status, stream.text, stream.whole, stream.broken], [200, "one", false, undefined]);
		assert.deepEqual([stream.error?.type, stream.error?.code], ["server_error", "unavailable"]);
		assert.match(stream.error.message, /^the server restarts; try again/);
		const { status, retry, json, failed } = await waits;
		assert.deepEqual([status, retry, failed], [503, "2", undefined]);
		assert.match(json.error.message, /^the server restarts; try again/);
		await cluster.start();
		await join_();
		await cluster.ready(instance_id);
		assert.equal((await within(retried, "the client has its answer", LONG)).choices[0].text, "five six");
		await clear();
	});

	test("how long nobody has used it is remembered over a stop; after a kill it counts as used when it is ready", async () => {
		const { instance_id } = await create();
		assert.equal(await cluster.says("one two"), "one two");
		for (const signal of ["SIGTERM", "SIGKILL"]) {
			await eventually(async () => { // the answer arrives a little before the server counts its request as ended
				const [{ idle_since }] = await cluster.list();
				return idle_since && Date.now() - Date.parse(idle_since) > 100;
			}, "nobody uses it");
			const before = Date.now();
			await cluster.again(signal);
			await join_();
			const { idle_since } = await cluster.ready(instance_id);
			assert.equal(Date.parse(idle_since) <= before, signal === "SIGTERM", `${signal}: ${idle_since}, of ${new Date(before).toISOString()}`);
		}
		await clear();
	});

	test("what it was told since it was created counts: its format, its pins; one that was deleted stays so", async () => {
		const gone = await create(), kept = await create({ pins: [{ device_id: "dev_cpu", first_layer: 0, layer_count: 0 }] });
		await cluster.admin.call("instance.move", { instance_id: kept.instance_id, format: "Q8_0" });
		const moved = await cluster.is(kept.instance_id, "moved", (one) => one.moves === 1 && one.state === "running");
		await cluster.admin.call("instance.delete", { instance_id: gone.instance_id });
		await cluster.again("SIGKILL");
		assert.deepEqual((await cluster.list()).map((one) => [one.instance_id, one.format, one.moves]), [[kept.instance_id, "Q8_0", 1]]);
		await join_();
		const now = await cluster.ready(kept.instance_id);
		assert.deepEqual([now.format, now.stages[0].device_id, loaded().format], ["Q8_0", "dev_cpu", "Q8_0"]);
		assert.ok(now.epoch > moved.epoch);
		await clear();
		await cluster.again("SIGKILL");
		assert.deepEqual(await cluster.list(), []);
		await join_();
	});

	test("one that failed is not tried again after a restart", async () => {
		node.open = (message) => {
			node.open = undefined;
			node.receiveRequest(message);
			node.worker().answers["instance.load"] = () => ({ error: { code: -32005, message: "3 GiB are missing",
				data: { reason: "out_of_memory", hint: null } } });
		};
		const { instance_id } = await cluster.admin.call("instance.create", { model_id: model.model_id });
		await cluster.is(instance_id, "failed", (one) => one.state === "failed");
		await cluster.again("SIGTERM");
		assert.deepEqual(await cluster.list(), []);
		await join_();
	});

	test("a device that does not come back: another is taken after a while, or it says what it waits for", async () => {
		const { instance_id, stages } = await create();
		assert.equal(stages[0].device_id, "dev_gpu");
		cluster.options.args = ["--limit", "pause_ms=3000"];
		await cluster.again("SIGKILL");
		assert.match((await cluster.is(instance_id, "without a place", (one) => /^it waits for a place/.test(one.state_reason))).state, /paused/);
		const { status, retry, json } = await within(cluster.ask("one"), "it is answered", LONG);
		assert.deepEqual([status, retry], [503, "2"]);
		assert.match(json.error.message, /is paused.*try again later/);
		await join_([cpu]);
		assert.equal((await cluster.ready(instance_id)).stages[0].device_id, "dev_cpu");
		assert.equal(await cluster.says("one two"), "one two");
		cluster.options.args = [];
		await cluster.admin.call("instance.delete", { instance_id });
		await cluster.again("SIGTERM");
		await join_();
	});

	test("a model whose file is gone, and that is removed then: the instance says so, and is no more at the next start", async () => {
		const lost = await cluster.add(wordsFile({ seed: 2 }));
		const { instance_id } = await cluster.admin.call("instance.create", { model_id: lost.model_id });
		await cluster.ready(instance_id);
		await cluster.server.stop("SIGKILL");
		renameSync(lost.source, `${lost.source}.gone`);
		await cluster.start();
		await join_();
		const waits = await cluster.is(instance_id, "waiting for its file", (one) => /cannot be used: the file is gone/.test(one.state_reason));
		assert.equal(waits.state, "paused");
		await cluster.admin.call("model.remove", { model_id: lost.model_id });
		const failed = await cluster.is(instance_id, "failed", (one) => one.state === "failed");
		assert.match(failed.state_reason, /the model .* was removed/);
		await cluster.again("SIGTERM"); // that it failed is told before it is on disk
		assert.deepEqual(await cluster.list(), []);
		await join_();
	});

	test("a row that somebody else has written is refused, named, and found; what is only shown may be anything", async () => {
		const { instance_id } = await create(), other = await create();
		await cluster.server.stop("SIGKILL");
		execFileSync("python3", ["-c", "import json, sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n" +
			"wanted, = db.execute('SELECT wanted FROM instances WHERE instance_id = ?', (sys.argv[2],)).fetchone()\n" +
			"db.execute('UPDATE instances SET wanted = ? WHERE instance_id = ?', (json.dumps({**json.loads(wanted), 'sequences': 1}), sys.argv[2]))\n" +
			"db.execute('UPDATE instances SET last = ? WHERE instance_id = ?', ('[{', sys.argv[3]))\ndb.commit()\n",
		join(cluster.data, "state.db"), instance_id, other.instance_id]);
		await cluster.start();
		await join_();
		assert.equal((await cluster.ready(other.instance_id)).stages.length, 1, "what is only for those who look may be anything");
		assert.deepEqual((await cluster.list()).map((one) => one.instance_id), [other.instance_id]);
		const { ok, verdict, findings } = await cluster.admin.call("audit.verify");
		assert.deepEqual([ok, verdict], [false, "modified"]);
		assert.ok(findings.some(({ text }) => text.startsWith(`instance ${instance_id} is not what its newest entry says`)), JSON.stringify(findings));
		const { entries } = await cluster.admin.call("audit.list", { action: "state.refused" });
		assert.deepEqual(entries.map(({ outcome, detail }) => [outcome, detail]), [["forbidden", { refused: 1, missing: 0 }]]);
		await clear();
		await cluster.again("SIGKILL");
		assert.deepEqual(await cluster.list(), []);
		await join_();
	});
});

describe("a real node over a restart of its server", { timeout: 600000 * slow }, () => {
	const all = new RestartedWithNodes();
	let cluster, nodes, proxies, model_id, instance_id, answer;
	const prompt = "a b c", length = { max_tokens: 30 };

	before(async () => {
		({ cluster, proxies, nodes, model_id } = await all.start(undefined, undefined, { EXOGPU_TEST_NODE_SILENCE_S: "20" })); // one is away for so long, and none for want of a processor
		const pins = nodes.map(({ device }, i) => ({ device_id: device.device_id, first_layer: 4 * i, layer_count: i ? 0 : 4 }));
		({ instance_id } = await cluster.admin.call("instance.create", { model_id, context_tokens: 4096, sequences: 4, pins }));
		await cluster.ready(instance_id);
		answer = await cluster.says(prompt, length);
		assert.ok(answer.length > 10, answer);
	});
	after(() => all.finish());

	test("the server is killed while it streams, started again, and answers the same with both nodes' parts", async (context) => {
		const before = (await cluster.list())[0], old = nodes.map(holding);
		await cluster.stored();
		const stream = cluster.stream(prompt, { max_tokens: 2000 });
		await stream.begun();
		await cluster.server.stop("SIGKILL");
		await stream.done;
		assert.ok(stream.broken && !stream.whole, "its client sees that the connection broke");
		const from = performance.now();
		await cluster.start();
		const waits = cluster.says(prompt, length);
		const now = await cluster.ready(instance_id);
		context.diagnostic(`ready again ${((performance.now() - from) / 1000).toFixed(1)} s after the start`);
		assert.equal(await waits, answer);
		assert.deepEqual([now.stages.map((one) => [one.device_id, one.first_layer, one.layer_count, one.weights_bytes]), now.recoveries],
			[before.stages.map((one) => [one.device_id, one.first_layer, one.layer_count, one.weights_bytes]), 0]);
		assert.ok(now.epoch > before.epoch);
		assert.deepEqual(nodes.map(holding), old, "the workers are those of before");
	});

	test("the server is stopped while it streams: it says so, and answers the same once it is started again", async () => {
		const old = nodes.map(holding), stream = cluster.stream(prompt, { max_tokens: 2000 });
		await stream.begun();
		await cluster.server.finish();
		await stream.done;
		assert.deepEqual([stream.whole, stream.broken], [false, undefined]);
		assert.match(stream.error.message, /^the server restarts; try again/);
		await cluster.start();
		await cluster.ready(instance_id);
		assert.equal(await cluster.says(prompt, length), answer);
		assert.equal((await cluster.list())[0].recoveries, 0);
		assert.deepEqual(nodes.map(holding), old, "the workers are those of before");
	});

	test("a node that is given up, with no room elsewhere, is back with what it had: nothing is loaded anew", async (context) => {
		const { device } = nodes[1], elsewhere = nodes[0].device.device_id;
		await cluster.admin.call("instance.delete", { instance_id });
		const alone = (await cluster.admin.call("instance.create", { model_id, context_tokens: 4096, sequences: 4,
			pins: [{ device_id: device.device_id, first_layer: 0, layer_count: 0 }] })).instance_id;
		const before = await cluster.ready(alone), was = holding(nodes[1]);
		await cluster.admin.call("device.drain", { device_id: elsewhere, drain: true });
		const whole = await cluster.says(prompt, { max_tokens: 1000 });
		const stream = cluster.stream(prompt, { max_tokens: 1000 });
		await stream.begun();
		const cut = performance.now();
		proxies[1].cut("up", "down");
		const paused = await cluster.is(alone, "paused", (one) => one.state === "paused");
		assert.match(paused.state_reason, new RegExp(`${device.name.replace(/[()]/g, ".")} of \\S+ is cut off`)); // machines may be alike
		assert.deepEqual(paused.missing.map((one) => [one.device_id, one.to_device_id]), [[device.device_id, null]], "nothing else has it yet");
		proxies[1].mend();
		const now = await cluster.ready(alone);
		context.diagnostic(`ready again ${((performance.now() - cut) / 1000).toFixed(1)} s after the cut`);
		assert.deepEqual([now.epoch, now.recoveries, holding(nodes[1])], [before.epoch, 0, was]);
		await within(stream.done, "the stream ends", LONG);
		assert.deepEqual([stream.error, stream.broken, stream.whole, stream.text], [undefined, undefined, true, whole]);
		await cluster.admin.call("device.drain", { device_id: elsewhere, drain: false });
	});
});

describe("the server's own node over its kill", { timeout: 300000 * slow }, () => {
	test("the model is loaded again on this machine's CPU", async () => {
		const cluster = new Restarted({ localNode: true });
		await cluster.start();
		const device = () => eventually(async () => (await cluster.admin.call("cluster.snapshot")).devices.find((one) =>
			one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the CPU can be used", LONG);
		const { device_id } = await device(), { model_id } = await cluster.add(wordsFile({ megabytes: 0.8 }));
		const { instance_id } = await cluster.admin.call("instance.create", { model_id,
			pins: [{ device_id, first_layer: 0, layer_count: 0 }] });
		await cluster.ready(instance_id);
		const answer = await cluster.says("a b c", { max_tokens: 20 });
		await cluster.killed();
		await cluster.start();
		assert.equal((await cluster.ready(instance_id)).stages[0].device_id, device_id);
		assert.equal(await cluster.says("a b c", { max_tokens: 20 }), answer);
		await cluster.server.finish();
		assertContractKept();
	});
});
