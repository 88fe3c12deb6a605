// PostgreSQL's own standby: its primary is lost, the standby is promoted, and the servers go on there. With a synchronous one
// nothing that was acknowledged is missing; with another one what is missing is noticed, and nothing is stored over it.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { Postgres, skip } from "./postgres.mjs";
import { eventually, slow } from "./server.mjs";
import { Servers } from "./servers.mjs";

delete process.env.EXOGPU_TEST_POSTGRES; // this suite says itself what is where
if (skip) console.log(`# skipped: ${skip}`);

describe("a standby of the database", { skip, timeout: 600000 * slow }, () => {
	const started = [];
	after(async () => {
		for (const one of started) await one.end?.();
		for (const one of started) await one.stop?.("SIGQUIT").catch(() => {});
		assertContractKept();
	});
	const both = (primary, standby, name) => `postgres://exogpu@/${name}?host=${primary.folder},${standby.folder}`;
	const names = async (client) => new Set((await client.call("token.list", {})).tokens.map((token) => token.name));
	const make = (client, name) => client.call("token.create", { name, scopes: ["observe"] });

	test("a synchronous one has all that was acknowledged", async () => {
		const primary = await Postgres.start();
		started.push(primary);
		primary.make("cluster");
		const standby = await primary.standby();
		started.push(standby);
		const servers = new Servers(both(primary, standby, "cluster"));
		started.push(servers);
		const first = await servers.start();
		await servers.role(first, "leader");
		const all = [first, await servers.start(), await servers.start()];
		for (const one of all.slice(1)) await servers.role(one, "follower");

		const { made, more, end } = servers.changes("promoted", () => servers.leader(all));
		await more();
		const begun = performance.now();
		await primary.stop("SIGQUIT"); // as by a crash, and it does not come back
		standby.promote();
		await more();
		const took = Math.round(performance.now() - begun);
		await end();
		const admin = await servers.login(await servers.leader(all));
		const known = await names(admin);
		assert.deepEqual([...made].filter((name) => !known.has(name)), [], "acknowledged, and not there");
		assert.equal((await admin.call("audit.verify", {})).verdict, "holds");
		const roles = await Promise.all(all.map((one) => servers.health(one)));
		assert.equal(roles.filter((one) => one?.role === "leader").length, 1, JSON.stringify(roles));
		console.log(`# promoted, and ten changes stored after ${took} ms; ${made.size} in all`);
	});

	test("one that had not got all is noticed: nothing is stored over what is missing", async () => {
		const primary = await Postgres.start();
		started.push(primary);
		primary.make("cluster");
		const standby = await primary.standby({ synchronous: false });
		started.push(standby);
		const servers = new Servers(both(primary, standby, "cluster"));
		started.push(servers);
		const server = await servers.start();
		await servers.role(server, "leader");
		let admin = await servers.login(server);
		await make(admin, "on both");
		const at = primary.sql("postgres", "SELECT pg_current_wal_lsn()");
		await eventually(() => standby.sql("postgres", `SELECT pg_last_wal_replay_lsn() >= '${at}'`) === "t", "the standby has it");
		await standby.stop();
		await make(admin, "on one");
		await primary.stop("SIGQUIT");
		await standby.again();
		standby.promote();
		await eventually(() => make(admin, "over it").then(() => { throw new Error("it was stored"); }, ({ said, hint }) => {
			return /holds what this server does not know of/.test(said ?? "") && /start this server again/.test(hint);
		}), () => `changes are refused; the log: ${server.output.stderr.slice(-2000)}`);
		await eventually(() => /lacks changes that were acknowledged/.test(server.output.stderr), "the log says so");
		assert.ok((await names(admin)).has("on one"), "what is in memory is read on");
		// A person decides, by starting it again: what is there counts.
		await servers.stop(server);
		const again = await servers.start({ data: server.data, port: server.port });
		await servers.role(again, "leader");
		admin = await servers.login(again);
		const known = await names(admin);
		assert.deepEqual(["on both", "on one", "over it"].map((name) => known.has(name)), [true, false, false]);
		await make(admin, "afterwards");
	});
});
