// The programs in docs/clients.md, as somebody runs them who copies them: cut out, with the token and the commands that the
// page makes, against a real server. Only the address and the model's name are others. What the model says is known.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, patience, run, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const page = readFileSync(new URL("../../docs/clients.md", import.meta.url), "utf8");
const programs = [...page.matchAll(/```js\n([^]*?)```/g)].map(([, program]) => program);
const said = { openai: "output_text", "@anthropic-ai/sdk": "content[0].text", ollama: "message.content" };

describe("the programs in docs/clients.md", () => {
	let server, admin, node, folder, token;

	const command = async (pattern) => {
		const [, words] = pattern.exec(page);
		const { code, stdout, stderr } = await run([...words.trim().split(/\s+/), "--data", server.data]);
		assert.equal(code, 0, stderr);
		return stdout.trim();
	};

	before(async () => {
		const [, words] = /^ {4}exogpu serve (--ollama \S+) /m.exec(page);
		server = await startServer({ args: [...words.split(" "), "--ollama-listen", "127.0.0.1:0"] });
		admin = await Client.login(server);
		folder = temporary();
		symlinkSync(fileURLToPath(new URL("../node_modules", import.meta.url)), join(folder, "node_modules"));
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		const source = join(folder, "words.gguf");
		writeFileSync(source, modelFile({ context: 65536 }));
		await admin.call("model.add", { source });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await admin.call("instance.create", { model_id: model.model_id, context_tokens: 65536 });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		token = await command(/EXOGPU_TOKEN=\$\(exogpu (token create [^)]*)\)/);
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("there is one for each package", () => {
		assert.deepEqual(programs.map((program) => /from "([^"]+)"/.exec(program)[1]).sort(), Object.keys(said).sort());
	});
	for (const [at, program] of programs.entries())
		test(`with ${/from "([^"]+)"/.exec(program)[1]}`, async () => {
			const file = join(folder, `program${at}.mjs`), what = said[/from "([^"]+)"/.exec(program)[1]];
			const there = program.replaceAll("127.0.0.1:52415", `127.0.0.1:${server.port}`).replaceAll('"MODEL"', '"words"');
			assert.ok(there.includes(`:${server.port}`) && there.includes('"words"'), "it names the address and a model");
			writeFileSync(file, `${there}\nconsole.log(${what});\n`);
			const { error, stdout, stderr } = await new Promise((resolve) => execFile(process.execPath, [file],
				{ timeout: 6 * patience, env: { ...process.env, EXOGPU_TOKEN: token } }, (error, stdout, stderr) => resolve({ error, stdout, stderr })));
			assert.equal(error, null, stderr);
			assert.equal(stdout, "Why is the sky blue?\n");
		});
	test("the token that --ollama names may be made after the start", async () => {
		const [, open] = /^ollama: (\S+)$/m.exec(server.output.stdout);
		assert.equal((await fetch(`${open}/api/tags`)).status, 401);
		await command(/^ {4}exogpu (token create --name ollama .*)$/m);
		const { models } = await (await fetch(`${open}/api/tags`)).json();
		assert.deepEqual(models.map(({ name }) => name), ["words"]);
	});
});
