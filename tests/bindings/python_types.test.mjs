// The types of bindings/python by mypy and pyright, and the archives by twine: published tools, fetched once; each that
// cannot be had is a skip that says so. Programs with faults are checked beside, so that a checker which sees nothing fails.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { patience, temporary } from "../api/server.mjs";
import { fetchPython, kept } from "../published/packages.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const sources = here("../../bindings/python/src");
const run = (program, words, env = {}) =>
	spawnSync(program, words, { encoding: "utf8", timeout: 40 * patience, maxBuffer: 1 << 24, env: { ...process.env, ...env } });
const able = run("python3", ["-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"]).status === 0;
const skip = !able && "skipped: no Python 3.11 with pip";
const fetched = Object.fromEntries(Object.entries({ numpy: "2.3.5", mypy: "2.4.1", twine: "7.0.0" })
	.map(([name, version]) => [name, skip ? { why: skip } : fetchPython(name, version)]));

function fetchPyright(version = "1.1.414") {
	const place = join(kept, `pyright-${version}`), program = join(place, "node_modules/pyright/index.js");
	if (existsSync(program)) return { program };
	const { status, stderr } = run("npm", ["install", "--prefix", place, "--no-save", "--no-audit", "--no-fund", "--fetch-retries", "0", `pyright@${version}`]);
	return status ? { why: `skipped: no pyright ${version}: ${(stderr ?? "").trim().split("\n")[0]}` } : { program };
}

const head = "import exogpu\nfrom exogpu import api\ncluster = exogpu.connect()\n";
const right = `${head}info: api.ServerInfo = cluster.api.server.info()
allocation: str = cluster.api.memory.allocate("dev", 16, label="mine")["allocation_id"]
with cluster.device().array([1.0, 2.0]) as x, cluster.events("telemetry") as stream:
    total: float = x.sum() + (x @ x).size
    for event in stream:
        if event["topic"] == "telemetry":
            print(event["data"]["devices"][0]["power_watts"])
`;
const wrong = `${head}cluster.api.memory.allocate(5, 16)
cluster.api.memory.free()
cluster.api.server.info()["vresion"]
cluster.api.compute.load("dev", "java")
cluster.events("weather")
`;
const faulty = [4, 5, 6, 7, 8];

describe("the Python package", { skip }, () => {
	let folder, programs, modules;
	before(() => {
		folder = temporary();
		programs = ["right.py", "wrong.py"].map((name) => join(folder, name));
		[right, wrong].forEach((text, at) => writeFileSync(programs[at], text));
		modules = Object.values(fetched).map((one) => one.folder).filter(Boolean).join(":");
		const { status, stderr } = run("python3", ["-B", here("../../bindings/python/backend.py"), folder]);
		assert.equal(status, 0, stderr);
	});

	test("mypy finds nothing in it, and the faults of a program", { skip: fetched.mypy.why ?? fetched.numpy.why ?? false }, () => {
		const { stdout, stderr } = run("python3", ["-B", "-m", "mypy", "--strict", "--cache-dir", join(folder, "cache"), "--no-error-summary",
			join(sources, "exogpu"), ...programs], { PYTHONPATH: modules, MYPYPATH: sources });
		const found = stdout.trim().split("\n").filter((line) => !/: note:/.test(line)).map((line) => /([^/]+\.py):(\d+): error/.exec(line)?.slice(1, 3).join(":"));
		assert.deepEqual([...new Set(found)], faulty.map((line) => `wrong.py:${line}`), stdout + stderr);
	});

	const pyright = skip ? { why: skip } : fetchPyright();
	test("pyright finds nothing in it, and the faults of a program", { skip: pyright.why ?? fetched.numpy.why ?? false }, () => {
		writeFileSync(join(folder, "pyrightconfig.json"), JSON.stringify({
			include: [join(sources, "exogpu"), ...programs], extraPaths: [sources, ...modules.split(":")], typeCheckingMode: "standard" }));
		const { stdout, stderr } = run(process.execPath, [pyright.program, "-p", folder, "--outputjson"]);
		const found = JSON.parse(stdout || "{}").generalDiagnostics?.filter((one) => one.severity === "error")
			.map(({ file, range }) => `${file.split("/").at(-1)}:${range.start.line + 1}`);
		assert.deepEqual([...new Set(found)].sort(), faulty.map((line) => `wrong.py:${line}`), stdout + stderr);
	});

	test("twine takes its archives", { skip: fetched.twine.why ?? false }, () => {
		const archives = readdirSync(folder).filter((name) => /\.(whl|gz)$/.test(name)).map((name) => join(folder, name));
		assert.equal(archives.length, 2);
		const { status, stdout, stderr } = run("python3", ["-B", "-m", "twine", "check", "--strict", ...archives], { PYTHONPATH: fetched.twine.folder ?? "" });
		assert.equal(status, 0, stdout + stderr);
	});
});
