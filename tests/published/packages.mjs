// Packages of PyPI and npm that tests run, kept beside the published weights (build/published, or what EXOGPU_PUBLISHED names).
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const kept = process.env.EXOGPU_PUBLISHED || fileURLToPath(new URL("../../build/published", import.meta.url));

// {folder} for PYTHONPATH, or {why} there is none. `more`: what it needs besides.
export function fetchPython(name, version, more = []) {
	const folder = join(kept, `${name}-${version}`);
	if (existsSync(join(folder, name))) return { folder };
	const { status, stderr } = spawnSync("python3", ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
		"--retries", "1", "--timeout", "20", "--target", folder, `${name}==${version}`, ...more], { encoding: "utf8", timeout: 300e3 });
	return status ? { why: `skipped: no ${name} ${version} for Python: ${(stderr ?? "").trim().split("\n").at(-1)}` } : { folder };
}

// {folder, url, program(name)} of a package of npm at this version, with what it needs, or {why} there is none. No script of it is run.
export function fetchNode(name, version) {
	const root = join(kept, `${name.replace(/^@/, "").replace("/", "-")}-${version}`), folder = join(root, "node_modules", name);
	const made = { folder, url: pathToFileURL(`${folder}/`), program: (word) => join(root, "node_modules/.bin", word) };
	if (existsSync(join(root, "whole"))) return made;
	mkdirSync(root, { recursive: true });
	const { status, stderr } = spawnSync("npm", ["install", "--prefix", root, "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries", "1", `${name}@${version}`],
		{ encoding: "utf8", timeout: 300e3 });
	if (status !== 0) return { why: `skipped: no ${name} ${version}: ${(stderr ?? "").trim().split("\n").at(-1)}` };
	writeFileSync(join(root, "whole"), "");
	return made;
}
