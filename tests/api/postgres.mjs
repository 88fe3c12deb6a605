// A PostgreSQL of a test's own: made, started, stopped, frozen. It listens on a socket in its folder and trusts whoever
// reaches it. Where this runs as root it runs as nobody, since PostgreSQL refuses to run as root.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";

import { eventually } from "./server.mjs";

const LEAST = 15, NOBODY = 65534, ROOT = "/usr/lib/postgresql";
const settings = ["fsync=off", "full_page_writes=off", "listen_addresses=", "shared_buffers=16MB", "max_connections=60", "autovacuum=off",
	"unix_socket_permissions=0777", "log_min_messages=fatal"];

// The folder of the newest version's programs, or undefined.
export const programs = existsSync(ROOT) ? readdirSync(ROOT).map(Number).filter((version) => version >= LEAST).sort((a, b) => b - a)
	.map((version) => join(ROOT, String(version), "bin")).find((folder) => existsSync(join(folder, "initdb"))) : undefined;
export const skip = programs ? false : `PostgreSQL ${LEAST} or newer is not installed (Debian: postgresql)`;

export class Postgres {
	static async start() {
		const postgres = new Postgres();
		postgres.who = process.getuid() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
		postgres.folder = mkdtempSync("/tmp/exogpu-postgres-");
		process.on("exit", () => postgres.remove());
		if (postgres.who.uid) chownSync(postgres.folder, NOBODY, NOBODY);
		chmodSync(postgres.folder, 0o755);
		execFileSync(join(programs, "initdb"), ["-D", join(postgres.folder, "data"), "-U", "exogpu", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
			"--no-instructions"], { ...postgres.who, cwd: "/", stdio: "ignore" });
		await postgres.again();
		return postgres;
	}

	async again() {
		const flags = [...settings, `unix_socket_directories=${this.folder}`].flatMap((setting) => ["-c", setting]);
		this.child = spawn(join(programs, "postgres"), ["-D", join(this.folder, "data"), ...flags], { ...this.who, cwd: "/", stdio: "ignore" });
		this.ended = once(this.child, "exit");
		await eventually(() => this.ready(), "PostgreSQL answers");
	}

	ready() {
		try {
			execFileSync(join(programs, "pg_isready"), ["-q", "-h", this.folder]);
			return true;
		} catch {
			return false;
		}
	}

	// SIGINT ends its connections at once; SIGQUIT is a crash.
	async stop(signal = "SIGINT") {
		this.child.kill(signal);
		await this.ended;
	}

	url(name) {
		return `postgres://exogpu@/${name}?host=${this.folder}`;
	}

	sql(name, text) {
		return execFileSync(join(programs, "psql"), ["-XqAt", "-v", "ON_ERROR_STOP=1", "-h", this.folder, "-U", "exogpu", "-c", text, name], { encoding: "utf8" }).trim();
	}

	make(name) {
		execFileSync(join(programs, "createdb"), ["-h", this.folder, "-U", "exogpu", name]);
		return this.url(name);
	}

	remove() {
		this.child?.kill("SIGKILL");
		rmSync(this.folder, { recursive: true, force: true });
	}
}
