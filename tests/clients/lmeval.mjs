// EleutherAI's evaluation harness from its own package, by the command of docs/clients.md, over a real server with the published weights of
// SmolLM2: how likely each answer is, and what the model says itself, beside transformers' reading of the same file (harness/questions.json, by
// harness/make.py). Nothing is asked of a hub. It takes minutes to install, so ./dev test clients runs this, and nothing else does.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { cpSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client } from "../api/client.mjs";
import { eventually, patience, startServer, temporary } from "../api/server.mjs";
import { fetchVenv } from "../published/packages.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const page = readFileSync(here("../../docs/clients.md"), "utf8");
const version = (name) => new RegExp("`" + name + "` (\\d[\\d.]*\\d)").exec(page)[1];
const { sha256, questions } = JSON.parse(readFileSync(here("harness/questions.json"), "utf8"));
// Weights are the same bytes on both sides; activations are 32-bit floats there and keep 11 bits at least here.
const natsOfToken = 0.03;

const weights = spawnSync("python3", ["-B", here("../published/fetch.py")], { encoding: "utf8" });
if (![0, 77].includes(weights.status)) assert.fail(weights.stderr || String(weights.error));
const { why, program } = weights.status === 77 ? { why: weights.stderr.trim() } : fetchVenv("lm-eval", version("lm-eval"), "lm-eval",
	{ extra: "[api]", more: ["transformers", "gguf"].map((name) => `${name}==${version(name)}`), sources: ["sqlitedict", "word2number"] });

describe("the evaluation harness", { skip: why ?? false }, () => {
	const folder = temporary(), results = join(folder, "results");
	let server, samples;

	before(async () => {
		server = await startServer({ localNode: true });
		const admin = await Client.login(server);
		const cpu = await eventually(async () => (await admin.call("cluster.snapshot")).devices
			.find((one) => one.backend === "cpu" && one.state !== "offline" && one.verification.state === "passed"), "the processor is verified", 6 * patience);
		const { model_id } = await admin.call("model.add", { source: weights.stdout.trim(), name: "smollm2" });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.model_id === model_id && one.sha256), "the file is read", 2 * patience);
		assert.equal(model.sha256, sha256);
		const { instance_id } = await admin.call("instance.create", { model_id, pins: [{ device_id: cpu.device_id, first_layer: 0, layer_count: 0 }] });
		await eventually(async () => {
			const one = (await admin.call("instance.list")).instances.find((each) => each.instance_id === instance_id);
			assert.notEqual(one?.state, "failed", one?.state_reason);
			return one?.state === "running";
		}, "it is loaded", 6 * patience);
		const { token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 });

		const run = promisify(execFile), tokenizer = join(folder, "tokenizer");
		await run(join(dirname(program), "python"), ["-B", here("harness/tokenizer.py"), weights.stdout.trim(), tokenizer]);
		cpSync(here("harness"), join(folder, "tasks"), { recursive: true, filter: (path) => !/\.(py|json)$/.test(path) });
		for (const name of ["choose.yaml", "say.yaml"])
			writeFileSync(join(folder, "tasks", name), readFileSync(here(`harness/${name}`), "utf8").replace("FOLDER", folder));
		writeFileSync(join(folder, "questions.jsonl"), questions.map((one) => `${JSON.stringify(one)}\n`).join(""));
		const [, command] = /```sh\n(.*?lm-eval run.*?)\n```/s.exec(page);
		const there = command.replace("127.0.0.1:52415", `127.0.0.1:${server.port}`).replace("MODEL", "smollm2").replace("TOKENIZER", tokenizer).replace("TASK", "exogpu_choose,exogpu_say");
		assert.ok([server.port, "smollm2", tokenizer, "exogpu_say"].every((word) => there.includes(word)), there);
		await run("sh", ["-c", `${there} --include_path ${join(folder, "tasks")} --log_samples --output_path ${results}`], { timeout: 30 * patience, cwd: folder,
			env: { PATH: `${dirname(program)}:${process.env.PATH}`, HOME: folder, EXOGPU_TOKEN: token, HF_HUB_OFFLINE: "1", HF_DATASETS_OFFLINE: "1", TQDM_DISABLE: "1" } })
			.catch((error) => assert.fail(`${error.stdout}${error.stderr}${error.message}`));
		const files = readdirSync(results, { recursive: true }).filter((name) => name.endsWith(".jsonl"));
		samples = (task) => readFileSync(join(results, files.find((name) => name.includes(task))), "utf8").trim().split("\n").map(JSON.parse).sort((a, b) => a.doc_id - b.doc_id);
	});
	after(() => server?.finish());

	test("each answer is as likely as it is for transformers, and greedy where it is there", () => {
		const found = samples("exogpu_choose");
		assert.deepEqual(found.map(({ doc }) => doc.question), questions.map(({ question }) => question));
		const far = found.flatMap(({ resps }, at) => resps.map(([[logprob, greedy]], choice) => {
			const wanted = questions[at].likelihoods[choice];
			assert.equal(/true/i.test(greedy), wanted.greedy, `${questions[at].question} ${questions[at].choices[choice]}`);
			return Math.abs(Number(logprob) - wanted.logprob) / wanted.tokens;
		}));
		console.log(`# ${far.length} answers, at most ${Math.max(...far).toFixed(4)} nats of a token away`);
		assert.equal(far.length, questions.flatMap(({ choices }) => choices).length);
		assert.ok(Math.max(...far) < natsOfToken, `${far}`);
	});

	test("what it says itself is what transformers has it say, where no two tokens are as likely there", () => {
		const clear = questions.map(({ margin }) => margin > 2 * natsOfToken), those = (all) => all.filter((_, at) => clear[at]).map((text) => text.trim());
		assert.ok(those(questions.map(({ said }) => said)).length >= 4);
		assert.deepEqual(those(samples("exogpu_say").map(({ resps }) => resps[0][0])), those(questions.map(({ said }) => said)));
	});
});
