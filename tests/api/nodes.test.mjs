// A node made from schema/node.json over the Unix socket: what it reports is what clients see, what breaks the contract
// changes nothing, and what is known survives restarts under the same ids.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { invalidParams, node as nodeContract } from "./contract.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord, passed, pending } from "./records.mjs";
import { eventually, startServer, within } from "./server.mjs";

// The order of nodes and devices is not promised; here it is that of their ids.
const sorted = (list) => [...list].sort((a, b) => ((a.device_id ?? a.node_id) < (b.device_id ?? b.node_id) ? -1 : 1));
async function snapshot(client) {
	const whole = await client.call("cluster.snapshot");
	return { ...whole, nodes: sorted(whole.nodes), devices: sorted(whole.devices) };
}
const byId = (list, id) => list.find((one) => one.device_id === id || one.node_id === id);
const failed = { state: "failed", at: "2026-11-20T14:31:52.000Z", duration_ms: 12, error: "read back something else" };

describe("a node and its devices", () => {
	let server, admin, node;
	const inventory = (kind, id, from) => admin.event(({ topic, data }) => topic === "inventory" && data.change.kind === kind &&
		(data.change.device_id ?? data.change.node_id) === id, `${kind} of ${id}`, from);

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["inventory", "telemetry"] });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("joins, and everyone hears of it", async () => {
		node = await FakeNode.connect(server, nodeRecord());
		const { data } = await inventory("node.added", "nod_test");
		const { nodes, recent } = await snapshot(admin);
		assert.deepEqual(byId(nodes, "nod_test"), data.node);
		const { kind, state, state_reason, ends_at, local, first_seen_at, last_seen_at, ...record } = data.node, { link_port, ...said } = nodeRecord();
		assert.deepEqual(record, said, "all that it said but where it takes links, which is for other nodes");
		assert.deepEqual([kind, state, state_reason, ends_at, local], ["machine", "online", null, null, true]);
		assert.ok(first_seen_at <= last_seen_at, `${first_seen_at} ${last_seen_at}`);
		assert.deepEqual(recent[0], data.change);
	});

	test("is told whether somebody watches", async () => {
		const told = await node.until(() => node.requests.find((one) => one.method === "node.watch") ??
			{ params: { watched: true } }, "node.watch");
		assert.equal(told.params.watched, true);
		const from = node.requests.length;
		await admin.call("events.subscribe", { topics: ["inventory"] });
		await node.until(() => node.requests.slice(from).find((one) => one.params.watched === false), "watched: false");
		await admin.call("events.subscribe", { topics: ["inventory", "telemetry"] });
		await node.until(() => node.requests.slice(from).find((one) => one.params.watched === true), "watched: true");
	});

	test("reports devices: added, verified, failed", async () => {
		await node.devices([deviceRecord({ verification: pending }),
			deviceRecord({ device_id: "dev_cpu", hardware_key: "cpu", kind: "cpu", backend: "cpu", verification: passed }),
			deviceRecord({ device_id: "dev_bad", hardware_key: "pci:3", support: "unsupported", support_reason: "read back something else",
				verification: failed })]);
		const added = await inventory("device.added", "dev_gpu");
		assert.equal(added.data.device.verification.state, "pending");
		assert.equal((await inventory("device.verified", "dev_cpu")).data.change.level, "info");
		const bad = await inventory("device.failed", "dev_bad");
		assert.equal(bad.data.change.level, "error");
		assert.match(bad.data.change.summary, /read back something else/);
		const { devices } = await snapshot(admin);
		assert.deepEqual(devices.map((one) => [one.device_id, one.state]),
			[["dev_bad", "unsupported"], ["dev_cpu", "idle"], ["dev_gpu", "idle"]]);
		const { present, hardware_key, ...expected } = deviceRecord({ verification: pending });
		const { node_id, state, state_reason, draining, first_seen_at, last_seen_at, spot_checks, ...shown } = byId(devices, "dev_gpu");
		assert.deepEqual(shown, expected);
		assert.deepEqual([node_id, draining, state_reason, spot_checks], ["nod_test", false, null, null]);
		assert.equal(byId(devices, "dev_bad").state_reason, "read back something else");
	});

	test("the same report again is no event", async () => {
		const from = admin.events.length;
		await node.devices([deviceRecord({ verification: pending })]);
		await snapshot(admin);
		assert.deepEqual(admin.events.slice(from).filter((one) => one.topic === "inventory"), []);
	});

	test("a device goes and comes back under its id", async () => {
		const before_ = byId((await snapshot(admin)).devices, "dev_gpu");
		let from = admin.events.length;
		await node.devices([deviceRecord({ present: false })]);
		const gone = await inventory("device.state", "dev_gpu", from);
		assert.deepEqual([gone.data.device.state, gone.data.change.level], ["offline", "attention"]);
		from = admin.events.length;
		await node.devices([deviceRecord()]);
		const back = await inventory("device.state", "dev_gpu", from);
		assert.equal(back.data.device.state, "idle");
		assert.equal(back.data.device.first_seen_at, before_.first_seen_at);
	});

	test("readings reach clients, the snapshot and no other device", async () => {
		const from = admin.events.length;
		node.telemetry([deviceReadings(), deviceReadings({ device_id: "dev_none" })], nodeReadings({ node_id: "nod_other" }));
		const { data } = await admin.event((one) => one.topic === "telemetry", "telemetry", from);
		assert.deepEqual(data.devices.map((one) => one.device_id), ["dev_gpu"]);
		assert.equal(data.nodes[0].node_id, "nod_test", "a node speaks for itself only");
		assert.equal(data.devices[0].power_watts, 120.5);
		const { telemetry } = await snapshot(admin);
		assert.deepEqual(telemetry, data);
	});

	test("a hot device is throttled at once, and an event", async () => {
		let from = admin.events.length;
		node.telemetry([deviceReadings({ thermal_state: "throttled", throttle: ["heat"] })]);
		const hot = await inventory("device.state", "dev_gpu", from);
		assert.deepEqual([hot.data.device.state, hot.data.change.level], ["throttled", "attention"]);
		node.telemetry([deviceReadings()]);
	});

	test("a device that only other programs use is idle, and says so", async () => {
		const from = admin.events.length;
		const uses = setInterval(() => node.telemetry([deviceReadings({ utilization_percent: 90 })]), 200);
		try {
			const { data } = await admin.event(({ topic, data }) => topic === "inventory" && /not by exogpu/.test(data.change?.summary) &&
				data.change.device_id === "dev_gpu", "it is in use", from);
			assert.equal(data.device.state, "idle", "nothing of exogpu works on it");
			assert.match(data.device.state_reason, /^in use, but no model or session of exogpu works on it$/);
		} finally {
			clearInterval(uses);
			node.telemetry([deviceReadings()]);
		}
	});

	test("an admin verifies and drains", async () => {
		const asked = admin.call("device.verify", { device_id: "dev_gpu" });
		const request = await node.until(() => node.requests.find((one) => one.method === "device.verify"), "device.verify");
		assert.deepEqual(request.params, { device_id: "dev_gpu" });
		node.reply(request);
		assert.equal((await asked).verification.state, "pending");
		let from = admin.events.length;
		await node.devices([deviceRecord({ verification: pending })]);
		await inventory("device.changed", "dev_gpu", from);
		await admin.refused("device.verify", { device_id: "dev_gpu" }, "conflict");
		from = admin.events.length;
		await node.devices([deviceRecord()]);
		await inventory("device.verified", "dev_gpu", from);

		const drained = await admin.call("device.drain", { device_id: "dev_gpu", drain: true });
		assert.equal(drained.draining, true);
		const told = await inventory("device.state", "dev_gpu", from);
		assert.deepEqual(told.data.device, drained);
		assert.equal((await admin.call("device.drain", { device_id: "dev_gpu", drain: true })).draining, true, "twice is no fault");
	});

	test("reports that break the contract are refused and change nothing", async () => {
		const earlier = await snapshot(admin);
		const valid = { "node.register": { protocol: 1, node: nodeRecord() }, "node.devices": { devices: [deviceRecord()] },
			"node.telemetry": { node: nodeReadings(), devices: [deviceReadings()] } };
		for (const [name, params] of Object.entries(valid)) {
			let count = 0;
			for (const wrong of invalidParams(nodeContract, name, params)) {
				await node.refused(name, wrong, "invalid_params");
				count++;
			}
			assert.ok(count > 20, `${count} ways of being wrong were tried for ${name}`);
		}
		for (const name of ["node.stop", "device.verify", "worker.verify", "server.info", "auth.login"])
			await node.refused(name, {}, "method_not_found");
		for (const [bytes, code] of [["{", -32700], ["[]", -32600], ['{"jsonrpc":"2.0","id":1}', -32600]])
			assert.equal((await node.raw(bytes)).error?.code, code, bytes);
		const later = await snapshot(admin);
		assert.deepEqual({ ...later, seq: 0 }, { ...earlier, seq: 0 }); // each refusal is a line of the log, so an event
	});

	test("a device listed twice is one device", async () => {
		const twin = deviceRecord({ device_id: "dev_twin", hardware_key: "uuid:twin" });
		await node.refused("node.devices", { devices: [twin, { ...twin, name: "again" }] }, "conflict");
		const same = [deviceRecord({ device_id: "dev_a", hardware_key: "uuid:a" }), deviceRecord({ device_id: "dev_b", hardware_key: "uuid:a" })];
		await node.refused("node.devices", { devices: same }, "conflict");
		await admin.call("device.drain", { device_id: "dev_gpu", drain: true }); // stored after what came before
		const { devices } = await snapshot(admin);
		assert.deepEqual(devices.map((one) => one.device_id), ["dev_bad", "dev_cpu", "dev_gpu"]);
	});

	test("another id for a known piece of hardware is not taken", async () => {
		await node.call("node.devices", { devices: [deviceRecord({ device_id: "dev_b", hardware_key: "uuid:0f" })] }).catch((error) => error);
		await admin.call("device.drain", { device_id: "dev_gpu", drain: false });
		const { devices } = await snapshot(admin);
		assert.equal(byId(devices, "dev_b"), undefined, "one piece of hardware, one device");
		// And the node goes on reporting.
		const from = admin.events.length;
		await node.devices([deviceRecord({ device_id: "dev_c", hardware_key: "uuid:c" })]);
		await inventory("device.verified", "dev_c", from);
	});

	test("another node cannot speak for a device", async () => {
		const other = await FakeNode.connect(server, nodeRecord({ node_id: "nod_two", name: "two" }));
		const error = await other.refused("node.devices", { devices: [deviceRecord({ name: "stolen" })] }, "conflict");
		assert.match(error.said, /another node/);
		const mixed = [deviceRecord({ device_id: "dev_two", hardware_key: "k" }), deviceRecord({ name: "stolen" })];
		await other.refused("node.devices", { devices: mixed }, "conflict");
		other.telemetry([deviceReadings({ utilization_percent: 99 })]);
		await other.devices([]);
		const { devices, telemetry } = await snapshot(admin);
		assert.equal(byId(devices, "dev_gpu").name, "GPU One");
		assert.equal(byId(devices, "dev_two"), undefined, "refused as a whole");
		assert.equal(byId(telemetry.devices, "dev_gpu").utilization_percent, 25);
		await other.close();
		await inventory("node.offline", "nod_two");
	});

	test("another protocol, a second registration, silence", async () => {
		const other = await FakeNode.connect(server);
		const error = await other.refused("node.register", { protocol: 2, node: nodeRecord({ node_id: "nod_x" }) }, "conflict");
		assert.match(error.hint, /same version/);
		await other.refused("node.devices", { devices: [] }, "unauthenticated");
		await other.call("node.register", { protocol: 1, node: nodeRecord({ node_id: "nod_x" }) });
		await other.refused("node.register", { protocol: 1, node: nodeRecord({ node_id: "nod_y" }) }, "conflict");
		await other.close();
		const silent = await FakeNode.connect(server);
		assert.equal((await within(silent.closed, "the close")).code, 4401);
		assert.equal(byId((await snapshot(admin)).nodes, "nod_y"), undefined);
	});

	test("clients cannot pose as nodes", async () => {
		for (const options of [{}, { headers: { authorization: `Bearer ${server.token}` } }]) {
			const refusal = await FakeNode.open(server, { path: "/node", protocol: nodeContract["x-subprotocol"], ...options }).then(
				() => assert.fail("taken"), (error) => error);
			assert.equal(refusal.status, 403, refusal.message);
		}
		await admin.refused("node.register", { protocol: 1, node: nodeRecord() }, "method_not_found");
	});

	test("a second connection of the same node takes over", async () => {
		const from = admin.events.length;
		const later = await FakeNode.connect(server, nodeRecord({ name: "later" }));
		assert.equal((await within(node.closed, "the first is closed")).code, 4409);
		assert.equal(byId((await snapshot(admin)).nodes, "nod_test").name, "later");
		assert.equal(admin.events.slice(from).filter((one) => one.data.change?.kind === "node.offline").length, 0, "it was never away");
		node = later;
	});

	// By the server's own look, which reads first what has come, and not by the timer of its sockets.
	test("a node of which nothing is heard for 8 s is told so, as those of other machines are", async () => {
		const impatient = await startServer({ env: { EXOGPU_TEST_NODE_SILENCE_S: "" } }), watches = await Client.login(impatient);
		await watches.call("events.subscribe", { topics: ["inventory"] });
		const still = await FakeNode.connect(impatient, nodeRecord());
		still.socket.pause(); // and answers no ping
		const gone = await watches.event(({ data }) => data.change?.kind === "node.offline", "it is given up");
		assert.equal(gone.data.node.state_reason, "it is silent");
		still.socket.resume();
		assert.equal((await within(still.closed, "it is closed")).code, 4408);
		await watches.close();
		await impatient.finish();
	});

	test("a lost connection is an event at once", async () => {
		const from = admin.events.length;
		node.socket.terminate();
		const gone = await inventory("node.offline", "nod_test", from);
		assert.deepEqual([gone.data.node.state, gone.data.change.level], ["offline", "attention"]);
		assert.ok(gone.data.node.state_reason, "and says why");
		for (const id of ["dev_gpu", "dev_cpu", "dev_bad"]) {
			const { data } = await inventory("device.changed", id, from);
			assert.equal(data.device.state, "offline");
		}
		await admin.refused("device.verify", { device_id: "dev_gpu" }, "unavailable");
		node = await FakeNode.connect(server, nodeRecord());
		await inventory("node.online", "nod_test", from);
		assert.notEqual(byId((await snapshot(admin)).devices, "dev_gpu").state, "offline");
	});

	test("the log tells equal devices of one node, and of several, apart", async () => {
		const far = await FakeNode.connect(server, nodeRecord({ node_id: "nod_far", name: "far" }));
		await far.devices([deviceRecord({ device_id: "dev_far_a", hardware_key: "uuid:far-a", name: "Twin", pci_address: "0000:01:00.0" }),
			deviceRecord({ device_id: "dev_far_b", hardware_key: "uuid:far-b", name: "Twin", pci_address: "0000:02:00.0" })]);
		for (const title of ["Twin · 0 of far", "Twin · 1 of far"])
			await eventually(() => server.output.stderr.includes(` cluster: ${title}: `), `${title} in the log: ${server.output.stderr}`);
		const same = await FakeNode.connect(server, nodeRecord({ node_id: "nod_same", name: "far" }));
		await same.devices([deviceRecord({ device_id: "dev_same", hardware_key: "uuid:same", name: "Twin" })]);
		for (const title of ["far (nod_same)", "Twin of far (nod_same)"])
			await eventually(() => server.output.stderr.includes(` cluster: ${title}: `), `${title} in the log: ${server.output.stderr}`);
		await same.close();
		await far.close();
	});

	test("a long report in many frames", async () => {
		const many = Array.from({ length: 200 }, (_, i) => deviceRecord({ device_id: `dev_many_${i}`, hardware_key: `uuid:many-${i}` }));
		await node.devices(many);
		await inventory("device.verified", "dev_many_199");
		assert.equal((await snapshot(admin)).devices.filter((one) => one.device_id.startsWith("dev_many_")).length, 200);
	});
});

describe("a restart", () => {
	test("a device was seen for as long as its node, whose last readings told of it", async () => {
		const first = await startServer();
		const admin = await Client.login(first);
		await admin.call("events.subscribe", { topics: ["inventory", "telemetry"] });
		const node = await FakeNode.connect(first, nodeRecord());
		await node.devices([deviceRecord()]);
		await admin.event(({ data }) => data.change?.kind === "device.verified");
		await new Promise((resolve) => setTimeout(resolve, 1100));
		node.telemetry([deviceReadings()], nodeReadings());
		await admin.event(({ topic }) => topic === "telemetry");
		node.socket.terminate();
		await admin.event(({ data }) => data.change?.kind === "node.offline");
		await first.stop("SIGTERM");
		const second = await startServer({ data: first.data });
		const { nodes, devices } = await snapshot(await Client.login(second));
		assert.deepEqual(devices.map((one) => one.last_seen_at), [nodes[0].last_seen_at]);
		await second.finish();
	});

	for (const signal of ["SIGTERM", "SIGKILL"])
		test(`after ${signal} tokens and devices are known as before`, async () => {
			const first = await startServer({ args: ["--name", "The Cluster"] });
			let admin = await Client.login(first);
			const { token } = await admin.call("token.create", { name: "kept", scopes: ["observe"] });
			const revoked = await admin.call("token.create", { name: "gone", scopes: ["observe"] });
			await admin.call("token.revoke", { token_id: revoked.token_id });
			await admin.call("events.subscribe", { topics: ["inventory"] });
			let node = await FakeNode.connect(first, nodeRecord());
			await node.devices([deviceRecord(), deviceRecord({ device_id: "dev_cpu", hardware_key: "cpu" })]);
			await admin.event((one) => one.data.device?.device_id === "dev_cpu");
			await admin.call("device.drain", { device_id: "dev_cpu", drain: true });
			const [info, earlier] = [await admin.call("server.info"), await snapshot(admin)];
			const end = await first.stop(signal);
			if (signal === "SIGTERM") assert.deepEqual([end.code, end.signal], [0, null], end.stderr);

			const second = await startServer({ data: first.data });
			assert.equal(second.token, first.token, "the token file is kept");
			admin = await Client.login(second);
			const info2 = await admin.call("server.info");
			assert.deepEqual([info2.cluster_id, info2.name], [info.cluster_id, "The Cluster"]);
			const later = await snapshot(admin);
			assert.notEqual(later.epoch, earlier.epoch, "a new start is a new epoch");
			assert.deepEqual(later.devices.map((one) => [one.device_id, one.first_seen_at, one.draining, one.state, one.verification.state]),
				earlier.devices.map((one) => [one.device_id, one.first_seen_at, one.device_id === "dev_cpu", "offline", "pending"]));
			assert.deepEqual(later.nodes.map((one) => [one.node_id, one.state, one.first_seen_at]),
				earlier.nodes.map((one) => [one.node_id, "offline", one.first_seen_at]));
			assert.deepEqual(later.recent.slice(-earlier.recent.length), earlier.recent, "what happened is remembered");
			await (await Client.login(second, token)).close();
			const stranger = await Client.open(second);
			await stranger.refused("auth.login", { token: revoked.token }, "unauthenticated");
			await stranger.close();

			await admin.call("events.subscribe", { topics: ["inventory"] });
			node = await FakeNode.connect(second, nodeRecord());
			await node.devices([deviceRecord(), deviceRecord({ device_id: "dev_cpu", hardware_key: "cpu" })]);
			await admin.event((one) => one.data.change.kind === "device.verified" && one.data.device.device_id === "dev_cpu");
			const again = await snapshot(admin);
			assert.deepEqual(again.devices.map((one) => [one.device_id, one.first_seen_at, one.verification.state, one.state]),
				[["dev_cpu", earlier.devices[0].first_seen_at, "passed", "draining"],
					["dev_gpu", earlier.devices[1].first_seen_at, "passed", "idle"]]);
			await second.finish();
			assertContractKept();
		});
});
