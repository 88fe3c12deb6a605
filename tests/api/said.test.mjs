// What a sentence consists of, beside it (Said of schema/api.json): in errors, in what is told of nodes and devices, and
// after a restart. That every Said gives its sentence again is checked of all that comes in any suite (client.mjs).
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { deviceRecord, nodeRecord } from "./records.mjs";
import { printed, saidFault } from "./said.mjs";
import { startServer } from "./server.mjs";

const name = "50 % of %s, {1} is offline: <b>%n";

describe("sentences with what they consist of", () => {
	let server, admin, node;
	const device = async () => (await admin.call("cluster.snapshot")).devices.find((one) => one.device_id === "dev_gpu");
	const enter = async () => {
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["inventory"] });
	};

	before(async () => {
		server = await startServer();
		await enter();
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("an error has those of its message and its hint", async () => {
		const gone = await admin.refused("node.remove", { node_id: "nod_none" }, "not_found");
		assert.deepEqual([gone.data.message_said, gone.data.hint_said],
			[{ key: "there is no node %.64s", args: ["nod_none"] }, { key: "exogpu nodes lists them", args: [] }]);
		const stranger = await Client.open(server);
		const { data } = await stranger.refused("device.drain", { device_id: "x", drain: true }, "unauthenticated");
		assert.deepEqual(data.message_said, { key: "log in first", args: [] });
		await stranger.close();
	});

	test("an error of /v1 has those of its message", async () => {
		const ask = async (token) => {
			const response = await server.http("/v1/chat/completions", {
				method: "POST",
				headers: { "content-type": "application/json", ...(token ? { authorization: `Bearer ${token}` } : {}) },
				body: JSON.stringify({ model: "none", messages: [{ role: "user", content: "hi" }] }),
			});
			return (await response.json()).error;
		};
		const { message, message_said } = await ask(server.token);
		assert.match(message, /^there is no model none/);
		assert.equal(printed(message_said), message);
		assert.ok(JSON.stringify(message_said).includes("there is no model %.128s"));
		assert.equal("message_said" in await ask(), false, "a stranger's has none");
	});

	test("what a node says is an arg, whatever it looks like", async () => {
		const hostile = { backends: [{ backend: "cuda", enabled: false, reason: name, reason_said: { key: "done", args: [] } }] };
		node = await FakeNode.connect(server, nodeRecord({ name, ...hostile }));
		await node.devices([deviceRecord()]);
		const { backends } = (await admin.call("cluster.snapshot")).nodes.find((one) => one.node_id === "nod_test");
		assert.equal(backends[0].reason, name);
		assert.notEqual(backends[0].reason_said?.key, "done", "a node tells no keys");
	});

	test("the state of a device, and the event of its change", async () => {
		await admin.call("device.drain", { device_id: "dev_gpu", drain: true });
		const { data } = await admin.event((one) => one.topic === "inventory" && one.data.change.summary === "is draining");
		assert.deepEqual(data.change.summary_said, { key: "is draining", args: [] });
		const { state, state_reason, state_reason_said } = await device();
		assert.deepEqual([state, state_reason_said.key], ["draining", state_reason]);
		await admin.call("device.drain", { device_id: "dev_gpu", drain: false });
		const again = await device();
		assert.equal("state_reason_said" in again, again.state_reason !== null, "a sentence that is gone leaves none of it");
	});

	test("a stored sentence is known after a restart", async () => {
		const from = admin.events.length;
		await node.close();
		const { data } = await admin.event((one) => one.topic === "inventory" && one.data.change.kind === "node.offline", "it is offline", from);
		assert.equal(data.change.summary_said.key, "offline: %s");
		await admin.close();
		await server.stop();
		server = await startServer({ data: server.data });
		await enter();
		const { nodes, recent } = await admin.call("cluster.snapshot");
		assert.deepEqual(recent.find((one) => one.kind === "node.offline").summary_said, data.change.summary_said);
		assert.equal(nodes.find((one) => one.node_id === "nod_test").state_reason_said.key, "not connected since the server started");
	});

	test("the check of every suite sees what is untrue", () => {
		assert.equal(printed({ key: "at %.0f %%: %s", args: ["7", { key: "is %s", args: ["%s"] }] }), "at 7 %: is %s");
		const truth = { data: { reason: "is on", reason_said: { key: "is %s", args: ["on"] } } };
		assert.equal(saidFault(truth), undefined);
		for (const args of [["off"], [], ["on", "on"]]) assert.match(saidFault({ data: { ...truth.data, reason_said: { key: "is %s", args } } }), /beside "is on"/);
		assert.equal(saidFault({ error: { message: "is on", data: { message_said: truth.data.reason_said } } }), undefined);
	});
});
