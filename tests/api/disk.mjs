// A small file system of its own, which a test may fill. Needs root.
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporary } from "./server.mjs";

// null where none may be mounted.
export function smallDisk(kib) {
	const data = join(temporary(), "disk"), filler = join(data, "filler");
	mkdirSync(data);
	try {
		execFileSync("mount", ["-t", "tmpfs", "-o", `size=${kib}k,mode=700`, "exogpu-test", data], { stdio: "pipe" });
	} catch {
		return null;
	}
	process.prependListener("exit", () => { try { execFileSync("umount", ["-l", data]); } catch { /* it went with the process */ } });
	return {
		data,
		fill() { // to the last byte
			for (const bytes of [65536, 4096])
				try { for (;;) writeFileSync(filler, Buffer.alloc(bytes), { flag: "a" }); } catch { /* full */ }
		},
		empty: () => rmSync(filler, { force: true }),
	};
}
