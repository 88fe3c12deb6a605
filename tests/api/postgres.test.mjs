// PostgreSQL as the store: what was made is there after a restart, one server has a database, a database that goes away
// takes no more with it than the changes, and a store moves there and back with its audit log whole.
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { makeCertificate } from "./certificates.mjs";
import { Client, assertContractKept } from "./client.mjs";
import { Postgres, skip } from "./postgres.mjs";
import { eventually, freePort, run, startServer, temporary } from "./server.mjs";

delete process.env.EXOGPU_TEST_POSTGRES; // this suite says itself what is where
if (skip) console.log(`# skipped: ${skip}`);

describe("PostgreSQL as the store", { skip }, () => {
	let postgres;
	const data = temporary(), state = temporary();
	const exogpu = (...words) => run(words, { XDG_STATE_HOME: state });
	const names = async (client) => (await client.call("token.list", {})).tokens.map((token) => token.name).sort();
	const makeToken = (client, name) => client.call("token.create", { name, scopes: ["observe"] });
	const verified = async (folder) => {
		const { code, stdout, stderr } = await exogpu("audit", "verify", "--data", folder);
		assert.equal(code, 0, stdout + stderr);
	};

	before(async () => {
		postgres = await Postgres.start();
	});
	after(() => postgres?.stop());

	test("what was made is there after a restart, and no file of SQLite's", async () => {
		let server = await startServer({ data, args: ["--store", postgres.make("one")] });
		let admin = await Client.login(server);
		await makeToken(admin, "first");
		assert.equal((await admin.call("audit.verify", {})).verdict, "holds");
		await server.stop();
		server = await startServer({ data }); // it knows where
		admin = await Client.login(server);
		assert.ok((await names(admin)).includes("first"));
		const { entries } = await admin.call("audit.list", { action: "token.create" });
		assert.equal(entries.length, 2); // the first admin token, too
		assert.equal((await admin.call("audit.verify", {})).verdict, "holds");
		await server.stop();
		await verified(data);
		assert.ok(!existsSync(join(data, "state.db")) && !existsSync(join(data, "history.db")));
		assertContractKept();
	});

	test("a row that somebody writes there is refused", async () => {
		postgres.sql("one", "UPDATE exogpu.tokens SET expires_ms = expires_ms + 1 WHERE name = 'first'");
		const { code, stdout } = await exogpu("audit", "verify", "--data", data);
		assert.notEqual(code, 0);
		assert.match(stdout, /token \S+ is not what its newest entry says/);
		postgres.sql("one", "UPDATE exogpu.tokens SET expires_ms = expires_ms - 1 WHERE name = 'first'");
		await verified(data);
		assert.throws(() => postgres.sql("one", "UPDATE exogpu.audit SET actor = 'me'"), /append-only/);
	});

	test("one server has a database, and says who it is", async () => {
		const server = await startServer({ data });
		const second = await exogpu("serve", "--data", temporary(), "--listen", "127.0.0.1:0", "--store", postgres.url("one"));
		assert.equal(second.code, 1);
		assert.match(second.stderr, new RegExp(`in use by the exogpu server on .* \\(process ${server.child.pid}\\)`));
		await server.stop();
	});

	test("a password on the command line and a certificate that is not verified are refused", async () => {
		for (const [url, words] of [["postgres://me:secret@127.0.0.1/x", /PGPASSFILE/], ["postgres://me@db.example/x?password=secret", /PGPASSFILE/],
			["postgres://me@db.example/x?sslmode=require", /verify-full/], ["mysql://me@db.example/x", /postgres:\/\//]]) {
			const { code, stderr } = await exogpu("serve", "--data", temporary(), "--listen", "127.0.0.1:0", "--store", url);
			assert.notEqual(code, 0);
			assert.match(stderr, words);
			assert.doesNotMatch(stderr, /secret/);
		}
	});

	test("an empty database does not take the place of a log that a directory has keys of", async () => {
		const { code, stderr } = await exogpu("serve", "--data", data, "--listen", "127.0.0.1:0", "--store", postgres.make("empty"));
		assert.equal(code, 1);
		assert.match(stderr, /store copy/);
		assert.match(readFileSync(join(data, "store"), "utf8"), /\/one\?/);
	});

	for (const signal of ["SIGINT", "SIGQUIT"]) {
		test(`a database that ends by ${signal}: reads go on, changes are refused with a reason, and it comes back`, async () => {
			const server = await startServer({ data });
			const admin = await Client.login(server);
			await makeToken(admin, `before ${signal}`);
			await postgres.stop(signal);
			const refused = await admin.refused("token.create", { name: `during ${signal}`, scopes: ["observe"] }, "unavailable");
			assert.match(refused.said, /PostgreSQL/);
			assert.ok((await names(admin)).includes(`before ${signal}`));
			assert.equal((await server.http("/healthz")).status, 200);
			await postgres.again();
			await eventually(() => makeToken(admin, `after ${signal}`).then(() => true, () => false), "changes are taken again");
			assert.equal((await admin.call("audit.verify", {})).verdict, "holds");
			await server.stop();
			const again = await startServer({ data });
			const known = await names(await Client.login(again));
			assert.ok(known.includes(`before ${signal}`) && known.includes(`after ${signal}`) && !known.includes(`during ${signal}`));
			await again.stop();
			await verified(data);
		});
	}

	// A commit that is under way when the database dies is not answered: the server asks how it ended.
	test("crashes in the middle of changes: what was acknowledged is there, and nothing that was refused", async () => {
		const server = await startServer({ data });
		const admin = await Client.login(server);
		const made = new Set(), refused = new Set();
		let ending = false, why = "";
		const change = async (worker) => {
			for (let i = 0; !ending; i++) {
				const name = `crash ${worker}.${i}`;
				await makeToken(admin, name).then(() => made.add(name), async (error) => {
					refused.add(name);
					why = error.message;
					await new Promise((resolve) => setTimeout(resolve, 20));
				});
			}
		};
		const workers = Array.from({ length: 6 }, (_, worker) => change(worker));
		for (let crash = 0; crash < 3; crash++) {
			const before = made.size;
			await eventually(() => made.size > before + 20, () => `changes are made; ${why}; ${server.output.stderr}`);
			await postgres.stop("SIGQUIT");
			await postgres.again();
		}
		const before = made.size;
		await eventually(() => made.size > before + 20, () => `changes are made again; ${why}`);
		ending = true;
		await Promise.all(workers);
		const check = (known) => {
			assert.deepEqual([...made].filter((name) => !known.has(name)), [], "acknowledged, and not there");
			assert.deepEqual([...refused].filter((name) => known.has(name)), [], "refused, and there");
		};
		check(new Set(await names(admin)));
		assert.equal((await admin.call("audit.verify", {})).verdict, "holds");
		await server.stop();
		const again = await startServer({ data });
		check(new Set(await names(await Client.login(again))));
		await again.stop();
		await verified(data);
		console.log(`# ${made.size} made, ${refused.size} refused`);
	});

	test("whoever lost the database to another server writes no more", async () => {
		const server = await startServer({ data });
		const admin = await Client.login(server);
		postgres.sql("one", "UPDATE exogpu.holder SET id = 'another'");
		postgres.sql("one", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'exogpu server%' AND datname = 'one'");
		const refused = await admin.refused("token.create", { name: "too late", scopes: ["observe"] }, "unavailable");
		assert.match(refused.said, /does not know of/);
		await server.stop();
		await verified(data);
	});

	test("a store moves to a database and back, with its log", async () => {
		const files = temporary();
		let server = await startServer({ data: files });
		let admin = await Client.login(server);
		for (const name of ["x", "ä \u{1f600}", "z"]) await makeToken(admin, name);
		const before = await admin.call("audit.head", {});
		const url = postgres.make("moved");
		const running = await exogpu("store", "copy", "--from", files, "--to", url);
		assert.equal(running.code, 1);
		assert.match(running.stderr, /another server runs/);
		await server.stop();
		const there = await exogpu("store", "copy", "--from", files, "--to", url);
		assert.equal(there.code, 0, there.stderr);
		const twice = await exogpu("store", "copy", "--from", files, "--to", url);
		assert.equal(twice.code, 1);
		assert.match(twice.stderr, /is not empty/);
		server = await startServer({ data: files, args: ["--store", url] });
		admin = await Client.login(server);
		assert.ok((await names(admin)).includes("ä \u{1f600}"));
		assert.ok((await admin.call("audit.head", {})).size > before.size);
		await makeToken(admin, "there");
		const busy = await exogpu("store", "copy", "--from", url, "--to", temporary(), "--data", files);
		assert.equal(busy.code, 1);
		assert.match(busy.stderr, /in use by the exogpu server/);
		await server.stop();
		rmSync(join(files, "state.db"));
		rmSync(join(files, "history.db"));
		const back = await exogpu("store", "copy", "--from", url, "--to", files);
		assert.equal(back.code, 0, back.stderr);
		server = await startServer({ data: files });
		admin = await Client.login(server);
		assert.ok((await names(admin)).includes("there"));
		await server.stop();
		await verified(files);
		assert.ok(existsSync(join(files, "state.db")) && !existsSync(join(files, "store")));
	});

	// The address of another machine, as far as the server can tell.
	const address = Object.values(networkInterfaces()).flat().find(({ family, internal }) => family === "IPv4" && !internal)?.address;

	test("over the network the certificate is verified, and the password comes from a file", { skip: address ? false : "this machine has no address but loopback's" }, async () => {
		const authority = makeCertificate({ name: "authority", authority: true }), stranger = makeCertificate({ name: "stranger", authority: true });
		const folder = temporary(), port = await freePort(), passwords = join(folder, "passwords");
		for (const [name, { pem }] of Object.entries({ authority, stranger })) writeFileSync(join(folder, `${name}.pem`), pem);
		writeFileSync(passwords, `${address}:${port}:*:remote:a word\n`, { mode: 0o600 });
		postgres.sql("postgres", "CREATE ROLE remote LOGIN PASSWORD 'a word'");
		postgres.sql("postgres", "CREATE DATABASE far OWNER remote");
		const url = (name) => `postgres://remote@${address}:${port}/far?sslrootcert=${join(folder, `${name}.pem`)}`;
		const refused = async (name, words) => {
			const { code, stderr } = await run(["serve", "--data", temporary(), "--listen", "127.0.0.1:0", "--store", url(name)], { PGPASSFILE: passwords });
			assert.equal(code, 1, stderr);
			assert.match(stderr, words);
		};
		await postgres.listen(address, port, makeCertificate({ name: "db", names: ["another.example"], issuer: authority }));
		await refused("authority", /does not match host name/);
		await postgres.stop();
		await postgres.listen(address, port, makeCertificate({ name: "db", names: [address], issuer: authority }));
		await refused("stranger", /certificate verify failed/);
		const far = temporary();
		const server = await startServer({ data: far, args: ["--store", url("authority")], env: { PGPASSFILE: passwords } });
		await makeToken(await Client.login(server), "far");
		assert.equal(postgres.sql("far", "SELECT count(*) FROM exogpu.tokens WHERE name = 'far'"), "1");
		assert.equal(postgres.sql("far", "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'remote'"), "t");
		await server.stop();
		assert.doesNotMatch(server.output.stderr, /a word/);
	});
});
