// Packages of PyPI that tests run, kept beside the published weights (build/published, or what EXOGPU_PUBLISHED names).
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const kept = process.env.EXOGPU_PUBLISHED || fileURLToPath(new URL("../../build/published", import.meta.url));

// {folder} for PYTHONPATH, or {why} there is none. `more`: what it needs besides.
export function fetchPython(name, version, more = []) {
	const folder = join(kept, `${name}-${version}`);
	if (existsSync(join(folder, name))) return { folder };
	const { status, stderr } = spawnSync("python3", ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
		"--retries", "1", "--timeout", "20", "--target", folder, `${name}==${version}`, ...more], { encoding: "utf8", timeout: 300e3 });
	return status ? { why: `skipped: no ${name} ${version} for Python: ${(stderr ?? "").trim().split("\n").at(-1)}` } : { folder };
}
