// bindings/java: the jar, and over it libexogpu with this machine's devices, a real server, and the Java programs of the pages
// as they stand there. Without a JDK from 17 on all of it is skipped, and what the build made without one, and says so.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startMachine } from "../api/machine.mjs";
import { binary, patience, slow, startServer, temporary } from "../api/server.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const tool = (name) => (process.env.JAVA_HOME ? join(process.env.JAVA_HOME, "bin", name) : name);
const version = spawnSync(tool("javac"), ["-version"], { encoding: "utf8" });
const skip = !(/^javac (\d+)/.exec(version.stdout ?? "")?.[1] >= 17) && "skipped: no JDK from 17 on: install default-jdk-headless";
const library = join(dirname(binary), "libexogpu_jni.so");
const noLibrary = !existsSync(library) && `skipped: ${library} was not built: there was no JDK when the build was configured`;

const folder = temporary(), classes = join(folder, "classes");
let machine, secure, path, env;

// A program to its end. Everything that compiles may wait for a busy machine for minutes.
const run = (program, words, more = {}) => promisify(execFile)(program, words, {
	timeout: 12 * patience, maxBuffer: 1 << 24, cwd: folder, env: { ...process.env, ...env, ...more } })
	.catch((error) => assert.fail(`${words.join(" ")}: ${error.stdout}${error.stderr}${error.message}`));
const java = (words, more) => run(tool("java"), ["-XX:TieredStopAtLevel=1", "-cp", path, ...words], more);

// What the programs of tests/bindings/java print, of whom each says how many tests it had.
async function suite(words, least) {
	const { stdout, stderr } = await java(words);
	console.log(stdout.replace(/^/gm, "# "));
	const [, passed] = /^(\d+) passed, 0 failed$/m.exec(stdout) ?? assert.fail(stdout + stderr);
	assert.ok(Number(passed) >= least, stdout);
	return stdout + stderr;
}

describe("the Java package", { skip }, () => {
	before(async () => {
		await run("python3", ["-B", here("../../bindings/java/build.py"), "--strict", folder]);
		const jar = join(folder, readdirSync(folder).find((name) => name.endsWith(".jar")));
		path = `${jar}:${classes}`;
		mkdirSync(classes);
		const sources = readdirSync(here("java")).filter((name) => name.endsWith(".java")).map((name) => here(`java/${name}`));
		await run(tool("javac"), ["--release", "17", "-Xlint:all,-try", "-Werror", "-cp", jar, "-d", classes, ...sources]);
	});

	test("JSON is read and written as JavaScript does, and records are made of it", async () => {
		const values = [{ a: [1, -2.5, 1e21, 1e-7, 0, true, false, null], "ü\u0000\"\\/": { b: {} } }, [], "\u{1f600}\b\f\n\r\t\u2028", [[[]]], { "": "" }];
		const cases = values.map((value) => JSON.stringify([value, JSON.stringify(value, null, 1)])).join("\n");
		assert.equal((await java(["dev.exogpu.client.JsonTest", cases])).stdout, "right\n");
	});

	test("its libraries are aligned for pages of 16 KiB, and need no OpenMP, nothing of C++ and nothing of the network", { skip: noLibrary }, async () => {
		for (const file of [library, join(dirname(binary), "libexogpu.so")]) {
			const { stdout } = await run("readelf", ["-W", "-l", "-d", file]);
			const aligned = [...stdout.matchAll(/^ +LOAD .* (0x[0-9a-f]+)$/gm)].map(([, align]) => Number(align));
			assert.ok(aligned.length > 1 && aligned.every((align) => align >= 16384 && align % 16384 === 0), `${file}: ${aligned}`);
			assert.doesNotMatch(stdout, /\(NEEDED\).*lib(gomp|omp|iomp5|stdc\+\+|c\+\+|crypto|ssl|websockets)/, file);
		}
	});

	test("devices of this machine, by libexogpu", { skip: noLibrary }, async () => {
		const said = await suite(["-Xcheck:jni", `-Dexogpu.jni=${library}`, "DeviceTest"], 8);
		assert.doesNotMatch(said, /WARNING in native method|FATAL ERROR in native method/, "JNI is used as its rules demand");
	});

	describe("the client", () => {
		before(async () => {
			machine = await startMachine();
			secure = await startServer({ listen: "0.0.0.0:0" });
			env = { EXOGPU_URL: `http://127.0.0.1:${machine.server.port}`, EXOGPU_TOKEN: machine.server.token, EXOGPU_SLOW: String(slow),
				EXOGPU_TEST_TLS_URL: `https://127.0.0.1:${secure.port}`, EXOGPU_TEST_TLS_TOKEN: secure.token,
				EXOGPU_TEST_TLS_CA: join(secure.data, "tls", "authority.pem") };
		});
		after(async () => {
			await machine?.server.finish();
			await secure?.finish();
		});

		test("calls, memory, errors, events and what becomes of lost connections", () => suite(["ClientTest"], 12));

		// A program of a page as it stands there, with a token of the scopes that the pages name.
		const program = async (page, change = (text) => text) => {
			const { token } = await machine.admin.call("token.create", { name: "me", scopes: ["observe", "allocate", "compute"] });
			const [, text] = /```java\n(.*?)```/s.exec(readFileSync(here(`../../${page}`), "utf8")), file = join(folder, "Product.java");
			writeFileSync(file, change(text));
			return (await java([file], { EXOGPU_TOKEN: token })).stdout;
		};

		test("the program in docs/clients.md says that the product is right", async () => {
			assert.equal(await program("docs/clients.md"), "right\n");
			const wrong = (text) => text.replace("b[k * n + j]", "b[j * n + k]");
			assert.equal(await program("docs/clients.md", wrong), "wrong\n", "it would say if the product were wrong");
		});
	});
});
