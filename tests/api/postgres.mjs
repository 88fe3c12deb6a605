// A PostgreSQL of a test's own: made, started, stopped, frozen. It listens on a socket in its folder and trusts whoever
// reaches it. Where this runs as root it runs as nobody, since PostgreSQL refuses to run as root.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, chmodSync, chownSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { eventually } from "./server.mjs";

const LEAST = 15, NOBODY = 65534, ROOT = "/usr/lib/postgresql";
const settings = ["fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=60", "autovacuum=off",
	"unix_socket_permissions=0777", "log_min_messages=fatal"];

// The folder of the newest version's programs, or undefined.
export const programs = existsSync(ROOT) ? readdirSync(ROOT).map(Number).filter((version) => version >= LEAST).sort((a, b) => b - a)
	.map((version) => join(ROOT, String(version), "bin")).find((folder) => existsSync(join(folder, "initdb"))) : undefined;
export const skip = programs ? false : `PostgreSQL ${LEAST} or newer is not installed (Debian: postgresql)`;

export class Postgres {
	static async start() {
		const postgres = new Postgres();
		postgres.port = 5432;
		postgres.more = ["listen_addresses="];
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

	// A copy that follows this one, and is waited for by each commit (`synchronous`).
	async standby({ synchronous = true } = {}) {
		const copy = Object.assign(new Postgres(), { port: this.port, more: this.more, who: this.who, folder: mkdtempSync("/tmp/exogpu-postgres-") });
		process.on("exit", () => copy.remove());
		if (this.who.uid) chownSync(copy.folder, NOBODY, NOBODY);
		chmodSync(copy.folder, 0o755);
		execFileSync(join(programs, "pg_basebackup"), ["-h", this.folder, "-p", this.port, "-U", "exogpu", "-D", join(copy.folder, "data"), "-R", "-c", "fast", "--no-sync"],
			{ ...this.who, cwd: "/", stdio: "ignore" });
		await copy.again();
		await eventually(() => this.sql("postgres", "SELECT state FROM pg_stat_replication") === "streaming", "the standby follows");
		if (synchronous) {
			this.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
			this.sql("postgres", "SELECT pg_reload_conf()");
			await eventually(() => this.sql("postgres", "SELECT sync_state FROM pg_stat_replication") === "sync", "commits wait for it");
		}
		return copy;
	}

	// From now on it is written to. What was to be waited for is in its settings as well, and there is nobody else.
	promote() {
		this.sql("postgres", "SELECT pg_promote(true, 60)");
		this.sql("postgres", "ALTER SYSTEM RESET synchronous_standby_names");
		this.sql("postgres", "SELECT pg_reload_conf()");
	}

	async again() {
		const flags = [...settings, ...this.more, `port=${this.port}`, `unix_socket_directories=${this.folder}`].flatMap((setting) => ["-c", setting]);
		this.child = spawn(join(programs, "postgres"), ["-D", join(this.folder, "data"), ...flags], { ...this.who, cwd: "/", stdio: "ignore" });
		this.ended = once(this.child, "exit");
		await eventually(() => this.ready(), "PostgreSQL answers");
	}

	ready() {
		try {
			execFileSync(join(programs, "pg_isready"), ["-q", "-h", this.folder, "-p", this.port]);
			return true;
		} catch {
			return false;
		}
	}

	// Also at an address of this machine, with this certificate, for who has a password.
	async listen(address, port, { pem, key }) {
		await this.stop();
		for (const [name, text] of [["server.pem", pem], ["server.key", key]]) {
			const path = join(this.folder, "data", name);
			writeFileSync(path, text, { mode: 0o600 });
			if (this.who.uid) chownSync(path, NOBODY, NOBODY);
		}
		appendFileSync(join(this.folder, "data", "pg_hba.conf"), "hostssl all all all scram-sha-256\n");
		this.port = port;
		this.more = [`listen_addresses=${address}`, "ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key"];
		await this.again();
	}

	// A signal to it and to every process of it: all stand still, and go on. One that serves a connection may end meanwhile.
	signal(signal) {
		const children = readFileSync(`/proc/${this.child.pid}/task/${this.child.pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
		this.child.kill(signal);
		for (const pid of children)
			try {
				process.kill(pid, signal);
			} catch (error) {
				if (error.code !== "ESRCH") throw error;
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
		return execFileSync(join(programs, "psql"), ["-XqAt", "-v", "ON_ERROR_STOP=1", "-h", this.folder, "-p", this.port, "-U", "exogpu", "-c", text, name], { encoding: "utf8" }).trim();
	}

	make(name) {
		execFileSync(join(programs, "createdb"), ["-h", this.folder, "-p", this.port, "-U", "exogpu", name]);
		return this.url(name);
	}

	remove() {
		this.child?.kill("SIGKILL");
		rmSync(this.folder, { recursive: true, force: true });
	}
}
