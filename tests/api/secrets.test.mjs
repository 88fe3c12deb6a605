// Secrets are never written: tokens, tickets, keys and tenants' bytes are in no log at the level debug, no error, no
// database and no audit log; and no process leaves a core file, which would contain them.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client } from "./client.mjs";
import { startMachine, workers } from "./machine.mjs";
import { connectRaw, eventually, launch, run, slow, startServer, temporary, within } from "./server.mjs";

const marker = "zebra-with-nine-stripes"; // no secret: it stands where it may, which shows that the search finds things
const bytes = "GIRAFFE-BYTES-OF-A-TENANT-7319";

// Base64 of a private key, from a file that has one; nothing where there is none.
function keyIn(path) {
	const [, text] = /-----BEGIN (?:EC )?PRIVATE KEY-----([^-]*)-----END/.exec(readFileSync(path, "latin1")) ?? [];
	return text?.replace(/\s/g, "").slice(-100, -10);
}

// How a secret (a text, or bytes) may lie in a file: as it is, or its part that counts, or in hexadecimal or Base64.
function shapes(secret) {
	const parts = typeof secret === "string" ? secret.split("_").filter((part) => part.length >= 30) : [];
	return [secret, ...parts].flatMap((part) => {
		const raw = Buffer.from(part);
		return [raw.toString("latin1"), raw.toString("hex"), raw.toString("base64").replace(/=*$/, "").slice(0, -1)];
	});
}

function filesBelow(folder) {
	return readdirSync(folder, { withFileTypes: true, recursive: true }).filter((one) => one.isFile())
		.map((one) => join(one.parentPath ?? one.path, one.name));
}

function coreLimit(pid) {
	const [, soft, hard] = /^Max core file size +(\w+) +(\w+) /m.exec(readFileSync(`/proc/${pid}/limits`, "latin1"));
	return [soft, hard];
}

// The secrets that stand in any of these texts, as `which: where`.
function leaks(secrets, texts) {
	return Object.entries(secrets).flatMap(([which, secret]) => Object.entries(texts)
		.filter(([, text]) => shapes(secret).some((shape) => text.includes(shape))).map(([where]) => `${which}: ${where}`));
}

const refused = (promise) => promise.then(() => assert.fail("it was not refused"), (error) => String(error.body ?? error.said ?? error));

describe("secrets", () => {
	const secrets = {}, said = {};
	let machine, data;

	before(async () => {
		// What the server would inherit where core files are wanted: all that this account may have.
		execFileSync("prlimit", ["--pid", String(process.pid), "--core=unlimited"]);
		machine = await startMachine({ args: ["--log-level", "debug"] });
		data = machine.server.data;
		secrets["the admin's token"] = machine.server.token;
	});
	after(() => machine.server.child.kill("SIGKILL"));

	test("tokens come and go, good ones and bad ones, by every way in", async () => {
		const { server, admin } = machine;
		const make = (name, scopes) => admin.call("token.create", { name, scopes });
		const used = await make(marker, ["observe", "allocate", "compute"]), revoked = await make("revoked", ["observe"]);
		const [head, id, secret, sum] = used.token.split("_");
		secrets["a token in use"] = used.token;
		secrets["a revoked token"] = revoked.token;
		secrets["a token with a wrong secret"] = [head, id, [...secret].reverse().join(""), sum].join("_");
		secrets["a token that nobody made"] = ["exo", "0123456789", createHash("sha256").update("x").digest("hex").slice(0, 43), sum].join("_");
		await admin.call("token.revoke", { token_id: revoked.token_id });
		for (const [index, which] of ["a revoked token", "a token with a wrong secret", "a token that nobody made"].entries()) {
			const bad = secrets[which];
			said[`log-in ${index}`] = await refused(Client.login(server, bad));
			said[`upgrade ${index}`] = await refused(Client.open(server, { bearer: bad }));
			said[`metrics ${index}`] = (await server.http("/metrics", { headers: { authorization: `Bearer ${bad}` } })).text;
			said[`command ${index}`] = (({ stdout, stderr }) => stdout + stderr)(
				await run(["devices", "--url", server.url.origin], { EXOGPU_TOKEN: bad }));
		}
		// Where a token does not belong, but people put it.
		const good = secrets["a token in use"];
		said.address = (await server.http(`/healthz?token=${good}`)).text + (await server.http(`/${good}`)).text;
		said.host = (await server.http("/healthz", { headers: { host: good } })).text;
		said.origin = await refused(Client.open(server, { bearer: good, headers: { origin: `http://${good}` } }));
		said.scheme = (await server.http("/metrics", { headers: { authorization: `Basic ${good}` } })).text;
		const client = await Client.login(server, good);
		said.wrong = await refused(client.call("auth.login", { token: `${good}${good}` }));
		said.id = await refused(client.call("memory.free", { allocation_id: good }));
		said.denied = await refused(client.call("token.list"));
		await client.close();
		said.malformed = await connectRaw(server, `GET /${good} HTTP/1.1\r\nAuthorization: ${good}\r\n${good}\r\n\r\n`).ended;
	});

	test("a ticket to join is made, and one is tried that nobody made", async () => {
		const { ticket } = await machine.admin.call("node.ticket", { expires_in_s: 600 });
		secrets["a ticket"] = ticket;
		said.ticket = await refused(machine.admin.call("token.revoke", { token_id: ticket }));
	});

	test("a tenant's bytes and the words that it gives its memory", async () => {
		const client = await Client.login(machine.server, secrets["a token in use"]);
		secrets["a tenant's bytes"] = bytes;
		secrets["an allocation's label"] = "hippopotamus-is-the-name-of-this-memory";
		const { allocation_id } = await client.call("memory.allocate", { device_id: machine.cpu.device_id, bytes: 4096,
			label: secrets["an allocation's label"] });
		await client.callWith("memory.write", { allocation_id, offset: 0 }, Buffer.from(bytes));
		said.write = await refused(client.callWith("memory.write", { allocation_id, offset: 4090 }, Buffer.from(bytes)));
		assert.equal((await client.call("memory.read", { allocation_id, offset: 0, bytes: bytes.length })).body.toString(), bytes);

		await client.close();
	});

	test("neither server nor node nor worker may leave a core file", async () => {
		const client = await Client.login(machine.server, secrets["a token in use"]);
		await client.call("memory.allocate", { device_id: machine.cpu.device_id, bytes: 4096 });
		const [worker] = workers(machine.server.child.pid);
		const [, parent] = /^PPid:\s*(\d+)$/m.exec(readFileSync(`/proc/${worker}/status`, "latin1"));
		for (const [name, pid] of Object.entries({ server: machine.server.child.pid, node: parent, worker }))
			assert.deepEqual([name, ...coreLimit(pid)], [name, "1", "1"], "one byte: no file, and no program gets it");
		assert.equal(coreLimit("self")[0], coreLimit("self")[1], "they were started with as much as this account may have");
		await client.close();
	});

	test("none of it was told to anybody or written anywhere but into its own file", async () => {
		const end = await machine.server.stop();
		assert.equal(end.code, 0, end.stderr);
		assert.ok(end.stderr.includes(" debug "), "the log was at its most talkative");
		const own = new Set([join(data, "admin.token")]);
		for (const path of filesBelow(data).filter((one) => /\.key$|\/key-[^/]*$/.test(one))) {
			own.add(path);
			const key = keyIn(path) ?? readFileSync(path);
			assert.ok(key.length >= 32, path);
			secrets[`the key ${path.slice(data.length)}`] = key;
		}
		const texts = { ...said, stdout: end.stdout, stderr: end.stderr };
		for (const path of filesBelow(data).filter((one) => !own.has(one))) texts[path.slice(data.length)] = readFileSync(path, "latin1");
		assert.ok(existsSync(join(data, "state.db")) && "/state.db" in texts);
		const found = Object.keys(texts).filter((where) => texts[where].includes(marker));
		assert.ok(found.includes("/state.db"), `the name of a token stands in the database; found in ${found}`);
		assert.deepEqual(leaks(secrets, texts), []);
	});
});

test("a ticket, and a node's key, when a node has joined with it by TLS", async () => {
	const server = await startServer({ listen: "0.0.0.0:0", args: ["--log-level", "debug"] });
	const made = await run(["ticket", "create", "--data", server.data]);
	const secrets = { "the ticket": made.stdout.trim(), "the admin's token": server.token }, own = new Set([join(server.data, "admin.token")]);
	assert.match(secrets["the ticket"], /^exojoin_\w{60,}$/, made.stderr);
	const data = temporary(), command = ["node", "--backends", "cpu", "--log-level", "debug", "--data", data, "--join"];
	const node = launch([...command, `127.0.0.1:${server.port}`], { EXOGPU_TICKET: secrets["the ticket"] });
	await eventually(() => /connected to the server/.test(node.output.stderr), () => `it joins; it said ${node.output.stderr}`, 20000 * slow);
	// It is spent now: who comes with it is refused, in words that do not hold it.
	const second = launch(["node", "--backends", "cpu", "--data", temporary(), "--join", `127.0.0.1:${server.port}`],
		{ EXOGPU_TICKET: secrets["the ticket"] });
	await eventually(() => /used|expired|ticket/.test(second.output.stderr), "a spent ticket is refused", 20000 * slow);
	second.child.kill("SIGKILL");
	await second.exited;
	node.child.kill("SIGTERM");
	await within(node.exited, "the node ends", 20000 * slow);
	const { stderr, stdout } = await server.stop();
	const texts = { "the server's log": stderr, "the server's output": stdout, "the node's log": node.output.stderr,
		"the node's output": node.output.stdout, "the refused node's log": second.output.stderr, "the ticket's words": made.stderr };
	for (const folder of [server.data, data])
		for (const path of filesBelow(folder).filter((one) => !own.has(one))) {
			const key = keyIn(path);
			if (key) secrets[`the key in ${path.slice(folder.length)}`] = key;
			else texts[path] = readFileSync(path, "latin1");
		}
	assert.ok(Object.keys(secrets).some((which) => /node\.pem/.test(which)), `the node has a key: ${Object.keys(secrets)}`);
	assert.ok(stderr.includes(" debug "), "the log was at its most talkative");
	assert.deepEqual(leaks(secrets, texts), []);
});

test("a session's worker does not get what the server's and the node's environment hold", async () => {
	const secrets = { EXOGPU_TOKEN: "exo_environment_of_the_server_0123456789", EXOGPU_TICKET: "exojoin_environment_of_the_server_0123456789" };
	const { server, admin, cpu } = await startMachine({ env: { ...secrets, HF_TOKEN: `${marker}-hub`, https_proxy: `http://me:${marker}-proxy@127.0.0.1:9`, LC_EXOGPU: marker } });
	await admin.call("memory.allocate", { device_id: cpu.device_id, bytes: 64 });
	const [pid] = workers(server.child.pid), environment = readFileSync(`/proc/${pid}/environ`, "latin1");
	assert.ok(environment.includes(`LC_EXOGPU=${marker}`), "it has what is on the list");
	assert.deepEqual([`${marker}-hub`, `${marker}-proxy`].filter((one) => environment.includes(one)), []);
	assert.deepEqual(Object.values(secrets).filter((one) => environment.includes(one)), []);
	await server.finish();
});
