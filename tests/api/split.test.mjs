// One model over several nodes, with real processes: the same answer as on one, and no token lost when a part of it is.
//
// All nodes are on this machine and join by TLS, each with a directory of its own; pins say which layers go where. The
// words are nonsense (the weights are random), but the same nonsense each time.
// EXOGPU_TEST_ARCHITECTURE=qwen35 runs all of it with a model whose layers have states.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, readdirSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { Proxy, RemoteNode, ownNode } from "./remote.mjs";
import { holding } from "./restarted.mjs";
import { eventually, slow, startServer, streamedData, temporary, within } from "./server.mjs";

const LAYERS = 12, LONG = 60000 * slow;
// One of the nodes stands still until it is given up, and none for want of a processor; and where a way between parts fails, the end of a worker is waited for.
const env = { EXOGPU_TEST_NODE_SILENCE_S: "20", EXOGPU_TEST_LAST_WAIT_MS: "120000" };

describe("a model over several nodes", { timeout: 600000 * slow }, () => {
	let server, admin, proxies, nodes, model, whole;

	const list = async () => (await admin.call("instance.list")).instances;
	const instance = async (id) => (await list()).find((one) => one.instance_id === id);
	const is = (id, state, ms = LONG) => eventually(async () => {
		const one = await instance(id);
		if (one?.state === "failed" && state !== "failed") throw new Error(`it has failed: ${one.state_reason}`);
		return one?.state === state && one;
	}, `instance ${id} is ${state}`, ms);
	// Layers in as many pieces as there are devices.
	const pins = (...devices) => devices.map(({ device_id }, i) => {
		const first_layer = Math.floor(LAYERS * i / devices.length);
		return { device_id, first_layer, layer_count: i + 1 < devices.length ? Math.floor(LAYERS * (i + 1) / devices.length) - first_layer : 0 };
	});
	// A device of a node that was started again may have to be verified first.
	const usable = (on) => eventually(async () => (await admin.call("cluster.snapshot")).devices
		.filter((one) => on.some(({ device }) => device.device_id === one.device_id))
		.every((one) => !["offline", "draining"].includes(one.state) && one.verification.state === "passed"), "the devices can be used", LONG);
	const place = async (...on) => {
		const params = { model_id: model.model_id, context_tokens: 4096, sequences: 4, pins: pins(...on.map((one) => one.device)) };
		const created = await eventually(async () => { // a node that was started again shows for a moment what it said before
			await usable(on);
			return admin.call("instance.create", params).catch((error) => {
				if (error.reason !== "unavailable") throw error;
			});
		}, "it is placed", LONG);
		return is(created.instance_id, "running");
	};
	// A stream under way: when each piece came, and the text so far.
	function stream(more = {}) {
		const one = { text: "", pieces: [], error: undefined };
		one.done = fetch(new URL("/v1/completions", server.url).href, { method: "POST", headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model: "words", prompt: "a b c", max_tokens: 200, temperature: 0, stream: true, ...more }) })
			.then(async (response) => {
				assert.equal(response.status, 200, await (response.ok || response.text()));
				for await (const data of streamedData(response)) {
					if (data === "[DONE]") { one.whole = true; continue; }
					const json = JSON.parse(data);
					if (json.error) { one.error = json.error; continue; }
					one.text += json.choices[0]?.text ?? "";
					one.pieces.push(performance.now());
				}
			});
		one.done.catch(() => {});
		one.begun = (count = 10) => eventually(() => one.pieces.length >= count || one.whole, `${count} pieces have come`, LONG);
		return one;
	}

	const answer = async (more) => {
		const one = stream({ max_tokens: 40, ...more });
		await within(one.done, "it is answered", LONG);
		assert.deepEqual([one.error, one.whole], [undefined, true]);
		return one.text;
	};

	before(async () => {
		const data = temporary(); // where the server's own node cannot keep a certificate: it has no direct links then
		mkdirSync(join(data, "node"));
		writeFileSync(join(data, "node", "tls-own"), "");
		server = await startServer({ data, listen: "0.0.0.0:0", localNode: true, env });
		process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
		admin = await Client.login(server);
		proxies = await Promise.all([1, 2, 3].map(() => Proxy.start(server.port)));
		nodes = ["alpha", "beta", "gamma"].map((name, i) => new RemoteNode({ server, admin, proxy: proxies[i] }, { name, env }));
		for (const node of nodes) await node.start((await admin.call("node.ticket", {})).ticket);
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ architecture: process.env.EXOGPU_TEST_ARCHITECTURE ?? "llama", megabytes: 0.19 * LAYERS, context: 4096 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => {
			const [one] = (await admin.call("model.list")).models;
			return one?.state === "ready" && one;
		}, "the model is ready");
		assert.equal(model.architecture.layers, LAYERS);
		const { instance_id } = await place(nodes[0]);
		whole = await answer();
		await admin.call("instance.delete", { instance_id }); // or it would answer in the place of others
	});
	afterEach(async () => {
		for (const { instance_id } of await list()) await admin.call("instance.delete", { instance_id });
	});
	after(async () => {
		for (const node of nodes ?? []) if (node.child && node.child.exitCode === null && node.child.signalCode === null) await node.finish();
		proxies?.forEach((one) => one.close());
		await server?.finish();
		assertContractKept();
	});

	test("a node takes what another has from that node, and of the server no more than the digests", async () => {
		const [a, b] = nodes.map((node) => node.node_id);
		await eventually(async () => (await admin.call("cluster.snapshot")).links.some((one) =>
			one.from_node_id === b && one.to_node_id === a && one.state === "up"), "there is a direct link", LONG);
		const before = proxies[1].pairs.length; // what is fetched comes by a connection of its own
		await place(nodes[1]); // the first has had all of it
		const came = proxies[1].pairs.slice(before).reduce((sum, { down }) => sum + down, 0);
		assert.ok(came < model.file_bytes / 8, `${came} bytes came from the server, of ${model.file_bytes}`);
		assert.equal(await answer(), whole);
	});

	test("two and three nodes answer as one does", async () => {
		assert.ok(whole.length > 10, whole);
		for (const on of [nodes.slice(0, 2), nodes]) {
			const one = await place(...on);
			assert.equal(new Set(one.stages.map((stage) => stage.device_id)).size, on.length);
			assert.equal((await list()).length, 1);
			assert.equal(await answer(), whole);
			const { hops, timing } = await eventually(async () => {
				const told = await instance(one.instance_id);
				return told.timing && told;
			}, "where its time goes is told", LONG);
			assert.equal(hops.length, on.length, JSON.stringify(hops));
			assert.deepEqual(timing.parts.map((part) => part.node_id), on.map((node) => node.node_id));
			assert.match(timing.bottleneck, /take|wait/);
			// From each part to the next, on the way that it really goes; shares of what all hops took, which is measured.
			assert.deepEqual(timing.hops.map((hop) => [hop.from_node_id, hop.to_node_id]),
				on.map((node, i) => [node.node_id, on[(i + 1) % on.length].node_id]));
			for (const hop of timing.hops) assert.ok(["link", "server"].includes(hop.via) && hop.sent_bytes_per_token > 0, JSON.stringify(hop));
			const sum = (list, of) => list.reduce((all, one) => all + of(one), 0);
			const near = (is, wanted, what) => assert.ok(Math.abs(is - wanted) <= 0.01 * wanted + 1e-6, `${what}: ${is}, not ${wanted}`);
			near(sum(timing.hops, (hop) => hop.ms), timing.hops_ms, "the hops' shares");
			near(sum(timing.hops, (hop) => hop.sent_bytes_per_token), timing.sent_bytes_per_token, "bytes");
			near(sum(timing.parts, (part) => part.waited_ms + part.compute_ms) + timing.hops_ms, timing.step_ms, "all of a step");
			for (const part of timing.parts) assert.equal(part.stages.length, 1);
			await admin.call("instance.delete", { instance_id: one.instance_id });
		}
	});

	// Parts on the server's own node and another one: an answer, and how many bytes the server passed on for it.
	const withOwn = async (turned) => {
		const { nodes: all, devices } = await admin.call("cluster.snapshot");
		const own = { device: devices.find((one) => one.backend === "cpu" && one.node_id === all.find((node) => node.local).node_id) };
		const passed = async () => Number(/direction="relay"\} (\d+)/.exec(
			(await server.http("/metrics", { headers: { authorization: `Bearer ${server.token}` } })).text)[1]);
		const before = await passed(), one = await place(...(turned ? [nodes[0], own] : [own, nodes[0]]));
		assert.equal(await answer(), whole);
		await admin.call("instance.delete", { instance_id: one.instance_id });
		return await passed() - before;
	};
	const activations = 40 * 64 * 4; // one for each token

	test("by way of the server, to and from its own node while that has no certificate", async () => {
		for (const turned of [false, true]) assert.ok(await withOwn(turned) > activations);
	});

	test("directly, once it has one", async () => {
		rmSync(join(server.data, "node", "tls-own"));
		process.kill(ownNode(server).pid, "SIGKILL"); // the server starts it again
		const { node_id } = nodes[0];
		await eventually(async () => {
			const { nodes: all, links } = await admin.call("cluster.snapshot"), own = all.find((one) => one.local).node_id;
			return [[own, node_id], [node_id, own]].every(([from, to]) => links.some((one) =>
				one.from_node_id === from && one.to_node_id === to && one.state === "up" && one.rtt_ms !== null));
		}, "there is a link in both directions", LONG);
		for (const turned of [false, true]) assert.equal(await withOwn(turned), 0);
	});

	// Pieces of one stream around a moment: how long nothing came.
	const gap = (one, from) => Math.max(...one.pieces.map((at, i) => (i && at > from ? at - Math.max(one.pieces[i - 1], from) : 0)));
	const worker = (node) => readdirSync("/proc").filter((pid) => {
		try {
			return / worker/.test(readFileSync(`/proc/${pid}/cmdline`, "latin1").replaceAll("\0", " ")) &&
				readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ")[1] === String(node.child.pid);
		} catch {
			return false; // it has ended meanwhile
		}
	}).map(Number);

	// Lose something of an instance on `on` while three streams are under way: none of their clients notices.
	const disturbed = async (context, on, lose, max_tokens = 200) => {
		const placed = await place(...on);
		const wanted = [{}, { temperature: 1, seed: 7 }, { prompt: "d e f" }].map((one) => ({ ...one, max_tokens }));
		const undisturbed = await Promise.all(wanted.map(answer));
		const streams = wanted.map(stream);
		await Promise.all(streams.map((one) => one.begun()));
		const at = performance.now();
		await lose();
		await within(Promise.all(streams.map((one) => one.done)), () => `all end; came ${JSON.stringify(streams.map((one) => [one.text.length, one.error]))}`, LONG);
		for (const [i, one] of streams.entries()) assert.deepEqual([one.error, one.whole, one.text], [undefined, true, undisturbed[i]]);
		context.diagnostic(`nothing came for ${gap(streams[0], at).toFixed(0)} ms`);
		return placed.instance_id;
	};
	const goneOn = async (id) => {
		const now = await eventually(async () => {
			const one = await instance(id);
			return one.recoveries && one.state === "running" && one;
		}, "it goes on elsewhere", LONG);
		assert.deepEqual([now.recoveries, now.epoch, now.missing, now.state_reason], [1, 2, [], null]);
		return now.stages.map((one) => one.device_id);
	};

	for (const [name, index] of [["first", 0], ["last", 1]])
		test(`streams go on when the ${name} part's worker is killed`, async (context) => {
			const on = nodes.slice(0, 2), other = on[1 - index];
			let old;
			const id = await disturbed(context, on, () => {
				old = holding(other);
				process.kill(holding(on[index])[0], "SIGKILL");
			});
			assert.deepEqual(await goneOn(id), on.map((one) => one.device.device_id), "where it was");
			assert.deepEqual([old.length, holding(other)], [1, old], "the other part is not loaded anew");
		});

	test("streams go on when a node of three is killed", async (context) => {
		const id = await disturbed(context, nodes, () => nodes[1].child.kill("SIGKILL"));
		assert.ok(!(await goneOn(id)).includes(nodes[1].device.device_id));
		await nodes[1].start();
	});

	test("streams go on when a device is drained", async (context) => {
		const { device_id } = nodes[1].device;
		const id = await disturbed(context, nodes.slice(0, 2), () => admin.call("device.drain", { device_id, drain: true }));
		assert.ok(!(await goneOn(id)).includes(device_id));
		await admin.call("device.drain", { device_id, drain: false });
	});

	test("streams go on when a node stands still and comes back after it was replaced", async (context) => {
		const { child } = nodes[1];
		let back;
		const id = await disturbed(context, nodes.slice(0, 2), () => {
			child.kill("SIGSTOP");
			back = eventually(async () => (await list()).some((one) => one.recoveries && one.state === "running"), "it is replaced", LONG)
				.finally(() => child.kill("SIGCONT"));
			back.catch(() => {});
		}, 1000);
		await back;
		assert.ok(!(await goneOn(id)).includes(nodes[1].device.device_id));
		await eventually(async () => (await admin.call("cluster.snapshot")).nodes.find((one) => one.node_id === nodes[1].node_id).state === "online",
			"it is back", LONG);
		await eventually(() => worker(nodes[1]).length === 0, "it has ended what it had", LONG);
		assert.equal(await answer(), whole);
	});

	// That nothing is loaded anew while there is no other place, however long that takes, is seen in api/restart.
	test("a connection that breaks and is made again: nothing is loaded anew if it is back within the time of grace", async (context) => {
		const log = server.output.stderr.length;
		let was;
		const id = await disturbed(context, nodes.slice(0, 2), () => {
			was = worker(nodes[1]);
			proxies[1].break();
		}, 600);
		const now = await is(id, "running");
		assert.match(server.output.stderr.slice(log), /is cut off/);
		if (now.recoveries) return context.diagnostic("on this busy machine it was back too late");
		assert.deepEqual([now.epoch, worker(nodes[1])], [1, was]);
	});

	test("a part that cannot be had: nothing is left of the others", async () => {
		await usable(nodes);
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id, pins: pins(nodes[0].device, nodes[1].device) });
		nodes[1].child.kill("SIGKILL");
		const failed = await is(instance_id, "failed");
		assert.match(failed.state_reason, /part 2 of 2 \(layers 6 to 11 on /);
		await eventually(() => worker(nodes[0]).length === 0, "its worker is ended", LONG);
		await nodes[1].start();
	});

	test("a part that computes something else is found out before anybody is answered by it", async (context) => {
		const { instance_id: good } = await place(nodes[0], nodes[1]); // as it has been before
		await admin.call("instance.delete", { instance_id: good });
		const verified = async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.device_id === nodes[0].device.device_id).verification;
		const again = async (fault) => {
			const { at: before } = await verified(); // what is told until the node has verified it anew
			await nodes[0].finish();
			await eventually(async () => (await admin.call("cluster.snapshot")).nodes.find((one) => one.node_id === nodes[0].node_id).state !== "online",
				"it is gone", LONG);
			if (fault) process.env.EXOGPU_FAULT = fault;
			try { await nodes[0].start(); } finally { delete process.env.EXOGPU_FAULT; }
			await eventually(async () => (await verified()).at !== before, "it is verified again", LONG);
			await usable(nodes);
		};
		await again("step-wrong:cpu");
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id, context_tokens: 4096, sequences: 4,
			pins: pins(nodes[0].device, nodes[1].device) });
		const failed = await is(instance_id, "failed");
		context.diagnostic(failed.state_reason);
		assert.match(failed.state_reason, /^part 1 of 2 \(layers 0 to 5 on .* of alpha\): it computes something else: the reference token leads to token \d+ with a logit of \S+, where it (first led|otherwise leads) to token \d+ with \S+$/);
		await eventually(() => nodes.every((one) => worker(one).length === 0), "no worker is left", LONG);
		await again();
		await place(nodes[0], nodes[1]);
		assert.equal(await answer(), whole);
	});

	test("one that is stopped while it loads leaves nothing", async () => {
		await usable(nodes);
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id, pins: pins(...nodes.map((one) => one.device)) });
		await admin.call("instance.delete", { instance_id });
		await eventually(() => nodes.every((one) => worker(one).length === 0), "no worker is left", LONG);
		assert.deepEqual(await list(), []);
	});

	test("a model that is removed is forgotten by the nodes that had parts of it", async () => {
		const kept = () => nodes.flatMap((one) => readdirSync(join(one.data, "node", "models")));
		assert.ok(kept().some((name) => name.startsWith(model.model_id)), kept().join());
		await admin.call("model.remove", { model_id: model.model_id });
		await eventually(() => kept().length === 0, "nothing is kept", LONG);
	});
});
