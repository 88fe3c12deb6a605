// A change of an instance is in the audit log as soon as a client sees it: the server is killed right after the event,
// and the next one has the entry. With a node and workers made here.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { prepare, start } from "./giving.mjs";
import { Restarted, wordsFile } from "./restarted.mjs";
import { eventually, slow, startServer } from "./server.mjs";
import { WorkerNode, cpu, gpu } from "./workers.mjs";

const LONG = 60000 * slow;

describe("a server that is killed right after a change is seen", () => {
	let cluster, node, model;
	const join = async (devices = [cpu, gpu]) => {
		node = await WorkerNode.start(cluster.server, { Worker: ModelWorker, devices });
	};
	const create = async (more = {}) => (await cluster.admin.call("instance.create", { model_id: model.model_id, ...more })).instance_id;
	const instancesOf = (event) => event.topic === "placement" ? event.data.instances : [];

	// Once an event shows the instance as `seen` says, the server is killed; the next one has this entry.
	const killedAfter = async (id, action, seen) => {
		const { events } = cluster.admin;
		const at = () => events.findIndex((one) => instancesOf(one).some((each) => each.instance_id === id && seen(each)));
		await eventually(() => at() >= 0, `an event shows ${action}`, LONG);
		const before = events.slice(0, at());
		await cluster.again("SIGKILL");
		const { entries } = await cluster.admin.call("audit.list", { action, limit: 50 });
		const entry = entries.find((one) => one.target === id);
		assert.ok(entry, `${action} of ${id} is not in the log: ${JSON.stringify(entries)}`);
		assert.ok(before.some((one) => one.topic === "audit" && one.data.action === action && one.data.target === id),
			"the entry is told before the change");
		return entry;
	};
	const listen = () => cluster.admin.call("events.subscribe", { topics: ["placement", "audit"] });
	const failsToLoad = () => {
		node.open = (message) => {
			node.open = undefined;
			node.receiveRequest(message);
			node.worker().answers["instance.load"] = () => ({ error: { code: -32005, message: "3 GiB are missing",
				data: { reason: "out_of_memory", hint: null } } });
		};
	};

	before(async () => {
		cluster = new Restarted({});
		await cluster.start();
		await join();
		model = await cluster.add(wordsFile({ megabytes: 0.8 }));
	});
	after(async () => {
		node?.socket.close();
		await cluster?.server?.finish();
		assertContractKept();
	});

	test("placed anew after a loss", async () => {
		await listen();
		const id = await create();
		await cluster.ready(id);
		node.worker().kill();
		const entry = await killedAfter(id, "instance.placed_anew", (one) => one.state === "running" && one.recoveries === 1);
		assert.deepEqual([entry.actor, entry.outcome, entry.detail.model], ["server", "ok", "words"]);
		assert.equal((await cluster.list())[0].recoveries, 1, "the row is of the same transaction");
		await cluster.admin.call("instance.delete", { instance_id: id });
		await join();
	});

	test("moved because somebody wanted it so", async () => {
		await listen();
		const id = await create();
		await cluster.ready(id);
		await cluster.admin.call("instance.move", { instance_id: id, format: "Q8_0" });
		const entry = await killedAfter(id, "instance.moved", (one) => one.state === "running" && one.moves === 1);
		assert.equal(entry.outcome, "ok");
		assert.equal((await cluster.list())[0].moves, 1);
		await cluster.admin.call("instance.delete", { instance_id: id });
		await join();
	});

	test("failed", async () => {
		await listen();
		failsToLoad();
		const entry = await killedAfter(await create(), "instance.failed", (one) => one.state === "failed");
		assert.deepEqual([entry.actor, entry.outcome], ["server", "out_of_memory"]);
		assert.deepEqual(await cluster.list(), [], "the row is gone by the same transaction");
		await join();
	});

	test("was evicted for another", async () => {
		await prepare();
		const it = await start({ args: ["--give-way-after", "0"] });
		await it.admin.call("events.subscribe", { topics: ["placement"] });
		const { instance_id } = await it.place("first", { gives_way: "unload" });
		it.opens(() => null); // it loads for ever
		await it.create("second");
		await eventually(() => it.admin.events.some((event) => instancesOf(event).some((one) => one.instance_id === instance_id &&
			/evicted for second/.test(one.state_reason))), "an event shows it", LONG);
		await it.server.stop("SIGKILL");
		const next = await startServer({ data: it.server.data });
		const { entries } = await (await Client.login(next)).call("audit.list", { action: "instance.gave_way", limit: 50 });
		assert.deepEqual(entries.map((one) => [one.target, one.detail.to]), [[instance_id, "second"]]);
		it.beats.forEach(clearInterval);
		it.node.socket.close();
		await next.finish();
	});

	test("failed, as a question that waited for it was answered", async () => {
		failsToLoad();
		const { status, json } = await cluster.ask("one two"); // loads the model
		await cluster.again("SIGKILL");
		assert.equal(status, 503);
		assert.match(json.error.message, /3 GiB are missing/);
		const { entries } = await cluster.admin.call("audit.list", { action: "instance.failed", limit: 50 });
		assert.equal(entries.length, 2, "this one, and that of the test before");
		await join();
	});
});
