// A model over several nodes starts whole or not at all: a node that computes wrong, one of another version, another file
// under the same name, a neighbour that cannot be reached. Each stops the start, is named with the reason, by the API, the
// command line, the log and the audit log alike, and nothing stays loaded; and no wrong result is believed later.
//
// Real nodes of this machine, which joined by TLS. The server's own node has no certificate, so that its hops go by way of
// the server, where a proxy can refuse them.
import assert from "node:assert/strict";
import { closeSync, mkdirSync, openSync, readFileSync, readdirSync, statSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { workers } from "./machine.mjs";
import { Proxy, RemoteNode, ofAnotherVersion, ownNode } from "./remote.mjs";
import { eventually, run, slow, startServer, temporary } from "./server.mjs";

const LAYERS = 6, LONG = 60000 * slow;
const env = { VK_DRIVER_FILES: "/dev/null", VK_ICD_FILENAMES: "/dev/null" };

describe("a model starts whole or not at all", { timeout: 20 * LONG }, () => {
	let server, admin, proxy, own, alpha, beta, gamma, path, model, whole;
	const nodes = [];

	const snapshot = () => admin.call("cluster.snapshot");
	const join_ = async (name, more = {}, through = server) => {
		const node = new RemoteNode({ server, admin, proxy: through }, { name, env: { ...env }, ...more });
		nodes.push(node);
		await node.start((await admin.call("node.ticket", {})).ticket);
		return node;
	};
	// A node that is started again, with a fault or without one.
	const again = async (node, fault) => {
		const verified = async () => (await snapshot()).devices.find((one) => one.device_id === node.device.device_id).verification;
		const { at: before } = await verified();
		await node.finish();
		await eventually(async () => (await snapshot()).nodes.find((one) => one.node_id === node.node_id).state !== "online", "it is gone", LONG);
		node.env = { ...env, ...(fault ? { EXOGPU_FAULT: fault } : {}) };
		const ready = node.ready;
		if (fault?.startsWith("verify")) node.ready = () => {}; // it never is
		await node.start();
		node.ready = ready;
		await eventually(async () => {
			const now = await verified();
			return now.at !== before && now.state !== "pending";
		}, "it is verified again", LONG);
		return verified();
	};
	const wanted = (...on) => ({ model_id: model.model_id, context_tokens: 512, sequences: 2, pins: on.map(({ device: { device_id } }, i) => ({
		device_id, first_layer: LAYERS / on.length * i, layer_count: i + 1 < on.length ? LAYERS / on.length : 0 })) });
	const settled = (id) => eventually(async () => {
		const one = (await admin.call("instance.list")).instances.find((other) => other.instance_id === id);
		return ["running", "failed"].includes(one?.state) && one;
	}, "it runs or has failed", LONG);
	const place = async (...on) => {
		const one = await settled((await admin.call("instance.create", wanted(...on))).instance_id);
		assert.equal(one.state, "running", one.state_reason);
		return one;
	};
	const answer = async () => {
		const { status, text, json } = await server.http("/v1/completions", { method: "POST", ms: LONG, headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model: "words", prompt: "a b c", max_tokens: 24, temperature: 0 }) });
		assert.equal(status, 200, text);
		return json().choices[0].text;
	};
	const loaded = () => [ownNode(server).pid, ...nodes.map((node) => node.child.pid)].flatMap(workers).filter((pid) => {
		try {
			return readFileSync(`/proc/${pid}/maps`, "latin1").length && readdirSync(`/proc/${pid}/fd`).includes("6"); // a part's way in
		} catch {
			return false; // it has ended meanwhile
		}
	});
	const clear = async () => {
		for (const { instance_id } of (await admin.call("instance.list")).instances) await admin.call("instance.delete", { instance_id });
		await eventually(() => loaded().length === 0, "no worker is left", LONG);
	};

	// The start fails: for this reason, which everybody is told alike, on this node; and nothing is left of it.
	const fails = async (context, on, node, reason) => {
		const log = server.output.stderr.length, { instance_id } = await admin.call("instance.create", wanted(...on)), one = await settled(instance_id);
		context.diagnostic(`${one.state}: ${one.state_reason}`);
		assert.equal(one.state, "failed");
		assert.match(one.state_reason, reason);
		assert.ok(one.state_reason.includes(`of ${node.name}`), `"${one.state_reason}" names ${node.name}`);
		await eventually(() => loaded().length === 0, "no worker is left", LONG);
		await eventually(() => server.output.stderr.slice(log).includes(`instance ${instance_id} of words has failed: ${one.state_reason}`), "the log has the reason");
		const { stdout } = await run(["instances", "--data", server.data]);
		assert.ok(stdout.replace(/\s+/g, " ").includes(one.state_reason), `the command line has the reason: ${stdout}`);
		const { entries } = await admin.call("audit.list", { action: "instance.failed", text: instance_id });
		assert.equal(entries.length, 1);
		assert.deepEqual([entries[0].node_id, entries[0].device_id, entries[0].detail], [node.node_id, node.device.device_id, { model: "words", reason: one.state_reason }]);
		const { status, text } = await server.http("/v1/completions", { method: "POST", headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model: "words", prompt: "a" }) });
		assert.equal(status, 503, text);
		await clear();
		return one.state_reason;
	};

	before(async () => {
		const data = temporary(); // where the server's own node cannot keep a certificate
		mkdirSync(join(data, "node"));
		writeFileSync(join(data, "node", "tls-own"), "");
		server = await startServer({ data, listen: "0.0.0.0:0", localNode: true, env });
		admin = await Client.login(server);
		proxy = await Proxy.start(server.port);
		alpha = await join_("alpha", {}, proxy);
		beta = await join_("beta");
		gamma = await join_("gamma");
		own = await eventually(async () => {
			const { nodes: all, devices } = await snapshot(), node = all.find((one) => one.local);
			const device = devices.find((one) => one.node_id === node?.node_id && one.verification.state === "passed");
			return device && { name: node.name, node_id: node.node_id, device };
		}, "the server's node is ready", LONG);
		path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.19 * LAYERS, context: 1024 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => {
			const [one] = (await admin.call("model.list")).models;
			return one?.state === "ready" && one;
		}, "the model is ready", LONG);
	});
	afterEach(clear);
	after(async () => {
		for (const node of nodes) if (node.child.exitCode === null) await node.finish();
		proxy?.close();
		await server?.finish();
		assertContractKept();
	});

	test("a device whose driver computes wrong is not verified, and no start on it begins", async () => {
		const { state, error } = await again(alpha, "verify-corrupt:cpu");
		assert.equal(state, "failed");
		const log = server.output.stderr.length, refused = await admin.refused("instance.create", wanted(alpha, beta));
		assert.ok(refused.said.includes(alpha.name), refused.message);
		assert.ok(refused.said.includes(error), `"${refused.said}" has "${error}"`);
		assert.deepEqual([(await admin.call("instance.list")).instances, loaded(), server.output.stderr.slice(log).includes("Please report")], [[], [], false]);
		const { entries } = await admin.call("audit.list", { action: "instance.create" });
		assert.deepEqual([entries[0].target, entries[0].outcome], [model.model_id, refused.reason]);
	});

	test("a part that computes something else: as the first start nobody knows, and once others have shown it, it never runs again", async (context) => {
		await again(alpha, "step-wrong:cpu");
		await place(alpha, beta);
		const wrong = await answer();
		await clear();
		const reason = await fails(context, [gamma, beta], gamma, /^part 1 of 2 \(layers 0 to 2 on .*\): it computes something else: the reference token leads to token \d+ with a logit of \S+, where it first led to token \d+ with \S+; or it was wrong then, on /);
		assert.ok(reason.includes(`of ${alpha.name}`), "it is open which of the two is wrong");
		await place(own, beta);
		whole = await answer();
		assert.notEqual(whole, wrong);
		await clear();
		await fails(context, [alpha, beta], alpha, /^part 1 of 2 \(layers 0 to 2 on .*\): it computes something else: the reference token leads to token \d+ with a logit of \S+, where it otherwise leads to token \d+ with \S+$/);
		await fails(context, [gamma, alpha, beta], alpha, /^part 2 of 3 \(layers 2 to 3 on .*\): it computes something else/);
		await again(alpha);
		for (const on of [[gamma, beta], [alpha, beta]]) {
			await place(...on);
			assert.equal(await answer(), whole);
			await clear();
		}
	});

	test("a node of another version", async (context) => {
		const { version } = await admin.call("server.info"), other = ofAnotherVersion(version), later = await join_("later", { program: other.path });
		const told = (part, another) => new RegExp(`^part ${part} of 2 \\(layers .*\\): it cannot take part: its node has version ${other.version}, and that of part ${another} has ${version}`);
		await fails(context, [later, beta], later, told(1, 2));
		await fails(context, [beta, later], later, told(2, 1));
		await later.finish();
	});

	test("other bytes in a node's copy of the model: they are found, and come from the server again", async () => {
		const copy = join(alpha.data, "node", "models", `${model.model_id}.part`), log = alpha.output.stderr.length;
		await place(alpha, beta);
		await clear();
		const file = openSync(copy, "r+"), { size } = statSync(copy);
		for (let at = size / 8; at < size; at += size / 8) writeSync(file, Buffer.alloc(4096, 0x3f), 0, 4096, Math.floor(at));
		closeSync(file);
		await place(alpha, beta);
		assert.equal(await answer(), whole);
		await alpha.said(/bytes at \d+ are damaged, and are downloaded again/, log);
	});

	test("another file under the name of the server's", async (context) => {
		const before = readFileSync(path);
		writeFileSync(path, modelFile({ megabytes: 0.19 * LAYERS, context: 1024, seed: 2 }));
		const { message, said } = await admin.refused("instance.create", wanted(alpha, beta));
		context.diagnostic(said);
		assert.match(message, /the file has changed/);
		assert.deepEqual([(await admin.call("instance.list")).instances, loaded()], [[], []]);
		writeFileSync(path, before);
		const { model_id } = await admin.call("model.add", { source: path });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready"), "it is known again", LONG);
		await place(alpha, beta);
		assert.equal(await answer(), whole);
	});

	test("a neighbour that cannot be reached", async (context) => {
		for (const on of [[alpha, own], [own, alpha]]) {
			await place(...on); // it has the layers now
			await clear();
			proxy.takes = 1; // its worker's way to the server; then none for the parts'
			await fails(context, on, on[0], /it could not be connected to part \d on .*: /);
			proxy.takes = Infinity;
		}
		proxy.takes = 0;
		await fails(context, [alpha, own], alpha, /it is lost: no worker could be started: /);
		proxy.takes = Infinity;
		await place(alpha, own);
		assert.equal(await answer(), whole);
	});
});
