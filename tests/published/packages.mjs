// Packages of PyPI and npm that tests run, kept beside the published weights (build/published, or what EXOGPU_PUBLISHED names).
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const kept = process.env.EXOGPU_PUBLISHED || fileURLToPath(new URL("../../build/published", import.meta.url));

// Whether what takes minutes to install is installed, too: ./dev test clients.
export const patient = process.env.EXOGPU_TEST_INSTALLS === "1";

// Tests run side by side: what one of them fetches has its own name until it is whole, which `there` then shows.
function fetchOnce(folder, there, command) {
	const [program, ...words] = command(`${folder}.${process.pid}`);
	mkdirSync(`${folder}.${process.pid}`, { recursive: true });
	const { status, stderr, error } = spawnSync(program, words, { encoding: "utf8", timeout: patient ? 3600e3 : 300e3 });
	if (!status && !error && !existsSync(there)) {
		rmSync(folder, { recursive: true, force: true }); // of a run that was broken off
		renameSync(`${folder}.${process.pid}`, folder);
	}
	rmSync(`${folder}.${process.pid}`, { recursive: true, force: true });
	return status === 0 ? "" : error?.message ?? (stderr ?? "").trim().split("\n").at(-1);
}

// {folder} for PYTHONPATH, or {why} there is none. `more`: other packages that are to be there; `extra`: as "[api]".
export function fetchPython(name, version, more = [], extra = "") {
	const folder = join(kept, `${name}-${version}`), there = join(folder, name.replaceAll("-", "_"));
	const why = existsSync(there) ? "" : fetchOnce(folder, there, (target) => ["python3", "-m", "pip", "install", "--quiet",
		"--disable-pip-version-check", "--only-binary", ":all:", "--retries", "1", "--timeout", "20", "--target", target, `${name}${extra}==${version}`, ...more]);
	return why ? { why: `skipped: no ${name} ${version} for Python: ${why}` } : { folder };
}

// {program} of a virtual environment of its own, which takes minutes to make, or {why} there is none. `pythons`: those that the package takes.
// `sources`: what is on the index as sources alone, and is built here.
export function fetchVenv(name, version, program, { pythons = ["python3"], more = [], extra = "", sources = [] } = {}) {
	const folder = join(kept, `${name}-${version}`), there = join(folder, "bin", program);
	if (existsSync(there)) return { program: there };
	const python = pythons.find((one) => spawnSync(one, ["-c", "import venv, ensurepip"]).status === 0);
	if (!python) return { why: `skipped: ${name} needs ${pythons.join(" or ")}` };
	const made = spawnSync(python, ["-m", "venv", folder], { encoding: "utf8" });
	const { status, stderr } = made.status ? made : spawnSync(join(folder, "bin/pip"), ["install", "--quiet", "--only-binary", ":all:",
		...sources.length ? ["--no-binary", sources.join(",")] : [], "--retries", "1", `${name}${extra}==${version}`, ...more], { encoding: "utf8", timeout: 3600e3 });
	return status === 0 ? { program: there } : { why: `skipped: no ${name} ${version}: ${stderr.trim().split("\n").at(-1)}` };
}

// {folder, url, program(name)} of a package of npm at this version, with what it needs and other packages, or {why} there is none. No script of it
// is run.
export function fetchNode(name, version, more = []) {
	const root = join(kept, `${name.replace(/^@/, "").replace("/", "-")}-${version}`), folder = join(root, "node_modules", name);
	const there = join(root, "node_modules/.package-lock.json"); // the last that npm writes
	const why = existsSync(there) ? "" : fetchOnce(root, there, (prefix) => ["npm", "install", "--prefix", prefix, "--no-audit", "--no-fund",
		"--ignore-scripts", "--fetch-retries", "1", `${name}@${version}`, ...more]);
	return why ? { why: `skipped: no ${name} ${version}: ${why}` }
		: { folder, url: pathToFileURL(`${folder}/`), program: (word) => join(root, "node_modules/.bin", word) };
}
