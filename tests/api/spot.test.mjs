// Spot checks of what browsers compute. The layer that the tabs hold leaves its input as it is, so that a tab which a test
// plays computes it right by passing on what it gets; the rest of the model, and the device that computes again, are this
// machine's processor.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { memory } from "./generating.mjs";
import { modelFile, readFile, words } from "./gguf.mjs";
import { passed } from "./records.mjs";
import { eventually, patience, startServer, temporary } from "./server.mjs";
import { Tab, TabWorker, tabDevice } from "./tabs.mjs";
import { limits } from "./workers.mjs";

const PIECES = 259, // the first token that is no byte: only these are said, so that a text tells which
	WIDTH = 64, HOLDS = 12; // steps, after which a tab that computes wrong says nothing until it is found out

// What a tab changes of a row.
const another = (body, rows) => body.writeFloatLE(body.readFloatLE(rows) + 3, rows), noNumber = (body, rows) => body.writeUInt32LE(0x7fc00000, rows);

// One layer whose products add nothing.
function plainFile() {
	const file = modelFile({ megabytes: 0.57 });
	for (const { name, bytes } of readFile(file).tensors) if (/^blk\.1\.(attn_output|ffn_down)\.weight$/.test(name)) bytes.fill(0);
	return file;
}

// An end of a hop of the tab's part.
class Hop extends TabWorker {
	constructor(server, { hop_id, key, end }, take) {
		super(server, {});
		this.greeting = { jsonrpc: "2.0", method: "hop.hello", params: { hop_id, key, end } };
		this.opened = new Promise((resolve) => Object.assign(this, { resolve, receive: take }));
	}

	answer(head, body) {
		if (head.method === "hop.hello") this.resolve();
		else this.receive(head, body);
	}
}

class PartWorker extends TabWorker {
	run(method, params) {
		if (method === "stage.open") return { result: { keeps: false } };
		if (method !== "instance.load") return { result: {} };
		this.part = params.part;
		return { result: { memory: [memory], load_ms: 1, loaded_bytes: 1, chat_template: null, vocabulary: 300, embedding: WIDTH } };
	}
}

// `wrong(body, rows, step)`: changes what goes on, where it is to; the rows lie behind byte `rows` of the body.
class ComputingTab extends Tab {
	receiveRequest(message) {
		super.receiveRequest(message);
		const { method, params } = message;
		if (method === "tenant.open") {
			this.worker = new PartWorker(this.server, params);
			this.reply(message, { started_ms: 1, sandbox: { applied: [], missing: ["a browser confines it"] } });
		} else if (method === "tenant.device") {
			this.reply(message, { opened_ms: 1, limits });
		} else if (method === "tenant.close") {
			this.worker.kill();
			this.reply(message, { ended_ms: 0 });
		} else if (method === "hop.connect") {
			this.steps = 0;
			this[params.end] = new Hop(this.server, params, (head, body) => this.pass(head, body));
			this[params.end].opened.then(() => this.reply(message));
		}
	}

	pass({ method, params }, body) {
		if (method === "ring.hello")
			return this.out.send({ jsonrpc: "2.0", method, params: { ...params, part: this.worker.part.index, next_layer: this.worker.part.last_layer } });
		const rows = body.readUInt32LE(12);
		if (rows && this.wrong && ++this.steps > HOLDS) return; // what it passes on until then is to be enough
		if (rows && this.steps >= 5) this.wrong?.(body, body.length - 4 * WIDTH * rows, this.steps);
		params.parts.push({ waited_ns: 0, spent_ns: 1000, came_bytes: body.length, stages_ns: [1000] });
		this.out.send({ jsonrpc: "2.0", method, params }, body);
	}
}

describe("spot checks of what browsers compute", () => {
	let server, admin, cpu, model;
	const snapshot = () => admin.call("cluster.snapshot");
	const deviceOf = async (tab) => (await snapshot()).devices.find((one) => one.node_id === tab.own.node_id);
	const instanceOf = async (id) => (await admin.call("instance.list")).instances.find((one) => one.instance_id === id);
	const prompt = (length, seed = 0) => Array.from({ length }, (_, i) => 3 + ((i * i * 7 + i * (5 + seed) + length) % 120));

	async function lend() {
		const tab = await ComputingTab.join(server, (await admin.call("lend.create", { name: "phones" })).token);
		tab.server = server;
		await tab.register(tab.own.node_id);
		await tab.devices([tabDevice(tab.own.node_id)]);
		const pings = setInterval(() => tab.call("tab.ping", {}).catch(() => {}), 4000);
		tab.closed.then(() => clearInterval(pings));
		return tab;
	}
	const pins = (tab) => [[cpu.device_id, 0], [tabDevice(tab.own.node_id).device_id, 1], [cpu.device_id, 2]]
		.map(([device_id, first_layer]) => ({ device_id, first_layer, layer_count: 1 }));
	async function load(tab) {
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id, context_tokens: 256, sequences: 4, pins: pins(tab) });
		await eventually(async () => {
			const one = await instanceOf(instance_id);
			assert.notEqual(one?.state, "failed", one?.state_reason);
			return one?.state === "running";
		}, "the model is loaded", 4 * patience);
		return instance_id;
	}
	async function unload(instance_id) {
		await admin.call("instance.delete", { instance_id });
		await eventually(async () => !(await instanceOf(instance_id)), "the model is gone");
	}
	async function ask(tokens, max_tokens) {
		const answer = await fetch(new URL("/v1/completions", server.url), { method: "POST",
			headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
			body: JSON.stringify({ model: model.name, prompt: tokens, max_tokens, temperature: 0, ignore_eos: true, logprobs: 1,
				logit_bias: Object.fromEntries(Array.from({ length: PIECES }, (_, i) => [i, -100])) }) });
		assert.equal(answer.status, 200, await answer.clone().text());
		return (await answer.json()).choices[0].logprobs.tokens.map((text) => words.indexOf(text.replace(" ", "\u2581"), PIECES));
	}
	const checked = (tab, what) => eventually(async () => {
		const { spot_checks: checks } = await deviceOf(tab);
		assert.deepEqual([checks.given_up, checks.not_begun], [0, 0], checks.reason);
		return checks[what] && checks;
	}, `a check has ${what}`, 4 * patience);

	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		const source = join(temporary(), "plain.gguf");
		writeFileSync(source, plainFile());
		const { model_id } = await admin.call("model.add", { source });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready"), "the file is read");
		cpu = await eventually(async () => (await snapshot()).devices.find((one) => one.backend === "cpu" && one.verification.state === "passed"), "the CPU is verified", 2 * patience);
	});
	after(async () => {
		await server?.stop();
		assertContractKept();
	});

	test("of an honest tab the first request is checked, and no other while the share is 0", async () => {
		const tab = await lend(), id = await load(tab);
		await ask(prompt(40), 20);
		const checks = await checked(tab, "passed");
		assert.deepEqual([checks.failed, checks.last, checks.reason], [0, "passed", null]);
		assert.ok(checks.largest_error < 1e-5, `${checks.largest_error}`); // it is the same number
		assert.deepEqual(await admin.call("lend.policy", {}), { check_percent: 1 });
		await admin.call("lend.policy_set", { check_percent: 0 });
		await ask(prompt(8), 3);
		await admin.call("lend.policy_set", { check_percent: 100 });
		assert.deepEqual((await admin.call("audit.list", { action: "lend.policy_set", limit: 1 })).entries.map((one) => one.outcome), ["ok"]);
		await Promise.all([ask(prompt(30, 1), 12), ask(prompt(35, 2), 12), ask(prompt(3, 3), 40)]); // one of them, among rows of others
		assert.equal((await checked(tab, "passed")).failed, 0);
		await eventually(async () => (await deviceOf(tab)).spot_checks.passed >= 2, "of all requests one at a time is checked", 4 * patience);
		await unload(id);
		await tab.close();
	});

	test("a tab that changes one number from its fifth step on is found and left out, and the answer goes on", async () => {
		const tab = await lend(), id = await load(tab), tokens = prompt(40, 7);
		tab.wrong = another;
		const said = await ask(tokens, 60);
		assert.equal(said.length, 60);
		assert.ok((await instanceOf(id)).stages.every((one) => one.device_id === cpu.device_id), "it goes on without the tab");
		const rest = await ask([...tokens, ...said.slice(0, HOLDS + 8)], 60 - HOLDS - 8);
		assert.deepEqual(said.slice(HOLDS + 8), rest, "what comes after is what the model says after what came before");
		const device = await deviceOf(tab);
		assert.equal(device.spot_checks.failed, 1);
		assert.equal(device.verification.state, "failed");
		assert.match(device.verification.error, /a spot check has failed: of layers 1 to 1 of plain, the row at position 4\d of a request is off by [\d.]+ on A phone's GPU.*, where 0.\d+ is allowed, beside /);
		const [entry] = (await admin.call("audit.list", { action: "device.failed", text: device.device_id, limit: 1 })).entries;
		assert.match(JSON.stringify(entry), /a spot check has failed/);
		assert.ok((await snapshot()).recent.some((one) => one.kind === "device.failed" && one.device_id === device.device_id));
		await unload(id);

		await tab.devices([tabDevice(tab.own.node_id, { name: "Another name" })]); // which says that it was verified
		assert.deepEqual([(await deviceOf(tab)).name, (await deviceOf(tab)).verification.state], ["Another name", "failed"]);
		const { said: refused } = await admin.refused("instance.create", { model_id: model.model_id, context_tokens: 256, pins: pins(tab) }, "unavailable");
		assert.match(refused, /spot check|not verified/);
		await admin.call("device.verify", { device_id: device.device_id });
		await tab.devices([tabDevice(tab.own.node_id, { verification: { ...passed, at: new Date().toISOString() } })]);
		assert.equal((await deviceOf(tab)).verification.state, "passed", "an admin has had it verified");
		await tab.close();
	});

	test("what a tab makes NaN of goes nowhere, checked or not: it is left out, and the answer is as without it", async () => {
		await admin.call("lend.policy_set", { check_percent: 0 });
		const tab = await lend(), id = await load(tab), tokens = prompt(40, 9);
		tab.wrong = noNumber;
		const said = await ask(tokens, 30), device = await deviceOf(tab);
		assert.ok((await instanceOf(id)).stages.every((one) => one.device_id === cpu.device_id), "it goes on without the tab");
		assert.equal(device.verification.state, "failed");
		assert.match(device.verification.error, /a spot check has failed: of layers 1 to 1 of plain it passes on NaN or infinite numbers, and got finite ones/);
		assert.deepEqual([device.spot_checks.failed, device.spot_checks.passed], [1, 0]);
		assert.deepEqual(said, await ask(tokens, 30));
		await unload(id);
		await admin.call("lend.policy_set", { check_percent: 100 });
		await tab.close();
	});

	test("two that compute wrong: who disagrees with both is named; one that passes on other rows than it got", async () => {
		const find = async (wrong) => {
			const tab = await lend(), id = await load(tab);
			tab.wrong = wrong;
			await ask(prompt(20), 40);
			const { verification, device_id } = await eventually(async () => {
				const device = await deviceOf(tab);
				return device.verification.state === "failed" && device;
			}, "it is found", 2 * patience);
			await unload(id);
			return { tab, device_id, error: verification.error };
		};
		const other = /has disagreed with another browser, too/, first = await find(another), second = await find(another);
		assert.match(second.error, /is off by [\d.]+ on/);
		assert.match(second.error, other);
		const moved = await find((body) => body.writeUInt32LE(body.readUInt32LE(20) - 1, 20)); // the position of its first run
		assert.match(moved.error, /at position \d+ of a request it passes on other rows, or pages, than it got/);
		assert.doesNotMatch(moved.error, other, "that is seen without another device");
		const alert = await eventually(async () => (await snapshot()).alerts.find((one) => one.kind === "computes_wrong" && one.subject.id === second.device_id),
			"an alert stands", 2 * patience);
		assert.match(alert.message, other);
		const metrics = (await server.http("/metrics", { headers: { authorization: `Bearer ${server.token}` } })).text;
		assert.ok(Number(/^exogpu_spot_checks_total\{outcome="failed"\} (\d+)$/m.exec(metrics)[1]) >= 3);
		await Promise.all([first, second, moved].map(({ tab }) => tab.close()));
	});
});
