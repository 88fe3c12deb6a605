// A desktop for `exogpu open`: a home, and an xdg-open that notes what it was given.
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { eventually, temporary } from "./server.mjs";

export function desktop() {
	const home = temporary(), bin = join(home, "bin"), told = join(home, "told");
	mkdirSync(bin);
	writeFileSync(join(bin, "xdg-open"), `#!/bin/sh\nprintf '%s\\n' "$@" >${told}.part && mv ${told}.part ${told}\n`);
	chmodSync(join(bin, "xdg-open"), 0o755);
	return {
		home,
		env: { HOME: home, PATH: `${bin}:${process.env.PATH}`, DISPLAY: ":99", WAYLAND_DISPLAY: "" },
		opened: () => eventually(() => existsSync(told) && readFileSync(told, "utf8").trim(), "xdg-open was started"),
		folders: () => readdirSync(home).filter((name) => name.startsWith("exogpu-open-")),
	};
}
