// Devices of one machine that copy to each other directly: as their drivers say, and as copies show.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { eventually } from "./server.mjs";
import { admin, allocate, node, start, startNode, stop, tenant } from "./stage.mjs";

describe("copies between devices of one machine", () => {
	before(start);
	after(stop);

	const device = async (id) => (await admin.call("cluster.snapshot")).devices.find((one) => one.device_id === id);
	const pairs = async () => (await admin.call("topology.summary")).peer_to_peer_pairs;
	const told = (kind) => admin.events.filter(({ data }) => data.change?.kind === kind).map(({ data }) => data);

	test("that are refused the direct way re-class the link and are told of, once", async () => {
		await admin.call("events.subscribe", { topics: ["inventory"] });
		const client = await tenant(), size = 1000;
		const from = await allocate(client, size, "dev_twin1"), to = await allocate(client, size, "dev_twin2");
		assert.deepEqual((await device("dev_twin1")).peers, [{ device_id: "dev_twin2", class: "peer" }]);
		assert.deepEqual((await device("dev_gpu")).peers, []);
		assert.equal(await pairs(), 1);
		const worker = node.worker(), copy = (one, other, bytes = size) =>
			client.call("memory.copy", { from: one, from_offset: 0, to: other, to_offset: 0, bytes });
		const by = (path) => (worker.answers["memory.copy"] = ({ bytes }) => ({ result: { bytes, path } }));
		by("staged");
		assert.deepEqual(await copy(from, to, 0), { bytes: 0, path: "staged" });
		assert.equal(await pairs(), 1, "nothing was copied");
		assert.deepEqual(await copy(from, to), { bytes: size, path: "staged" });
		await copy(from, to);
		await eventually(() => told("link.degraded").length, "it is told");
		const [{ change, device: pushed }] = told("link.degraded");
		assert.equal(change.level, "attention");
		assert.equal(change.device_id, "dev_twin1");
		assert.match(change.summary, /^its copies to Twin 2 \(dev_twin2\) go by way of the host's memory/);
		assert.deepEqual(pushed.peers, [{ device_id: "dev_twin2", class: "staged" }]);
		assert.deepEqual((await device("dev_twin1")).peers, pushed.peers);
		assert.deepEqual((await device("dev_twin2")).peers, [{ device_id: "dev_twin1", class: "peer" }], "the other way was not tried");
		assert.equal(await pairs(), 0, "a pair goes both ways");
		by("peer");
		await copy(from, to);
		await eventually(() => told("link.recovered").length, "that it is well again is told");
		assert.equal(await pairs(), 1);
		by("staged");
		await copy(to, from);
		await eventually(() => told("link.degraded").length > 1, "the other way is told of");
		assert.equal(await pairs(), 0);
		assert.equal(told("link.degraded").length, 2);
		const recent = (await admin.call("cluster.snapshot")).recent.filter((one) => one.kind.startsWith("link."));
		assert.deepEqual(recent.map((one) => [one.kind, one.device_id]),
			[["link.degraded", "dev_twin2"], ["link.recovered", "dev_twin1"], ["link.degraded", "dev_twin1"]]);
		await client.close();
	});

	test("are as their drivers say again when the node connects anew", async () => {
		assert.equal(await pairs(), 0);
		await startNode();
		await eventually(async () => (await pairs()) === 1, "it counts again");
		assert.deepEqual((await device("dev_twin2")).peers, [{ device_id: "dev_twin1", class: "peer" }]);
	});

	test("that no driver calls direct are nothing to tell", async () => {
		const client = await tenant(), before = told("link.degraded").length;
		const one = await allocate(client, 100, "dev_gpu"), other = await allocate(client, 100, "dev_twin1");
		node.worker().answers["memory.copy"] = ({ bytes }) => ({ result: { bytes, path: "staged" } });
		assert.equal((await client.call("memory.copy", { from: one, from_offset: 0, to: other, to_offset: 0, bytes: 100 })).path, "staged");
		await admin.call("server.info");
		assert.equal(told("link.degraded").length, before);
		await client.close();
	});
});
