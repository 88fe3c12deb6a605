// Layers of models in a browser's tab, the rest on this machine's processor: answers are those of the processor alone, and
// one whose tab is closed in mid-sentence ends as it would have. Chromium computes on SwiftShader.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Client, assertContractKept } from "../api/client.mjs";
import { modelFile, withWords } from "../api/gguf.mjs";
import { binary, eventually, patience, startServer, temporary } from "../api/server.mjs";
import { gpuFlags, picture, startBrowser, suite } from "./browser.mjs";

const NEAR = 0.01; // nats
const prompt = (length, seed = 0) => Array.from({ length }, (_, i) => 3 + ((i * i * 7 + i * (5 + seed) + length) % 120));
const small = (name) => withWords(readFileSync(new URL(`../models/${name}.gguf`, import.meta.url)));

suite("layers of a model in a tab", () => {
	let server, client, browser, page, gpu, cpu;
	const devices = async () => (await client.call("cluster.snapshot")).devices;
	const instance = async (id) => (await client.call("instance.list")).instances.find((one) => one.instance_id === id);

	async function add(name, bytes) {
		const source = join(temporary(), `${name}.gguf`);
		writeFileSync(source, bytes);
		const { model_id } = await client.call("model.add", { source });
		return eventually(async () => (await client.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready"), `${name} is read`);
	}
	async function load(model, pins) {
		const { instance_id } = await client.call("instance.create", { model_id: model.model_id, context_tokens: 256, sequences: 4, pins });
		return eventually(async () => {
			const one = await instance(instance_id);
			assert.notEqual(one?.state, "failed", one?.state_reason);
			return one?.state === "running" && one;
		}, "the model is loaded", 10 * patience);
	}
	async function unload({ instance_id }) {
		await client.call("instance.delete", { instance_id });
		await eventually(async () => !(await instance(instance_id)), "the model is gone", 2 * patience);
	}
	const ask = (model, body) => fetch(new URL("/v1/completions", server.url), { method: "POST",
		headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
		body: JSON.stringify({ model: model.name, temperature: 0, ignore_eos: true, max_tokens: 3, ...body }) });
	async function logprobs(model, tokens) {
		const answer = await ask(model, { prompt: tokens, echo: true, logprobs: 1 });
		assert.equal(answer.status, 200, await answer.clone().text());
		return (await answer.json()).choices[0].logprobs.token_logprobs;
	}
	// Stages of these layers, one after the other.
	const pins = (...stages) => stages.map(([{ device_id }, layer_count], i) => ({ device_id, layer_count,
		first_layer: stages.slice(0, i).reduce((sum, [, count]) => sum + count, 0) }));
	async function lend() {
		const { stdout } = await promisify(execFile)(binary, ["lend", "--data", server.data]);
		await page.goto(stdout.trim());
		await page.getByRole("button", { name: "Yes, lend it" }).click();
		gpu = await eventually(async () => (await devices()).find((one) => one.backend === "webgpu" && one.state !== "offline" && one.verification.state === "passed"),
			"the GPU is verified", 4 * patience);
	}

	// The first request after each load is computed again by the processor, and compared.
	const checked = () => eventually(async () => {
		const { spot_checks: checks } = (await devices()).find((one) => one.device_id === gpu.device_id);
		assert.equal(checks.failed, 0, checks.reason);
		assert.ok(checks.largest_error < 0.002, `the largest error is ${checks.largest_error}, and 0.02 is allowed`);
		return checks.last === "passed";
	}, "a spot check has passed", 2 * patience);

	before(async () => {
		server = await startServer({ localNode: true });
		client = await Client.login(server);
		browser = await startBrowser({ more: gpuFlags });
		page = await browser.page();
		await page.addInitScript(`{ // a battery that the test charges and empties
			const battery = Object.assign(new EventTarget(), { level: 0.5, charging: false, chargingTime: Infinity });
			Navigator.prototype.getBattery = async () => battery;
			globalThis.setBattery = (level) => (battery.level = level, battery.dispatchEvent(new Event("levelchange")));
		}`);
		await lend();
		cpu = await eventually(async () => (await devices()).find((one) => one.backend === "cpu" && one.verification.state === "passed"), "the CPU is verified", 2 * patience);
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
		assertContractKept();
	});

	// What each has that others have not, and where its layers are.
	const first = (layers) => pins([gpu, layers - 1], [cpu, 1]), between = (layers) => pins([cpu, 1], [gpu, layers - 2], [cpu, 1]);
	const models = {
		"qwen2 with biases, first": [() => small("qwen2vl"), first],
		"qwen3 with norms of heads, first": [() => small("qwen3vl"), first],
		"smollm3 with layers that do not turn, between": [() => small("smollm3"), between],
		"gemma with GELU and scaled embeddings, first": [() => small("gemma"), first],
	};
	for (const [name, [make, where]] of Object.entries(models))
		test(`${name}: as the processor alone`, async () => {
			const model = await add(name.replace(/\W/g, "-"), make());
			const prompts = [1, 7, 65].map((length) => prompt(length)); // a row, few rows, a piece of a prompt
			let running = await load(model, pins([cpu, 0]));
			const expected = await Promise.all(prompts.map((one) => logprobs(model, one)));
			await unload(running);
			running = await load(model, where(model.architecture.layers));
			const got = await Promise.all(prompts.map((one) => logprobs(model, one)));
			got.forEach((one, i) => one.forEach((value, k) => assert.ok(value === expected[i][k] || Math.abs(value - expected[i][k]) < NEAR,
				`token ${k} of ${prompts[i].length} has ${value}, not ${expected[i][k]}`)));
			if (name.startsWith("smollm3")) await checked();
			await unload(running);
		});

	test("a model that a browser does not compute is refused by name, and so is a last part", async () => {
		const { model_id } = await add("mixed", small("mixtral"));
		const create = (where) => client.refused("instance.create", { model_id, context_tokens: 256, pins: where }, "unavailable");
		assert.match((await create(pins([gpu, 1], [cpu, 1]))).said, /does not compute experts/);
		const llama = await add("plain", modelFile({ megabytes: 0.57 }));
		const { said } = await client.refused("instance.create", { model_id: llama.model_id, context_tokens: 256, pins: pins([cpu, 1], [gpu, 2]) }, "unavailable");
		assert.match(said, /cannot be the last/);
	});

	// One model after the other: each load on SwiftShader takes some seconds of a processor.
	test("weights that are kept, a battery that is low, and a tab that is closed in mid-sentence", async () => {
		const model = await add("closed", small("granite")), tokens = prompt(40, 3), where = pins([gpu, 2], [cpu, 1]);
		const fetched = async () => Number(await page.getByText(/^closed: layers 0 to 1, .* of weights/).getAttribute("data-fetched"));
		let running = await load(model, where);
		assert.ok(await fetched() > 0);

		await page.evaluate("setBattery(0.1)");
		const why = "its battery is at 10 % (limit 20 %)", state = async () => (await devices()).find((one) => one.device_id === gpu.device_id);
		await eventually(async () => {
			const one = await instance(running.instance_id);
			return one.state === "running" && one.stages.every(({ device_id }) => device_id === cpu.device_id);
		}, "its layers leave a device whose battery is low", 4 * patience);
		assert.deepEqual([(await state()).state, (await state()).state_reason], ["resting", why]);
		const { said: refused } = await client.refused("instance.create", { model_id: model.model_id, context_tokens: 256, pins: where }, "unavailable");
		assert.ok(refused.includes(why), refused);
		await page.getByText(/The battery is below that/).waitFor();
		const { choices: [{ text: expected }] } = await (await ask(model, { prompt: tokens, max_tokens: 60 })).json();
		await unload(running);
		await page.evaluate("setBattery(0.3)");
		await eventually(async () => (await state()).state === "idle", "it takes work again by itself", 2 * patience);

		running = await load(model, where);
		assert.equal(await fetched(), 0, "nothing is fetched a second time");
		await unload(running);
		// The newest files are those of this model: one is deleted, another is changed.
		const lost = await page.evaluate(async () => {
			const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("exogpu-weights"), all = [];
			for await (const one of folder.values()) all.push(await one.getFile());
			const [gone, changed] = all.sort((a, b) => b.lastModified - a.lastModified);
			const writable = await (await folder.getFileHandle(changed.name)).createWritable({ keepExistingData: true });
			await writable.write(new Uint8Array([255, 255, 255, 255]));
			await writable.close();
			await folder.removeEntry(gone.name);
			return gone.size + changed.size;
		});
		running = await load(model, where);
		assert.equal(await fetched(), lost, "the rest goes on where it stood");
		await page.getByRole("button", { name: "Delete", exact: true }).click();
		await page.getByText("none kept here").waitFor(); // and what computes goes on

		const answer = await ask(model, { prompt: tokens, max_tokens: 60, stream: true });
		let text = "", said = "", closed;
		for await (const bytes of answer.body) {
			said += Buffer.from(bytes).toString();
			text = [...said.matchAll(/^data: (\{.*\})$/gm)].map(([, one]) => JSON.parse(one).choices[0].text).join("");
			if (text && !closed) {
				await page.getByText(/closed: layers 0 to 1, .* of weights/).waitFor(); // it says what it computes
				await picture(page, "lend-layers");
				closed = page.close();
			}
		}
		await closed;
		assert.equal(text, expected);
		assert.match(said, /data: \[DONE\]/);
		const after = await instance(running.instance_id);
		assert.ok(after.stages.every((one) => one.device_id === cpu.device_id), "it goes on without the tab");
	});
});
