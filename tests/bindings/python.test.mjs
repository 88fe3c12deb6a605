// bindings/python: the wheel, installed into an empty virtual environment, against a real server with this machine's
// devices, and the Python block of README.md as it stands. Without Python 3.11 or pip all of it is skipped, without NumPy,
// which comes from PyPI once, what needs it; each says so.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startMachine } from "../api/machine.mjs";
import { patience, slow, startServer, temporary } from "../api/server.mjs";
import { counter } from "../api/spirv.mjs";
import { fetchPython } from "../published/packages.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const python = (words, options) => spawnSync("python3", words, { encoding: "utf8", timeout: 6 * patience, ...options });
const able = python(["-c", "import sys, pip, venv; sys.exit(sys.version_info < (3, 11))"]);
const skip = able.status !== 0 && `skipped: no Python 3.11 with pip and venv: ${able.stderr?.trim().split("\n").at(-1)}`;
const numpy = skip ? { why: skip } : fetchPython("numpy", "2.3.5");
if (numpy.why) console.log(`# ${numpy.why}`);

const folder = temporary(), environment = join(folder, "environment");
let machine, secure, env;

// A program in the virtual environment, to its end.
const run = (words, more = {}) => promisify(execFile)(join(environment, "bin/python"), ["-B", ...words], {
	timeout: 20 * patience, maxBuffer: 1 << 24, env: { ...process.env, ...env, ...more } });
function succeeds(words) {
	const { status, stdout, stderr, error } = python(words);
	assert.equal(status, 0, `${words.join(" ")}: ${stdout}${stderr}${error ?? ""}`);
	return stdout;
}

describe("the Python client", { skip }, () => {
	before(async () => {
		succeeds(["-B", here("../../bindings/python/backend.py"), folder]);
		succeeds(["-m", "venv", "--without-pip", environment]);
		const wheel = readdirSync(folder).find((name) => name.endsWith(".whl"));
		succeeds(["-m", "pip", "--python", join(environment, "bin/python"), "install", "--quiet", "--disable-pip-version-check",
			"--no-index", join(folder, wheel)]);
		machine = await startMachine();
		secure = await startServer({ listen: "0.0.0.0:0" });
		const spirv = (name, endless) => {
			writeFileSync(join(folder, name), counter(endless));
			return join(folder, name);
		};
		env = { EXOGPU_URL: `http://127.0.0.1:${machine.server.port}`, EXOGPU_TOKEN: machine.server.token, EXOGPU_SLOW: String(slow),
			EXOGPU_TEST_SPIRV: spirv("once.spv", false), EXOGPU_TEST_ENDLESS: spirv("endless.spv", true),
			EXOGPU_TEST_TLS_URL: `https://127.0.0.1:${secure.port}`, EXOGPU_TEST_TLS_TOKEN: secure.token,
			EXOGPU_TEST_TLS_CA: join(secure.data, "tls", "authority.pem"), ...(numpy.folder ? { PYTHONPATH: numpy.folder } : {}) };
	});
	after(async () => {
		await machine?.server.finish();
		await secure?.finish();
	});

	test("its suites pass", async () => {
		const { stderr } = await run(["-m", "unittest", "discover", "-v", "-s", here("python"), "-t", here("python")])
			.catch((error) => assert.fail(`${error.stdout}${error.stderr}`));
		console.log(stderr.replace(/^/gm, "# "));
		const [, count] = /^Ran (\d+) tests/m.exec(stderr);
		assert.ok(Number(count) > 20, stderr);
	});

	// A program of a page as it stands there, with a token of the scopes that the pages name.
	const program = async (page, change = (text) => text) => {
		const { token } = await machine.admin.call("token.create", { name: "me", scopes: ["observe", "allocate", "compute"] });
		const [, text] = /```python\n(.*?)```/s.exec(readFileSync(here(`../../${page}`), "utf8")), file = join(folder, "program.py");
		writeFileSync(file, change(text));
		return (await run([file], { EXOGPU_TOKEN: token })).stdout;
	};

	test("the program in the README says that the product is right", { skip: numpy.why ?? false }, async () => {
		assert.equal(await program("README.md"), "right\n");
		const wrong = (text) => text.replace("a @ b", "b @ a");
		assert.equal(await program("README.md", wrong), "wrong\n", "it would say if the product were wrong");
	});

	test("the program in docs/clients.md prints what it should", { skip: numpy.why ?? false }, async () => {
		assert.match(await program("docs/clients.md"), /^\[\[1\. +1\.5 +2\.[^]*6\.5\]\] 45\.0 <exogpu array 3x3 float32, 36 B on .*>\n$/);
	});

	test("the source archive makes the same wheel, and equal sources make equal bytes", () => {
		const archive = readdirSync(folder).find((name) => name.endsWith(".tar.gz")), above = temporary(), again = join(above, "in");
		mkdirSync(join(above, "tools/clients"), { recursive: true }); // where a checkout has its generator
		writeFileSync(join(above, "tools/clients/generate.py"), "raise SystemExit('a stranger was run')");
		mkdirSync(again);
		succeeds(["-c", "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])", join(folder, archive), again]);
		succeeds(["-B", join(again, archive.replace(".tar.gz", ""), "backend.py"), again]);
		for (const name of readdirSync(again).filter((one) => /\.(whl|gz)$/.test(one)))
			assert.ok(readFileSync(join(again, name)).equals(readFileSync(join(folder, name))), name);
	});
});
