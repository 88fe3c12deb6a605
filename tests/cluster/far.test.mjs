// Nodes that come by a bad wire, or are not as the others: they join, fetch a model, load it and answer as one that is
// near does; or it is said what is wrong.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { modelFile } from "../api/gguf.mjs";
import { binary, eventually, temporary, within } from "../api/server.mjs";
import { cutLayers } from "../published/cut_layers.mjs";
import { complete, cpuOf, instanceBecomes, instanceOf, letIn, node, serve } from "./cluster.mjs";
import { Net, long, missing } from "./net.mjs";

// Nobody here is to be given up: a busy machine stops a node, or the wire itself, for longer than the 8 s after which that is done.
process.env.EXOGPU_TEST_NODE_SILENCE_S ??= "300";

const LAYERS = 2, HOUR_S = 3600;
const good = { delay_ms: 0, jitter_ms: 0, loss_percent: 0, reorder_percent: 0, bits_per_s: 0 };

describe("nodes from afar", { skip: missing ?? false }, () => {
	let net, home, one, two, server, admin, model, plain;
	const come = async (machine, options) => {
		const started = await node(machine, ["--join", `${home.address}:52415`], temporary(), options);
		await letIn(admin, started);
		started.cpu = await cpuOf(admin, started.id);
		return started;
	};
	const leave = async (started) => {
		started.child.kill("SIGTERM");
		await within(started.exited, "the node ends", long);
	};
	const create = async (...pins) => (await admin.call("instance.create", { model_id: model, context_tokens: 256, sequences: 1, pins })).instance_id;
	const remove = async (instance_id) => {
		await admin.call("instance.delete", { instance_id });
		await eventually(async () => !(await instanceOf(admin, instance_id)), "the instance is gone", long);
	};
	// By this node alone, which has nothing of the model yet.
	const answer = async ({ cpu }) => {
		const instance_id = await create({ device_id: cpu.device_id, first_layer: 0, layer_count: 0 });
		await instanceBecomes(admin, instance_id, "running");
		const text = await within(complete(server, { model: "words", prompt: "a b c", max_tokens: 12 }).done,
			() => `it answers; server: ${server.output.stderr.slice(-1500)}`, 4 * long);
		await remove(instance_id);
		return text;
	};
	const logged = (pattern) => eventually(async () =>
		(await admin.call("log.list", { limit: 500 })).lines.find((line) => pattern.test(line.text)), `the log has ${pattern}`, long);

	before(async () => {
		net = await Net.make(["home", "one", "two"]);
		({ home, one, two } = net.machines);
		server = await serve(home);
		admin = await server.login();
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.19 * LAYERS, context: 4096 }));
		const { model_id } = await admin.call("model.add", { source: path, name: "words" });
		await eventually(async () => (await admin.call("model.list")).models.some((other) => other.model_id === model_id && other.state === "ready"), "the model is known", long);
		model = model_id;
		const near = await come(one);
		plain = await answer(near);
		await leave(near);
	});
	after(async () => {
		await server?.stop();
		net?.destroy();
	});

	for (const [name, settings] of Object.entries({
		"200 ms": { delay_ms: 200, jitter_ms: 20 },
		"5 % lost": { delay_ms: 2, loss_percent: 5 },
		"10 Mbit/s": { bits_per_s: 10e6 },
	}))
		test(`${name}: a node joins, loads a model, and answers the same`, async () => {
			await net.set(null, null, { ...good, ...settings });
			const far = await come(one);
			assert.equal(await answer(far), plain);
			await net.set(null, null, good);
			await leave(far);
		});

	test("a draft model is fetched by the node that has the last layers, and the answer is the same", async () => {
		const path = join(temporary(), "draft.gguf"), nodes = [await come(one), await come(two)];
		writeFileSync(path, cutLayers(modelFile({ megabytes: 0.19 * LAYERS, context: 4096 }), 1));
		const draft = (await admin.call("model.add", { source: path, name: "draft" })).model_id;
		await eventually(async () => (await admin.call("model.list")).models.some((other) => other.model_id === draft && other.state === "ready"), "the draft is known", long);
		const pins = nodes.map(({ cpu }, i) => ({ device_id: cpu.device_id, first_layer: i, layer_count: 1 }));
		const { instance_id } = await admin.call("instance.create", { model_id: model, context_tokens: 256, sequences: 1, pins, draft_model_id: draft });
		await instanceBecomes(admin, instance_id, "running");
		assert.ok((await instanceOf(admin, instance_id)).draft.bytes > 0);
		assert.equal(await within(complete(server, { model: "words", prompt: "a b c", max_tokens: 12 }).done, "it answers", 4 * long), plain);
		await remove(instance_id);
		for (const started of nodes) await leave(started);
	});

	test("a clock that is an hour off: it joins and answers the same, and the log says so", async () => {
		const library = join(temporary(), "clock.so");
		execFileSync("cc", ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", library, fileURLToPath(new URL("clock.c", import.meta.url))]);
		const ahead = await come(two, { env: { LD_PRELOAD: library, EXOGPU_TEST_SKEW_S: String(HOUR_S) } });
		assert.equal(await answer(ahead), plain);
		const { text } = await logged(new RegExp(`the clock of .*\\(${ahead.id}\\) is \\d+ s ahead of`)), seconds = Number(/(\d+) s/.exec(text)[1]);
		assert.ok(Math.abs(seconds - HOUR_S) < long / 1000, text);
		await leave(ahead);
	});

	test("one that gets another address while it is connected: the cluster knows it", async () => {
		const moving = await come(two), another = "10.213.7.77";
		two.also(another);
		await eventually(async () => (await admin.call("cluster.snapshot")).nodes.find((node) => node.node_id === moving.id).addresses.includes(another),
			"the new address is known", long);
		await moving.said(/this machine has other addresses than before/);
		await leave(moving);
	});

	test("another version: it joins, the log says so, and a model over it and another fails with both versions", async () => {
		const { version } = await admin.call("server.info"), other = version.replace(/.$/, (digit) => (Number(digit) + 1) % 10);
		const program = readFileSync(binary), from = Buffer.from(`${version}\0`), path = join(temporary(), "exogpu");
		for (let at = 0; (at = program.indexOf(from, at)) >= 0; at++) program.write(other, at);
		writeFileSync(path, program, { mode: 0o755 });
		const [now, later] = [await come(one), await come(two, { program: path })];
		await logged(new RegExp(`\\(${later.id}\\) is of version ${other}, this server of ${version}`));
		const instance_id = await create({ device_id: later.cpu.device_id, first_layer: 0, layer_count: 1 },
			{ device_id: now.cpu.device_id, first_layer: 1, layer_count: 0 });
		const { state_reason } = await instanceBecomes(admin, instance_id, "failed");
		assert.match(state_reason, new RegExp(`^part 1 of 2 .* of two\\): it cannot take part: its node has version ${other}, and that of part 2 has ${version}$`));
		await remove(instance_id);
		await Promise.all([leave(now), leave(later)]);
	});
});
