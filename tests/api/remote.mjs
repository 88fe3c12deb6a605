// A server that listens for others, its own node, and a second node on this machine that joined by TLS, through a proxy
// that can stop forwarding. What the second node holds belongs to "another machine": it has its own data directory, and
// no socket of the server's.
import assert from "node:assert/strict";
import { readFileSync, readdirSync, readlinkSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { Client } from "./client.mjs";
import { binary, eventually, launch, slow, startServer, temporary, within } from "./server.mjs";

// A TCP proxy. `cut("up")` (from the node), `cut("down")` (to it) or both: what comes is kept and not forwarded, as by a
// network that is gone; nothing is lost when it is mended. It always reads, so that what a node lets out is counted.
// `takes`: so many connections more; others are closed at once.
export class Proxy {
	static async start(port) {
		const proxy = Object.assign(new Proxy(), { pairs: [], held: { up: false, down: false }, takes: Infinity });
		proxy.listener = net.createServer((near) => (proxy.takes-- > 0 ? proxy.add(near, net.connect(port, "127.0.0.1")) : near.destroy()));
		await new Promise((resolve) => proxy.listener.listen(0, "127.0.0.1", resolve));
		proxy.port = proxy.listener.address().port;
		return proxy;
	}

	add(near, far) {
		const pair = { near, far, up: 0, down: 0, kept: { up: [], down: [] } };
		const pass = (from, to, way) => {
			from.setNoDelay?.(true);
			from.on("data", (bytes) => {
				pair[way] += bytes.length;
				if (this.held[way]) pair.kept[way].push(bytes);
				else if (!to.write(bytes)) from.pause();
			});
			to.on("drain", () => from.resume());
			from.on("error", () => {}); // shows as its end
			from.on("close", () => { if (!this.held[way]) to.destroy(); else pair.ended = true; });
		};
		pass(near, far, "up");
		pass(far, near, "down");
		this.pairs.push(pair);
	}

	cut(...ways) {
		for (const way of ways) this.held[way] = true;
	}

	mend() {
		this.held = { up: false, down: false };
		for (const pair of this.pairs) {
			for (const [way, to] of [["up", pair.far], ["down", pair.near]])
				for (const bytes of pair.kept[way].splice(0)) if (!to.destroyed) to.write(bytes);
			if (pair.ended) { pair.near.destroy(); pair.far.destroy(); }
		}
	}

	// Every connection is torn down at once; new ones are taken.
	break() {
		for (const { near, far } of this.pairs.splice(0)) { near.resetAndDestroy(); far.resetAndDestroy(); }
	}

	close() {
		this.listener.close();
		this.break();
	}
}

export class RemoteNode {
	constructor(cluster, { name = "second", backends = "cpu", data = temporary(), env = {}, args = [], program } = {}) {
		Object.assign(this, { cluster, name, backends, data, env, args, program });
	}

	// `ticket` the first time; after that it knows its server.
	async start(ticket) {
		const join = ticket ? ["--join", `127.0.0.1:${this.cluster.proxy.port}`, "--ticket", ticket] : [];
		Object.assign(this, launch(["node", ...join, ...this.args, "--data", this.data, "--backends", this.backends, "--name", this.name], this.env, this.program));
		await this.ready();
	}

	// Its CPU as the cluster shows it, once that is verified.
	async ready() {
		this.device = await eventually(async () => {
			if (this.child.exitCode !== null) throw new Error(`the node ended: ${this.output.stderr}`);
			const { nodes, devices } = await this.cluster.admin.call("cluster.snapshot");
			const node = nodes.find((one) => one.name === this.name && !one.local && one.state === "online");
			this.node_id = node?.node_id ?? this.node_id;
			return node && devices.find((one) => one.node_id === node.node_id && one.state !== "offline" && one.verification.state === "passed");
		}, "the second node's device is ready", 60000 * slow).catch((error) => {
			throw new Error(`${error.message}; it said: ${this.output.stderr}`);
		});
		return this.device;
	}

	residentBytes() {
		return Number(readFileSync(`/proc/${this.child.pid}/statm`, "utf8").split(" ")[1]) * 4096;
	}

	// Once it has said this, at or after `from` of what it says.
	said(pattern, from = 0, ms = 20000 * slow) {
		return eventually(() => pattern.exec(this.output.stderr.slice(from)), `the second node says ${pattern}`, ms);
	}

	async finish() {
		this.child.kill("SIGTERM");
		const { code, signal, stderr } = await within(this.exited, "the second node ends");
		assert.ok(code === 0, `the second node ended with ${code ?? signal}: ${stderr.slice(-2000)}`);
	}
}

// The program as one of another version: {path, version}.
export function ofAnotherVersion(version) {
	const other = version.replace(/.$/, (digit) => (Number(digit) + 1) % 10), program = readFileSync(binary), from = Buffer.from(`${version}\0`);
	for (let at = 0; (at = program.indexOf(from, at)) >= 0; at++) program.write(other, at);
	const path = join(temporary(), "exogpu");
	writeFileSync(path, program, { mode: 0o755 });
	return { path, version: other };
}

// The process of the server's own node, and the ports that it listens at.
export function ownNode(server) {
	const pid = readdirSync("/proc").find((one) => {
		try {
			return readFileSync(`/proc/${one}/stat`, "latin1").split(") ")[1].split(" ")[1] === String(server.child.pid) &&
				readFileSync(`/proc/${one}/cmdline`, "latin1").split("\0")[1] === "node";
		} catch {
			return false; // no process, or it has ended meanwhile
		}
	});
	if (!pid) return { pid: 0, ports: [] };
	const held = readdirSync(`/proc/${pid}/fd`).map((fd) => {
		try {
			return readlinkSync(`/proc/${pid}/fd/${fd}`);
		} catch {
			return ""; // closed meanwhile
		}
	});
	const ports = ["tcp", "tcp6"].flatMap((name) => readFileSync(`/proc/${pid}/net/${name}`, "latin1").trim().split("\n").slice(1)
		.map((line) => line.trim().split(/\s+/)).filter(([, , , state, , , , , , inode]) => state === "0A" && held.includes(`socket:[${inode}]`))
		.map(([, address]) => parseInt(address.split(":")[1], 16)));
	return { pid: Number(pid), ports };
}

export async function startCluster({ args = [], env } = {}) {
	const server = await startServer({ listen: "0.0.0.0:0", localNode: true, args, env });
	const admin = await Client.login(server), proxy = await Proxy.start(server.port);
	const cluster = { server, admin, proxy };
	const { ticket } = await admin.call("node.ticket", {});
	const remote = new RemoteNode(cluster, { env });
	await remote.start(ticket);
	cluster.remote = remote;
	cluster.local = await eventually(async () => {
		const { nodes, devices } = await admin.call("cluster.snapshot");
		const node = nodes.find((one) => one.local);
		return devices.find((one) => one.node_id === node?.node_id && one.backend === "cpu" && one.verification.state === "passed");
	}, "this machine's own CPU is ready", 60000 * slow);
	return cluster;
}
