// A server with this machine's own node and devices: its CPU, and whatever else is there (Mesa's llvmpipe counts).
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { Client } from "./client.mjs";
import { eventually, launch, slow, startServer } from "./server.mjs";

export async function startMachine(options = {}) {
	const server = await startServer({ localNode: true, ...options });
	const admin = await Client.login(server);
	// Back ends are listed one after the other; the node says when it is through with all of them.
	await eventually(() => /node: \d+ of \d+ devices? usable/.test(server.output.stderr), "the node knows its devices", 60000 * slow);
	const devices = await eventually(async () => {
		const { nodes, devices: all } = await admin.call("cluster.snapshot");
		const node = nodes.find((one) => one.local);
		const ready = all.length && node?.state === "online" && all.every((one) => one.verification.state !== "pending");
		return ready && all.some((one) => one.backend === "cpu") ? all : null;
	}, "the devices are verified", 60000 * slow);
	const usable = devices.filter((one) => one.verification.state === "passed" && one.support !== "unsupported");
	const by = (backend) => usable.find((one) => one.backend === backend);
	assert.ok(by("cpu"), "the CPU is a device that passed");
	return { server, admin, devices: usable, cpu: by("cpu"), vulkan: by("vulkan"), cuda: by("cuda") };
}

export async function tenant({ server, admin }, params = {}, options = {}) {
	const made = await admin.call("token.create", { name: "tenant", scopes: ["observe", "allocate", "compute"], ...params });
	const client = await Client.login(server, made.token, options);
	return Object.assign(client, { token_id: made.token_id });
}

function read(path) {
	try {
		return readFileSync(path, "latin1");
	} catch {
		return ""; // it ended meanwhile
	}
}

// {state, parent} of a process; nothing of one that is gone.
function look(pid) {
	const stat = read(`/proc/${pid}/stat`); // PID (NAME) STATE PARENT ...
	const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
	return stat ? { state, parent: Number(parent) } : {};
}

// The workers that live below `pid`: those of sessions, and those that answer one question of the node.
export function workers(pid) {
	const all = new Map(readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map((name) => [Number(name), look(name)]));
	const below = (one) => one === pid || (all.has(one) && below(all.get(one).parent));
	return [...all].filter(([one, { state }]) => state && state !== "Z" && below(one) &&
		read(`/proc/${one}/cmdline`).split("\0")[1] === "worker").map(([one]) => one);
}

// The nodes of a data directory's own machine, whichever server started them: one serves, others may wait to.
export const nodes = (data) => readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number).filter((pid) => {
	const words = read(`/proc/${pid}/cmdline`).split("\0");
	return words[1] === "node" && words[words.indexOf("--data") + 1] === data && alive(pid);
});

// Of this server and its workers those that have memory which a worker shares.
export const sharing = (pid) => [pid, ...workers(pid)].filter((one) => read(`/proc/${one}/maps`).includes("/memfd:exogpu "));

export function alive(pid) {
	const { state } = look(pid);
	return state !== undefined && state !== "Z";
}

// Stops a process for 0.4 s, `times` times in a row. By a process of its own, before all others where that is allowed: a node
// ends a worker that stands still for 1.5 s, and a test's process may not get a processor for longer.
export const stopFor = (pid, times = 1) => launch(["-c", `chrt -f -p 1 $$ 2>/dev/null
	i=0; while [ $i -lt ${times} ] && kill -STOP ${pid}; do sleep 0.4; kill -CONT ${pid}; sleep 0.02; i=$((i + 1)); done`], {}, "sh");

// What `make` gives, and the worker that it started.
export async function withWorker(server, make) {
	const before = new Set(workers(server.child.pid));
	const made = await make();
	let started = workers(server.child.pid).filter((pid) => !before.has(pid));
	// one that answers the node a question ends soon
	await eventually(() => (started = started.filter(alive)).length <= 1, () => `one worker is started: ${started}`);
	assert.equal(started.length, 1, "one worker is started");
	return [made, started[0]];
}
