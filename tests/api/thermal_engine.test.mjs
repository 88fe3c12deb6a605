// Heat over the whole, with real processes: a model on a node that gets too hot by readings that the test puts in the
// place of its own, beside a node that takes three times as long for a token. Some layers leave it, and come back; the
// stream that is under way is that of a model that stays.
// EXOGPU_TEST_HEAT_BACKENDS=cuda runs it with a GPU that gets hot. Its numbers differ from the processor's in the last
// digits: EXOGPU_TEST_HEAT_NEAR is how far log-probabilities may be apart (1e-4).
import assert from "node:assert/strict";
import { appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { Proxy, RemoteNode } from "./remote.mjs";
import { eventually, slow, startServer, streamedData, temporary, within } from "./server.mjs";

const LAYERS = 12, LONG = 120000 * slow;
const air = 25, resistance = 0.1, tau = 60, limit = 90; // of the card whose readings they are: °C, °C/W, s, °C
const backends = process.env.EXOGPU_TEST_HEAT_BACKENDS ?? "cpu", near = Number(process.env.EXOGPU_TEST_HEAT_NEAR ?? 1e-4);

describe("a hot device beside a slower one", { timeout: 900000 * slow }, () => {
	let server, admin, proxies, fast, other, still, model, rise = 5;
	const folder = temporary();
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
	const instance = async () => (await admin.call("instance.list")).instances[0];
	const layersOn = (one, node) => one.stages.filter(({ device_id }) => device_id === node.device.device_id).reduce((sum, { layer_count }) => sum + layer_count, 0);
	const runs = (what, test = () => true) => eventually(async () => {
		const one = await instance();
		assert.notEqual(one?.state, "failed", one?.state_reason);
		return one?.state === "running" && test(one) && one;
	}, what, LONG);
	// A node that was started again shows for a moment what it said before.
	const place = (more) => eventually(() => admin.call("instance.create", { model_id: model.model_id, context_tokens: 4096, sequences: 1, ...more })
		.catch((error) => { if (error.reason !== "unavailable") throw error; }), "it is placed", LONG);
	const moved = async () => (await admin.call("audit.list", { action: "instance.moved" })).entries.map(({ detail }) => detail.reason).reverse();

	// A stream of greedy tokens: `values` are their log-probabilities.
	function stream(max_tokens) {
		const one = { text: "", values: [] }, ends = new AbortController();
		one.end = () => ends.abort();
		one.done = fetch(new URL("/v1/completions", server.url).href, { method: "POST", signal: ends.signal, headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model: "words", prompt: "a b c", max_tokens, temperature: 0, ignore_eos: true, stream: true, logprobs: 1 }) })
			.then(async (response) => {
				assert.equal(response.status, 200, await (response.ok || response.text()));
				for await (const data of streamedData(response)) {
					if (data === "[DONE]") { one.whole = true; continue; }
					const json = JSON.parse(data);
					if (json.error) throw new Error(json.error.message);
					one.text += json.choices[0]?.text ?? "";
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

	// So many tokens of a node that is neither slow nor hot.
	const undisturbed = async (count) => {
		await admin.call("instance.delete", { instance_id: (await instance()).instance_id });
		await still.start((await admin.call("node.ticket", {})).ticket);
		await place({ pins: [{ device_id: still.device.device_id, first_layer: 0, layer_count: 0 }] });
		await runs("it is placed");
		const one = stream(count);
		await within(one.done, "it is answered", LONG);
		assert.deepEqual([one.whole, one.values.length], [true, count]);
		return one;
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
		// Milliseconds that each takes for a token, at least.
		[fast, other, still] = [["fast", 40], ["other", 120], ["still", 1]].map(([name, ms], i) => new RemoteNode({ server, admin, proxy: proxies[i] },
			{ name, backends: name === "other" ? "cpu" : backends, env: { EXOGPU_TEST_PACE: `1:${ms}` } }));
		for (const node of [fast, other]) await node.start((await admin.call("node.ticket", {})).ticket);
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.19 * LAYERS, context: 4096 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready", LONG);
		for (const node of [other, fast]) { // how fast each of them is
			const { instance_id } = await place({ pins: [{ device_id: node.device.device_id, first_layer: 0, layer_count: 0 }] });
			await runs("it is measured");
			await admin.call("instance.delete", { instance_id });
		}
		for (const watts of [50, 300, 50, 400, 120, 400]) await flow(180, watts);
		assert.equal((await forecast()).state, "ready", (await forecast()).state_reason);
	});
	after(async () => {
		for (const node of [fast, other, still]) if (node?.child && node.child.exitCode === null && node.child.signalCode === null) await node.finish();
		proxies?.forEach((one) => one.close());
		await server?.finish();
		assertContractKept();
	});

	test("some layers leave it while a stream goes on, as few as it takes, and come back once it is cool", async (t) => {
		await place();
		await runs("it is on the faster one", (one) => layersOn(one, fast) === LAYERS);
		await admin.call("thermal.policy_set", { device_id: fast.device.device_id, actions: ["limit", "move"] });
		const answer = stream(4000);
		await answer.more(10);
		await flow(45, 400, 46); // 41 °C are what 160 W make, a third of the way from idle to all
		const eased = await runs("some of its layers are elsewhere", (one) => one.stages.length === 2);
		const stay = layersOn(eased, fast);
		assert.ok(stay > 0 && stay < LAYERS && stay + layersOn(eased, other) === LAYERS, JSON.stringify(eased.stages));
		const [reason] = await moved();
		assert.match(reason, new RegExp(`^.* of fast gets too hot for its work: ${LAYERS - stay} of its ${LAYERS} layers go to .* of other$`));
		assert.match(eased.state_reason, /of fast, which got too hot for its work, has fewer of its layers; they go back once that one is cool again/);
		await answer.more(5);
		await flow(900, 50);
		const back = await runs("they are back", (one) => layersOn(one, fast) === LAYERS);
		assert.deepEqual([back.moves, back.recoveries, back.stages.length], [2, 0, 1]);
		assert.match((await moved())[1], /which it had left for its heat, is cool again/);
		await answer.more(5);
		assert.equal((await instance()).moves, 2, "nothing swings");
		answer.end();
		await within(answer.done.catch(() => {}), "it is ended", LONG);
		const whole = await undisturbed(answer.values.length);
		same(t, `${LAYERS - stay} of ${LAYERS} layers left, and came back`, answer.values, whole.values);
		assert.equal(answer.text, whole.text.slice(0, answer.text.length));
		assert.ok(new Set(answer.values.map((value) => value.toFixed(6))).size > 10, "tokens that are unlike");
	});
});
