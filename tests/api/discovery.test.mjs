// Discovery of servers and nodes on the local networks: the server's list, and the command that listens by itself.
// tests/cluster tests that machines find each other; this file tests what one machine can show.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { eventually, launch, run, slow, startServer, temporary, within } from "./server.mjs";

const long = 20000 * slow;

describe("discovery", () => {
	after(() => assertContractKept());

	test("a server for its own machine alone listens for nobody, and says so", async () => {
		const server = await startServer(), client = await Client.login(server);
		const { heard, listening, reason } = await client.call("discovery.list");
		assert.deepEqual([heard, listening, /own machine only.*--lan/.test(reason)], [[], false, true], reason);
		await client.close();
		await server.finish();
	});

	test("a node that waits, and then is let in, is heard as such; told as events, and by the command", async (context) => {
		const server = await startServer({ listen: "0.0.0.0:0" }), admin = await Client.login(server);
		const first = await admin.call("discovery.list");
		if (!first.listening) {
			await server.finish();
			return context.skip(first.reason);
		}
		await admin.call("events.subscribe", { topics: ["topology"] });
		const node = launch(["node", "--join", `127.0.0.1:${server.port}`, "--accept-code", "--name", "here", "--backends", "cpu", "--data", temporary()]);
		const [, id] = await eventually(() => /as node (node_[0-9a-f]+)/.exec(node.output.stderr), "it asks", long);
		const told = (verdict) => admin.until(() => admin.events.find(({ data }) => data.heard?.some((one) => one.id === id && one.verdict === verdict)),
			`it is told as ${verdict}`, long);
		const waiting = (await told("waiting")).data.heard.find((one) => one.id === id);
		assert.deepEqual([waiting.role, waiting.cluster_id, waiting.fingerprint, waiting.interfaces.length > 0], ["node", "", "", true]);
		assert.ok(waiting.name.startsWith("here ("), waiting.name);
		await admin.call("node.approve", { node_id: id });
		await told("member");
		const { code, stdout } = await within(launch(["discover", "--for", `${3 * slow}s`, "--json", "--data", server.data]).exited, "it has listened", long);
		const answer = JSON.parse(stdout), own = answer.heard.find((one) => one.id === id);
		assert.deepEqual([code, own?.verdict, own?.cluster_id], [0, "member", (await admin.call("server.info")).cluster_id], stdout);
		node.child.kill("SIGTERM");
		await within(node.exited, "the node ends", long);
		await eventually(async () => !(await admin.call("discovery.list")).heard.some((one) => one.id === id), "its goodbye is heard", long);
		// One that is to say nothing is not heard: another that speaks meanwhile is.
		const folder = temporary(), silent = launch(["node", "--join", `127.0.0.1:${server.port}`, "--accept-code", "--no-announce", "--backends", "cpu", "--data", folder]);
		const [, quiet] = await eventually(() => /as node (node_[0-9a-f]+)/.exec(silent.output.stderr), "it asks", long);
		const loud = launch(["node", "--join", `127.0.0.1:${server.port}`, "--accept-code", "--backends", "cpu", "--data", temporary()]);
		const [, other] = await eventually(() => /as node (node_[0-9a-f]+)/.exec(loud.output.stderr), "it asks", long);
		const list = await eventually(async () => {
			const { heard } = await admin.call("discovery.list");
			return heard.some((one) => one.id === other) && heard;
		}, "the other is heard", long);
		assert.ok(!list.some((one) => one.id === quiet));
		for (const one of [silent, loud]) {
			one.child.kill("SIGTERM");
			await within(one.exited, "a node ends", long);
		}
		await admin.close();
		await server.finish();
	});

	test("the command's own mistakes", async () => {
		for (const [args, pattern] of [[["--for", "never"], /never/], [["--for", "2h"], /an hour at most/], [["here"], /one argument too many/]]) {
			const { code, stderr } = await run(["discover", ...args]);
			assert.deepEqual([code, pattern.test(stderr)], [2, true], stderr);
		}
		assert.match((await run(["discover", "--help"])).stdout, /Needs no server/);
	});
});
