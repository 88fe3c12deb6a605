// A model over two machines on wires as bad as they come: late, lossy, slow, out of order, cut one way, cut both ways.
// Each ends in the answer that a good wire gives, or in a clear error; never in a hang.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { modelFile } from "../api/gguf.mjs";
import { eventually, temporary, within } from "../api/server.mjs";
import { becomes, complete, cpuOf, instanceBecomes, letIn, node, serve, snapshot } from "./cluster.mjs";
import { Net, long, missing } from "./net.mjs";

const LAYERS = 8;
const good = { delay_ms: 0, jitter_ms: 0, loss_percent: 0, reorder_percent: 0, bits_per_s: 0 };

describe("bad wires", { skip: missing ?? false }, () => {
	let net, home, one, two, server, admin, nodes, model, instance, plain;
	const linked = (ms) => eventually(async () =>
		(await snapshot(admin)).links.filter((link) => link.to_node_id !== "server" && link.state === "up").length === 2, "they are linked", ms);
	// An instance of which each machine has a half, whatever has become of the one before.
	const split = async () => {
		if (instance) await admin.call("instance.delete", { instance_id: instance.instance_id });
		const pins = nodes.map(({ cpu }, i) => ({ device_id: cpu.device_id, first_layer: i * LAYERS / 2, layer_count: i ? 0 : LAYERS / 2 }));
		const { instance_id } = await admin.call("instance.create", { model_id: model, context_tokens: 1024, sequences: 2, pins });
		instance = await instanceBecomes(admin, instance_id, "running");
		assert.deepEqual(instance.stages.map((stage) => stage.device_id), nodes.map(({ cpu }) => cpu.device_id));
	};
	// Something happens in the middle of a long answer: which begins as all others do, and is right to its end.
	const during = async (happens, heals) => {
		await split();
		const stream = ask(200);
		await eventually(() => stream.pieces > 3, "it has begun", long);
		await happens();
		const text = await within(stream.done, () => `it ends; it has ${stream.text.length} characters; server: ${server.output.stderr.slice(-1500)}`, 8 * long);
		assert.ok(text.startsWith(plain), `"${text}" begins as "${plain}"`);
		await heals();
		assert.equal(await within(ask(200).done, "it answers again", 4 * long), text);
	};
	const ask = (max_tokens = 12) => complete(server, { model: "words", prompt: "a b c", max_tokens });
	const answer = (ms = 4 * long) => {
		const stream = ask();
		return within(stream.done, () => `it answers; it has said "${stream.text}"; server: ${server.output.stderr.slice(-1500)}`, ms);
	};

	before(async () => {
		net = await Net.make(["home", "one", "two"]);
		({ home, one, two } = net.machines);
		server = await serve(home);
		admin = await server.login();
		nodes = [];
		for (const machine of [one, two]) {
			const started = await node(machine, ["--join", `${home.address}:52415`]);
			await letIn(admin, started);
			started.cpu = await cpuOf(admin, started.id);
			nodes.push(started);
		}
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.19 * LAYERS, context: 4096 }));
		const { model_id } = await admin.call("model.add", { source: path, name: "words" });
		await eventually(async () => (await admin.call("model.list")).models.some((model) => model.model_id === model_id && model.state === "ready"), "the model is known", long);
		await linked(long);
		model = model_id;
		await split();
		plain = await answer();
	});
	after(async () => {
		await server?.stop();
		net?.destroy();
	});

	for (const [name, settings] of Object.entries({
		"5 ms": { delay_ms: 5 },
		"50 ms": { delay_ms: 50 },
		"200 ms": { delay_ms: 200, jitter_ms: 20 },
		"1 % lost": { delay_ms: 2, loss_percent: 1 },
		"5 % lost": { delay_ms: 2, loss_percent: 5 },
		"10 Mbit/s": { bits_per_s: 10e6 },
		"out of order": { delay_ms: 5, jitter_ms: 4, reorder_percent: 20 },
	}))
		test(`${name}: the same answer`, async () => {
			await net.set(null, null, { ...good, ...settings });
			assert.equal(await answer(6 * long), plain);
		});

	test("cut one way between the two, while both see the server: the answer goes on", async () => {
		await net.set(null, null, good);
		await during(() => net.cut(one, two), async () => {
			await net.mend(null, null);
			await instanceBecomes(admin, instance.instance_id, "running");
		});
	});

	// It was away: its layers went elsewhere, and nobody of it is left over.
	const back = async () => {
		await becomes(admin, nodes[1].id, "online", 2 * long);
		await instanceBecomes(admin, instance.instance_id, "running");
		await linked(2 * long);
	};

	test("a machine cut off from everybody: nobody of it is left over, and it is back when it is", async () => {
		await during(async () => {
			await Promise.all([net.cut(two, null), net.cut(null, two)]);
			await becomes(admin, nodes[1].id, "offline");
		}, async () => {
			await net.mend(null, null);
			await back();
		});
	});

	// It has the link to the other machine all the while, and must not work on for a server that has given it up.
	for (const [what, from, to] of [["the server is not heard there", "home", "two"], ["it is not heard by the server", "two", "home"]])
		test(`a machine cut off from the server one way, ${what}: its layers go elsewhere, and it is back when it is`, async () => {
			await during(async () => {
				await net.cut(net.machines[from], net.machines[to]);
				await becomes(admin, nodes[1].id, "offline", 2 * long);
			}, async () => {
				await net.mend(null, null);
				await back();
			});
		});

	test("a node that is stopped, replaced, and thawed: the answer is right, and the node is back", async () => {
		await during(async () => {
			nodes[1].child.kill("SIGSTOP");
			await becomes(admin, nodes[1].id, "offline");
		}, async () => {
			nodes[1].child.kill("SIGCONT");
			await back();
		});
	});

	test("a machine whose interface goes, and comes: the same", async () => {
		await during(async () => {
			two.link("down");
			await becomes(admin, nodes[1].id, "offline");
		}, async () => {
			two.link("up");
			await back();
		});
	});

	test("a machine that gets another address in the middle of an answer: it goes on, and is reached there", async () => {
		await during(() => two.move("10.213.7.88"), async () => {
			await eventually(async () => (await snapshot(admin)).links.some((link) =>
				link.from_node_id === nodes[0].id && link.to_node_id === nodes[1].id && link.state === "up" && link.address?.includes("10.213.7.88")),
			"the link goes to the new address", 2 * long);
			await back();
		});
	});

	test("the server gets another address in the middle of an answer: its nodes find it, and the answer goes on", async () => {
		await during(() => home.move("10.213.7.77"), async () => {
			// That a node is gone is noticed seconds after the move: until then it is online.
			for (const one of nodes)
				await eventually(() => /announced at 10\.213\.7\.77:52415: trying there/.test(one.output.stderr), `${one.name} heard where the server is`, 4 * long);
			await eventually(async () => (await snapshot(admin)).nodes.every((one) => one.state === "online"), "both have found it", 4 * long);
			await back();
		});
	});
});
