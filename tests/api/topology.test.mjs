// Links between nodes: what nodes tell of them is judged, shown, pushed, kept and summed up; nodes are told of each other.
import assert from "node:assert/strict";
import { readFileSync, renameSync } from "node:fs";
import { hostname } from "node:os";
import { join as path } from "node:path";
import { after, before, describe, test } from "node:test";
import tls from "node:tls";
import { makeCertificate, makeRequest } from "./certificates.mjs";
import { Client, FakeNode, assertContractKept, frame } from "./client.mjs";
import { isTime } from "./contract.mjs";
import { deviceRecord, linkReading, nodeRecord } from "./records.mjs";
import { ownNode } from "./remote.mjs";
import { eventually, patience, run, slow, startServer, temporary } from "./server.mjs";
import { Stranger, smallRecord } from "./stranger.mjs";

const second = () => new Promise((resolve) => setTimeout(resolve, 1050)); // a reading counts once a second at most

// Tell again each second, until it has shown.
async function telling(say, shows, what) {
	for (const until = Date.now() + 5 * patience; Date.now() < until; await second()) {
		say();
		const value = await shows();
		if (value) return value;
	}
	throw new Error(`told again and again: ${what}`);
}

// A node of the cluster; its name is that after nod_.
const join = (server, node_id, changes = {}) =>
	FakeNode.connect(server, nodeRecord({ node_id, name: node_id.slice(4), host_name: node_id, ...changes }));
const tell = (node, ...links) => node.notify("node.links", { links: links.map(linkReading) });
const find = (links, from, to) => links.find((one) => one.from_node_id === from && one.to_node_id === to);
const linkOf = async (client, from, to) => find((await client.call("cluster.snapshot")).links, from, to);
const pushed = (client, from, to, matches) => client.until(() => {
	for (const { topic, data } of client.events)
		if (topic === "topology" && matches(find(data.links, from, to) ?? {})) return find(data.links, from, to);
	return undefined;
}, `a topology event of ${from} to ${to}`);
const told = (client, kind, node_id) => client.events.filter((one) => one.topic === "inventory" &&
	one.data.change?.kind === kind && one.data.change.node_id === node_id).map((one) => one.data.change);

describe("links", () => {
	let server, admin, a, b, c;

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["inventory", "topology"] });
		a = await join(server, "nod_a", { link_port: 7001, addresses: ["192.0.2.1", "169.254.3.4", "fe80::1", "2001:db8::1"] });
		b = await join(server, "nod_b", { link_port: 7002, addresses: ["192.0.2.2"] });
		c = await join(server, "nod_c");
		await a.devices([deviceRecord()]);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("nodes that take links are told of each other, with addresses that mean something to them", async () => {
		const list = await a.until(() => a.requests.findLast((one) => one.method === "node.peers" && one.params.peers.length),
			"node.peers");
		assert.deepEqual(list.params.peers, [{ node_id: "nod_b", name: "b", addresses: ["192.0.2.2"], port: 7002 }]);
		const other = await b.until(() => b.requests.findLast((one) => one.method === "node.peers" && one.params.peers.length),
			"node.peers");
		assert.deepEqual(other.params.peers[0].addresses, ["192.0.2.1", "2001:db8::1"]);
		assert.equal(c.requests.some((one) => one.method === "node.peers"), false, "one that takes none is not told");
	});

	test("nodes on one machine also get addresses of that machine only; who goes is taken off the lists", async () => {
		const d = await join(server, "nod_d", { host_name: "nod_a", link_port: 7004, addresses: ["169.254.9.9"] });
		const list = await a.until(() => a.requests.findLast((one) => one.method === "node.peers" && one.params.peers.length === 2),
			"node.peers");
		assert.deepEqual(list.params.peers.find((one) => one.node_id === "nod_d").addresses, ["169.254.9.9", "127.0.0.1"]);
		const before = a.requests.length;
		await d.close();
		await a.until(() => a.requests.slice(before).find((one) => one.method === "node.peers" && one.params.peers.length === 1),
			"node.peers without the one that is gone");
		await b.until(() => b.requests.findLast((one) => one.method === "node.peers").params.peers.length === 1, "the same, at the other");
		const count = b.requests.length;
		await b.call("node.register", { protocol: 1, node: nodeRecord({ node_id: "nod_b", name: "b", host_name: "nod_b",
			link_port: 7002, addresses: ["192.0.2.2"] }) });
		await second();
		assert.equal(b.requests.slice(count).filter((one) => one.method === "node.peers").length, 0, "the same is not told again");
	});

	test("what a node tells stands in the snapshot and is pushed", async () => {
		const from = Date.now();
		tell(a, { peer_id: "nod_b", rtt_ms: 0.42, address: "192.0.2.2" }, { peer_id: "server", class: "loopback", throughput_bytes_per_s: null,
			throughput_at: null });
		const link = await pushed(admin, "nod_a", "nod_b", (one) => one.state === "up");
		assert.equal(link.rtt_ms, 0.42);
		assert.equal(link.class, "ethernet");
		assert.equal(link.degraded, false);
		assert.ok(isTime(link.measured_at) && Date.parse(link.measured_at) >= from - 1000, link.measured_at);
		assert.deepEqual(await linkOf(admin, "nod_a", "nod_b"), link);
		assert.equal((await linkOf(admin, "nod_a", "server")).throughput_bytes_per_s, null, "nothing is invented");
		assert.equal(await linkOf(admin, "nod_b", "nod_a"), undefined, "the other direction is the other node's to tell");
	});

	test("a node's clock may be off: its times count as differences", async () => {
		const hour = Date.now() - 3600000, at = (ms) => new Date(ms).toISOString();
		tell(b, { peer_id: "nod_a", measured_at: at(hour), throughput_at: at(hour - 30000) },
			{ peer_id: "server", measured_at: at(hour - 10000) });
		const link = await pushed(admin, "nod_b", "nod_a", (one) => one.state === "up");
		const age = (text) => Date.now() - Date.parse(text);
		assert.ok(age(link.measured_at) < 10000, link.measured_at);
		assert.ok(age(link.throughput_at) > 29000 && age(link.throughput_at) < 45000, link.throughput_at);
		assert.ok(age((await linkOf(admin, "nod_b", "server")).measured_at) > 9000);
	});

	test("worse than its class three times in a row is degraded, once told; five good ones end it", async () => {
		const bad = { peer_id: "nod_b", rtt_ms: 34.5 }, good = { peer_id: "nod_b", rtt_ms: 0.5 };
		await second();
		const often = () => { // in one piece, or a busy machine takes more than a second for them
			a.socket._socket.cork();
			for (let j = 0; j < 20; j++) tell(a, bad);
			a.socket._socket.uncork();
		};
		often(); // as often as it likes: once a second counts
		await second();
		often();
		assert.equal((await linkOf(admin, "nod_a", "nod_b")).degraded, false, "not three yet");
		const link = await telling(() => tell(a, bad), async () => {
			const now = await linkOf(admin, "nod_a", "nod_b");
			return now.degraded && now;
		}, "degraded");
		assert.equal(link.degraded_reason, "a round trip takes 34.5 ms; over Ethernet it should take less than 10");
		await pushed(admin, "nod_a", "nod_b", (one) => one.degraded);
		assert.equal((await admin.call("topology.summary")).degraded, 1);
		let rounds = 0;
		await telling(() => { tell(a, good); rounds++; }, async () => !(await linkOf(admin, "nod_a", "nod_b")).degraded, "well again");
		assert.ok(rounds >= 5, `well again after ${rounds}`);
		await admin.until(() => told(admin, "link.recovered", "nod_a").length, "link.recovered");
		assert.deepEqual(told(admin, "link.degraded", "nod_a").map((one) => [one.level, one.summary]),
			[["attention", "its link to b is slower than it should be: a round trip takes 34.5 ms; over Ethernet it should take less than 10"]]);
		assert.deepEqual(told(admin, "link.recovered", "nod_a").map((one) => [one.level, one.summary]),
			[["info", "its link to b is as it should be again"]]);
		const { recent } = await admin.call("cluster.snapshot");
		assert.equal(recent.filter((one) => one.kind === "link.degraded").length, 1, "it stands among the last changes");
	});

	test("what was not measured, or has no class to be judged by, is not judged", async () => {
		for (let i = 0; i < 4; i++) {
			tell(c, { peer_id: "nod_a", rtt_ms: null, throughput_bytes_per_s: null, throughput_at: null },
				{ peer_id: "nod_b", class: "relay", rtt_ms: 900 }, { peer_id: "server", class: "cellular", rtt_ms: 150, throughput_bytes_per_s: 1e5 });
			await second();
		}
		const { links } = await admin.call("cluster.snapshot");
		assert.deepEqual(links.filter((one) => one.from_node_id === "nod_c").map((one) => one.degraded), [false, false, false]);
	});

	test("a link that goes down is told once, from one end", async () => {
		const downs = () => told(admin, "link.down", "nod_a").length + told(admin, "link.down", "nod_b").length;
		const ups = () => told(admin, "link.up", "nod_a").length + told(admin, "link.up", "nod_b").length;
		const down = { state: "down", reason: "no answer for 3 s", class: "unknown", rtt_ms: null };
		const both = (changes) => {
			tell(a, { peer_id: "nod_b", rtt_ms: 0.5, ...changes });
			tell(b, { peer_id: "nod_a", ...changes });
		};
		await telling(() => both(down), downs, "link.down");
		for (let i = 0; i < 3; i++) { // the other end counts to three, too
			await second();
			both(down);
		}
		const link = await linkOf(admin, "nod_a", "nod_b");
		assert.deepEqual([link.state, link.state_reason], ["down", "no answer for 3 s"]);
		assert.deepEqual([link.class, link.rtt_ms], ["ethernet", 0.5], "as it was when it was up");
		await telling(() => both({}), ups, "link.up");
		await pushed(admin, "nod_b", "nod_a", (one) => one.state === "up");
		for (const kind of ["link.down", "link.up"])
			assert.equal(told(admin, kind, "nod_a").length + told(admin, kind, "nod_b").length, 1, kind);
	});

	test("the summary: distances, by way of the server where there is no direct link, and what limits most", async () => {
		tell(a, { peer_id: "nod_b", rtt_ms: 2, throughput_bytes_per_s: 1e9 }, { peer_id: "server", rtt_ms: 10, throughput_bytes_per_s: 5e8 });
		tell(b, { peer_id: "nod_a", rtt_ms: 2, throughput_bytes_per_s: 1e9 }, { peer_id: "server", rtt_ms: 20, throughput_bytes_per_s: 5e8 });
		tell(c, { peer_id: "server", class: "wifi", rtt_ms: 30, throughput_bytes_per_s: 2e7 }, { peer_id: "nod_a", state: "down", reason: "x" },
			{ peer_id: "nod_b", state: "down", reason: "x" });
		await eventually(async () => (await linkOf(admin, "nod_c", "server"))?.rtt_ms === 30, "the last was taken");
		const summary = await admin.call("topology.summary");
		assert.equal(summary.nodes, 3);
		assert.equal(summary.devices, 1);
		assert.equal(summary.memory_bytes, 17179869184);
		assert.equal(summary.pairs, 3);
		assert.equal(summary.direct_pairs, 1);
		assert.equal(summary.diameter_ms, 50, "b and c, both ways to the server added");
		assert.ok(Math.abs(summary.mean_rtt_ms - (2 + 2 + 10 + 20 + 30) / 5) < 1e-9, summary.mean_rtt_ms);
		assert.match(summary.bottleneck.text, /^From (b to c|c to b), through the server, a round trip takes 50 ms and the throughput is 160 Mbit\/s: 1 MiB takes 77\.4 ms/);
		tell(c, { peer_id: "server", class: "wifi", rtt_ms: 1060.4, throughput_bytes_per_s: 5e4 });
		await eventually(async () => (await linkOf(admin, "nod_c", "server"))?.rtt_ms === 1060.4, "it was taken");
		assert.match((await admin.call("topology.summary")).bottleneck.text, /a round trip takes 1080 ms and the throughput is 0\.4 Mbit\/s: 1 MiB takes \d{5} ms/);
		tell(c, { peer_id: "server", class: "wifi", rtt_ms: 30, throughput_bytes_per_s: 2e7 });
		await eventually(async () => (await linkOf(admin, "nod_c", "server"))?.rtt_ms === 30, "it is as it was");
	});

	test("what no node may say is passed over, and the connection stays", async () => {
		const { links: before } = await admin.call("cluster.snapshot");
		tell(a, { peer_id: "nod_a" }, { peer_id: "nod_nobody" }, { peer_id: "x".repeat(64) });
		for (const broken of [{ rtt_ms: "fast" }, { class: "string" }, { state: "sideways" }, { peer_id: "" }, { peer_id: "y".repeat(65) },
			{ foreign: 1 }, { measured_at: 5 }])
			tell(a, { peer_id: "nod_c", ...broken });
		a.notify("node.links", { links: Array.from({ length: 258 }, () => linkReading({ peer_id: "nod_c" })) });
		tell(a, { peer_id: "nod_c", rtt_ms: -5, jitter_ms: 1e308, loss_percent: 1e300, measured_at: "9999-12-31T23:59:59.999Z", reason: "é".repeat(1000),
			interface: "é".repeat(100), address: "ñ".repeat(200) });
		await eventually(() => linkOf(admin, "nod_a", "nod_c"), "the last was taken");
		const { links } = await admin.call("cluster.snapshot");
		assert.equal(links.length, before.length + 1);
		const link = find(links, "nod_a", "nod_c");
		assert.equal(link.rtt_ms, null, "less than nothing is not a figure");
		assert.ok(Date.parse(link.measured_at) <= Date.now() + 1000, link.measured_at);
		tell(a, { peer_id: "nod_c", measured_at: "no time, but long enough", throughput_at: "yesterday" });
		await eventually(async () => (await linkOf(admin, "nod_a", "nod_c")).rtt_ms === 0.4, "the next one was taken");
	});

	test("/metrics has what is measured now", async () => {
		tell(a, { peer_id: "nod_b", rtt_ms: 2 }); // what is not told for 20 s is stale
		await eventually(async () => (await linkOf(admin, "nod_a", "nod_b")).state === "up", "the link is up");
		const { text } = await server.http("/metrics", { headers: { Authorization: `Bearer ${server.token}` } });
		assert.match(text, /^exogpu_link_up\{from="nod_a",to="nod_b",class="ethernet"\} 1$/m);
		assert.match(text, /^exogpu_link_rtt_seconds\{from="nod_a",to="nod_b",class="ethernet"\} 0\.002$/m);
		assert.match(text, /^exogpu_link_up\{from="nod_c",to="nod_a",class="ethernet"\} 0$/m);
	});

	test("history: refused for what is no node, empty before the first minute is over", async () => {
		const ask = (from_node_id, to_node_id, from = Date.now() - 3600000, to = Date.now()) => admin.call("link.history",
			{ from_node_id, to_node_id, from: new Date(from).toISOString(), to: new Date(to).toISOString() });
		const history = await ask("nod_a", "nod_b");
		assert.deepEqual(history.columns, ["at", "rtt_ms", "jitter_ms", "loss_percent", "throughput_bytes_per_s", "sent_bytes_per_s"]);
		assert.ok(Array.isArray((await ask("nod_a", "server")).rows));
		const month = await ask("nod_a", "nod_b", Date.now() - 40 * 86400000);
		assert.ok(month.step_s > 60, "widened");
		for (const [from, to] of [["nod_nobody", "nod_a"], ["nod_a", "nod_nobody"], ["server", "nod_a"]])
			await assert.rejects(ask(from, to), { reason: "not_found" });
		await assert.rejects(ask("nod_a", "nod_b", Date.now(), Date.now() - 1000), { reason: "invalid_params" });
	});

	test("who comes back to the stream gets all links anew, and what was removed", async () => {
		const { epoch } = await admin.call("server.info").then(() => admin.call("cluster.snapshot"));
		const late = await Client.login(server);
		const { seq } = await late.call("cluster.snapshot");
		const answer = await late.call("events.subscribe", { topics: ["topology"], since: { epoch, seq } });
		assert.equal(answer.resumed, true);
		const event = await late.event((one) => one.topic === "topology" && find(one.data.links, "nod_a", "nod_b"), "all links");
		const { links } = await admin.call("cluster.snapshot");
		assert.equal(event.data.links.length, links.length);
		assert.deepEqual(event.data.heard, [], "and all that is heard");
		await late.close();
	});

	test("the command line", async () => {
		const at = (ms) => new Date(Date.now() + ms).toISOString();
		await telling(() => tell(a, { peer_id: "nod_b", measured_at: at(0), throughput_at: at(-7200000) }),
			async () => Date.now() - Date.parse((await linkOf(admin, "nod_a", "nod_b")).throughput_at) > 7000000, "a throughput of two hours ago");
		const { code, stdout, stderr } = await run(["topology", "--data", server.data]);
		assert.equal(code, 0, stderr);
		assert.match(stdout, /^FROM +TO +CLASS +STATE/m);
		assert.match(stdout, /^a +b +Ethernet +up .* 2 h *$/m, "a row is as old as its oldest figure");
		assert.match(stdout, /through the server, a round trip takes 50 ms/);
		const json = JSON.parse((await run(["topology", "--json", "--data", server.data])).stdout);
		assert.equal(json.summary.pairs, 3);
		assert.ok(find(json.links, "nod_a", "nod_b"));
	});

	test("an end that is offline leaves the last readings, stale", async () => {
		await c.close();
		const link = await pushed(admin, "nod_c", "server", (one) => one.state === "stale");
		assert.deepEqual([link.state_reason, link.rtt_ms], ["c is offline", 30]);
		assert.equal((await linkOf(admin, "nod_a", "nod_c")).state, "stale");
		assert.equal((await admin.call("topology.summary")).pairs, 1);
		assert.equal(["nod_a", "nod_b"].flatMap((id) => told(admin, "link.down", id)).length, 1, "the node's going is told once");
	});
});

describe("links over a restart", () => {
	after(assertContractKept);

	test("the last readings stand there as stale, with their time, until they are told anew; history is kept", async () => {
		const data = temporary();
		let server = await startServer({ data });
		let admin = await Client.login(server);
		let a = await join(server, "nod_a");
		const b = await join(server, "nod_b");
		tell(a, { peer_id: "nod_b", rtt_ms: 1.25, class: "wifi", interface: "wlan0" }, { peer_id: "server", rtt_ms: 3 });
		tell(b, { peer_id: "nod_a", rtt_ms: 1.5 });
		await eventually(() => linkOf(admin, "nod_b", "nod_a"), "it was taken");
		const before = await linkOf(admin, "nod_a", "nod_b");
		await server.finish();
		server = await startServer({ data });
		admin = await Client.login(server);
		const stale = await linkOf(admin, "nod_a", "nod_b");
		assert.deepEqual(stale, { ...before, state: "stale", state_reason: "a is offline", state_reason_said: { key: "%.200s is offline", args: ["a"] }, sent_bytes_per_s: null });
		assert.equal((await admin.call("cluster.snapshot")).links.length, 3);
		a = await join(server, "nod_a");
		assert.equal((await linkOf(admin, "nod_a", "server")).state_reason, "not measured again yet");
		tell(a, { peer_id: "server", rtt_ms: 4 });
		await eventually(async () => (await linkOf(admin, "nod_a", "server")).state === "up", "it was told anew");
		const history = await admin.call("link.history", { from_node_id: "nod_a", to_node_id: "nod_b",
			from: new Date(Date.now() - 600000).toISOString(), to: new Date(Date.now() + 60000).toISOString() });
		assert.equal(history.rows.length, 1, "the minute that was under way when the server stopped");
		assert.deepEqual([history.rows[0][1], history.rows[0][3]], [1.25, 0]);
		await server.finish();
	});

	test("a node that is removed takes its links along, in memory and on disk", async () => {
		const data = temporary();
		let server = await startServer({ data, listen: "0.0.0.0:0" });
		let admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["topology"] });
		const { ticket } = await admin.call("node.ticket"), request = makeRequest();
		const { certificate } = await (await Stranger.connect(server, request)).joinByTicket("nod_b", ticket);
		const b = await FakeNode.connect(server, smallRecord("nod_b"), { unix: false, cert: certificate, key: request.key });
		const a = await join(server, "nod_a");
		tell(a, { peer_id: "nod_b" }, { peer_id: "server" });
		tell(b, { peer_id: "nod_a" });
		await pushed(admin, "nod_b", "nod_a", (one) => one.state === "up");
		await admin.call("node.remove", { node_id: "nod_b" });
		const { data: event } = await admin.event((one) => one.topic === "topology" && one.data.removed.length, "removed");
		assert.deepEqual(event.removed.map((one) => `${one.from_node_id} ${one.to_node_id}`).sort(), ["nod_a nod_b", "nod_b nod_a"]);
		tell(a, { peer_id: "nod_b" }, { peer_id: "server" });
		assert.equal(await linkOf(admin, "nod_a", "nod_b"), undefined);
		await server.finish();
		server = await startServer({ data, listen: "0.0.0.0:0" });
		admin = await Client.login(server);
		assert.deepEqual((await admin.call("cluster.snapshot")).links.map((one) => one.to_node_id), ["server"]);
		await server.finish();
	});
});

// As another node dials: what became of it, "" while it is open; hello: to begin with peer.hello.
function dialLink(port, hello, options = {}) {
	const socket = tls.connect({ host: "127.0.0.1", port, rejectUnauthorized: false, minVersion: "TLSv1.3", ...options });
	const dialled = { socket, ended: "" }; // what comes is not looked at
	socket.resume().on("error", (error) => { dialled.ended ||= error.code ?? error.message; }).on("close", () => { dialled.ended ||= "closed"; });
	const message = frame({ jsonrpc: "2.0", method: "peer.hello", params: { protocol: 1, node_id: hello } }), total = Buffer.alloc(4);
	total.writeUInt32LE(message.length);
	socket.on("secureConnect", () => socket.write(Buffer.concat([total, message])));
	return dialled;
}

describe("the server's own node", () => {
	const data = temporary(), request = makeRequest(), LONG = 60000 * slow;
	let server, admin, own, other, grant, first;

	const certificates = async () => (await admin.call("certificate.list")).certificates.filter((one) => one.node_id === own);
	// Its certificate, once it stands, and where nod_b is told that it listens.
	const start = async (listen) => {
		server = await startServer({ data, listen, localNode: true, args: ["--log-level", "debug"] });
		admin = await Client.login(server);
		own = await eventually(async () => (await admin.call("cluster.snapshot")).nodes.find((one) => one.local && one.state === "online")?.node_id,
			"it is online", LONG);
	};
	const meet = async () => {
		other = await FakeNode.connect(server, smallRecord("nod_b", { link_port: 7002, host_name: hostname() }), { unix: false,
			cert: grant.certificate, key: request.key });
		return eventually(() => other.requests.findLast((one) => one.method === "node.peers")?.params.peers.find((one) => one.node_id === own),
			"the other node is told of it", LONG);
	};

	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("gets a certificate by the socket, where the server listens for others, and takes links with it", async () => {
		await start("0.0.0.0:0");
		const { ticket } = await admin.call("node.ticket");
		grant = await (await Stranger.connect(server, request)).joinByTicket("nod_b", ticket);
		const peer = await meet();
		first = await certificates();
		assert.deepEqual([first.length, first[0].kind, first[0].revoked_at], [1, "node", null]);
		assert.equal(peer.addresses[0], "127.0.0.1", "where the other one came to the server");
		assert.ok(peer.addresses.every((one) => !one.includes(":")), `0.0.0.0 is IPv4: ${peer.addresses}`);
		assert.deepEqual(ownNode(server).ports, [peer.port]);
		const link = dialLink(peer.port, "nod_b", { cert: grant.certificate, key: request.key });
		const shown = await eventually(() => linkOf(admin, own, "nod_b").then((one) => one?.state === "up" && one), () => `it is up: ${link.ended}`, LONG);
		assert.deepEqual([shown.class, shown.address, link.ended], ["loopback", "127.0.0.1", ""]);
		assert.equal(link.socket.getPeerX509Certificate().subjectAltName, `URI:exogpu:node:${own}`);
		link.socket.destroy();
	});

	test("refuses who has no certificate, another authority's, and another node's", async () => {
		const { port } = await eventually(() => ownNode(server).ports.map((one) => ({ port: one }))[0], "it listens");
		const authority = makeCertificate({ name: "foreign", authority: true });
		const foreign = makeCertificate({ name: "nod_b", issuer: authority, names: ["exogpu:node:nod_b"], uses: ["client", "server"] });
		const mine = { cert: grant.certificate, key: request.key };
		for (const [what, hello, options] of [["none", "nod_b", {}], ["foreign", "nod_b", { cert: foreign.pem, key: foreign.key }],
			["another node's", "nod_a", mine]]) {
			const dialled = dialLink(port, hello, options);
			await eventually(() => dialled.ended, `${what} is refused`, LONG);
		}
		await eventually(async () => (await linkOf(admin, own, "nod_b")).state !== "up", "none of them is taken for nod_b", LONG);
	});

	test("nobody comes as it by TLS", async () => {
		const pair = readFileSync(path(data, "node", "tls-own", "node.pem"), "utf8");
		await assert.rejects(FakeNode.connect(server, smallRecord(own), { unix: false, cert: pair, key: pair }), { reason: "forbidden" });
		assert.equal((await admin.call("cluster.snapshot")).nodes.find((one) => one.node_id === own).local, true);
	});

	test("keeps it over a restart, and gets another when the authority is another", async () => {
		await server.finish();
		await start("0.0.0.0:0");
		await meet();
		assert.deepEqual((await certificates()).map((one) => one.serial), first.map((one) => one.serial));
		await server.finish();
		renameSync(path(data, "tls"), path(data, "tls-old"));
		await start("0.0.0.0:0");
		const [one] = await eventually(async () => (await certificates()).length && certificates(), "it has a new one", LONG);
		assert.notEqual(one.serial, first[0].serial);
		await eventually(() => ownNode(server).ports.length, "it listens again", LONG);
		assert.equal(readFileSync(path(data, "node", "tls-own", "authority.pem"), "utf8"), server.ca.toString());
	});

	test("listens nowhere when the server serves its own machine only", async () => {
		const before = own;
		await server.finish();
		await start("127.0.0.1:0");
		assert.equal(own, before);
		await eventually(() => /node: \d+ of \d+ devices? usable/.test(server.output.stderr), "it knows its devices", LONG);
		assert.deepEqual(ownNode(server).ports, []);
		await assert.rejects((await FakeNode.connect(server, nodeRecord({ node_id: "nod_c" }))).call("node.renew", { request: request.pem }),
			{ reason: "conflict" });
	});
});

describe("many nodes", () => {
	after(assertContractKept);

	test("64 nodes with 4,032 directions: events and memory are bounded", async () => {
		const nodes = 64, server = await startServer(), admin = await Client.login(server);
		const all = await Promise.all(Array.from({ length: nodes }, (_, i) => join(server, `nod_${i}`, { link_port: 7000 + i })));
		const report = (round) => all.forEach((node, i) => tell(node, ...all.map((_, j) => j).filter((j) => j !== i)
			.map((j) => ({ peer_id: `nod_${j}`, rtt_ms: 1 + ((i + j + round) % 7), reason: null }))));
		const before = server.residentBytes();
		await admin.call("events.subscribe", { topics: ["topology"] });
		for (let round = 0; round < 3; round++) {
			report(round);
			await second();
		}
		const { links } = await eventually(async () => { // no report is answered
			const snapshot = await admin.call("cluster.snapshot");
			return snapshot.links.length === nodes * (nodes - 1) && snapshot;
		}, "every direction is known", 12 * patience);
		await admin.until(() => new Set(admin.events.flatMap((one) => one.data.links.map((link) => `${link.from_node_id} ${link.to_node_id}`)))
			.size === links.length, "every direction was told in its turn", 12 * patience);
		for (const { data } of admin.events) assert.ok(data.links.length <= 256, `${data.links.length} links in one event`);
		const grown = server.residentBytes() - before;
		const most = Math.max(128, 128 * (slow - 1)) * 1024 * 1024; // the address sanitizer alone keeps 256 MiB of what was freed
		assert.ok(grown < most, `${grown} bytes for ${links.length} directions`);
		const peers = await all[0].until(() => all[0].requests.findLast((one) => one.method === "node.peers" && one.params.peers.length === nodes - 1),
			"node.peers with all the others");
		assert.equal(new Set(peers.params.peers.map((one) => one.node_id)).size, nodes - 1);
		assert.ok(all[0].requests.filter((one) => one.method === "node.peers").length < nodes, "gathered");
		assert.equal((await admin.call("topology.summary")).pairs, nodes * (nodes - 1) / 2);
		await server.finish();
	});
});
