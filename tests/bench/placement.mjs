// Compares predictions of placements with measurements:
//
//   EXOGPU_BINARY=build/exogpu EXOGPU_GENERATE_MODEL=GENERATE_MODEL node tests/bench/placement.mjs
//   [SHAPE:FORMAT[:LAYERS] ...]
//
// Models with random weights run on the server's own machine. A line for each: the tokens a second that were predicted
// before anything was timed (from the bandwidth of the memory), those that are predicted once the instance was loaded
// (its layers timed), what a stream of 64 tokens got, the median of five, and both ratios.
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { Client } from "../api/client.mjs";
import { eventually, startServer, temporary } from "../api/server.mjs";

const models = process.argv.slice(2).length ? process.argv.slice(2)
	: ["tinyllama-1.1b:F16", "tinyllama-1.1b:Q8_0", "tinyllama-1.1b:Q4_0", "tinyllama-1.1b:Q4_K", "mistral-7b:Q8_0:4"];
const TOKENS = 64, PATIENCE = 120000;

// Tokens a second, from the first on.
async function stream(server, name) {
	const response = await fetch(new URL("/v1/completions", server.url).href, { method: "POST",
		headers: { authorization: `Bearer ${server.token}` },
		body: JSON.stringify({ model: name, prompt: "a", max_tokens: TOKENS + 1, temperature: 0, stream: true, ignore_eos: true }) });
	if (!response.ok) throw new Error(await response.text());
	const at = [];
	for await (const bytes of response.body)
		for (const _ of Buffer.from(bytes).toString("utf8").matchAll(/"choices":\[\{/g)) at.push(performance.now());
	return (at.length - 1) * 1000 / (at.at(-1) - at[0]);
}

const server = await startServer({ localNode: true }), admin = await Client.login(server), work = temporary();
const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
	.find((one) => one.backend === "cpu" && one.verification.state === "passed" && one.memory_bandwidth_bytes_per_s > 0), "the processor is verified", PATIENCE);
console.log(`${cpu.name}, ${(cpu.memory_bandwidth_bytes_per_s / 1e9).toFixed(1)} GB/s`);
for (const model of models) {
	const [shape, format, layers] = model.split(":"), name = model.replaceAll(":", "-"), path = join(work, `${name}.gguf`);
	execFileSync(process.env.EXOGPU_GENERATE_MODEL, [path, shape, format, ...(layers ? ["--layers", layers] : [])]);
	const { model_id } = await admin.call("model.add", { source: path });
	await eventually(async () => (await admin.call("model.list")).models.find((one) => {
		if (one.model_id === model_id && one.state === "failed") throw new Error(one.state_reason);
		return one.model_id === model_id && one.state === "ready";
	}), "the model is ready", PATIENCE);
	const wanted = { model_id, context_tokens: 1024, sequences: 1 };
	const preview = async () => (await admin.call("placement.preview", wanted)).predicted?.tokens_per_s;
	const before = await preview(), { instance_id } = await admin.call("instance.create", wanted);
	await eventually(async () => (await admin.call("instance.list")).instances.find((one) => one.instance_id === instance_id)?.state === "running", "loaded", PATIENCE);
	const { model_name } = (await admin.call("instance.list")).instances[0];
	const rates = [];
	for (let i = 0; i < 5; i++) rates.push(await stream(server, model_name));
	await admin.call("instance.delete", { instance_id });
	const after = await preview(), rate = rates.sort((a, b) => a - b)[2];
	console.log(`${name}: estimated ${before?.toFixed(1)}, by timed layers ${after?.toFixed(1)}, measured ${rate.toFixed(1)} tokens/s`
		+ ` (${Math.min(...rates).toFixed(1)} to ${Math.max(...rates).toFixed(1)}); ratios ${(before / rate).toFixed(2)}, ${(after / rate).toFixed(2)}`);
	await admin.call("model.remove", { model_id });
	rmSync(path);
}
admin.close?.();
await server.finish();
