// Several servers on one PostgreSQL: one leads, and is replaced when it is killed, frozen or stopped. Never two write, what
// was acknowledged is there, and the audit log is one. How long a change takes is printed and not judged: docs/reliability.md
// has what was measured.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { Postgres, skip } from "./postgres.mjs";
import { eventually, patience, run, slow, temporary, within } from "./server.mjs";
import { Servers } from "./servers.mjs";

delete process.env.EXOGPU_TEST_POSTGRES; // this suite says itself what is where
if (skip) console.log(`# skipped: ${skip}`);

describe("several servers on one database", { skip, timeout: 900000 * slow }, () => {
	let postgres, servers, all, leader;
	const followers = () => all.filter((one) => one !== leader);
	const makeToken = (client, name) => client.call("token.create", { name, scopes: ["observe"] });
	const names = async (client) => new Set((await client.call("token.list", {})).tokens.map((token) => token.name));
	const holds = async (client) => assert.equal((await client.call("audit.verify", {})).verdict, "holds");
	// Another one leads after `how`; the one that led follows again.
	const change = async (how) => {
		const before = leader, begun = performance.now();
		await how(before);
		leader = await servers.leader(followers());
		return Math.round(performance.now() - begun);
	};
	const back = async (server) => {
		const again = await servers.start({ data: server.data, port: server.port });
		all[all.indexOf(server)] = again;
		await servers.role(again, "follower");
	};

	before(async () => {
		postgres = await Postgres.start();
		servers = new Servers(postgres.make("turns"), { args: ["--limit", "audit_segment_entries=1000"] });
		// As a server of an earlier build left it: the tables have no columns for how each one stands.
		postgres.sql("turns", "CREATE SCHEMA exogpu_cluster; CREATE TABLE exogpu_cluster.servers (address TEXT PRIMARY KEY, stamp TIMESTAMPTZ NOT NULL)");
		leader = await servers.start();
		await servers.role(leader, "leader");
		all = [leader, await servers.start(), await servers.start()];
		for (const one of followers()) await servers.role(one, "follower");
	});
	after(async () => {
		await servers?.end();
		await postgres?.stop();
		assertContractKept();
	});

	test("the followers say who leads", async () => {
		const url = `http://127.0.0.1:${leader.port}/`;
		for (const one of followers()) {
			const health = await eventually(async () => { // it begins to follow before the leader has said where it is
				const said = await servers.health(one);
				return said?.leader && said;
			}, "the leader's address is known");
			assert.deepEqual([health.status, health.ready, health.leader], ["ok", false, url]);
			assert.ok(health.behind_ms >= 0 && Date.parse(health.since) <= Date.now() + 1000, JSON.stringify(health));
			assert.equal((await one.http("/readyz")).status, 503);
		}
		const admin = await servers.login(leader);
		const where = all.map(({ port }) => `http://127.0.0.1:${port}/`).sort();
		await eventually(async () => JSON.stringify((await admin.call("server.info", {})).servers?.toSorted()) === JSON.stringify(where), "all addresses are told");
	});

	test("how each server stands is told to whoever watches the topology", async () => {
		const admin = await servers.login(leader);
		await admin.call("events.subscribe", { topics: ["topology"] });
		const { data } = await admin.until(() => admin.events.find((event) => event.data.servers?.length === 3 && event.data.servers.every((one) => one.answers)), "all are told");
		assert.deepEqual(data.servers.map(({ address, role }) => [address, role]).toSorted(),
			all.map((one) => [`http://127.0.0.1:${one.port}/`, one === leader ? "leader" : "follower"]).toSorted());
		for (const one of data.servers) assert.ok(Date.parse(one.since) <= Date.now() + 1000 && one.behind_ms >= 0 && one.silent_ms >= 0, JSON.stringify(one));
		admin.socket.close();
	});

	test("of what others write into the database only an address is told", async () => {
		const admin = await servers.login(leader), old = "http://127.0.0.1:1/";
		await admin.call("events.subscribe", { topics: ["topology"] });
		const last = () => admin.events.findLast(({ data }) => data.servers)?.data.servers ?? [];
		// What a server of an earlier build tells, and what none does.
		postgres.sql("turns", `INSERT INTO exogpu_cluster.servers VALUES ('javascript:alert("1")', clock_timestamp()), ('', clock_timestamp()), (repeat('a', 300), clock_timestamp()),
			('http://never/', 'infinity'); INSERT INTO exogpu_cluster.servers VALUES ('${old}', clock_timestamp(), '<b>', 'epoch', -5)`);
		await admin.until(() => last().some(({ address }) => address === old), "the other is told");
		const { host, role, since, behind_ms: behind } = last().find(({ address }) => address === old);
		assert.deepEqual([host, role, since.slice(0, 10), behind], ["", "follower", "1970-01-01", 0]);
		assert.equal(last().length, 4, JSON.stringify(last()));
		postgres.sql("turns", `DELETE FROM exogpu_cluster.servers WHERE address NOT IN (${all.map(({ port }) => `'http://127.0.0.1:${port}/'`).join()})`);
		await admin.until(() => last().length === 3, "the others are told no more");
		admin.socket.close();
	});

	test("a server with another key, with none, or without a database is refused", async () => {
		const other = join(temporary(), "other.key"), bad = join(temporary(), "bad.key");
		writeFileSync(other, randomBytes(32).toString("hex"), { mode: 0o600 });
		writeFileSync(bad, "secret", { mode: 0o600 });
		const refused = async (words, ...args) => {
			const { code, stderr } = await run(["serve", "--data", temporary(), "--listen", "127.0.0.1:0", "--no-local-node", ...args]);
			assert.equal(code, 1, stderr);
			assert.match(stderr, words);
			assert.doesNotMatch(stderr, /secret\b/);
		};
		await refused(/does not open/, "--store", servers.url, "--cluster-key", other);
		await refused(/is no key of a cluster/, "--store", servers.url, "--cluster-key", bad);
		await refused(/there is no/, "--store", servers.url, "--cluster-key", `${bad}.none`);
		await refused(/in use by|is that of several servers/, "--store", servers.url);
		await refused(/--store names none/, "--cluster-key", servers.key);
		await servers.role(leader, "leader");
	});

	test("the database alone gives nobody the cluster's keys", async () => {
		const stored = postgres.sql("turns", "SELECT name, encode(bytes, 'hex') FROM exogpu_cluster.secrets ORDER BY name").split("\n").map((line) => line.split("|"));
		assert.deepEqual(stored.map(([name]) => name.replace(/\d+$/, "N")), ["audit/key-N", "conversations.key", "tls/authority.key", "tls/authority.pem"]);
		for (const [name, sealed] of stored) {
			const plain = readFileSync(join(leader.data, name));
			assert.equal(sealed.length, 2 * (plain.length + 28)); // a nonce and a tag
			assert.ok(!Buffer.from(sealed, "hex").includes(plain.subarray(0, 16)), name);
		}
	});

	test("a leader that is killed is replaced, again and again: what was acknowledged is there", async () => {
		const { made, more, end } = servers.changes("killed", () => leader), took = [];
		for (let i = 0; i < 3; i++) {
			await more();
			const before = leader;
			took.push(await change((one) => servers.stop(one, "SIGKILL")));
			await more();
			await back(before);
		}
		await end();
		const admin = await servers.login(leader);
		const known = await names(admin);
		assert.deepEqual([...made].filter((name) => !known.has(name)), [], "acknowledged, and not there");
		await holds(admin);
		console.log(`# killed, and replaced after ${took} ms; ${made.size} changes`);
	});

	test("a leader that is frozen is replaced, and writes nothing when it wakes", async () => {
		const before = leader, admin = await servers.login(before);
		await makeToken(admin, "before it froze");
		const took = await change((one) => one.child.kill("SIGSTOP"));
		const late = Array.from({ length: 5 }, (_, i) => makeToken(admin, `woken ${i}`).then(() => "made", () => "refused"));
		const current = await servers.login(leader);
		await makeToken(current, "meanwhile");
		before.child.kill("SIGCONT");
		for (const one of late) assert.equal(await within(one, "an answer, or its end"), "refused");
		assert.equal((await within(before.exited, "the woken one ends")).code, 3);
		assert.match(before.output.stderr, /another server has taken over/);
		const known = await names(current);
		assert.ok(known.has("before it froze") && known.has("meanwhile") && ![...known].some((name) => name.startsWith("woken")));
		await holds(current);
		await back(before);
		console.log(`# frozen, and replaced after ${took} ms`);
	});

	test("what a leader writes after its turn is refused by the database itself", async () => {
		const before = leader, admin = await servers.login(before);
		await makeToken(admin, "in its turn");
		before.child.kill("SIGSTOP"); // it must not learn of it before it writes
		postgres.sql("turns", "UPDATE exogpu_cluster.leader SET number = number + 1, stamp = 'epoch'");
		const late = makeToken(admin, "after its turn").then(() => "made", () => "refused");
		leader = await servers.leader(followers());
		before.child.kill("SIGCONT");
		assert.equal(await within(late, "an answer, or its end"), "refused");
		await within(before.exited, "it ends");
		const current = await servers.login(leader);
		assert.ok(!(await names(current)).has("after its turn"));
		// The same by hand, past the lock: the number alone keeps it out.
		assert.throws(() => postgres.sql("turns", "UPDATE exogpu.holder SET change = 1 * (1 / (SELECT CASE WHEN number = 1 THEN 1 ELSE 0 END FROM exogpu_cluster.leader))"),
			/division by zero/);
		await holds(current);
		await back(before);
	});

	test("a leader that is stopped hands over, and the log's new key with it", async () => {
		let admin = await servers.login(leader);
		const { segment } = await admin.call("audit.head", {});
		for (let made = 0; (await admin.call("audit.head", {})).segment === segment; made += 40)
			await Promise.all(Array.from({ length: 40 }, async (_, i) => {
				const { token_id } = await makeToken(admin, `until the next key ${made + i}`);
				await admin.call("token.revoke", { token_id });
			}));
		const before = leader;
		const took = await change((one) => servers.stop(one));
		admin = await servers.login(leader);
		await makeToken(admin, "by the next");
		await holds(admin);
		const newest = postgres.sql("turns", "SELECT max(number) FROM exogpu.audit_segments");
		assert.ok(Number(newest) > 0);
		await eventually(() => postgres.sql("turns", "SELECT name FROM exogpu_cluster.secrets WHERE name LIKE 'audit/%'") === `audit/key-${newest}`, "the old key is forgotten");
		const { code, stdout } = await run(["audit", "verify", "--data", leader.data], { XDG_STATE_HOME: temporary() });
		assert.equal(code, 0, stdout);
		await back(before);
		console.log(`# stopped, and replaced after ${took} ms`);
	});

	test("a follower that is stopped ends, is missed by nobody, and follows again", async () => {
		const [one] = followers(), admin = await servers.login(leader);
		await admin.call("events.subscribe", { topics: ["topology"] });
		assert.equal((await servers.stop(one)).code, 0, one.output.stderr);
		await admin.until(() => admin.events.findLast(({ data }) => data.servers)?.data.servers.length === 2, "it has said goodbye");
		admin.socket.close();
		await servers.role(leader, "leader");
		await back(one);
	});

	test("a server that is lost is told, until it is back; so is one that lags", async () => {
		const [one] = followers(), address = `http://127.0.0.1:${one.port}/`, admin = await servers.login(leader);
		const of = async (kind) => (await admin.call("alert.list", { state: "all" })).alerts.filter((alert) => alert.kind === kind && alert.subject.name === address);
		const becomes = (kind, stands) => eventually(async () => (await of(kind)).some((alert) => !alert.cleared_at) === stands, () => `${kind} stands: ${stands}`);
		await admin.call("alert.rule_set", { rule_id: "server_lags", threshold: 0.1, clear_threshold: 0, for_s: 0 }); // it looks four times a second
		await becomes("server_lags", true);
		assert.match((await of("server_lags"))[0].message, /\d s behind/);
		await admin.call("alert.rule_set", { rule_id: "server_lags", threshold: 9000, clear_threshold: 8000 });
		await becomes("server_lags", false);
		await admin.call("alert.rule_set", { rule_id: "server_lost", for_s: 0 });
		await admin.call("events.subscribe", { topics: ["topology"] });
		await servers.stop(one, "SIGKILL");
		await admin.until(() => admin.events.findLast(({ data }) => data.servers)?.data.servers.some((server) => server.address === address && !server.answers), "it does not answer");
		await becomes("server_lost", true);
		const [alert] = await of("server_lost");
		assert.deepEqual([alert.severity, alert.subject.type, alert.message], ["warning", "server", `the server at ${address} does not answer any more`]);
		await back(one);
		await becomes("server_lost", false);
		assert.equal((await of("server_lost")).length, 1);
		admin.socket.close();
	});

	test("a database that is away changes no leader", async () => {
		const before = postgres.sql("turns", "SELECT number FROM exogpu_cluster.leader");
		await postgres.stop();
		await postgres.again();
		const admin = await servers.login(leader);
		await eventually(() => makeToken(admin, "after the database").then(() => true, () => false), "changes are taken again");
		for (const one of followers()) await eventually(async () => (await servers.health(one))?.behind_ms < 4000, "it sees the database again", patience);
		assert.equal(postgres.sql("turns", "SELECT number FROM exogpu_cluster.leader"), before);
		await servers.role(leader, "leader");
		await holds(admin);
	});
});
