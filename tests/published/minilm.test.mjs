// Published weights (all-MiniLM-L6-v2) beside what transformers makes of them in 32-bit floats: the same embeddings, by the
// `openai` package, on this machine's processor. minilm.json is by make_minilm.py; the weights come by fetch.py, and without
// a network all of this is skipped, with the reason.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Client, assertContractKept } from "../api/client.mjs";
import { eventually, patience, startServer } from "../api/server.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const { embeddings } = JSON.parse(readFileSync(here("minilm.json"), "utf8"));
const most = 1e-3, cosine = 0.99999; // values are of about 0.05

const fetched = spawnSync("python3", ["-B", here("fetch.py"), "--minilm"], { encoding: "utf8" });
const skip = fetched.status === 77 ? fetched.stderr.trim() : false;
if (!skip) assert.equal(fetched.status, 0, fetched.stderr || String(fetched.error));

describe("all-MiniLM-L6-v2", { skip }, () => {
	let server, admin, openai;
	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		const { model_id } = await admin.call("model.add", { source: fetched.stdout.trim(), name: "minilm" });
		await eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.state === "ready"), "the file is read", 2 * patience);
		const { instance_id } = await admin.call("instance.create", { model_id, pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }] });
		await eventually(async () => (await admin.call("instance.list")).instances.find((each) => each.instance_id === instance_id)?.state === "running", "it is loaded", 6 * patience);
		const { token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 });
		openai = new OpenAI({ apiKey: token, baseURL: `${server.url}v1`, maxRetries: 0 });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("embeddings are those of the reference", async () => {
		const { data, usage } = await openai.embeddings.create({ model: "minilm", input: embeddings.map(({ text }) => text) });
		assert.equal(usage.prompt_tokens, embeddings.reduce((sum, { tokens }) => sum + tokens, 0));
		embeddings.forEach(({ text, embedding }, i) => {
			const got = data[i].embedding, far = Math.max(...embedding.map((value, k) => Math.abs(value - got[k])));
			const near = embedding.reduce((sum, value, k) => sum + value * got[k], 0);
			assert.ok(far < most && near > cosine, `${text}: off by ${far}, cosine ${near}`);
		});
	});
	test("a text is nearest to what means the same", async () => {
		const { data } = await openai.embeddings.create({ model: "minilm", input: ["I forgot my password", ...embeddings.slice(0, 6).map(({ text }) => text)] });
		const [question, ...others] = data.map(({ embedding }) => embedding);
		const near = others.map((one) => one.reduce((sum, value, k) => sum + value * question[k], 0));
		assert.ok([0, 1].includes(near.indexOf(Math.max(...near))), near.join(" "));
	});
});
