// The programs in README.md, as a newcomer runs them: cut out, with the token that the README makes, against a real server
// with this machine's devices. Only the address is another.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, launch, patience, run, startServer, temporary, within } from "./server.mjs";

const readme = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
const [, matmul] = /```js\n(import WebSocket .*?)```/s.exec(readme), [, chat] = /```js\n(import OpenAI .*?)```/s.exec(readme);
const address = "ws://127.0.0.1:52415/ws";
let server, folder, device;

// What the program says, and how it ends. `change` is made to its text.
function runProgram(token, { device_id = device.device_id, change = (text) => text } = {}) {
	assert.ok(matmul.includes(address), `the program connects to ${address}`);
	const file = join(folder, "matmul.mjs");
	writeFileSync(file, change(matmul.replace(address, `ws://127.0.0.1:${server.port}/ws`)));
	return node([file, device_id], token);
}

const node = (args, token) => new Promise((resolve) => execFile(process.execPath, args, {
	timeout: 6 * patience, env: { ...process.env, EXOGPU_TOKEN: token } },
(error, stdout, stderr) => resolve({ code: error ? error.code : 0, stdout, stderr })));

// A client command that may load a model meanwhile.
const exogpu = (...words) => within(launch([...words, "--data", server.data]).exited, `exogpu ${words.join(" ")} ends`, 12 * patience);

// As the README says for one of them.
async function makeToken(scope = "compute") {
	const [, options] = new RegExp(`EXOGPU_TOKEN=\\$\\(build/exogpu (token create [^)]*\\b${scope}\\b[^)]*)\\)`).exec(readme);
	const { code, stdout, stderr } = await run([...options.split(" "), "--data", server.data]);
	assert.equal(code, 0, stderr);
	return stdout.trim();
}

describe("the program in the README", () => {
	before(async () => {
		server = await startServer({ localNode: true });
		folder = temporary();
		symlinkSync(fileURLToPath(new URL("../node_modules", import.meta.url)), join(folder, "node_modules"));
		const admin = await Client.login(server);
		device = await eventually(async () => (await admin.call("cluster.snapshot")).devices.find((one) => one.state === "idle"),
			"a device is idle", 6 * patience);
		await admin.close();
	});
	after(() => server?.finish());

	test("the program says that the product is right", async () => {
		const { code, stdout, stderr } = await runProgram(await makeToken());
		assert.equal(stdout, "right\n", stderr);
		assert.equal(code, 0, stderr);
	});

	test("it would say if the product were wrong", async () => {
		const { stdout, stderr } = await runProgram(await makeToken(), { change: (text) => {
			const other = text.replace("{ f32s: b }", "{ f32s: a }");
			assert.notEqual(other, text);
			return other;
		} });
		assert.equal(stdout, "wrong\n", stderr);
	});

	test("it says what stands in the way of a device, or of a token", async () => {
		const { stdout } = await runProgram(await makeToken(), { device_id: "dev_none" });
		assert.match(stdout, /reason: 'not_found'/);
		const { code, stderr } = await runProgram("exo_none");
		assert.notEqual(code, 0);
		assert.match(stderr, /401/);
	});

	test("the client of a model streams its answer", async () => {
		const [, name] = /exogpu run (\S+) /.exec(readme), file = join(folder, "model.gguf"), program = join(folder, "chat.mjs");
		const admin = await Client.login(server);
		writeFileSync(file, modelFile({ template: "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}" }));
		await admin.call("model.add", { source: file, name });
		await eventually(async () => (await admin.call("model.list")).models.some((one) => one.state === "ready"), "the model is there", 6 * patience);
		const loaded = await exogpu("place", name);
		assert.equal(loaded.code, 0, loaded.stderr);
		assert.ok(chat.includes(`model: "${name}"`), `the program asks ${name}`);
		const there = chat.replace("127.0.0.1:52415", `127.0.0.1:${server.port}`);
		assert.notEqual(there, chat);
		writeFileSync(program, there);
		const { code, stdout, stderr } = await node([program], await makeToken("infer"));
		assert.equal(code, 0, stderr);
		assert.ok(stdout.length > 0, "it says something");
		const stopped = await exogpu("stop", name); // by its name, as it is loaded once
		assert.equal(stopped.code, 0, stopped.stderr);
		await eventually(async () => !(await admin.call("instance.list")).instances.length, "it has stopped", 6 * patience);
		await admin.close();
	});

	test("it is the ten lines that the README promises, and fits the page", () => {
		assert.match(readme, /Ten lines and a WebSocket library/);
		const lines = matmul.trimEnd().split("\n");
		assert.equal(lines.length, 10);
		for (const line of lines) assert.ok(line.length <= 113 && (line.match(/;/g) ?? []).length === 1, `${line.length}: ${line}`);
	});
});
