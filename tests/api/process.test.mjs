// The process: how it starts, what it refuses with which words and exit status, and how it ends.
import assert from "node:assert/strict";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, readdirSync, statSync, writeFileSync, writeSync,
	chmodSync, rmSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { deviceRecord, nodeRecord } from "./records.mjs";
import { connectRaw, run, slow, startServer, temporary, upgradeHead, within } from "./server.mjs";

const serve = (data, ...more) => run(["serve", "--data", data, "--listen", "127.0.0.1:0", "--no-local-node", ...more]);

// Ended with `code`, said what is wrong and what to do, and nothing else.
function assertRefused(end, code, message, hint) {
	assert.equal(end.code, code, `exit status; it said: ${end.stderr}`);
	assert.match(end.stderr, message);
	assert.match(end.stderr, hint);
	assert.equal(end.stdout, "");
	const said = end.stderr.trim().split("\n").filter((line) => !/^\S+Z info /.test(line)); // a first start says what it makes
	assert.ok(said.length <= 3, end.stderr);
}

describe("starting", () => {
	test("makes the data directory, private, and says where the page is", async () => {
		const data = join(temporary(), "deep", "down");
		const server = await startServer({ data });
		assert.equal(statSync(data).mode & 0o777, 0o700);
		for (const name of readdirSync(data).filter((one) => one !== "node")) {
			const file = statSync(join(data, name), { throwIfNoEntry: false }); // it may be replaced just now
			assert.equal((file?.mode ?? 0) & 0o077, 0, `${name} is private`);
		}
		assert.match(server.token, /^exo_[0-9A-Za-z]{10}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$/);
		assert.ok(!server.output.stdout.includes(server.token), "no secret in a pipe");
		assert.equal(server.output.stdout, `dashboard: ${server.url}\ntoken: ${join(data, "admin.token")}\n`);
		assert.equal((await server.stop()).code, 0);
		assert.ok(!existsSync(server.socket), "its socket is gone");
	});

	test("a second server on the same data directory is refused, the first goes on", async () => {
		const server = await startServer();
		assertRefused(await serve(server.data), 1, new RegExp(`another server.*${server.child.pid}`), /--data/);
		await (await Client.login(server)).close();
		await (await Client.open(server, { unix: true })).close();
		await server.finish();
		await (await startServer({ data: server.data })).finish();
	});

	test("a port in use", async () => {
		const holder = net.createServer().listen(0, "127.0.0.1");
		await new Promise((resolve) => holder.once("listening", resolve));
		const { port } = holder.address();
		const end = await run(["serve", "--data", temporary(), "--listen", `127.0.0.1:${port}`, "--no-local-node"]);
		holder.close();
		assertRefused(end, 1, new RegExp(`127\\.0\\.0\\.1:${port} is in use`), /--listen/);
	});

	test("an address that is not this machine's", async () => {
		assertRefused(await run(["serve", "--data", temporary(), "--listen", "example.org:0"]), 2, /numeric address/, /./);
		for (const listen of ["203.0.113.1:0", "[2001:db8::1]:0"])
			assertRefused(await run(["serve", "--data", temporary(), "--listen", listen]), 1, /not an address of this machine|cannot listen/, /./);
	});

	test("a data directory that cannot be written", async (t) => {
		const place = temporary();
		writeFileSync(join(place, "file"), "");
		assertRefused(await serve(join(place, "file")), 1, /not a directory|cannot be made/, /--data/);
		assertRefused(await serve(join(place, "file", "below")), 1, /cannot be made/, /--data/);
		assertRefused(await serve("/proc/nothing/here"), 1, /cannot be made/, /--data/);
		if (process.getuid() === 0) return t.diagnostic("run by root, whom no mode of a directory stops: that part is left out");
		const closed = join(place, "closed");
		mkdirSync(closed, { mode: 0o500 });
		assertRefused(await serve(closed), 1, /not writable/, /chmod/);
	});

	test("a data directory that others can read is closed to them", async () => {
		const data = join(temporary(), "open");
		mkdirSync(data);
		chmodSync(data, 0o755);
		const server = await startServer({ data });
		assert.equal(statSync(data).mode & 0o777, 0o700);
		await server.finish();
	});

	test("a socket path that is too long", async () => {
		const data = join(temporary(), "d".repeat(100));
		assertRefused(await serve(data), 1, /socket's path/, /--data/);
	});

	test("a database from a newer version is refused and left as it is", async () => {
		const server = await startServer();
		await server.finish();
		const file = join(server.data, "state.db"), version = Buffer.from([0, 0, 0x27, 0x0f]);
		const descriptor = openSync(file, "r+");
		writeSync(descriptor, version, 0, 4, 60); // user_version in the header of the file
		closeSync(descriptor);
		const bytes = readFileSync(file);
		assertRefused(await serve(server.data), 1, /newer/, /./);
		assert.ok(readFileSync(file).equals(bytes), "not one byte differs");
	});

	test("a file that is no database", async () => {
		const data = temporary();
		writeFileSync(join(data, "state.db"), "this is not a database\n".repeat(200));
		assertRefused(await serve(data), 1, /state\.db/, /./);
		assert.match(readFileSync(join(data, "state.db"), "utf8"), /^this is not a database/);
	});

	test("the first token is made anew when its file is gone", async () => {
		const first = await startServer();
		await first.finish();
		rmSync(join(first.data, "admin.token"));
		const second = await startServer({ data: first.data });
		assert.notEqual(second.token, first.token);
		await (await Client.login(second)).close();
		await second.finish();
	});

	test("bad usage ends with 2 and a hint", async () => {
		const bare = (data, ...args) => run(["serve", "--data", data, "--no-local-node", ...args]);
		for (const args of [["--bogus"], ["--listen"], ["--listen", "127.0.0.1:99999"], ["--listen", "127.0.0.1:x"], ["--listen", "127.0.0.1:"],
			["--listen", "52000"], ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"],
			["--log-level", "loud"], ["--name", ""], ["--name", "n".repeat(65)], ["extra"], ["--lan", "--listen", "127.0.0.1:0"],
			["--tls-cert", "x"], ["--lan", "--tls-key", "x"], ["--tls-cert", "x", "--tls-key", "y"], ["--tls-name", "x"],
			["--listen", "127.1.2.3:0", "--tls-name", "x"]])
			assertRefused(await bare(temporary(), ...args), 2, /^exogpu: \S/, /--help|--lan/);
	});

	test("the command line makes a token, works with it, and ends it with those made with it", async () => {
		const server = await startServer(), at = { EXOGPU_DATA: join(temporary(), "none") };
		const made = await run(["token", "create", "--data", server.data, "--name", "a", "--scopes", "admin, observe"]);
		assert.match(made.stdout, /^exo_[0-9A-Za-z_]{61}\n$/, made.stderr);
		const below = await run(["token", "create", "--url", server.url, "--name", "b", "--scopes", "observe"],
			{ ...at, EXOGPU_TOKEN: ` ${made.stdout}` });
		const [parent, child] = [made, below].map((one) => one.stdout.split("_")[1]);
		const refused = await run(["token", "list", "--json"], { ...at, EXOGPU_URL: server.url, EXOGPU_TOKEN: below.stdout.trim() });
		assert.equal(refused.code, 1);
		assert.equal(JSON.parse(refused.stderr).error, "forbidden");
		const ended = await run(["token", "revoke", parent, "--data", server.data]);
		assert.equal(ended.stdout, `revoked ${parent}\nand 1 token made with it: ${child}\n`, ended.stderr);
		await server.finish();
	});

	test("--help explains every flag and ends with 0", async () => {
		const { code, stdout, stderr } = await run(["serve", "--help"]);
		assert.equal(code, 0, stderr);
		for (const flag of ["--listen", "--data", "--name", "--no-local-node", "--log-level", "--lan", "--tls-cert", "--tls-key", "--tls-name"]) assert.match(stdout, new RegExp(flag));
	});

	test("EXOGPU_DATA names the data directory", async () => {
		const holder = net.createServer().listen(0, "127.0.0.1");
		await new Promise((resolve) => holder.once("listening", resolve));
		const data = join(temporary(), "named");
		const end = await run(["serve", "--listen", `127.0.0.1:${holder.address().port}`, "--no-local-node"], { EXOGPU_DATA: data });
		holder.close();
		assert.ok(existsSync(join(data, "lock")), end.stderr);
	});
});

describe("stopping", () => {
	test("SIGTERM and SIGINT: closed with 1001, ended with 0, under connections of every kind", async () => {
		for (const signal of ["SIGTERM", "SIGINT"]) {
			const server = await startServer();
			const clients = await Promise.all([Client.login(server), Client.login(server), Client.open(server)]);
			await clients[0].call("events.subscribe", { topics: ["inventory", "log"] });
			const node = await FakeNode.connect(server, nodeRecord());
			await node.devices([deviceRecord()]);
			const half = connectRaw(server, "GET / HTTP"), deaf = connectRaw(server, upgradeHead(server));
			await deaf.until(/101/);
			const busy = setInterval(() => clients[1].socket.readyState === 1 && clients[1].call("cluster.snapshot").catch(() => {}), 1);
			const end = await server.stop(signal);
			clearInterval(busy);
			assert.deepEqual([end.code, end.signal], [0, null], end.stderr);
			console.log(`ended ${end.ms.toFixed()} ms after ${signal}`);
			for (const one of clients) assert.equal((await within(one.closed, "the close")).code, 1001);
			half.socket.destroy();
			deaf.socket.destroy();
		}
		assertContractKept();
	});

	test("with nobody there it ends as well", async () => {
		const server = await startServer();
		const end = await server.stop();
		assert.equal(end.code, 0);
		console.log(`ended after ${end.ms.toFixed()} ms`);
	});

	test("kill -9 in the middle of changes: the next start has what was answered", async () => {
		const server = await startServer();
		const client = await Client.login(server);
		const made = [];
		let stop = false;
		const making = (async () => {
			while (!stop) made.push(await client.call("token.create", { name: `t${made.length}`, scopes: ["observe"] }));
		})().catch(() => {});
		while (made.length < 50) await new Promise((resolve) => setTimeout(resolve, 5));
		await server.stop("SIGKILL");
		stop = true;
		await making;
		assert.ok(existsSync(server.socket), "a dead server's socket is left behind");
		const second = await startServer({ data: server.data });
		const admin = await Client.login(second);
		const known = new Set((await admin.call("token.list")).tokens.map((one) => one.token_id));
		for (const { token_id } of made) assert.ok(known.has(token_id), `${token_id} of ${made.length} was answered, and is gone`);
		await (await Client.login(second, made.at(-1).token)).close();
		await second.finish();
	});

	test("it starts with less than a second of a processor's time", async () => {
		const server = await startServer();
		const fields = readFileSync(`/proc/${server.child.pid}/stat`, "latin1").split(") ")[1].split(" ");
		const ms = (Number(fields[11]) + Number(fields[12])) * 10; // of the program and of the system; the system counts in 10 ms
		console.log(`ready after ${server.readyMs.toFixed()} ms, ${ms} ms of a processor`);
		assert.ok(ms < 1000 * slow, `${ms} ms`);
		await server.finish();
	});
});
