// Devices of one machine that copy to each other directly: as their drivers say, and as copies show.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { eventually } from "./server.mjs";
import { devices } from "./workers.mjs";
import { admin, allocate, node, start, startNode, stop, tenant } from "./stage.mjs";

describe("copies between devices of one machine", () => {
	before(start);
	after(stop);

	// Without what is there for other languages, which tests/api/said.test.mjs looks at.
	const plain = (device) => ({ ...device, peers: device.peers.map(({ reason_said: _, ...peer }) => peer) });
	const device = async (id) => plain((await admin.call("cluster.snapshot")).devices.find((one) => one.device_id === id));
	// Its node tells nothing of how fast they are, as one of a build before.
	const peer = (device_id, changes = {}) => ({ device_id, class: "peer", bytes_per_s: null, measured_at: null,
		reason: "its node is of a build that does not measure it", ...changes });
	const pairs = async () => (await admin.call("topology.summary")).peer_to_peer_pairs;
	const told = (kind) => admin.events.filter(({ data }) => data.change?.kind === kind).map(({ data }) => data);

	test("that are refused the direct way re-class the link and are told of, once", async () => {
		await admin.call("events.subscribe", { topics: ["inventory"] });
		const client = await tenant(), size = 1000;
		const from = await allocate(client, size, "dev_twin1"), to = await allocate(client, size, "dev_twin2");
		assert.deepEqual((await device("dev_twin1")).peers, [peer("dev_twin2")]);
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
		const [{ change, device: whole }] = told("link.degraded"), pushed = plain(whole);
		assert.equal(change.level, "attention");
		assert.equal(change.device_id, "dev_twin1");
		assert.equal(change.summary, "its copies to Twin 2 (dev_twin2) go by way of the host's memory, not directly");
		assert.deepEqual(pushed.peers, [peer("dev_twin2", { class: "staged" })]);
		assert.deepEqual((await device("dev_twin1")).peers, pushed.peers);
		assert.deepEqual((await device("dev_twin2")).peers, [peer("dev_twin1")], "the other way was not tried");
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
		assert.deepEqual((await device("dev_twin2")).peers, [peer("dev_twin1")]);
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

	test("are told with how fast they went when their node measured it, and of what cannot be nothing", async () => {
		const summary = async () => {
			const { slowest_peer_bytes_per_s: slowest, fastest_peer_bytes_per_s: fastest } = await admin.call("topology.summary");
			return [slowest, fastest];
		};
		const at = "2026-11-20T14:31:52.000Z";
		const speed = (to, bytes_per_s, changes = {}) =>
			({ hardware_key: `uuid:twin${to}`, bytes_per_s, direct: true, measured_at: at, reason: null, ...changes });
		const tell = (...peer_speeds) =>
			node.call("node.devices", { devices, peer_speeds: peer_speeds.map(([device_id, ...peers]) => ({ device_id, peers })) });
		const of = async (n) => (await device(`dev_twin${n}`)).peers;
		assert.deepEqual(await summary(), [null, null]);
		await tell(["dev_twin1", speed(2, 3.9e11)], ["dev_twin2", speed(1, null, { direct: false, measured_at: null, reason: "it broke" })]);
		assert.deepEqual(await of(1), [peer("dev_twin2", { bytes_per_s: 3.9e11, measured_at: at, reason: null })]);
		assert.deepEqual(await of(2), [peer("dev_twin1", { reason: "it broke" })]);
		assert.deepEqual(await summary(), [3.9e11, 3.9e11]);
		await tell(["dev_twin1", speed(2, 3.9e11)], ["dev_twin2", speed(1, 2e11)]);
		assert.deepEqual(await summary(), [2e11, 3.9e11]);
		for (const figure of [-1, 0, 1e300, -1e300])
			await tell(["dev_twin1", speed(2, figure)], ["dev_gpu", speed(1, 1e9)], ["dev_of_nobody", speed(1, 1e9)], ["dev_twin2", speed(9, 1e9)]);
		assert.deepEqual(await of(1), [peer("dev_twin2", { reason: "its node reports impossible figures" })]);
		assert.deepEqual(await of(2), [peer("dev_twin1", { reason: "it is not measured yet" })]);
		assert.deepEqual((await device("dev_gpu")).peers, []);
		assert.deepEqual(await summary(), [null, null]);
		for (const bad of [[{}], [speed(2, "fast")], [speed(2, 1, { at })], [speed(2, 1, { direct: null })], Array(65).fill(speed(2, 1))])
			await assert.rejects(tell(["dev_twin1", ...bad]), /invalid_params/);
		await tell();
		assert.deepEqual(await of(1), [peer("dev_twin2", { reason: "it is not measured yet" })]);
	});

	test("are told of once, with what they were and are, where a measurement shows another way", async () => {
		const links = async () => (await admin.call("cluster.snapshot")).recent.filter((one) => one.kind.startsWith("link."));
		const before = (await links()).length, later = (n) => `2026-11-20T15:00:0${n}.000Z`;
		const tell = (bytes_per_s, direct, measured_at) => node.call("node.devices", { devices, peer_speeds: [{ device_id: "dev_twin1",
			peers: [{ hardware_key: "uuid:twin2", bytes_per_s, direct, measured_at, reason: bytes_per_s === null ? "it is busy" : null }] }] });
		const since = async () => (await links()).slice(0, -before).map((one) => [one.kind, one.level, one.device_id, one.summary]).reverse();
		const degraded = ["link.degraded", "attention", "dev_twin1",
			"its copies to Twin 2 (dev_twin2) go by way of the host's memory, at 21.5 GB/s, not directly as before, at 390 GB/s"];
		const recovered = ["link.recovered", "info", "dev_twin1",
			"its copies to Twin 2 (dev_twin2) go directly again, at 388 GB/s, not by way of the host's memory as before, at 22 GB/s"];
		await tell(3.9e11, true, later(0));
		assert.deepEqual(await since(), []);
		await tell(2.15e10, false, later(1));
		assert.deepEqual(await since(), [degraded]);
		await tell(2.2e10, false, later(2));
		await tell(null, false, null); // which way is not known now
		await startNode();
		await tell(2.2e10, false, later(3));
		assert.deepEqual(await since(), [degraded], "it is what was told");
		await tell(3.88e11, true, later(4));
		assert.deepEqual(await since(), [degraded, recovered]);
		assert.deepEqual((await device("dev_twin1")).peers, [peer("dev_twin2", { bytes_per_s: 3.88e11, measured_at: later(4), reason: null })]);
		// What is measured counts until a copy shows something else, and that until it is measured anew.
		const client = await tenant(), from = await allocate(client, 100, "dev_twin1"), to = await allocate(client, 100, "dev_twin2");
		node.worker().answers["memory.copy"] = ({ bytes }) => ({ result: { bytes, path: "staged" } });
		await client.call("memory.copy", { from, from_offset: 0, to, to_offset: 0, bytes: 100 });
		await eventually(async () => (await since()).length === 3, "it is told");
		assert.equal((await since())[2][3], "its copies to Twin 2 (dev_twin2) go by way of the host's memory, not directly as before, at 388 GB/s");
		await tell(3.88e11, true, later(5));
		assert.deepEqual((await since()).map(([kind]) => kind), ["link.degraded", "link.recovered", "link.degraded", "link.recovered"]);
		await client.close();
	});
});
