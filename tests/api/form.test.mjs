// response_format through the `openai` package, on a server that really runs a model of random weights: whatever these say,
// each answer keeps to what was asked for, as other validators than ours see it (ajv, JSON.parse, JavaScript's RegExp).
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, patience, run, startServer, temporary } from "./server.mjs";

const Ajv = createRequire(import.meta.url)("ajv/dist/2020").default;
const template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}" +
	"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// A number below `most`, the same each time.
let state = 7;
const below = (most) => {
	state = (Math.imul(state, 1103515245) + 12345) >>> 0;
	return (state >>> 8) % most;
};

// A schema of any of the kinds that are kept, whose answers are short: what has no end would be cut off.
function randomSchema(depth = 0) {
	const kinds = [
		() => ({ type: "integer", minimum: below(200) - 100, maximum: 100 + below(1000) }),
		() => ({ type: "number", exclusiveMinimum: -below(3), maximum: 1 + below(20) }),
		() => ({ type: "string", minLength: below(3), maxLength: 3 + below(6) }),
		() => ({ type: "string", pattern: ["^[a-c]{2,4}$", "^(x|yz)\\d\\d$", "^[^\\w]{1,3}$", "^\\u00e9?\"\\\\?$"][below(4)] }),
		() => ({ enum: ["red", 1, null, { a: [true] }, "re\"d"].slice(below(4)) }),
		() => ({ const: ["x", 2.5, false][below(3)] }),
		() => ({ type: ["boolean", "null"] }),
		() => ({ type: "array", items: randomSchema(depth + 1), minItems: below(2), maxItems: 1 + below(2) }),
		() => ({ type: "array", prefixItems: [randomSchema(depth + 1), { type: "boolean" }], items: false, minItems: below(3) }),
		() => ({ anyOf: [randomSchema(depth + 1), { type: "null" }] }),
		() => ({ oneOf: [{ type: "boolean" }, { enum: [1, 2] }] }),
		() => ({ allOf: [{ type: "integer", minimum: 3 }, { maximum: 3 + below(9) }] }),
		() => {
			const names = ["a", "b c", "é", "ab"].slice(0, 1 + below(4));
			return { type: "object", properties: Object.fromEntries(names.map((name) => [name, randomSchema(depth + 1)])),
				required: names.filter(() => below(2)), additionalProperties: false };
		},
	];
	return kinds[depth > 2 ? below(7) : depth ? below(kinds.length) : kinds.length - 1]();
}

describe("response_format", () => {
	let server, openai, admin, instance;
	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		const path = join(temporary(), "small.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.2, context: 1024, template }));
		await admin.call("model.add", { source: path });
		const { model_id } = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is read");
		const { instance_id } = await admin.call("instance.create", { model_id, pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }] });
		instance = () => admin.call("instance.list").then(({ instances }) => instances.find((one) => one.instance_id === instance_id));
		await eventually(async () => (await instance())?.state === "running", "the instance is ready", 6 * patience);
		const { token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 });
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	const ask = (response_format, more = {}) => openai.chat.completions.create({ model: "small", messages: [{ role: "user", content: "abc" }],
		max_tokens: 600, temperature: 1, top_k: 0, top_p: 1, min_p: 0, response_format, ...more });
	const schemaOf = (schema) => ({ type: "json_schema", json_schema: { name: "answer", strict: true, schema } });

	test("answers under random schemas are valid, as ajv sees them, whole and as they come, many at once", async () => {
		const ajv = new Ajv({ strict: false });
		let ended = 0;
		for (let round = 0; round < 12; round++)
			await Promise.all(Array.from({ length: 8 }, async (_, i) => {
				const schema = randomSchema();
				const { choices: [{ message, finish_reason }] } = await ask(schemaOf(schema), { seed: 100 * round + i, temperature: 0.5 + below(3) / 2 });
				if (finish_reason === "length") return;
				ended++;
				assert.equal(finish_reason, "stop");
				const validate = ajv.compile(schema);
				assert.ok(validate(JSON.parse(message.content)), `${JSON.stringify(schema)}: ${message.content}: ${ajv.errorsText(validate.errors)}`);
			}));
		assert.ok(ended > 80, `${ended} of 96 ended`);
	});
	test("any object of JSON; a regular expression; a grammar; each beside others that are bound to nothing", async () => {
		const free = ask({ type: "text" }, { max_tokens: 200, ignore_eos: true });
		for (let seed = 0; seed < 6; seed++) {
			const { choices: [{ message, finish_reason }] } = await ask({ type: "json_object" }, { seed, logit_bias: { 125: -2 } });
			if (finish_reason === "stop") assert.equal(typeof JSON.parse(message.content), "object");
			else assert.match(message.content, /^\{/);
			const regex = "(\\d{3}-){2}[a-f]+\\.";
			assert.match((await ask({ type: "regex", regex }, { seed, max_tokens: 200 })).choices[0].message.content, new RegExp(`^(${regex}|[\\da-f-]*)$`));
			const grammar = 'root ::= "<" name ">" inside "</>"\nname ::= [a-z]{1,3}\ninside ::= ("<" name "/>"){2} | "-"';
			assert.match((await ask({ type: "grammar", grammar }, { seed })).choices[0].message.content, /^<[a-z]{1,3}>((<[a-z]{1,3}\/>){2}|-)<\/>$/);
		}
		assert.equal((await free).usage.completion_tokens, 200);
	});
	test("a stream under a schema is the same text; what must be said is said with the likeliest, too", async () => {
		const schema = schemaOf({ type: "object", properties: { name: { type: "string", maxLength: 5 }, n: { type: "integer", minimum: 10, maximum: 99 } },
			required: ["name", "n"], additionalProperties: false });
		const whole = await ask(schema, { temperature: 0 });
		assert.match(whole.choices[0].message.content, /^\{\s*"name":\s*".*",\s*"n":\s*\d\d\s*\}$/s);
		assert.equal(whole.choices[0].finish_reason, "stop");
		const runner = openai.chat.completions.stream({ model: "small", messages: [{ role: "user", content: "abc" }], max_tokens: 600, temperature: 0, response_format: schema });
		assert.equal(await runner.finalContent(), whole.choices[0].message.content);
		const { choices: [{ text }] } = await openai.completions.create({ model: "small", prompt: "abc", max_tokens: 20, temperature: 0, response_format: { type: "regex", regex: "yes|no" } });
		assert.match(text, /^(yes|no)$/);
	});
	test("an answer goes on in its form where its instance is moved to", async () => {
		const schema = schemaOf({ type: "array", items: { type: "integer", minimum: 100, maximum: 999 }, minItems: 120, maxItems: 120 });
		const alone = (await ask(schema, { temperature: 0, max_tokens: 900 })).choices[0].message.content;
		const stream = await ask(schema, { temperature: 0, max_tokens: 900, stream: true });
		let text = "", killed = false;
		for await (const chunk of stream) {
			text += chunk.choices[0]?.delta?.content ?? "";
			if (!killed && text.length > 40) {
				killed = true;
				await admin.call("instance.move", { instance_id: (await instance()).instance_id, format: "Q8_0" }).catch((error) => assert.fail(error.message));
			}
		}
		assert.ok(killed);
		assert.equal(JSON.parse(text).length, 120);
		assert.ok(JSON.parse(text).every((one) => Number.isInteger(one) && one >= 100 && one <= 999));
		assert.equal(JSON.parse(alone).length, 120);
	});
	test("exogpu run --form: JSON, a schema, a grammar; a file that is none", async () => {
		const folder = temporary(), schema = { type: "object", properties: { n: { type: "integer", minimum: 5, maximum: 7 } }, required: ["n"] };
		writeFileSync(join(folder, "n.json"), JSON.stringify(schema));
		writeFileSync(join(folder, "yes.gbnf"), 'root ::= "yes" | "no"');
		const said = (form) => run(["run", "small", "abc", "--form", form, "--max-tokens", "300", "--seed", "3", "--data", server.data]);
		const valid = await said(join(folder, "n.json"));
		assert.ok([5, 6, 7].includes(JSON.parse(valid.stdout).n), valid.stdout + valid.stderr);
		assert.match((await said(join(folder, "yes.gbnf"))).stdout, /^(yes|no)\n$/);
		assert.match((await said("json")).stdout, /^\{/);
		for (const [form, why] of [[join(folder, "none.json"), /cannot be opened/], [join(folder, "yes.gbnf/"), /cannot be opened/], [folder, /cannot be read/]]) {
			const { code, stderr } = await said(form);
			assert.deepEqual([code, why.test(stderr)], [1, true], stderr);
		}
	});
	test("what cannot be kept is refused with the place: 400, response_format", async () => {
		const bad = [
			[schemaOf({ type: "object", properties: { a: { not: {} } } }), /not at #\/properties\/a/],
			[schemaOf({ type: "array", uniqueItems: true }), /uniqueItems/],
			[schemaOf({ $ref: "#/$defs/a" }), /\$ref/],
			[schemaOf({ pattern: "(?<!a)b" }), /lookaround/],
			[{ type: "grammar", grammar: "root ::= root" }, /root|no text matches/],
			[{ type: "grammar", grammar: "" }, /no rule root/],
			[{ type: "regex", regex: "(" }, /no end of \(/],
			[{ type: "regex", regex: "([a-z]{9000}\\.){90000}[a-z]{90000}[a-z]{90000}[a-z]{90000}" }, /too large/],
		];
		for (const [format, why] of bad)
			await assert.rejects(ask(format), (error) => {
				assert.deepEqual([error.status, error.param, error.type], [400, "response_format", "invalid_request_error"], error.message);
				assert.match(error.message, why);
				return true;
			});
		assert.equal((await instance()).state, "running");
	});
});
