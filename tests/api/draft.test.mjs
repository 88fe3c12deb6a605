// A draft model: the first layers of the model itself propose tokens to it. The texts are the same as without, whatever
// is asked; answers, instances and metrics tell what was drafted; a draft that cannot be one is refused, and the model
// loads without it.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { cutLayers, keptLayers } from "../published/cut_layers.mjs";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile, packings } from "./gguf.mjs";
import { eventually, patience, startServer, temporary } from "./server.mjs";

const TOKENS = 150;

describe("a draft model", () => {
	let server, admin, openai, cpu, plain, drafted;
	const ids = {};

	const instanceOf = async (id) => (await admin.call("instance.list")).instances.find((one) => one.instance_id === id);
	const create = (model, more) => admin.call("instance.create", { model_id: ids[model], context_tokens: 512, sequences: 4,
		pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }], ...more });
	const preview = (more) => admin.call("placement.preview", { model_id: ids.plain, context_tokens: 512, sequences: 4,
		pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }], ...more });
	const becomes = (id, state) => eventually(async () => {
		const one = await instanceOf(id);
		if (state === "running") assert.notEqual(one?.state, "failed", one?.state_reason);
		return one?.state === state && one;
	}, `the instance is ${state}`, 6 * patience);

	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		const folder = temporary(), whole = modelFile({ megabytes: 0.19 * 8, context: 512, packing: packings.Q5_0 });
		const files = { plain: whole, drafted: whole, first: cutLayers(whole, 2), second: cutLayers(whole, keptLayers("0,3-4")), other: modelFile({ marks: ["<x>"] }) };
		for (const [name, file] of Object.entries(files)) {
			writeFileSync(join(folder, `${name}.gguf`), file);
			ids[name] = (await admin.call("model.add", { source: join(folder, `${name}.gguf`), name })).model_id;
		}
		await eventually(async () => (await admin.call("model.list")).models.filter((one) => one.state === "ready").length === 5, "the models are read");
		plain = await becomes((await create("plain")).instance_id, "running");
		drafted = await becomes((await create("drafted", { draft_model_id: ids.first })).instance_id, "running");
		const { token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 });
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 2 }); // a kept connection may have ended just now
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	const ask = (model, more) => openai.completions.create({ model, prompt: "abc def", max_tokens: TOKENS, temperature: 0, ignore_eos: true, ...more });

	test("its memory is that of the device's stage", () => {
		assert.equal(drafted.draft.model_id, ids.first);
		assert.equal(drafted.draft.name, "first");
		assert.equal(plain.draft, null);
		const bytes = ({ stages: [stage] }) => stage.weights_bytes + stage.kv_bytes + stage.workspace_bytes;
		assert.ok(drafted.draft.bytes > 100000, `${drafted.draft.bytes}`);
		assert.equal(bytes(drafted) - bytes(plain), drafted.draft.bytes);
	});

	test("the text is the same, and the answer tells what was drafted", async () => {
		let tokens = 0, accepted = 0;
		for (const more of [{}, { temperature: 0.8, seed: 3 }, { n: 2, temperature: 1, seed: 4 }, { logprobs: 2 }, { stop: ["ab"] },
			{ response_format: { type: "json_object" } }, { logit_bias: { 70: 100 } }]) {
			const without = await ask("plain", more), withIt = await ask("drafted", more);
			assert.deepEqual(withIt.choices, without.choices, JSON.stringify(more));
			assert.equal(without.usage.completion_tokens_details, undefined);
			const details = withIt.usage.completion_tokens_details ?? {};
			tokens += details.drafted_tokens ?? 0;
			accepted += details.draft_accepted_tokens ?? 0;
			assert.ok((details.draft_accepted_tokens ?? 0) <= (details.accepted_prediction_tokens ?? 0));
		}
		assert.ok(tokens > 0, "it was asked");
		const { draft } = await eventually(async () => {
			const one = await instanceOf(drafted.instance_id);
			return one.draft.drafted_tokens === tokens && one;
		}, `the instance tells of ${tokens} drafted tokens`);
		assert.equal(draft.draft_accepted_tokens, accepted);
		const metrics = await (await fetch(new URL("/metrics", server.url), { headers: { authorization: `Bearer ${server.token}` } })).text();
		assert.match(metrics, new RegExp(`exogpu_drafted_tokens_total\\{model="${ids.drafted}",name="drafted"\\} ${tokens}\\n`));
		assert.match(metrics, new RegExp(`exogpu_draft_accepted_tokens_total\\{model="${ids.drafted}",name="drafted"\\} ${accepted}\\n`));
		const off = await ask("drafted", { speculate: false });
		assert.equal(off.usage.completion_tokens_details, undefined, "a request may do without");
	});

	test("several requests at once have the texts that they have alone", async () => {
		const prompts = ["a b", "b c d", "the same", "and more of it"];
		const alone = [];
		for (const prompt of prompts) alone.push((await ask("plain", { prompt })).choices[0].text);
		const together = await Promise.all(prompts.map((prompt) => ask("drafted", { prompt })));
		assert.deepEqual(together.map((one) => one.choices[0].text), alone);
	});

	test("what can be no draft is refused with the reason, before anything is loaded", async () => {
		await assert.rejects(create("plain", { draft_model_id: "mod_nothing" }), /no draft model/);
		for (const call of [() => create("plain", { draft_model_id: ids.other }), () => preview({ draft_model_id: ids.other })])
			await assert.rejects(call(), (error) => error.reason === "invalid_params" && /cannot be this model's draft: .*token/.test(error.message));
	});

	test("a draft that an instance uses is not removed before the instance is", async () => {
		const { instance_id } = await create("plain", { draft_model_id: ids.second });
		const refused = (model_id) => assert.rejects(admin.call("model.remove", { model_id }), (error) => error.reason === "conflict" && /1 instance uses second/.test(error.message));
		await refused(ids.second);
		await becomes(instance_id, "running");
		await refused(ids.second);
		await admin.call("instance.delete", { instance_id });
		await eventually(async () => !(await instanceOf(instance_id)), "the instance is gone", 6 * patience);
		await admin.call("model.remove", { model_id: ids.second });
	});

	test("a draft that does not fit is counted: what it takes is in the preview", async () => {
		const needs = ({ devices }) => devices.find((one) => one.device_id === cpu.device_id).needed_bytes;
		const without = needs(await preview()), withIt = needs(await preview({ draft_model_id: ids.first }));
		assert.ok(withIt - without > 0.5 * drafted.draft.bytes && withIt - without < 2 * drafted.draft.bytes, `${withIt - without}, ${drafted.draft.bytes}`);
	});
});
