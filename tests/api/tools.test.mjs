// Tools and thoughts in /v1/chat/completions through the `openai` package, on models of random weights, one for each syntax
// of calls: whatever such a model says, a call that is demanded is made, and its arguments are valid, as ajv sees them.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, patience, startServer, temporary } from "./server.mjs";

const Ajv = createRequire(import.meta.url)("ajv/dist/2020").default;

// Small templates that hold what tells each syntax.
const turns = (call, more = "") => `{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.content %}{{ m.content }}{% endif %}` +
	`{% for c in m.tool_calls or [] %}${call}{% endfor %}{{ '\n' }}{% endfor %}${more}{{ '<assistant>' }}`;
const object = (name) => `{"name": "{{ c.function.name }}", "${name}": {{ c.function.arguments | tojson }}}`;
const templates = {
	hermes: { template: turns(`<tool_call>\n${object("arguments")}\n</tool_call>`), marks: [] },
	"hermes-tokens": { template: turns(`<tool_call>\n${object("arguments")}\n</tool_call>`), marks: ["<tool_call>", "</tool_call>"] },
	llama3: { template: turns(`<|start_header_id|>${object("parameters")}`), marks: ["<|python_tag|>"] },
	mistral: { template: turns(`[TOOL_CALLS][${object("arguments")}]`), marks: ["[TOOL_CALLS]"] },
	"mistral-args": { template: turns("[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"), marks: ["[TOOL_CALLS]", "[ARGS]"] },
	deepseek: { template: turns("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ c.function.name + '\\n```json\\n' + c.function.arguments + '\\n```' }}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
		marks: ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"] },
	harmony: { template: turns("<|channel|>commentary to=functions.{{ c.function.name }}<|message|>{{ c.function.arguments | tojson }}<|call|>"),
		marks: ["<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>"] },
	thinker: { template: turns(`<tool_call>\n${object("arguments")}\n</tool_call>`, "{% if enable_thinking is not defined or enable_thinking %}{{ '<think>' }}{% else %}<think>\n\n</think>{% endif %}"), marks: ["<think>", "</think>"] },
	toolless: { template: "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}{{ '<' + m.role + '>' + m.content + '\n' }}{% endfor %}{{ '<assistant>' }}", marks: [] },
};

const parameters = { type: "object", properties: { city: { type: "string", maxLength: 6 }, days: { type: "integer", minimum: 1, maximum: 9 },
	unit: { $ref: "#/$defs/unit" } }, required: ["city", "days"], additionalProperties: false, $defs: { unit: { enum: ["C", "F"] } } };
const other = { type: "object", properties: { yes: { type: "boolean" } }, required: ["yes"], additionalProperties: false };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather of some days.", parameters } },
	{ type: "function", function: { name: "set-alarm", parameters: other } }];
const schemas = { get_weather: parameters, "set-alarm": other };
const ajv = new Ajv({ strict: false });
const validate = Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, ajv.compile(schema)]));

function assertCall({ id, type, function: { name, arguments: text } }) {
	assert.match(id, /^[0-9a-z]{9}$/i);
	assert.equal(type, "function");
	assert.ok(validate[name], name);
	assert.ok(validate[name](JSON.parse(text)), `${name} ${text}: ${ajv.errorsText(validate[name].errors)}`);
}

describe("tools", () => {
	let server, openai, admin;
	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		for (const [name, { template, marks }] of Object.entries(templates)) {
			const path = join(temporary(), `${name}.gguf`);
			writeFileSync(path, modelFile({ megabytes: 0.2, context: 2048, template, marks }));
			const { model_id } = await admin.call("model.add", { source: path, name });
			await eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready"), "the model is read");
			await admin.call("instance.create", { model_id, context_tokens: 2048, sequences: 4, pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }] });
		}
		await eventually(async () => (await admin.call("instance.list")).instances.every((one) => one.state === "running"), "the instances are ready", 12 * patience);
		const { token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 });
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	const ask = (model, more = {}) => openai.chat.completions.create({ model, messages: [{ role: "user", content: "abc" }], tools,
		max_tokens: 500, temperature: 1, top_k: 0, top_p: 1, min_p: 0, ...more });

	for (const model of Object.keys(templates))
		test(`${model}: a demanded call is made, whole and as it comes`, async () => {
			let ended = 0;
			await Promise.all(Array.from({ length: 6 }, async (_, seed) => {
				const more = { tool_choice: "required", seed, parallel_tool_calls: seed % 2 === 0 };
				if (model === "thinker") more.chat_template_kwargs = { enable_thinking: false };
				const [{ choices: [{ message, finish_reason }], usage }, stream] = await Promise.all([ask(model, more), ask(model, { ...more, stream: true })]);
				if (finish_reason !== "length") {
					ended++;
					assert.equal(finish_reason, "tool_calls", JSON.stringify(message));
					assert.equal(message.content, null);
					assert.ok(message.tool_calls.length >= 1 && (more.parallel_tool_calls || message.tool_calls.length === 1));
					message.tool_calls.forEach(assertCall);
					assert.equal(usage.completion_tokens_details.reasoning_tokens, 0);
				}
				const calls = [];
				let reason, content = "";
				for await (const { choices: [choice] } of stream) {
					content += choice?.delta.content ?? "";
					reason = choice?.finish_reason ?? reason;
					for (const piece of choice?.delta.tool_calls ?? []) {
						const call = calls[piece.index] ??= { id: piece.id, type: piece.type, function: { name: piece.function.name, arguments: "" } };
						call.function.arguments += piece.function.arguments ?? "";
					}
				}
				assert.equal(reason, finish_reason);
				assert.deepEqual(calls.map((one) => one.function), (message.tool_calls ?? []).map((one) => one.function));
				assert.equal(content, message.content ?? "");
			}));
			assert.ok(ended >= 3, `${ended} of 6 ended`);
			const { choices: [{ message }] } = await ask(model, { tool_choice: { type: "function", function: { name: "set-alarm" } }, parallel_tool_calls: false,
				...model === "thinker" ? { reasoning_effort: "none" } : {} });
			assert.deepEqual(message.tool_calls.map((one) => one.function.name), ["set-alarm"]);
			message.tool_calls.forEach(assertCall);
		});
});
