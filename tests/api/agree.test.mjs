// The same questions to the same model on every device of this machine, on two one behind the other and, where there are
// two equal ones that can, in slices: by the product as it is used, so pages, prefixes that are found again, requests that
// share a step, and graphs and shaders that were made while the model was loaded are all in it. What a question is
// answered must not depend on what was answered before; and from device to device it differs by rounding at most.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { startMachine } from "./machine.mjs";
import { eventually, patience, temporary } from "./server.mjs";

const TIE = 2e-3, NEAR = 1e-2, TOKENS = 33, LAYERS = 3;
const lengths = [5, 31, 32, 33, 48, 64, 100, 150]; // around the ends of pages, of 32 tokens

describe("one model on unlike devices", () => {
	let server, admin, model, devices, expected;
	const prompt = (length, seed = 0) => Array.from({ length }, (_, i) => 259 + (i * i * 7 + i * (seed + 3) + length + seed) % 40);

	async function ask(name, tokens, more = {}) {
		const answer = await fetch(new URL("/v1/completions", server.url), { method: "POST",
			headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
			body: JSON.stringify({ model: name, prompt: tokens, max_tokens: TOKENS, temperature: 0, ignore_eos: true, ...more }) });
		assert.equal(answer.status, 200, await answer.clone().text());
		return (await answer.json()).choices[0];
	}

	async function load(params) {
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id, context_tokens: 256, sequences: 4, ...params });
		return eventually(async () => {
			const one = (await admin.call("instance.list")).instances.find((each) => each.instance_id === instance_id);
			assert.notEqual(one?.state, "failed", one?.state_reason);
			return one?.state === "running" && one;
		}, "the model is loaded", 20 * patience);
	}

	async function unload({ instance_id }) {
		await admin.call("instance.delete", { instance_id });
		await eventually(async () => !(await admin.call("instance.list")).instances.length, "the model is gone", 6 * patience);
	}

	// Token by token, until the first choice between two that are as good as equal.
	function near(got, wanted, what) {
		for (let i = 0; i < TOKENS; i++) {
			const best = Object.values(wanted.logprobs.top_logprobs[i]).sort((a, b) => b - a);
			if (got.logprobs.tokens[i] !== wanted.logprobs.tokens[i]) {
				assert.ok(best[0] - best[1] < TIE, `${what}: token ${i} is ${JSON.stringify(got.logprobs.tokens[i])}, and ` +
					`${JSON.stringify(wanted.logprobs.tokens[i])} was better by ${best[0] - best[1]}`);
				return;
			}
			const off = Math.abs(got.logprobs.token_logprobs[i] - wanted.logprobs.token_logprobs[i]);
			assert.ok(off < NEAR, `${what}: token ${i} is off by ${off}`);
		}
	}

	// The answers to all lengths, each alone, three times; and then all at once. Each goes on past the end of a page.
	async function answers(name, what) {
		const alone = [];
		for (const length of lengths) {
			const texts = [];
			for (let time = 0; time < 2; time++) texts.push((await ask(name, prompt(length))).text);
			const whole = await ask(name, prompt(length), { logprobs: 2 });
			assert.deepEqual([...texts, whole.text], Array(3).fill(texts[0]), `${what}: the same question of ${length} tokens, one time after the other`);
			alone.push(whole);
		}
		const together = await Promise.all(lengths.map((length) => ask(name, prompt(length), { logprobs: 2 })));
		together.forEach((one, i) => near(one, alone[i], `${what}: ${lengths[i]} tokens, with others`));
		return alone;
	}

	async function check(params, what) {
		const instance = await load(params);
		const got = await answers(instance.model_name, what);
		got.forEach((one, i) => near(one, expected[i], `${what}, beside the processor: ${lengths[i]} tokens`));
		await unload(instance);
	}

	const on = (...where) => where.map((one, i) => {
		const first = Math.floor(LAYERS * i / where.length);
		return { device_id: one.device_id, first_layer: first, layer_count: Math.floor(LAYERS * (i + 1) / where.length) - first };
	});

	before(async () => {
		({ server, admin, devices } = await startMachine());
		const path = join(temporary(), "agree.gguf");
		writeFileSync(path, modelFile({ megabytes: LAYERS * 0.19, inner: 192 }));
		const { model_id } = await admin.call("model.add", { source: path });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready"), "the model is read");
		assert.equal(model.architecture.layers, LAYERS);
		const instance = await load({ pins: on(devices.find((one) => one.backend === "cpu")) });
		expected = await answers(instance.model_name, "the processor");
		await unload(instance);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("each of the others alone, and behind the processor", async (t) => {
		const cpu = devices.find((one) => one.backend === "cpu"), others = devices.filter((one) => one !== cpu);
		if (!others.length) return t.skip("there is the processor only");
		for (const one of others) {
			await check({ pins: on(one) }, one.name);
			await check({ pins: on(cpu, one) }, `the processor and ${one.name}`);
		}
	});

	test("two equal ones one behind the other, and in slices", async (t) => {
		const cuda = devices.filter((one) => one.backend === "cuda"), [one] = cuda, pair = cuda.filter(({ model: name }) => name === one.model).slice(0, 2);
		if (pair.length < 2) return t.skip("no two equal GPUs");
		await check({ pins: on(...pair) }, `two of ${one.name}`);
		await check({ strategy: "tensor", pins: pair.map(({ device_id }) => ({ device_id, first_layer: 0, layer_count: LAYERS })) }, `two of ${one.name} in slices`);
	});
});
