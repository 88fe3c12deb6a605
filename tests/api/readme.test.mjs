// The program in README.md, as a newcomer runs it: cut out, with the token that the README makes, against a real server
// with this machine's devices. Only the address is another.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client } from "./client.mjs";
import { eventually, patience, run, startServer, temporary } from "./server.mjs";

const readme = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
const [, matmul] = /```js\n(import \{ once \}.*?)```/s.exec(readme);
const address = "ws://127.0.0.1:52415/ws";
let server, folder;

// What the program says, and how it ends. `change` is made to its text.
function runProgram(token, change = (text) => text) {
	assert.ok(matmul.includes(address), `the program connects to ${address}`);
	const file = join(folder, "matmul.mjs");
	writeFileSync(file, change(matmul.replace(address, `ws://127.0.0.1:${server.port}/ws`)));
	return new Promise((resolve) => execFile(process.execPath, [file], {
		timeout: 6 * patience, env: { ...process.env, EXOGPU_TOKEN: token } },
	(error, stdout, stderr) => resolve({ code: error ? error.code : 0, stdout, stderr })));
}

async function makeToken() {
	const [, options] = /EXOGPU_TOKEN=\$\(build\/exogpu (token create [^)]*)\)/.exec(readme);
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
		await eventually(async () => (await admin.call("cluster.snapshot")).devices.some((one) => one.state === "idle"),
			"a device is idle", 6 * patience);
		await admin.close();
	});
	after(() => server?.finish());

	test("the program says that the product is right", async () => {
		const { code, stdout, stderr } = await runProgram(await makeToken());
		assert.match(stdout, /: the product is right\n$/, stderr);
		assert.equal(code, 0, stderr);
	});

	test("it would say if the product were wrong", async () => {
		const { stdout, stderr } = await runProgram(await makeToken(), (text) => {
			const other = text.replace("{ ...args[0], offset: 0", "{ ...args[1], offset: 0");
			assert.notEqual(other, text);
			return other;
		});
		assert.match(stdout, /: the product is wrong\n$/, stderr);
	});

	test("it fits the page, and says why where it may not", async () => {
		for (const line of matmul.split("\n")) assert.ok(line.length <= 120, `${line.length}: ${line}`);
		const { code, stdout, stderr } = await runProgram("exo_none");
		assert.notEqual(code, 0, stdout);
		assert.match(stderr, /401/);
	});
});
