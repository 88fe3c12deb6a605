// Membership of the cluster with a full disk: a change that could not be stored has not happened, and a node that was
// cut off stays cut off until that could be stored. Changes that need an audit entry are in audit_actions.test.mjs.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { makeRequest } from "./certificates.mjs";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { smallDisk } from "./disk.mjs";
import { eventually, startServer, within } from "./server.mjs";
import { Stranger, smallRecord } from "./stranger.mjs";

after(assertContractKept);

test("a full disk costs no node its certificate or its place", async (context) => {
	const disk = smallDisk(6000);
	if (!disk) return context.skip("no file system can be mounted here");
	const server = await startServer({ listen: "0.0.0.0:0", data: disk.data }), admin = await Client.login(server);
	const { ticket } = await admin.call("node.ticket", { uses: 9 }), { authority_sha256 } = await admin.call("server.info");
	const comesIn = async (node_id) => {
		const request = makeRequest(), { certificate } = await (await Stranger.connect(server, request)).joinByTicket(node_id, ticket);
		const connect = () => FakeNode.connect(server, smallRecord(node_id), { unix: false, cert: certificate, key: request.key });
		return { connect, link: await connect() };
	};
	const one = await comesIn("nod_one"), other = await comesIn("nod_other");
	const rival = await (await Stranger.connect(server)).meet("nod_other", authority_sha256);
	const listed = async () => (await admin.call("certificate.list")).certificates.filter((kept) => kept.kind === "node").length;
	disk.fill();
	// What takes the rest of the disk: a row each until there is no room for one.
	await eventually(() => admin.call("token.create", { name: "x", scopes: ["observe"] }).then(() => disk.fill(), (error) => error.reason === "unavailable"), "full");
	const before = await listed();
	await one.link.refused("node.renew", { request: makeRequest().pem }, "unavailable");
	await admin.refused("node.approve", { node_id: "nod_other" }, "unavailable");
	await assert.rejects((await Stranger.connect(server)).joinByTicket("nod_new", ticket), /unavailable/);
	assert.equal(await listed(), before, "certificates that nobody got");
	assert.equal(other.link.end, undefined, "its place is still its own");
	one.link.socket.terminate();
	other.link.socket.terminate();
	disk.empty();
	await eventually(() => one.connect().catch(() => null), "the first is back with the certificate that it had");
	other.link = await eventually(() => other.connect().catch(() => null), "and the other");
	await (await Stranger.connect(server)).joinByTicket("nod_new", ticket); // by another key: nobody has its place
	await admin.call("node.approve", { node_id: "nod_other" });
	assert.equal((await within(other.link.closed, "now it is cut off")).code, 4403);
	assert.equal((await rival.decided()).approved, true);
	await server.finish();
});

test("a full disk: each revocation can be tried again until it is stored", async (context) => {
	const disk = smallDisk(6000);
	if (!disk) return context.skip("no file system can be mounted here");
	let server = await startServer({ data: disk.data }), admin = await Client.login(server);
	const make = (client, name) => client.call("token.create", { name, scopes: ["admin"] });
	const parent = await make(admin, "parent"), child = await make(await Client.login(server, parent.token), "child"), other = await make(admin, "other");
	disk.fill();
	await eventually(() => make(admin, "x").then(() => disk.fill(), (error) => error.reason === "unavailable"), "full");
	for (const { token_id } of [parent, other, parent, other])
		await admin.refused("token.revoke", { token_id }, "unavailable");
	for (const { token } of [parent, child, other]) await assert.rejects(Client.login(server, token), /revoked/);
	disk.empty();
	await eventually(() => admin.call("token.revoke", { token_id: other.token_id }).catch((error) => error.reason === "unavailable" ? null : Promise.reject(error)), "stored");
	await server.finish();
	server = await startServer({ data: disk.data });
	for (const { token } of [parent, child, other]) await assert.rejects(Client.login(server, token), /revoked/);
	await server.finish();
});
