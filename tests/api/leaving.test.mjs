// Nodes whose machines are lent for a time: the server knows when they end, and a node that is told to go, or whose time is
// nearly up, drains. Its models move to other nodes, with what they are answering, and it ends with status 0.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { Proxy, RemoteNode } from "./remote.mjs";
import { LONG, Restarted, wordsFile } from "./restarted.mjs";
import { binary, eventually, launch, slow, temporary, within } from "./server.mjs";

describe("nodes that leave", { timeout: 900000 * slow }, () => {
	const cluster = new Restarted({ host: "0.0.0.0" });
	const prompt = Array.from({ length: 60 }, (_, i) => "abcdefg"[i % 7]).join(" "), most = { max_tokens: 900, ignore_eos: true };
	let proxy, stays, leaves, model_id, instance_id, expected;

	const join = async (name, ...args) => {
		const node = new RemoteNode({ server: cluster.server, admin: cluster.admin, proxy }, { name, args });
		await node.start((await cluster.admin.call("node.ticket", {})).ticket);
		return node;
	};
	const shown = async (node) => (await cluster.admin.call("cluster.snapshot")).nodes.find((one) => one.node_id === node.node_id);
	const holders = async () => (await cluster.list()).find((one) => one.instance_id === instance_id).stages.map((one) => one.device_id);
	const ended = async (node) => {
		const { code, signal, stderr } = await within(node.exited, `${node.name} ends by itself`, LONG);
		assert.equal(code, 0, `${node.name} ended with ${code ?? signal}: ${stderr.slice(-2000)}`);
		return stderr;
	};

	before(async () => {
		process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
		await cluster.start();
		await cluster.admin.call("alert.rule_set", { rule_id: "node_offline", for_s: 0 });
		proxy = await Proxy.start(cluster.server.port);
		leaves = await join("leaves", "--for", "2h", "--drain", "1h");
		({ model_id } = await cluster.add(wordsFile({ megabytes: 1.6, context: 4096 })));
		({ instance_id } = await cluster.admin.call("instance.create", { model_id, context_tokens: 1024, sequences: 2 }));
		await cluster.ready(instance_id);
		assert.deepEqual(await holders(), [leaves.device.device_id]);
		expected = await cluster.says(prompt, most);
		stays = await join("stays");
	});
	after(async () => {
		for (const node of [stays, leaves]) if (node?.child?.exitCode === null && !node.child.signalCode) await node.finish();
		proxy?.close();
		await cluster.server?.finish();
		assertContractKept();
	});

	test("a node's end is shown", async () => {
		const { ends_at, state, state_reason } = await shown(leaves), left = Date.parse(ends_at) - Date.now();
		assert.deepEqual([state, state_reason], ["online", null]);
		assert.ok(left > 0 && left <= 7200_000, ends_at);
		assert.equal((await shown(stays)).ends_at, null);
		assert.match(execFileSync(binary, ["nodes", "--data", cluster.server.data], { encoding: "utf8" }), /leaves +online, leaves in (1 h|\d+ min)/);
	});

	test("told by SIGUSR1, it ends when its model has moved, and no token of an answer is lost", async () => {
		const streamed = cluster.stream(prompt, most);
		await streamed.begun();
		leaves.child.kill("SIGUSR1");
		const log = await ended(leaves);
		assert.match(log, /drained: nothing is left on this node/);
		await cluster.ready(instance_id);
		assert.deepEqual(await holders(), [stays.device.device_id]);
		await streamed.done;
		assert.deepEqual([streamed.text, streamed.error, streamed.broken, streamed.whole], [expected, undefined, undefined, true]);
		await eventually(async () => (await shown(leaves)).state === "offline", "it is gone", LONG);
		assert.deepEqual([(await shown(leaves)).ends_at, (await shown(leaves)).state_reason], [null, "it has left, as it had said"]);
	});

	test("a node that ends soon gets a model last", async () => {
		leaves = await join("soon", "--for", "9m", "--drain", "200s");
		const preview = await cluster.admin.call("placement.preview", { model_id, context_tokens: 1024, sequences: 2 });
		assert.deepEqual(preview.stages.map((one) => one.device_id), [stays.device.device_id]);
		assert.ok(JSON.stringify(preview).includes("its machine leaves within 10 minutes"), JSON.stringify(preview));
	});

	test("SIGTERM drains a node that has time for it; a second one ends it at once", async () => {
		await cluster.admin.call("memory.allocate", { device_id: leaves.device.device_id, bytes: 4096 });
		leaves.child.kill("SIGTERM");
		const { state_reason } = await eventually(async () => {
			const one = await shown(leaves);
			return one.state === "draining" && one;
		}, "it drains", LONG);
		assert.match(state_reason, /about to leave/);
		const { devices } = await cluster.admin.call("cluster.snapshot");
		const device = devices.find((one) => one.device_id === leaves.device.device_id);
		assert.deepEqual([device.state, device.state_reason], ["resting", "its machine is about to leave"]);
		await cluster.admin.refused("memory.allocate", { device_id: device.device_id, bytes: 4096 }, "unavailable");
		assert.equal(leaves.child.exitCode, null, "it waits for the session");
		leaves.child.kill("SIGTERM");
		await ended(leaves);
	});

	test("its time is up: it ends by itself, whether it has joined by then or not", async () => {
		const { ticket } = await cluster.admin.call("node.ticket", {});
		const node = launch(["node", "--join", `127.0.0.1:${proxy.port}`, "--ticket", ticket, "--data", temporary(), "--backends", "cpu", "--name", "brief", "--for", "4s", "--drain", "2s"]);
		assert.match(await ended({ ...node, name: "brief" }), /its time is nearly up/);
	});

	test("a node that has left as it had said is no alert, one that is lost is", async () => {
		const offline = async () => (await cluster.admin.call("alert.list", { state: "all" })).alerts.filter((one) => one.kind === "node_offline").map((one) => one.subject.name);
		stays.child.kill("SIGKILL");
		assert.deepEqual(await eventually(async () => (await offline()).length > 0 && offline(), "the lost one is", LONG), ["stays"]);
	});
});
