// Machines on a wire: network namespaces of this machine, joined by tests/cluster/wire.c, which delays, loses, reorders
// and cuts as a test says. Needs root and `ip`; where that is not to be had the tests skip, and say so.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync, rmdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { binary, slow, within } from "../api/server.mjs";

const wireProgram = process.env.EXOGPU_WIRE;
const ip = (...words) => execFileSync("ip", words, { stdio: ["ignore", "pipe", "pipe"] }).toString();

// Why there can be no machines here; null: there can.
export const missing = (() => {
	if (!wireProgram) return "no program for the wire: EXOGPU_WIRE is not set";
	const name = `exogpu-try-${process.pid}`;
	try {
		ip("netns", "add", name);
		ip("link", "add", "try0", "netns", name, "type", "veth", "peer", "name", "try1", "netns", name);
		return null;
	} catch (error) {
		return `no network namespaces here: ${String(error.stderr ?? error.message).trim()}`;
	} finally {
		try { ip("netns", "del", name); } catch { /* it never came to be */ }
	}
})();

// A control group, of version 1 or 2.
function makeGroup(name, kind, value) {
	const own = `/sys/fs/cgroup/${kind}`, old = existsSync(own), group = join(old ? own : "/sys/fs/cgroup", `${name}-${kind}`);
	mkdirSync(group);
	const put = (file, text) => writeFileSync(join(group, file), text);
	if (kind === "memory") put(old ? "memory.limit_in_bytes" : "memory.max", String(value));
	else if (old) [put("cpu.cfs_period_us", "10000"), put("cpu.cfs_quota_us", String(value * 10000))];
	else put("cpu.max", `${value * 10000} 10000`);
	return group;
}

function mountGroup(group) {
	const [, , , , kind, own] = group.split("/");
	if (!own) return "umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; ";
	return `mkdir /sys/fs/cgroup/${kind}; mount -t cgroup -o ${kind} none /sys/fs/cgroup/${kind}; `;
}

// Why machines cannot be given less memory or fewer processors; null: they can.
export const groupsMissing = (() => {
	if (missing) return missing;
	const name = `exogpu-try-${process.pid}`;
	try {
		rmdirSync(makeGroup(name, "memory", 64 << 20));
		rmdirSync(makeGroup(name, "cpu", 0.5));
		return null;
	} catch (error) {
		return `no control groups here: ${error.message}`;
	}
})();

// Nodes of this machine alone, whose links go by way of relay.c: for a machine without network namespaces, and for wires
// faster than wire.c is. EXOGPU_RELAY and EXOGPU_DETOUR are its program and library.
export const relayed = Boolean(process.env.EXOGPU_RELAY);

class Relay {
	static async make(names) {
		const relay = new Relay(), folder = mkdtempSync(join(tmpdir(), "exogpu-relay-"));
		relay.running = new Set();
		process.on("exit", () => { relay.destroy(); rmSync(folder, { recursive: true, force: true }); });
		const nodes = { LD_PRELOAD: process.env.EXOGPU_DETOUR, EXOGPU_TEST_RELAY: folder, EXOGPU_TEST_RELAY_EXCEPT: "52415" };
		relay.machines = Object.fromEntries(names.map((name, place) => {
			const machine = { name, place, address: "127.0.0.1", prefix: [] };
			machine.limit = ({ cpus, ...others }) => {
				if (Object.keys(others).length) throw new Error("without namespaces a machine has whole processors");
				if (cpus) machine.prefix = ["taskset", "-c", cpus];
			};
			machine.spawn = (program, args, env = {}) => relay.spawn(machine, program, args, { ...(args[0] === "node" ? nodes : {}), ...env });
			machine.exec = (args, env) => machine.spawn(binary, args, env);
			return [name, machine];
		}));
		relay.wire = spawn(process.env.EXOGPU_RELAY, [folder], { stdio: ["pipe", "pipe", "inherit"] });
		const lines = createInterface({ input: relay.wire.stdout })[Symbol.asyncIterator]();
		relay.answer = async () => (await within(lines.next(), "the relay answers")).value;
		if (await relay.answer() !== "ready") throw new Error("the relay does not start");
		return relay;
	}

	spawn(machine, program, args, env) {
		const [first, ...rest] = [...machine.prefix, program, ...args], output = { stdout: "", stderr: "" };
		const child = spawn(first, rest, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, EXOGPU_DATA: "", EXOGPU_TOKEN: "", EXOGPU_URL: "", ...env } });
		this.running.add(child);
		for (const name of ["stdout", "stderr"]) child[name].setEncoding("utf8").on("data", (text) => (output[name] += text));
		const exited = once(child, "close").then(([code, signal]) => {
			this.running.delete(child);
			return { code, signal, ...output };
		});
		return { child, output, exited };
	}

	// Of all links, both ways.
	async set(from, to, { delay_ms = 0, bits_per_s = 0 }) {
		this.wire.stdin.write(`delay_ms=${delay_ms} bits_per_s=${bits_per_s}\n`);
		if (await this.answer() !== "ok") throw new Error("the relay does not answer");
	}

	destroy() {
		for (const child of this.running) child.kill("SIGKILL");
		this.wire?.kill("SIGKILL");
	}
}

let nets = 0;

// A wire with a machine for each name: `machine.exec(args)` runs exogpu there, `machine.address` is where it is.
export class Net {
	static async make(names) {
		if (relayed) return Relay.make(names);
		const net = new Net();
		net.id = `exogpu-${process.pid}-${nets++}`;
		net.hub = `${net.id}-wire`;
		net.machines = {};
		net.running = new Set();
		ip("netns", "add", net.hub);
		process.on("exit", () => net.destroy());
		names.forEach((name, i) => (net.machines[name] = net.plug(name, i)));
		net.wire = spawn("ip", ["netns", "exec", net.hub, wireProgram, ...names.map((_, i) => `port${i}`)], { stdio: ["pipe", "pipe", "inherit"] });
		const lines = createInterface({ input: net.wire.stdout })[Symbol.asyncIterator]();
		net.answer = async () => (await within(lines.next(), "the wire answers")).value;
		const first = await net.answer();
		if (first !== "ready") throw new Error(`the wire says ${first}`);
		return net;
	}

	plug(name, place) {
		const ns = `${this.id}-${name}`, address = `10.213.7.${place + 1}`;
		ip("netns", "add", ns);
		ip("link", "add", `port${place}`, "netns", this.hub, "type", "veth", "peer", "name", "eth0", "netns", ns);
		ip("-n", this.hub, "link", "set", `port${place}`, "up");
		ip("-n", ns, "link", "set", "lo", "up");
		ip("-n", ns, "address", "add", `${address}/24`, "dev", "eth0");
		ip("-n", ns, "link", "set", "eth0", "up");
		ip("-n", ns, "route", "add", "224.0.0.0/4", "dev", "eth0");
		execFileSync("ip", ["netns", "exec", ns, wireProgram, "--plain", "eth0"]);
		const machine = { name, ns, place, address, groups: [], prefix: [] };
		// From now on what starts there shares so much memory (memory), so much of processors (cpu: 0.5 is half of one),
		// or runs on these alone (cpus: "0,2").
		machine.limit = ({ cpus, ...limits }) => {
			if (cpus) machine.prefix = ["taskset", "-c", cpus];
			for (const [kind, value] of Object.entries(limits)) machine.groups.push(makeGroup(ns, kind, value));
		};
		// Bytes of frames that this interface has carried; the loopback's are sent and received by it alike.
		machine.bytes = (device) => {
			const [{ stats64: { rx, tx } }] = JSON.parse(ip("-n", ns, "-s", "-j", "link", "show", device));
			return device === "lo" ? tx.bytes : rx.bytes + tx.bytes;
		};
		machine.spawn = (program, args, env = {}) => this.spawn(machine, program, args, env);
		machine.exec = (args, env) => machine.spawn(binary, args, env);
		// The interface goes, or comes; with it goes what was told to leave by it.
		machine.link = (state) => {
			ip("-n", ns, "link", "set", "eth0", state);
			if (state === "up") ip("-n", ns, "route", "replace", "224.0.0.0/4", "dev", "eth0");
		};
		// How often, once a second, an address of IPv6 asks whether another machine has it, before it may be used; from the
		// next time on that the interface comes.
		machine.probes = (count) => execFileSync("ip", ["netns", "exec", ns, "sh", "-c", `echo ${count} >/proc/sys/net/ipv6/conf/eth0/dad_transmits`]);
		// One more address, while what was connected stays.
		machine.also = (another) => ip("-n", ns, "address", "add", `${another}/24`, "dev", "eth0");
		// The address becomes another one: what was connected is not any more.
		machine.move = (to) => {
			ip("-n", ns, "address", "del", `${machine.address}/24`, "dev", "eth0");
			ip("-n", ns, "address", "add", `${to}/24`, "dev", "eth0");
			machine.address = to;
		};
		return machine;
	}

	// A program on a machine: {child, output, exited}. `ip netns exec` becomes it, so signals go to it.
	spawn(machine, program, args, env) {
		// `ip netns exec` has a /sys of its own, in which the groups have to be mounted again to be seen.
		const into = machine.groups.map((group) => `echo $$ >${group}/cgroup.procs; `).join("");
		const again = machine.groups.length ? "mount -t tmpfs none /sys/fs/cgroup; " + machine.groups.map(mountGroup).join("") : "";
		const child = spawn("sh", ["-c", `${into}exec ip netns exec ${machine.ns} sh -c '${again}exec "$@"' sh "$@"`, "sh", ...machine.prefix, program, ...args], {
			stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, EXOGPU_DATA: "", EXOGPU_TOKEN: "", EXOGPU_URL: "", ...env } });
		const output = { stdout: "", stderr: "" };
		this.running.add(child);
		for (const name of ["stdout", "stderr"]) child[name].setEncoding("utf8").on("data", (text) => (output[name] += text));
		const exited = once(child, "close").then(([code, signal]) => {
			this.running.delete(child);
			return { code, signal, ...output };
		});
		return { child, output, exited };
	}

	async tell(line) {
		this.wire.stdin.write(`${line}\n`);
		const answer = await this.answer();
		if (!answer.startsWith("ok")) throw new Error(`the wire: ${answer}`);
		return answer;
	}

	// From one machine to another, or from any or to any (null): { delay_ms, jitter_ms, loss_percent, reorder_percent, bits_per_s }.
	set(from, to, settings) {
		const words = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
		return this.tell(`${from?.place ?? "*"} ${to?.place ?? "*"} ${words.join(" ")}`);
	}

	cut(from, to) {
		return this.tell(`${from?.place ?? "*"} ${to?.place ?? "*"} cut`);
	}

	mend(from, to) {
		return this.tell(`${from?.place ?? "*"} ${to?.place ?? "*"} mend`);
	}

	// {taken, sent, lost, dropped, waiting}, frames so far.
	async count() {
		const words = (await this.tell("count")).split(" ").slice(1).map((word) => word.split("="));
		return Object.fromEntries(words.map(([name, value]) => [name, Number(value)]));
	}

	destroy() {
		for (const child of this.running) child.kill("SIGKILL");
		this.wire?.kill("SIGKILL");
		for (const ns of [this.hub, ...Object.values(this.machines).map((one) => one.ns)])
			try { ip("netns", "del", ns); } catch { /* gone already */ }
		for (const group of Object.values(this.machines).flatMap((one) => one.groups))
			try { rmdirSync(group); } catch { /* somebody still ends in it */ }
	}
}

export const long = 30000 * slow;
