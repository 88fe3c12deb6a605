// Conversations that are kept on the server: who sees them, versions, the ends of token and time, the command line, and
// that no text is on the disk or in a log as it was written.
import assert from "node:assert/strict";
import { readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { run, slow, startServer, temporary } from "./server.mjs";

const secret = "the words of nobody else", other = "a later saying of the same", unlikely = "a-conversation-of-alices";

describe("conversations on the server", { timeout: 120000 * slow }, () => {
	const data = temporary();
	let server, admin, alice, bob, tokens;

	const text = (one) => Buffer.from(JSON.stringify({ at: 1, system: "", turns: [{ role: "user", text: one }] }));
	const write = (client, conversation_id, version, body = text(secret)) => client.callWith("conversation.write", { conversation_id, version }, body);
	const list = async (client) => (await client.call("conversation.list")).conversations;
	// Every file of the data directory, as bytes: state.db, its -wal, the audit log, whatever is there.
	const disk = () => readdirSync(data, { recursive: true }).map((name) => join(data, name)).filter((path) => statSync(path).isFile())
		.map((path) => readFileSync(path));
	const login = async () => {
		admin = await Client.login(server);
		[alice, bob] = await Promise.all(["alice", "bob"].map((name) => Client.login(server, tokens[name].token)));
	};

	before(async () => {
		server = await startServer({ data, args: ["--log-level", "debug"] });
		admin = await Client.login(server);
		tokens = {};
		for (const name of ["alice", "bob"]) tokens[name] = await admin.call("token.create", { name, scopes: ["infer"], expires_in_s: 3600 });
		await admin.close();
		await login();
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("a conversation is written, read and listed by its own token alone", async () => {
		const made = await write(alice, "one", 0);
		assert.deepEqual([made.conversation_id, made.version, made.bytes, made.deleted], ["one", 1, text(secret).length, false]);
		const { limits } = await alice.call("server.info", {});
		assert.equal(limits.conversation_days, 90);
		assert.ok(Date.parse(made.expires_at) <= Date.now() + 3600000, "it goes with its token, which ends before 90 days");
		assert.deepEqual(await list(alice), [made]);
		assert.deepEqual((await alice.call("conversation.read", { conversation_id: "one" })).body, text(secret));
		assert.deepEqual(await list(bob), []);
		assert.deepEqual(await list(admin), []);
		for (const client of [bob, admin])
			for (const name of ["conversation.read", "conversation.delete"]) await client.refused(name, { conversation_id: "one" }, "not_found");
		assert.equal((await write(bob, "one", 0, text("bob's"))).version, 1);
		assert.deepEqual((await alice.call("conversation.read", { conversation_id: "one" })).body, text(secret));
	});

	test("what another browser has written is not overwritten", async () => {
		const second = await Client.login(server, tokens.alice.token);
		const { version } = await second.call("conversation.read", { conversation_id: "one" });
		assert.equal((await write(alice, "one", version, text(other))).version, 2);
		const refused = await second.refused("conversation.write", { conversation_id: "one", version }, "conflict", text("stale"));
		assert.match(refused.said, /changed elsewhere: it has version 2/);
		assert.match(refused.hint, /read it/);
		await second.refused("conversation.write", { conversation_id: "one" }, "conflict", text("stale"));
		assert.deepEqual((await second.call("conversation.read", { conversation_id: "one" })).body, text(other));
		await second.close();
	});

	test("a change is told to the connections of its token that watch, by id and version alone, and to no other", async () => {
		const second = await Client.login(server, tokens.alice.token), both = [alice, second, bob];
		const told = (client, from = 0) => client.notices.slice(from).map(({ method, params }) => [method, params]);
		for (const client of both) await client.call("conversation.list", { watch: true });
		const { version } = await alice.call("conversation.read", { conversation_id: "one" });
		await write(alice, "one", version, text(secret));
		const news = [["conversation.changed", { conversation_id: "one", version: version + 1 }]];
		for (const client of [alice, second]) await client.until(() => client.notices.length, "each connection is told");
		assert.deepEqual([told(second), told(alice)], [news, news]);
		await write(second, "for-a-moment", 0);
		await second.call("conversation.delete", { conversation_id: "for-a-moment" });
		const deleted = ["conversation.changed", { conversation_id: "for-a-moment", version: 2 }];
		for (const client of [alice, second]) { // the second change may take the place of the first, which still waits
			await client.until(() => told(client).at(-1)[1].version === 2, "and of a deletion");
			assert.deepEqual(told(client, 1).filter(([, params]) => params.version > 1), [deleted]);
		}
		await bob.call("conversation.list"); // what would have been sent before has come by now
		assert.deepEqual(told(bob), [], "it is nobody else's");
		for (const client of both) await client.call("conversation.list", { watch: false });
		const before = second.notices.length;
		await write(alice, "one", version + 1, text(other));
		await second.call("conversation.list");
		assert.equal(second.notices.length, before, "nothing once it watches no more");
		const login = await second.call("auth.login", { token: tokens.bob.token });
		assert.ok(login);
		await second.close();
	});

	test("bodies are bounded, ids are plain, and who has no token or not the scope keeps none", async () => {
		await alice.refused("conversation.write", { conversation_id: "x" }, "invalid_params", Buffer.alloc(0));
		await alice.refused("conversation.write", { conversation_id: "../x" }, "invalid_params", text("x"));
		await alice.refused("conversation.write", { conversation_id: "x" }, "limit_exceeded", Buffer.alloc(1024 * 1024 + 1, "x"));
		await alice.refused("conversation.delete", {}, "invalid_params");
		await alice.refused("conversation.delete", { conversation_id: "one", all: true }, "invalid_params");
		const owner = await Client.open(server, { unix: true });
		const refused = await owner.refused("conversation.list", {}, "forbidden");
		assert.match(refused.hint, /EXOGPU_TOKEN/);
		const { token } = await admin.call("token.create", { name: "watcher", scopes: ["observe"] });
		const watcher = await Client.login(server, token);
		await watcher.refused("conversation.list", {}, "forbidden");
		await watcher.close();
		await owner.close();
	});

	test("the command line lists, exports and deletes them", async () => {
		await write(alice, "two", 0);
		const cli = (...args) => run(["conversations", ...args, "--url", server.url.origin], { EXOGPU_TOKEN: tokens.alice.token });
		assert.match((await cli("list")).stdout, /^ID +SIZE +CHANGED +EXPIRES\n(one|two) /);
		const file = join(temporary(), "export.json");
		const exported = await cli("export", file);
		assert.equal(exported.code, 0, exported.stderr);
		assert.equal(statSync(file).mode & 0o777, 0o600);
		assert.deepEqual(JSON.parse(readFileSync(file)).conversations.map(({ id, turns }) => [id, turns[0].text]).sort(), [["one", other], ["two", secret]]);
		assert.equal((await cli("delete")).code, 2);
		assert.equal((await cli("delete", "two")).stdout, "deleted 1\n");
		assert.match((await cli("list")).stdout, /two +deleted/);
		const gone = (await list(alice)).find((one) => one.conversation_id === "two");
		assert.deepEqual([gone.conversation_id, gone.bytes, gone.version], ["two", 0, 2]);
		assert.equal((await cli("delete", "two")).code, 1);
	});

	test("no text is on the disk or in a log as it was written, and the key lies apart, for its owner alone", async () => {
		const key = join(data, "conversations.key");
		assert.equal(statSync(key).mode & 0o777, 0o600);
		const bytes = readFileSync(key);
		for (const words of [secret, other])
			for (const found of [...disk(), Buffer.from(server.output.stderr)]) assert.ok(!found.includes(words), "a text is there");
		assert.ok(disk().filter((one) => one.includes(bytes)).length === 1, "the key is in its own file alone");
		const { entries } = await admin.call("audit.list", { limit: 1000 });
		assert.ok(entries.length > 3 && entries.every((one) => !JSON.stringify(one).includes("conversation.write")), "writing is no event");
	});

	test("they are there after a restart, and gone with their token", async () => {
		await server.finish();
		server = await startServer({ data });
		await login();
		assert.deepEqual((await alice.call("conversation.read", { conversation_id: "one" })).body, text(other));
		assert.equal((await list(bob)).length, 1);
		await write(alice, unlikely, 0);
		assert.ok(disk().some((one) => one.includes(unlikely)));
		for (const [name, client] of [["bob", bob], ["alice", alice]]) {
			await admin.call("token.revoke", { token_id: tokens[name].token_id });
			assert.equal((await client.closed).code, 4410);
		}
		await server.finish();
		assert.ok(disk().every((one) => !one.includes(unlikely)), "its row is gone, and was overwritten");
	});

	test("a server with conversation_days=0 keeps none", async () => {
		server = await startServer({ data, args: ["--limit", "conversation_days=0"] });
		admin = await Client.login(server);
		const refused = await admin.refused("conversation.write", { conversation_id: "x" }, "forbidden", text("x"));
		assert.match(refused.hint, /conversation_days/);
		assert.deepEqual(await list(admin), []);
	});
});
