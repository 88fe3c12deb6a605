// Several servers on one database: each with a data directory of its own, and one key for all.
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "./client.mjs";
import { eventually, freePort, launch, patience, request, slow, temporary, within } from "./server.mjs";

export class Servers {
	constructor(url, { address = "127.0.0.1", args = [], env } = {}) {
		const long = slow > 1 ? { EXOGPU_TEST_TURN_STALE_MS: String(4000 * slow) } : {}; // a leader on a busy machine is late with its stamp
		Object.assign(this, { url, address, args, env: { ...long, ...env }, all: [], key: join(temporary(), "cluster.key") });
		writeFileSync(this.key, `${randomBytes(32).toString("hex")}\n`, { mode: 0o600 });
	}

	// One more, in a directory of its own, or again in that of one that has ended.
	async start({ data = temporary(), port, url = this.url, key = this.key, args = [] } = {}) {
		const server = { data, port: port ?? await freePort() };
		Object.assign(server, launch(["serve", "--data", data, "--listen", `${this.address}:${server.port}`, "--no-local-node", "--store", url,
			...(key ? ["--cluster-key", key] : []), ...this.args, ...args], this.env));
		server.exited.then(() => (server.ended = true));
		server.http = (path, options) => request(Object.assign(server, this.known(server)), path, options);
		this.all.push(server);
		return server;
	}

	// The authority that it shows, once it has one, and its admin's token, once it has led.
	known({ data }) {
		const read = (...path) => (existsSync(join(data, ...path)) ? readFileSync(join(data, ...path)) : undefined);
		return { ca: this.address === "127.0.0.1" ? undefined : read("tls", "authority.pem"), token: read("admin.token")?.toString("utf8").trim() };
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
			return among[roles.findIndex((one) => one?.role === "leader")];
		}, () => `one leads; they said: ${among.map(({ output }) => output.stderr.slice(-2000)).join("\n---\n")}`);
	}

	// Three clients that make tokens where `leader` says, until `end`. `made`: the names that were acknowledged.
	changes(what, leader) {
		const made = new Set();
		let ending = false, why = "";
		const client = async (worker) => {
			let admin;
			for (let i = 0; !ending; i++) {
				const name = `${what} ${worker}.${i}`;
				try {
					admin ??= await this.login(await leader());
					await admin.call("token.create", { name, scopes: ["observe"] });
					made.add(name);
				} catch (error) {
					why = error.message;
					admin = undefined;
					await new Promise((resolve) => setTimeout(resolve, 50));
				}
			}
		};
		const clients = Array.from({ length: 3 }, (_, worker) => client(worker));
		return {
			made,
			more: (count = made.size) => eventually(() => made.size > count + 10, () => `changes are taken: ${why}`),
			end: () => { ending = true; return Promise.all(clients); },
		};
	}

	login(server) {
		return Client.login(Object.assign(server, this.known(server)));
	}

	async stop(server, signal = "SIGTERM") {
		server.child.kill(signal);
		return within(server.exited, () => `it ends after ${signal}: ${server.output.stderr.slice(-2000)}`);
	}

	async end() {
		await Promise.all(this.all.filter(({ ended }) => !ended).map((server) => this.stop(server, "SIGKILL")));
	}
}
