// Witnesses of the audit log: two nodes that joined by TLS sign its heads as it grows and keep them on their side; what
// the command line makes of their files; and a server that is put back from a backup, which both find out.
import assert from "node:assert/strict";
import crypto from "node:crypto";
import { cpSync, existsSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { forge, makeKey } from "./cosign.mjs";
import { nodeRecord } from "./records.mjs";
import { eventually, freePort, launch, run, slow, startServer, temporary, within } from "./server.mjs";

const rounds = 30000 * slow; // heads are signed every 10 s

// A cosignature, checked by the words of C2SP's tlog-cosignature and with nothing of the program's.
function checkCosignature(note, name) {
	const [text, signatures] = note.split("\n\n");
	const line = signatures.split("\n").find((one) => one.startsWith(`— ${name} `));
	const bytes = Buffer.from(line.split(" ")[2], "base64");
	assert.equal(bytes.length, 4 + 8 + 64);
	const time = bytes.readBigUInt64BE(4);
	return { time, verify(key) {
		const base64 = key.split("+").slice(2).join("+"), raw = Buffer.from(base64, "base64");
		assert.equal(raw[0], 4, "cosignature/v1");
		const spki = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), raw.subarray(1)]);
		const publicKey = crypto.createPublicKey({ key: spki, format: "der", type: "spki" });
		return crypto.verify(null, Buffer.from(`cosignature/v1\ntime ${time}\n${text}\n`), publicKey, bytes.subarray(12));
	} };
}

// The public half of a witness' key file, as a key's text.
function publicKey(file, name) {
	const seed = Buffer.from(readFileSync(file, "utf8").trim(), "base64");
	const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
	const spki = crypto.createPublicKey(crypto.createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" })).export({ format: "der", type: "spki" });
	return `${name}+id+${Buffer.concat([Buffer.from([4]), spki.subarray(-32)]).toString("base64")}`;
}

describe("witnesses of the audit log", () => {
	let server, admin;
	const nodes = [], data = temporary(), state = temporary(), backup = join(temporary(), "data");
	const audit = async () => admin.call("audit.head", {});
	const makeTokens = async (count) => {
		for (let i = 0; i < count; i++) await admin.call("token.create", { name: `made ${i}`, scopes: ["observe"] });
		return (await audit()).size;
	};
	const startNode = (name, ticket) => {
		const directory = nodes.find((one) => one.name === name)?.data ?? temporary();
		const args = ticket ? ["--join", `127.0.0.1:${server.port}`, "--ticket", ticket] : [];
		return { name, data: directory, witness: (file) => join(directory, "node", "witness", file),
			...launch(["node", ...args, "--data", directory, "--backends", "cpu", "--name", name]) };
	};
	const signed = (size) => eventually(async () => {
		const { witnesses } = await audit();
		return witnesses.length === 2 && witnesses.every((one) => one.size >= size) && witnesses;
	}, `both have signed ${size} entries; they say: ${nodes.map((one) => one.output.stderr.slice(-500))}`, rounds);
	const verify = async (...words) => {
		const { code, stdout, stderr } = await run(["audit", "verify", "--data", data, "--json", ...words], { XDG_STATE_HOME: state });
		assert.ok(stdout, `audit verify: ${code} ${stderr}`);
		return { code, ...JSON.parse(stdout) };
	};
	// The server's own check, with what its witnesses hold.
	const check = async () => {
		const report = await admin.call("audit.verify", {});
		return { ...report, by: Object.fromEntries(report.witnesses.map((one) => [one.name, one])) };
	};
	const standing = async () => (await admin.call("cluster.snapshot")).alerts.filter((one) => one.kind === "audit_forked");
	const heads = () => nodes.flatMap((one) => ["--witness", one.witness("head")]);

	before(async () => {
		server = await startServer({ data, listen: `0.0.0.0:${await freePort()}` });
		admin = await Client.login(server);
		const { ticket } = await admin.call("node.ticket", { uses: 2 });
		for (const name of ["one", "two"]) nodes.push(startNode(name, ticket));
	});
	after(async () => {
		for (const one of nodes) {
			one.child.kill("SIGTERM");
			const { code, signal, stderr } = await within(one.exited, "the node ends");
			assert.equal(code, 0, `a node ended with ${code ?? signal}: ${stderr.slice(-2000)}`);
		}
		await server.finish();
		assertContractKept();
	});

	test("sign the newest head when they come, and as it grows", async () => {
		await signed(1);
		const size = await makeTokens(3), witnesses = await signed(size);
		const { nodes: known } = await admin.call("cluster.snapshot");
		for (const one of nodes) {
			const { node_id } = known.find((node) => node.name === one.name);
			const witness = witnesses.find((other) => other.node_id === node_id);
			assert.equal(witness.name, `exogpu-witness-${node_id}`);
			assert.ok(Math.abs(Date.parse(witness.at) - Date.now()) < 60000 * slow, witness.at);
			assert.equal(statSync(one.witness("key")).mode & 0o777, 0o600);
			const note = readFileSync(one.witness("head"), "utf8"), cosignature = checkCosignature(note, witness.name);
			assert.ok(cosignature.verify(publicKey(one.witness("key"), witness.name)));
			assert.ok(Number(note.split("\n")[1]) >= size);
			assert.ok(!existsSync(one.witness("refused-1")));
		}
	});

	test("what they hold is compared by audit verify", async () => {
		const size = await makeTokens(1);
		await signed(size);
		const report = await verify(...heads());
		assert.deepEqual([report.code, report.ok], [0, true], JSON.stringify(report.findings));
		assert.ok(report.witnessed >= size, `${report.witnessed} of ${size}`);
		assert.match(report.limits, new RegExp(`from ${report.witnessed} on`));
	});

	test("the server's own check asks them, and says until which entry each agrees", async () => {
		const size = await makeTokens(2);
		await signed(size);
		const report = await check();
		assert.deepEqual([report.code, report.ok], [0, true], JSON.stringify(report.findings));
		assert.deepEqual(report.witnesses.map((one) => [one.name, one.state, one.reason]).sort(), [["one", "agrees", null], ["two", "agrees", null]]);
		assert.ok(report.witnesses.every((one) => one.size >= size), JSON.stringify(report.witnesses));
		assert.ok(report.witnessed >= size);
		assert.match(report.limits, new RegExp(`from ${report.witnessed} on`));
		assert.deepEqual(await standing(), []);
	});

	test("one that lies is not listed, and leaves nothing in the log's heads", { timeout: 120000 * slow }, async () => {
		const [, two] = nodes, pem = readFileSync(join(two.data, "node", "tls", "node.pem"), "utf8");
		two.child.kill("SIGTERM");
		await within(two.exited, "the second node ends");
		const { nodes: known } = await admin.call("cluster.snapshot"), { node_id } = known.find((one) => one.name === "two");
		const right = makeKey(`exogpu-witness-${node_id}`), { origin, size: before } = await audit();
		const record = nodeRecord({ node_id, name: "two" });
		const fake = await FakeNode.connect(server, undefined, { unix: false, cert: pem, key: pem });
		const listed = async () => (await audit()).witnesses.find((one) => one.node_id === node_id);
		const whole = await listed();
		// Registering anew is coming anew: it is asked each time.
		const answer = async (lie) => {
			const asked = fake.requests.length;
			await fake.call("node.register", { protocol: 1, node: record });
			await fake.until(() => fake.requests.slice(asked).some((one) => one.method === "audit.witness"), "it is asked");
			const request = fake.requests.slice(asked).find((one) => one.method === "audit.witness");
			const { checkpoint } = request.params, size = Number(checkpoint.split("\n")[1]);
			fake.reply(request, { size, key: right.text, cosignature: right.sign(checkpoint), ...lie(checkpoint, size) });
			await fake.devices([]); // answered after what was sent before it was looked at
			return size;
		};
		const log = makeKey(origin), other = makeKey("exogpu-witness-nod_other");
		const lies = [
			(note) => ({ key: log.text, cosignature: log.sign(note) }), // beside the log's own signature
			(note) => ({ key: other.text, cosignature: other.sign(note) }),
			(note) => ({ cosignature: `${right.sign(note)}\n${log.sign(note)}` }),
			(note) => ({ cosignature: `${right.sign(note)}\n` }),
			(note) => ({ cosignature: right.sign(note, 9007199254740991) }),
			(note) => ({ cosignature: right.sign(note.replace(/\n\d+\n/, "\n1\n")) }),
			(note) => ({ cosignature: other.sign(note) }),
			(_note, size) => ({ size: size + 1 }),
			() => ({ cosignature: "nonsense" }),
			() => ({ key: "nonsense" }),
			() => ({ key: right.text.replace("+", "-") }),
		];
		for (const [i, lie] of lies.entries()) {
			const size = await answer(lie);
			assert.ok(size >= before);
			assert.deepEqual(await listed(), whole, `lie ${i}`);
		}
		const size = await answer(() => ({}));
		const told = await eventually(async () => { const one = await listed(); return one.size === size && one; }, "the truth is listed");
		assert.equal(told.name, `exogpu-witness-${node_id}`);
		assert.equal((await verify(...heads())).code, 0);

		// What it holds, for a check: it does not say, or not the truth.
		const asked = async (reply) => {
			const before = fake.requests.length, checking = check();
			const request = await eventually(() => fake.requests.slice(before).find((one) => one.method === "audit.held"), "it is asked what it holds");
			reply?.(request);
			return checking;
		};
		const silent = await asked();
		assert.deepEqual([silent.code, silent.by.two.state, silent.by.two.size, silent.by.one.state], [0, "silent", null, "agrees"]);
		const head = (await audit()).checkpoint, cosigned = (note) => `${note}${right.sign(note)}\n`;
		const holds = (note, more) => (request) =>
			fake.reply(request, { size: Number(note.split("\n")[1]), key: right.text, note: cosigned(note), ...more });
		for (const [what, reply] of Object.entries({
			nonsense: holds(head, { note: "nonsense" }),
			unsigned: holds(head, { note: head }),
			"another size": holds(head, { size: 1 }),
			"another's key": holds(head, { key: other.text }),
			"no key": holds(head, { key: "nonsense" }),
			"the log's key": holds(head, { key: log.text, note: `${head}${log.sign(head)}\n` }),
		})) {
			const report = await asked(reply);
			assert.deepEqual([report.code, report.by.two.state, report.by.two.size, report.by.one.state], [0, "unusable", null, "agrees"], what);
			assert.match(report.by.two.reason, /head|signed/);
		}
		const nothing = await asked((request) => fake.reply(request, { size: 0, key: right.text, note: null }));
		assert.deepEqual([nothing.code, nothing.by.two.state], [0, "none"]);
		const truth = await asked(holds(head));
		assert.deepEqual([truth.code, truth.by.two.state], [0, "agrees"]);
		assert.deepEqual(await standing(), []);
		// Another root, which no key of the log has signed: it is its word against the log's, so it is named.
		const lie = await asked(holds(forge(head)));
		assert.deepEqual([lie.code, lie.verdict, lie.by.two.state, lie.by.one.state], [12, "forked", "conflicts", "agrees"], JSON.stringify(lie));
		assert.ok(lie.findings.some((one) => one.code === 12 && one.text.includes(node_id) && one.text.includes("not signed by any key of it")), JSON.stringify(lie.findings));
		const [alert, ...more] = await eventually(async () => { const list = await standing(); return list.length && list; }, "an alert stands");
		assert.deepEqual([more, alert.kind, alert.severity, alert.subject, alert.cleared_at], [[], "audit_forked", "critical", { type: "node", id: node_id, name: "two" }, null]);
		assert.equal((await verify()).code, 12, "what the server has put on record of it the files tell");
		await fake.close();

		const events = admin.events.length;
		await admin.call("events.subscribe", { topics: ["alerts"] });
		nodes[1] = startNode("two");
		await signed(await makeTokens(1));
		const cleared = await eventually(() => admin.events.slice(events).find((one) => one.topic === "alerts" && one.data.alert.kind === "audit_forked"), "it is cleared by signing again");
		assert.deepEqual([cleared.data.alert.alert_id, cleared.data.alert.cleared_at !== null], [alert.alert_id, true]);
		assert.deepEqual(await standing(), []);
		assert.deepEqual([(await verify()).code, (await check()).code], [0, 0]);
	});

	test("a backup that is put back is found by both, and told", { timeout: 240000 * slow }, async () => {
		await admin.close();
		await server.stop();
		cpSync(data, backup, { recursive: true });
		server = await startServer({ data, listen: `0.0.0.0:${server.port}` });
		admin = await Client.login(server);
		await signed(await makeTokens(20));
		await admin.close();
		await server.stop();
		rmSync(data, { recursive: true });
		cpSync(backup, data, { recursive: true });
		const alone = await verify();
		assert.equal(alone.code, 0, "by itself an older log is whole");
		const witnessed = await verify(...heads());
		assert.deepEqual([witnessed.code, witnessed.findings.map((one) => one.code)], [11, [11, 11]], JSON.stringify(witnessed));
		server = await startServer({ data, listen: `0.0.0.0:${server.port}` });
		admin = await Client.login(server);
		const entries = await eventually(async () => {
			const found = await admin.call("audit.list", { action: "audit.witness", after: alone.entries - 1 });
			return found.entries.length >= 2 && found.entries;
		}, () => `both refuse; the server says: ${server.output.stderr}`, 90000 * slow);
		const ids = (await admin.call("cluster.snapshot")).nodes.map((one) => one.node_id).sort();
		assert.deepEqual(entries.map((one) => one.node_id).sort(), ids);
		assert.deepEqual(entries.map((one) => one.outcome), ["conflict", "conflict"]);
		await eventually(() => /error\s+audit: node \S+ holds \d+ entries of the audit log as its witness and refuses/.test(server.output.stderr), "the server's log tells");
		for (const one of nodes) {
			await eventually(() => existsSync(one.witness("refused-1")), "the evidence is kept");
			await eventually(() => /error\s+witness: the server shows a head/.test(one.output.stderr), "the node's log tells");
		}
		assert.deepEqual((await audit()).witnesses, []);

		// It is another log than the one that they hold: by what they say now, and by what is on record.
		const short = await check();
		assert.deepEqual([short.code, short.verdict, short.by.one.state, short.by.two.state], [11, "truncated", "ahead", "ahead"], JSON.stringify(short));
		assert.ok(short.findings.some((one) => /remembers \d+ entries; here are \d+: the log was cut, or an older copy/.test(one.text)), JSON.stringify(short));
		const alerts = await standing();
		assert.deepEqual(alerts.map((one) => [one.kind, one.subject.id]).sort(), ids.map((id) => ["audit_forked", id]));
		await makeTokens(30);
		const forked = await check();
		assert.deepEqual([forked.code, forked.verdict, forked.by.one.state, forked.by.two.state], [12, "forked", "conflicts", "conflicts"], JSON.stringify(forked));
		assert.ok(forked.findings.some((one) => one.text.includes("node one") && one.text.includes("signed by this log's key")), JSON.stringify(forked.findings));
		const offline = await verify();
		assert.deepEqual([offline.code, offline.findings.map((one) => one.code)], [12, [12, 12]], JSON.stringify(offline.findings));
		const online = await run(["audit", "verify", "--url", server.url, "--ca", join(data, "tls", "authority.pem")], { EXOGPU_TOKEN: server.token, XDG_STATE_HOME: state });
		assert.equal(online.code, 12, online.stderr);
		assert.match(online.stdout, /one +holds another log/);

		// It stands after a restart, until the owner wants this log and has them begin anew, or removes them.
		await admin.close();
		await server.stop();
		server = await startServer({ data, listen: `0.0.0.0:${server.port}` });
		admin = await Client.login(server);
		assert.deepEqual((await standing()).map((one) => one.alert_id).sort(), alerts.map((one) => one.alert_id).sort());
		const [one, two] = nodes, removed = alerts.find((alert) => alert.subject.name === "two").subject.id;
		one.child.kill("SIGTERM");
		await within(one.exited, "the first node ends");
		rmSync(one.witness(""), { recursive: true });
		nodes[0] = startNode("one");
		await eventually(async () => (await standing()).length === 1, "who begins anew signs", rounds);
		two.child.kill("SIGTERM");
		await within(two.exited, "the second node ends");
		await admin.call("node.remove", { node_id: removed });
		await eventually(async () => (await standing()).length === 0, "who is removed is heard no more", rounds);
		const after = await verify();
		assert.deepEqual([after.code, after.findings], [0, []], JSON.stringify(after.findings));
		nodes.pop();
	});
});
