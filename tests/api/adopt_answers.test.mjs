// Workers that outlive their server, made here, of nodes that joined by TLS: what they, and others in their name, say to the
// next server. With real ones: adopt.test.mjs.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { smallDisk } from "./disk.mjs";
import { DistantNode, DistantWorker } from "./distant.mjs";
import { deviceRecord } from "./records.mjs";
import { LONG, Restarted, wordsFile } from "./restarted.mjs";
import { eventually, slow, within } from "./server.mjs";
import { cpu } from "./workers.mjs";

describe("what is answered to a server that takes workers up", { timeout: 900000 * slow }, () => {
	const gpu = (name) => deviceRecord({ device_id: `dev_${name}`, hardware_key: `uuid:${name}`, name, memory_pool: `uuid:${name}`, memory_bytes: 1 << 30 });
	let cluster, far, other, node, model;

	const pin = (device_id, first_layer = 0, layer_count = 0) => ({ device_id, first_layer, layer_count });
	const create = async (...pins) => {
		const { instance_id } = await cluster.admin.call("instance.create", { model_id: model.model_id, pins: pins.length ? pins : [pin("dev_far")] });
		const instance = await cluster.ready(instance_id);
		await cluster.stored();
		return { instance, opened: node.worker().opened, all: instance.stages.map(({ device_id }) =>
			node.workers.findLast((one) => (one.backend === "cpu") === (device_id === "dev_cpu")).opened) };
	};
	// The server is killed and starts again; the node comes back with the worker, of which nobody has said a word yet.
	const again = async ({ all }) => {
		await cluster.again("SIGKILL");
		node = await DistantNode.come(cluster, far, all.map((one) => one.worker_id));
	};
	const stream = (opened, answer, of = far) => {
		const worker = new DistantWorker({ port: cluster.server.port, cert: of.cert, key: of.key }, opened);
		if (answer) worker.answers["instance.adopt"] = answer;
		return worker;
	};
	const found = async ({ instance: was }) => {
		const now = await cluster.ready(was.instance_id);
		assert.deepEqual([now.recoveries, now.stages.map((one) => one.device_id)], [was.recoveries, was.stages.map((one) => one.device_id)], "nothing was loaded");
		assert.equal(await cluster.says("one two"), "one two");
		assert.equal(node.workers.length, 0, "no worker was asked for");
	};
	const anew = async ({ instance: was }) => {
		const now = await cluster.is(was.instance_id, "loaded anew", (one) => one.state === "running" && one.recoveries === was.recoveries + 1);
		assert.ok(now.epoch > was.epoch);
		assert.equal(await cluster.says("one two"), "one two");
		assert.equal(node.workers.length, was.stages.length, "each part by one worker");
	};
	const clear = async () => {
		for (const { instance_id } of await cluster.list()) await cluster.admin.call("instance.delete", { instance_id });
	};

	before(async () => {
		process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
		cluster = new Restarted({ host: "0.0.0.0" });
		await cluster.start();
		far = await DistantNode.join(cluster, "nod_far", gpu("far"), cpu);
		other = await DistantNode.join(cluster, "nod_other", gpu("other"));
		node = await DistantNode.come(cluster, far);
		model = await cluster.add(wordsFile({ megabytes: 0.8 }));
	});
	after(async () => {
		node?.socket.close();
		await cluster?.server?.finish();
		assertContractKept();
	});

	test("two streams say that they are the same worker: the later one is, and what the other answers counts for nothing", async () => {
		const was = await create();
		await again(was);
		const first = stream(was.opened, () => null);
		await eventually(() => first.adoptions().length, "the first is asked", LONG);
		const second = stream(was.opened, () => null);
		await eventually(() => second.adoptions().length, "the second is asked", LONG);
		await within(first.closed, "the first is let go", LONG);
		const third = stream(was.opened);
		await found(was);
		assert.ok(third.calls.some((one) => one.method === "generate.start"));
		assert.deepEqual([first, second].map((one) => one.calls.length), [1, 1]);
		await clear();
	});

	test("another node says that the worker is its own: it is refused, and the node that has it is waited for", async () => {
		const was = await create();
		await again(was);
		const liar = await DistantNode.come(cluster, other, [was.opened.worker_id]);
		await eventually(() => liar.ended.some((one) => one.worker_id === was.opened.worker_id), "it is told to end it", LONG);
		const stolen = stream(was.opened, undefined, other);
		await within(stolen.closed, "its stream is refused", LONG);
		const guessed = stream({ ...was.opened, key: "0".repeat(was.opened.key.length) });
		await within(guessed.closed, "one without the key is, too", LONG);
		assert.deepEqual([...stolen.calls, ...guessed.calls], []);
		stream(was.opened);
		await found(was);
		liar.socket.close();
		await clear();
	});

	test("a node that was cut off while it was asked comes back, and is asked once more", async () => {
		const was = await create();
		await again(was);
		const first = stream(was.opened, () => null);
		await eventually(() => first.adoptions().length, "it is asked", LONG);
		node.socket.terminate();
		first.kill();
		node = await DistantNode.come(cluster, far, [was.opened.worker_id]);
		const second = stream(was.opened);
		await found(was);
		assert.ok(second.adoptions()[0].params.epoch >= first.adoptions()[0].params.epoch);
		await clear();
	});

	const told = { weights_bytes: 1000000, kv_bytes: 200000, workspace_bytes: 30000, host_bytes: 0 };
	const answer = (more) => ({ result: { memory: [told], load_ms: 12.5, loaded_bytes: 1000000, chat_template: "chatml", vocabulary: 300, embedding: 4, ...more } });
	const error = (code, reason) => ({ error: { code, message: "no", data: { reason, hint: null } } });
	for (const [name, said] of [
		["memory of no stage", answer({ memory: [] })],
		["memory of a stage too many", answer({ memory: [told, told] })],
		["a byte more", answer({ memory: [{ ...told, host_bytes: 1 }] })],
		["bytes below nothing", answer({ memory: [{ ...told, kv_bytes: -1 }] })],
		["bytes in words", answer({ memory: [{ ...told, kv_bytes: "200000" }] })],
		["a list of nothing", answer({ memory: [null] })],
		["what nobody asked for", answer({ more: 1 })],
		["no result", { result: null }],
		["times that are none", answer({ times: [{ layers_s: -1, output_s: null }] })],
		["a template without end", answer({ chat_template: "x".repeat(33) })],
		["that it is at an older epoch", error(-32009, "conflict")],
		["that it is out of memory", error(-32005, "out_of_memory")],
		["that its device is lost", error(-32006, "device_lost")],
	])
		test(`a worker answers ${name}: the model is loaded anew, by another one`, async () => {
			const was = await create();
			await again(was);
			const wrong = stream(was.opened, () => said);
			await anew(was);
			assert.equal(wrong.adoptions().length, 1);
			await within(wrong.closed, "its stream is closed", LONG);
			await clear();
		});

	const halves = () => [pin("dev_far", 0, 2), pin("dev_cpu", 2)];
	for (const [name, pins] of [["the worker", () => []], ["one of two workers", halves]])
		test(`${name} does not answer: the model is loaded anew before its requests have waited too long`, async () => {
			const was = await create(...pins());
			cluster.options.args = ["--limit", `pause_ms=${8000 * slow}`];
			await again(was);
			const streams = was.all.map((opened, i) => stream(opened, i + 1 === was.all.length ? () => null : undefined));
			await eventually(() => streams.every((one) => one.adoptions().length), "they are asked", LONG);
			const waits = cluster.ask("three four");
			await anew(was);
			const { status, json } = await waits;
			assert.deepEqual([status, json?.choices?.[0].text], [200, "three four"]);
			cluster.options.args = [];
			await clear();
		});

	test("one of two workers comes by another stream when the other one has answered: both are asked once more", async () => {
		const was = await create(...halves());
		await again(was);
		const first = stream(was.all[0]), silent = stream(was.all[1], () => null);
		await eventually(() => first.adoptions().length && silent.adoptions().length, "both are asked", LONG);
		const second = stream(was.all[1]);
		await found(was);
		assert.deepEqual([first, silent, second].map((one) => one.adoptions().length), [2, 1, 1]);
		assert.ok(second.calls.some((one) => one.method === "instance.check"));
		await clear();
	});
});

test("the disk is full when an instance is ready: what it has is not stored, so it is loaded anew by the next server", { timeout: 300000 * slow }, async (context) => {
	const disk = smallDisk(6000);
	if (!disk) return context.skip("no file system can be mounted here");
	process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
	const cluster = new Restarted({ host: "0.0.0.0" });
	cluster.data = disk.data;
	await cluster.start();
	const device = deviceRecord({ device_id: "dev_far", hardware_key: "uuid:far", name: "far", memory_pool: "uuid:far", memory_bytes: 1 << 30 });
	const far = await DistantNode.join(cluster, "nod_far", device);
	let node = await DistantNode.come(cluster, far), loads;
	const { model_id } = await cluster.add(wordsFile({ megabytes: 0.8 }));
	node.open = (message) => {
		node.open = undefined;
		node.receiveRequest(message);
		node.worker().answers["instance.load"] = (params, body, id) => { loads = { params, id }; return null; };
	};
	const { instance_id } = await cluster.admin.call("instance.create", { model_id });
	await eventually(() => loads, "it loads", LONG);
	disk.fill();
	await eventually(() => cluster.admin.call("token.create", { name: "x", scopes: ["observe"] }).then(() => disk.fill(), (error) => error.reason === "unavailable"), "full", LONG);
	const worker = node.worker();
	worker.send({ jsonrpc: "2.0", id: loads.id, ...worker.run("instance.load", loads.params) });
	const was = await cluster.ready(instance_id);
	await cluster.server.stop("SIGKILL");
	disk.empty();
	await cluster.start();
	node = await DistantNode.come(cluster, far, [worker.worker_id]);
	await eventually(() => node.ended.some((one) => one.worker_id === worker.worker_id), "the worker that nobody knows is ended", LONG);
	const now = await cluster.is(instance_id, "loaded anew", (one) => one.state === "running" && one.recoveries === 1);
	assert.ok(now.epoch > was.epoch);
	assert.equal(await cluster.says("one two"), "one two");
	node.socket.close();
	await cluster.server.finish();
	assertContractKept();
});
