// A server and its nodes under everything that happens in a cluster, for as long as is wanted: they need no more memory,
// descriptors or threads at the end, every answer is whole, and the audit log verifies.
//
//   node tests/bench/soak.mjs [--hours N] [--minutes N] [--seconds N] [--sample N]     (./dev bench soak; EXOGPU_BINARY is what runs)
//
// A server with its own node, and nodes alpha, beta and gamma that joined by TLS, all on this machine and its CPU. The
// model "steady" is split over the server's node and alpha, which nobody disturbs; "wandering" over beta and gamma, which
// leave, are killed, drained and come back. Meanwhile nodes join and are removed, workers are killed, instances are
// created, moved to another format and deleted, tokens made and revoked, memory allocated, written, read and freed, and
// both models answer. Each answer is compared with what the model said before anything was disturbed.
//
// Every --sample seconds (60) all of it pauses, wandering is placed as at the beginning, and what the processes have that
// lived all along is read. Prints a line each time, and at the end a table in Markdown and what is wrong. Exit status: 0
// nothing; 1 something. Ctrl-C ends it early in the same way; a second one at once.
import { execFileSync } from "node:child_process";
import { readlinkSync, rmSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Client } from "../api/client.mjs";
import { modelFile } from "../api/gguf.mjs";
import { workers } from "../api/machine.mjs";
import { ownNode } from "../api/remote.mjs";
import { binary, eventually, launch, run, slow, startServer, temporary, within } from "../api/server.mjs";
import { LEAST_S_FOR_MEMORY, judge, measureQuiet, table } from "./soak_figures.mjs";

const { values } = parseArgs({ options: { hours: { type: "string" }, minutes: { type: "string" }, seconds: { type: "string" }, sample: { type: "string", default: "60" } } });
const lasts = Number(values.hours ?? 0) * 3600 + Number(values.minutes ?? 0) * 60 + Number(values.seconds ?? 0) || 3600;
const everyS = Number(values.sample), warmS = Math.min(600, lasts / 2) + everyS / 2;
if (!(lasts > 0 && everyS > 0)) throw new Error("--hours, --minutes, --seconds and --sample take numbers");

const LAYERS = 6, TOKENS = 80, LONG = 120000 * slow;
const PROMPTS = ["a b c", "d e f g", "h i", "the a of b and c of d"];
const env = { VK_DRIVER_FILES: "/dev/null", VK_ICD_FILENAMES: "/dev/null", EXOGPU_TEST_NODE_SILENCE_S: process.env.EXOGPU_TEST_NODE_SILENCE_S ?? "" };
let begun = performance.now(); // then: since everything began
const seconds = () => Math.round((performance.now() - begun) / 1000);
const says = (text) => console.error(`soak: ${seconds()} s: ${text}`);
const any = (list) => list[Math.floor(Math.random() * list.length)];
const counts = {}, wrong = [], children = new Set();
const did = (what) => { counts[what] = (counts[what] ?? 0) + 1; };
process.setMaxListeners(0); // each temporary folder has one
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));

// ---- the cluster ----

let server, admin;
const snapshot = () => admin.call("cluster.snapshot");
const instanceOf = async (id) => (await admin.call("instance.list")).instances.find((one) => one.instance_id === id);

// A node of a process group of its own, so that Ctrl-C does not end it.
class Member {
	constructor(name) {
		Object.assign(this, { name, data: temporary() });
	}

	async start(ticket) {
		const joins = ticket ? ["--join", `127.0.0.1:${server.port}`, "--ticket", ticket] : [];
		Object.assign(this, launch([binary, "node", ...joins, "--data", this.data, "--backends", "cpu", "--name", this.name, "--log-level", "warning"], env, "setsid"));
		children.add(this.child);
		this.exited.then(() => children.delete(this.child));
		await this.ready();
	}

	async ready() {
		this.device = await eventually(async () => {
			if (this.child.exitCode !== null) throw new Error(`${this.name} ended: ${this.output.stderr.slice(-2000)}`);
			const { nodes, devices } = await snapshot(), node = nodes.find((one) => one.name === this.name && one.state === "online");
			this.node_id = node?.node_id ?? this.node_id;
			return node && devices.find((one) => one.node_id === node.node_id && !["offline", "draining"].includes(one.state) && one.verification.state === "passed");
		}, `${this.name} is ready`, LONG);
	}

	async ends(signal) {
		this.child.kill(signal);
		await within(this.exited, `${this.name} ends`, LONG);
		await eventually(async () => (await snapshot()).nodes.find((one) => one.node_id === this.node_id)?.state !== "online", `${this.name} is gone`, LONG);
	}
}

// The workers of a node that have a model: its file, or that of its layers, is descriptor 5.
const holding = (node) => workers(node).filter((pid) => {
	try {
		return /\/models\/|\.gguf$/.test(readlinkSync(`/proc/${pid}/fd/5`));
	} catch {
		return false; // it has no such descriptor, or has ended
	}
});

const halves = (...devices) => devices.map(({ device_id }, i) => ({ device_id, first_layer: Math.floor(LAYERS * i / devices.length),
	layer_count: i + 1 < devices.length ? Math.floor(LAYERS / devices.length) : 0 }));
const running = (id) => eventually(async () => {
	const one = await instanceOf(id);
	if (one?.state === "failed") throw new Error(`it has failed: ${one.state_reason}`);
	return one?.state === "running" && one;
}, `instance ${id} runs`, LONG);

// A node that was started again shows for a moment what it said before.
async function place(model, devices) {
	const { instance_id } = await eventually(() => admin.call("instance.create", { model_id: model, context_tokens: 512, sequences: 4, pins: halves(...devices) }).catch((error) => {
		if (error.reason !== "unavailable") throw error;
	}), "it is placed", LONG);
	await running(instance_id);
	return instance_id;
}

async function unload(instance_id) {
	await admin.call("instance.delete", { instance_id });
	await eventually(async () => !(await instanceOf(instance_id)), "the instance is gone", LONG);
}

async function addModel(name, seed) {
	const path = join(temporary(), `${name}.gguf`);
	writeFileSync(path, modelFile({ megabytes: 0.19 * LAYERS, context: 4096, seed }));
	const { model_id } = await admin.call("model.add", { source: path, name });
	await eventually(async () => (await admin.call("model.list")).models.some((one) => one.model_id === model_id && one.state === "ready"), `${name} is ready`, LONG);
	return model_id;
}

// Asked again where the server says so, as clients do: a device that is being drained takes no new requests.
async function answer(model, prompt) {
	const until = performance.now() + LONG;
	for (;;) {
		const { status, headers, text } = await server.http("/v1/completions", { method: "POST", ms: LONG, headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model, prompt, max_tokens: TOKENS, temperature: 0 }) });
		if (status === 200) return JSON.parse(text).choices[0].text;
		if (status !== 503 || JSON.parse(text).error.code !== "unavailable" || performance.now() > until) throw new Error(`${model} answered ${status}: ${text.slice(0, 300)}`);
		did("asked again");
		await sleep(1000 * (headers["retry-after"] ?? 1));
	}
}

// ---- what goes on ----

const models = {}, members = {}, said = new Map(); // MODEL PROMPT: what it says undisturbed
let wandering, over = false, interrupted;

const told = async (model, prompt, as = model) => {
	const text = await answer(model, prompt), before = said.get(`${as} ${prompt}`);
	if (before === undefined) said.set(`${as} ${prompt}`, text);
	else if (text !== before) throw new Error(`${as} says "${text}" to "${prompt}", where it said "${before}"`);
	did("answers");
};
const chat = (model) => async () => told(model, any(PROMPTS));

async function tokens() {
	const { token, token_id } = await admin.call("token.create", { name: "one of many", scopes: ["observe"], expires_in_s: 86400 });
	const client = await Client.login(server, token);
	await client.call("cluster.snapshot");
	await admin.call("token.revoke", { token_id });
	await within(client.closed, "a revoked token's connection is closed", LONG);
	did("tokens");
}

async function memory() {
	const made = await admin.call("token.create", { name: "tenant", scopes: ["observe", "allocate"], expires_in_s: 86400 });
	const client = await Client.login(server, made.token), bytes = 4096 + Math.floor(Math.random() * 262144), body = Buffer.alloc(bytes, counts.allocations ?? 1);
	try { // on a node that nobody ends meanwhile
		const { allocation_id } = await client.call("memory.allocate", { device_id: any([members.own, members.alpha]).device.device_id, bytes });
		await client.callWith("memory.write", { allocation_id, offset: 0 }, body);
		if (!(await client.call("memory.read", { allocation_id, offset: 0, bytes })).body.equals(body)) throw new Error("memory has other bytes than were written");
		await client.call("memory.free", { allocation_id });
	} finally {
		await client.close();
		await admin.call("token.revoke", { token_id: made.token_id });
	}
	did("allocations");
}

// One at a time: each ends with everybody back. An instance whose workers die three times within a minute has failed, so of
// what ends workers there are two for each.
let deaths = 0;
const deadly = ["nodes left", "nodes killed", "workers killed"], restless = () => any([members.beta, members.gamma]);
const disturbances = {
	async "nodes left"() {
		const one = restless();
		await one.ends("SIGTERM");
		await one.start();
	},
	async "nodes killed"() {
		const one = restless();
		await one.ends("SIGKILL");
		await one.start();
	},
	async "nodes joined and removed"() {
		const one = new Member("delta");
		await one.start((await admin.call("node.ticket", {})).ticket);
		await admin.call("node.remove", { node_id: one.node_id });
		one.child.kill("SIGTERM");
		await within(one.exited, "a removed node ends", LONG);
		rmSync(one.data, { recursive: true, force: true });
	},
	async "workers killed"() {
		const found = holding(restless().child.pid);
		try {
			if (found.length) process.kill(any(found), "SIGKILL");
		} catch { /* it has ended just now */ }
		await running(wandering);
	},
	async "devices drained"() {
		const { device_id } = restless().device;
		await admin.call("device.drain", { device_id, drain: true });
		await eventually(async () => {
			const one = await instanceOf(wandering);
			return one?.state === "running" && one.stages.every((stage) => stage.device_id !== device_id);
		}, "it runs elsewhere", LONG);
		await admin.call("device.drain", { device_id, drain: false });
	},
	async "moves to another format"() {
		const id = await place(models.moving, [members.alpha.device, restless().device]);
		await told("moving", PROMPTS[0]);
		for (const format of ["Q8_0", "file"]) {
			const { moves } = await instanceOf(id);
			await admin.call("instance.move", { instance_id: id, format });
			await eventually(async () => {
				const one = await instanceOf(id);
				return one?.state === "running" && one.moves > moves;
			}, `it has moved to ${format}`, LONG);
			await told("moving", PROMPTS[0], format === "file" ? "moving" : `moving in ${format}`);
		}
		await unload(id);
	},
};
async function disturb() {
	const [what, step] = any(Object.entries(disturbances).filter(([name]) => deaths < 2 || !deadly.includes(name)));
	deaths += deadly.includes(what);
	await step();
	did(what);
}

// ---- one after the other, until it is over; all stand still while a sample is taken ----

let held = false, busy = 0;
async function actor(name, step) {
	while (!over) {
		if (held) {
			await sleep(50);
			continue;
		}
		busy++;
		try {
			await step();
		} catch (error) {
			wrong.push(`${seconds()} s: ${name}: ${error.message}`);
			says(wrong.at(-1));
			if (wrong.length >= 20) interrupted = true;
			await sleep(1000);
		} finally {
			busy--;
		}
	}
}

const samples = [];
// Until when it is the beginning: for so long as is usual, and for the first three samples at least.
const warm = () => Math.max(warmS, samples[2]?.s ?? Infinity);
async function sample() {
	held = true;
	await eventually(() => busy === 0, "everything pauses", LONG);
	if (wandering) await unload(wandering);
	for (const one of [members.beta, members.gamma]) await one.ready();
	wandering = await place(models.wandering, [members.beta.device, members.gamma.device]);
	deaths = 0;
	await eventually(async () => { // every node with every other, in both directions
		const online = (await snapshot()).nodes.filter((one) => one.state === "online").length, { links } = await snapshot();
		return online === 4 && links.filter((one) => one.to_node_id !== "server" && one.state === "up").length === online * (online - 1);
	}, "all are linked", LONG);
	const own = ownNode(server).pid, pids = { server: server.child.pid, "the server's node": own, alpha: members.alpha.child.pid };
	for (const [name, pid] of [["the server's node", own], ["alpha", members.alpha.child.pid]]) {
		const found = holding(pid);
		if (found.length !== 1) throw new Error(`${name} has ${found.length} workers with a model`);
		pids[`worker of ${name}`] = found[0];
	}
	const processes = await measureQuiet(pids);
	samples.push({ s: seconds(), processes });
	console.log(`${seconds()} s: ${Object.entries(processes).map(([name, one]) =>
		`${name} ${(one.rss / 1048576).toFixed(1)} MiB ${one.fds} fds ${one.threads} threads`).join("; ")}; ${counts.answers ?? 0} answers; load ${loadavg()[0].toFixed(1)}`);
	held = false;
}

// The server keeps so many ended tokens, 3 KB each: where it has them from the beginning, what grows is something else.
async function endTokens(count) {
	says(`it makes and revokes ${count} tokens`);
	await Promise.all(Array.from({ length: 8 }, async () => {
		for (let i = 0; i < count / 8; i++) {
			const { token_id } = await admin.call("token.create", { name: "one of many", scopes: ["observe"], expires_in_s: 86400 });
			await admin.call("token.revoke", { token_id });
		}
	}));
}

async function start() {
	server = await startServer({ listen: "0.0.0.0:0", localNode: true, under: ["setsid"], env: { ...env, EXOGPU_SPARES: "off" }, args: ["--log-level", "warning"] });
	children.add(server.child);
	admin = await Client.login(server);
	members.own = { device: await eventually(async () => {
		const { nodes, devices } = await snapshot(), own = nodes.find((one) => one.local);
		return devices.find((one) => one.node_id === own?.node_id && one.verification.state === "passed");
	}, "the server's node is ready", LONG) };
	if (lasts >= LEAST_S_FOR_MEMORY) await endTokens(10000);
	for (const name of ["alpha", "beta", "gamma"]) {
		members[name] = new Member(name);
		await members[name].start((await admin.call("node.ticket", {})).ticket);
	}
	for (const [i, name] of ["steady", "wandering", "moving"].entries()) models[name] = await addModel(name, i + 1);
	await place(models.steady, [members.own.device, members.alpha.device]);
	await sample();
	for (const name of ["steady", "wandering"]) for (const prompt of PROMPTS) await told(name, prompt);
}

async function finish() {
	for (const one of Object.values(members)) if (one.child) await one.ends("SIGTERM");
	await admin.close();
	await server.finish();
	children.delete(server.child);
	const { code, stdout, stderr } = await run(["audit", "verify", "--data", server.data], { XDG_STATE_HOME: server.data });
	if (code !== 0) wrong.push(`exogpu audit verify ends with ${code}: ${stdout}${stderr}`);
	return stdout.trim().split("\n")[0];
}

process.on("SIGINT", () => {
	if (interrupted) process.exit(130);
	interrupted = true;
	says("it ends early; Ctrl-C again ends it at once");
});
let verified = "";
try {
	await start();
	begun = performance.now();
	samples[0].s = 0;
	const actors = [["chat", chat("steady")], ["chat", chat("wandering")], ["chat", chat("wandering")], ["tokens", tokens], ["memory", memory], ["disturb", disturb]]
		.map(([name, step]) => actor(name, step));
	// On a busy machine one sample takes as long as many were to: there is some work between any two, and it goes on until there
	// are enough to judge.
	const enough = () => samples.filter(({ s }) => s > warm()).length >= 3;
	for (let next = everyS; !interrupted && (seconds() < lasts || !enough()); next = Math.max(next + everyS, seconds() + everyS / 2)) {
		while (!interrupted && performance.now() - begun < (enough() ? Math.min(next, lasts) : next) * 1000) await sleep(200);
		if (!interrupted) await sample();
	}
	over = true;
	await Promise.all(actors);
	verified = await finish();
} catch (error) {
	wrong.push(error.stack);
}
const commit = (() => { try { return execFileSync("git", ["rev-parse", "--short=12", "HEAD"], { encoding: "utf8" }).trim(); } catch { return "unknown"; } })();
console.log(`\n### Endurance: ${(seconds() / 60).toFixed(1)} minutes, commit ${commit}, ${cpus()[0].model}, ${cpus().length} CPUs, load ${loadavg()[0].toFixed(1)} at the end\n`);
if (samples.length) console.log(table(samples, warm()));
console.log(`\n${Object.entries(counts).map(([what, count]) => `${what}: ${count}`).join("; ")}. ${verified}`);
if (!interrupted || samples.length > 3) wrong.push(...judge(samples, warm()));
for (const one of wrong) console.log(`WRONG: ${one}`);
if (!wrong.length) console.log("Nothing is wrong.");
process.exit(wrong.length ? 1 : 0);
