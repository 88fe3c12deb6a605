// Authentication: logins, sessions, the life of tokens, and the limits on calls.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { connectRaw, patience, startServer, within } from "./server.mjs";

// The token with one letter of its secret exchanged, its checksum left: a typing error.
const mistyped = (token) => {
	const at = token.indexOf("_", 4) + 3;
	return token.slice(0, at) + (token[at] === "A" ? "B" : "A") + token.slice(at + 1);
};

describe("logging in", () => {
	let server, admin;
	const make = (params) => admin.call("token.create", { name: "test", scopes: ["observe"], ...params });
	const tokenOf = async (id) => (await admin.call("token.list")).tokens.find((one) => one.token_id === id);

	before(async () => {
		// What one address may do is tests/api/limits.test.mjs'.
		server = await startServer({ args: ["--limit", "login_failures=1000,not_logged_in_of_address=64"] });
		admin = await Client.login(server);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("the first token is an admin's and lasts 30 days", () => {
		const { scopes, expires_at: expires } = admin.session;
		assert.deepEqual(scopes, ["admin"]);
		const days = (Date.parse(expires) - Date.now()) / 86400000;
		assert.ok(days > 29.9 && days <= 30, `${days} days`);
	});

	test("wrong tokens are refused with a hint, and the connection stays as it was", async () => {
		const other = await make({});
		const wrong = ["x", "exo_", "exo_a_b_c", mistyped(server.token), server.token.slice(0, -1), `${server.token} `,
			server.token.toLowerCase(), `exo_${"0".repeat(10)}_${"0".repeat(43)}_${"0".repeat(6)}`,
			server.token.slice(0, 15) + other.token.slice(15), "🖥".repeat(20)];
		const client = await Client.open(server);
		for (const token of wrong) {
			const error = await client.refused("auth.login", { token }, "unauthenticated");
			assert.equal(error.code, -32001);
			assert.ok(error.hint, `a hint for ${token}`);
			assert.ok(!JSON.stringify(error).includes(token.slice(15, 50)) || token.length < 20, "the token is not echoed");
			await client.refused("cluster.snapshot", {}, "unauthenticated");
		}
		await client.call("auth.login", { token: server.token });
		await client.call("cluster.snapshot");
		await client.refused("auth.login", { token: "x" }, "unauthenticated");
		await client.call("cluster.snapshot"); // still who it was
		await client.close();
	});

	test("nobody learns from the answer whether a token's id exists", async () => {
		const { token } = await make({});
		const client = await Client.open(server);
		// Both well formed: a known id with another's secret cannot be made without the checksum, so both must read alike.
		const known = await client.refused("auth.login", { token: mistyped(token) }, "unauthenticated");
		const unknown = await client.refused("auth.login", { token: mistyped(token).replace(/^exo_..../, "exo_0000") }, "unauthenticated");
		assert.equal(known.said, unknown.said);
		await client.close();
	});

	test("a bearer header logs in with the upgrade", async () => {
		const client = await Client.open(server, { bearer: server.token });
		await client.call("cluster.snapshot");
		await client.close();
		const lower = await Client.open(server, { headers: { authorization: `bearer ${server.token}` } });
		await lower.call("cluster.snapshot");
		await lower.close();
	});

	test("a bad bearer header is refused with 401", async () => {
		for (const authorization of [`Bearer ${mistyped(server.token)}`, "Bearer ", "Bearer", "Basic dXNlcjpwYXNz", server.token,
			`Bearer ${"x".repeat(3000)}`]) {
			const refusal = await Client.open(server, { headers: { authorization } }).then(
				() => assert.fail(`taken: ${authorization}`), (error) => error);
			assert.equal(refusal.status, 401, `${authorization.slice(0, 20)}: ${refusal.message}`);
			const { error, hint } = JSON.parse(refusal.body);
			assert.equal(error, "unauthenticated");
			assert.ok(hint, "a hint");
			assert.match(refusal.headers["www-authenticate"], /^Bearer/);
		}
	});

	test("who does not log in is closed with 4401 after 5 s", async () => {
		const begun = Date.now();
		const silent = await Client.open(server), talking = await Client.open(server);
		const look = setInterval(() => talking.socket.readyState === 1 && talking.call("server.info").catch(() => {}), 500);
		const ends = await within(Promise.all([silent.closed, talking.closed]), "both are closed");
		clearInterval(look);
		assert.deepEqual(ends.map((one) => one.code), [4401, 4401]);
		const took = Date.now() - begun;
		console.log(`closed after ${took} ms`);
		assert.ok(took > 4800, `after ${took} ms`);
	});

	test("half a request is dropped, and holds nobody up", async () => {
		const raws = [connectRaw(server, "GET /healthz HT"), connectRaw(server, "")];
		await admin.call("server.info");
		for (const raw of raws) raw.socket.destroy();
	});

	test("64 connections may wait for their login, the first makes room for the next", async () => {
		const waiting = [];
		for (let i = 0; i < 65; i++) waiting.push(await Client.open(server));
		const { code, reason } = await within(waiting[0].closed, "the first is closed");
		assert.deepEqual([code, reason], [4401, "not logged in yet, and others needed its place"]);
		await waiting[1].refused("token.list", {}, "unauthenticated");
		const bearer = await Client.open(server, { bearer: server.token }); // who is known need not wait
		await bearer.close();
		await Promise.all(waiting.map((one) => one.close()));
		const again = await Client.open(server);
		await again.close();
	});

	test("a second connection joins a session with the same token only", async () => {
		const mine = await make({}), foreign = await make({});
		const first = await Client.login(server, mine.token);
		const { session_id } = first.session;
		const second = await Client.open(server);
		assert.equal((await second.call("auth.login", { token: mine.token, session_id })).session_id, session_id);
		const third = await Client.open(server);
		await third.refused("auth.login", { token: foreign.token, session_id }, "not_found");
		await third.refused("auth.login", { token: server.token, session_id }, "not_found");
		await third.refused("auth.login", { token: mine.token, session_id: "ses_none" }, "not_found");
		await third.refused("cluster.snapshot", {}, "unauthenticated");
		assert.equal((await tokenOf(mine.token_id)).sessions, 1, "two connections, one session");
		await first.close();
		await second.close();
		// It lives on for a while.
		assert.equal((await third.call("auth.login", { token: mine.token, session_id })).session_id, session_id);
		await third.close();
	});

	test("no more sessions than a token has", async () => {
		const made = await make({ max_sessions: 2 });
		const two = [await Client.login(server, made.token), await Client.login(server, made.token)];
		const third = await Client.open(server);
		await third.refused("auth.login", { token: made.token }, "limit_exceeded");
		await third.call("auth.login", { token: made.token, session_id: two[0].session.session_id });
		const refusal = await Client.open(server, { bearer: made.token });
		assert.equal((await within(refusal.closed, "the third session is closed")).code, 4429);
		await Promise.all([third, ...two].map((one) => one.close()));
	});

	test("another token on the same connection ends the subscription of the first", async () => {
		const client = await Client.login(server);
		await client.call("events.subscribe", { topics: ["log"] });
		await client.call("auth.login", { token: (await make({})).token });
		const seen = client.events.length;
		const later = await make({}); // logged
		await admin.call("token.revoke", { token_id: later.token_id });
		await client.call("cluster.snapshot");
		assert.deepEqual(client.events.slice(seen), []);
		await client.refused("events.subscribe", { topics: ["log"] }, "forbidden");
		await client.close();
	});

	test("a token's record", async () => {
		const made = await make({ name: "Größe 81", scopes: ["infer", "observe", "infer"], calls_per_s: 2.5, max_sessions: 3,
			expires_in_s: 60 });
		const record = await tokenOf(made.token_id);
		assert.equal(record.name, "Größe 81");
		assert.deepEqual(record.scopes, ["observe", "infer"]);
		assert.equal(record.parent_id, admin.session.token_id);
		assert.deepEqual([record.calls_per_s, record.max_sessions, record.sessions], [2.5, 3, 0]);
		assert.deepEqual([record.last_used_at, record.revoked_at], [null, null]);
		const life = Date.parse(record.expires_at) - Date.parse(record.created_at);
		assert.ok(Math.abs(life - 60000) < 50, `lasts ${life} ms`);
		const { expires_at: usual } = await make({});
		const capped = Math.abs(Date.parse(usual) - Date.parse(admin.session.expires_at));
		assert.ok(capped < 1000, "90 days, but not beyond the token that made it");
		assert.equal(JSON.stringify(await admin.call("token.list")).includes(made.token.split("_")[2]), false, "no secret is listed");
		const [newest, before_] = (await admin.call("token.list")).tokens;
		assert.ok(newest.created_at >= before_.created_at, "newest first");
	});

	test("a child has no scope that its parent lacks", async () => {
		const child = await Client.login(server, (await make({ scopes: ["admin"] })).token);
		await child.call("token.create", { name: "grandchild", scopes: ["admin"] });
		await child.close();
	});

	test("a token that expires is closed with 4410 and refused after", async () => {
		const made = await make({ expires_in_s: 6 });
		const client = await Client.login(server, made.token);
		await client.call("events.subscribe", { topics: ["inventory"] });
		const end = await within(client.closed, "the close");
		assert.equal(end.code, 4410);
		const again = await Client.open(server);
		const error = await again.refused("auth.login", { token: made.token }, "unauthenticated");
		assert.match(error.said, /expired/);
		await again.close();
	});

	test("revoking closes, descendants too, and nobody else", async () => {
		const parent = await make({ scopes: ["admin"] });
		const inner = await Client.login(server, parent.token);
		const child = await inner.call("token.create", { name: "child", scopes: ["observe"] });
		const bystander = await Client.login(server, (await make({})).token);
		const closing = await Promise.all([parent.token, child.token, child.token].map((token) => Client.login(server, token)));
		const ends = Promise.all([inner, ...closing].map((one) => one.closed.then((end) => ({ ...end, at: performance.now() }))));
		await admin.call("token.revoke", { token_id: parent.token_id });
		const answered = performance.now();
		for (const end of await within(ends, "the closes")) {
			assert.equal(end.code, 4410);
			console.log(`closed ${(end.at - answered).toFixed(1)} ms after the answer`);
		}
		for (const token of [parent.token, child.token]) {
			const again = await Client.open(server);
			const error = await again.refused("auth.login", { token }, "unauthenticated");
			assert.match(error.said, /revoked/);
			await again.close();
			assert.equal((await server.http("/metrics", { headers: { authorization: `Bearer ${token}` } })).status, 401);
		}
		for (const id of [parent.token_id, child.token_id]) assert.ok((await tokenOf(id)).revoked_at, "listed as revoked");
		await admin.refused("token.revoke", { token_id: parent.token_id }, "conflict");
		await bystander.call("cluster.snapshot");
		await bystander.close();
	});

	test("a token that revokes itself is closed with 4410", async () => {
		const made = await make({ scopes: ["admin"] });
		const client = await Client.login(server, made.token);
		client.call("token.revoke", { token_id: made.token_id }).catch(() => {});
		assert.equal((await within(client.closed, "the close")).code, 4410);
		assert.ok((await tokenOf(made.token_id)).revoked_at);
	});

	test("calls over a token's rate are refused, and taken again later", async () => {
		const made = await make({ calls_per_s: 5 });
		const client = await Client.login(server, made.token), begun = performance.now();
		const outcomes = await Promise.all(Array.from({ length: 40 }, () => client.call("cluster.snapshot").then(() => "taken",
			(error) => `${error.reason}, ${error.hint ? "with a hint" : "without a hint"}`)));
		const taken = outcomes.filter((one) => one === "taken").length, seconds = (performance.now() - begun) / 1000;
		assert.ok(taken >= 5 && taken <= 12 + 5 * seconds, `${taken} of 40 taken at 5 a second, in ${seconds} s`);
		assert.equal(outcomes.filter((one) => one === "rate_limited, with a hint").length, 40 - taken, outcomes.join());
		await admin.call("cluster.snapshot"); // others are not held up
		const until = Date.now() + patience;
		let reason = "rate_limited";
		while (reason === "rate_limited" && Date.now() < until) {
			await new Promise((resolve) => setTimeout(resolve, 50)); // a flood would close the connection
			reason = await client.call("cluster.snapshot").then(() => "taken", (error) => error.reason);
		}
		assert.equal(reason, "taken");
		await client.close();
	});

	test("256 calls may be under way on one connection", async () => {
		const client = await Client.login(server);
		const calls = Array.from({ length: 600 }, () => client.call("token.create", { name: "many", scopes: ["join"] }).then(
			() => "taken", (error) => error.reason));
		const outcomes = await Promise.all(calls);
		const taken = outcomes.filter((one) => one === "taken").length;
		assert.ok(taken >= 256, `${taken} of 600 taken`);
		assert.ok(outcomes.every((one) => one === "taken" || one === "limit_exceeded"), [...new Set(outcomes)].join());
		await client.call("server.info");
		await client.close();
	});
});
