// Model files whose weights are NaN or infinite: what comes of them is an error, and never text. With a real node, which
// computes on this machine's processor and, where there is one, through Vulkan.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile, packings } from "./gguf.mjs";
import { eventually, patience, startServer, temporary, within } from "./server.mjs";

const folder = temporary(), long = 12 * patience;
const noNumbers = /computes NaN or infinite numbers: its file is damaged/;
const f32 = (bits) => { const bytes = Buffer.alloc(4); bytes.writeUInt32LE(bits); return bytes; };
const f16 = (bits) => { const bytes = Buffer.alloc(2); bytes.writeUInt16LE(bits); return bytes; };
const tilde = 3 + 0x7e; // the token of this byte

describe("damaged weights", () => {
	let server, admin, devices;
	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		devices = await eventually(async () => {
			const all = (await admin.call("cluster.snapshot")).devices;
			return all.some((one) => one.backend === "cpu") && all.every((one) => one.verification.state !== "pending") &&
				all.filter((one) => one.state !== "offline" && one.verification.state === "passed");
		}, "the devices are verified", long);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	const add = async (name, file) => {
		writeFileSync(join(folder, `${name}.gguf`), modelFile({ megabytes: 0.4, ...file }));
		await admin.call("model.add", { source: join(folder, `${name}.gguf`) });
		return eventually(async () => (await admin.call("model.list")).models.find((one) => one.name === name && one.state === "ready"), "the model is read", long);
	};
	const load = async ({ model_id }, { device_id }) => {
		const { instance_id } = await admin.call("instance.create", { model_id, pins: [{ device_id, first_layer: 0, layer_count: 0 }] });
		return eventually(async () => (await admin.call("instance.list")).instances.find((one) => one.instance_id === instance_id && one.state !== "starting"),
			"it is loaded, or not", long);
	};
	const ask = async (path, body) => {
		const answer = await within(server.http(`/v1/${path}`, { method: "POST", ms: long, headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify(body) }), "an answer", long);
		return { status: answer.status, text: answer.text };
	};

	for (const [name, file] of [
		["norm", { damage: { tensor: "output_norm.weight", at: 8, bytes: f32(0x7fc00000) } }],
		["layer", { damage: { tensor: "blk.1.ffn_down.weight", at: 400, bytes: f32(0x7f800000) } }],
		["output", { damage: { tensor: "output.weight", at: 4 * 64 * 200, bytes: f32(0xff800000) } }],
		["scale", { packing: packings.Q8_0, damage: { tensor: "blk.0.ffn_up.weight", at: 0, bytes: f16(0x7e00) } }],
	])
		test(`${name}: it is not loaded, and says why`, async () => {
			const model = await add(name, file);
			for (const device of devices) {
				const { state, state_reason, instance_id } = await load(model, device);
				assert.equal(state, "failed", `${device.backend}: ${state_reason}`);
				assert.match(state_reason, noNumbers, device.backend);
				await admin.call("instance.delete", { instance_id });
			}
		});

	test("of one token: who asks with it is told, in every way of asking, and others have their answers", async () => {
		const model = await add("token", { damage: { tensor: "token_embd.weight", at: 4 * 64 * tilde, bytes: f32(0x7fc00000) } });
		for (const device of devices) {
			const { state, state_reason, instance_id } = await load(model, device);
			assert.equal(state, "running", state_reason);
			const body = (prompt, more = {}) => ({ model: "token", prompt, max_tokens: 4, temperature: 0, ...more });
			const well = await ask("completions", body("abc def"));
			assert.equal(well.status, 200, well.text);
			for (const more of [{}, { temperature: 1, seed: 1 }, { logprobs: 3 }, { temperature: 1, top_p: 0.5, seed: 1 }, { logit_bias: { 270: -100 } },
				{ repetition_penalty: 1.3 }]) {
				const { status, text } = await ask("completions", body("abc ~ def", more));
				assert.equal(status, 500, `${device.backend} ${JSON.stringify(more)}: ${text}`);
				const { error } = JSON.parse(text);
				assert.equal(error.type, "server_error");
				assert.match(error.message, noNumbers);
				assert.equal((await ask("completions", body("abc def", more))).status, 200, JSON.stringify(more));
			}
			const streamed = await ask("completions", body("abc ~ def", { stream: true }));
			assert.match(streamed.text, noNumbers);
			assert.doesNotMatch(streamed.text, /\[DONE\]|"finish_reason":"(stop|length)"/);
			const embedded = await ask("embeddings", { model: "token", input: ["abc", "abc ~"] });
			assert.equal(embedded.status, 500, embedded.text);
			assert.match(JSON.parse(embedded.text).error.message, noNumbers);
			assert.equal((await ask("embeddings", { model: "token", input: ["abc", "def"] })).status, 200);
			const banned = await ask("completions", body("abc def", { logit_bias: Object.fromEntries(Array.from({ length: 250 }, (_, i) => [i, -100])) }));
			assert.equal(banned.status, 200, banned.text);
			assert.equal((await ask("completions", body("abc def"))).text.replace(/"(id|created)":[^,]*,/g, ""), well.text.replace(/"(id|created)":[^,]*,/g, ""));
			const said = server.output.stderr.split("\n").filter((line) => line.includes(instance_id) && noNumbers.test(line));
			assert.equal(said.length, 1, `the log names it once: ${said.join("; ")}`);
			await eventually(async () => (await admin.call("audit.list", { action: "infer.completions", outcome: "internal", limit: 5 })).entries.length,
				"it is on record");
			await admin.call("instance.delete", { instance_id });
		}
	});
});
