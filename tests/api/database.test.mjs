// A PostgreSQL that is in trouble and there all the same: full, read-only, or standing still. What runs goes on and is read,
// what changes is refused as unavailable with the reason, nothing is invented, and changes are taken again by themselves.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chownSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { Postgres, skip } from "./postgres.mjs";
import { eventually, patience, slow, startServer } from "./server.mjs";

delete process.env.EXOGPU_TEST_POSTGRES; // this suite says itself what is where
if (skip) console.log(`# skipped: ${skip}`);
const mounts = () => {
	if (process.getuid() !== 0) return "needs root, to mount a small file system";
	try {
		execFileSync("unshare", ["-m", "mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", "/mnt"], { stdio: "ignore" });
		return false;
	} catch {
		return "may not mount a small file system here";
	}
};

describe("a database in trouble", { skip, timeout: 600000 * slow }, () => {
	let postgres, server, admin, count = 0;
	const acknowledged = new Set(), refused = new Set();
	// A change: what it was refused with, or undefined.
	const change = async () => {
		const name = `token ${count++}`;
		try {
			await admin.call("token.create", { name, scopes: ["observe"] });
			acknowledged.add(name);
		} catch (error) {
			refused.add(name);
			return error;
		}
	};
	const reads = async () => {
		assert.ok((await admin.call("cluster.snapshot", {})).seq >= 0);
		assert.ok((await admin.call("token.list", {})).tokens.length >= 1);
		assert.equal((await server.http("/healthz")).status, 200);
	};
	const refusal = (words) => eventually(async () => {
		const error = await change();
		if (error) assert.equal(error.reason, "unavailable", error.message);
		return error && words.test(`${error.said} ${error.hint}`);
	}, `a change is refused with ${words}`, 2 * patience);
	const again = () => eventually(async () => !(await change()), () => `changes are taken again; the log: ${server.output.stderr.slice(-1500)}`, 2 * patience);
	const whole = async () => {
		const names = new Set((await admin.call("token.list", {})).tokens.map(({ name }) => name));
		assert.deepEqual([...acknowledged].filter((name) => !names.has(name)), [], "acknowledged, and not there");
		assert.deepEqual([...refused].filter((name) => names.has(name)), [], "refused, and there");
		assert.equal((await admin.call("audit.verify", {})).verdict, "holds");
	};

	before(async () => {
		postgres = await Postgres.start();
		server = await startServer({ args: ["--store", postgres.make("trouble")] });
		admin = await Client.login(server);
		assert.equal(await change(), undefined);
	});
	after(async () => {
		postgres?.signal("SIGCONT");
		await server?.finish();
		await postgres?.stop();
		assertContractKept();
	});

	test("one that stands still", async () => {
		postgres.signal("SIGSTOP");
		try {
			// Longer than any other call is waited for: the server waits 20 s for an answer, and then asks how the commit ended.
			const late = new Promise((resolve) => {
				admin.calls.set(admin.nextId, { name: "token.create", resolve: () => resolve("stored"), reject: ({ reason, message }) => resolve(reason ?? message) });
				admin.socket.send(JSON.stringify({ jsonrpc: "2.0", id: admin.nextId++, method: "token.create", params: { name: "late", scopes: ["observe"] } }));
			});
			await reads();
			assert.equal(await eventually(() => Promise.race([late, new Promise((done) => setTimeout(done, 100))]), "an answer, before it goes on", 3 * patience), "unavailable");
			await reads();
		} finally {
			postgres.signal("SIGCONT");
		}
		// It may have had the whole transaction in its hands, and have stored it when it went on: then the server, which has
		// refused it, stores nothing over it, says so, and is to be started again (docs/deployment.md).
		const error = await eventually(async () => {
			const fault = await change();
			return fault && /holds what this server does not know of/.test(fault.said) ? fault : !fault && "taken again";
		}, () => `changes are taken again; the log: ${server.output.stderr.slice(-1500)}`, 2 * patience);
		if (error !== "taken again") {
			assert.match(error.hint, /start this server again/);
			await server.finish();
			server = await startServer({ data: server.data, args: ["--store", postgres.url("trouble")] });
			admin = await Client.login(server);
			await again();
		}
		await whole();
		console.log(`# a database that stood still: ${error === "taken again" ? error : "the server had to be started again"}`);
	});

	test("one that has become read-only, as a standby is", async () => {
		await postgres.stop();
		const signal = join(postgres.folder, "data", "standby.signal");
		writeFileSync(signal, "");
		if (postgres.who.uid) chownSync(signal, postgres.who.uid, postgres.who.gid);
		await postgres.again();
		await refusal(/read-only|recovery|read-write/);
		await reads();
		await postgres.stop();
		rmSync(signal);
		await postgres.again();
		await again();
		await whole();
	});

	test("one whose disk is full", { skip: mounts() }, async () => {
		const small = join(postgres.folder, "small");
		mkdirSync(small);
		execFileSync("mount", ["-t", "tmpfs", "-o", "size=48M", "tmpfs", small]);
		try {
			chownSync(small, postgres.who.uid ?? 0, postgres.who.gid ?? 0);
			await server.finish();
			postgres.sql("postgres", `CREATE TABLESPACE small LOCATION '${small}'`);
			postgres.sql("postgres", "ALTER DATABASE trouble SET TABLESPACE small");
			server = await startServer({ data: server.data, args: ["--store", postgres.url("trouble")] });
			admin = await Client.login(server);
			assert.equal(await change(), undefined);
			// In pieces, so that nothing of the last page is left.
			postgres.sql("trouble", "CREATE TABLE public.filler (bytes TEXT)");
			for (const bytes of [1000000, 8000])
				for (let full = false; !full;)
					try {
						postgres.sql("trouble", `ALTER TABLE public.filler ALTER COLUMN bytes SET STORAGE EXTERNAL; INSERT INTO public.filler SELECT repeat('x', ${bytes})`);
					} catch (error) {
						full = /No space left|could not extend/i.test(`${error.stderr}${error.message}`);
						if (!full) throw error;
					}
			await refusal(/no space left to write/);
			await reads();
			postgres.sql("trouble", "DROP TABLE public.filler");
			await again();
			await whole();
		} finally {
			await server.finish();
			await postgres.stop();
			execFileSync("umount", ["-l", small]);
			server = undefined;
			await postgres.again().catch(() => {});
		}
	});
});
