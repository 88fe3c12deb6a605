// A server of this repository beside llama.cpp, for peer.mjs and same.mjs. EXOGPU_BINARY is what runs (build/exogpu).
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";

const binary = process.env.EXOGPU_BINARY ?? fileURLToPath(new URL("../../build/exogpu", import.meta.url));
const data = mkdtempSync(join(tmpdir(), "exogpu-beside-"));

// node-llama-cpp, of the folder where it was installed.
export const importPeer = (folder) => import(pathToFileURL(createRequire(join(resolve(folder), "x")).resolve("node-llama-cpp")));

// What the program says to these arguments.
export const exogpu = (...args) => JSON.parse(execFileSync(binary, [...args, "--data", data, "--json"], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }));

// {url, token}, once it has a device that `matches`. It ends with this process.
export async function startServer(matches) {
	const child = spawn(binary, ["serve", "--data", data, "--listen", "127.0.0.1:0", "--log-level", "warning"], { stdio: ["ignore", "pipe", "inherit"] });
	for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));
	process.on("exit", () => {
		child.kill();
		rmSync(data, { recursive: true, force: true });
	});
	let said = "";
	for await (const piece of child.stdout) if (/^token: /m.test((said += piece))) break;
	while (!exogpu("devices").devices.some(matches)) await sleep(200);
	return { url: /^dashboard: (\S+)/m.exec(said)[1], token: readFileSync(join(data, "admin.token"), "utf8").trim() };
}
