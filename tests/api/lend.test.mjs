// Browser tabs as nodes, as the server sees them: addresses that are made, used up, expired and revoked; a tab that joins,
// goes, comes back and leaves; and one that means harm. The tab is played here; the page itself is tests/e2e/lend.test.mjs's.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import WebSocket from "ws";
import { Client, FakeNode, assertContractKept, frame } from "./client.mjs";
import { node as contract } from "./contract.mjs";
import { deviceReadings, linkReading, nodeReadings, nodeRecord, passed } from "./records.mjs";
import { eventually, startServer } from "./server.mjs";
import { Tab, TabWorker, tabDevice, tabProtocol } from "./tabs.mjs";
import { gpu, limits } from "./workers.mjs";

describe("browser tabs", () => {
	let server, admin;
	const nodeOf = async (node_id) => (await admin.call("cluster.snapshot")).nodes.find((one) => one.node_id === node_id);
	const state = (node_id, wanted) => eventually(async () => (await nodeOf(node_id))?.state === wanted, `${node_id} is ${wanted}`);
	const make = (params = {}) => admin.call("lend.create", { name: "phones", ...params });
	const lendOf = async (lend_id) => (await admin.call("lend.list")).lends.find((one) => one.lend_id === lend_id);
	before(async () => {
		server = await startServer({ localNode: false });
		admin = await Client.login(server);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("an address: its token is in the fragment, and nowhere else", async () => {
		const made = await make({ uses: 2, expires_in_s: 60 });
		assert.match(made.token, /^exolend_\w{10}_\w{43}_\w{6}$/);
		assert.equal(made.url, `${server.url.origin}/lend#token=${made.token}`);
		assert.equal(made.reachable, false);
		const listed = await lendOf(made.lend_id);
		assert.deepEqual([listed.name, listed.uses, listed.used, listed.node_ids, listed.revoked_at], ["phones", 2, 0, [], null]);
		assert.ok(!JSON.stringify(listed).includes(made.token.slice(20)));
		const page = await fetch(`${server.url.origin}/lend`);
		assert.equal(page.status, 200);
		assert.match(page.headers.get("content-security-policy"), /default-src 'none'; script-src 'self'/);
		assert.equal(page.headers.get("referrer-policy"), "no-referrer");
		const observer = await Client.login(server, (await admin.call("token.create", { name: "sees", scopes: ["observe"] })).token);
		await observer.refused("lend.create", { name: "x" }, "forbidden");
		await observer.refused("lend.list", undefined, "forbidden");
	});

	test("joins, is a node with its device, goes, and is the same node when it comes back", async () => {
		const made = await make();
		const tab = await Tab.join(server, made.token);
		const { node_id } = tab.own;
		await tab.register(node_id);
		await tab.devices([tabDevice(node_id)]);
		tab.telemetry([deviceReadings({ device_id: `dev${node_id.slice(3)}_0` })],
			nodeReadings({ node_id, battery_percent: 61, charging: false, visible: true, pressure: "nominal" }));
		tab.notify("node.links", { links: [linkReading({ rtt_ms: 3.5, throughput_bytes_per_s: null, throughput_at: null })] });
		const { nodes, devices } = await admin.call("cluster.snapshot");
		const node = nodes.find((one) => one.node_id === node_id), device = devices.find((one) => one.node_id === node_id);
		assert.deepEqual([node.kind, node.state, node.name, node.addresses], ["browser", "online", "phone", ["127.0.0.1"]]);
		assert.deepEqual([device.backend, device.state], ["webgpu", "idle"]);
		const reading = await eventually(async () => {
			const { telemetry, links } = await admin.call("cluster.snapshot");
			return links.some((one) => one.from_node_id === node_id && one.rtt_ms === 3.5) &&
				telemetry.nodes.find((one) => one.node_id === node_id);
		}, "its readings and its link are there");
		assert.deepEqual([reading.battery_percent, reading.visible, reading.pressure], [61, true, "nominal"]);
		assert.deepEqual((await lendOf(made.lend_id)).node_ids, [node_id]);
		assert.deepEqual(await tab.call("tab.ping", {}), {});

		await tab.close();
		await state(node_id, "offline");
		const again = await Tab.back(server, tab.own);
		await again.register(node_id);
		await state(node_id, "online");
		assert.equal((await nodeOf(node_id)).first_seen_at, node.first_seen_at);
		const entries = (await admin.call("audit.list", { text: node_id })).entries.map((one) => one.action);
		for (const action of ["node.join", "node.added", "node.offline", "node.online"]) assert.ok(entries.includes(action), `${action} of ${entries}`);

		await admin.call("lend.revoke", { lend_id: made.lend_id }).then((told) => assert.equal(told.tabs, 1));
		assert.deepEqual(await again.closed, { code: 4403, reason: "its address was revoked" });
		await state(node_id, "offline");
		const late = await Tab.open(server, { path: "/node", protocol: tabProtocol, headers: { Origin: server.url.origin } });
		late.socket.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tab.hello", params: { protocol: 1, node_id, secret: tab.own.secret } }));
		assert.equal((await late.closed).code, 4403);
		await admin.refused("lend.revoke", { lend_id: made.lend_id }, "conflict");
		await admin.refused("lend.revoke", { lend_id: "nothing000" }, "not_found");
	});

	test("an address is used up, expires, is revoked, and each is said", async () => {
		const once = await make(), ended = await make();
		await Tab.join(server, once.token);
		await admin.call("lend.revoke", { lend_id: ended.lend_id });
		const short = await make({ expires_in_s: 1 });
		await eventually(async () => Date.parse(short.expires_at) < Date.now(), "it has expired");
		for (const [token, why] of [[once.token, /used up/], [ended.token, /revoked/], [short.token, /expired/],
			[`${once.token.slice(0, -1)}${once.token.endsWith("a") ? "b" : "a"}`, /not whole/], ["exolend_", /not whole/]]) {
			await assert.rejects(Tab.join(server, token), (error) => error.reason === "unauthenticated" && why.test(error.message));
		}
	});

	test("a tab leaves: its node is gone, and its secret opens nothing", async () => {
		const tab = await Tab.join(server, (await make()).token);
		await tab.register(tab.own.node_id);
		tab.notify("tab.leave", {});
		assert.equal((await tab.closed).code, 4403);
		await eventually(async () => !(await nodeOf(tab.own.node_id)), "its node is gone");
		await assert.rejects(Tab.back(server, tab.own), /unauthenticated/);
	});

	test("a node that is removed by an admin may not come back", async () => {
		const tab = await Tab.join(server, (await make()).token);
		await tab.register(tab.own.node_id);
		await admin.call("node.remove", { node_id: tab.own.node_id });
		assert.equal((await tab.closed).code, 4403);
		await assert.rejects(Tab.back(server, tab.own), /unauthenticated/);
	});

	test("a tab that has joined and never registered can be removed, too", async () => {
		const made = await make(), tab = await Tab.join(server, made.token);
		await admin.call("node.remove", { node_id: tab.own.node_id });
		assert.equal((await tab.closed).code, 4403);
		await assert.rejects(Tab.back(server, tab.own), /unauthenticated/);
		assert.deepEqual((await lendOf(made.lend_id)).node_ids, []);
		const [entry] = (await admin.call("audit.list", { action: "node.remove", limit: 1 })).entries;
		assert.deepEqual([entry.target, entry.outcome], [tab.own.node_id, "ok"]);
		await admin.refused("node.remove", { node_id: tab.own.node_id }, "not_found");
	});

	test("one tab has a few connections at most", async () => {
		const tab = await Tab.join(server, (await make()).token), all = [tab];
		for (let ended; !ended;) { // those that do not register end by themselves after 5 s
			const next = await Tab.open(server, { path: "/node", protocol: tabProtocol, document: contract, headers: { Origin: server.url.origin } });
			const { node_id, secret } = tab.own;
			ended = await next.call("tab.hello", { protocol: 1, node_id, secret }).then(() => all.push(next) && null, (error) => ({ next, error }));
			assert.ok(all.length < 40, "it is refused at last");
			if (!ended) continue;
			assert.equal(ended.error.reason, "rate_limited");
			assert.equal((await next.closed).code, 4429);
		}
		assert.ok(all.length >= 4, `${all.length}`);
		await Promise.all(all.map((one) => one.close()));
		const again = await eventually(() => Tab.back(server, tab.own).catch(() => null), "there is room again"); // once the server sees them end
		await again.register(tab.own.node_id);
	});

	test("a tab that changes its mind all the time does not fill the audit log", async () => {
		const tab = await Tab.join(server, (await make()).token), { node_id } = tab.own;
		await tab.register(node_id);
		const report = (state) => tab.devices([0, 1, 2, 3].map((n) => tabDevice(node_id, { device_id: `dev${node_id.slice(3)}_${n}`, hardware_key: `webgpu:${n}`,
			verification: { ...passed, state, error: state === "failed" ? "it is wrong" : null } })));
		const told = async () => (await admin.call("audit.list", { text: node_id, limit: 1000 })).entries;
		let refused, reports = 0;
		for (; !refused && reports < 100; reports++) await report(reports % 2 ? "failed" : "passed").catch((error) => { refused = error; });
		assert.equal(refused?.reason, "rate_limited");
		assert.ok((await told()).filter((one) => /^device/.test(one.action)).length <= 4 * (reports - 1));
		const { devices } = await admin.call("cluster.snapshot");
		for (const one of devices.filter((one) => one.node_id === node_id)) assert.equal(one.verification.state, reports % 2 ? "failed" : "passed", "what is refused is not taken");
	});

	test("a session works on it by a stream that the tab opens with its worker's key", async () => {
		const tab = await Tab.join(server, (await make()).token);
		const { node_id } = tab.own;
		await tab.register(node_id);
		await tab.devices([tabDevice(node_id)]);
		const made = admin.call("memory.allocate", { device_id: `dev${node_id.slice(3)}_0`, bytes: 4096 });
		const open = await tab.until(() => tab.requests.find((one) => one.method === "tenant.open"), "tenant.open");
		assert.equal(open.params.backend, "webgpu");
		const foreign = new TabWorker(server, { ...open.params, key: "0".repeat(32) });
		await foreign.closed;
		const worker = new TabWorker(server, open.params);
		tab.reply(open, { started_ms: 1, sandbox: { applied: [], missing: ["a browser confines it"] } });
		const device = await tab.until(() => tab.requests.find((one) => one.method === "tenant.device"), "tenant.device");
		tab.reply(device, { opened_ms: 1, limits });
		const { allocation_id } = await made;
		await admin.callWith("memory.write", { allocation_id, offset: 0 }, Buffer.alloc(4096, 7));
		assert.deepEqual((await admin.call("memory.read", { allocation_id, offset: 0, bytes: 4096 })).body, Buffer.alloc(4096, 7));
		assert.deepEqual(worker.faults, []);
		await tab.close();
		await admin.notice("device_lost", (told) => told.device_id === `dev${node_id.slice(3)}_0`);
	});

	test("a tab that means harm: it may do nothing but its own, and floods no one", async () => {
		const other = await FakeNode.connect(server, nodeRecord({ link_port: 7777 }));
		await other.devices([gpu]);
		const tab = await Tab.join(server, (await make()).token);
		const { node_id } = tab.own;
		await assert.rejects(tab.call("node.devices", { devices: [] }), /unauthenticated/);
		await assert.rejects(tab.register("nod_test"), /forbidden/, "another node's id");
		await tab.register(node_id, { link_port: 9999, addresses: ["192.0.2.66"], capabilities: ["verify"], name: `${"x".repeat(63)}é${"x".repeat(5000)}`,
			backends: [{ backend: "cuda", enabled: true, reason: null }] });
		const node = await nodeOf(node_id);
		assert.deepEqual([node.kind, node.addresses, node.capabilities, node.backends, node.name], ["browser", ["127.0.0.1"], [], [], "x".repeat(63)]);
		for (const changes of [{ backend: "cuda" }, { device_id: "dev_gpu" }, { device_id: "dev_new" }, { device_id: `dev${node_id.slice(3)}_10` },
			{ device_id: `dev${node_id.slice(3)}x` }, { peers: ["uuid:0f"] },
			{ pci_address: "0000:01:00.0" }])
			await tab.refused("node.devices", { devices: [tabDevice(node_id, changes)] }, "invalid_params");
		await tab.refused("node.devices", { devices: [1, 2, 3, 4, 5].map((n) => tabDevice(node_id, { device_id: `dev${node_id.slice(3)}_${n}` })) });
		for (const [method, params] of [["node.renew", { request: "x" }], ["node.log", { level: "error", topic: "x", at: new Date().toISOString(), message: "x", dropped: 0 }],
			["model.read", { model_id: "mod_1", offset: 0, bytes: 16 }], ["cluster.snapshot", {}], ["node.burst", { burst: 1, piece: 0, back_bytes: 262144 }], ["tab.join", { protocol: 1, token: "x" }]])
			await tab.refused(method, params);
		// readings and links of others are not taken
		tab.telemetry([deviceReadings({ device_id: "dev_gpu", utilization_percent: 99 })], nodeReadings({ node_id: "nod_test", battery_percent: 1 }));
		tab.notify("node.links", { links: [linkReading({ peer_id: "nod_test" }), linkReading({ address: "198.51.100.1" })] });
		const mine = await eventually(async () => {
			const { telemetry, links } = await admin.call("cluster.snapshot");
			return telemetry.nodes.some((one) => one.node_id === node_id) && { telemetry, links };
		}, "its own readings are there");
		assert.ok(!mine.telemetry.devices.some((one) => one.device_id === "dev_gpu"));
		const links = (await eventually(async () => {
			const all = (await admin.call("cluster.snapshot")).links.filter((one) => one.from_node_id === node_id);
			return all.length && all;
		}, "its link is there")).map((one) => [one.to_node_id, one.address]);
		assert.deepEqual(links, [["server", "127.0.0.1"]]);
		// what a node is told it does not hear: peers, witnesses
		assert.deepEqual(tab.requests.map((one) => one.method).filter((one) => one !== "node.watch"), []);
		// an end of a hop that nobody awaits is no way in
		const stray = new WebSocket(`ws://127.0.0.1:${server.port}/node`, ["exogpu.worker.v1"], { headers: { Origin: server.url.origin } });
		stray.on("open", () => stray.send(frame({ jsonrpc: "2.0", method: "hop.hello", params: { hop_id: "hop_0123456789abcdef", key: "0".repeat(64), end: "in" } })));
		await once(stray, "close");
		// a message that is too long ends it; others work on
		tab.socket.send(JSON.stringify({ jsonrpc: "2.0", id: 9, method: "node.devices", params: { devices: [], x: "x".repeat(40000) } }));
		assert.equal((await tab.closed).code, 1009);
		const again = await Tab.back(server, tab.own);
		await again.register(node_id);
		for (let i = 0; i < 300; i++) again.notify("node.telemetry", { node: null, devices: [] });
		for (let i = 0; i < 20; i++) again.socket.send("{");
		assert.equal((await admin.call("server.info")).name.length > 0, true);
		await again.close();
	});

	test("whoever has not said who it is may say nothing else", async () => {
		const hello = (params) => JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tab.hello",
			params: { protocol: 1, node_id: "nod_test", secret: "a".repeat(43), ...params } });
		// a page forgets who it is when it hears 4403, so only what will never be let in is told that
		for (const [text, code] of [['{"jsonrpc":"2.0","id":1,"method":"node.register","params":{}}', 4403], [hello(), 4403],
			["x", 4503], ["[]", 4503], [hello({ secret: "a" }), 4503], [hello({ protocol: 2 }), 4426]]) {
			const stranger = new WebSocket(`ws://127.0.0.1:${server.port}/node`, [tabProtocol], { headers: { Origin: server.url.origin } });
			await new Promise((resolve) => stranger.on("open", resolve));
			stranger.send(text);
			assert.equal(await new Promise((resolve) => stranger.on("close", resolve)), code, text);
		}
		await assert.rejects(Tab.open(server, { path: "/node", protocol: tabProtocol, headers: { Origin: "https://elsewhere.example" } }),
			(error) => error.status === 403);
	});

	test("a restart of the server: addresses and tabs are known again", async () => {
		const made = await make({ uses: 2 });
		const tab = await Tab.join(server, made.token);
		await tab.register(tab.own.node_id);
		await server.stop();
		server = await startServer({ localNode: false, data: server.data });
		admin = await Client.login(server);
		const back = await Tab.back(server, tab.own);
		await back.register(tab.own.node_id);
		await state(tab.own.node_id, "online");
		const second = await Tab.join(server, made.token);
		assert.notEqual(second.own.node_id, tab.own.node_id);
		assert.equal((await lendOf(made.lend_id)).used, 2);
	});
});
