// Workers that outlive their server: the next one on its data directory takes them up, and loads nothing. Every process is
// a real one: a server, and two nodes that joined it by TLS, each with a data directory of its own.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client } from "./client.mjs";
import { LONG, RestartedWithNodes, holding } from "./restarted.mjs";
import { eventually, slow, startServer, within } from "./server.mjs";

describe("workers that outlive their server", { timeout: 900000 * slow }, () => {
	const prompt = Array.from({ length: 60 }, (_, i) => "abcdefg"[i % 7]).join(" "), length = { max_tokens: 20 };
	const all = new RestartedWithNodes();
	let cluster, proxies, nodes, model_id, answer;

	const gone = (node, old) => eventually(() => old.every((pid) => !holding(node).includes(pid)), "the workers of before are ended", 2 * LONG);
	const pin = (node) => ({ context_tokens: 1024, sequences: 2, pins: [{ device_id: node.device.device_id, first_layer: 0, layer_count: 0 }] });
	const create = async (params) => {
		const { instance_id } = await cluster.admin.call("instance.create", { model_id, ...params });
		const instance = await cluster.ready(instance_id);
		await cluster.stored();
		return instance;
	};
	const clear = async () => {
		for (const { instance_id } of await cluster.list()) await cluster.admin.call("instance.delete", { instance_id });
		for (const node of nodes) await eventually(() => !holding(node).length, "no worker is left", LONG);
	};
	const started = async () => {
		await cluster.start();
		for (const node of nodes) node.cluster = { server: cluster.server, admin: cluster.admin, proxy: node.cluster.proxy };
	};
	// As the same workers found again, of which nothing was loaded.
	const found = async (was, old) => {
		const now = await cluster.ready(was.instance_id);
		assert.deepEqual([now.recoveries, now.stages.map((one) => one.device_id), now.page_count, now.context_tokens],
			[was.recoveries, was.stages.map((one) => one.device_id), was.page_count, was.context_tokens]);
		assert.ok(now.epoch > was.epoch, `${now.epoch} after ${was.epoch}`);
		await cluster.stored();
		for (const [node, before] of old) assert.deepEqual(holding(node), before, "its workers are those of before");
		return now;
	};
	const anew = async (was) => {
		const now = await cluster.is(was.instance_id, "loaded anew", (one) => one.state === "running" && one.recoveries > was.recoveries);
		assert.ok(now.epoch > was.epoch);
		assert.equal(await cluster.says(prompt, length), answer);
		await cluster.stored();
		return now;
	};
	const copy = (from, to) => cpSync(from, to, { recursive: true, filter: (path) => !path.endsWith(".sock") });
	// What the server stored of the workers, changed while it does not run.
	const change = (instance_id, how) => execFileSync("python3", ["-c", `import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
text, = db.execute("SELECT workers FROM instances WHERE instance_id = ?", (sys.argv[2],)).fetchone()
row = json.loads(text)
${how}
db.execute("UPDATE instances SET workers = ? WHERE instance_id = ?", (row if isinstance(row, str) else json.dumps(row), sys.argv[2]))
db.commit()`, join(cluster.data, "state.db"), instance_id]);

	before(async () => {
		({ cluster, proxies, nodes, model_id } = await all.start());
		const { instance_id } = await create(pin(nodes[0]));
		answer = await cluster.says(prompt, length);
		assert.ok(answer.length > 10, answer);
		await cluster.admin.call("instance.delete", { instance_id });
	});
	after(() => all.finish());

	for (const signal of ["SIGKILL", "SIGTERM"])
		test(`one node's, after ${signal} amid a stream, twice: nothing is loaded, and nothing of before is left in it`, async () => {
			let was = await create({ ...pin(nodes[0]), context_tokens: 4096 });
			const old = [[nodes[0], holding(nodes[0])]], cached = async () => (await cluster.ask(prompt, length)).json.usage.prompt_tokens_details.cached_tokens;
			assert.equal(await cluster.says(prompt, length), answer);
			assert.ok(await cached() > 0, "a second question finds the first one's keys and values");
			for (let cut = 0, i = 0; cut < 2; i++) {
				assert.ok(i < 10, "a stream is cut off before it is whole");
				const stream = cluster.stream(prompt, { max_tokens: 3900, ignore_eos: true });
				await stream.begun();
				await cluster.server.stop(signal);
				await stream.done;
				cut += !stream.whole; // on a busy machine all of it may be through before the signal
				if (signal === "SIGTERM" && !stream.whole) assert.match(stream.error.message, /^the server restarts; try again/);
				await started();
				const waits = cluster.ask(prompt, length);
				was = await found(was, old);
				const { status, json } = await waits;
				assert.deepEqual([status, json.choices?.[0].text, json.usage?.prompt_tokens_details.cached_tokens], [200, answer, 0]);
				await cluster.is(was.instance_id, "at rest", (one) => one.running === 0 && one.waiting === 0);
				assert.ok(await cached() > 0);
			}
			await clear();
		});

	test("a worker that has ended meanwhile, and one whose node was started again: they are loaded anew", async () => {
		const was = await create(pin(nodes[0])), [pid] = holding(nodes[0]);
		await cluster.server.stop("SIGKILL");
		process.kill(pid, "SIGKILL");
		await eventually(() => !holding(nodes[0]).includes(pid), "it is gone");
		await started();
		const now = await anew(was), old = holding(nodes[0]);
		await cluster.server.stop("SIGKILL");
		nodes[0].child.kill("SIGKILL");
		await within(once(nodes[0].child, "exit"), "the node is killed");
		await started();
		await nodes[0].start();
		await anew(now);
		assert.ok(old.every((one) => !holding(nodes[0]).includes(one)));
		await clear();
	});

	test("a node that does not come back in time: its part is loaded elsewhere, and its worker is ended when it comes", async () => {
		const was = await create({ context_tokens: 1024, sequences: 2 });
		const [there, other] = nodes[0].device.device_id === was.stages[0].device_id ? nodes : [...nodes].reverse();
		const old = holding(there), proxy = proxies[nodes.indexOf(there)];
		cluster.options.args = ["--limit", "pause_ms=6000"];
		await cluster.server.stop("SIGKILL");
		proxy.cut("up", "down");
		await started();
		const now = await anew(was);
		assert.deepEqual(now.stages.map((one) => one.device_id), [other.device.device_id]);
		proxy.mend();
		await gone(there, old);
		assert.equal((await cluster.ready(was.instance_id)).epoch, now.epoch);
		cluster.options.args = [];
		await there.ready();
		await clear();
	});

	for (const [name, how] of [
		["another key", `row["workers"][0]["key_sha256"] = "0" * 64`],
		["another worker", `row["workers"][0]["worker_id"] = "wrk_none"`],
		["other memory", `row["stages"][0]["kv_bytes"] += 4096`],
		["fewer layers", `row["stages"][0]["layer_count"] -= 1`],
		["no device that is known", `row["stages"][0]["device_id"] = "dev_none"`],
		["one worker more", `row["workers"] += row["workers"]`],
		["no JSON", `row = "[{"`],
	])
		test(`of a row with ${name} the model is loaded anew, and the worker of before ended`, async () => {
			const was = await create(pin(nodes[0])), old = holding(nodes[0]);
			cluster.options.args = ["--limit", "pause_ms=6000"];
			await cluster.server.stop("SIGKILL");
			change(was.instance_id, how);
			await started();
			await anew(was);
			await gone(nodes[0], old);
			cluster.options.args = [];
			await clear();
		});

	test("a server on a copy of its data from before, and an instance that was deleted: the worker was ended", async () => {
		const kept = `${cluster.data}.before`;
		await cluster.server.stop();
		copy(cluster.data, kept);
		await started();
		for (const node of nodes) await node.ready();
		const was = await create(pin(nodes[0])), old = holding(nodes[0]);
		await cluster.server.stop("SIGKILL");
		rmSync(cluster.data, { recursive: true });
		copy(kept, cluster.data);
		rmSync(kept, { recursive: true });
		await started();
		await gone(nodes[0], old);
		assert.deepEqual((await cluster.list()).filter((one) => one.instance_id === was.instance_id), []);
		const next = await create(pin(nodes[0])), now = holding(nodes[0]);
		await cluster.server.stop("SIGKILL");
		execFileSync("python3", ["-c", "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n" +
			"db.execute('DELETE FROM instances WHERE instance_id = ?', (sys.argv[2],))\ndb.commit()",
		join(cluster.data, "state.db"), next.instance_id]);
		await started();
		await gone(nodes[0], now);
		assert.deepEqual(await cluster.list(), []);
	});

	test("no server comes, and then one of another cluster: the workers end by themselves, and nobody has them", async () => {
		for (const node of nodes) await node.ready();
		const was = await create(pin(nodes[0])), old = holding(nodes[0]), from = performance.now();
		const { port } = cluster.server;
		await cluster.server.stop();
		const other = await startServer({ listen: `0.0.0.0:${port}` }), admin = await Client.login(other);
		await gone(nodes[0], old);
		assert.ok(performance.now() - from > 20000, "not before they might have been wanted");
		assert.deepEqual([(await admin.call("cluster.snapshot")).nodes, nodes[0].child.exitCode], [[], null]);
		await other.finish();
		await started();
		await anew(was);
		await clear();
	});
});
