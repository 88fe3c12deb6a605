// Searches for placements that wait for each other: what is urgent goes first, however many previews are asked for.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { deviceRecord, nodeRecord } from "./records.mjs";
import { eventually, slow, startServer, temporary, within } from "./server.mjs";
import { WorkerNode, gpu } from "./workers.mjs";

const SEARCH_S = 60, SOON_MS = Math.min(15000 * slow, 50000);

describe("searches", () => {
	let server, admin, node, model;
	const others = [];
	const first = async () => (await admin.call("instance.list")).instances[0];
	const state = (wanted) => eventually(async () => {
		const one = await first();
		return one?.state === wanted && one;
	}, `it is ${wanted}`, SOON_MS);
	const observer = async () => {
		const { token } = await admin.call("token.create", { name: "observer", scopes: ["observe"], expires_in_s: 600 });
		return { token, client: await Client.login(server, token) };
	};
	// Nothing that is proven in less than the time that it is given.
	const long = (more = {}) => ({ model_id: model.model_id, context_tokens: 65536, sequences: 250, objective: "throughput",
		timeout_s: SEARCH_S, ...more });
	// Errors are kept, too: those of a connection that is closed.
	const ask = (client, count, more) => Array.from({ length: count }, () => client.call("placement.preview", long(more)).then(
		(placement) => ({ placement, at: performance.now() }), (error) => ({ error, at: performance.now() })));
	const asked = (client) => client.call("model.list"); // on the same connection: the server has read those before it

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker, devices: [gpu] });
		for (let n = 0; n < 12; n++) { // unlike in everything
			const one = await FakeNode.connect(server, nodeRecord({ node_id: `nod_${n}`, name: `node ${n}` }));
			await one.devices([0, 1, 2].map((i) => deviceRecord({ device_id: `dev_${n}_${i}`, hardware_key: `uuid:${n}:${i}`, name: `GPU ${n}.${i}`,
				memory_pool: `uuid:${n}:${i}`, memory_bytes: (1 << 30) + (n * 3 + i) * 7e7, memory_bandwidth_bytes_per_s: 1e11 + (n * 37 + i * 11) % 41 * 5e9 })));
			others.push(one);
		}
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 6, context: 65536 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
	});
	after(async () => {
		for (const one of [node, ...others]) one?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("one that runs stops for what is more urgent, which does not wait for those behind it", async () => {
		const { client } = await observer(), { client: other } = await observer();
		const previews = ask(client, 8);
		await asked(client);
		previews.push(...ask(other, 8));
		await asked(other);
		// A newer one of the same connection has stopped the first.
		assert.equal((await within(previews.shift(), "the first is answered", SOON_MS)).placement.proof, "bound");
		const began = performance.now();
		// An instance is created: it is searched for before them all.
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id, context_tokens: 256, pins: [
			{ device_id: "dev_gpu", first_layer: 0, layer_count: 0 }] });
		await state("running");
		const stopped = await within(Promise.race(previews), "the one that ran is answered", SOON_MS);
		assert.ok(!stopped.error, stopped.error?.message);
		assert.equal(stopped.placement.feasible, true);
		assert.equal(stopped.placement.proof, "bound");
		assert.ok(stopped.placement.gap > 0 && stopped.placement.gap < 1, `${stopped.placement.gap}`);
		assert.ok(stopped.at - began < SOON_MS);

		// It loses its worker, and goes on: so is what is lost.
		const worker = node.worker(), lost = performance.now();
		node.socket.send(JSON.stringify({ jsonrpc: "2.0", method: "tenant.ended", params: { worker_id: worker.worker_id, message: "it was killed by SIGKILL" } }));
		await eventually(async () => {
			const one = await first();
			return one.state === "running" && one.recoveries === 1;
		}, "it goes on", SOON_MS);
		console.log(`with 13 previews of ${SEARCH_S} s in line: created and ready after ${Math.round(lost - began)} ms, going on after ${
			Math.round(performance.now() - lost)} ms`);
		await within(Promise.race(previews.filter((_, i) => i)), "the next one was stopped, too", SOON_MS);

		// Their connections close: nobody waits for them, and the next preview does not either.
		await Promise.all([client.close(), other.close()]);
		await within(admin.call("placement.preview", long({ timeout_s: 0.1 })), "those that nobody waits for end", SOON_MS);
		await admin.call("instance.delete", { instance_id });
	});

	test("a token has few previews at a time, and tokens take turns", async () => {
		const { token, client } = await observer(), { client: other } = await observer();
		const again = await Client.login(server, token);
		ask(client, 1); // this one runs, until its connection closes
		await asked(client);
		const many = ask(again, 12), refused = many.slice(7); // seven wait, each for a minute once it runs
		for (const { error } of await within(Promise.all(refused), "those beyond eight are refused", SOON_MS))
			assert.match(error?.message ?? "it was searched", /8 previews of this token/);
		const [one] = ask(other, 1, { timeout_s: 0.1 });
		await asked(other);
		await client.close();
		const { placement, error } = await within(one, "the other token has its turn before the seven", SOON_MS);
		assert.equal(placement?.feasible, true, error?.message);
		await again.close();
		assert.equal((await other.call("placement.preview", long({ timeout_s: 0.05 }))).feasible, true);
		await other.close();
	});
});
