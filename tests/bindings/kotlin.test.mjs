// bindings/java/kotlin: the Kotlin face, compiled by JetBrains' own compiler (npm's kotlin-compiler, at the version that kotlin.py pins), over
// libexogpu with this machine's devices and against a real server; and the program of docs/clients.md as it stands there. Without a JDK from 17
// on, or where the compiler cannot be fetched, all of it is skipped, and says so.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startMachine } from "../api/machine.mjs";
import { binary, patience, slow, temporary } from "../api/server.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const tool = (name) => (process.env.JAVA_HOME ? join(process.env.JAVA_HOME, "bin", name) : name);
const kotlin = here("../../bindings/java/kotlin.py");
const noJdk = !(/^javac (\d+)/.exec(spawnSync(tool("javac"), ["-version"], { encoding: "utf8" }).stdout ?? "")?.[1] >= 17) && "skipped: no JDK from 17 on: install default-jdk-headless";
const libraries = noJdk ? { status: 77, stderr: noJdk } : spawnSync("python3", ["-B", kotlin, "classpath"], { encoding: "utf8" });
const skip = libraries.status === 77 ? libraries.stderr.trim() : false;
if (!skip) assert.equal(libraries.status, 0, libraries.stderr);
const library = join(dirname(binary), "libexogpu_jni.so");
const noLibrary = !existsSync(library) && `skipped: ${library} was not built: there was no JDK when the build was configured`;

describe("the Kotlin face", { skip }, () => {
	const [, version] = /project\(exogpu VERSION (\S+)/.exec(readFileSync(here("../../CMakeLists.txt"), "utf8"));
	const folder = temporary(), jars = [`exogpu-${version}.jar`, `exogpu-kotlin-${version}.jar`].map((name) => join(folder, name));
	const run = (program, words, env = {}) => promisify(execFile)(program, words, { timeout: 12 * patience, maxBuffer: 1 << 24, cwd: folder, env: { ...process.env, EXOGPU_SLOW: String(slow), ...env } })
		.catch((error) => assert.fail(`${words.join(" ")}: ${error.stdout}${error.stderr}${error.message}`));
	const compile = (source, name) => run("python3", ["-B", kotlin, "compile", ...jars, join(folder, name), source]);
	const java = async (name, words, env) => (await run(tool("java"), ["-XX:TieredStopAtLevel=1", ...words.options ?? [], "-cp", [...jars, libraries.stdout.trim(), join(folder, name)].join(":"), ...words.run], env)).stdout;

	before(async () => {
		await run("python3", ["-B", here("../../bindings/java/build.py"), folder]);
		await run("python3", ["-B", kotlin, "build", folder]);
		await compile(here("kotlin/Face.kt"), "face");
	});

	test("devices of this machine, by libexogpu", { skip: noLibrary }, async () => {
		const said = await java("face", { options: ["-Xcheck:jni", `-Dexogpu.jni=${library}`], run: ["FaceKt", "local"] });
		assert.doesNotMatch(said, /WARNING in native method|FATAL ERROR in native method/);
		assert.match(said, /^[1-9] passed$/m);
	});

	describe("the client", () => {
		let machine;
		before(async () => {
			machine = await startMachine();
		});
		after(() => machine?.server.finish());
		const env = () => ({ EXOGPU_URL: `http://127.0.0.1:${machine.server.port}`, EXOGPU_TOKEN: machine.server.token });

		test("calls, errors, events and cancellation", async () => assert.match(await java("face", { run: ["FaceKt"] }, env()), /^6 passed$/m));

		test("the program in docs/clients.md says that the product is right", async () => {
			const [, text] = /```kotlin\n(.*?)```/s.exec(readFileSync(here("../../docs/clients.md"), "utf8")), source = join(folder, "Product.kt");
			writeFileSync(source, text);
			await compile(source, "product");
			assert.match(await java("product", { run: ["ProductKt"] }, env()), /^SnapshotMessage\nright\n$/);
		});
	});
});
