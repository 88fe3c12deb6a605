// libexogpu_client, installed as other programs find it, against a real server: the program of docs/clients.md as it stands
// there, and tests/bindings/c/check.c. A server that this test plays itself shows what needs one that misbehaves.
import assert from "node:assert/strict";
import { execFile, spawn, spawnSync } from "node:child_process";
import { createHash, X509Certificate } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { WebSocketServer } from "ws";
import { startMachine } from "../api/machine.mjs";
import { binary, patience, startServer, temporary, within } from "../api/server.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const cc = process.env.CC ?? "cc";
const skip = ["cc", "cmake", "pkg-config"].filter((name) => spawnSync(name, ["--version"]).status !== 0).join(", ");

const folder = temporary();
let machine, env, folders;

const run = (program, words, more = {}) => promisify(execFile)(program, words, {
	timeout: 4 * patience, cwd: folder, env: { ...process.env, ...env, ...more } })
	.then(({ stdout }) => stdout, (error) => assert.fail(`${words.join(" ")}: ${error.stdout}${error.stderr}${error.message}`));

// A program from a source, as its own makefile would make it.
async function compile(source, name) {
	const flags = (await run("pkg-config", ["--cflags", "--libs", "exogpu_client"], { PKG_CONFIG_PATH: join(folders, "pkgconfig") })).trim().split(/\s+/);
	await run(cc, ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o", name, source, ...flags, "-lpthread"]);
	return join(folder, name);
}

describe("the client in C", { skip: skip ? `skipped: there is no ${skip}` : false }, () => {
	let check;

	before(async () => {
		await run("cmake", ["--install", dirname(binary), "--prefix", join(folder, "installed"), "--component", "library"]);
		folders = join(folder, "installed", readdirSync(join(folder, "installed"), { recursive: true }).find((name) => name.endsWith("pkgconfig/exogpu_client.pc")), "../..");
		machine = await startMachine();
		const { token } = await machine.admin.call("token.create", { name: "c", scopes: ["observe", "allocate", "compute"], memory_limit_bytes: 64 << 20 });
		env = { EXOGPU_URL: machine.server.url.origin, EXOGPU_TOKEN: token, LD_LIBRARY_PATH: folders };
		check = await compile(here("c/check.c"), "check");
	});
	after(() => machine?.server.finish());

	test("memory, kernels, errors and threads", async () => {
		assert.equal(await run(check, ["all", machine.cpu.device_id]), "right\n");
	});

	for (const backend of ["cpu", "vulkan"])
		test(`the program of docs/clients.md on the device of ${backend}`, async (context) => {
			if (!machine[backend]) return context.skip(`no ${backend} device that passed`);
			const page = readFileSync(here("../../docs/clients.md"), "utf8");
			const [, program] = /\n```c\n([^]*?)```\n/.exec(page);
			writeFileSync(join(folder, "product.c"), program);
			assert.equal(await run(await compile("product.c", "product"), [machine[backend].device_id]), "right\n");
		});

	test("a revoked token ends the connection, and calls say so", async () => {
		const made = await machine.admin.call("token.create", { name: "gone", scopes: ["allocate"] });
		const child = spawn(check, ["pause"], { env: { ...process.env, ...env, EXOGPU_TOKEN: made.token } });
		let said = "";
		child.stdout.on("data", (text) => { said += text; });
		const ended = new Promise((resolve) => child.on("close", resolve));
		await within(new Promise((resolve) => child.stdout.once("data", resolve)), () => "connected", patience);
		await machine.admin.call("token.revoke", { token_id: made.token_id });
		child.stdin.write("\n");
		await within(ended, () => "ended", patience);
		assert.equal(said, "connected\nunauthenticated\nright\n");
	});

	test("TLS by the authority's file, by its SHA-256, and by neither", async () => {
		const secure = await startServer({ listen: "0.0.0.0:0" });
		try {
			const pem = join(secure.data, "tls/authority.pem"), { raw } = new X509Certificate(readFileSync(pem));
			const sha256 = createHash("sha256").update(raw).digest("hex");
			const more = { EXOGPU_URL: `https://127.0.0.1:${secure.port}`, EXOGPU_TOKEN: secure.token };
			for (const trust of [{ CHECK_CA: pem }, { EXOGPU_CA: pem }, { CHECK_SHA256: sha256 }, { CHECK_SHA256: sha256.toUpperCase().replace(/..(?=.)/g, "$&:") }]) {
				const { stdout } = spawnSync(check, ["pause"], { input: "\n", encoding: "utf8", timeout: patience, env: { ...process.env, ...env, ...more, ...trust } });
				assert.equal(stdout, "connected\nok\nright\n", JSON.stringify(trust));
			}
			for (const trust of [{}, { CHECK_SHA256: "0".repeat(64) }])
				assert.equal(await run(check, ["refused"], { ...more, ...trust }), "right\n");
		} finally {
			await secure.finish();
		}
	});

	describe("a server that this test plays", () => {
		let server;
		const where = () => ({ ...process.env, ...env, EXOGPU_URL: `http://127.0.0.1:${server.address().port}`, EXOGPU_TOKEN: "exo_any" });
		const login = (socket, text) => {
			const { id, method } = JSON.parse(text);
			if (method === "auth.login") socket.send(JSON.stringify({ jsonrpc: "2.0", id, result: {} }));
		};
		before(async () => {
			server = new WebSocketServer({ port: 0, host: "127.0.0.1", handleProtocols: () => "exogpu.v1" });
			await new Promise((resolve) => server.once("listening", resolve));
		});
		after(() => server.close());

		test("pings are answered between calls", async () => {
			const answered = new Promise((resolve) => server.once("connection", (socket) => {
				socket.on("message", (text) => { login(socket, text); socket.ping(); });
				socket.once("pong", resolve);
			}));
			const child = spawn(check, ["pause"], { env: where() });
			await within(answered, () => "a pong, while the program waits for its input", patience);
			child.kill();
		});

		test("a call that is not answered in time ends the use of the client", async () => {
			server.once("connection", (socket) => socket.on("message", (text) => login(socket, text)));
			const { stdout } = await promisify(execFile)(check, ["late"], { env: where(), timeout: patience });
			assert.equal(stdout, "right\n");
		});

		test("what is no message ends the connection with an error", async () => {
			server.once("connection", (socket) => socket.on("message", (text) => {
				login(socket, text);
				if (!String(text).includes("auth.login")) socket.send(Buffer.from([255, 255, 255, 255, 1]));
			}));
			const child = spawn(check, ["pause"], { env: where() });
			let said = "";
			child.stdout.on("data", (text) => { said += text; });
			child.stdin.end("\n");
			await within(new Promise((resolve) => child.on("close", resolve)), () => "ended", patience);
			assert.equal(said, "connected\nunavailable\nright\n");
		});
	});
});
