// Runs the benches of the server and prints each as a table in Markdown, ready for docs/performance.md.
//   node tests/bench/run.mjs WORKDIR [fanout] [start] [node] [device] [transfer] [audit] [reliability] [tls] [remote] [clients] [abuse [--busy N] [--rounds N] [--only TEXT]]
// Every figure is the median of 5 rounds; the rounds of what is compared are interleaved, so that a noisy neighbour
// disturbs all alike. With two CPUs or more the server is held to CPU 0 and the client to CPU 1, but for transfers,
// which several processes share in.
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { benchAbuse, benchClients } from "./abuse.mjs";
import { benchRemote } from "./remote.mjs";

const work = process.argv[2];
const wanted = process.argv.slice(3);
const binary = resolve(process.env.EXOGPU_BINARY ?? "build/exogpu");
const rounds = 5;

// Of abuse: --busy N, --rounds N, --only TEXT; they are taken out of what is wanted.
function abuseOptions() {
	return Object.fromEntries(["busy", "rounds", "only"].filter((name) => option[name] !== undefined).map((name) => {
		const number = Number(option[name]);
		if (name !== "only" && !(Number.isInteger(number) && number >= 0 && (number || name === "busy"))) throw new Error(`--${name} is no number: ${option[name]}`);
		return [name, name === "only" ? option[name] : number];
	}));
}
const option = {};
for (let at; (at = wanted.findIndex((one) => one.startsWith("--"))) >= 0;) {
	const [name, value] = wanted.splice(at, 2);
	if (!["--busy", "--rounds", "--only"].includes(name) || value === undefined) throw new Error(`not understood: ${name}`);
	option[name.slice(2)] = value;
}
const wants = (name) => wanted.length === 0 || wanted.some((one) => one.split(":")[0] === name);
const median = (values) => values.slice().sort((a, b) => a - b)[Math.floor(values.length / 2)];
const pinned = cpus().length > 1;
const pin = (cpu, command, args) => (pinned ? ["taskset", ["-c", String(cpu), command, ...args]] : [command, args]);

function start(cpu, command, args, options = {}) {
	const [program, all] = pin(cpu, command, args);
	return spawn(program, all, { stdio: ["ignore", "pipe", "ignore"], ...options });
}

function stop(child) {
	return new Promise((done) => {
		if (child.exitCode !== null) return done();
		child.once("exit", done);
		child.kill("SIGTERM");
	});
}

// Resolves with the milliseconds from the start of the process to its ready line, and the port it names.
function serve(data, more = [], held = true, listen = "127.0.0.1:0") {
	const begun = process.hrtime.bigint();
	const args = ["serve", "--data", data, "--listen", listen, ...more];
	const child = held ? start(0, binary, args) : spawn(binary, args, { stdio: ["ignore", "pipe", "ignore"] });
	return new Promise((done, fail) => {
		let text = "";
		child.once("exit", (code) => fail(new Error(`exogpu serve ended with ${code}`)));
		child.stdout.on("data", (bytes) => {
			text += bytes;
			const port = text.match(/dashboard: https?:\/\/[^/]*:(\d+)/);
			if (port) done({ child, port: port[1], ms: Number(process.hrtime.bigint() - begun) / 1e6 });
		});
	});
}

function residentKiB(pid) {
	return Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]) * 4;
}

// Nanoseconds of CPU that all threads of a process have used.
function cpuNs(pid) {
	return readdirSync(`/proc/${pid}/task`)
		.map((thread) => Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0]))
		.reduce((sum, one) => sum + one, 0);
}

function fanout(args) {
	const [program, all] = pin(1, join(work, "fanout"), args);
	return JSON.parse(execFileSync(program, all, { encoding: "utf8" }));
}

async function nchan() {
	const dir = join(work, "nginx");
	const port = 20000 + Math.floor(Math.random() * 20000);
	rmSync(dir, { recursive: true, force: true });
	mkdirSync(dir);
	const module = ["/usr/lib/nginx/modules/ngx_nchan_module.so"].find(existsSync);
	writeFileSync(
		join(dir, "nginx.conf"),
		`load_module ${module}; daemon off; master_process off; pid ${dir}/pid; error_log ${dir}/error.log;
		events { worker_connections 8192; }
		http { access_log off; client_body_temp_path ${dir}/b; proxy_temp_path ${dir}/p; fastcgi_temp_path ${dir}/f;
		uwsgi_temp_path ${dir}/u; scgi_temp_path ${dir}/s; keepalive_requests 1000000000;
		server { listen 127.0.0.1:${port};
		location ~ ^/pub/(\\w+)$ { nchan_publisher; nchan_channel_id $1; nchan_message_buffer_length 0; }
		location ~ ^/sub/(\\w+)$ { nchan_subscriber websocket; nchan_channel_id $1; nchan_subscriber_first_message newest; } } }`,
	);
	const child = start(0, "nginx", ["-c", join(dir, "nginx.conf"), "-p", dir]);
	await sleep(500);
	return { child, port };
}

async function benchFanout() {
	const peer = existsSync("/usr/lib/nginx/modules/ngx_nchan_module.so");
	if (!peer) console.log("\nSKIPPED: nchan (apt-get install nginx-light libnginx-mod-nchan); the ratio to it is missing below.");
	for (const rate of [10, 100]) {
		const results = { raw: [], exogpu: [], nchan: [] };
		const common = ["-n", "1000", "-r", String(rate), "-d", rate === 10 ? "8" : "4", "-s", "2048"];
		for (let round = 0; round < rounds; round++) {
			results.raw.push(fanout([...common, "raw"]));
			const data = join(work, "fanout-data");
			rmSync(data, { recursive: true, force: true });
			const server = await serve(data, ["--no-local-node", "--log-level", "error"]);
			const token = readFileSync(join(data, "admin.token"), "utf8").trim();
			results.exogpu.push(fanout([...common, "exogpu", join(data, "exogpu.sock"), server.port, token, String(server.child.pid)]));
			await stop(server.child);
			if (!peer) continue;
			const nginx = await nchan();
			results.nchan.push(fanout([...common, "nchan", String(nginx.port), String(nginx.child.pid)]));
			await stop(nginx.child);
		}
		const figure = (mode, name) => median(results[mode].map((one) => one[name]));
		console.log(`\n### Fan-out: 2 KB to 1,000 subscribers at ${rate} Hz, medians of ${rounds}\n`);
		console.log("| | CPU µs per delivery | times bare send | p50 ms | p99 ms | resident MB | delivered |");
		console.log("|---|---|---|---|---|---|---|");
		for (const mode of ["raw", "exogpu", "nchan"]) {
			if (!results[mode].length) continue;
			const cpu = figure(mode, "cpu_us_per_delivery");
			const names = { raw: "bare send()", exogpu: "**exogpu**", nchan: "nginx nchan" };
			const cells = [
				names[mode],
				cpu.toFixed(2),
				(cpu / figure("raw", "cpu_us_per_delivery")).toFixed(2),
				figure(mode, "p50_ms").toFixed(2),
				figure(mode, "p99_ms").toFixed(2),
				(figure(mode, "resident_kib") / 1024).toFixed(1),
				`${(100 * figure(mode, "delivered_share")).toFixed(1)} %`,
			];
			console.log(`| ${cells.join(" | ")} |`);
		}
	}
}

async function benchStart() {
	const maker = ["build/tests/make_history", "build/debug/tests/make_history"].map((path) => resolve(path)).find(existsSync);
	if (!maker) return console.log("\nSKIPPED: start with history (make_history is not built: cmake --preset debug and build)");
	const data = join(work, "history-data");
	console.log("\n### Start: 1,000 devices and 30 days of history\n");
	const made = process.hrtime.bigint();
	execFileSync(maker, [data, "1000", "30"], { stdio: ["ignore", "ignore", "inherit"] });
	console.log(`made in ${(Number(process.hrtime.bigint() - made) / 1e9).toFixed(0)} s\n`);
	const times = [];
	const resident = [];
	for (let round = 0; round < rounds; round++) {
		const server = await serve(data, ["--no-local-node", "--log-level", "error"]);
		times.push(server.ms);
		await sleep(500);
		resident.push(residentKiB(server.child.pid));
		await stop(server.child);
	}
	const empty = [];
	for (let round = 0; round < rounds; round++) {
		const fresh = join(work, "empty-data");
		rmSync(fresh, { recursive: true, force: true });
		const server = await serve(fresh, ["--no-local-node", "--log-level", "error"]);
		empty.push(server.ms);
		await stop(server.child);
	}
	console.log("| | process start to ready, ms | resident MB |");
	console.log("|---|---|---|");
	console.log(`| empty data directory | ${median(empty).toFixed(0)} | |`);
	console.log(`| 1,000 devices, 30 days | ${median(times).toFixed(0)} | ${(median(resident) / 1024).toFixed(1)} |`);
}

async function benchNode() {
	const seconds = 20;
	const shares = [];
	const resident = [];
	for (let round = 0; round < 3; round++) {
		const data = join(work, "node-data");
		rmSync(data, { recursive: true, force: true });
		const server = await serve(data, ["--log-level", "error"]);
		const token = readFileSync(join(data, "admin.token"), "utf8").trim();
		const { WebSocket } = await import("../node_modules/ws/wrapper.mjs");
		const socket = new WebSocket(`ws://127.0.0.1:${server.port}/ws`, "exogpu.v1", { headers: { authorization: `Bearer ${token}` } });
		await new Promise((done) => socket.once("open", done));
		socket.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "events.subscribe", params: { topics: ["telemetry"] } }));
		await sleep(6000); // until everything is found and verified
		const children = readFileSync(`/proc/${server.child.pid}/task/${server.child.pid}/children`, "utf8").trim().split(" ");
		const before = cpuNs(children[0]);
		await sleep(seconds * 1000);
		shares.push((cpuNs(children[0]) - before) / (seconds * 1e9));
		resident.push(residentKiB(children[0]));
		socket.close();
		await stop(server.child);
	}
	console.log("\n### Node: watched, one sample a second\n");
	console.log("| | share of one core | resident MB |");
	console.log("|---|---|---|");
	console.log(`| node process | ${(100 * median(shares)).toFixed(2)} % | ${(median(resident) / 1024).toFixed(1)} |`);
}

// The device to transfer to, once it is verified: by id, by a part of its name, or the CPU. Null: there is none.
async function findDevice(data, token, name) {
	const { WebSocket } = await import("../node_modules/ws/wrapper.mjs");
	const socket = new WebSocket(`ws+unix:${join(data, "exogpu.sock")}:/ws`, "exogpu.v1", { headers: { authorization: `Bearer ${token}` } });
	await new Promise((done) => socket.once("open", done));
	try {
		for (let i = 0; i < 120; i++) {
			socket.send(JSON.stringify({ jsonrpc: "2.0", id: i, method: "cluster.snapshot", params: {} }));
			const answer = await new Promise((done) => socket.once("message", (text) => done(JSON.parse(text))));
			const devices = answer.result?.devices ?? [];
			const fits = (one) => (name ? one.device_id === name || one.name.includes(name) : one.backend === "cpu");
			const found = devices.find((one) => fits(one) && one.verification.state === "passed");
			if (found) return found;
			await sleep(500);
		}
		return null;
	} finally {
		socket.close();
	}
}

async function benchTransfer(tls) {
	const device = wanted.find((one) => one.startsWith("transfer:"))?.slice("transfer:".length);
	const data = join(work, "transfer-data");
	rmSync(data, { recursive: true, force: true });
	const server = await serve(data, ["--log-level", "error"], false, tls ? "0.0.0.0:0" : undefined);
	try {
		const token = readFileSync(join(data, "admin.token"), "utf8").trim();
		const found = await findDevice(data, token, device);
		if (!found) return console.log(`\nSKIPPED: transfer (no verified device ${device ?? "of the cpu back end"})`);
		transferTables(["exogpu", server.port, token, String(server.child.pid), found.device_id], found.name, tls);
	} finally {
		await stop(server.child);
	}
}

function transferTables(whole, name, tls) {
	const call = (program, args) => JSON.parse(execFileSync(join(work, program), args, { encoding: "utf8" }));
	const run = (args) => call("transfer", tls ? ["-s", "-t", String(2 ** 28), ...args] : args);
	const pieces = [65536, 262144, 1048576, 4194304];
	const rows = new Map();
	const note = (row, result) => rows.set(row, [...(rows.get(row) ?? []), result]);
	const both = (row, args) => {
		note(`${row} whole`, run([...args, ...whole]));
		note(`${row} bare`, run([...args, "bare"]));
	};
	for (let round = 0; round < rounds; round++) {
		for (const floor of tls ? [] : ["memcpy", "tcp", "unix"]) note(floor, run([floor]));
		for (const way of tls ? ["write", "read"] : []) note(`one TLS socket, ${way}`, call("tls", ["-t", String(2 ** 28), way, "socket"]));
		for (const piece of round % 2 ? pieces.slice().reverse() : pieces)
			for (const way of ["write", "read"]) both(`${way} ${piece}`, ["-p", String(piece), way]);
		both("launch", ["launch"]);
	}
	const figure = (row, field, digits) => median(rows.get(row).map((one) => one[field])).toFixed(digits);
	const size = (bytes) => (bytes < 1048576 ? `${bytes / 1024} KiB` : `${bytes / 1048576} MiB`);
	console.log(`\n### Transfer to and from ${name}${tls ? " by TLS" : ""}, medians of ${rounds}\n`);
	console.log("| | MB/s | of the bare hop | client | server | worker |");
	console.log("|---|---|---|---|---|---|");
	const line = (title, row, ratio) => {
		const cpu = ["client", "server", "worker"].map((one) => (rows.get(row)[0][`${one}_s_per_gb`] ? figure(row, `${one}_s_per_gb`, 2) : ""));
		console.log(`| ${[title, figure(row, "mb_per_s", 0), ratio, ...cpu].join(" | ")} |`);
	};
	for (const [title, row] of [["memcpy", "memcpy"], ["one TCP socket", "tcp"], ["one Unix socket", "unix"]]) if (!tls) line(title, row, "");
	for (const way of tls ? ["write", "read"] : []) line(`one socket with OpenSSL, ${way}, 1 MiB`, `one TLS socket, ${way}`, "");
	for (const way of ["write", "read"]) {
		for (const piece of pieces) {
			const [mine, bare] = [`${way} ${piece} whole`, `${way} ${piece} bare`];
			line(`bare hop, ${way}, ${size(piece)}`, bare, "");
			line(`**memory.${way}**, ${size(piece)}`, mine, `${((100 * figure(mine, "mb_per_s", 1)) / figure(bare, "mb_per_s", 1)).toFixed(0)} %`);
		}
	}
	console.log("\nClient, server and worker: CPU seconds for each GB.\n\n| | median µs | p99 µs |\n|---|---|---|");
	for (const [title, row] of [["bare echo", "launch bare"], ["**compute.launch** of fill_f32, n = 1", "launch whole"]])
		console.log(`| ${title} | ${figure(row, "p50_us", 0)} | ${figure(row, "p99_us", 0)} |`);
}

function benchTls() {
	const kinds = [
		["socket", "one socket with OpenSSL"],
		["library", "libwebsockets"],
		["net", "**exogpu's loop**, client OpenSSL"],
		["dial", "**exogpu's loop**, both ends"],
	];
	const rows = new Map();
	for (let round = 0; round < rounds; round++)
		for (const way of ["write", "read"])
			for (const [kind] of kinds) {
				const text = execFileSync(join(work, "tls"), [way, kind], { encoding: "utf8" });
				rows.set(`${way} ${kind}`, [...(rows.get(`${way} ${kind}`) ?? []), JSON.parse(text)]);
			}
	console.log(`\n### TLS 1.3, AES-128-GCM, messages of 1 MiB on loopback, medians of ${rounds}\n`);
	console.log("| | MB/s | client | server |\n|---|---|---|---|");
	for (const way of ["write", "read"])
		for (const [kind, title] of kinds) {
			const figure = (field) => median(rows.get(`${way} ${kind}`).map((one) => one[field]));
			const cpu = ["client", "server"].map((one) => figure(`${one}_s_per_gb`).toFixed(2));
			console.log(`| ${[`${title}, ${way}`, figure("mb_per_s").toFixed(0), ...cpu].join(" | ")} |`);
		}
	console.log("\nClient and server: CPU seconds for each GB.");
}

// A program of the tests' build: of the release build where that has them, else of the debug one.
function built(name) {
	const path = ["build/tests", "build/debug/tests"].map((folder) => resolve(folder, name)).find(existsSync);
	if (!path) console.log(`\nSKIPPED: ${name} is not built: cmake --preset debug and build`);
	return path;
}

function benchAudit() {
	const program = built("bench_audit");
	for (const what of program ? ["mutations", "verify"] : []) {
		const data = join(work, `audit-${what}`);
		mkdirSync(data);
		execFileSync(program, [what, data], { stdio: "inherit" });
		rmSync(data, { recursive: true });
	}
}

// What CI tries a part of, tried whole: 1,000 kills, a fault at every call, every bit. Hours; only when asked for.
function tryReliability() {
	execFileSync("node", ["tests/bench/kills.mjs"], { stdio: "inherit", env: { ...process.env, EXOGPU_BINARY: binary } });
	for (const [test, env] of [["audit/test_audit_crash", { EXOGPU_CYCLES: "300" }], ["audit/test_audit_faults", { EXOGPU_EVERY: "1" }],
		["audit/test_audit_attacks", { EXOGPU_TABLE: "1" }], ["audit/test_audit_bits", { EXOGPU_EVERY: "1" }], ["test_power", { EXOGPU_EVERY: "1" }],
		["test_sqlite_faults", { EXOGPU_EVERY: "5" }], ["test_sums", { EXOGPU_EVERY: "97" }]]) {
		const program = built(`unit_server_store_${test.replace("/", "_")}`);
		if (program) execFileSync(program, { stdio: "inherit", env: { ...process.env, ...env } });
		else process.exitCode = 1; // what was asked for was not tried
	}
}

console.log(`${cpus()[0].model}, ${cpus().length} CPUs, node ${process.version}; load at the start ${readFileSync("/proc/loadavg", "utf8").split(" ")[0]}`);
if (wants("fanout")) await benchFanout();
if (wants("start")) await benchStart();
if (wants("node")) await benchNode();
if (wants("device")) execFileSync(join(work, "device"), { stdio: "inherit" });
if (wants("transfer")) for (const tls of [false, true]) await benchTransfer(tls);
if (wants("tls")) benchTls();
if (wants("remote")) await benchRemote({ work, binary, rounds, median });
if (wants("clients")) await benchClients({ work, binary });
if (wants("abuse")) await benchAbuse({ work, binary, ...abuseOptions() });
if (wants("audit")) benchAudit();
if (wanted.includes("reliability")) tryReliability();
