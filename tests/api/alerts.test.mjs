// Alerts over the whole: readings of a node raise one, a person sees it, a restart keeps it, other readings clear it; the
// rules that do so are edited and kept.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { deviceReadings, deviceRecord, linkReading, nodeReadings, nodeRecord } from "./records.mjs";
import { eventually, run, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const full = { memory_used_bytes: 17100000000 }, free = { memory_used_bytes: 1000000000 };

describe("alerts", () => {
	let server, admin, node, feed, readings = free;
	const data = temporary();
	const list = async (state = "active") => (await admin.call("alert.list", { state })).alerts;
	const rule = async (rule_id) => (await admin.call("alert.rules")).rules.find((one) => one.rule_id === rule_id);
	const told = (check, what) => eventually(() => admin.events.find((one) => one.topic === "alerts" && check(one.data.alert))?.data.alert, what);
	const start = async () => {
		server = await startServer({ data });
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["alerts"] });
		node = await FakeNode.connect(server, nodeRecord());
		await node.devices([deviceRecord()]);
		feed = setInterval(() => node.telemetry([deviceReadings(readings)], nodeReadings()), 200);
	};
	const stop = async () => {
		clearInterval(feed);
		await server?.finish();
	};
	before(start);
	after(async () => {
		await stop();
		assertContractKept();
	});

	test("a rule is changed, told in the audit log, and refused where it makes no sense", async () => {
		const was = await rule("memory_full.device");
		assert.deepEqual([was.kind, was.subject_type, was.unit, was.threshold, was.clear_threshold, was.for_s, was.enabled],
			["memory_full", "device", "percent", 99, 97, 60, true]);
		const now = await admin.call("alert.rule_set", { rule_id: was.rule_id, for_s: 0 });
		assert.deepEqual(now, { ...was, for_s: 0 });
		assert.deepEqual(await rule(was.rule_id), now);
		const error = await admin.refused("alert.rule_set", { rule_id: was.rule_id, clear_threshold: 99 }, "invalid_params");
		assert.match(error.hint, /come and go/);
		await admin.refused("alert.rule_set", { rule_id: "nothing", for_s: 0 }, "not_found");
		assert.deepEqual(await rule(was.rule_id), now);
		const { entries } = await admin.call("audit.list", { action: "alert.rule_set" });
		const done = entries.filter((one) => one.outcome === "ok");
		assert.deepEqual(done.map((one) => [one.target, one.detail.for_s]), [[was.rule_id, 0]]);
	});

	let alert;
	test("readings raise it once", async () => {
		assert.deepEqual(await list(), []);
		readings = full;
		alert = await told((one) => one.kind === "memory_full", "it is raised");
		assert.deepEqual([alert.severity, alert.subject.type, alert.subject.id, alert.cleared_at, alert.acknowledged_at],
			["warning", "device", "dev_gpu", null, null]);
		assert.match(alert.message, /GPU One on bench/);
		assert.ok(Math.abs(alert.value - 100 * full.memory_used_bytes / 17179869184) < 1e-9, `${alert.value}`);
		assert.equal(alert.threshold, 99);
		assert.deepEqual(await list(), [alert]);
		assert.deepEqual((await admin.call("cluster.snapshot")).alerts, [alert]);
		const metrics = (await server.http("/metrics", { headers: { authorization: `Bearer ${server.token}` } })).text;
		assert.match(metrics, /^exogpu_alerts\{kind="memory_full",severity="warning"\} 1$/m);
		assert.match(metrics, /^exogpu_alerts_raised_total\{kind="memory_full",severity="warning"\} 1$/m);
		assert.match(metrics, /^exogpu_alerts_cleared_total\{kind="memory_full",severity="warning"\} 0$/m);
	});

	test("a person has seen it; the first is named", async () => {
		const seen = await admin.call("alert.acknowledge", { alert_id: alert.alert_id });
		assert.deepEqual([seen.acknowledged_by, seen.cleared_at], ["admin.token", null]);
		await told((one) => one.acknowledged_by === "admin.token", "others are told");
		const other = await Client.login(server, (await admin.call("token.create", { name: "other", scopes: ["admin"] })).token);
		assert.deepEqual(await other.call("alert.acknowledge", { alert_id: alert.alert_id }), seen);
		await admin.refused("alert.acknowledge", { alert_id: "alert_nothing" }, "not_found");
		alert = seen;
	});

	test("a restart keeps it and the rule, and does not raise it again", async () => {
		await stop();
		await start();
		assert.deepEqual(await list(), [alert]);
		assert.equal((await rule("memory_full.device")).for_s, 0);
		readings = free;
		const cleared = await told((one) => one.cleared_at !== null, "it is cleared");
		assert.equal(cleared.alert_id, alert.alert_id);
		assert.equal(cleared.acknowledged_by, "admin.token");
		assert.deepEqual(admin.events.filter((one) => one.topic === "alerts").length, 1, "and nothing else was told");
		assert.deepEqual(await list(), []);
		assert.deepEqual(await list("all"), [cleared]);
		assert.deepEqual((await admin.call("alert.list", { state: "all", before: cleared.alert_id })).alerts, []);
		assert.deepEqual((await admin.call("alert.list", { state: "all", before: "alert_gone" })).alerts, [], "one that is no longer kept was the oldest");
	});

	test("a lost node raises one alert, and none for its devices", async () => {
		for (const rule_id of ["node_offline", "device_lost"]) await admin.call("alert.rule_set", { rule_id, for_s: 0 });
		clearInterval(feed);
		await node.close();
		const lost = await told((one) => one.kind === "node_offline", "the node's is raised");
		assert.deepEqual([lost.severity, lost.subject.id], ["critical", "nod_test"]);
		assert.deepEqual((await list()).map((one) => one.kind), ["node_offline"]);
		await admin.call("alert.rule_set", { rule_id: "node_offline", enabled: false });
		await told((one) => one.kind === "node_offline" && one.cleared_at !== null, "a rule that is off clears its alert");
		assert.deepEqual(await list(), []);
	});

	test("the command line", async () => {
		const cli = (...words) => run(["alerts", ...words, "--data", data]);
		const none = await cli();
		assert.deepEqual([none.code, none.stdout], [0, ""]);
		assert.match(none.stderr, /No alerts/);
		const all = await cli("--all");
		assert.match(all.stdout, /memory_full|nearly full/);
		assert.match(all.stdout, /cleared/);
		const rules = await cli("rules");
		assert.match(rules.stdout, /memory_full\.device/);
		const changed = await cli("rule", "disk_full", "--threshold", "98.5", "--clear", "96", "--for", "2m");
		assert.equal(changed.code, 0, changed.stderr);
		assert.deepEqual([(await rule("disk_full")).threshold, (await rule("disk_full")).for_s], [98.5, 120]);
		for (const words of [["rule", "disk_full"], ["rule", "disk_full", "--threshold", "much"], ["rule", "disk_full", "--on", "--off"]])
			assert.equal((await cli(...words)).code, 2, words.join(" "));
		const ack = await cli("ack", alert.alert_id);
		assert.equal(ack.code, 0, ack.stderr);
		assert.match(ack.stdout, /seen by admin\.token/);
		assert.equal((await cli("ack", "alert_nothing")).code, 1);
	});
});

// Each rule from where its figure comes, with a threshold that what is there passes.
describe("what each rule sees", () => {
	let server, admin, node, feed;
	let sick = {};
	const standing = async () => (await admin.call("alert.list")).alerts;
	const stands = (kind, subject, check = () => true) => eventually(async () => (await standing()).find((one) => one.kind === kind
		&& one.subject.id === subject && check(one)), `${kind} of ${subject} stands`);
	const gone = (kind) => eventually(async () => !(await standing()).some((one) => one.kind === kind), `${kind} is cleared`);

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		for (const rule_id of ["version_differs", "driver_unusable", "throttled", "memory_full.node", "device_lost"])
			await admin.call("alert.rule_set", { rule_id, for_s: 0 });
		node = await WorkerNode.start(server, { devices: [deviceRecord()], record: nodeRecord({ version: "0.0.1",
			libraries: [{ name: "CUDA driver", file: "libcuda.so.1", state: "too_old", version: "11.0", minimum_version: "12.0",
				reason: "version 11.0 is older than 12.0", hint: "install a newer driver" }] }) });
		feed = setInterval(() => node.telemetry([deviceReadings(sick)], nodeReadings({ memory_available_bytes: 1e8 })), 200);
	});
	after(async () => {
		clearInterval(feed);
		await server?.finish();
		assertContractKept();
	});

	test("of a node: its version, its libraries, its memory", async () => {
		assert.match((await stands("version_differs", "nod_test")).message, /runs exogpu 0\.0\.1/);
		const driver = await stands("driver_unusable", "nod_test");
		assert.match(driver.message, /CUDA driver on bench is too old: version 11\.0/);
		assert.equal(driver.hint, "install a newer driver");
		await stands("memory_full", "nod_test");
	});

	test("of links: one that is worse than its class", async () => {
		await admin.call("alert.rule_set", { rule_id: "link_degraded", for_s: 0 });
		const other = await FakeNode.connect(server, nodeRecord({ node_id: "nod_other", name: "other" }));
		let rtt_ms = 80; // too long for Ethernet
		const telling = setInterval(() => node.notify("node.links", { links: [linkReading({ peer_id: "nod_other", rtt_ms })] }), 300);
		const alert = await stands("link_degraded", "nod_other");
		assert.match(alert.message, /^the link between other and bench is degraded: a round trip takes 80 ms/);
		rtt_ms = 0.2;
		await gone("link_degraded");
		clearInterval(telling);
		await other.close();
	});

	test("of a device: heat, new memory errors, that it is lost", async () => {
		sick = { thermal_state: "throttled" };
		await stands("throttled", "dev_gpu");
		assert.ok(!(await standing()).some((one) => one.kind === "ecc_errors"), "errors of before are no news");
		sick = { ecc_errors: 3 };
		assert.equal((await stands("ecc_errors", "dev_gpu")).value, 3);
		await gone("throttled");
		await node.devices([deviceRecord({ present: false })]);
		await stands("device_lost", "dev_gpu");
		await node.devices([deviceRecord()]);
		await gone("device_lost");
	});

	test("of its workers: that they end again and again", async () => {
		for (let n = 0; n < 6; n++) { // those of a session that has loaded its own kernel say nothing of the device
			const before = node.workers.length;
			await admin.call("memory.allocate", { device_id: "dev_gpu", bytes: 100 });
			assert.equal(node.workers.length, before + 1);
			if (n % 2) await admin.callWith("compute.load", { device_id: "dev_gpu", format: "spirv" }, Buffer.from("spir"));
			node.notify("tenant.ended", { worker_id: node.worker().worker_id, message: "it was killed by SIGKILL" });
			await eventually(async () => !(await admin.call("cluster.snapshot")).allocations.length, "what it held is lost");
		}
		assert.equal((await stands("worker_failing", "dev_gpu")).value, 3);
	});

	test("sixty at once do not fill the log", async () => {
		const many = Array.from({ length: 60 }, (_, at) => ({ device_id: `dev_${at}`, hardware_key: `GPU-${at}` }));
		const tell = (more) => node.devices([deviceRecord(), ...many.map((one) => deviceRecord({ ...one, ...more }))]);
		await tell({});
		await tell({ present: false });
		await eventually(async () => (await standing()).filter((one) => one.kind === "device_lost").length === 60, "all are raised");
		const lines = server.output.stderr.split("\n").filter((one) => /alerts: .* lost/.test(one)).length;
		assert.ok(lines > 0 && lines <= 40, `${lines} lines; 20 a minute, and two minutes at most`);
	});

	test("of the server: its disk, certificates and tokens", async () => {
		await admin.call("alert.rule_set", { rule_id: "disk_full", threshold: 0, clear_threshold: -1, for_s: 0 });
		await admin.call("alert.rule_set", { rule_id: "certificate_expiring", threshold: 4000, clear_threshold: 5000, for_s: 0 });
		await admin.call("alert.rule_set", { rule_id: "token_expiring", threshold: 4000, clear_threshold: 5000, for_s: 0 });
		const short = await admin.call("token.create", { name: "short", scopes: ["observe"], expires_in_s: 3600 });
		const long = await admin.call("token.create", { name: "long", scopes: ["observe"], expires_in_s: 20 * 86400 });
		const alert = await stands("token_expiring", long.token_id);
		assert.equal(alert.subject.name, long.token_id, "who may only observe does not learn what tokens are called");
		assert.ok(!(await standing()).some((one) => one.subject.id === short.token_id), "what was made for an hour is meant to end");
		await admin.call("token.revoke", { token_id: long.token_id });
		await eventually(async () => !(await standing()).some((one) => one.subject.id === long.token_id), "a token that is revoked has no alert");
		const { certificates } = await admin.call("certificate.list");
		await stands("certificate_expiring", certificates.find((one) => one.kind === "authority").serial);
		assert.equal((await eventually(async () => (await standing()).find((one) => one.kind === "disk_full"), "its disk")).subject.type, "server");
	});
});
