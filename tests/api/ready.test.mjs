// The first seconds of a server: its devices are still being looked for, it says so, and what needs a place waits for them,
// or is told to try again. The server's own node waits for the lock of its folder, which the test holds as long as it wants.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, launch, patience, run, startServer, temporary, within } from "./server.mjs";
import { WorkerNode, gpu } from "./workers.mjs";

const folder = temporary(), long = 12 * patience;

describe("a server whose devices are still being looked for", () => {
	let server, admin, model_id, lock;
	// Another process has the lock of the node's folder, as a node of a server before this one would.
	const hold = async () => {
		mkdirSync(join(folder, "node"), { recursive: true, mode: 0o700 });
		lock = launch(["-F", join(folder, "node", "lock"), "sh", "-c", "echo locked; exec sleep infinity"], {}, "flock");
		await eventually(() => lock.output.stdout.includes("locked"), "the lock is held", long);
	};
	const release = async () => {
		lock?.child.kill("SIGKILL");
		await lock?.exited;
		lock = undefined;
	};
	const start = async () => {
		await hold();
		server = await startServer({ localNode: true, data: folder, args: ["--load-on-demand"] });
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["inventory"] });
		assert.equal((await admin.call("server.info")).discovering, true);
	};
	const get = async (path) => {
		const { status, json } = await server.http(path);
		return [status, json().status, json().ready];
	};
	const place = () => admin.call("instance.create", { model_id }).then((one) => ({ one }), (error) => ({ error }));
	const ask = () => server.http("/v1/completions", { method: "POST", ms: long, headers: { authorization: `Bearer ${server.token}` },
		body: JSON.stringify({ model: "small", prompt: "abc", max_tokens: 2, temperature: 0 }) });

	before(async () => {
		writeFileSync(join(folder, "small.gguf"), modelFile({ megabytes: 0.4 }));
		await start();
		await admin.call("model.add", { source: join(folder, "small.gguf") });
		({ model_id } = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is read", long));
	});
	after(async () => {
		await release();
		await server?.finish();
		assertContractKept();
	});

	test("lives, is not ready, and says so wherever it is asked", async () => {
		assert.deepEqual(await get("/healthz"), [200, "ok", false]);
		assert.deepEqual(await get("/readyz"), [503, "starting", false]);
		assert.equal((await admin.call("cluster.snapshot")).discovering, true);
		const told = await run(["devices"], { EXOGPU_DATA: server.data });
		assert.match(told.stderr, /still being searched for/);
		assert.match((await run(["health"], { EXOGPU_DATA: server.data })).stdout, /^ok, still searching for its devices/);
	});

	test("tells who has waited a while to try again, and never that memory is short", async () => {
		const tries = await Promise.all([place(), admin.call("placement.preview", { model_id }).then((one) => ({ one }), (error) => ({ error }))]);
		for (const { one, error } of tries) {
			assert.equal(one, undefined, JSON.stringify(one));
			assert.equal(error.reason, "unavailable");
			assert.match(error.message, /devices of this machine are still being searched for/);
			assert.match(error.hint, /try again in a few seconds/);
		}
		const { status, json } = await within(ask(), "an answer", long);
		assert.equal(status, 503);
		assert.match(json().error.message, /still being searched for/);
	});

	test("is ready once they are found: an event says so, and a model has its place", async () => {
		await release();
		await eventually(() => admin.events.some((one) => one.topic === "inventory" && one.data.discovering === false), "an event says so", long);
		assert.deepEqual([await get("/healthz"), await get("/readyz")], [[200, "ok", true], [200, "ok", true]]);
		assert.equal((await admin.call("server.info")).discovering, false);
		assert.ok((await admin.call("cluster.snapshot")).devices.every((one) => one.verification.state !== "pending"));
		const { one, error } = await place();
		assert.equal(error, undefined);
		await admin.call("instance.delete", { instance_id: one.instance_id });
	});

	test("lets wait what comes before: a place, and a question that loads its model", async () => {
		await admin.close();
		await server.stop();
		await start();
		// The test plays a node, which has its devices as soon as others wait for them: real ones may take longer than these wait.
		const node = await WorkerNode.start(server, { Worker: ModelWorker, prepare: (one) => { one.devices = () => {}; } });
		const created = place(), asked = ask();
		await admin.call("server.info"); // on the same connection: the place has been asked for
		await node.call("node.devices", { devices: [gpu], complete: true });
		const { one, error } = await created;
		assert.equal(error, undefined, error?.message);
		assert.ok(one.instance_id);
		assert.equal((await within(asked, "an answer", long)).status, 200);
	});

	test("without a node of its own it is ready at once", async () => {
		const alone = await startServer();
		assert.deepEqual((await alone.http("/readyz")).json().ready, true);
		const client = await Client.login(alone);
		assert.equal((await client.call("server.info")).discovering, false);
		await alone.finish();
	});
});
