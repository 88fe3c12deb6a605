// Whatever a person, a token or a node does leaves its entry in the audit log: who, from where, what, on which device,
// with what result, how long. And while the log cannot be written, nothing of it is done.
import assert from "node:assert/strict";
import { readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { smallDisk } from "./disk.mjs";
import { nodeRecord } from "./records.mjs";
import { eventually, slow, startServer } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const counted = 25000 * slow; // what is counted is written within 10 s, and so does a session end
const scopes = ["observe", "allocate", "compute"];
const secretBytes = "TENANT-BYTES-7f3a9c", secretLabel = "TENANT-LABEL-51bd20";

const entriesOf = (client) => client.events.filter((one) => one.topic === "audit").map((one) => one.data);
const fits = (entry, wanted) => Object.entries(wanted).every(([name, value]) => entry[name] === value);
const entry = (client, wanted, ms) => eventually(() => entriesOf(client).find((one) => fits(one, wanted)),
	`an entry like ${JSON.stringify(wanted)}`, ms);
const sum = (client, wanted, what) => entriesOf(client).filter((one) => fits(one, wanted)).reduce((all, one) => all + what(one), 0);

describe("what is done is told", () => {
	let server, node, admin, tenant, made, allocation, module;
	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["audit"] });
		node = await WorkerNode.start(server);
		made = await admin.call("token.create", { name: "lab", scopes, calls_per_s: 5000 });
		tenant = await Client.login(server, made.token);
		allocation = (await tenant.call("memory.allocate", { device_id: "dev_cpu", bytes: 4096, label: secretLabel })).allocation_id;
		module = (await tenant.call("compute.load", { device_id: "dev_cpu", format: "builtin" })).module_id;
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});
	const by = () => ({ actor: `token:${made.token_id}`, actor_name: "lab", session_id: tenant.session.session_id, peer: "127.0.0.1" });
	const own = () => ({ actor: `token:${admin.session.token_id}`, actor_name: "admin.token", session_id: admin.session.session_id, peer: "127.0.0.1" });
	const onCpu = { device_id: "dev_cpu", node_id: "nod_test" };

	test("the start, and the first token", async () => {
		const { entries } = await admin.call("audit.list", { before: 2 });
		assert.deepEqual(entries.map((one) => [one.seq, one.action, one.actor, one.outcome]),
			[[1, "token.create", "server", "ok"], [0, "server.start", "server", "ok"]]);
		assert.equal(entries[0].target, admin.session.token_id);
	});

	test("a token that is made, and one that is revoked, in the same commit", async () => {
		const one = await admin.call("token.create", { name: "short", scopes: ["observe"], max_sessions: 2 });
		const told = entriesOf(admin).find((each) => each.target === one.token_id); // before the answer
		assert.ok(told && fits(told, { ...own(), action: "token.create", outcome: "ok" }), JSON.stringify(told));
		assert.deepEqual([told.detail.name, told.detail.scopes, told.detail.max_sessions], ["short", "observe", 2]);
		await admin.call("token.revoke", { token_id: one.token_id });
		const revoked = entriesOf(admin).find((each) => each.action === "token.revoke");
		assert.ok(fits(revoked, { ...own(), target: one.token_id, outcome: "ok" }), JSON.stringify(revoked));
		assert.equal(revoked.detail.tokens, 1);
	});

	test("the machine's owner, by the socket", async () => {
		const owner = await Client.open(server, { unix: true });
		const { token_id } = await owner.call("token.create", { name: "mine", scopes: ["observe"] });
		await entry(admin, { action: "token.create", target: token_id, actor: `owner:${process.getuid()}`, peer: "unix" });
		await owner.close();
	});

	test("log-ins: one entry for each session", async () => {
		await entry(admin, { ...by(), action: "auth.login", outcome: "ok", count: 1 });
		const joined = await Client.open(server);
		await joined.call("auth.login", { token: made.token, session_id: tenant.session.session_id });
		await joined.call("memory.list");
		assert.equal(sum(admin, { ...by(), action: "auth.login" }, (one) => one.count), 1);
		await joined.close();
	});

	test("log-ins that failed are counted by address, with the token's id where there is one", async () => {
		const stranger = await Client.open(server);
		const wrong = made.token.slice(0, 15) + server.token.slice(15); // well formed, but for its checksum
		for (const token of ["nonsense", wrong, "nonsense"]) await stranger.refused("auth.login", { token }, "unauthenticated");
		await stranger.refused("memory.list", {}, "unauthenticated");
		await stranger.close();
		const gone = await admin.call("token.create", { name: "gone", scopes: ["observe"] });
		await admin.call("token.revoke", { token_id: gone.token_id });
		await Client.open(server, { bearer: gone.token }).then(() => assert.fail("taken"), (error) => assert.equal(error.status, 401));
		const nobody = { actor: "nobody", session_id: null, peer: "127.0.0.1", outcome: "unauthenticated" };
		const many = await entry(admin, { ...nobody, action: "auth.login", target: "" }, counted);
		assert.equal(many.count, 3);
		await entry(admin, { ...nobody, action: "auth.login", target: gone.token_id, count: 1 }, counted);
		await entry(admin, { ...nobody, action: "memory.list", count: 1 }, counted);
	});

	test("a device is drained, and verified", async () => {
		await admin.call("device.drain", { device_id: "dev_gpu", drain: true });
		await admin.call("device.drain", { device_id: "dev_gpu", drain: false });
		const drains = entriesOf(admin).filter((one) => one.action === "device.drain");
		assert.deepEqual(drains.map((one) => [one.target, one.device_id, one.node_id, one.detail.drain]),
			[["dev_gpu", "dev_gpu", "nod_test", true], ["dev_gpu", "dev_gpu", "nod_test", false]]);
		await admin.call("device.verify", { device_id: "dev_gpu" });
		const verified = entriesOf(admin).find((one) => one.action === "device.verify");
		assert.ok(fits(verified, { ...own(), device_id: "dev_gpu", node_id: "nod_test", outcome: "ok" }), JSON.stringify(verified));
	});

	test("memory and modules: entries that are on disk before the answer", async () => {
		const more = await tenant.call("memory.allocate", { device_id: "dev_cpu", bytes: 12345 });
		const told = entriesOf(admin).find((one) => one.target === more.allocation_id) ?? // another connection: it may be on its way
			await entry(admin, { action: "memory.allocate", target: more.allocation_id });
		assert.ok(fits(told, { ...by(), ...onCpu, action: "memory.allocate", outcome: "ok", count: 1 }), JSON.stringify(told));
		assert.equal(told.detail.bytes, 12345);
		assert.ok(told.duration_ms > 0);
		await tenant.call("memory.free", { allocation_id: more.allocation_id });
		await entry(admin, { ...by(), ...onCpu, action: "memory.free", target: more.allocation_id, outcome: "ok" });
		await entry(admin, { ...by(), ...onCpu, action: "compute.load", target: module, outcome: "ok" });
		const spare = await tenant.call("compute.load", { device_id: "dev_cpu", format: "builtin" });
		await tenant.call("compute.unload", { module_id: spare.module_id });
		await entry(admin, { ...by(), ...onCpu, action: "compute.unload", target: spare.module_id, outcome: "ok" });
		const { entries } = await admin.call("audit.list", { actor: by().actor, action: "compute." });
		assert.deepEqual(entries.map((one) => one.action).sort(), ["compute.load", "compute.load", "compute.unload"]);
	});

	test("what fails is counted, with why", async () => {
		for (let i = 0; i < 3; i++) await tenant.refused("memory.allocate", { device_id: "dev_small", bytes: 1 << 29 }, "limit_exceeded");
		const one = await entry(admin, { ...by(), action: "memory.allocate", outcome: "limit_exceeded", device_id: "dev_small" }, counted);
		assert.equal(one.count, 3);
	});

	test("an admin takes a tenant's allocation back", async () => {
		const { allocation_id } = await tenant.call("memory.allocate", { device_id: "dev_cpu", bytes: 100 });
		await admin.call("memory.free", { allocation_id });
		const told = entriesOf(admin).find((one) => one.action === "memory.free" && one.target === allocation_id);
		assert.ok(fits(told, { ...own(), ...onCpu, outcome: "ok" }), JSON.stringify(told));
		assert.equal(told.detail.taken_from, tenant.session.session_id);
	});

	test("refusals are counted", async () => {
		for (let i = 0; i < 5; i++) await tenant.refused("token.list", {}, "forbidden");
		await tenant.refused("events.subscribe", { topics: ["audit"] }, "forbidden");
		const slowed = await Client.login(server, (await admin.call("token.create", { name: "slow", scopes, calls_per_s: 1 })).token);
		const outcomes = await Promise.all(Array.from({ length: 20 }, () => slowed.call("memory.list").then(() => "ok", (error) => error.reason)));
		const refused = outcomes.filter((one) => one === "rate_limited").length;
		assert.ok(refused > 10, `${refused} of 20`);
		await slowed.close();
		await entry(admin, { ...by(), action: "token.list", outcome: "forbidden", count: 5 }, counted);
		await entry(admin, { ...by(), action: "events.subscribe", outcome: "forbidden", count: 1 }, counted);
		await entry(admin, { action: "memory.list", outcome: "rate_limited", session_id: slowed.session.session_id, count: refused }, counted);
	});

	test("transfers and launches of a burst are counted, and add up", async () => {
		const body = Buffer.from(secretBytes.repeat(10));
		const calls = [];
		for (let i = 0; i < 40; i++) {
			calls.push(tenant.callWith("memory.write", { allocation_id: allocation, offset: i }, body));
			calls.push(tenant.call("memory.read", { allocation_id: allocation, offset: 0, bytes: 1000 }));
			calls.push(tenant.call("compute.launch", { module_id: module, kernel: "k", grid: [1, 1, 1], args: [{ allocation_id: allocation }] }));
			calls.push(tenant.call("memory.fill", { allocation_id: allocation, offset: 2048, bytes: 16, value: 1 }));
			calls.push(tenant.call("memory.copy", { from: allocation, from_offset: 0, to: allocation, to_offset: 3000, bytes: 7 }));
		}
		await Promise.all(calls);
		await tenant.refused("memory.read", { allocation_id: allocation, offset: 4096, bytes: 1 }, "invalid_params");
		await tenant.refused("compute.launch", { module_id: `${secretLabel}-none`, kernel: secretLabel, grid: [1, 1, 1], args: [] }, "not_found");
		const all = [["memory.write", 40 * body.length], ["memory.read", 40000], ["memory.fill", 40 * 16], ["memory.copy", 40 * 7], ["compute.launch", 0]];
		const ok = { ...by(), ...onCpu, outcome: "ok" };
		await eventually(() => all.every(([action]) => sum(admin, { ...ok, action }, (one) => one.count) === 40), "all are told", counted);
		for (const [action, bytes] of all) {
			assert.equal(sum(admin, { ...ok, action }, (one) => one.detail.bytes ?? 0), bytes, action);
			assert.ok(sum(admin, { ...ok, action }, (one) => one.duration_ms) > 0, action);
			assert.ok(entriesOf(admin).filter((one) => fits(one, { ...ok, action })).length <= 2, `${action}: one entry for many`);
		}
		assert.equal(sum(admin, { ...ok, action: "compute.launch", target: "k" }, (one) => one.count), 40);
		await entry(admin, { ...by(), action: "memory.read", outcome: "invalid_params", count: 1 }, counted);
		await entry(admin, { ...by(), action: "compute.launch", outcome: "not_found", target: "", count: 1 }, counted);
	});

	test("a session that loses a device, and one that ends, with its sums", async () => {
		const one = await Client.login(server, made.token), session_id = one.session.session_id;
		const { allocation_id } = await one.call("memory.allocate", { device_id: "dev_gpu", bytes: 777 });
		await one.callWith("memory.write", { allocation_id, offset: 0 }, Buffer.alloc(500));
		node.worker().kill();
		await one.notice("device_lost");
		const begun = performance.now();
		await one.close();
		const end = await entry(admin, { action: "session.end", session_id, outcome: "ok", actor: `token:${made.token_id}` }, counted);
		console.log(`session.end came ${((performance.now() - begun) / 1000).toFixed(1)} s after the last connection closed`);
		assert.deepEqual(end.detail, { launches: 0, read_bytes: 0, written_bytes: 500 });
		assert.equal(end.target, session_id);
		assert.ok(end.duration_ms > 0);
		const lost = await entry(admin, { action: "session.device_lost", session_id, outcome: "device_lost" }, counted);
		assert.ok(fits(lost, { actor: "server", device_id: "dev_gpu", node_id: "nod_test" }), JSON.stringify(lost));
		assert.equal(lost.detail.bytes, 777);
		assert.equal(sum(admin, { action: "memory.write", session_id }, (each) => each.detail.bytes), 500);
	});

	test("nodes that come and go", async () => {
		await entry(admin, { action: "node.added", actor: "node:nod_test", target: "nod_test", node_id: "nod_test", peer: "unix" });
		const other = await FakeNode.connect(server, nodeRecord({ node_id: "nod_other", name: "other" }));
		await entry(admin, { action: "node.added", actor: "node:nod_other", actor_name: "other" });
		await other.close();
		await entry(admin, { action: "node.offline", target: "nod_other", actor: "server" });
	});

	test("every entry is told in order, and the log holds", async () => {
		const told = entriesOf(admin).map((one) => one.seq);
		assert.deepEqual(told, Array.from({ length: told.length }, (_, i) => told[0] + i));
		const report = await admin.call("audit.verify");
		assert.ok(report.ok, JSON.stringify(report));
	});

	test("no secret, and nothing of a tenant's, is in the data directory", async () => {
		const secrets = [secretBytes, secretLabel, made.token.slice(15, 58), server.token.slice(15, 58)];
		const files = readdirSync(server.data, { recursive: true }).map((name) => join(server.data, name)).filter((path) =>
			statSync(path, { throwIfNoEntry: false })?.isFile() && !path.endsWith("admin.token")); // the server may have removed one
		assert.ok(files.some((path) => path.endsWith("state.db")), files.join());
		for (const path of files) {
			let text = "";
			try { text = readFileSync(path, "latin1"); } catch (error) { if (error.code !== "ENOENT") throw error; }
			for (const secret of secrets) assert.ok(!text.includes(secret), `${path} has ${secret.slice(0, 12)}…`);
		}
		for (const one of entriesOf(admin))
			for (const secret of secrets) assert.ok(!JSON.stringify(one).includes(secret), `${one.action} has ${secret.slice(0, 12)}…`);
	});
});

test("a full disk: nothing is done that could not be told, and it goes on by itself", async (context) => {
	const disk = smallDisk(6000), data = disk?.data;
	if (!disk) return context.skip("no file system can be mounted here");
	const server = await startServer({ data }), admin = await Client.login(server);
	const node = await WorkerNode.start(server);
	const { token } = await admin.call("token.create", { name: "lab", scopes });
	const tenant = await Client.login(server, token);
	const allocate = () => tenant.call("memory.allocate", { device_id: "dev_cpu", bytes: 64 });
	const launch = (module_id) => tenant.call("compute.launch", { module_id, kernel: "k", grid: [1, 1, 1], args: [] });
	const { module_id } = await tenant.call("compute.load", { device_id: "dev_cpu", format: "builtin" });
	const { fill } = disk;
	const kept = [];
	for (let i = 0; i < 3; i++) kept.push((await allocate()).allocation_id);
	let refusal;
	for (let i = 0; i < 2000 && !refusal; i++) {
		fill();
		await allocate().then(({ allocation_id }) => kept.push(allocation_id), (error) => { refusal = error; });
	}
	assert.equal(refusal?.reason, "unavailable", `${kept.length} allocations went through`);
	assert.ok(refusal.hint);
	assert.ok(!refusal.message.includes(data), "whose disk it is is not the tenant's business");
	console.log(`refused after ${kept.length} allocations: ${refusal.said}`);

	const asked = node.worker().calls.length;
	for (const call of [() => launch(module_id), allocate, () => tenant.call("memory.fill", { allocation_id: kept[0], offset: 0, bytes: 1, value: 0 })]) {
		const error = await call().then(() => assert.fail("done, and not told"), (one) => one);
		assert.equal(error.reason, "unavailable", error.message);
	}
	assert.equal(node.worker().calls.slice(asked).filter((one) => one.method !== "memory.free").length, 0, "nothing of it reached the worker");
	await admin.refused("device.drain", { device_id: "dev_cpu", drain: true }, "unavailable");
	await admin.refused("device.verify", { device_id: "dev_cpu" }, "unavailable");
	await admin.refused("token.create", { name: "no", scopes: ["observe"] }, "unavailable");
	assert.deepEqual((await tenant.call("memory.list")).allocations.map((one) => one.allocation_id), kept, "what could not be told is undone");
	const late = await Client.login(server, token); // who is to look after it gets in
	await late.call("cluster.snapshot");
	await late.close();

	disk.empty();
	const again = await eventually(() => allocate().catch((error) => {
		assert.equal(error.reason, "unavailable", error.message);
		return null;
	}), "it goes on", 15000 * slow);
	await launch(module_id);
	const { entries } = await admin.call("audit.list", { action: "audit.resume" });
	assert.ok(entries.length >= 1 && entries[0].duration_ms > 0, JSON.stringify(entries));
	const told = (await admin.call("audit.list", { action: "memory.allocate", outcome: "ok", limit: 1000 })).entries.map((one) => one.target);
	assert.deepEqual(told.toSorted(), [...kept, again.allocation_id].toSorted(), "each that was answered, and no other");
	await eventually(async () => (await admin.call("audit.list", { action: "auth.login", limit: 1000 })).entries
		.some((one) => one.session_id === late.session.session_id), "the log-in of the bad time is told too");
	const report = await admin.call("audit.verify");
	assert.ok(report.ok, JSON.stringify(report));
	await server.finish();
	assertContractKept();
});
