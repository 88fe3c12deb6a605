// Repositories that have only safetensors: their files are fetched, each checked, and converted here. Nothing that is not
// converted is fetched, no stop at any moment loses what has come, and no name in an index leads elsewhere.
import assert from "node:assert/strict";
import { cpSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { Hub } from "./hub.mjs";
import { eventually, patience, run, startServer } from "./server.mjs";

const made = fileURLToPath(new URL("../models/safetensors/", import.meta.url));
const shard = (number) => `model-0000${number}-of-00004.safetensors`;
const index = "model.safetensors.index.json";

describe("repositories of safetensors", () => {
	let server, admin, hub;

	const start = async (data) => {
		server = await startServer({ data, args: ["--hub-url", hub.url, "--ollama-url", hub.url] });
		admin = await Client.login(server);
	};
	const until = (model_id, fits, what) => eventually(async () => {
		const one = (await admin.call("model.list")).models.find((model) => model.model_id === model_id);
		return one && fits(one) && one;
	}, what, 6 * patience);
	const over = (model_id) => until(model_id, ({ state }) => state === "ready" || state === "failed", "it is ready or failed");
	const add = (source, more) => admin.call("model.add", { source, ...more });
	const ended = async (source, more) => over((await add(source, more)).model_id);
	const ready = async (source, more) => {
		const model = await ended(source, more);
		assert.equal(model.state, "ready", model.state_reason);
		return model;
	};
	const failed = async (source, more) => {
		const model = await ended(source, more);
		assert.equal(model.state, "failed");
		return model.state_reason;
	};
	const folder = () => join(server.data, "models");
	const files = () => readdirSync(folder()).sort();
	const bytes = (model) => readFileSync(join(folder(), `${model.model_id}.gguf`));
	const alone = (model) => eventually(() => files().join() === `${model.model_id}.gguf`, "nothing else of it is left", patience);
	const empty = () => eventually(() => !files().length, "nothing of it is left", patience);
	// A directory of tests/models as a repository, with other files; null: without this one.
	const offer = (repository, of, changes = {}) => {
		for (const name of readdirSync(join(made, of)))
			if (name !== "expected.json") hub.files.set(`maker/${repository}/${name}`, readFileSync(join(made, of, name)));
		for (const [name, content] of Object.entries(changes))
			if (content === null) hub.files.delete(`maker/${repository}/${name}`);
			else hub.files.set(`maker/${repository}/${name}`, Buffer.isBuffer(content) ? content : Buffer.from(JSON.stringify(content)));
	};
	const json = (of, name) => JSON.parse(readFileSync(join(made, of, name)));
	// What was asked of the store, or of the repository, by name.
	const askedFor = (from = 0) => hub.asked.slice(from).filter(({ server: which }) => which === "store")
		.map(({ url }) => decodeURIComponent(decodeURIComponent(url.split("?")[0])).split("/").at(-1));
	const weightsAsked = (from) => askedFor(from).filter((name) => name.endsWith(".safetensors"));
	// The connection that would bring this file stays silent; it was asked for once everything before it was there.
	const stopAt = async (source, name) => {
		hub.plan.store = (request) => decodeURIComponent(decodeURIComponent(request.url)).includes(name);
		const { model_id } = await add(source);
		await eventually(() => askedFor().includes(name), `${name} is asked for`, 6 * patience);
		return model_id;
	};
	// The same file that the directory becomes.
	const isConverted = async (model, of) => {
		const local = await ready(join(made, of), { name: `${of} of this machine` });
		assert.ok(bytes(model).equals(bytes(local)), "it is what the directory becomes");
		await admin.call("model.remove", { model_id: local.model_id });
	};

	before(async () => {
		hub = await Hub.start();
		await start();
	});
	after(async () => {
		hub?.stop();
		await server?.finish();
		assertContractKept();
	});
	beforeEach(async () => {
		hub.plan = {};
		hub.token = undefined;
		hub.asked = [];
		for (const { model_id } of (await admin.call("model.list")).models) await admin.call("model.remove", { model_id });
		await empty();
		hub.files = new Map();
	});

	test("one in several files: texts first, then what the index names, and nothing else", async () => {
		offer("llama", "llama", { "consolidated.safetensors": Buffer.alloc(100), "original/model.safetensors": Buffer.alloc(100), "pytorch_model.bin": Buffer.alloc(10) });
		const model = await ready("hf:maker/llama");
		assert.deepEqual([model.name, model.source, model.architecture.chat_template], ["llama", "hf:maker/llama/model.safetensors", "chatml"]);
		await alone(model);
		const asked = [...new Set(askedFor())];
		assert.equal(asked[0], "config.json");
		assert.deepEqual(asked.slice(-4), [1, 2, 3, 4].map(shard));
		assert.ok(!asked.some((name) => /consolidated|bin$/.test(name)), asked.join());
		for (const name of ["", `/${shard(2)}`, `/${index}`, "/model.safetensors"])
			assert.equal((await add(`hf:maker/llama${name}`)).model_id, model.model_id);
		await isConverted(model, "llama");
		await server.finish();
		await start(server.data);
		assert.equal((await admin.call("model.list")).models[0].state, "ready");
		const { freed_bytes } = await admin.call("model.remove", { model_id: model.model_id });
		assert.ok(freed_bytes >= model.file_bytes, `${freed_bytes}`);
	});

	test("one in one file, asked for by the command line; what it does is said", async () => {
		offer("qwen2", "qwen2", { [index]: { weight_map: { a: "none.safetensors" } } }); // which is not read
		const said = await run(["model", "add", "hf:maker/qwen2", "--data", server.data]);
		assert.equal(said.code, 0, said.stderr);
		const [model] = (await admin.call("model.list")).models;
		assert.deepEqual([model.name, model.source, model.state], ["qwen2", "hf:maker/qwen2/model.safetensors", "ready"]);
		assert.ok(!askedFor().includes(index));
		await isConverted(model, "qwen2");
	});

	test("progress counts all files, and its reason says what the disk needs", async () => {
		offer("llama", "llama");
		const model_id = await stopAt("hf:maker/llama", shard(3));
		const total = [...hub.files.values()].reduce((sum, one) => sum + one.length, 0);
		const last = [shard(3), shard(4)].reduce((sum, name) => sum + hub.files.get(`maker/llama/${name}`).length, 0);
		const model = await until(model_id, ({ progress, state_reason }) => progress?.done_bytes === total - last && state_reason, "two files are counted");
		assert.deepEqual([model.progress.step, model.progress.total_bytes], ["downloading", total]);
		assert.match(model.state_reason, /^safetensors, .* in 4 files, converted on this server; .* take .* of the disk/);
		const { freed_bytes } = await admin.call("model.remove", { model_id });
		assert.ok(freed_bytes >= hub.files.get(`maker/llama/${shard(1)}`).length, `${freed_bytes}`);
	});

	test("a repository with a GGUF file is not converted, unless its safetensors are named", async () => {
		offer("qwen2", "qwen2", { "both-Q8_0.gguf": modelFile() });
		assert.equal((await ready("hf:maker/qwen2")).source, "hf:maker/qwen2/both-Q8_0.gguf");
		await isConverted(await ready("hf:maker/qwen2/model.safetensors"), "qwen2");
		assert.deepEqual((await admin.call("model.list")).models.map(({ state }) => state), ["ready", "ready"]);
	});

	describe("is refused before its tensors are asked for", () => {
		const refused = async (why, of, changes) => {
			offer("other", of, changes);
			assert.match(await failed("hf:maker/other"), why);
			assert.deepEqual(weightsAsked(), []);
			await empty();
		};
		test("an architecture that is not converted, after config.json alone", async () => {
			await refused(/the architecture BloomForCausalLM is not converted here; .*Llama/, "llama", { "config.json": { ...json("llama", "config.json"), architectures: ["BloomForCausalLM"] } });
			assert.deepEqual([...new Set(askedFor())], ["config.json"]);
		});
		test("weights that are quantised", () =>
			refused(/quantised \(gptq\)/, "llama", { "config.json": { ...json("llama", "config.json"), quantization_config: { quant_method: "gptq" } } }));
		test("a tokenizer that is not converted", () =>
			refused(/tokenizer of the kind Unigram/, "llama", { "tokenizer.json": { ...json("llama", "tokenizer.json"), model: { type: "Unigram" } } }));
		test("files that are missing", async () => {
			await refused(/safetensors, but no tokenizer\.json; tokenizer\.model is not read/, "llama", { "tokenizer.json": null, "tokenizer.model": Buffer.from("x") });
			hub.files = new Map();
			await refused(/neither a GGUF file nor safetensors; .*tokenizer\.json/, "qwen2", { "model.safetensors": null, "pytorch_model.bin": Buffer.from("x") });
		});
		test("an index with too many files, with a path, or of files that are not there", async () => {
			const many = Object.fromEntries(Array.from({ length: 257 }, (_, i) => [`t${i}`, `model-${i}.safetensors`]));
			await refused(/index\.json: a model in more than 256 files/, "llama", { [index]: { weight_map: many } });
			for (const name of ["../config.json", "a/b.safetensors", ".hidden", ""])
				await refused(/index\.json: .* is not a file's name/, "llama", { [index]: { weight_map: { a: shard(1), b: name } } });
			await refused(/names other\.safetensors, which this repository does not have/, "llama", { [index]: { weight_map: { a: "other.safetensors" } } });
			await refused(/index\.json names no file/, "llama", { [index]: {} });
		});
		test("texts that are too long, and tensors for which the disk has no room", async () => {
			hub.plan.sizes = { "tokenizer.json": 65 * 1024 * 1024 };
			await refused(/tokenizer\.json has 65 MiB; the most is 64 MiB/, "llama");
			hub.plan.sizes = { "model.safetensors": 4e12 };
			hub.files = new Map();
			await refused(/the disk has no room: .* are needed; the files and the model .* together, until the files are deleted/, "qwen2");
		});
	});

	test("a file that is not what the hub promises is named, and alone fetched again", async () => {
		offer("llama", "llama");
		hub.plan.lies = { [shard(2)]: "a".repeat(64) };
		assert.match(await failed("hf:maker/llama"), /model-00002-of-00004\.safetensors: the file that came is wrong: .*SHA-256/);
		const { length } = hub.asked;
		hub.plan = {};
		const model = await ready("hf:maker/llama/model.safetensors");
		assert.deepEqual([...new Set(weightsAsked(length))], [shard(2)]);
		await isConverted(model, "llama");
		await alone(model);
	});

	test("one that needs a token, and one of a commit", async () => {
		offer("llama", "llama");
		hub.token = "secret-of-the-hub";
		assert.match(await failed("hf:maker/llama"), /config\.json: .*access token/);
		await isConverted(await ready("hf:maker/llama", { access_token: hub.token, name: "with a token" }), "llama");
		hub.token = undefined;
		const commit = "0123456789abcdef0123456789abcdef01234567";
		offer(`qwen2@${commit}`, "qwen2");
		assert.equal((await ready(`hf:maker/qwen2@${commit}`)).source, `hf:maker/qwen2@${commit}/model.safetensors`);
	});

	test("connections that break are taken up", async () => {
		offer("llama", "llama");
		hub.plan.cut = [100, 5];
		await isConverted(await ready("hf:maker/llama"), "llama");
	});

	test("a hub that says no length may not send more than it has listed", async () => {
		offer("llama", "llama");
		hub.plan = { plain: true, chunked: true, sizes: { "config.json": 20 } };
		assert.match(await failed("hf:maker/llama"), /config\.json: the server sends more than it announced/);
		hub.plan = { plain: true, chunked: true };
		await isConverted(await ready("hf:maker/llama"), "llama");
	});

	describe("goes on after SIGKILL", () => {
		// The hub may not be needed any more.
		const again = async (model_id, plan = {}, of = "llama") => {
			const { length } = hub.asked;
			hub.plan = plan;
			await start(server.data);
			const model = await over(model_id);
			assert.equal(model.state, "ready", model.state_reason);
			await isConverted(model, of);
			await alone(model);
			return length;
		};
		test("while texts come", async () => {
			offer("llama", "llama");
			const model_id = await stopAt("hf:maker/llama", "tokenizer.json");
			await server.stop("SIGKILL");
			await again(model_id);
		});
		test("while tensors come: those that are there are not asked for again", async () => {
			offer("llama", "llama");
			const model_id = await stopAt("hf:maker/llama", shard(3));
			await server.stop("SIGKILL");
			const length = await again(model_id);
			assert.deepEqual([...new Set(weightsAsked(length))], [shard(3), shard(4)]);
		});
		test("while tensors come, where the repository has become another one", async () => {
			offer("qwen2", "llama");
			const model_id = await stopAt("hf:maker/qwen2", shard(3));
			await server.stop("SIGKILL");
			rmSync(join(folder(), `${model_id}.gguf.files`, `${shard(2)}.journal`)); // as if half of it had come
			hub.files = new Map();
			offer("qwen2", "qwen2");
			await again(model_id, {}, "qwen2");
		});
		// The moments after the last byte are short; what the disk has then is made here. The hub is silent.
		const offline = { front: (request, response) => { response.destroy(); return true; } };
		const checked = async () => {
			offer("llama", "llama");
			const model_id = await stopAt("hf:maker/llama", shard(1));
			await server.stop("SIGKILL");
			const place = join(folder(), `${model_id}.gguf`);
			rmSync(`${place}.files`, { recursive: true });
			cpSync(join(made, "llama"), `${place}.folder`, { recursive: true });
			return { model_id, place };
		};
		const stopped = async (change) => {
			const { model_id, place } = await checked();
			change(place);
			const length = await again(model_id, offline);
			assert.equal(hub.asked.length, length, "nothing is asked of the hub");
		};
		test("once all are checked, while they get their names", () => stopped((place) => {
			renameSync(join(`${place}.folder`, shard(2)), join(`${place}.folder`, `${shard(2)}.part`));
			writeFileSync(join(`${place}.folder`, `${shard(2)}.journal`), "x");
		}));
		test("while they are converted", () => stopped((place) => writeFileSync(`${place}.whole`, "GGUF, half of it")));
		test("and a model file that cannot be written then; added again, it is only converted", async () => {
			const { model_id, place } = await checked();
			mkdirSync(`${place}.whole`); // where it is written
			const { length } = hub.asked;
			hub.plan = offline;
			await start(server.data);
			assert.match((await over(model_id)).state_reason, /\.whole cannot be made/);
			rmSync(`${place}.whole`, { recursive: true });
			await isConverted(await ready("hf:maker/llama"), "llama");
			assert.equal(hub.asked.length, length, "nothing is asked of the hub");
		});
		test("before the files are deleted", async () => {
			const local = await ready(join(made, "llama")), whole = bytes(local);
			await admin.call("model.remove", { model_id: local.model_id });
			await stopped((place) => {
				writeFileSync(place, whole);
				writeFileSync(join(`${place}.folder`, "config.json"), "{}"); // it is not read again
			});
		});
	});

	test("what a model that is ready was made of goes at the next start", async () => {
		offer("llama", "llama");
		const model = await ready("hf:maker/llama"), place = join(folder(), `${model.model_id}.gguf`);
		await alone(model);
		await server.finish();
		cpSync(join(made, "llama"), `${place}.folder`, { recursive: true });
		await start(server.data);
		await alone(model);
		assert.equal((await admin.call("model.list")).models[0].state, "ready");
	});

	test("a search finds those that have no GGUF file, as one model each", async () => {
		offer("llama", "llama");
		offer("llama-both", "qwen2", { "both-Q8_0.gguf": modelFile() });
		offer("llama-bare", "qwen2", { "tokenizer.json": null });
		const { results, unreachable } = await admin.call("model.search", { text: "llama" });
		const bytes = [1, 2, 3, 4].reduce((sum, number) => sum + hub.files.get(`maker/llama/${shard(number)}`).length, 0);
		assert.deepEqual(unreachable.filter((why) => /Face/.test(why)), []);
		assert.deepEqual(results.map(({ source, name, origin, bytes: size, format }) => [source, name, origin, size, format]).sort(), [
			["hf:maker/llama-both/both-Q8_0.gguf", "both-Q8_0", "hf", hub.files.get("maker/llama-both/both-Q8_0.gguf").length, "Q8_0"],
			["hf:maker/llama/model.safetensors", "llama", "hf", bytes, null]]);
		const found = await run(["model", "search", "llama", "--data", server.data]);
		assert.match(found.stdout, /hf:maker\/llama\/model\.safetensors +converted/);
	});

	test("one that is removed while it comes leaves nothing", async () => {
		offer("llama", "llama");
		const model_id = await stopAt("hf:maker/llama", shard(2));
		await admin.call("model.remove", { model_id });
		await empty();
	});
});
