// Messages of a node that has not been admitted, and their limits. The rest of joining is in join.test.mjs.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { makeRequest } from "./certificates.mjs";
import { Client, assertContractKept } from "./client.mjs";
import { eventually, slow, startServer, within } from "./server.mjs";
import { Stranger, smallRecord } from "./stranger.mjs";

const lan = { listen: "0.0.0.0:0" };

describe("a stranger", () => {
	let server, admin, authority;

	before(async () => {
		server = await startServer(lan);
		admin = await Client.login(server);
		authority = (await admin.call("server.info")).authority_sha256;
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("may ask and nothing else, in little", async () => {
		for (const [name, params] of [["node.register", { protocol: 1, node: smallRecord("nod_x") }], ["node.devices", { devices: [] }],
			["node.renew", { request: makeRequest().pem }], ["join.reveal", { nonce: "0".repeat(64) }], ["cluster.snapshot", {}]]) {
			const one = await Stranger.connect(server);
			await assert.rejects(one.call(name, params), /unauthenticated|conflict/, name);
			assert.equal((await within(one.closed, `${name} ends it`)).code, 4403);
		}
		const big = await Stranger.connect(server);
		big.socket.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "join.request", params: { x: "y".repeat(8192) } }));
		assert.equal((await within(big.closed, "too big for a stranger")).code, 1009);
		const silent = await Stranger.connect(server);
		assert.equal((await within(silent.closed, "nothing was asked", 8000 * slow)).code, 4401);
	});

	test("a wrong nonce ends the request; another connection begins anew, with another nonce of the server's", async () => {
		const one = await Stranger.connect(server);
		await one.ask("nod_liar", { commitment: "ab".repeat(32) });
		assert.equal((await admin.call("node.waiting")).waiting.find((other) => other.node_id === "nod_liar").code, null);
		await admin.refused("node.approve", { node_id: "nod_liar" }, "conflict");
		await assert.rejects(one.call("join.reveal", { nonce: "cd".repeat(32) }), /forbidden/);
		await within(one.closed, "it is over");
		assert.deepEqual((await admin.call("node.waiting")).waiting, []);
		const twice = await Stranger.connect(server);
		await twice.meet("nod_liar", authority);
		await assert.rejects(twice.call("join.reveal", { nonce: twice.nonce.toString("hex") }), /conflict/);
		await within(twice.closed, "it is over");
	});
});

// Apart, since it uses up what one address may ask.
test("20 nodes of one address ask: four wait, the rest are told to come later, and tickets still work", async () => {
	const server = await startServer(lan), admin = await Client.login(server);
	const { authority_sha256 } = await admin.call("server.info");
	const asked = await Promise.allSettled(Array.from({ length: 20 }, async (_, i) =>
		(await Stranger.connect(server)).meet(`nod_${i}`, authority_sha256)));
	const waiting = asked.filter((one) => one.status === "fulfilled");
	assert.equal(waiting.length, 4, asked.map((one) => one.reason?.message).join("\n"));
	for (const { reason } of asked.filter((one) => one.status === "rejected")) assert.equal(reason.reason, "rate_limited", reason.message);
	assert.equal((await admin.call("node.waiting")).waiting.length, 4);
	await (await Stranger.connect(server)).joinByTicket("nod_ticket", (await admin.call("node.ticket", {})).ticket);
	// Leaving gives the place back, but not the tries.
	for (const { value } of waiting) await value.close();
	await eventually(async () => (await admin.call("node.waiting")).waiting.length === 0, "nobody waits", 20000 * slow);
	let tries = 4;
	for (; tries < 40; tries++) {
		const one = await Stranger.connect(server);
		if (!(await one.meet("nod_again", authority_sha256).catch(() => null))) break;
		await one.close();
		await eventually(async () => (await admin.call("node.waiting")).waiting.length === 0, "it is gone", 20000 * slow);
	}
	assert.equal(tries, 16, "of one address in ten minutes");
	await server.finish();
});
