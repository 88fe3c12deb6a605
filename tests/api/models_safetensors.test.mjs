// Directories of safetensors, as transformers writes them: each becomes a model file with the tensors and keys of
// llama.cpp's converter, the ids of `tokenizers` and the text of transformers; what is missing or not converted is named.
// tests/models/make_safetensors.py makes the directories and what is expected of them.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, assertContractKept } from "./client.mjs";
import { readFile } from "./gguf.mjs";
import { eventually, patience, request, run, startServer, temporary } from "./server.mjs";

const made = fileURLToPath(new URL("../models/safetensors/", import.meta.url));
const names = readdirSync(made).sort();
const expected = (name) => JSON.parse(readFileSync(join(made, name, "expected.json")));

// What a person reads, and what follows from others.
const ignored = new Set(["general.name", "general.size_label", "general.quantization_version", "llama.vocab_size", "gemma3.rope.freq_base_swa",
	"tokenizer.ggml.add_sep_token"]);

describe("directories of safetensors", () => {
	let server, admin, folder, cpu, token;

	const start = async (data) => {
		server = await startServer({ data, localNode: true });
		admin = await Client.login(server);
	};
	const ended = async (source) => {
		const { model_id } = await admin.call("model.add", { source });
		return eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state !== "downloading"),
			`${source} is ready or failed`, 6 * patience);
	};
	const ready = async (source) => {
		const model = await ended(source);
		assert.equal(model.state, "ready", model.state_reason);
		return model;
	};
	const path = (model) => join(server.data, "models", `${model.model_id}.gguf`);
	// A copy of a directory with other files; null: without this one.
	const changed = (name, files, of = "llama") => {
		const to = join(folder, name);
		cpSync(join(made, of), to, { recursive: true });
		for (const [file, bytes] of Object.entries(files))
			if (bytes === null) rmSync(join(to, file));
			else writeFileSync(join(to, file), typeof bytes === "function" ? JSON.stringify(bytes(JSON.parse(readFileSync(join(to, file))))) : bytes);
		return to;
	};
	const refused = async (why, ...rest) => {
		const model = await ended(changed(...rest));
		assert.equal(model.state, "failed", rest[0]);
		assert.match(model.state_reason, why);
		assert.ok(!existsSync(path(model)) && !existsSync(`${path(model)}.whole`), "nothing of it is left");
	};
	const config = (more) => ({ "config.json": (json) => ({ ...json, ...more }) });

	before(async () => {
		folder = temporary();
		await start();
		cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		token = (await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 })).token;
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	for (const name of names)
		test(`${name}: the converter's tensors and keys, and transformers' text`, async () => {
			const model = await ready(join(made, name)), wanted = expected(name), file = readFile(readFileSync(path(model)));
			assert.equal(statSync(path(model)).mode & 0o777, 0o600);
			assert.deepEqual([model.name, model.source, model.architecture.chat_template], [name, join(made, name), "chatml"]);
			for (const [key, value] of Object.entries(wanted.keys))
				if (!ignored.has(key)) assert.deepEqual(file.keys.get(key), value, key);
			const tensors = Object.fromEntries(file.tensors.map(({ name: tensor, type, size, bytes }) => [tensor,
				[type, size, createHash("sha256").update(bytes).digest("hex")]]));
			for (const [tensor, value] of Object.entries(wanted.tensors))
				if (tensor !== "rope_freqs.weight") assert.deepEqual(tensors[tensor], value, tensor); // its last bit differs
			assert.deepEqual(Object.keys(tensors).sort(), Object.keys(wanted.tensors).sort());
			const { instance_id } = await admin.call("instance.create", { model_id: model.model_id,
				pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }] });
			await eventually(async () => {
				const one = (await admin.call("instance.list")).instances.find((each) => each.instance_id === instance_id);
				assert.notEqual(one?.state, "failed", one?.state_reason);
				return one?.state === "running";
			}, "the instance runs", 6 * patience);
			const post = async (body) => {
				const answer = await request(server, "/v1/completions", { method: "POST", headers: { authorization: `Bearer ${token}`,
					"content-type": "application/json" }, body: JSON.stringify({ model: name, temperature: 0, ...body }) });
				assert.equal(answer.status, 200, answer.body.toString());
				return JSON.parse(answer.body);
			};
			const answer = await post({ prompt: wanted.prompt, max_tokens: wanted.generated.length, ignore_eos: true });
			assert.equal(answer.choices[0].text, wanted.text);
			for (const [text, ids] of wanted.texts)
				assert.equal((await post({ prompt: text, max_tokens: 1 })).usage.prompt_tokens, ids.length, text);
			await admin.call("instance.delete", { instance_id });
		});

	test("any file of it stands for the directory, which stays; it is there after a restart", async () => {
		const source = changed("whole", {}), model = await ready(source);
		for (const one of [`${source}/`, join(source, "model.safetensors.index.json"), join(source, "model-00002-of-00004.safetensors")])
			assert.equal((await admin.call("model.add", { source: one })).model_id, model.model_id, one);
		await eventually(async () => (await admin.call("model.list")).models.find(({ model_id }) => model_id === model.model_id).sha256, "its digest is known");
		await server.finish();
		await start(server.data);
		assert.equal((await admin.call("model.list")).models.find(({ model_id }) => model_id === model.model_id).state, "ready");
		await admin.call("model.remove", { model_id: model.model_id });
		await eventually(() => !existsSync(path(model)), "what was made is gone", patience);
		assert.ok(existsSync(join(source, "config.json")));
	});

	test("what the authors recommend is taken", async () => {
		const model = await ready(changed("recommended", { "generation_config.json": (json) => ({ ...json, temperature: 0.6, top_k: 20 }) }));
		assert.deepEqual([model.architecture.sampling.temperature, model.architecture.sampling.top_k], [0.6, 20]);
	});

	test("what is missing or not converted is named, with what to do", async () => {
		mkdirSync(join(folder, "empty"));
		assert.match((await ended(join(folder, "empty"))).state_reason, /has no config\.json; .*model\.safetensors/);
		await refused(/has no tokenizer\.json; tokenizer\.model is not read/, "pieces", { "tokenizer.json": null, "tokenizer.model": "x" });
		await refused(/has no model\.safetensors; pytorch_model\.bin can hold code/, "pickled", { "model.safetensors": null, "pytorch_model.bin": "x" }, "qwen2");
		await refused(/has no model-00002-of-00004\.safetensors/, "lacking", { "model-00002-of-00004.safetensors": null });
		await refused(/the architecture BloomForCausalLM is not converted here; .*Llama/, "bloom", config({ architectures: ["BloomForCausalLM"] }));
		await refused(/quantised \(gptq\).*; .*GGUF/, "gptq", config({ quantization_config: { quant_method: "gptq" } }));
		await refused(/positions scaled by "dynamic"/, "dynamic", config({ rope_parameters: { rope_type: "dynamic", factor: 2 } }));
		await refused(/hidden_size is missing/, "sizeless", config({ hidden_size: null }));
		await refused(/q_proj.* rows than the heads/, "heads", config({ num_attention_heads: 8, head_dim: 8, num_key_value_heads: 2 }));
		await refused(/config\.json: it is not JSON/, "broken", { "config.json": "{" });
		await refused(/tokenizer of the kind Unigram.*; BPE of Llama/, "unigram", { "tokenizer.json": (json) => ({ ...json, model: { type: "Unigram" } }) });
		await refused(/cut into words by \\d\+/, "odd", { "tokenizer.json": (json) => ({ ...json, pre_tokenizer: { type: "Sequence", pretokenizers: [
			{ type: "Split", pattern: { Regex: "\\d+" }, behavior: "Isolated", invert: false }, { type: "ByteLevel", add_prefix_space: false, use_regex: false }] } }) });
	});

	test("damaged files of safetensors are named", async () => {
		const bytes = readFileSync(join(made, "qwen2", "model.safetensors")), length = Number(bytes.readBigUInt64LE());
		const head = JSON.parse(bytes.subarray(8, 8 + length)), vector = "model.norm.weight";
		const file = (change) => {
			const json = structuredClone(head);
			change(json);
			const text = Buffer.from(JSON.stringify(json)), size = Buffer.alloc(8);
			size.writeBigUInt64LE(BigInt(text.length));
			return { "model.safetensors": Buffer.concat([size, text, bytes.subarray(8 + length)]) };
		};
		const faults = [
			["long", { "model.safetensors": Buffer.concat([Buffer.from("ffffffffffffff7f", "hex"), bytes.subarray(8)]) }, /model\.safetensors: the header would have/],
			["cut", { "model.safetensors": bytes.subarray(0, bytes.length - 1000) }, /does not lie within the file/],
			["typed", file((json) => { json[vector].dtype = "F8_E4M3"; }), /another number of bytes/],
			["shaped", file((json) => { json[vector].shape = [1e15, 1e15]; }), /too large|another number/],
			["overlapping", file((json) => { json[vector].data_offsets = json["model.layers.0.input_layernorm.weight"].data_offsets; }), /overlaps/],
			["other", file((json) => { json["model.layers.0.other"] = json[vector]; delete json[vector]; }), /model\.layers\.0\.other is not converted/],
			["less", file((json) => { delete json[vector]; }), /output_norm/],
		];
		for (const [name, files, why] of faults) await refused(why, name, files, "qwen2");
	});

	test("exogpu model add takes a directory", async () => {
		const source = changed("typed-in", {});
		const done = await run(["model", "add", source, "--data", server.data]);
		assert.equal(done.code, 0, done.stderr);
		assert.ok((await admin.call("model.list")).models.some((one) => one.source === source && one.state === "ready"));
	});
});
