// Nodes that join, with real processes and with strangers written from the document: by ticket, by a person's word, and
// in all ways in which they must not; what a restart keeps, and what a removal ends.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { constants, cpSync, existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { makeCertificate, makeRequest } from "./certificates.mjs";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { node as nodeContract } from "./contract.mjs";
import { binary, eventually, freePort, launch, run, slow, startServer, temporary, within } from "./server.mjs";
import { Stranger, smallRecord } from "./stranger.mjs";

const lan = { listen: "0.0.0.0:0" };
const long = 20000 * slow;

// `exogpu node` on a folder of its own.
function startNode(args, { data = temporary(), env } = {}) {
	const one = launch(["node", "--data", data, "--backends", "cpu", ...args], env);
	Object.assign(one, {
		data, tls: (name) => join(data, "node", "tls", name),
		said: (pattern) => eventually(() => {
			const found = pattern.exec(one.output.stderr);
			if (!found && one.child.exitCode !== null) throw new Error(`it ended before ${pattern}: ${one.output.stderr}`);
			return found;
		}, `the node says ${pattern}`, long),
		async stop(signal = "SIGTERM") {
			one.child.kill(signal);
			return within(one.exited, () => `the node ends; it said ${one.output.stderr}`, long);
		},
	});
	return one;
}
const ended = (one) => within(one.exited, () => `the node ends by itself; it said ${one.output.stderr}`, long);
const cli = (server, ...words) => run([...words, "--data", server.data]);
const nodesOf = async (admin) => (await admin.call("cluster.snapshot")).nodes;
const stateOf = async (admin, node_id) => (await nodesOf(admin)).find((one) => one.node_id === node_id)?.state;
const becomes = (admin, node_id, state) => eventually(async () => (await stateOf(admin, node_id)) === state, `${node_id} is ${state}`, long);
const idOf = async (one) => (await one.said(/as node (node_[0-9a-f]+)/))[1];
// The end is what tells; a summary shows little more than a message's last line.
const endedWith = (status, code, said) => assert.equal(code, status, `it ended with ${code} instead of ${status}; the end of what it said: ${said.slice(-600)}`);
const address = (server) => `127.0.0.1:${server.port}`;

describe("joining", () => {
	let server, admin, authority;

	before(async () => {
		server = await startServer({ listen: `0.0.0.0:${await freePort()}` }); // it is started again
		admin = await Client.login(server);
		authority = (await admin.call("server.info")).authority_sha256;
		await admin.call("events.subscribe", { topics: ["inventory"] });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});
	const ticketOf = (params = {}) => admin.call("node.ticket", params);
	const meeting = async (node_id, options) => (await Stranger.connect(server, options)).meet(node_id, authority);
	const told = (kind, node_id) => admin.event(({ data }) => data.change?.kind === kind && data.change.node_id === node_id, `${kind} of ${node_id}`);

	test("by ticket; then it needs neither ticket nor address, and both ends may restart", async () => {
		const { ticket, address: reachable } = await ticketOf();
		assert.match(reachable, new RegExp(`:${server.port}$`));
		let one = startNode(["--join", address(server), "--ticket", ticket, "--name", "first"]);
		const id = await idOf(one);
		await told("node.joined", id);
		await becomes(admin, id, "online");
		for (const name of ["node.pem", "authority.pem", "server"]) assert.equal(statSync(one.tls(name)).mode & 0o777, 0o600, name);
		assert.ok(!existsSync(one.tls("node.key")), "the key is in node.pem now");
		assert.equal((await one.stop()).code, 0);
		await becomes(admin, id, "offline");
		one = startNode([], { data: one.data });
		await becomes(admin, id, "online");
		const { code } = await server.stop("SIGKILL").catch((error) => assert.fail(error));
		assert.notEqual(code, 0);
		await one.said(/no server answers at/);
		server = await startServer({ ...lan, listen: `0.0.0.0:${server.port}`, data: server.data });
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["inventory"] });
		await becomes(admin, id, "online");
		assert.deepEqual((await admin.call("ticket.list")).tickets.map((kept) => [kept.uses, kept.used]), [[1, 1]]);
		const { stderr } = await one.stop();
		assert.doesNotMatch(stderr, new RegExp(ticket.slice(20, 60)), "the ticket is in no log");
		assert.doesNotMatch(server.output.stderr, new RegExp(ticket.slice(20, 60)));
	});

	test("by ticket again on a node that has joined: not needed, not used", async () => {
		const { ticket, ticket_id } = await ticketOf();
		const one = startNode(["--join", address(server), "--ticket", ticket]);
		await becomes(admin, await idOf(one), "online");
		await one.stop();
		const again = startNode(["--join", address(server), "--ticket", ticket], { data: one.data });
		await again.said(/joined already/);
		await again.said(/connected to the server/);
		await again.stop();
		assert.equal((await admin.call("ticket.list")).tickets.find((kept) => kept.ticket_id === ticket_id).used, 1);
		// Its folder is not for the node of a server on this machine.
		const local = await ended(startNode(["--join", "unix:/nonexistent/exogpu.sock"], { data: one.data }));
		assert.deepEqual([local.code, /belongs to a node that has joined the server at 127/.test(local.stderr)], [1, true], local.stderr);
	});

	test("by a person's word: both sides show the same six digits", async () => {
		const one = startNode(["--join", `https://${address(server)}/`, "--accept-code", "--name", "second"]);
		const id = await idOf(one), [, high, low] = await one.said(/must show (\d{3}) (\d{3}) for this node/);
		const waiting = (await told("node.waiting", id)).data;
		assert.equal(waiting.node.state, "pending");
		const listed = (await admin.call("node.waiting")).waiting.find((other) => other.node_id === id);
		assert.deepEqual([listed.code, listed.name, listed.known, listed.peer], [high + low, "second", false, "127.0.0.1"]);
		assert.equal(await stateOf(admin, id), "pending");
		const shown = await cli(server, "nodes");
		assert.match(shown.stdout, new RegExp(`code ${high} ${low}.*nodes approve ${id} ${high}${low}`));
		const wrong = await cli(server, "nodes", "approve", id, high === "000" ? "111111" : "000000");
		assert.deepEqual([wrong.code, /shows another code/.test(wrong.stderr)], [1, true], wrong.stderr);
		const named = await cli(server, "nodes", "approve", "second");
		assert.deepEqual([named.code, /add the six digits that it shows/.test(named.stderr)], [1, true], named.stderr);
		const { code, stdout } = await cli(server, "nodes", "approve", "Second", high + low);
		assert.deepEqual([code, stdout], [0, `let in ${id}\n`]);
		await becomes(admin, id, "online");
		assert.deepEqual((await admin.call("node.waiting")).waiting, []);
		await one.stop();
	});

	// On a terminal (of script(1)) the node asks whoever sits there, and takes nothing before it has heard yes. The shell
	// that script starts is a given one, and it becomes the node (exec) where an interrupt is sent: some that run it as a
	// child end by the interrupt themselves when the node has ended as it should, with 130.
	test("on a terminal the digits are shown large, and the person there has the last word", async () => {
		const data = temporary();
		const node = `${binary} node --data ${data} --backends cpu --join ${address(server)}`;
		for (const [word, command] of [["n", `${node}; ended=$?; grep flags /proc/self/fdinfo/0; exit $ended`], ["y", `exec ${node}`]]) {
			const child = spawn("script", ["-qec", command, "/dev/null"],
				{ stdio: ["pipe", "pipe", "inherit"], env: { ...process.env, SHELL: "/bin/sh" } });
			let said = "";
			child.stdout.setEncoding("utf8").on("data", (text) => (said += text));
			const exited = once(child, "close").then(([code, signal]) => code ?? signal);
			const hears = (pattern) => eventually(() => pattern.exec(said), `the terminal shows ${pattern}`, long)
				.catch((error) => { throw new Error(`${error.message}; it shows ${said}`); });
			const [, id] = await hears(/as node (node_[0-9a-f]+)/), [, high, low] = await hears(/ {4}(\d{3}) (\d{3})\r?\n/);
			await hears(/\[y\/N\] /);
			const { code } = (await admin.call("node.waiting")).waiting.find((one) => one.node_id === id);
			assert.equal(code, high + low);
			if (word === "y") { // let in first: the grant waits for the word
				await admin.call("node.approve", { node_id: id });
				await hears(/has let this node in/);
				assert.ok(!existsSync(join(data, "node", "tls", "node.pem")), "nothing is taken yet");
			}
			child.stdin.write(`${word}\n`);
			if (word === "n") {
				endedWith(1, await within(exited, () => `it ends; it said ${said}`, long), said);
				assert.match(said, /this node has not joined/);
				const [, flags] = /^flags:\s*(\d+)/m.exec(said);
				assert.equal(parseInt(flags, 8) & constants.O_NONBLOCK, 0, "the terminal is left as it was");
				await eventually(async () => !(await admin.call("node.waiting")).waiting.length, "it does not wait any more", long);
			} else {
				await becomes(admin, id, "online");
				child.stdin.write("\x03"); // the terminal's interrupt
				endedWith(0, await within(exited, () => `it ends; it said ${said}`, long), said);
			}
		}
	});

	test("who took the place of the one that was looked at is not let in", async () => {
		const seen = await meeting("nod_place");
		await seen.close();
		await eventually(async () => !(await admin.call("node.waiting")).waiting.length, "it is gone", long);
		const other = await meeting("nod_place"); // under another key, before the person says yes
		await admin.refused("node.approve", { node_id: "nod_place", code: seen.code }, "conflict");
		assert.equal((await admin.call("node.waiting")).waiting.length, 1);
		await admin.call("node.approve", { node_id: "nod_place", code: other.code });
		assert.equal((await other.decided()).approved, true);
	});

	test("turned away: the node says so and ends", async () => {
		const one = startNode(["--join", address(server), "--accept-code"]);
		const id = await idOf(one);
		await one.said(/must show/);
		await admin.call("node.refuse", { node_id: id });
		const { code, stderr } = await ended(one);
		assert.equal(code, 1);
		assert.match(stderr, /was not let in: somebody has turned this node away/);
		await told("node.refused", id);
		assert.equal(await stateOf(admin, id), undefined);
		await admin.refused("node.approve", { node_id: id }, "not_found");
	});

	test("tickets that are not good are each told apart to who has them", async () => {
		const used = await ticketOf(), revoked = await ticketOf(), brief = await ticketOf({ expires_in_s: 1 });
		await (await Stranger.connect(server)).joinByTicket("nod_uses", used.ticket);
		await admin.call("ticket.revoke", { ticket_id: revoked.ticket_id });
		await admin.refused("ticket.revoke", { ticket_id: revoked.ticket_id }, "conflict");
		await eventually(() => Date.now() > Date.parse(brief.expires_at), "the ticket expires", long);
		const mistyped = used.ticket.slice(0, 30) + (used.ticket[30] === "x" ? "y" : "x") + used.ticket.slice(31);
		for (const [ticket, pattern, status] of [[used.ticket, /used up/, 1], [revoked.ticket, /was revoked/, 1], [brief.ticket, /expired/, 1],
			[mistyped, /mistyped/, 2], ["exojoin_short", /not a ticket/, 2]]) {
			const { code, stderr } = await ended(startNode(["--join", address(server), "--ticket", ticket]));
			assert.equal(code, status, stderr);
			assert.match(stderr, pattern);
		}
		const stranger = await Stranger.connect(server);
		await assert.rejects(stranger.ask("nod_guess", { ticket: "exojoin_" + "a".repeat(105) }), /unauthenticated/);
		assert.equal((await within(stranger.closed, "one try on a connection")).code, 4403);
	});

	test("the same node may ask again with its key when the answer was lost; another key may not", async () => {
		const { ticket } = await ticketOf({ uses: 5 }), request = makeRequest();
		await (await Stranger.connect(server, request)).joinByTicket("nod_twice", ticket);
		const again = await (await Stranger.connect(server, request)).joinByTicket("nod_twice", ticket);
		const mine = await FakeNode.connect(server, smallRecord("nod_twice"), { unix: false, cert: again.certificate, key: request.key });
		await becomes(admin, "nod_twice", "online");
		const thief = await Stranger.connect(server);
		await assert.rejects(thief.joinByTicket("nod_twice", ticket), /conflict/);
		// Without a ticket a person decides, and is told that the place is taken; then the first one is cut off.
		const other = await meeting("nod_twice");
		const [listed] = (await admin.call("node.waiting")).waiting;
		assert.deepEqual([listed.node_id, listed.known, listed.code], ["nod_twice", true, other.code]);
		await admin.call("node.approve", { node_id: "nod_twice" });
		assert.equal((await within(mine.closed, "the first is cut off")).code, 4403);
		const { approved, grant } = await other.decided();
		assert.ok(approved && grant.certificate);
		const old = await FakeNode.connect(server, undefined, { unix: false, cert: again.certificate, key: request.key });
		assert.equal((await within(old.closed, "its certificate is not taken any more")).code, 4403);
		const next = await FakeNode.connect(server, smallRecord("nod_twice"), { unix: false, cert: grant.certificate, key: other.request.key });
		await becomes(admin, "nod_twice", "online");
		await next.close();
	});

	test("a node is the one of its certificate and no other", async () => {
		const { ticket } = await ticketOf(), one = await Stranger.connect(server);
		const { certificate } = await one.joinByTicket("nod_mine", ticket);
		const link = await FakeNode.connect(server, undefined, { unix: false, cert: certificate, key: one.request.key });
		await assert.rejects(link.call("node.register", { protocol: nodeContract["x-protocol"], node: smallRecord("nod_yours") }), /forbidden/);
		await link.call("node.register", { protocol: nodeContract["x-protocol"], node: smallRecord("nod_mine") });
		await assert.rejects(link.call("node.register", { protocol: nodeContract["x-protocol"], node: smallRecord("nod_yours") }), /forbidden/);
		// A new certificate for the same node, under a new key; the old one is still good.
		const next = makeRequest();
		const { grant } = await link.call("node.renew", { request: next.pem });
		assert.notEqual(grant.certificate, certificate);
		await assert.rejects(link.call("node.renew", { request: next.pem }), /rate_limited/);
		const credentials = { unix: false, cert: grant.certificate, key: next.key };
		const second = await FakeNode.connect(server, undefined, credentials);
		second.call("node.register", { protocol: nodeContract["x-protocol"], node: smallRecord("nod_mine") }).catch(() => {});
		assert.equal((await within(second.closed, "the first speaks for it, as it shows when it is asked")).code, 4409);
		assert.equal(await stateOf(admin, "nod_mine"), "online");
		// What was cut off without a word does not answer, and is closed when that is known.
		link.socket.pause();
		const back = await FakeNode.connect(server, smallRecord("nod_mine"), credentials);
		link.socket.resume();
		assert.equal((await within(link.closed, "the second speaks for it now")).code, 4409);
		assert.equal(await stateOf(admin, "nod_mine"), "online");
		await back.close();
	});

	test("several at once with one certificate, as after a restart of the server: one gets the place, and the others are on record", async () => {
		const { ticket } = await ticketOf(), one = await Stranger.connect(server);
		const { certificate } = await one.joinByTicket("nod_several", ticket);
		const links = await Promise.all(Array.from({ length: 8 }, () =>
			FakeNode.connect(server, undefined, { unix: false, cert: certificate, key: one.request.key })));
		const from = server.output.stderr.length;
		const answers = await Promise.all(links.map((link) =>
			link.call("node.register", { protocol: nodeContract["x-protocol"], node: smallRecord("nod_several") }).then(() => true, () => false)));
		// One that stood still for 2 s has lost its place, and the log tells it; nobody else has.
		const silent = server.output.stderr.slice(from).match(/node nod_several is back from/g)?.length ?? 0;
		assert.equal(answers.filter(Boolean).length, 1 + silent, "nobody throws out who is just being admitted");
		const ends = await Promise.all(links.filter((_, i) => !answers[i]).map((link) => within(link.closed, "it is refused")));
		assert.deepEqual(new Set(ends.map((end) => end.code)), new Set([4409]));
		await eventually(async () => (await admin.call("audit.list", { action: "node.duplicate" })).entries.find((entry) => entry.target === "nod_several"),
			"it is on record", long);
		assert.equal(await stateOf(admin, "nod_several"), "online");
		for (const link of links) await link.close();
	});

	test("a folder that was copied: the node that runs keeps its place, both addresses are told, and the other gets it afterwards", async () => {
		const { ticket } = await ticketOf();
		const one = startNode(["--join", address(server), "--ticket", ticket, "--name", "twin"]), id = await idOf(one);
		await becomes(admin, id, "online");
		const data = temporary();
		cpSync(one.data, data, { recursive: true, filter: (path) => !path.endsWith(".part") });
		const other = startNode(["--name", "twin"], { data }), from = server.output.stderr.length;
		await other.said(/another process has this node's certificate .* give each its own --data/);
		assert.match(await eventually(() => /node \S+: a second one .*/.exec(server.output.stderr.slice(from))?.[0], "the server's log tells", long),
			new RegExp(`node ${id}: a second one with its certificate, from 127.0.0.1, is refused, since the first, from 127.0.0.1, is there`));
		const entry = await eventually(async () => (await admin.call("audit.list", { action: "node.duplicate" })).entries.find((one) => one.target === id),
			"it is on record", long);
		assert.deepEqual([entry.actor, entry.peer, entry.target, entry.outcome, entry.detail],
			[`node:${id}`, "127.0.0.1", id, "conflict", { refused: "127.0.0.1", stays: "127.0.0.1" }]);
		assert.equal(await stateOf(admin, id), "online");
		assert.doesNotMatch(one.output.stderr, /the connection to the server ended/, "the first noticed nothing");
		assert.equal(other.child.exitCode, null);
		assert.equal((await one.stop()).code, 0);
		await other.said(/connected to the server/);
		await becomes(admin, id, "online");
		assert.equal((await other.stop()).code, 0);
	});

	test("removed: cut off in the same turn, gone from every list, and it cannot come back by itself", async () => {
		const { ticket } = await ticketOf();
		const one = startNode(["--join", address(server), "--ticket", ticket, "--name", "leaving"]);
		const id = await idOf(one);
		const device = await eventually(async () => (await admin.call("cluster.snapshot")).devices.find((other) => other.node_id === id),
			"its CPU is there", long);
		const kept = readFileSync(one.tls("node.pem"), "utf8");
		const { code, stdout } = await cli(server, "nodes", "remove", id);
		assert.deepEqual([code, stdout], [0, `removed ${id}\n`]);
		await told("node.removed", id);
		const end = await ended(one);
		assert.equal(end.code, 1);
		assert.match(end.stderr, /the cluster has removed this node/);
		const { nodes, devices } = await admin.call("cluster.snapshot");
		assert.ok(!nodes.some((other) => other.node_id === id) && !devices.some((other) => other.device_id === device.device_id));
		await admin.refused("node.remove", { node_id: id }, "not_found");
		await admin.refused("device.verify", { device_id: device.device_id }, "not_found");
		const plain = await ended(startNode([], { data: one.data }));
		assert.deepEqual([plain.code, /no longer in the cluster at /.test(plain.stderr)], [1, true], plain.stderr);
		// Whoever kept a copy of its certificate gets no further.
		writeFileSync(one.tls("node.pem"), kept, { mode: 0o600 });
		const copied = await ended(startNode([], { data: one.data }));
		assert.equal(copied.code, 1);
		assert.match(copied.stderr, /the cluster has removed this node/);
		const fake = await FakeNode.connect(server, undefined, { unix: false, cert: kept, key: kept });
		assert.equal((await within(fake.closed, "a copy is refused")).code, 4403);
		// With a new ticket it is let in, under the same id, and its device is the same.
		const back = startNode(["--join", address(server), "--ticket", (await ticketOf()).ticket], { data: one.data });
		await becomes(admin, id, "online");
		await eventually(async () => (await admin.call("cluster.snapshot")).devices.some((other) => other.device_id === device.device_id),
			"its CPU is back", long);
		await back.stop();
	});

	test("what sessions hold on a removed node is lost, and they are told", async () => {
		const one = startNode(["--join", address(server), "--ticket", (await ticketOf()).ticket]);
		const id = await idOf(one);
		const device = await eventually(async () => (await admin.call("cluster.snapshot")).devices.find((other) =>
			other.node_id === id && other.verification.state === "passed"), "its CPU is verified", long);
		const { token } = await admin.call("token.create", { name: "holder", scopes: ["observe", "allocate"] });
		const holder = await Client.login(server, token);
		const { allocation_id } = await holder.call("memory.allocate", { device_id: device.device_id, bytes: 4096 });
		await admin.call("node.remove", { node_id: id });
		const notice = await holder.until(() => holder.notices.find((other) => other.method === "session.device_lost"), "session.device_lost");
		assert.ok(JSON.stringify(notice.params).includes(allocation_id), JSON.stringify(notice));
		await holder.refused("memory.free", { allocation_id }, "device_lost");
		await holder.refused("memory.allocate", { device_id: device.device_id, bytes: 4096 }, "not_found");
		assert.deepEqual((await holder.call("memory.list")).allocations, []);
		assert.equal((await ended(one)).code, 1);
		await holder.close();
	});

	test("how soon a removed node is cut off", async (t) => {
		const cut = [], answered = [];
		for (let i = 0; i < 20; i++) {
			const one = await Stranger.connect(server);
			const { certificate } = await one.joinByTicket(`nod_cut_${i}`, (await ticketOf()).ticket);
			const link = await FakeNode.connect(server, smallRecord(`nod_cut_${i}`), { unix: false, cert: certificate, key: one.request.key });
			const began = performance.now();
			const [, end] = await Promise.all([admin.call("node.remove", { node_id: `nod_cut_${i}` }).then(() => answered.push(performance.now() - began)),
				within(link.closed, "it is closed").then((end) => (cut.push(performance.now() - began), end))]);
			assert.equal(end.code, 4403);
		}
		const of = (list) => `${list.sort((a, b) => a - b)[10].toFixed(1)} ms, at most ${list.at(-1).toFixed(1)} ms`;
		t.diagnostic(`closed after ${of(cut)}; on disk and answered after ${of(answered)} (20 nodes)`);
	});

	test("what is removed stays removed after a restart of the server", async () => {
		const { ticket } = await ticketOf(), one = await Stranger.connect(server);
		const { certificate } = await one.joinByTicket("nod_gone", ticket);
		await admin.call("node.remove", { node_id: "nod_gone" });
		await server.stop();
		server = await startServer({ ...lan, listen: `0.0.0.0:${server.port}`, data: server.data });
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["inventory"] });
		assert.equal(await stateOf(admin, "nod_gone"), undefined);
		const link = await FakeNode.connect(server, undefined, { unix: false, cert: certificate, key: one.request.key });
		assert.equal((await within(link.closed, "refused")).code, 4403);
	});

	test("a certificate of another cluster, and one that nobody signed", async () => {
		const other = await startServer(lan), boss = await Client.login(other);
		const one = await Stranger.connect(other);
		const { certificate } = await one.joinByTicket("nod_mine", (await boss.call("node.ticket", {})).ticket);
		await assert.rejects(FakeNode.connect(server, undefined, { unix: false, cert: certificate, key: one.request.key }));
		const own = makeCertificate({ name: "nod_mine", names: ["exogpu:node:nod_mine"], uses: ["client"] });
		await assert.rejects(FakeNode.connect(server, undefined, { unix: false, cert: own.pem, key: own.key }));
		// A ticket of the one is nothing to the other: the node does not even show it.
		const { ticket } = await ticketOf();
		const { code, stderr } = await ended(startNode(["--join", address(other), "--ticket", ticket]));
		assert.equal(code, 1);
		assert.match(stderr, /cannot be joined: .*not from the authority that was asked for|the server does not send/);
		// And a node that has joined the one does not take the other for its server.
		const joined = startNode(["--join", address(server), "--ticket", ticket]);
		await joined.said(/connected to the server/);
		await joined.stop();
		const moved = startNode(["--join", address(other)], { data: joined.data });
		await moved.said(/is not taken for the server of this node/);
		assert.equal((await moved.stop()).code, 0);
		const home = startNode([], { data: joined.data }); // the wrong address was not kept
		await home.said(/connected to the server/);
		await home.stop();
		const wrong = await ended(startNode(["--join", address(other), "--ticket", (await boss.call("node.ticket", {})).ticket], { data: joined.data }));
		assert.deepEqual([wrong.code, /of another cluster than the one/.test(wrong.stderr)], [1, true], wrong.stderr);
		await other.finish();
	});

	test("a handshake that is cut, or stalls, is tried again: it says nothing about whose ticket that is", async () => {
		const { ticket } = await ticketOf(), met = [];
		const way = net.createServer((near) => {
			near.on("error", () => {}); // shows as its end
			const done = met.push(near);
			if (done === 1) near.once("data", () => near.destroy());
			else if (done === 2) near.resume(); // until the node has waited for long enough
			else {
				const far = net.connect(server.port, "127.0.0.1");
				near.pipe(far).on("error", () => near.destroy()).pipe(near).on("close", () => far.destroy());
			}
		});
		await once(way.listen(0, "127.0.0.1"), "listening");
		const at = `127.0.0.1:${way.address().port}`, one = startNode(["--join", at, "--ticket", ticket]);
		const id = await idOf(one);
		const cut = await one.said(new RegExp(`a server is there at ${at}, but the TLS handshake broke off: trying again in 2 s`));
		await eventually(() => /but the TLS handshake broke off: trying again/.test(one.output.stderr.slice(cut.index + cut[0].length)),
			"the node gives up the one that stalls", 60000 * slow);
		await becomes(admin, id, "online");
		assert.ok(met.length > 2);
		await one.stop();
		way.close();
	});

	test("a node that waits asks again when the server was restarted, and shows another code", async () => {
		const one = startNode(["--join", address(server), "--accept-code"]);
		const id = await idOf(one), [, high, low] = await one.said(/must show (\d{3}) (\d{3}) for this node/);
		await server.stop();
		server = await startServer({ ...lan, listen: `0.0.0.0:${server.port}`, data: server.data });
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["inventory"] });
		const listed = await eventually(async () => (await admin.call("node.waiting")).waiting.find((other) => other.node_id === id && other.code), "it waits", long);
		await one.said(new RegExp(`must show ${listed.code.slice(0, 3)} ${listed.code.slice(3)}`));
		assert.notEqual(listed.code, high + low); // one in a million
		await admin.call("node.approve", { node_id: id });
		await becomes(admin, id, "online");
		await one.stop();
	});

	test("this machine's own node: its place is not to be had, and it is not removed", async () => {
		const local = await FakeNode.connect(server, smallRecord("nod_local"));
		await becomes(admin, "nod_local", "online");
		await admin.refused("node.remove", { node_id: "nod_local" }, "conflict");
		const { ticket } = await ticketOf();
		await assert.rejects((await Stranger.connect(server)).joinByTicket("nod_local", ticket), /conflict/);
		await assert.rejects(meeting("nod_local"), /conflict/);
		assert.equal(await stateOf(admin, "nod_local"), "online");
		await local.close();
	});

	test("what is said to be wrong before anything is asked", async () => {
		for (const [args, status, pattern] of [
			[["--join", address(server)], 1, /somebody must compare six digits/],
			[["--join", "auto"], 1, /somebody must compare six digits/], [["--join", `http://${address(server)}`], 2, /by TLS/],
			[["--join", "host:0"], 2, /no address/], [["--join", "host:65536"], 2, /no address/], [["--join", ""], 2, /must not be empty/],
			[["--join", "[::1"], 2, /no address/],
			[["--join", "unix:/tmp/x", "--ticket", "x"], 2, /needs no --ticket/]]) {
			const { code, stderr } = await ended(startNode(args));
			assert.equal(code, status, `${args}: ${stderr}`);
			assert.match(stderr, pattern);
		}
		const alone = startNode(["--join", "127.0.0.1:1", "--ticket", (await ticketOf()).ticket]);
		await alone.said(/no server answers at 127.0.0.1:1 yet/);
		assert.equal((await alone.stop()).code, 0, "it waits until it is told not to");
		const unnamed = startNode(["--join", "nobody.invalid:52415", "--ticket", (await ticketOf()).ticket]);
		await unnamed.said(/the name nobody\.invalid is not known here \(.+\): trying again; or give the server's address/);
		assert.equal((await unnamed.stop()).code, 0, "and so it does for a name");
		const nowhere = startNode(["--ticket", (await ticketOf()).ticket]); // this server is not announced
		await nowhere.said(/looking for a server on the local networks/);
		assert.equal((await nowhere.stop()).code, 0, "and this one looks for it");
		const { code, stderr } = await ended(startNode(["--join", address(server), "--ticket", (await ticketOf()).ticket], { data: server.data }));
		assert.deepEqual([code, /folder of a server/.test(stderr)], [1, true], stderr);
	});

	test("every step is in the audit log", async () => {
		const { entries } = await admin.call("audit.list", { limit: 1000 });
		for (const action of ["ticket.create", "ticket.revoke", "node.join", "node.approve", "node.refuse", "node.renew", "node.remove"])
			assert.ok(entries.some((one) => one.action === action && one.outcome === "ok"), `${action} in ${[...new Set(entries.map((one) => one.action))]}`);
		const refused = await eventually(async () => (await admin.call("audit.list", { limit: 1000, action: "node.join", outcome: "failed" })).entries
			.find((one) => one.outcome === "unauthenticated"), "a refused join is counted", long);
		assert.equal(refused.actor, "nobody");
		assert.doesNotMatch(JSON.stringify(entries), /exojoin_/);
	});
});

test("a server that only this machine reaches takes no nodes, and says so", async () => {
	const server = await startServer();
	await assert.rejects(FakeNode.connect(server, undefined, { unix: false }), (error) => error.status === 403 && /--lan/.test(error.body));
	const admin = await Client.login(server), { ticket, address: none } = await admin.call("node.ticket", {});
	assert.equal(none, null);
	const { code, stderr } = await ended(startNode(["--join", `127.0.0.1:${server.port}`, "--ticket", ticket]));
	assert.equal(code, 1, stderr);
	assert.match(stderr, /cannot be joined/);
	const made = await cli(server, "ticket", "create");
	assert.deepEqual([made.code, /^exojoin_\w+\n$/.test(made.stdout), /start it with --lan/.test(made.stderr)], [0, true, true], made.stderr);
	const { token, token_id } = await admin.call("token.create", { name: "desk", scopes: ["admin"] });
	await (await Client.login(server, token)).call("node.ticket", {});
	assert.match((await cli(server, "ticket", "list")).stdout, new RegExp(`desk \\(${token_id}\\)`)); // who made it, as a person knows it
	await server.finish();
});
