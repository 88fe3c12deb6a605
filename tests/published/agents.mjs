// What agents are run against: a server whose model says what the test wrote. On a Stage a worker is played, too; on a LiveStage all is
// real but the weights: the words are put into the mouth of a small model on this machine's processor (tests/api/says.mjs).
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client, assertContractKept } from "../api/client.mjs";
import { Collector } from "../api/collector.mjs";
import { ModelWorker } from "../api/generating.mjs";
import { learnPieces, modelFile } from "../api/gguf.mjs";
import { Says } from "../api/says.mjs";
import { eventually, patience, startServer, temporary } from "../api/server.mjs";
import { WorkerNode } from "../api/workers.mjs";

// As templates write JSON, so that a conversation that comes back has the tokens that the model said.
function spaced(value) {
	if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
	if (value && typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${spaced(one)}`).join(", ")}}`;
	return JSON.stringify(value);
}
export const call = (name, args) => `<tool_call>\n${spaced({ name, arguments: args })}\n</tool_call>`;
const resultsOf = (params) => (params.prompt.messages ?? []).filter(({ role }) => role === "tool").map((one) => one.text);

async function place(stage, file, context) {
	const { admin } = stage, source = join(temporary(), "words.gguf");
	writeFileSync(source, file);
	await admin.call("model.add", { source });
	const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
	await admin.call("instance.create", { model_id: model.model_id, context_tokens: context });
	await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready", 6 * patience);
	({ token: stage.token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 }));
}

export class Stage {
	// says(params, results): what the model answers, where `results` are the texts of tools so far: pieces, or {pieces, end}, of which
	// an end null never comes.
	static async start(says) {
		const stage = new Stage(), server = await startServer(), admin = await Client.login(server);
		const node = await WorkerNode.start(server, { Worker: ModelWorker });
		Object.assign(stage, { server, admin, node, says, asked: [] });
		await place(stage, modelFile({ context: 65536 }), 65536);
		const worker = node.worker(), syntax = { calls: "hermes", thoughts: "think", opened: false };
		worker.answers["generate.start"] = (params) => {
			if (params.counts) return { result: { prompt_tokens: 7 } };
			const results = resultsOf(params), answer = stage.says(params, results);
			const { pieces, end } = Array.isArray(answer) ? { pieces: answer, end: "stop" } : answer;
			stage.asked.push({ params, results });
			worker.requests.set(params.request, { params, tokens: 0 });
			setImmediate(() => {
				pieces.forEach((piece, at) => worker.tell("generate.delta", { request: params.request, tokens: [1], text: piece, ...at ? {} : { syntax } }));
				if (end) worker.finish(params.request, end, end === "failed" ? { error: "a fault" } : {});
			});
			return { result: { prompt_tokens: 7 } };
		};
		worker.answers["generate.embed"] = ({ dimensions = 4 }) => ({ result: { embedding: [0.5, -0.25, 0.125, 0].slice(0, dimensions), prompt_tokens: 3 } });
		return stage;
	}

	async finish() {
		this.node?.socket.close();
		await this.server?.finish();
		await this.collector?.stop();
		this.mouth?.stop();
		assertContractKept();
	}
}

const template = "{% if tools %}{{ '<|im_start|>tools\n' + (tools | tojson) + '<|im_end|>\n' }}{% endif %}" +
	"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{% if m.content %}{{ m.content }}{% endif %}" +
	"{% for c in m.tool_calls or [] %}{{ '\n<tool_call>\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' + (c.function.arguments | tojson) + '}\n</tool_call>' }}{% endfor %}" +
	"{{ '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}";

export class LiveStage extends Stage {
	static async start(says, { context = 131072 } = {}) {
		const read = (name) => readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");
		const pieces = learnPieces(1500, read("docs/clients.md") + read("docs/inference.md") + read("schema/api.json").slice(0, 100000)); // nothing else happens meanwhile
		const stage = new LiveStage(), collector = await new Collector().start(), mouth = await Says.start((params) => stage.answer(params));
		const server = await startServer({ localNode: true, env: mouth.env, args: ["--otlp", collector.url] }), admin = await Client.login(server);
		Object.assign(stage, { server, admin, mouth, collector, says, asked: [] });
		await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		await place(stage, modelFile({ megabytes: 0.2, context, template, marks: ["<|im_start|>", "<|im_end|>"], pieces }), context);
		return stage;
	}

	// The traces of all requests since begin(), in their order.
	async traces() {
		const roots = () => this.collector.spans.filter((one) => one.attributes["gen_ai.operation.name"]);
		await eventually(() => roots().length >= this.asked.length, () => `${this.asked.length} traces come; there are ${roots().length}`);
		return roots().sort((a, b) => Number(a.begin - b.begin));
	}

	/** Another conversation begins. */
	async begin() {
		await this.traces();
		this.collector.got.length = this.asked.length = 0;
	}

	/** Of each request with tools: the tokens of its prompt, those of them that were cached, and those of its answer. */
	async read() {
		const roots = await this.traces();
		return roots.filter((_, at) => this.asked[at].params.tools?.length).map(({ trace, attributes }) => ({
			input: attributes["gen_ai.usage.input_tokens"], output: attributes["gen_ai.usage.output_tokens"],
			cached: this.collector.spans.find((one) => one.trace === trace && one.name === "prompt").attributes["exogpu.cached_tokens"] }));
	}

	// What is not to end, {pieces, end: null}, goes on for as long as the context lasts.
	async answer(params) {
		if (params.counts) return {};
		const results = resultsOf(params), said = this.says(params, results);
		this.asked.push({ params, results });
		const { pieces, end } = Array.isArray(said) ? { pieces: said, end: "stop" } : said;
		return { text: pieces.join(""), ends: Boolean(end) };
	}
}
