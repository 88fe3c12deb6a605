// Heat over the whole, with real processes: a model on a node that gets too hot by readings that the test puts in the
// place of its own, beside a node that takes three times as long for a token. Each step is forced by the policy of the
// device, and readings come until it is seen: its clock is theirs, so nothing depends on how busy this machine is. The
// stream that is under way is that of a model that stays.
// EXOGPU_TEST_HEAT_BACKENDS=cuda runs it with a GPU that gets hot. Its numbers differ from the processor's in the last
// digits: EXOGPU_TEST_HEAT_NEAR is how far log-probabilities may be apart (1e-4).
import assert from "node:assert/strict";
import { appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { Proxy, RemoteNode } from "./remote.mjs";
import { eventually, slow, startServer, streamedData, temporary, within } from "./server.mjs";

const LAYERS = 12, TOKENS = 2000, LONG = 120000 * slow;
const sizes = { context_tokens: 4352, sequences: 1 };
const prompt = [1, 259, 260, 261, 262], letter = 260; // the token of "a"
const air = 25, resistance = 0.1, tau = 60, limit = 90; // of the card whose readings they are: °C, °C/W, s, °C
const backends = process.env.EXOGPU_TEST_HEAT_BACKENDS ?? "cpu", near = Number(process.env.EXOGPU_TEST_HEAT_NEAR ?? 1e-4);

describe("a hot device beside a slower one", { timeout: 900000 * slow }, () => {
	let server, admin, proxies, fast, other, still, model, rise = 5;
	const folder = temporary(), ended = [];
	const forecast = () => admin.call("thermal.forecast", { device_id: fast.device.device_id });
	// So many seconds of the card at a power, at once.
	const flow = async (seconds, watts, slowdown = limit) => {
		let lines = "";
		for (let i = 0; i < seconds; i++) {
			rise += (resistance * watts - rise) * (1 - Math.exp(-1 / tau));
			lines += `${JSON.stringify({ after_ms: 1000, temperature_celsius: Math.round((air + rise) * 100) / 100, power_watts: watts, slowdown_celsius: slowdown })}\n`;
		}
		appendFileSync(join(folder, `${fast.device.device_id}.jsonl`), lines);
		const shown = Math.round((air + rise) * 100) / 100;
		await eventually(async () => {
			const told = await forecast();
			return told.temperature_celsius === shown && told.limit_celsius === slowdown;
		}, "the trace is taken", LONG);
	};
	// The card at a power, some seconds after the other, until something is so. Its time stands while the model is loaded
	// again, which may take long on a busy machine: ten minutes later it would change a second time.
	const flowUntil = (watts, slowdown, what, test, seconds = 30) => eventually(async () => {
		const is = await test();
		if (!is && (await instance())?.state === "running") await flow(seconds, watts, slowdown);
		return is;
	}, what, LONG);
	const instance = async () => (await admin.call("instance.list")).instances[0];
	const layersOn = (one, node) => one.stages.filter(({ device_id }) => device_id === node.device.device_id).reduce((sum, { layer_count }) => sum + layer_count, 0);
	const isRunning = async (test = () => true) => {
		const one = await instance();
		assert.notEqual(one?.state, "failed", one?.state_reason);
		return one?.state === "running" && test(one) && one;
	};
	let seen;
	const runs = (what, test) => eventually(() => isRunning((one) => (seen = one, !test || test(one))), () => `${what}: ${JSON.stringify(seen?.stages)}`, LONG);
	const may = (...actions) => admin.call("thermal.policy_set", { device_id: fast.device.device_id, actions });
	// A node that was started again shows for a moment what it said before.
	const place = (more) => eventually(() => admin.call("instance.create", { model_id: model.model_id, ...sizes, ...more })
		.catch((error) => { if (error.reason !== "unavailable") throw error; }), "it is placed", LONG);
	const remove = async () => {
		for (const { instance_id } of (await admin.call("instance.list")).instances) await admin.call("instance.delete", { instance_id });
	};
	const moved = async () => (await admin.call("audit.list", { action: "instance.moved" })).entries.map(({ detail }) => detail.reason).reverse();

	// A stream of greedy tokens: `values` are their log-probabilities.
	function stream(max_tokens, more = {}) {
		const one = { text: "", values: [], changes: [] }, ends = new AbortController();
		one.end = () => ends.abort();
		ended.push(ends);
		one.done = fetch(new URL("/v1/completions", server.url).href, { method: "POST", signal: ends.signal, headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model: "words", prompt, max_tokens, temperature: 0, ignore_eos: true, stream: true, logprobs: 1, ...more }) })
			.then(async (response) => {
				assert.equal(response.status, 200, await (response.ok || response.text()));
				for await (const data of streamedData(response)) {
					if (data === "[DONE]") { one.whole = true; continue; }
					const json = JSON.parse(data);
					if (json.error) throw new Error(json.error.message);
					one.text += json.choices[0]?.text ?? "";
					one.changes.push(...(json.choices[0]?.format_changes ?? []));
					one.values.push(...(json.choices[0]?.logprobs?.token_logprobs ?? []));
				}
			});
		one.done.catch((error) => { one.error ??= error; });
		one.more = (count) => {
			const from = one.values.length;
			return eventually(() => {
				assert.ok(!one.whole && !one.error, one.error?.message ?? "the stream is over");
				return one.values.length >= from + count;
			}, `${count} more tokens have come`, LONG);
		};
		return one;
	}

	// What a node that is neither slow nor hot answers: to each of [parameters of the model, tokens, more of the request].
	const undisturbed = async (...all) => {
		const answers = [];
		await remove();
		await still.begin();
		for (const [params, count, more] of all) {
			await place({ pins: [{ device_id: still.device.device_id, first_layer: 0, layer_count: 0 }], ...params });
			await runs("it is placed");
			const one = stream(count, more);
			await within(one.done, "it is answered", LONG);
			assert.deepEqual([one.whole, one.values.length, one.changes], [true, count, []]);
			answers.push(one);
			await remove();
		}
		await still.finish();
		return answers;
	};
	const same = (t, what, values, others) => {
		const furthest = Math.max(...values.map((value, i) => Math.abs(value - others[i])));
		t.diagnostic(`${what}: ${values.length} tokens, furthest apart ${furthest.toExponential(1)}`);
		assert.ok(values.length > 0 && values.length <= others.length && furthest < near, `${what}: ${furthest}`);
	};

	before(async () => {
		server = await startServer({ listen: "0.0.0.0:0", env: { EXOGPU_THERMAL_CLOCK: "readings", EXOGPU_THERMAL_TRACE: folder } });
		process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
		admin = await Client.login(server);
		proxies = await Promise.all([1, 2, 3].map(() => Proxy.start(server.port)));
		[fast, other, still] = ["fast", "other", "still"].map((name, i) => new RemoteNode({ server, admin, proxy: proxies[i] },
			{ name, backends: name === "other" ? "cpu" : backends }));
		for (const node of [fast, other, still])
			node.begin = async () => node.start(node.node_id ? undefined : (await admin.call("node.ticket", {})).ticket);
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.19 * LAYERS, context: 4352 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready", LONG);
		// How long each takes for a token at least, in ms, far more than a busy machine adds; where it gets hot, Q8_0 counts as
		// faster. It is loaded there until one of the runs that measure it was disturbed little.
		for (const [node, ms, ...formats] of [[still, 1, "F32"], [other, 480, "Q8_0", "F32"], [fast, 2, "Q8_0"], [fast, 160, "F32"]]) {
			node.env = { EXOGPU_TEST_PACE: `1:${ms}` };
			await node.begin();
			for (const format of formats) {
				const there = { pins: [{ device_id: node.device.device_id, first_layer: 0, layer_count: 0 }], ...(format !== "F32" && { format }) };
				await eventually(async () => {
					await place(there);
					await runs("it is measured");
					await remove();
					const { predicted } = await admin.call("placement.preview", { model_id: model.model_id, ...sizes, ...there });
					return predicted.seconds_per_token * 1000 < ms + 40;
				}, `${format} is measured on ${node.name}`, 3 * LONG);
			}
			if (node === still || ms === 2) await node.finish();
		}
		for (const watts of [50, 300, 50, 400, 120, 400]) await flow(180, watts);
		assert.equal((await forecast()).state, "ready", (await forecast()).state_reason);
	});
	afterEach(() => ended.splice(0).forEach((ends) => ends.abort()));
	after(async () => {
		for (const node of [fast, other, still]) if (node?.child && node.child.exitCode === null && node.child.signalCode === null) await node.finish();
		proxies?.forEach((one) => one.close());
		await server?.finish();
		assertContractKept();
	});

	test("some layers leave it while a stream goes on, as few as it takes, and come back once it is cool", async (t) => {
		await place();
		const mine = layersOn(await runs("most of it is on the faster one", (one) => layersOn(one, fast) >= LAYERS - 2), fast);
		await may("limit", "move");
		const answer = stream(TOKENS);
		await answer.more(10);
		// 41 °C are what 160 W make, a third of the way from idle to all
		const eased = await flowUntil(400, 46, "some of its layers are elsewhere", () => isRunning((one) => layersOn(one, fast) < mine), 45);
		const stay = layersOn(eased, fast);
		assert.ok(stay > 0 && stay < LAYERS && stay + layersOn(eased, other) === LAYERS, JSON.stringify(eased.stages));
		const [reason] = await moved();
		assert.match(reason, new RegExp(`^.* of fast gets too hot for its work: ${mine - stay} of its ${mine} layers go to .* of other$`));
		assert.match(eased.state_reason, /of fast, which got too hot for its work, has fewer of its layers; they go back once that one is cool again/);
		await answer.more(5);
		const back = await flowUntil(50, limit, "they are back", () => isRunning((one) => layersOn(one, fast) >= LAYERS - 2), 300);
		assert.deepEqual([back.moves, back.recoveries], [2, 0], "nothing swings");
		assert.match((await moved())[1], /which it had left for its heat, is cool again/);
		await answer.more(5);
		answer.end();
		await within(answer.done.catch(() => {}), "it is ended", LONG);
		const [whole] = await undisturbed([{}, answer.values.length]);
		same(t, `${mine - stay} of ${mine} layers left, and came back`, answer.values, whole.values);
		assert.equal(answer.text, whole.text.slice(0, answer.text.length));
		assert.ok(new Set(answer.values.map((value) => value.toFixed(6))).size > 10, "tokens that are unlike");
	});

	test("one stream lives through a pause, less time, a smaller format, a move, and the way back from all of them", async (t) => {
		const acts = async (what) => (await forecast()).acts === what, before = (await moved()).length;
		const logit_bias = Object.fromEntries(Array.from({ length: 26 }, (_, i) => [letter + i, 100])); // so that its text tells its tokens
		await place({ least_format: "Q8_0" });
		const mine = layersOn(await runs("most of it is on the faster one", (one) => layersOn(one, fast) >= LAYERS - 2), fast);
		const answer = stream(TOKENS, { logit_bias });
		await answer.more(10);

		await may("pause");
		await flowUntil(400, 46, "it pauses", () => acts("pause"), 5);
		let came = -1;
		const stands = () => { const was = came; return was === (came = answer.values.length); };
		await eventually(async () => { await new Promise((resolve) => setTimeout(resolve, 500)); return stands(); }, "what was under way has come", LONG);
		await new Promise((resolve) => setTimeout(resolve, 2000)); // that is 12 tokens
		assert.ok(stands() && !answer.whole, "no token comes while it pauses");
		await flowUntil(50, limit, "it goes on", () => acts("nothing"));
		await answer.more(5);

		await may("limit", "step_down");
		await flowUntil(400, 46, "it gets less time", () => acts("limit"), 5);
		await answer.more(2);
		await flowUntil(400, 46, "it is in a smaller format", () => isRunning((one) => one.format === "Q8_0"));
		await answer.more(2);
		assert.equal(layersOn(await instance(), fast), mine, "it stays where it is");

		await may("limit", "move");
		const away = await flowUntil(400, 46, "layers are elsewhere", () => isRunning((one) => layersOn(one, fast) < mine), 100);
		assert.equal(away.format, "Q8_0");
		await answer.more(2);

		const back = await flowUntil(50, limit, "it is where it was, in its own format", () =>
			isRunning((one) => one.format === "F32" && layersOn(one, fast) >= LAYERS - 2), 300);
		const reasons = (await moved()).slice(before);
		// By what was measured, some layers may come back after the others.
		assert.ok(back.moves >= 4 && back.moves <= 6, `nothing swings: ${reasons.join("; ")}`);
		assert.deepEqual([back.moves, back.recoveries, back.state_reason], [reasons.length, 0, null]);
		await answer.more(5);
		assert.equal((await instance()).moves, back.moves, "it stays");
		for (const pattern of [/its weights go from F32 to Q8_0/, /too hot for its work(: \d+ of its \d+ layers go to|, for) /, /cool again: it goes to/, /its weights go back from Q8_0 to F32/])
			assert.equal(reasons.filter((one) => pattern.test(one)).length >= 1, true, `${pattern} of ${reasons.join("; ")}`);
		const steps = (await admin.call("audit.list", { action: "device.heat" })).entries.map((one) => one.detail.step).reverse();
		assert.ok(steps.includes("paused") && steps.includes("limited") && steps.at(-1) === "free", steps.join(" "));

		await still.begin(); // so that the rest is not waited for: it goes to a node that is not slow
		await eventually(async () => {
			if (answer.whole || await isRunning((one) => layersOn(one, still) > 0)) return true;
			await admin.call("instance.move", { instance_id: back.instance_id }); // a device that has just come is not seen by each search
			await new Promise((resolve) => setTimeout(resolve, 2000));
		}, "it moves once more", LONG);
		await within(answer.done, "it is over", 3 * LONG);
		assert.deepEqual([answer.text.length, answer.values.length, answer.whole], [TOKENS, TOKENS, true]);
		const [{ position: down }, { position: up }] = answer.changes;
		assert.deepEqual(answer.changes, [{ position: down, from: "F32", format: "Q8_0" }, { position: up, from: "Q8_0", format: "F32" }]);
		await still.finish();
		const after = (count) => ({ logit_bias, prompt: [...prompt, ...[...answer.text.slice(0, count)].map((one) => letter + one.charCodeAt(0) - 97)] });
		const [first, second, third] = await undisturbed([{}, down, after(0)], [{ format: "Q8_0" }, up - down, after(down)], [{}, TOKENS - up, after(up)]);
		same(t, "in F32", answer.values.slice(0, down), first.values);
		same(t, `in Q8_0, with ${layersOn(away, fast)} of ${LAYERS} layers there for a while`, answer.values.slice(down, up), second.values);
		same(t, "in F32 again", answer.values.slice(up), third.values);
		assert.equal(answer.text, first.text + second.text + third.text);
	});
});
