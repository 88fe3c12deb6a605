// Machines that find each other: a node without an argument, a server at another address, several servers, none, and who
// sees whom and why not. The wire is plain; what differs is who says what.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "../api/client.mjs";
import { eventually, run, temporary, within } from "../api/server.mjs";
import { Net, long, missing } from "./net.mjs";

const ended = (one) => within(one.exited, () => `it ends; it said ${one.output.stderr}`, long);
const saidBy = (one) => (pattern, ms = long) => eventually(() => {
	const found = pattern.exec(one.output.stderr);
	if (!found && one.child.exitCode !== null) throw new Error(`it ended before ${pattern}: ${one.output.stderr}`);
	return found;
}, `${pattern} is said`, ms).catch((error) => { throw new Error(`${error.message}; it said ${one.output.stderr}`); });

async function serve(machine, name) {
	const data = temporary(), one = machine.exec(["serve", "--lan", "--no-local-node", "--data", data, "--name", name]);
	await eventually(() => /^token: /m.test(one.output.stdout), `${name} is ready: ${one.output.stderr}`, long);
	const admin = await Client.open({ socket: join(data, "exogpu.sock") }, { unix: true });
	const cli = (...words) => run([...words, "--data", data]);
	return { ...one, data, admin, cli, cluster: (await admin.call("server.info")).cluster_id };
}

function startNode(machine, args = [], data = temporary()) {
	const one = machine.exec(["node", "--data", data, "--backends", "cpu", "--name", machine.name, ...args]);
	return { ...one, data, said: saidBy(one) };
}

// An announcement of a server with these texts, as bytes from the port of multicast DNS; everything in it is of this test.
const announcer = (label, texts) => `
	const name = (...labels) => Buffer.concat([...labels.map((one) => Buffer.concat([Buffer.from([one.length]), Buffer.from(one)])), Buffer.from([0])]);
	const type = ["_exo-gpu", "_tcp", "local"], full = name(${JSON.stringify(label)}, ...type), host = name("somewhere", "local");
	const u16 = (value) => Buffer.from([value >> 8, value & 255]);
	const record = (owner, kind, data) => Buffer.concat([owner, u16(kind), u16(1), u16(0), u16(120), u16(data.length), data]);
	const packet = Buffer.concat([u16(0), u16(0x8400), u16(0), u16(4), u16(0), u16(0),
		record(name(...type), 12, full), record(full, 33, Buffer.concat([u16(0), u16(0), u16(52415), host])),
		record(full, 16, Buffer.concat(${JSON.stringify(texts)}.map((one) => Buffer.concat([Buffer.from([one.length]), Buffer.from(one)])))),
		record(host, 1, Buffer.from([10, 213, 7, 99]))]);
	const socket = require("dgram").createSocket({ type: "udp4", reuseAddr: true });
	socket.bind(5353, () => socket.send(packet, 5353, "224.0.0.251", () => socket.close()));`;

describe("finding each other", { skip: missing ?? false }, () => {
	let net, a, b, c, first, node, id;
	const heard = async (server, match) => (await server.admin.call("discovery.list")).heard.find(match);
	const online = (server) => eventually(async () => (await server.admin.call("cluster.snapshot")).nodes.some((one) => one.state === "online"), "the node is online", long);
	before(async () => {
		net = await Net.make(["a", "b", "c"]);
		({ a, b, c } = net.machines);
	});
	after(() => {
		net?.destroy();
		assertContractKept();
	});

	test("a node that nobody told anything finds the server, asks, and is let in; both are on the list", async () => {
		// It is there before its network and the server: it waits, and says what to do.
		b.link("down");
		node = startNode(b, ["--accept-code"]);
		await node.said(/looking for a server on the local networks \(0 interfaces\)/);
		await node.said(/discovery does not work here: no network interface is up/);
		// Its address of IPv6 is not to be used for the next minutes, which is no reason to say that nothing works.
		b.probes(200);
		b.link("up");
		await node.said(/no server is announced .* --lan.*--join HOST:PORT/, 2 * long);
		first = await serve(a, "first");
		await first.admin.call("events.subscribe", { topics: ["topology"] });
		await node.said(new RegExp(`heard "first \\(\\w+\\)" at ${a.address}:52415 on eth0, server \\S+, cluster ${first.cluster}, fingerprint \\w{16}`), 3 * long);
		id = (await node.said(new RegExp(`asking ${a.address}:52415 to be let in as node (node_[0-9a-f]+)`)))[1];
		await node.said(/must show \d{3} \d{3} for this node/);
		const asked = JSON.parse((await ended(b.exec(["discover", "--for", "3s", "--json", "--data", temporary()]))).stdout);
		assert.match(execFileSync("ip", ["-n", b.ns, "-6", "address"]).toString(), /tentative/);
		assert.deepEqual([asked.listening, asked.reason, asked.heard.some((one) => one.role === "server")], [true, null, true]);
		assert.doesNotMatch(node.output.stderr, /cannot be sent/);
		b.probes(1);
		const waiting = await eventually(() => heard(first, (one) => one.id === id && one.verdict === "waiting"), "it is heard, and waits", long);
		assert.deepEqual([waiting.role, waiting.cluster_id, waiting.addresses[0], waiting.interfaces, waiting.name.startsWith("b (")],
			["node", "", b.address, ["eth0"], true]);
		assert.match(waiting.why, /six digits/);
		const { code, stderr } = await first.cli("nodes", "approve", id);
		assert.equal(code, 0, stderr);
		await online(first);
		const isMember = (one) => one.id === id && one.verdict === "member";
		const { data } = await first.admin.until(() => first.admin.events.find(({ topic, data }) => topic === "topology" && data.heard?.some(isMember)),
			"an event says that it is a member", long);
		const own = data.heard.find((one) => one.role === "server");
		assert.deepEqual([own.verdict, own.id, own.port, own.cluster_id], ["self", first.cluster, 52415, first.cluster]);
		const authority = (await first.admin.call("server.info")).authority_sha256.replaceAll(":", "").toLowerCase();
		assert.equal(own.fingerprint, authority.slice(0, 16));
		const member = data.heard.find((one) => one.id === id);
		assert.deepEqual([member.cluster_id, member.fingerprint], [own.cluster_id, own.fingerprint]);
	});

	test("exogpu discover says the same, with a server to ask and without", async () => {
		const asked = a.exec(["discover", "--for", "3s", "--json", "--data", first.data]);
		const list = JSON.parse((await ended(asked)).stdout);
		assert.deepEqual([list.listening, list.reason], [true, null]);
		assert.deepEqual(list.heard.map((one) => [one.role, one.verdict]).sort(), [["node", "member"], ["server", "self"]]);
		const alone = await ended(c.exec(["discover", "--for", "3s", "--data", temporary()]));
		assert.equal(alone.code, 0, alone.stderr);
		assert.match(alone.stdout, new RegExp(`^first \\(\\w+\\) +server +${a.address.replaceAll(".", "\\.")}:52415 +eth0 .*${first.cluster}`, "m"));
		assert.match(alone.stdout, /^b \(\w+\): a node that has joined this cluster$/m);
		const nobody = await ended(c.spawn("unshare", ["-n", process.env.EXOGPU_BINARY, "discover", "--for", "1s", "--data", temporary()]));
		assert.equal(nobody.code, 1);
		assert.match(nobody.stderr, /discovery does not work here: no network interface is up/);
	});

	test("what the server tells people to open and to join is an address, as this network has no names", async () => {
		assert.match(first.output.stdout, new RegExp(`^dashboard: https://${a.address.replaceAll(".", "\\.")}:52415/$`, "m"));
		const { stdout, stderr } = await first.cli("ticket", "create");
		assert.match(stderr, new RegExp(`exogpu node --join ${a.address.replaceAll(".", "\\.")}:52415 --ticket TICKET`));
		const { ticket_id } = (await first.admin.call("ticket.list")).tickets[0];
		assert.ok(stdout.startsWith(`exojoin_${ticket_id}_`), stdout.slice(0, 20));
		await first.admin.call("ticket.revoke", { ticket_id });
	});

	test("a node that is removed, by its name, says how it may come back, and comes back so", async () => {
		const away = (one) => eventually(async () => !(await heard(first, (other) => other.id === one)), "it is gone from the list", long);
		const approve = async (one) => {
			const [, high, low, other] = await one.said(/must show (\d{3}) (\d{3}) for this node \((node_[0-9a-f]+)\)/);
			const { code, stderr } = await first.cli("nodes", "approve", other, `${high} ${low}`);
			assert.equal(code, 0, stderr);
			await one.said(/connected to the server/);
			return other;
		};
		const guest = startNode(c, ["--accept-code"]), guestId = await approve(guest);
		assert.match((await first.cli("nodes", "remove", "nobody")).stderr, /no node nobody/);
		const removed = await first.cli("nodes", "remove", "c");
		assert.deepEqual([removed.code, removed.stdout], [0, `removed ${guestId}\n`], removed.stderr);
		const { code, stderr } = await ended(guest);
		assert.deepEqual([code, /the cluster has removed this node; to come back it must join again/.test(stderr)], [1, true], stderr);
		const again = await ended(startNode(c, ["--accept-code"], guest.data));
		assert.match(again.stderr, /is no longer in the cluster at \S+; .*--join auto/);
		const back = startNode(c, ["--accept-code", "--join", "auto"], guest.data);
		assert.equal(await approve(back), guestId, "it is the same node");
		assert.equal((await first.cli("nodes", "remove", guestId)).code, 0);
		await ended(back);
		await away(guestId);
	});

	test("an interface by which nothing can be sent is named, and the others are heard", async () => {
		const ip = (...words) => execFileSync("ip", ["-n", c.ns, ...words]);
		ip("link", "add", "mute", "type", "veth", "peer", "name", "other");
		for (const name of ["mute", "other"]) ip("link", "set", name, "up");
		ip("-6", "route", "del", "multicast", "ff00::/8", "dev", "mute", "table", "local");
		// Once its address may be used.
		await eventually(() => !/tentative/.test(ip("-6", "address", "show", "dev", "mute").toString()), "it has an address", long);
		const words = ["discover", "--for", "3s", "--data", temporary()], pattern = /packets to port 5353\/udp cannot be sent on mute: Network is unreachable/;
		const { heard, listening, reason } = JSON.parse((await ended(c.exec([...words, "--json"]))).stdout);
		assert.match(reason, pattern);
		assert.deepEqual([listening, heard.some((one) => one.role === "server")], [true, true]);
		const { code, stderr } = await ended(c.exec(words));
		assert.deepEqual([code, pattern.test(stderr)], [0, true], stderr);
		ip("link", "del", "mute");
	});

	test("the server's address changes: its node finds it again", async () => {
		const before = node.output.stderr.length;
		a.move("10.213.7.77");
		await eventually(() => /announced at 10\.213\.7\.77:52415: trying there/.test(node.output.stderr.slice(before)), "it tries there", 3 * long).catch((error) => assert.fail(`${error.message}; it said ${node.output.stderr.slice(before)}`));
		await eventually(() => /connected to the server/.test(node.output.stderr.slice(before)), "it is back", long);
		await online(first);
		// And it knows the new address after a restart, without listening.
		node.child.kill("SIGTERM");
		assert.equal((await ended(node)).code, 0);
		node = startNode(b, [], node.data);
		await node.said(/connected to the server/);
		assert.doesNotMatch(node.output.stderr, /looking for a server|trying there/);
	});

	test("a node's interface goes and comes back with another address: it is online again, and heard there", async () => {
		b.link("down");
		await eventually(async () => (await first.admin.call("cluster.snapshot")).nodes.every((one) => one.state === "offline"), "it is offline", long);
		b.move("10.213.7.66");
		b.link("up");
		await online(first);
		await eventually(() => heard(first, (one) => one.id === id && one.verdict === "member" && one.addresses.includes("10.213.7.66")), "it is heard at the new address", 2 * long);
	});

	test("who is not taken is on the list, with the reason", async () => {
		const other = startNode(c, ["--join", "10.213.7.250", "--accept-code"]); // where nobody is
		const apart = await eventually(() => heard(first, (one) => one.name.startsWith("c (") && one.verdict === "not_joined"), "it is heard", long);
		assert.match(apart.why, /has not asked this one/);
		other.child.kill("SIGTERM");
		assert.equal((await ended(other)).code, 0);
		const fingerprint = (await heard(first, (one) => one.verdict === "self")).fingerprint;
		for (const [label, texts, verdict, why] of [
			["escape", ["txtvers=1", "id=clu_1", "cluster=\x1b[2J", "ver=1", "role=server", "fp=00"], "damaged", /damaged/],
			["later", ["txtvers=2", "id=clu_1", "cluster=clu_1", "ver=9", "role=server", "fp=00"], "damaged", /older/],
			["false", ["txtvers=1", `id=${first.cluster}`, `cluster=${first.cluster}`, "ver=1", "role=server", "fp=0011223344556677"], "other_cluster", /another authority/],
			["ghost", ["txtvers=1", "id=node_0", `cluster=${first.cluster}`, "ver=1", "role=node", `fp=${fingerprint}`], "not_joined", /has been removed/]]) {
			assert.equal((await ended(c.spawn(process.execPath, ["-e", announcer(label, texts)]))).code, 0);
			const one = await eventually(() => heard(first, ({ name }) => name === label), `${label} is heard`, long);
			assert.deepEqual([one.verdict, why.test(one.why), one.addresses], [verdict, true, ["10.213.7.99"]], one.why);
		}
		// The false one is not tried by the node that has a connection, nor does it lose that.
		assert.doesNotMatch(node.output.stderr, /10\.213\.7\.99/);
	});

	test("two clusters: which one is to be said, and a ticket says it", async () => {
		execFileSync("ip", ["-n", c.ns, "-4", "address", "flush", "dev", "eth0"]); // the second has IPv6 alone, of its link
		const second = await serve(c, "second"), lost = startNode(b, ["--accept-code"]);
		const { code, stderr } = await ended(lost);
		assert.equal(code, 1);
		for (const name of ["first", "second"]) assert.match(stderr, new RegExp(`heard "${name} `));
		assert.match(stderr, /servers of several clusters are announced here.*--join HOST:PORT/);
		const { ticket } = await second.admin.call("node.ticket", {});
		const named = startNode(b, ["--ticket", ticket]);
		await named.said(/heard "first .*: another cluster than the ticket's/);
		await named.said(/joined the cluster at \[fe80::[0-9a-f:]+%eth0\]:52415/);
		await online(second);
		const other = await eventually(() => heard(first, (one) => one.id === second.cluster), "the first hears the second", long);
		assert.deepEqual([other.verdict, /another cluster/.test(other.why)], ["other_cluster", true], other.why);
		const stranger = await eventually(() => heard(first, (one) => one.role === "node" && one.cluster_id === second.cluster), "and its node", long);
		assert.equal(stranger.verdict, "other_cluster");
		// A goodbye is heard; a machine that is gone without one is forgotten when its time is up, which is not waited for.
		named.child.kill("SIGTERM");
		await ended(named);
		await eventually(async () => !(await heard(first, (one) => one.id === stranger.id)), "it is gone from the list", long);
	});
});
