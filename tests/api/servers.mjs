// Several servers on one database: each with a data directory of its own, and one key for all.
import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "./client.mjs";
import { eventually, freePort, launch, patience, request, temporary, within } from "./server.mjs";

export class Servers {
	constructor(url, { address = "127.0.0.1", args = [], env } = {}) {
		Object.assign(this, { url, address, args, env, all: [], key: join(temporary(), "cluster.key") });
		writeFileSync(this.key, `${randomBytes(32).toString("hex")}\n`, { mode: 0o600 });
	}

	// One more, in a directory of its own, or again in that of one that has ended.
	async start({ data = temporary(), port, url = this.url, key = this.key } = {}) {
		const server = { data, port: port ?? await freePort() };
		Object.assign(server, launch(["serve", "--data", data, "--listen", `${this.address}:${server.port}`, "--no-local-node", "--store", url, "--cluster-key", key,
			...this.args], this.env));
		server.exited.then(() => (server.ended = true));
		server.http = (path, options) => request(Object.assign(server, this.address === "127.0.0.1" ? {} : { ca: this.ca ?? this.authority(server) }), path, options);
		this.all.push(server);
		return server;
	}

	authority(server) {
		return readFileSync(join(server.data, "tls", "authority.pem"));
	}

	// What it says of itself; undefined while it says nothing.
	async health(server, ms = patience) {
		return server.http("/healthz", { ms }).then((answer) => answer.json(), () => undefined);
	}

	role(server, role) {
		return eventually(async () => {
			if (server.ended) throw new Error(`the server ended: ${server.output.stderr}`);
			return (await this.health(server))?.role === role;
		}, () => `${server.data} is ${role}; it said: ${server.output.stderr.slice(-3000)}`);
	}

	// The one of these that leads.
	leader(among) {
		return eventually(async () => {
			const roles = await Promise.all(among.map((server) => this.health(server, 2000)));
			const at = roles.findIndex((one) => one?.role === "leader");
			return among[at];
		}, () => `one leads; they said: ${among.map(({ output }) => output.stderr.slice(-2000)).join("\n---\n")}`);
	}

	login(server) {
		return Client.login(Object.assign(server, { url: new URL(`http://127.0.0.1:${server.port}/`) }), readFileSync(join(server.data, "admin.token"), "utf8").trim());
	}

	async stop(server, signal = "SIGTERM") {
		server.child.kill(signal);
		return within(server.exited, () => `it ends after ${signal}: ${server.output.stderr.slice(-2000)}`);
	}

	async end() {
		await Promise.all(this.all.filter(({ ended }) => !ended).map((server) => this.stop(server, "SIGKILL")));
	}
}
