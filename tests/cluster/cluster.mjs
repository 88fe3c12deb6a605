// A server and nodes on machines of their own (net.mjs): started, let in by their digits, and asked.
import { readFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { Client } from "../api/client.mjs";
import { binary, eventually, request, temporary, within } from "../api/server.mjs";
import { long } from "./net.mjs";

// `exogpu serve --lan` on a machine; asked over its Unix socket, since its address is on the wire.
export async function serve(machine, args = ["--no-local-node"], data = temporary()) {
	const one = machine.exec(["serve", "--lan", "--data", data, ...args]);
	await eventually(() => {
		if (one.child.exitCode !== null) throw new Error(`the server has ended: ${one.output.stderr}`);
		return /^dashboard: /m.test(one.output.stdout);
	}, "the server is ready", long);
	const server = { ...one, data, machine, socket: join(data, "exogpu.sock"), token: readFileSync(join(data, "admin.token"), "utf8").trim() };
	server.login = () => Client.login(server, server.token, { unix: true });
	server.http = (path, options) => request(server, path, { ...options, unix: true });
	server.stop = async () => {
		one.child.kill("SIGTERM");
		return within(one.exited, () => `the server ends; it said ${one.output.stderr}`, long);
	};
	return server;
}

// `exogpu node` on a machine: {data, name, child, ...}, with its id once it has said that. Of another program, or with
// another environment, where these are given.
export async function node(machine, args = [], data = temporary(), { program = binary, env, backend = "cpu" } = {}) {
	const one = machine.spawn(program, ["node", "--data", data, "--backends", backend, "--name", machine.name, "--accept-code", ...args], env);
	const started = { ...one, data, machine };
	started.said = (pattern) => eventually(() => {
		const found = pattern.exec(one.output.stderr);
		if (!found && one.child.exitCode !== null) throw new Error(`it ended before ${pattern}: ${one.output.stderr}`);
		return found;
	}, `${machine.name} says ${pattern}`, long).catch((error) => { throw new Error(`${error.message}; it said ${one.output.stderr.slice(-3000)}`); });
	return started;
}

// Compare the digits that both sides show, and let it in. Its id.
export async function letIn(admin, one) {
	const [, high, low] = await one.said(/must show (\d{3}) (\d{3}) for this node/);
	const waiting = await eventually(async () =>
		(await admin.call("node.waiting")).waiting.find((other) => other.code === high + low), "it waits with these digits", long);
	await admin.call("node.approve", { node_id: waiting.node_id, code: high + low });
	one.id = waiting.node_id;
	await becomes(admin, one.id, "online");
	return one.id;
}

export const snapshot = (admin) => admin.call("cluster.snapshot");
export const nodeOf = async (admin, id) => (await snapshot(admin)).nodes.find((one) => one.node_id === id);
export const becomes = (admin, id, state, ms = long) =>
	eventually(async () => (await nodeOf(admin, id))?.state === state, `${id} is ${state}`, ms);

// The CPU of a node, or its first device of another back end, once it has been verified.
export const deviceOf = (admin, id, backend) => eventually(async () =>
	(await snapshot(admin)).devices.find((one) => one.node_id === id && one.backend === backend && one.verification.state === "passed"),
`a device of ${id} is verified`, long);
export const cpuOf = (admin, id) => deviceOf(admin, id, "cpu");

export const instanceOf = async (admin, id) => (await admin.call("instance.list")).instances.find((one) => one.instance_id === id);
export const instanceBecomes = (admin, id, state, ms = 4 * long) => eventually(async () => {
	const one = await instanceOf(admin, id);
	if (one?.state === "failed" && state !== "failed") throw new Error(`${id} has failed: ${one.state_reason}`);
	return one?.state === state ? one : null;
}, `${id} is ${state}`, ms);

// A streamed completion: {text, pieces, at (of each, ms), usage (if it is asked for), done} as it comes; `done` gives the
// whole text, or fails as the stream did.
export function complete(server, params) {
	const stream = { text: "", pieces: 0, at: [] };
	stream.done = new Promise((resolve, reject) => {
		const outgoing = http.request({ socketPath: server.socket, path: "/v1/completions", method: "POST",
			headers: { "content-type": "application/json", authorization: `Bearer ${server.token}` } }, (incoming) => {
			let rest = "";
			incoming.setEncoding("utf8").on("data", (piece) => {
				const lines = (rest + piece).split("\n");
				rest = lines.pop();
				for (const line of lines) {
					if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
					const event = JSON.parse(line.slice(6));
					if (event.error) return reject(new Error(event.error.message));
					if (event.usage) stream.usage = event.usage;
					if (!event.choices.length) continue;
					stream.text += event.choices[0].text ?? "";
					stream.prefill ??= event.choices[0].prefill;
					stream.pieces++;
					stream.at.push(performance.now());
				}
			});
			incoming.on("error", reject);
			incoming.on("end", () => incoming.statusCode === 200 ? resolve(stream.text) : reject(new Error(`${incoming.statusCode}: ${rest}`)));
		});
		outgoing.on("error", reject);
		outgoing.end(JSON.stringify({ stream: true, temperature: 0, ...params }));
	});
	stream.done.catch(() => {});
	return stream;
}
