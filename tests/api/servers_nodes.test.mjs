// Several servers on one PostgreSQL with nodes of other machines: when the one that leads is killed or frozen, the nodes go
// on at the next one, with their certificates, and what they hold of a model is taken up there without being loaded again.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { Postgres, skip } from "./postgres.mjs";
import { Proxy, RemoteNode } from "./remote.mjs";
import { LONG, Restarted, holding, wordsFile } from "./restarted.mjs";
import { eventually, slow } from "./server.mjs";
import { Servers } from "./servers.mjs";

delete process.env.EXOGPU_TEST_POSTGRES; // this suite says itself what is where
if (skip) console.log(`# skipped: ${skip}`);

describe("several servers with nodes", { skip, timeout: 900000 * slow }, () => {
	const prompt = Array.from({ length: 60 }, (_, i) => "abcdefg"[i % 7]).join(" "), length = { max_tokens: 20 };
	// What is asked of a server, asked of whichever leads.
	const cluster = new Restarted({});
	let postgres, servers, all, leader, nodes, proxy, answer, instance;

	const lead = async (one) => {
		leader = cluster.server = one;
		cluster.admin = await servers.login(one);
		cluster.server.token = servers.known(one).token;
	};
	const followers = () => all.filter((one) => one !== leader);
	const back = async (server) => {
		const again = await servers.start({ data: server.data, port: server.port });
		all[all.indexOf(server)] = again;
		await servers.role(again, "follower");
	};

	before(async () => {
		process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
		postgres = await Postgres.start();
		servers = new Servers(postgres.make("nodes"), { address: "0.0.0.0" });
		const first = await servers.start();
		await servers.role(first, "leader");
		all = [first, await servers.start(), await servers.start()];
		await lead(first);
		for (const one of followers()) await servers.role(one, "follower");
		proxy = await Proxy.start(first.port);
		nodes = ["alpha", "beta"].map((name) => new RemoteNode({ server: first, admin: cluster.admin, proxy }, { name, env: { EXOGPU_TEST_NODE_SILENCE_S: "15" } }));
		for (const node of nodes) await node.start((await cluster.admin.call("node.ticket", {})).ticket);
		const { model_id } = await cluster.add(wordsFile({ megabytes: 1.6, context: 4096 }));
		const pin = { context_tokens: 1024, sequences: 2, pins: [{ device_id: nodes[0].device.device_id, first_layer: 0, layer_count: 0 }] };
		// On a busy machine a node may be away for a moment.
		const { instance_id } = await eventually(() => cluster.admin.call("instance.create", { model_id, ...pin }).catch(() => undefined), "an instance is made", LONG);
		instance = await cluster.ready(instance_id);
		await cluster.stored();
		answer = await cluster.says(prompt, length);
		assert.ok(answer.length > 10, answer);
	});
	after(async () => {
		for (const node of nodes ?? []) if (node.child?.exitCode === null) await node.finish();
		proxy?.close();
		await servers?.end();
		await postgres?.stop();
		assertContractKept();
	});

	test("a node knows where all servers are", async () => {
		for (const node of nodes) {
			const path = join(node.data, "node", "tls", "servers");
			const kept = () => readFileSync(path, "utf8").trim().split("\n").map((url) => Number(new URL(url).port)).toSorted().join();
			await eventually(() => existsSync(path) && kept() === all.map(({ port }) => port).toSorted().join(), "all addresses are kept");
		}
	});

	test("an answer comes through a follower as well, whole and in pieces", async () => {
		const [one] = followers();
		cluster.server = { ...one, ...servers.known(one), token: leader.token };
		await eventually(async () => (await cluster.ask(prompt, length)).status === 200, "it passes on");
		assert.equal(await cluster.says(prompt, length), answer);
		const streamed = cluster.stream(prompt, length);
		await streamed.done;
		assert.deepEqual([streamed.text, streamed.error, streamed.whole], [answer, undefined, true]);
		cluster.server = leader;
	});

	for (const [how, signal, woken] of [["killed", "SIGKILL"], ["frozen", "SIGSTOP", true], ["stopped", "SIGTERM"]])
		test(`the leader is ${how}: nodes and their model go on at the next one`, async () => {
			const before = leader, old = holding(nodes[0]), was = (await cluster.list()).find((one) => one.instance_id === instance.instance_id), begun = performance.now();
			if (woken) before.child.kill(signal);
			else await servers.stop(before, signal);
			await lead(await servers.leader(followers()));
			const took = Math.round(performance.now() - begun);
			const now = await cluster.ready(instance.instance_id);
			await eventually(async () => (await cluster.admin.call("cluster.snapshot", {})).nodes.filter((node) => node.state === "online").length >= 2, "both nodes are back", LONG);
			assert.equal(await cluster.says(prompt, length), answer);
			const all_again = Math.round(performance.now() - begun);
			// Nodes notice a frozen server late: on a busy machine the next one may have stopped waiting for their workers by then.
			if (!woken) assert.deepEqual([now.recoveries, holding(nodes[0])], [was.recoveries, old], "nothing is loaded again");
			if (woken) {
				before.child.kill("SIGCONT");
				await before.exited;
			}
			await cluster.stored();
			assert.equal((await cluster.admin.call("audit.verify", {})).verdict, "holds");
			await back(before);
			console.log(`# ${how}: replaced after ${took} ms, and the model answers after ${all_again} ms`);
		});
});
