// Witnesses of the audit log: two nodes that joined by TLS sign its heads as it grows and keep them on their side; what
// the command line makes of their files; and a server that is put back from a backup, which both find out.
import assert from "node:assert/strict";
import crypto from "node:crypto";
import { cpSync, existsSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { nodeRecord } from "./records.mjs";
import { eventually, launch, run, slow, startServer, temporary, within } from "./server.mjs";

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

// A key of a witness that this test has made, of any name, and what it signs.
function makeKey(name) {
	const { privateKey, publicKey: half } = crypto.generateKeyPairSync("ed25519");
	const bytes = Buffer.concat([Buffer.from([4]), half.export({ format: "der", type: "spki" }).subarray(-32)]);
	const id = crypto.createHash("sha256").update(`${name}\n`).update(bytes).digest().subarray(0, 4);
	return { text: `${name}+${id.toString("hex")}+${bytes.toString("base64")}`, sign(note, time = Math.floor(Date.now() / 1000)) {
		const signed = crypto.sign(null, Buffer.from(`cosignature/v1\ntime ${time}\n${note.split("\n\n")[0]}\n`), privateKey);
		const stamp = Buffer.alloc(8);
		stamp.writeBigUInt64BE(BigInt(time));
		return `— ${name} ${Buffer.concat([id, stamp, signed]).toString("base64")}`;
	} };
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
	const heads = () => nodes.flatMap((one) => ["--witness", one.witness("head")]);

	before(async () => {
		server = await startServer({ data, listen: "0.0.0.0:0" });
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
		await fake.close();
		nodes[1] = startNode("two");
		await signed(await makeTokens(1));
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
			const found = await admin.call("audit.list", { action: "audit.witness" });
			return found.entries.length >= 2 && found.entries;
		}, () => `both refuse; the server says: ${server.output.stderr}`, 90000 * slow);
		const ids = (await admin.call("cluster.snapshot")).nodes.map((one) => one.node_id).sort();
		assert.deepEqual(entries.map((one) => one.node_id).sort(), ids);
		assert.deepEqual(entries.map((one) => one.outcome), ["conflict", "conflict"]);
		assert.match(server.output.stderr, /error\s+audit: node \S+ holds \d+ entries of the audit log as its witness and refuses/);
		for (const one of nodes) {
			await eventually(() => existsSync(one.witness("refused-1")), "the evidence is kept");
			assert.match(one.output.stderr, /error\s+witness: the server shows a head/);
		}
		assert.deepEqual((await audit()).witnesses, []);
	});
});
