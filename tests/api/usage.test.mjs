// Usage over the whole: requests of two tokens by each API, one that is cancelled and one whose worker is lost; who sees
// what; and a restart. The worker is made here, so that what it computes is known.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { deviceReadings, nodeReadings } from "./records.mjs";
import { eventually, run, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

// Each request takes 250 ms of its one stage; two tokens of a prompt are cached.
class Worker extends ModelWorker {
	spent = 0;

	spend(request) {
		this.spent += 250;
		return { busy_ms: [this.spent], requests: [{ request, stages_ms: [250] }] };
	}

	finish(request, reason, more = {}) {
		super.finish(request, reason, { read_tokens: reason === "cancelled" ? 5 : 7, spent: this.spend(request), ...more });
	}

	run(method, params, body, id) {
		const answer = super.run(method, params, body, id);
		if (method === "generate.embed" && answer) answer.result.spent = this.spend(params.request);
		return answer;
	}
}

describe("usage", () => {
	let server, admin, node, model, tokens;
	const data = temporary();

	const post = (path, body, token = tokens.alice) => server.http(path, { method: "POST",
		headers: { authorization: `Bearer ${token.token}`, "content-type": "application/json" }, body: JSON.stringify(body) });
	const hour = 3600000, [from, to] = [-hour, 24 * hour].map((ms) => new Date(Date.now() + ms).toISOString());
	const usage = async (by, client = admin) => (await client.call("usage.list", { by, from, to })).rows;
	const counted = (row) => row && [row.requests, row.prompt_tokens, row.cached_tokens, row.completion_tokens, row.device_s];
	const of = async (by, key, client) => counted((await usage(by, client)).find((one) => one.key === key));
	const messages = [{ role: "user", content: "one two three" }];

	before(async () => {
		server = await startServer({ data });
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker });
		const source = join(temporary(), "words.gguf");
		writeFileSync(source, modelFile());
		await admin.call("model.add", { source });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await admin.call("instance.create", { model_id: model.model_id });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		tokens = {};
		for (const name of ["alice", "bob"]) tokens[name] = await admin.call("token.create", { name, scopes: ["infer"], expires_in_s: 3600 });
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("nothing was used", async () => {
		for (const by of ["token", "model", "device"]) assert.deepEqual(await usage(by), []);
	});

	test("every API counts a request once", async () => {
		const { alice } = tokens, model = "words";
		let requests = 0, expected;
		for (const [path, body, ...count] of [
			["/v1/chat/completions", { model, messages }, 7, 2, 3],
			["/v1/chat/completions", { model, messages, stream: true }, 7, 2, 3],
			["/v1/completions", { model, prompt: "one two" }, 7, 2, 2],
			["/v1/messages", { model, max_tokens: 9, messages }, 7, 2, 3],
			["/v1/responses", { model, input: "one two three four" }, 7, 2, 4],
			["/api/chat", { model, messages }, 7, 2, 3],
			["/api/generate", { model, prompt: "one" }, 7, 2, 1],
		]) {
			const before = await of("token", alice.token_id) ?? [0, 0, 0, 0, 0];
			assert.equal((await post(path, body)).status, 200, path);
			expected = [++requests, before[1] + count[0], before[2] + count[1], before[3] + count[2], before[4] + 0.25];
			assert.deepEqual(await of("token", alice.token_id), expected, path);
		}
		assert.deepEqual(await of("model", (await admin.call("model.list")).models[0].model_id), expected);
		const [device] = await usage("device");
		assert.deepEqual(counted(device), expected);
		assert.deepEqual([device.energy_joules, device.idle_joules, device.energy_source], [null, null, null], "nothing is reported");
	});

	test("counting tokens computes nothing, and is no request", async () => {
		const before = await of("token", tokens.alice.token_id);
		assert.equal((await post("/v1/messages/count_tokens", { model: "words", messages })).status, 200);
		assert.deepEqual(await of("token", tokens.alice.token_id), before);
	});

	test("a request that its client leaves counts what was computed", async () => {
		const worker = node.worker();
		worker.manual = true;
		const leaving = new AbortController();
		const asked = fetch(`${server.url}v1/chat/completions`, { method: "POST", signal: leaving.signal,
			headers: { authorization: `Bearer ${tokens.bob.token}` }, body: JSON.stringify({ model: "words", messages, stream: true }) });
		const request = await eventually(() => [...worker.requests.keys()][0], "it has come");
		worker.say(request, "one");
		await asked;
		leaving.abort();
		const row = await eventually(async () => (await usage("token")).find((one) => one.key === tokens.bob.token_id), "it is counted");
		worker.manual = false;
		assert.deepEqual(counted(row), [1, 5, 2, 1, 0.25]);
	});

	test("what a request spends is counted while it runs, once", async () => {
		const worker = node.worker();
		worker.manual = true;
		const before = await of("token", tokens.bob.token_id);
		const asked = post("/v1/completions", { model: "words", prompt: "one" }, tokens.bob);
		const request = await eventually(() => [...worker.requests.keys()][0], "it has come");
		const state = (ms) => worker.tell("instance.state", { running: 1, waiting: 0, pages_used: 1, pages_cached: 0, page_count: 9, prompt_tokens: 7,
			generated_tokens: 0, preemptions: 0, spent: { busy_ms: [5000], requests: [{ request, stages_ms: [ms] }, { request: 999999, stages_ms: [77] }] } });
		for (const ms of [1000, 3000, 3000]) state(ms);
		await eventually(async () => (await of("token", tokens.bob.token_id))[4] === before[4] + 3, "three seconds");
		worker.finish(request, "stop", { proposed_tokens: 5, accepted_tokens: 3, spent: { busy_ms: [5000], requests: [{ request, stages_ms: [4000] }] } });
		assert.equal((await asked).status, 200);
		worker.manual = false;
		assert.deepEqual(await of("token", tokens.bob.token_id), [2, before[1] + 7, before[2] + 2, before[3], before[4] + 4]);
	});

	test("a token sees its own usage only, an admin all", async () => {
		const bob = await Client.login(server, tokens.bob.token);
		assert.deepEqual((await usage("token", bob)).map((one) => one.name), ["bob"]);
		const all = await usage("model"), own = await usage("model", bob);
		assert.equal(own.length, 1);
		assert.deepEqual([own[0].key, own[0].name], ["words", "words"], "it is told no ids of models");
		assert.ok(own[0].requests === 2 && all[0].requests > 2, `${own[0].requests} of ${all[0].requests}`);
		await bob.refused("usage.list", { by: "device" }, "forbidden");
		await bob.close();
		const observer = await Client.login(server, (await admin.call("token.create", { name: "observer", scopes: ["observe"] })).token);
		await observer.refused("usage.list", { by: "model" }, "forbidden");
		await observer.close();
		await admin.refused("usage.list", { by: "model", from: "yesterday evening, perhaps" }, "invalid_params");
		await admin.refused("usage.list", { by: "model", from: "2026-11-20T14:31:52.000Z", to: "2026-11-20T14:31:52.000Z" }, "invalid_params");
	});

	test("the command line and /metrics say the same", async () => {
		const listed = await run(["usage", "--by", "token", "--from", from, "--to", to, "--json", "--data", data]);
		assert.deepEqual(JSON.parse(listed.stdout).rows, await usage("token"));
		const table = await run(["usage", "--by", "device", "--data", data]);
		assert.match(table.stdout, /REQUESTS[^]*not reported/);
		assert.match(table.stderr, /No device that worked here reports its energy or power/);
		const wrong = await run(["usage", "--by", "colour", "--data", data]);
		assert.equal(wrong.code, 2);
		const { text } = await server.http("/metrics", { headers: { authorization: `Bearer ${server.token}` } });
		const [row] = await usage("model");
		assert.ok(text.includes(`exogpu_requests_total{model="${row.key}",name="words"} ${row.requests}\n`), text.match(/exogpu_requests.*/g)?.join("\n"));
		assert.ok(text.includes(`exogpu_tokens_total{model="${row.key}",name="words",kind="completion"} ${row.completion_tokens}\n`));
		for (const [name, value] of [["proposed", 5], ["accepted", 3]])
			assert.ok(text.includes(`exogpu_${name}_tokens_total{model="${row.key}",name="words"} ${value}\n`), text.match(new RegExp(`exogpu_${name}.*`, "g"))?.join("\n"));
	});

	test("the energy of a request is what its device draws above idle while it computes", async () => {
		const device_id = (await usage("device"))[0].key;
		const row = async (by, key) => (await usage(by)).find((one) => one.key === key);
		let drawn = 1000;
		const read = async (more, utilization_percent) => {
			drawn += more;
			await new Promise((resolve) => setTimeout(resolve, 60)); // joules within the same millisecond are taken with the next
			node.telemetry([deviceReadings({ device_id, energy_joules: drawn, energy_source: "counter", utilization_percent })], nodeReadings());
		};
		await eventually(async () => {
			await read(0.001, 0); // at rest: all of it is idle
			return (await row("device", device_id)).idle_joules > 0;
		}, "idle is counted");
		assert.deepEqual([(await row("device", device_id)).energy_joules, (await row("token", tokens.alice.token_id)).energy_joules], [0, null]);
		assert.equal((await post("/v1/completions", { model: "words", prompt: "one" })).status, 200);
		const before = await row("device", device_id);
		await read(20, 50);
		const { energy_joules, energy_source } = await eventually(async () => {
			const one = await row("token", tokens.alice.token_id);
			return one.energy_source && one;
		}, "it is given its energy");
		const device = await row("device", device_id);
		assert.equal(energy_source, "counter");
		assert.equal(device.energy_joules, energy_joules);
		assert.ok(energy_joules > 10 && energy_joules <= 20, `${energy_joules}`);
		assert.ok(Math.abs(energy_joules + device.idle_joules - before.idle_joules - 20) < 1e-9, `${energy_joules} and ${device.idle_joules} of 20`);
		assert.equal((await row("token", tokens.bob.token_id)).energy_source, null);
		const { text } = await server.http("/metrics", { headers: { authorization: `Bearer ${server.token}` } });
		const told = new RegExp(`exogpu_energy_joules_total\\{device="${device_id}",name="[^"]*",use="work"\\} (\\S+)`).exec(text);
		assert.equal(Number(told[1]), energy_joules);
		const table = await run(["usage", "--by", "device", "--data", data]);
		assert.match(table.stdout, /ENERGY +IDLE\n.* J .* J/);
	});

	test("an answer has its joules where they are asked for", async () => {
		const model = "words", { device_id } = { device_id: (await usage("device"))[0].key };
		let drawn = 1e6;
		const feed = setInterval(() => node.telemetry([deviceReadings({ device_id, energy_joules: drawn++, energy_source: "counter",
			utilization_percent: 50 })], nodeReadings()), 50);
		try {
			for (const [path, body, usageOf] of [
				["/v1/chat/completions", { model, messages }, (one) => one.usage],
				["/v1/completions", { model, prompt: "one two" }, (one) => one.usage],
				["/v1/completions", { model, prompt: ["one two", "three"], n: 2, temperature: 1 }, (one) => one.usage],
				["/v1/messages", { model, max_tokens: 9, messages }, (one) => one.usage],
				["/v1/responses", { model, input: "one two three four" }, (one) => one.usage],
				["/api/chat", { model, messages, stream: false }, (one) => one],
			]) {
				const plain = (await post(path, body)).json();
				assert.ok(!("energy_joules" in usageOf(plain)), `${path}: nobody has asked`);
				await eventually(async () => { // null where the machine is so busy that the readings come late
					const answer = await post(path, { ...body, include_energy: true });
					assert.equal(answer.status, 200, path);
					const joules = usageOf(answer.json()).energy_joules;
					assert.ok(joules === null || joules >= 0, `${path}: ${joules}`);
					return joules > 0;
				}, `${path} tells joules`);
			}
			const { text } = await post("/v1/chat/completions", { model, messages, stream: true, stream_options: { include_usage: true }, include_energy: true });
			assert.match(text, /"energy_joules":/);
			assert.match((await post("/v1/completions", { model, prompt: "one", include_energy: "yes" })).text, /include_energy/);
		} finally {
			clearInterval(feed);
		}
		// Who leaves meanwhile is not waited for.
		const before = await of("token", tokens.bob.token_id), leaving = new AbortController();
		const left = fetch(`${server.url}v1/completions`, { method: "POST", signal: leaving.signal, headers: { authorization: `Bearer ${tokens.bob.token}` },
			body: JSON.stringify({ model, prompt: "one", include_energy: true }) });
		await eventually(async () => (await of("token", tokens.bob.token_id))[0] > before[0], "it has ended");
		leaving.abort();
		await left.catch(() => {});
		assert.equal((await post("/v1/completions", { model, prompt: "one" }, tokens.bob)).status, 200);
	});

	test("a restart keeps it", async () => {
		const before = await usage("token");
		node.socket.close();
		await admin.close();
		await server.finish();
		server = await startServer({ data });
		admin = await Client.login(server);
		assert.deepEqual(await usage("token"), before);
	});
});
