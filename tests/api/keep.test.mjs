// The parts that an instance on several nodes keeps when it loses one: workers and nodes are made here, and the server
// is real. With real workers: split.test.mjs.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { deviceRecord, nodeRecord } from "./records.mjs";
import { LONG, Restarted, wordsFile } from "./restarted.mjs";
import { eventually, slow } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const LAYERS = 12, ROOM = 3.7e6; // for four or five layers, and the keys and values of one request
const WIDER = 5e6; // for ten, and not twelve

// Ends what it was asked before it answers that it stays, as real ones do.
class KeptWorker extends ModelWorker {
	run(method, params, body, id) {
		if (method === "instance.check") return { result: { parts: [], round_ms: 1, logit: 1, token: 2, expected_logit: 1, spread: 1 } };
		if (method !== "instance.adopt") return super.run(method, params, body, id);
		for (const request of [...this.requests.keys()]) this.finish(request, "cancelled");
		for (const asked of this.embeds.values()) this.refuse(asked);
		this.embeds.clear();
		return super.run("instance.load", { stages: [0] }, body, id);
	}

	tell(method, params) {
		if (method !== "instance.progress") super.tell(method, params);
	}

	adoptions() {
		return this.calls.filter((one) => one.method === "instance.adopt");
	}

	refuse(id) {
		this.send({ jsonrpc: "2.0", id, error: { code: -32053, message: "the request was cancelled", data: { reason: "unavailable", hint: null } } });
	}

	count(method) {
		return this.calls.filter((one) => one.method === method).length;
	}
}

// Over the server's socket: on a machine that is busy one that came by TLS may be taken for gone.
class KeptNode extends WorkerNode {
	receiveRequest(message) {
		if (message.method === "hop.connect") this.reply(message);
		else super.receiveRequest(message);
	}
}

describe("what is kept of an instance that loses a part", { timeout: 900000 * slow }, () => {
	const gpu = (name, memory_bytes = ROOM) => deviceRecord({ device_id: `dev_${name}`, hardware_key: `uuid:${name}`, name, memory_pool: `uuid:${name}`, memory_bytes });
	const nodes = {};
	let cluster, model;

	const come = async (name, room = ROOM) => {
		nodes[name] = await KeptNode.start(cluster.server, { Worker: KeptWorker, record: nodeRecord({ node_id: `nod_${name}`, name }),
			devices: [gpu(name, room)] });
	};
	// Its line is gone, and so are the streams of its workers.
	const leave = async (name) => {
		const node = nodes[name];
		delete nodes[name];
		for (const worker of node?.workers ?? []) worker.kill();
		node?.socket.terminate();
		await eventually(async () => (await cluster.admin.call("cluster.snapshot")).nodes.every((one) => one.node_id !== `nod_${name}` || one.state !== "online"),
			`${name} is gone`, LONG);
	};
	const names = (instance) => instance.stages.map((one) => one.device_id.slice(4));
	const ranges = (instance) => instance.stages.map((one) => [one.first_layer, one.layer_count]);
	// Placed on what there is: three parts, in some order. What each part's worker was asked is counted from there on.
	const place = async (more = {}) => {
		const { instance_id } = await cluster.admin.call("instance.create", { model_id: model.model_id, sequences: 1, ...more });
		const instance = await cluster.ready(instance_id), parts = names(instance);
		assert.equal(parts.length, 3, JSON.stringify(instance.stages));
		return { instance, parts, workers: parts.map((name) => nodes[name].worker()) };
	};
	const dies = (name) => nodes[name].notify("tenant.ended", { worker_id: nodes[name].worker().worker_id, message: "it was killed by SIGKILL" });
	const goesOn = (was) => cluster.is(was.instance.instance_id, "running again", (one) => one.state === "running" && one.recoveries === 1);
	const ended = (name, worker) => eventually(() => nodes[name].ended.some((one) => one.worker_id === worker.worker_id), `a worker of ${name} is ended`, LONG);
	const entry = (id) => eventually(async () => (await cluster.admin.call("audit.list", { action: "instance.placed_anew", limit: 20 })).entries
		.find((one) => one.target === id), "it is on record", LONG);
	// Those of these parts have the same worker, which was loaded once and told of the new placement; the others do not.
	const kept = async (was, now, ...which) => {
		assert.ok(now.epoch > was.instance.epoch);
		assert.deepEqual(ranges(now), ranges(was.instance));
		for (const [i, worker] of was.workers.entries()) {
			const node = nodes[was.parts[i]];
			assert.equal(worker.count("instance.load"), 1);
			assert.deepEqual(worker.faults, []);
			if (!which.includes(i)) continue;
			assert.ok(node.ended.every((one) => one.worker_id !== worker.worker_id), `the worker of part ${i} lives`);
			assert.deepEqual(worker.adoptions().map((one) => one.params.epoch), [now.epoch]);
			assert.equal(node.worker(), worker, "no other was started there");
		}
		assert.match(cluster.server.output.stderr, new RegExp(`${now.instance_id} of words: ${said(which.length)}`));
	};
	const said = (count) => `${count} of 3 parts keep what they have loaded`;

	before(async () => {
		cluster = new Restarted({ args: ["--headroom", "0"] });
		await cluster.start();
		for (const name of ["a", "b", "c"]) await come(name);
		model = await cluster.add(wordsFile({ megabytes: 0.19 * LAYERS }));
		assert.equal(model.architecture.layers, LAYERS);
	});
	afterEach(async () => {
		for (const { instance_id } of await cluster.list()) await cluster.admin.call("instance.delete", { instance_id });
		for (const name of ["spare", "wide", "p", "q", "r", "s"]) if (nodes[name]) await leave(name);
		for (const name of ["a", "b", "c"]) if (!nodes[name]) await come(name);
	});
	after(async () => {
		for (const node of Object.values(nodes)) node.socket.close();
		await cluster?.server?.finish();
		assertContractKept();
	});

	for (const [what, index] of [["first", 0], ["second", 1], ["last", 2]])
		test(`the ${what} part's worker dies: it alone is loaded again`, async () => {
			const was = await place();
			dies(was.parts[index]);
			const now = await goesOn(was);
			assert.deepEqual([names(now), now.state_reason, now.missing], [was.parts, null, []]);
			await kept(was, now, ...[0, 1, 2].filter((i) => i !== index));
			const next = nodes[was.parts[index]].worker();
			assert.deepEqual([next.count("instance.load"), next.count("instance.adopt")], [1, 0]);
			assert.equal(next.calls.find((one) => one.method === "instance.load").params.part.epoch, now.epoch);
			assert.equal(nodes[was.parts[2]].worker().count("instance.check"), index === 2 ? 1 : 2);
			assert.equal(await cluster.says("one two"), "one two");
		});

	test("the node of a part is gone: its layers go to another one, and the others stay", async () => {
		const was = await place();
		await come("spare");
		await leave(was.parts[1]);
		const now = await goesOn(was);
		assert.deepEqual(names(now), [was.parts[0], "spare", was.parts[2]]);
		await kept(was, now, 0, 2);
		assert.equal(nodes.spare.worker().count("instance.load"), 1);
		assert.equal((await entry(now.instance_id)).detail.kept, said(2));
		assert.equal(await cluster.says("one two"), "one two");
	});

	test("a device that is drained: its layers go to another one, and the others stay", async () => {
		const was = await place(), device_id = `dev_${was.parts[0]}`;
		await come("spare");
		await cluster.admin.call("device.drain", { device_id, drain: true });
		const now = await goesOn(was);
		assert.deepEqual(names(now), ["spare", was.parts[1], was.parts[2]]);
		await kept(was, now, 1, 2);
		await ended(was.parts[0], was.workers[0]);
		await cluster.admin.call("device.drain", { device_id, drain: false });
	});

	test("where all of it would be much faster on another device, all is loaded there", async () => {
		const was = await place();
		await come("wide", 1 << 30);
		await leave(was.parts[1]);
		const now = await goesOn(was);
		assert.deepEqual(names(now), ["wide"]);
		assert.ok(was.workers.every((one) => !one.adoptions().length));
		for (const i of [0, 2]) await ended(was.parts[i], was.workers[i]);
		assert.equal((await entry(now.instance_id)).detail.kept, undefined);
		assert.equal(await cluster.says("one two"), "one two");
	});

	test("pinned parts that live stay where they were pinned", async () => {
		const pins = ["a", "b", "c"].map((name, i) => ({ device_id: `dev_${name}`, first_layer: 4 * i, layer_count: 4 }));
		const was = await place({ pins });
		dies("b");
		await kept(was, await goesOn(was), 0, 2);
	});

	// A stream whose words the test says, of the last part's worker: what has come of it.
	const streams = async (worker, words) => {
		worker.manual = true;
		const stream = cluster.stream("one two three four");
		await eventually(() => worker.requests.size, "it is asked for", LONG);
		const [request] = worker.requests.keys();
		for (const word of words) worker.say(request, word);
		await eventually(() => stream.text === words.join(""), "the first words have come", LONG);
		return { stream, request };
	};
	const asked = (worker, n) => eventually(() => worker.count("generate.start") === n && worker.calls.findLast((one) => one.method === "generate.start"),
		"it is asked to go on", LONG);

	// One of several parts on devices that hold two of them, but not the model, and there are no others.
	const lose = async (count, lost) => {
		const on = ["p", "q", "r", "s"].slice(0, count), each = LAYERS / count;
		for (const name of ["a", "b", "c"]) await leave(name);
		for (const name of on) await come(name, WIDER);
		const pins = on.map((name, i) => ({ device_id: `dev_${name}`, first_layer: each * i, layer_count: each }));
		const { instance_id } = await cluster.admin.call("instance.create", { model_id: model.model_id, sequences: 1, pins });
		const instance = await cluster.ready(instance_id), workers = on.map((name) => nodes[name].worker());
		const { stream } = await streams(workers[count - 1], ["one", " two"]);
		await leave(on[lost]);
		return { on, each, instance, workers, stream, now: await goesOn({ instance }) };
	};

	for (const [what, count, lost] of [["first", 3, 0], ["second", 3, 1], ["last", 3, 2], ["second", 4, 1], ["third", 4, 2]])
		test(`the ${what} of ${count} parts is lost, and the one beside it takes its layers: who keeps theirs is kept`, async () => {
			const { on, each, instance, workers, stream, now } = await lose(count, lost);
			const left = names(now), old = left.map((name) => on.indexOf(name));
			assert.deepEqual(old, on.map((_, i) => i).filter((i) => i !== lost), JSON.stringify(now.stages));
			assert.ok(now.epoch > instance.epoch);
			const stays = now.stages.map((one, i) => one.first_layer === each * old[i] && one.layer_count === each);
			assert.deepEqual([...now.stages.map((one) => one.layer_count)].sort(), [...Array(count - 2).fill(each), 2 * each].sort());
			for (const [i, name] of left.entries()) {
				const worker = workers[old[i]];
				if (!stays[i]) {
					await ended(name, worker);
					assert.deepEqual([nodes[name].worker().count("instance.load"), worker.adoptions(), nodes[name].worker().adoptions()], [1, [], []]);
					continue;
				}
				assert.equal(nodes[name].worker(), worker, `no other was started on ${name}`);
				assert.deepEqual(worker.adoptions().map((one) => one.params),
					[{ epoch: now.epoch, part: { index: i, count: count - 1, lanes: count - 1 } }]);
				assert.deepEqual([worker.count("instance.load"), worker.faults], [1, []]);
			}
			const said = `${count - 2} of ${count - 1} parts keep what they have loaded`;
			assert.equal((await entry(now.instance_id)).detail.kept, said);
			assert.ok(cluster.server.output.stderr.includes(`${now.instance_id} of words: ${said}`));
			const generator = nodes[left.at(-1)].worker();
			if (generator === workers[count - 1]) { // else it says the rest by itself
				const { params } = await asked(generator, 2);
				assert.equal(params.generated.length, 2);
				for (const word of [" three", " four"]) generator.say(params.request, word);
				generator.finish(params.request, "stop");
			}
			await stream.done;
			assert.deepEqual([stream.text, stream.error, stream.whole], ["one two three four", undefined, true]);
			generator.manual = false;
			assert.equal(await cluster.says("one two"), "one two");
		});

	for (const [what, index] of [["is kept", 1], ["is lost", 2]])
		test(`a stream goes on where its client has got to when the part that generates ${what}`, async () => {
			const was = await place(), last = was.workers[2];
			const { stream, request } = await streams(last, ["one", " two"]);
			last.answers["instance.adopt"] = (...asked) => {
				last.say(request, " never"); // what it says until it has answered is of the epoch before
				return last.run("instance.adopt", ...asked);
			};
			dies(was.parts[index]);
			const now = await goesOn(was), generator = nodes[was.parts[2]].worker();
			const { params } = await asked(generator, index === 2 ? 1 : 2);
			assert.equal(params.generated.length, 2, "no token is lost, and none that came after the loss counts");
			if (index !== 2) { // else it has, by itself
				for (const word of [" three", " four"]) generator.say(params.request, word);
				generator.finish(params.request, "stop");
			}
			await stream.done;
			assert.deepEqual([stream.text, stream.error, stream.whole], ["one two three four", undefined, true]);
			await kept(was, now, ...[0, 1, 2].filter((i) => i !== index));
		});

	test("what is embedded by a part that is kept is asked for once more", async () => {
		const was = await place(), last = was.workers[2];
		last.manual = true;
		const { token, port } = cluster.server;
		const answer = fetch(`http://127.0.0.1:${port}/v1/embeddings`, { method: "POST", headers: { authorization: `Bearer ${token}` },
			body: JSON.stringify({ model: "words", input: "one" }) });
		await eventually(() => last.embeds.size, "it is asked for", LONG);
		last.manual = false;
		dies(was.parts[0]);
		const now = await goesOn(was), { status } = await answer;
		assert.equal(status, 200);
		assert.equal(last.count("generate.embed"), 2);
		await kept(was, now, 1, 2);
	});

	const error = (code, reason) => ({ error: { code, message: "no", data: { reason, hint: null } } });
	const memory = { weights_bytes: 1000000, kv_bytes: 200000, workspace_bytes: 30001, host_bytes: 0 };
	for (const [what, answer] of [
		["refuses", () => error(-32009, "conflict")],
		["has lost its device", () => error(-32006, "device_lost")],
		["has loaded something else", () => ({ result: { memory: [memory], load_ms: 12.5, loaded_bytes: 1000000, chat_template: null, vocabulary: 300, embedding: 4 } })],
		["dies", (worker, node) => void node.notify("tenant.ended", { worker_id: worker.worker_id, message: "it was killed by SIGKILL" })],
	])
		test(`a part that is to be kept ${what}: all of it is loaded anew`, async () => {
			const was = await place(), [first, , last] = was.workers;
			const { stream } = await streams(last, ["one"]);
			first.answers["instance.adopt"] = () => answer(first, nodes[was.parts[0]]);
			dies(was.parts[1]);
			const now = await goesOn(was), generator = nodes[was.parts[2]].worker();
			assert.equal(now.epoch, was.instance.epoch + 2);
			assert.deepEqual(was.workers.map((one) => one.adoptions().length), [1, 0, 1]);
			await ended(was.parts[2], last);
			assert.notEqual(generator, last);
			for (const name of names(now)) assert.deepEqual([nodes[name].worker().count("instance.load"), nodes[name].worker().adoptions()], [1, []]);
			await stream.done;
			assert.deepEqual([stream.text, stream.error, stream.whole], ["one two three four", undefined, true]);
		});

	test("parts that do not work together when one of them is new: all of it is loaded anew", async () => {
		const was = await place(), last = was.workers[2];
		last.answers["instance.check"] = () => error(-32053, "unavailable");
		dies(was.parts[0]);
		const now = await goesOn(was);
		assert.equal(now.epoch, was.instance.epoch + 2);
		assert.deepEqual(was.workers.map((one) => one.adoptions().length), [0, 1, 1]);
		assert.equal(await cluster.says("one two"), "one two");
	});

	test("without a place for the rest it holds nobody's memory, and all of it is loaded when there is one", async () => {
		const was = await place(), device_id = `dev_${was.parts[1]}`;
		await cluster.admin.call("device.drain", { device_id, drain: true });
		dies(was.parts[1]);
		for (const i of [0, 2]) await ended(was.parts[i], was.workers[i]);
		const paused = await cluster.is(was.instance.instance_id, "paused", (one) => one.state === "paused" && one.progress === null);
		assert.match(paused.state_reason, /waits for a place/);
		const { allocation_id } = await eventually(() => cluster.admin.call("memory.allocate", { device_id: `dev_${was.parts[0]}`, bytes: ROOM / 10 * 9 }), "its memory is free", LONG);
		await cluster.admin.call("memory.free", { allocation_id });
		await cluster.admin.call("device.drain", { device_id, drain: false });
		const now = await goesOn(was);
		assert.ok(was.workers.every((one) => !one.adoptions().length));
		assert.equal(names(now).length, 3);
	});
});
