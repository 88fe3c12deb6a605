// Tokens without end: what has ended takes no place of what lives, and nobody takes the places of others.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { startServer } from "./server.mjs";

const PLACES = 10000, ENDED = 2000, SURPLUS = 256; // LIMIT_TOKENS, LIMIT_TOKENS_ENDED, and how many are forgotten together
const AT_ONCE = 200;                              // calls of a connection that are not answered yet: fewer than it may have

// `count` times `each`, many at once; its results.
async function many(count, each) {
	const results = [];
	for (let i = 0; i < count; i += AT_ONCE)
		results.push(...await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - i) }, (_, j) => each(i + j))));
	return results;
}

describe("tokens without end", () => {
	let server, admin;
	const make = (client, params) => client.call("token.create", { name: "test", scopes: ["observe"], ...params });
	const list = async () => (await admin.call("token.list")).tokens;

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("more than there are places can be made and revoked, and the newest of them are listed", async () => {
		const first = await make(admin);
		let last = [];
		for (let made = 0; made < PLACES + 500; made += 500) {
			const parent = await make(admin, { scopes: ["admin"] }), client = await Client.login(server, parent.token);
			last = await many(500, () => make(client));
			if (made >= PLACES) // the last ones each by itself, those before with what they were made with
				await many(500, (i) => admin.call("token.revoke", { token_id: last[i].token_id }));
			await admin.call("token.revoke", { token_id: parent.token_id });
			await client.closed;
		}
		const kept = await make(admin);
		const tokens = await list(), ended = tokens.filter((one) => one.revoked_at);
		assert.ok(ended.length >= ENDED && ended.length <= ENDED + SURPLUS, `${ended.length} that ended are listed`);
		const ids = new Set(tokens.map((one) => one.token_id));
		for (const one of [first, kept, ...last]) assert.ok(ids.has(one.token_id), "what lives and what ended last is listed");
		await admin.refused("token.revoke", { token_id: last[0].token_id }, "conflict");
		await (await Client.login(server, kept.token)).close();
	});

	test("a token's children take its share and no more, and its siblings go on", async () => {
		const share = PLACES / 4; // of a token that was made with the first: half of half
		const scopes = ["admin"];
		const [parent, sibling] = [await make(admin, { scopes }), await make(admin, { scopes })];
		const parents = await Client.login(server, parent.token), siblings = await Client.login(server, sibling.token);
		const child = await make(parents, { scopes }), other = await make(parents, { scopes });
		const childs = await Client.login(server, child.token), others = await Client.login(server, other.token);

		await many(share / 2, () => make(childs));
		assert.match((await childs.refused("token.create", { name: "x", scopes: ["observe"] }, "limit_exceeded")).said,
			/^the token that asks has its share/);
		const [spare] = await many(share / 2 - 2, () => make(others)); // the two children live, too
		const full = await others.refused("token.create", { name: "x", scopes: ["observe"] }, "limit_exceeded");
		assert.match(full.said, /^a token that the one that asks was made with has its share/);
		assert.ok(full.hint);
		await parents.refused("token.create", { name: "x", scopes: ["observe"] }, "limit_exceeded");
		await make(siblings);
		await make(admin);

		await others.call("token.revoke", { token_id: spare.token_id }); // one place
		await make(parents);
		await parents.refused("token.create", { name: "x", scopes: ["observe"] }, "limit_exceeded");
		await admin.call("token.revoke", { token_id: child.token_id }); // it, and all that were made with it
		await many(share / 2 + 1, () => make(parents));
		await parents.refused("token.create", { name: "x", scopes: ["observe"] }, "limit_exceeded");
		for (const client of [parents, siblings, others]) await client.close();
	});
});
