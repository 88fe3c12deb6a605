// Nodes that are not as the others. Clocks that are off by an hour: they join, run parts of a model and are seen as they
// are; one that is two days late says what is wrong. Another version: it joins, and is no part of a model.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client } from "../api/client.mjs";
import { modelFile } from "../api/gguf.mjs";
import { ofAnotherVersion } from "../api/remote.mjs";
import { eventually, launch, slow, startServer, temporary, within } from "../api/server.mjs";

const HOUR = 3600, LONG = 60000 * slow;

describe("nodes that are not as the others", { timeout: 6 * LONG }, () => {
	let server, admin, library, model;
	const nodes = [];

	const begin = async (name, env, program) => {
		const { ticket } = await admin.call("node.ticket", {});
		const node = launch(["node", "--join", `127.0.0.1:${server.port}`, "--ticket", ticket, "--data", temporary(), "--backends", "cpu",
			"--name", name], env, program);
		nodes.push(node);
		return node;
	};
	const skewed = (name, seconds) => begin(name, { LD_PRELOAD: library, EXOGPU_TEST_SKEW_S: String(seconds) });
	const place = async (first, second) => (await admin.call("instance.create", { model_id: model.model_id, context_tokens: 256, sequences: 1,
		pins: [{ device_id: first.device_id, first_layer: 0, layer_count: 1 }, { device_id: second.device_id, first_layer: 1, layer_count: 0 }] }))
		.instance_id;
	const settled = (id) => eventually(async () => {
		const one = (await admin.call("instance.list")).instances.find((other) => other.instance_id === id);
		return ["running", "failed"].includes(one.state) && one;
	}, "it is ready or has failed", LONG);
	const cpuOf = (name, node) => eventually(async () => {
		assert.equal(node.child.exitCode, null, node.output.stderr);
		const { nodes: all, devices } = await admin.call("cluster.snapshot"), one = all.find((other) => other.name === name && other.state === "online");
		return one && devices.find((device) => device.node_id === one.node_id && device.verification.state === "passed");
	}, `the CPU of ${name} is verified`, LONG).catch((error) => { throw new Error(`${error.message}; it said ${node.output.stderr}`); });

	before(async () => {
		library = join(temporary(), "clock.so");
		execFileSync("cc", ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", library, fileURLToPath(new URL("clock.c", import.meta.url))]);
		server = await startServer({ listen: "0.0.0.0:0" });
		process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
		admin = await Client.login(server);
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.8, context: 512 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => {
			const [one] = (await admin.call("model.list")).models;
			return one?.state === "ready" && one;
		}, "the model is ready", LONG);
	});
	after(async () => {
		for (const { child, exited } of nodes) {
			child.kill("SIGTERM");
			await within(exited, "the node ends", LONG);
		}
		await server?.finish();
	});

	test("an hour ahead and an hour behind: one model over both, and what they tell is as new as it is", async () => {
		const devices = [];
		for (const [name, seconds] of [["ahead", HOUR], ["behind", 60 - HOUR]]) devices.push(await cpuOf(name, await skewed(name, seconds)));
		const instance_id = await place(...devices), { state, state_reason } = await settled(instance_id);
		assert.equal(state, "running", state_reason);
		const answer = await fetch(new URL("/v1/completions", server.url).href, { method: "POST", headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model: "words", prompt: "a b", max_tokens: 5, temperature: 0 }) });
		assert.equal((await answer.json()).usage.completion_tokens, 5);
		await admin.call("instance.delete", { instance_id });
		const { nodes: seen } = await admin.call("cluster.snapshot");
		for (const { name, last_seen_at } of seen)
			assert.ok(Math.abs(Date.parse(last_seen_at) - Date.now()) < LONG, `${name}: seen at ${last_seen_at}`);
	});

	test("two days behind: it says that the certificate is not valid yet, and what to look at", async () => {
		const node = await skewed("yesterday", -48 * HOUR);
		const { code, stderr } = await within(node.exited, () => `it ends; it said ${node.output.stderr}`, LONG);
		assert.equal(code, 1);
		assert.match(stderr, /is valid from [^]* on: is a clock wrong\?/);
		assert.ok((await admin.call("cluster.snapshot")).nodes.every((one) => one.name !== "yesterday"));
	});

	test("another version: it joins, and a model that is split over it and another fails with both versions", async () => {
		const { version } = await admin.call("server.info"), { path, version: other } = ofAnotherVersion(version);
		const now = await cpuOf("now", await begin("now", {})), later = await cpuOf("later", await begin("later", {}, path));
		assert.equal((await admin.call("cluster.snapshot")).nodes.find((one) => one.name === "later").version, other);
		const { state, state_reason } = await settled(await place(later, now));
		assert.equal(state, "failed");
		assert.match(state_reason, new RegExp(`it cannot take part: its node has version ${other}, and that of part 2 has ${version}$`));
	});
});
