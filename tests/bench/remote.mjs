// A device of a node that joined by TLS, beside the same device of the server's own node, and beside TLS with nothing on
// top. The client comes by the server's Unix socket in both cases, so that what differs is the way from the server on.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const GiB = 2 ** 30;

// Calls by the server's Unix socket, as its owner.
async function owner(path) {
	const { WebSocket } = await import("../node_modules/ws/wrapper.mjs");
	const socket = new WebSocket(`ws+unix:${path}:/ws`, "exogpu.v1"), waiting = new Map();
	let last = 0;
	await once(socket, "open");
	socket.on("message", (text, binary) => {
		const { id, result, error } = binary ? {} : JSON.parse(text);
		waiting.get(id)?.(error ? Promise.reject(new Error(error.message)) : result);
	});
	return {
		close: () => socket.close(),
		call: (method, params = {}) => new Promise((done) => {
			waiting.set(++last, done);
			socket.send(JSON.stringify({ jsonrpc: "2.0", id: last, method, params }));
		}),
	};
}

async function cpuOf(admin, local) {
	for (let i = 0; i < 120; i++) {
		const { nodes, devices } = await admin.call("cluster.snapshot");
		const node = nodes.find((one) => one.local === local && one.state === "online");
		const found = devices.find((one) => one.node_id === node?.node_id && one.backend === "cpu" && one.verification.state === "passed");
		if (found) return found.device_id;
		await sleep(500);
	}
	throw new Error("no CPU device passed");
}

function begin(binary, args, ready) {
	const child = spawn(binary, args, { stdio: ["ignore", "pipe", "ignore"] });
	return new Promise((done, fail) => {
		let text = "";
		child.once("exit", (code) => fail(new Error(`exogpu ${args[0]} ended with ${code}`)));
		child.stdout.on("data", (bytes) => {
			text += bytes;
			if (ready.test(text)) done({ child, found: ready.exec(text) });
		});
	});
}

// What a copy between the two brings, by the server. With a connection of its own: this program answers no pings while
// another runs.
async function copies(path, from, to, rounds) {
	const admin = await owner(path);
	const ids = [];
	for (const device_id of [from, to]) ids.push((await admin.call("memory.allocate", { device_id, bytes: GiB / 4 })).allocation_id);
	const rates = [];
	for (let round = 0; round <= rounds; round++) {
		const begun = performance.now();
		await admin.call("memory.copy", { from: ids[0], from_offset: 0, to: ids[1], to_offset: 0, bytes: GiB / 4 });
		if (round) rates.push(GiB / 4 / 1e3 / (performance.now() - begun)); // the first one touches the memory
	}
	for (const allocation_id of ids) await admin.call("memory.free", { allocation_id });
	admin.close();
	return rates;
}

export async function benchRemote({ work, binary, rounds, median }) {
	const data = join(work, "remote-server"), far = join(work, "remote-node"), socket = join(data, "exogpu.sock");
	for (const folder of [data, far]) rmSync(folder, { recursive: true, force: true });
	const server = await begin(binary, ["serve", "--data", data, "--listen", "0.0.0.0:0", "--log-level", "error"], /dashboard: https:.*:(\d+)\/\S*\n/);
	const admin = await owner(socket);
	const { ticket } = await admin.call("node.ticket");
	const node = spawn(binary, ["node", "--join", `127.0.0.1:${server.found[1]}`, "--ticket", ticket, "--data", far, "--backends", "cpu", "--log-level", "error"],
		{ stdio: "ignore" });
	try {
		const [near, there] = [await cpuOf(admin, true), await cpuOf(admin, false)];
		const token = readFileSync(join(data, "admin.token"), "utf8").trim(), rows = new Map();
		const note = (row, program, args) => rows.set(row, [...(rows.get(row) ?? []), JSON.parse(execFileSync(join(work, program), args, { encoding: "utf8" }))]);
		const whole = ["exogpu", socket, token, String(server.child.pid)], sizes = [65536, 262144, 1048576, 4194304];
		for (let round = 0; round < rounds; round++)
			for (const way of ["write", "read"]) {
				for (const size of sizes) {
					note(`${way} ${size} near`, "transfer", ["-p", String(size), way, ...whole, near]);
					note(`${way} ${size} far`, "transfer", ["-p", String(size), way, ...whole, there, String(node.pid)]);
				}
				note(`${way} tls`, "tls", ["-t", String(GiB / 2), way, "dial"]);
			}
		const figure = (row, field, digits) => median(rows.get(row).map((one) => one[field] ?? 0)).toFixed(digits);
		console.log(`\n### A device of another node, by TLS on loopback, medians of ${rounds}\n`);
		console.log("| MB/s | own node | by TLS | of it | client | server | node | worker |\n|---|---|---|---|---|---|---|---|");
		for (const way of ["write", "read"])
			for (const size of sizes) {
				const row = `${way} ${size} far`, ratio = 100 * figure(row, "mb_per_s", 1) / figure(`${way} ${size} near`, "mb_per_s", 1);
				const cpu = ["client", "server", "node", "worker"].map((one) => figure(row, `${one}_s_per_gb`, 2));
				const title = `${way}, ${size < 1048576 ? `${size / 1024} KiB` : `${size / 1048576} MiB`}`;
				console.log(`| ${[title, figure(`${way} ${size} near`, "mb_per_s", 0), figure(row, "mb_per_s", 0), `${ratio.toFixed(0)} %`, ...cpu].join(" | ")} |`);
			}
		for (const way of ["write", "read"]) {
			const [rate, client, other] = [["mb_per_s", 0], ["client_s_per_gb", 2], ["server_s_per_gb", 2]].map(([field, digits]) => figure(`${way} tls`, field, digits));
			console.log(`| TLS alone, ${way}, 1 MiB | | ${rate} | | ${client} | ${other} | | |`);
		}
		for (const [title, from, to] of [["memory.copy to the other node", near, there], ["memory.copy from it", there, near]])
			console.log(`| ${title}, 256 MiB | | ${median(await copies(socket, from, to, rounds)).toFixed(0)} | | | | | |`);
	} finally {
		admin.close();
		for (const child of [node, server.child]) {
			child.kill("SIGTERM");
			await once(child, "exit");
		}
	}
}
