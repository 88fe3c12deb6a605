// The `openai` package against a server whose node really runs the model, on this machine's processor: words are made
// into tokens, layers computed, tokens drawn and told as text. The weights are nothing in particular, so the texts are,
// too; what can be said of them is that the same question has the same answer, however it is asked for.
import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "./client.mjs";
import { Collector } from "./collector.mjs";
import { modelFile, packings } from "./gguf.mjs";
import { eventually, patience, run, startServer, temporary } from "./server.mjs";

const template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}" +
	"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const context = 256;

describe("/v1 and the engine", () => {
	let server, admin, openai, cpu, folder, collector;

	const ask = (more = {}) => ({ model: "small", prompt: "abc def", max_tokens: 12, temperature: 0, ignore_eos: true, ...more });
	const streamed = async (params) => {
		let text = "", reason = null, usage;
		for await (const chunk of await openai.completions.create({ ...params, stream: true, stream_options: { include_usage: true } })) {
			text += chunk.choices[0]?.text ?? "";
			reason = chunk.choices[0]?.finish_reason ?? reason;
			usage = chunk.usage ?? usage;
		}
		return { text, reason, usage };
	};

	const load = async (source, name, more = {}) => {
		await admin.call("model.add", { source });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.name === name && one.state !== "downloading"),
			"the model is read");
		assert.equal(model.state, "ready", model.state_reason);
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id, pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }], ...more });
		return await eventually(async () => {
			const one = (await admin.call("instance.list")).instances.find((each) => each.instance_id === instance_id);
			assert.notEqual(one?.state, "failed", one?.state_reason);
			return one?.state === "running" && one;
		}, "the instance is ready", 6 * patience);
	};

	before(async () => {
		collector = await new Collector().start();
		// Of 200 connections at once some say nothing for longer than 5 s where the machine is busy.
		server = await startServer({ localNode: true, args: ["--otlp", collector.url], env: { EXOGPU_TEST_ARRIVAL_MS: "60000" } });
		admin = await Client.login(server);
		cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		folder = temporary();
		writeFileSync(join(folder, "small.gguf"), modelFile({ megabytes: 0.4, context, template }));
		writeFileSync(join(folder, "plain.gguf"), modelFile({ megabytes: 0.4, context, seed: 2 }));
		await load(join(folder, "small.gguf"), "small");
		await load(join(folder, "plain.gguf"), "plain");
		const { token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 });
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		await collector?.stop();
		assertContractKept();
		assert.deepEqual(collector.faults, []);
	});

	test("with tokens that the text foresees it is the same text, and only its own tokens are counted", async () => {
		const sums = async () => {
			const list = (await admin.call("instance.list")).instances;
			return [list.reduce((sum, one) => sum + one.proposed_tokens, 0), list.reduce((sum, one) => sum + one.accepted_tokens, 0)];
		};
		let proposed = 0, accepted = 0;
		for (const more of [{}, { logit_bias: { 70: 100 } }, { temperature: 0.5, seed: 3, logit_bias: { 71: 100 } }, { n: 2 }, { logprobs: 2 }, { stop: ["a"] }]) {
			const asked = ask({ max_tokens: 100, ...more });
			const without = await openai.completions.create(asked), foreseen = await openai.completions.create({ ...asked, speculate: true });
			assert.deepEqual(foreseen.choices, without.choices, JSON.stringify(more));
			assert.equal(foreseen.usage.completion_tokens, without.usage.completion_tokens);
			assert.equal(without.usage.completion_tokens_details, undefined);
			const { accepted_prediction_tokens = 0, rejected_prediction_tokens = 0 } = foreseen.usage.completion_tokens_details ?? {};
			assert.ok(accepted_prediction_tokens < foreseen.usage.completion_tokens);
			accepted += accepted_prediction_tokens;
			proposed += accepted_prediction_tokens + rejected_prediction_tokens;
		}
		await eventually(async () => (await sums()).join() === [proposed, accepted].join(), `the instances tell of ${proposed} proposed and ${accepted} accepted`);
	});

	test("a completion, whole and as it comes, is the same text", async () => {
		const whole = await openai.completions.create(ask());
		const [{ text, finish_reason }] = whole.choices;
		assert.ok(text.length > 0, "it says something");
		assert.equal(finish_reason, "length");
		assert.equal(whole.usage.completion_tokens, 12);
		assert.ok(whole.usage.prompt_tokens >= 4, `${whole.usage.prompt_tokens}`);
		const pieces = await streamed(ask());
		assert.deepEqual([pieces.text, pieces.reason, pieces.usage.completion_tokens, pieces.usage.prompt_tokens],
			[text, "length", 12, whole.usage.prompt_tokens]);
		const drawn = await Promise.all([1, 1, 2].map(async (seed) => (await openai.completions.create(ask({ temperature: 1, seed }))).choices[0].text));
		assert.equal(drawn[0], drawn[1], "a seed has one answer");
		assert.notEqual(drawn[0], drawn[2]);
	});
	test("its trace has times that the worker measured, one after the other inside the request's", async () => {
		const { response } = await openai.completions.create(ask()).withResponse();
		const { root, children } = await eventually(() => collector.of(response.headers.get("x-request-id")), "the trace comes");
		const [queue, prompt, decode] = children;
		assert.deepEqual(children.map((one) => one.name), ["queue", "prompt", "decode"]);
		assert.ok(root.begin <= queue.begin && queue.end === prompt.begin && prompt.end === decode.begin && decode.end <= root.end);
		assert.ok(queue.begin < queue.end && prompt.begin < prompt.end && decode.begin < decode.end, "each takes some time");
		assert.deepEqual(decode.attributes["exogpu.device_ids"], [cpu.device_id]);
		const [ms] = decode.attributes["exogpu.compute_ms"];
		assert.ok(ms > 0 && ms <= Number(decode.end - prompt.begin) / 1e6, `${ms} ms`);
		assert.deepEqual([root.attributes["gen_ai.usage.input_tokens"] > 1, root.attributes["gen_ai.usage.output_tokens"]], [true, 12]);
	});

	test("several choices: n of each prompt, as each alone with the next seed, whole and as they come", async () => {
		const drawn = { temperature: 1, seed: 7, max_tokens: 8 }, prompts = ["abc def", "ghi"];
		const alone = [];
		for (let i = 0; i < 4; i++) alone.push(await openai.completions.create(ask({ ...drawn, prompt: prompts[i >> 1], seed: 7 + i })));
		const whole = await openai.completions.create(ask({ ...drawn, prompt: prompts, n: 2 }));
		assert.deepEqual(whole.choices.map(({ index, text, finish_reason }) => [index, text, finish_reason]), alone.map((one, i) => [i, one.choices[0].text, "length"]));
		assert.deepEqual([whole.usage.completion_tokens, whole.usage.prompt_tokens], [32, alone[0].usage.prompt_tokens + alone[2].usage.prompt_tokens], "a prompt counts once");
		const texts = ["", "", "", ""], reasons = [];
		let usage;
		for await (const chunk of await openai.completions.create({ ...ask({ ...drawn, prompt: prompts, n: 2 }), stream: true, stream_options: { include_usage: true } })) {
			for (const { index, text, finish_reason } of chunk.choices) {
				texts[index] += text;
				if (finish_reason) reasons.push(finish_reason);
			}
			usage = chunk.usage ?? usage;
		}
		assert.deepEqual([texts, reasons, usage.completion_tokens], [whole.choices.map((one) => one.text), Array(4).fill("length"), 32]);
		const talk = { model: "small", messages: [{ role: "user", content: "abc" }], ...drawn };
		const spoken = await openai.chat.completions.create({ ...talk, n: 2 }), second = await openai.chat.completions.create({ ...talk, seed: 8 });
		assert.equal(spoken.choices[1].message.content, second.choices[0].message.content);
		await assert.rejects(openai.completions.create(ask({ prompt: ["abc", "x".repeat(2 * context)] })), (error) => error.status === 400 && error.code === "context_length_exceeded");
	});
	test("a gap in a text is filled: the same as the prompt with the model's own marks in it; a model without marks says so", async () => {
		const marks = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"], [before, behind, gap] = marks;
		writeFileSync(join(folder, "gaps.gguf"), modelFile({ megabytes: 0.4, context, marks }));
		const { instance_id } = await load(join(folder, "gaps.gguf"), "gaps");
		const marked = await openai.completions.create(ask({ model: "gaps", prompt: `${before}abc${behind}def${gap}`, logprobs: 1 }));
		const filled = await openai.completions.create(ask({ model: "gaps", prompt: "abc", suffix: " def", logprobs: 1 })); // behind a mark a text begins with a space there
		assert.deepEqual([filled.choices[0], filled.usage.prompt_tokens], [marked.choices[0], marked.usage.prompt_tokens]);
		const other = await openai.completions.create(ask({ model: "gaps", prompt: "abc", suffix: " dee", logprobs: 1 }));
		assert.notDeepEqual(other.choices[0].logprobs, filled.choices[0].logprobs, "what follows the gap counts");
		assert.deepEqual(await streamed(ask({ model: "gaps", prompt: "abc", suffix: "" })), await streamed(ask({ model: "gaps", prompt: "abc" })), "an empty one is none");
		const ollama = await server.http("/api/generate", { method: "POST", headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
			body: JSON.stringify({ model: "gaps", prompt: "abc", suffix: " def", stream: false, options: { temperature: 0, num_predict: 12 } }) });
		assert.deepEqual([ollama.status, ollama.json().prompt_eval_count], [200, filled.usage.prompt_tokens]);
		await assert.rejects(openai.completions.create(ask({ prompt: "abc", suffix: "def" })), (error) => error.status === 400 && error.param === "suffix" && /mark a gap/.test(error.message));
		await admin.call("instance.delete", { instance_id });
	});
	test("a file with tensors in Q5_0 answers as one that has the same numbers in Q8_0", async () => {
		const texts = [], weights = [];
		for (const [name, packing] of Object.entries(packings)) {
			const path = join(folder, `${name}.gguf`);
			writeFileSync(path, modelFile({ megabytes: 0.4, context, packing }));
			await load(path, name);
			texts.push((await openai.completions.create(ask({ model: name, max_tokens: 40 }))).choices[0].text);
			const one = (await admin.call("instance.list")).instances.find((each) => each.model_name === name);
			weights.push(one.stages[0].weights_bytes);
			await admin.call("instance.delete", { instance_id: one.instance_id });
		}
		assert.ok(texts[0].length > 0);
		assert.equal(texts[0], texts[1]);
		assert.equal(weights[0], weights[1], "they are held alike");
	});
	test("a chat by its file's template, whole and as it comes", async () => {
		const chat = { model: "small", messages: [{ role: "system", content: "be brief" }, { role: "user", content: "abc" }], max_completion_tokens: 8,
			temperature: 0, ignore_eos: true };
		const whole = await openai.chat.completions.create(chat);
		assert.deepEqual([whole.choices[0].finish_reason, whole.usage.completion_tokens, whole.choices[0].message.role], ["length", 8, "assistant"]);
		const runner = openai.chat.completions.stream(chat);
		assert.equal(await runner.finalContent(), whole.choices[0].message.content);
	});
	test("a chat with a model that has no template known here: what to do instead, and no reason to try again", async () => {
		const asked = (more) => openai.chat.completions.create({ model: "plain", messages: [{ role: "user", content: "abc" }], ...more });
		for (const more of [{}, { stream: true }])
			await assert.rejects(asked(more), (error) => {
				assert.deepEqual([error.status, error.param, error.headers.get("retry-after")], [400, "messages", null], error.message);
				assert.match(error.message, /no chat template.*--chat-template.*qwen3.*\/v1\/completions/);
				return true;
			});
		assert.ok((await openai.completions.create(ask({ model: "plain" }))).choices[0].text.length > 0);
	});
	test("exogpu run goes on from the prompt where no chat template is known, and says so", async () => {
		const said = await run(["run", "plain", "abc def", "--max-tokens", "8", "--temperature", "0", "--data", server.data]);
		const { choices: [{ text }] } = await openai.completions.create(ask({ model: "plain", max_tokens: 8, ignore_eos: false }));
		assert.deepEqual([said.code, said.stdout], [0, `${text}\n`], said.stderr);
		assert.match(said.stderr, /it has no known chat template, so it continues the prompt: plain/);
		assert.doesNotMatch((await run(["run", "small", "abc", "--max-tokens", "2", "--data", server.data])).stderr, /template/);
	});
	test("how tokens are drawn: the request's word, the instance's, the authors', the default; the answer tells which", async () => {
		const file = join(folder, "authors.gguf");
		writeFileSync(file, modelFile({ megabytes: 0.4, context, seed: 4, sampling: { temp: 0.6, top_k: 20 } }));
		writeFileSync(join(folder, "generation_config.json"), JSON.stringify({ temperature: 1.5, top_p: 0.9, do_sample: true }));
		const instance = await load(file, "authors", { sampling: { top_k: 5 } });
		rmSync(join(folder, "generation_config.json"));
		const { architecture } = (await admin.call("model.list")).models.find((one) => one.name === "authors");
		assert.deepEqual(architecture.sampling, { temperature: 0.6, top_k: 20, top_p: 0.9, min_p: null, repetition_penalty: null });
		const usual = { temperature: { value: 0.6, from: "model" }, top_k: { value: 5, from: "instance" }, top_p: { value: 0.9, from: "model" },
			min_p: { value: 0.05, from: "default" }, repetition_penalty: { value: 1, from: "default" } };
		assert.deepEqual(instance.sampling, usual);
		const same = { model: "authors", prompt: "abc", max_tokens: 24, seed: 3, ignore_eos: true };
		const unsaid = await openai.completions.create(same);
		assert.deepEqual(unsaid.sampling, usual);
		const said = await openai.completions.create({ ...same, temperature: 0.6, top_k: 5, top_p: 0.9, min_p: 0.05, repetition_penalty: 1 });
		assert.ok(Object.values(said.sampling).every(({ from }) => from === "request"));
		assert.equal(unsaid.choices[0].text, said.choices[0].text, "it is drawn as it says");
		const hot = await openai.completions.create({ ...same, temperature: 2, top_k: 0, top_p: 1, min_p: 0 });
		assert.notEqual(hot.choices[0].text, said.choices[0].text);
		await assert.rejects(admin.call("instance.create", { model_id: instance.model_id, sampling: { temperature: 3 } }), /temperature/);
		await assert.rejects(admin.call("instance.create", { model_id: instance.model_id, sampling: { heat: 1 } }), /heat/);
	});
	test("exogpu run takes what place was told, and says when an answer was cut off", async () => {
		const { stderr } = await run(["run", "authors", "abc def", "--max-tokens", "3", "--top-k", "1", "--data", server.data]);
		assert.match(stderr, /the answer was cut off: .*--max-tokens/);
		const { code, stderr: why } = await run(["run", "authors", "abc", "--top-p", "x", "--data", server.data]);
		assert.deepEqual([code, /x is not a number of top_p/.test(why)], [1, true], why);
	});
	test("a template that is named where it is placed: chats are written by it, and think or not as it says", async () => {
		const { model_id } = (await admin.call("model.list")).models.find((one) => one.name === "plain");
		const file = join(folder, "named.gguf");
		writeFileSync(file, modelFile({ megabytes: 0.4, context, seed: 3 }));
		await assert.rejects(admin.call("instance.create", { model_id, chat_template: "qwen" }), /chat_template/);
		const instance = await load(file, "named", { chat_template: "qwen3" });
		assert.deepEqual([instance.chat, instance.chat_template], [true, "qwen3"]);
		const chat = (more) => openai.chat.completions.create({ model: "named", messages: [{ role: "user", content: "abc" }], max_tokens: 1, ...more });
		const thinks = (enable_thinking, more) => chat({ chat_template_kwargs: { enable_thinking }, ...more });
		const [unsaid, on, off] = (await Promise.all([chat(), thinks(true), thinks(false)])).map(({ usage }) => usage.prompt_tokens);
		assert.equal(on, unsaid);
		assert.ok(off > unsaid, `${off} tokens with an empty thought, ${unsaid} without`);
		for (const [wrong, why] of [[{ model: "small", chat_template_kwargs: { enable_thinking: false } }, /enable_thinking is not known to it \(chat template chatml\)/],
			[{ chat_template_kwargs: { enable_thinking: "no" } }, /enable_thinking must be true or false/],
			[{ chat_template_kwargs: { thinking: true } }, /chat_template_kwargs\.thinking is not supported/]])
			await assert.rejects(chat(wrong), (error) => error.status === 400 && why.test(error.message));
	});
	test("echo with logprobs: the prompt's tokens are judged as they were when they were generated", async () => {
		const said = await openai.completions.create(ask({ prompt: "abc déf", max_tokens: 40, logprobs: 2 }));
		const [{ text, logprobs }] = said.choices;
		for (const stream of [false, true]) {
			const asked = ask({ prompt: `abc déf${text}`, max_tokens: 3, logprobs: 2, echo: true, stream });
			const choices = stream ? [] : (await openai.completions.create(asked)).choices;
			if (stream) for await (const chunk of await openai.completions.create(asked)) choices.push(...chunk.choices);
			const whole = choices.map((one) => one.text).join("");
			const all = (name) => choices.flatMap((one) => one.logprobs?.[name] ?? []);
			const [tokens, values, tops, offsets] = ["tokens", "token_logprobs", "top_logprobs", "text_offset"].map(all);
			assert.ok(whole.startsWith(`abc déf${text}`), whole);
			assert.deepEqual([values[0], tops[0], offsets[0]], [null, null, 0], "of the first token nothing is said");
			assert.ok(values.slice(1).every((value) => Number.isFinite(value) && value <= 0));
			assert.ok([tokens, values, tops, offsets].every((list) => list.length === values.length));
			const letters = [...whole];
			const inside = tokens.map((token, i) => token.startsWith("bytes:") || i === 0 || letters.slice(offsets[i], offsets[i] + [...token].length).join("") === token);
			assert.ok(inside.every(Boolean), JSON.stringify([tokens, offsets]));
			// What was generated before is judged the same, within rounding of other rows in a step.
			const from = values.length - 3 - logprobs.tokens.length;
			if (JSON.stringify(tokens.slice(from, -3)) === JSON.stringify(logprobs.tokens)) // a text may be other tokens than were drawn
				logprobs.token_logprobs.forEach((value, i) => assert.ok(Math.abs(value - values[from + i]) < 1e-3, `${i}: ${value}, ${values[from + i]}`));
		}
		const prompt = Array.from({ length: 90 }, (_, i) => 3 + (i * 7) % 250), scored = ask({ prompt, max_tokens: 1, logprobs: 1, echo: true });
		const answers = [];
		for (let i = 0; i < 2; i++) answers.push((await openai.completions.create(scored)));
		assert.equal(answers[0].choices[0].logprobs.tokens.length, 91);
		assert.deepEqual(answers[1].choices, answers[0].choices);
		const one = (await openai.completions.create(ask({ prompt: prompt.slice(0, 60), max_tokens: 1, logprobs: 5, logit_bias: { [prompt[60]]: 100 } }))).choices[0];
		assert.ok(Math.abs(one.logprobs.token_logprobs[0] - answers[0].choices[0].logprobs.token_logprobs[60]) < 1e-3, "as it would have been drawn there");
		const names = Object.keys(one.logprobs.top_logprobs[0]);
		assert.equal(names.length, 5, "each of the likeliest has a name of its own");
	});
	// Its tokens are letters, so that the text tells which. They are the same ones for long, so their probabilities are
	// compared. A stream that is over before the model is loaded again, or begins after that, tells no change, and is asked again.
	test("a stream whose weights change their format goes on as that format does from its position, which the answer tells", async () => {
		writeFileSync(join(folder, "long.gguf"), modelFile({ megabytes: 0.4, context: 8192, seed: 3 }));
		const { instance_id } = await load(join(folder, "long.gguf"), "long", { sequences: 1, context_tokens: 8192 });
		const running = (format) => eventually(async () => {
			const one = (await admin.call("instance.list")).instances.find((each) => each.instance_id === instance_id);
			return one.state === "running" && one.format === format;
		}, `it runs in ${format}`, 6 * patience);
		const tokens = 4000, letter = 260, prompt = [1, 259, 260, 261, 262], logit_bias = Object.fromEntries(Array.from({ length: 26 }, (_, i) => [letter + i, 100]));
		const asked = (more) => ask({ model: "long", prompt, logit_bias, logprobs: 1, max_tokens: tokens, ...more });
		let whole;
		for (let i = 0; i < 5 && !whole?.format_changes; i++) {
			await admin.call("instance.move", { instance_id, format: "Q4_0" }); // it looks within 250 ms, and then searches
			[whole] = (await openai.completions.create(asked())).choices;
			await running("Q4_0");
			if (!whole.format_changes) await admin.call("instance.move", { instance_id, format: "file" }).then(() => running("F32"));
		}
		const [{ position, ...change }, ...more] = whole.format_changes, values = whole.logprobs.token_logprobs;
		assert.deepEqual([change, more, whole.text.length, values.length], [{ from: "F32", format: "Q4_0" }, [], tokens, tokens]);
		const ids = [...whole.text.slice(0, position)].map((one) => letter + one.charCodeAt(0) - 97);
		const [rest] = (await openai.completions.create(asked({ prompt: [...prompt, ...ids], max_tokens: tokens - position }))).choices;
		assert.deepEqual([rest.text, rest.format_changes], [whole.text.slice(position), undefined], `from ${position} on`);
		await admin.call("instance.move", { instance_id, format: "file" });
		await running("F32");
		const [undisturbed] = (await openai.completions.create(asked())).choices;
		assert.equal(whole.text.slice(0, position), undisturbed.text.slice(0, position), `up to ${position}`);
		const furthest = (from, to, others) => Math.max(...values.slice(from, to).map((value, k) => Math.abs(value - others[k])));
		const [before, after, instead] = [furthest(0, position, undisturbed.logprobs.token_logprobs), furthest(position, tokens, rest.logprobs.token_logprobs),
			furthest(position, tokens, undisturbed.logprobs.token_logprobs.slice(position))];
		assert.ok(instead > 1e-5 && Math.max(before, after) < instead / 10, `${[position, before, after, instead]}`);
		await admin.call("instance.delete", { instance_id });
	});
	test("a stop text ends it before that text, log-probabilities are of what was said", async () => {
		const { choices: [{ text, logprobs }] } = await openai.completions.create(ask({ logprobs: 2 }));
		assert.equal(logprobs.tokens.length, 12);
		for (const one of logprobs.token_logprobs) assert.ok(one <= 0 && one > -100, `${one}`);
		// Where each token is in the text, also of those that are a part of a character, or show nothing.
		const characters = [...text];
		let before = 0;
		for (const [i, offset] of logprobs.text_offset.entries()) {
			assert.ok(offset >= before && offset <= characters.length, `${logprobs.text_offset}`);
			const token = logprobs.tokens[i];
			if (!/^bytes:|<|^$/.test(token)) assert.equal(characters.slice(offset, offset + [...token].length).join(""), token, `${offset} of ${text}`);
			before = offset;
		}
		const stop = [...text].slice(3, 5).join("");
		const stopped = await openai.completions.create(ask({ stop: [stop] }));
		assert.deepEqual([stopped.choices[0].text, stopped.choices[0].finish_reason], [text.slice(0, text.indexOf(stop)), "stop"]);
	});
	test("embeddings: the same text has the same, another one another", async () => {
		const { data } = await openai.embeddings.create({ model: "small", input: ["abc", "abc", "def"], encoding_format: "float" });
		const [one, same, other] = data.map((each) => each.embedding);
		assert.equal(one.length, 64);
		const distance = (a, b) => Math.hypot(...a.map((value, i) => value - b[i])) / Math.hypot(...a);
		assert.ok(distance(one, same) < 1e-3 && distance(one, other) > 1e-2, `${distance(one, same)}, ${distance(one, other)}`);
	});
	test("a prompt that is longer than the context", async () => {
		for (const asked of [() => openai.completions.create(ask({ prompt: "a ".repeat(2 * context) })),
			() => openai.completions.create(ask({ prompt: "a ".repeat(900000) })), // more than fits the head of a message
			() => openai.completions.create(ask({ prompt: "a ".repeat(2 * context), stream: true })),
			() => openai.embeddings.create({ model: "small", input: "a ".repeat(2 * context) })])
			await assert.rejects(asked(), (error) => {
				assert.deepEqual([error.status, error.code], [400, "context_length_exceeded"], error.message);
				assert.match(error.message, new RegExp(`${context}`));
				return true;
			});
	});
	test("200 at once, half of them as they come: each has the answer that it has alone", async () => {
		const prompts = ["abc", "bcd ef", "cd", "d efg hij"], alone = [];
		for (const prompt of prompts) alone.push((await openai.completions.create(ask({ prompt, temperature: 1, seed: 7 }))).choices[0].text);
		const answers = await Promise.all(Array.from({ length: 200 }, async (_, i) => {
			const params = ask({ prompt: prompts[i % 4], temperature: 1, seed: 7 });
			return i % 2 ? (await streamed(params)).text : (await openai.completions.create(params)).choices[0].text;
		}));
		// In a batch sums are rounded in another order, so a draw may fall otherwise where it is close.
		const same = answers.filter((text, i) => text === alone[i % 4]).length;
		assert.ok(same >= 180, `${same} of 200 are as alone`);
		const { entries } = await admin.call("audit.list", { action: "infer.completions", limit: 300 });
		assert.ok(entries.filter((one) => one.outcome === "ok" && one.detail.generated_tokens === 12).length >= 200, "each is on record");
	});
});
