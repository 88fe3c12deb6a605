// A node of the cluster that lies and does not stop: it fills neither the log nor the audit log, and the others go on.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { makeRequest } from "./certificates.mjs";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { slow, startServer } from "./server.mjs";
import { Stranger, smallRecord } from "./stranger.mjs";

after(assertContractKept);

const perSecond = 128, ahead = 256; // LIMIT_NODE_CALLS_PER_S; and what one read may bring besides

test("a node that calls without end is heard so many times a second", async () => {
	const server = await startServer({ listen: "0.0.0.0:0" }), admin = await Client.login(server), request = makeRequest();
	const { ticket } = await admin.call("node.ticket"), { certificate } = await (await Stranger.connect(server, request)).joinByTicket("nod_mad", ticket);
	const node = await FakeNode.connect(server, smallRecord("nod_mad"), { unix: false, cert: certificate, key: request.key });
	const newest = async () => (await admin.call("audit.list", { limit: 1 })).entries[0].seq;
	const first = await newest(), begun = performance.now(), calls = 4 * (perSecond + ahead);
	const padding = "x".repeat(1000); // so that one read brings few
	for (let id = 1000; id < 1000 + calls; id++) {
		const name = id % 2 ? "one" : "other", known = id % 4;
		node.calls.set(id, { name: "node.register", resolve: () => {}, reject: () => {} });
		node.socket.send(JSON.stringify({ jsonrpc: "2.0", id, method: known ? "node.register" : `none.${padding}`,
			params: known ? { protocol: 1, node: smallRecord("nod_mad", { name, host_name: padding.slice(0, 200) }) } : {} }));
	}
	await node.until(() => node.calls.size === 0, "all are answered", 60000 * slow);
	const seconds = (performance.now() - begun) / 1000;
	assert.ok(calls <= (seconds + 1) * (perSecond + ahead), `${calls} calls were taken in ${seconds} s`);
	assert.ok(await newest() - first <= calls, "no more entries than calls");
	const said = server.output.stderr.match(/a message of node nod_mad was refused/g).length;
	assert.ok(said <= seconds + 2, `the log tells ${said} times within ${seconds} s`);
	await server.finish();
});
