// Published weights (SmolLM2 135M Instruct) beside what transformers made of the same file in 32-bit floats: the same
// greedy tokens with the same log-probabilities, by /v1 and by `exogpu run`, on this machine's processor. smollm2.json
// is by make_smollm2.py; the file comes by fetch.py, and without a network all of this is skipped, with the reason.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "../api/client.mjs";
import { eventually, patience, run, startServer } from "../api/server.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const { sha256, conversations } = JSON.parse(readFileSync(here("smollm2.json"), "utf8"));
// Weights are the same bytes on both sides; activations are 32-bit floats there and keep 11 bits at least here.
const nats = 0.03;

const fetched = spawnSync("python3", ["-B", here("fetch.py")], { encoding: "utf8" });
const skip = fetched.status === 77 ? fetched.stderr.trim() : false;
if (!skip) assert.equal(fetched.status, 0, fetched.stderr || String(fetched.error));

describe("SmolLM2 135M Instruct", { skip }, () => {
	let server, admin, openai, model;

	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		const added = await admin.call("model.add", { source: fetched.stdout.trim(), name: "smollm2" });
		model = await eventually(async () => (await admin.call("model.list")).models
			.find((one) => one.model_id === added.model_id && (one.state === "failed" || one.sha256)), "the file is read", 2 * patience);
		assert.deepEqual([model.state, model.sha256], ["ready", sha256], model.state_reason);
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id,
			pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }] });
		await eventually(async () => {
			const one = (await admin.call("instance.list")).instances.find((each) => each.instance_id === instance_id);
			assert.notEqual(one?.state, "failed", one?.state_reason);
			return one?.state === "running";
		}, "it is loaded", 6 * patience);
		const { token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 });
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	const ask = (messages, more) => openai.chat.completions.create({ model: "smollm2", messages, temperature: 0, max_tokens: 24, ...more });

	for (const { messages, prompt_tokens, tokens } of conversations)
		test(`${messages.at(-1).content}: the tokens of the reference, and their log-probabilities`, async () => {
			const { choices: [{ message, logprobs }], usage } = await ask(messages, { logprobs: true, top_logprobs: 1 });
			assert.equal(usage.prompt_tokens, prompt_tokens, "the conversation is written as its template has it");
			const said = logprobs.content.filter(({ bytes }) => bytes.length); // without the end of the text
			assert.deepEqual(said.map(({ token }) => token), tokens.map(({ text }) => text));
			assert.equal(message.content, tokens.map(({ text }) => text).join(""));
			const far = tokens.map(({ logprob }, i) => Math.abs(logprob - said[i].logprob));
			assert.ok(Math.max(...far) < nats, `${Math.max(...far)} nats at token ${far.indexOf(Math.max(...far))}`);
		});
	test("asked together they say what they say alone", async () => {
		const answers = await Promise.all(conversations.map(({ messages }) => ask(messages)));
		assert.deepEqual(answers.map(({ choices: [{ message }] }) => message.content),
			conversations.map(({ tokens }) => tokens.map(({ text }) => text).join("")));
	});
	test("exogpu run says the same", async () => {
		const { messages: [{ content }], tokens } = conversations[0];
		const said = await run(["run", "smollm2", content, "--temperature", "0", "--max-tokens", "24", "--data", server.data]);
		assert.deepEqual([said.code, said.stdout], [0, `${tokens.map(({ text }) => text).join("")}\n`], said.stderr);
	});
	test("it chats with nothing said, within its bounds", async () => {
		const { choices: [{ message, finish_reason }], sampling } = await openai.chat.completions.create({
			model: "smollm2", messages: [{ role: "user", content: "Say hello." }], max_tokens: 32, seed: 1 });
		assert.match(message.content, /hello|hi|help|welcome/i, message.content);
		assert.ok(["stop", "length"].includes(finish_reason));
		assert.ok(Object.values(sampling).every(({ from }) => from === "model" || from === "default"), JSON.stringify(sampling));
	});
});
