// The node of the server's own machine as a process: how many there are after kills of the server, and that it finds its
// server whatever proxies the environment names. All real processes.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, readdirSync } from "node:fs";
import { describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { RemoteNode } from "./remote.mjs";
import { eventually, slow, startServer, temporary } from "./server.mjs";

delete process.env.EXOGPU_TEST_STREAM_BYTES; // its workers measure their devices as those of a user do

// The nodes that serve, or wait for, this data directory.
const nodesOf = (data) => readdirSync("/proc").filter((pid) => {
	if (!/^\d+$/.test(pid)) return false;
	try {
		const words = readFileSync(`/proc/${pid}/cmdline`, "latin1").split("\0");
		return words[1] === "node" && words.includes(data);
	} catch {
		return false; // it has ended meanwhile
	}
});
// Not until its output ends: its node holds that on.
const kill = async (server) => {
	const exited = once(server.child, "exit");
	server.child.kill("SIGKILL");
	await exited;
};
const online = async (server) => {
	const admin = await Client.login(server);
	const node = await eventually(async () => (await admin.call("cluster.snapshot")).nodes.find((one) => one.local && one.state === "online"),
		`its node is online; it said: ${server.output.stderr}`, 60000 * slow);
	await admin.close();
	return node;
};

describe("the server's own node", () => {
	test("after kills of the server in quick succession there are two at most, one of which serves; after a stop there is none", async () => {
		const data = temporary();
		let server = await startServer({ data, localNode: true });
		const { node_id } = await online(server);
		const [first] = nodesOf(data);
		for (let kills = 0; kills < Number(process.env.EXOGPU_CYCLES ?? 8); kills++) {
			await kill(server);
			server = await startServer({ data, localNode: true });
		}
		await eventually(() => nodesOf(data).length <= 2, () => `two nodes at most, not ${nodesOf(data).length}`);
		assert.ok(nodesOf(data).includes(first), "the one that was there keeps what it has for the next server");
		assert.equal((await online(server)).node_id, node_id);
		await eventually(() => nodesOf(data).length === 2, () => `one serves and one waits, not ${nodesOf(data).length}`);
		await server.finish();
		await eventually(() => !nodesOf(data).length, "no node is left");
	});

	test("the one that waits takes over when the one that serves is killed", async () => {
		const data = temporary();
		let server = await startServer({ data, localNode: true });
		await online(server);
		const [first] = nodesOf(data);
		await kill(server);
		server = await startServer({ data, localNode: true });
		await online(server);
		await eventually(() => nodesOf(data).length === 2, "one waits");
		process.kill(Number(first), "SIGKILL");
		await eventually(() => !nodesOf(data).includes(first), "it is gone");
		await online(server);
		await kill(server);
		server = await startServer({ data, localNode: true });
		await online(server); // it is not ended by the end of its server, which it saw while it waited no more
		await server.finish();
		await eventually(() => !nodesOf(data).length, "no node is left");
	});

	test("a proxy in the environment is not asked for the way to the server, from its machine or another", async () => {
		const dead = "http://127.0.0.1:9", env = { NO_PROXY: "", no_proxy: "" };
		for (const name of ["http_proxy", "https_proxy", "all_proxy", "socks_proxy"]) env[name] = env[name.toUpperCase()] = dead;
		const server = await startServer({ listen: "0.0.0.0:0", localNode: true, env });
		await online(server);
		const admin = await Client.login(server);
		const { ticket } = await admin.call("node.ticket", {});
		const node = new RemoteNode({ server, admin, proxy: { port: server.port } }, { env });
		await node.start(ticket);
		await node.finish();
		await server.finish();
		assertContractKept();
	});
});
