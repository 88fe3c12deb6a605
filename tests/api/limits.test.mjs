// Limits of one address, of one token, and of all together: they leave the rest to others.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { connectRaw, eventually, run, slow, startServer, temporary, within } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const here = "127.0.0.1", elsewhere = "127.0.0.2"; // both are this machine; the server sees two
const outcome = (promise) => promise.then((value) => value, (error) => error);

describe("limits", () => {
	let server, admin;
	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("70 connections that never log in keep nobody else out", async () => {
		const begun = performance.now();
		const tries = await Promise.all(Array.from({ length: 70 }, () => outcome(Client.open(server, { from: here }))));
		await eventually(() => tries.filter((one) => one.end).length >= 38, "the first make room for the last");
		const open = tries.filter((one) => !one.end);
		assert.ok(open.length > 0 || performance.now() - begun > 5000, "32 are there, until their time to log in is over");
		const answers = await Promise.all(open.map((one) => one.call("token.list", {}).catch((error) => error.reason)));
		open.forEach((one, i) => assert.ok(answers[i] === "unauthenticated" || one.end.code === 4401, answers[i]));
		for (const { end } of tries) assert.ok(!end || end.code === 4401, JSON.stringify(end));
		const other = await Client.open(server, { from: elsewhere });
		await other.call("auth.login", { token: server.token });
		const known = await Client.open(server, { from: here, bearer: server.token }); // nor who comes with a token
		await known.call("cluster.snapshot");
		await Promise.all([other, known, ...open].map((one) => one.close()));
		const again = await Client.open(server, { from: here });
		await again.close();
	});

	test("who says nothing at all is counted too, and goes after a while", async () => {
		const own = await startServer({ args: ["--limit", "connections_of_address=10"] });
		const silent = [];
		for (let i = 0; i < 9; i++) {
			silent.push(connectRaw(own, ""));
			await once(silent[i].socket, "connect");
		}
		const first = await Client.open(own, { bearer: own.token }); // the tenth
		const second = await Client.open(own, { bearer: own.token }); // the slowest stranger of the address makes room
		await within(silent[0].ended, "that is the first of them");
		const known = [first, second];
		while (known.length < 10) known.push(await Client.open(own, { bearer: own.token }));
		const over = await outcome(Client.open(own, { bearer: own.token }));
		assert.equal(over.status, 429, over.message ?? "taken");
		await Promise.all(known.slice(1).map((one) => one.close()));
		const other = await Client.login(own, own.token, { from: elsewhere });
		await other.close();
		await first.close();
		const ended = await within(Promise.all(silent.map((one) => one.ended)), "they are closed", 30000 * slow);
		assert.equal(ended.length, 9);
		const again = await Client.login(own);
		await again.close();
		await own.finish();
	});

	test("failed log-ins wait longer and longer, and hold nothing else up", async () => {
		const order = [];
		const guesser = await Client.open(server, { from: elsewhere });
		const guess = (name) => guesser.refused("auth.login", { token: "nonsense" }, "unauthenticated").then(() => order.push(name));
		for (let i = 0; i < 5; i++) await guess("early");
		const begun = performance.now();
		const late = [guess("first"), guess("second")];
		const busy = guesser.call("server.info").then(() => order.push("info")); // the same connection
		const neighbour = Client.login(server, server.token, { from: elsewhere }).then(async (client) => {
			await client.call("cluster.snapshot"); // the same address, with a good token
			order.push("neighbour");
			await client.close();
		});
		await Promise.all([busy, neighbour, ...late]);
		assert.deepEqual(order.filter((one) => one !== "early").toSorted(), ["first", "info", "neighbour", "second"]);
		assert.ok(order.indexOf("info") < order.indexOf("first"), order.join());
		assert.ok(order.indexOf("first") < order.indexOf("second"), order.join());
		console.log(`the sixth and seventh failure were answered after ${(performance.now() - begun).toFixed(0)} ms: ${order.slice(5).join(", ")}`);
		await guesser.close();
	});

	test("so many answers of a connection wait, and no more", async () => {
		const guesser = await Client.open(server, { from: "127.0.0.4" });
		guesser.socket._socket.cork(); // they come together: an answer that waits is due after a quarter of a second
		const answers = Array.from({ length: 20 }, () => guesser.call("auth.login", { token: "nonsense" }).catch((error) => error.reason ?? "closed"));
		guesser.socket._socket.uncork();
		const reasons = await Promise.all(answers);
		assert.equal(reasons.filter((one) => one === "rate_limited").length, 20 - 5 - 8, reasons.join());
		await guesser.close();
	});

	test("who goes while its answer waits keeps its place until then", async () => {
		// Two places; and all but the first failures of an address wait for 4.5 s.
		const own = await startServer({ args: ["--limit", "not_logged_in_of_address=2,login_failures=1,login_delay_ms=4500"] });
		const guess = (client, times) => Array.from({ length: times }, () => client.call("auth.login", { token: "nonsense" }).catch(() => {}));
		const first = await Client.open(own);
		await Promise.all(guess(first, 6));
		await first.close();
		const tries = await Promise.all([1, 2].map(() => eventually(() => outcome(Client.open(own)).then((one) => one instanceof Client && one), "there is a place")));
		for (const one of tries) guess(one, 1);
		await Promise.all(tries.map((one) => one.refused("token.list", {}, "unauthenticated"))); // those were read before
		await Promise.all(tries.map((one) => one.close()));
		const refused = await outcome(Client.open(own)); // all places are held, by nobody
		assert.equal(refused.status, 429, refused.message ?? "taken");
		assert.ok(JSON.parse(refused.body).hint);
		await eventually(() => outcome(Client.open(own)).then((one) => one instanceof Client && one.close().then(() => true)),
			"a place is free once the answers were due");
		// An answer that is due after the time to log in comes before the connection is closed.
		const late = await Client.open(own);
		await new Promise((resolve) => setTimeout(resolve, 1500)); // of 5 s
		await late.refused("auth.login", { token: "nonsense" }, "unauthenticated");
		assert.equal((await within(late.closed, "it is closed then")).code, 4401);
		await own.finish();
	});

	test("a child takes from what its parent may have", async () => {
		const parent = await admin.call("token.create", { name: "parent", scopes: ["admin"], max_sessions: 2, calls_per_s: 1000 });
		const mother = await Client.login(server, parent.token);
		for (const more of [{ max_sessions: 3 }, { calls_per_s: 1001 }])
			await mother.refused("token.create", { name: "child", scopes: ["observe"], ...more }, "forbidden");
		const child = await mother.call("token.create", { name: "child", scopes: ["observe"] });
		const { tokens } = await admin.call("token.list");
		const record = tokens.find((one) => one.token_id === child.token_id);
		assert.deepEqual([record.max_sessions, record.calls_per_s], [2, 1000]);
		const first = await Client.login(server, child.token);
		const second = await Client.open(server);
		await second.refused("auth.login", { token: child.token }, "limit_exceeded"); // the parent has two, with this one
		await second.close();
		await first.close();
		await mother.close();
	});
});

test("memory of a child counts for its parent", async () => {
	const server = await startServer(), admin = await Client.login(server), node = await WorkerNode.start(server);
	const parent = await admin.call("token.create", { name: "parent", scopes: ["admin"], memory_limit_bytes: 1000 });
	const mother = await Client.login(server, parent.token);
	const made = [];
	for (const name of ["one", "two"]) made.push(await mother.call("token.create", { name, scopes: ["allocate"] }));
	const [one, two] = await Promise.all(made.map(({ token }) => Client.login(server, token)));
	const allocate = (client, bytes) => client.call("memory.allocate", { device_id: "dev_cpu", bytes });
	const { allocation_id } = await allocate(one, 600);
	await two.refused("memory.allocate", { device_id: "dev_cpu", bytes: 401 }, "limit_exceeded");
	await allocate(two, 400);
	await mother.refused("memory.allocate", { device_id: "dev_cpu", bytes: 1 }, "limit_exceeded");
	await one.call("memory.free", { allocation_id });
	await allocate(mother, 600);
	await node.close();
	await server.finish();
	assertContractKept();
});

describe("limits that are set", () => {
	test("hold, and server.info shows them", async () => {
		const server = await startServer({ args: ["--limit", "connections_of_address=3,messages_per_s=10,in_flight_bytes_of_token=33554432"] });
		const admin = await Client.login(server), { limits } = await admin.call("server.info");
		assert.deepEqual([limits.connections_of_address, limits.messages_per_s, limits.in_flight_bytes_of_token, limits.connections],
			[3, 10, 33554432, 4096]);
		const more = [await Client.open(server, { bearer: server.token }), await Client.open(server, { bearer: server.token })];
		const refused = await outcome(Client.open(server, { bearer: server.token }));
		assert.equal(refused.status, 429, refused.message ?? "taken");
		const other = await Client.open(server, { from: elsewhere });
		for (let i = 0; i < 25; i++) other.call("server.info").catch(() => {});
		assert.equal((await other.closed).code, 4429);
		await Promise.all([admin, ...more].map((one) => one.close()));
		await server.finish();
	});

	test("a segment of the audit log ends when it is set to", async () => {
		const server = await startServer({ args: ["--limit", "audit_segment_entries=1000,audit_segment_days=1,audit_keep_days=7,audit_segment_bytes=1048576"] });
		const admin = await Client.login(server), { limits } = await admin.call("server.info");
		assert.deepEqual([limits.audit_segment_entries, limits.audit_segment_days, limits.audit_keep_days, limits.audit_segment_bytes], [1000, 1, 7, 1048576]);
		for (let i = 0; i < 5; i++)
			await Promise.all(Array.from({ length: 210 }, () => admin.call("token.create", { name: "one of many", scopes: ["observe"] })));
		await eventually(() => readdirSync(join(server.data, "audit")).some((name) => name.endsWith(".exoaudit")), "an archive is written", 60000 * slow);
		await admin.close();
		await server.finish();
		for (const [setting, range] of [["audit_segment_entries=999", "1000 to 4000000"], ["audit_keep_days=0", "1 to 36500"]]) {
			const { code, stderr } = await run(["serve", "--data", temporary(), "--listen", "127.0.0.1:0", "--limit", setting]);
			assert.deepEqual([code, stderr.includes(range)], [2, true], stderr);
		}
	});

	test("bytes under way are bounded for each token", async () => {
		const server = await startServer({ args: ["--limit", "in_flight_bytes_of_token=33554432"] });
		const admin = await Client.login(server), node = await WorkerNode.start(server);
		const make = () => admin.call("token.create", { name: "lab", scopes: ["allocate"] }).then(({ token }) => token);
		const token = await make(), size = 16 * 1024 * 1024;
		const open = async (text) => {
			const client = await Client.login(server, text);
			const { allocation_id } = await client.call("memory.allocate", { device_id: "dev_cpu", bytes: size });
			return Object.assign(client, { id: allocation_id });
		};
		const clients = [await open(token), await open(token), await open(token), await open(await make())];
		const waiting = [];
		for (const worker of node.workers) worker.answers["memory.read"] = (_params, _body, id) => (waiting.push([worker, id]), null);
		const read = (client) => client.call("memory.read", { allocation_id: client.id, offset: 0, bytes: size });
		const reads = [read(clients[0]), read(clients[1])];
		await eventually(() => waiting.length === 2, "two are under way");
		await clients[2].refused("memory.read", { allocation_id: clients[2].id, offset: 0, bytes: 1 }, "limit_exceeded");
		const other = read(clients[3]); // another token's
		await eventually(() => waiting.length === 3, "three are");
		for (const [worker, id] of waiting) worker.send({ jsonrpc: "2.0", id, result: { bytes: size } }, Buffer.alloc(size));
		for (const one of await Promise.all([...reads, other])) assert.equal(one.bytes, size);
		delete node.workers[2].answers["memory.read"];
		await clients[2].call("memory.read", { allocation_id: clients[2].id, offset: 0, bytes: 1 });
		await server.finish();
		assertContractKept();
	});

	test("what cannot be set is refused, with what could be meant", async () => {
		for (const [setting, said] of [["conections=9", /did you mean connections/], ["connections=1", /from 8 to 4096/], ["head_bytes=9", /no limit head_bytes/]]) {
			const { code, stderr } = await run(["serve", "--limit", setting]);
			assert.equal(code, 2, stderr);
			assert.match(stderr, said);
		}
		const { stdout } = await run(["serve", "--help"]);
		for (const name of ["connections_of_address", "login_failures", "messages_per_s"]) assert.match(stdout, new RegExp(`${name} +\\d+ `));
	});
});
