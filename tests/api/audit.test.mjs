// The audit log by the API and by the command line: what was done is listed, the head is signed and proves that it
// continues what somebody saw, and the files verify without a server.
import assert from "node:assert/strict";
import crypto from "node:crypto";
import { cpSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { eventually, launch, run, startServer, temporary, within } from "./server.mjs";

// A checkpoint's own words, its signature checked with the key as the server prints it, and nothing of the server's.
function readHead({ checkpoint, key }) {
	const [origin, size, root, empty, ...signatures] = checkpoint.split("\n");
	assert.equal(empty, "");
	const [name, id, base64] = [key.slice(0, key.indexOf("+")), ...key.slice(key.indexOf("+") + 1).split(/\+(.*)/s)];
	const bytes = Buffer.from(base64, "base64");
	assert.equal(name, origin);
	assert.equal(bytes[0], 1, "Ed25519");
	const expected = crypto.createHash("sha256").update(`${name}\n`).update(bytes).digest().subarray(0, 4);
	assert.equal(id, expected.toString("hex"));
	const line = signatures.find((one) => one.startsWith(`— ${origin} `));
	const signature = Buffer.from(line.split(" ")[2], "base64");
	assert.deepEqual(signature.subarray(0, 4), expected);
	const spki = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), bytes.subarray(1)]);
	const publicKey = crypto.createPublicKey({ key: spki, format: "der", type: "spki" });
	assert.ok(crypto.verify(null, Buffer.from(`${origin}\n${size}\n${root}\n`), publicKey, signature.subarray(4)), "the signature");
	return { origin, size: Number(size), root };
}

// RFC 9162, 2.1.4.2.
function consistent(from, fromRoot, to, toRoot, hashes) {
	const pair = (left, right) => crypto.createHash("sha256").update(Buffer.concat([Buffer.from([1]), left, right])).digest();
	const path = hashes.map((one) => Buffer.from(one, "base64"));
	if (from === to) return path.length === 0 && fromRoot === toRoot;
	if ((from & (from - 1)) === 0) path.unshift(Buffer.from(fromRoot, "base64"));
	let [fn, sn] = [from - 1, to - 1];
	while (fn & 1) [fn, sn] = [fn >> 1, sn >> 1];
	let [fr, sr] = [path[0], path[0]];
	for (const node of path.slice(1)) {
		if (sn === 0) return false;
		if (fn & 1 || fn === sn) {
			[fr, sr] = [pair(node, fr), pair(node, sr)];
			while (fn !== 0 && !(fn & 1)) [fn, sn] = [fn >> 1, sn >> 1];
		} else sr = pair(sr, node);
		[fn, sn] = [fn >> 1, sn >> 1];
	}
	return sn === 0 && fr.toString("base64") === fromRoot && sr.toString("base64") === toRoot;
}

describe("the audit log", () => {
	let server, admin;
	const state = temporary();
	const exogpu = (...words) => run([...words, "--data", server.data], { XDG_STATE_HOME: state });
	const makeTokens = async (count) => {
		for (let i = 0; i < count; i++) await admin.call("token.create", { name: `made ${i}`, scopes: ["observe"] });
	};

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		await makeTokens(30);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("what was done is listed, the newest first", async () => {
		const { entries, more } = await admin.call("audit.list", { action: "token.create", limit: 10 });
		assert.equal(entries.length, 10);
		assert.equal(more, true);
		assert.ok(entries.every((one) => one.action === "token.create" && one.outcome === "ok" && one.count === 1));
		const seqs = entries.map((one) => one.seq);
		assert.deepEqual(seqs, [...seqs].sort((a, b) => b - a));
		const older = await admin.call("audit.list", { action: "token.create", before: seqs.at(-1), limit: 1000 });
		assert.equal(older.entries.length, 31 - 10, "30, and the first admin's");
		assert.equal(older.more, false);
		const since = await admin.call("audit.list", { after: 3, limit: 5 });
		assert.deepEqual(since.entries.map((one) => one.seq), [4, 5, 6, 7, 8]);
		assert.deepEqual(await admin.call("audit.list", { before: 0 }), { entries: [], more: false, next: null, gaps: [] });
		assert.deepEqual((await admin.call("audit.list", { action: "token", limit: 5 })).entries, [], "a noun needs its dot");
		assert.equal((await admin.call("audit.list", { action: "token.", limit: 1000 })).entries.length, 31);
		assert.deepEqual((await admin.call("audit.list", { to: "2020-01-01T00:00:00.000Z" })).entries, []);
		await admin.refused("audit.list", { from: "2026-13-99T00:00:00.000Z" }, "invalid_params");
	});

	test("the head is signed, and continues every earlier one", async () => {
		const heads = [];
		for (let i = 0; i < 8; i++) {
			const answer = await admin.call("audit.head");
			assert.equal(answer.proof, null);
			const head = readHead(answer);
			assert.deepEqual([answer.size, answer.root, answer.origin], [head.size, head.root, head.origin]);
			assert.equal(answer.first_key, answer.key, "one segment so far");
			heads.push(head);
			await makeTokens(1 + i);
		}
		for (const { size, root } of heads) {
			const answer = await admin.call("audit.head", { since_size: size });
			const head = readHead(answer);
			assert.deepEqual([answer.proof.from, answer.proof.to, answer.proof.segments], [size, head.size, []]);
			assert.ok(consistent(size, root, head.size, head.root, answer.proof.hashes), `from ${size} to ${head.size}`);
			assert.ok(!consistent(size, head.root, head.size, head.root, answer.proof.hashes), "and from no other");
		}
		const { size } = await admin.call("audit.head");
		const refusal = await admin.refused("audit.head", { since_size: size + 1000 }, "not_found");
		assert.match(refusal.hint, /audit verify/);
	});

	test("what is answered is signed", async () => {
		for (let i = 0; i < 10; i++) {
			const { token_id } = await admin.call("token.create", { name: "one", scopes: ["observe"] });
			const { size } = await admin.call("audit.head");
			const { entries } = await admin.call("audit.list", { text: token_id });
			assert.equal(entries.length, 1);
			assert.ok(entries[0].seq < size, `${entries[0].seq} is under the head of ${size}`);
		}
	});

	test("all of it is verified on demand", async () => {
		const report = await admin.call("audit.verify");
		assert.deepEqual([report.ok, report.verdict, report.code, report.findings], [true, "holds", 0, []]);
		assert.equal(report.entries, report.signed_entries);
		assert.match(report.limits, /could have/);
		assert.ok(report.limits_said, "in other languages, too");
	});

	test("the command line lists, and follows", async () => {
		const { code, stdout, stderr } = await exogpu("audit", "list", "--action", "token.create", "--limit", "3");
		assert.equal(code, 0, stderr);
		assert.match(stdout, /^TIME +SEQ +WHO/);
		assert.equal(stdout.trim().split("\n").length, 4);
		const follower = launch(["audit", "list", "--follow", "--json", "--limit", "1", "--action", "token.create", "--data",
			server.data], { XDG_STATE_HOME: state });
		const lines = () => follower.output.stdout.trim().split("\n").filter(Boolean).map((one) => JSON.parse(one));
		await eventually(() => lines().length === 1, "the newest one");
		const { token_id } = await admin.call("token.create", { name: "followed", scopes: ["observe"] });
		await eventually(() => lines().some((one) => one.target === token_id), "the one that came");
		follower.child.kill("SIGINT");
		assert.equal((await within(follower.exited, "it ends")).code, 0);
	});

	test("the command line verifies the files, beside a server or without", async () => {
		const { code, stdout, stderr } = await exogpu("audit", "verify", "--json");
		assert.equal(code, 0, stderr);
		const report = JSON.parse(stdout);
		const head = await admin.call("audit.head");
		assert.equal(report.origin, head.origin);
		assert.equal(report.first_key, head.first_key);
		const keyed = await exogpu("audit", "verify", "--key", head.first_key);
		assert.equal(keyed.code, 0, keyed.stderr);
		const other = head.first_key.replace(/.$/, (last) => (last === "A" ? "B" : "A"));
		assert.equal((await exogpu("audit", "verify", "--key", other)).code, 2, "a key with a slip in it");
		const plain = await exogpu("audit", "verify");
		assert.match(plain.stdout, /it holds\./);
		assert.match(plain.stdout, /could have/);
	});

	test("the export has every entry, in both forms", async () => {
		const { size } = await admin.call("audit.head");
		const jsonl = await exogpu("audit", "export");
		const entries = jsonl.stdout.trim().split("\n").map((one) => JSON.parse(one));
		assert.ok(entries.length >= size);
		assert.deepEqual(entries.map((one) => one.seq), entries.map((_, i) => i));
		const file = join(state, "export.csv");
		const csv = await exogpu("audit", "export", "--format", "csv", file);
		assert.equal(csv.code, 0, csv.stderr);
		const lines = readFileSync(file, "utf8").trim().split("\n");
		assert.match(lines[0], /^seq,at,duration_ms,count,actor,.*,detail,bound$/);
		assert.ok(lines.length > size);
		assert.deepEqual((await exogpu("audit", "export", "--to", "2020-01-01")).stdout, "");
	});

	test("a head that was seen is remembered: a log that is smaller, or another, is told", async () => {
		const fresh = await startServer();
		const here = temporary();
		const ask = (...words) => run([...words, "--data", fresh.data], { XDG_STATE_HOME: here });
		const owner = await Client.login(fresh);
		await owner.call("token.create", { name: "early", scopes: ["observe"] });
		assert.equal((await ask("audit", "list")).code, 0);
		await fresh.finish();
		const copy = join(here, "copy");
		cpSync(fresh.data, copy, { recursive: true });
		const again = await startServer({ data: fresh.data });
		const later = await Client.login(again);
		for (let i = 0; i < 10; i++) await later.call("token.create", { name: `later ${i}`, scopes: ["observe"] });
		assert.equal((await ask("audit", "list")).code, 0);
		assert.equal((await ask("audit", "verify")).code, 0);
		await again.finish();
		rmSync(fresh.data, { recursive: true });
		cpSync(copy, fresh.data, { recursive: true }); // an old copy in the place of the whole
		const cut = await ask("audit", "verify");
		assert.equal(cut.code, 11, cut.stdout);
		assert.match(cut.stdout, /you saw last remembers \d+ entries/);
		const restored = await startServer({ data: fresh.data });
		const list = await ask("audit", "list");
		assert.equal(list.code, 11, list.stderr);
		assert.match(list.stderr, /not the one that you saw before/);
		const forger = await Client.login(restored);
		for (let i = 0; i < 20; i++) await forger.call("token.create", { name: `forged ${i}`, scopes: ["observe"] });
		assert.equal((await ask("audit", "list")).code, 12, "as long again, but with other entries");
		assert.equal((await ask("audit", "verify")).code, 12);
		await restored.finish();
		rmSync(fresh.data, { recursive: true });
		const replaced = await startServer({ data: fresh.data }); // another log altogether
		const anew = await ask("audit", "list");
		assert.equal(anew.code, 12, anew.stderr);
		assert.match(anew.stderr, /this is another one/);
		assert.equal((await ask("audit", "verify")).code, 12);
		const place = readdirSync(join(here, "exogpu", "audit")).find((name) => name.startsWith("at-"));
		rmSync(join(here, "exogpu", "audit", place));
		assert.equal((await ask("audit", "list")).code, 0, "once the user says so");
		await replaced.finish();
	});

	test("wrong words are told as such", async () => {
		for (const [words, text] of [[["list", "--from", "yesterday"], /no time/], [["list", "--limit", "0"], /1 to 1000/],
			[["verify", "--key", "x"], /not a key/], [["verify", "--witness", "/nonexistent/head"], /cannot read/],
			[["export", "--format", "xml"], /jsonl or csv/]]) {
			const { code, stderr } = await exogpu("audit", ...words);
			assert.equal(code, 2, `${words}: ${stderr}`);
			assert.match(stderr, text);
		}
		const file = join(state, "not-a-head");
		writeFileSync(file, "hello\n");
		assert.equal((await exogpu("audit", "verify", "--witness", file)).code, 2);
		const nowhere = await run(["audit", "verify", "--data", join(state, "nowhere")], { XDG_STATE_HOME: state });
		assert.equal(nowhere.code, 1);
		assert.match(nowhere.stderr, /there is no log/);
	});
});
