// A real server in a directory of its own, on a port that the system chooses; and plain HTTP against it.
//
// The binary is the one that EXOGPU_BINARY names, else the release build's. EXOGPU_SLOW stretches every time limit, for
// builds with sanitizers. Nothing waits a fixed time: what is waited for is an event, a line or an exit.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import net from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";

// What a worker measures its devices with as it starts: up to 1 GiB otherwise, by the size of the processor's cache, which
// takes seconds of a processor in each of hundreds of workers. tests/api/local_node.test.mjs has all of it.
process.env.EXOGPU_TEST_STREAM_BYTES ??= String(16 << 20);

export const binary = process.env.EXOGPU_BINARY ?? fileURLToPath(new URL("../../build/exogpu", import.meta.url));
export const slow = Number(process.env.EXOGPU_SLOW ?? 1);
// For what takes milliseconds, or a call that waits for others, on a machine with ten times as much to do as it can.
export const patience = 30000 * slow;

if (!existsSync(binary)) throw new Error(`there is no program to test at ${binary}; ./dev build, or set EXOGPU_BINARY`);

export function temporary() {
	const path = mkdtempSync(join(tmpdir(), "exogpu-api-"));
	process.on("exit", () => rmSync(path, { recursive: true, force: true }));
	return path;
}

// `promise`, or an error that says what did not happen in time. The timer of what never settles, such as a call whose
// answer somebody else took, keeps no process: that took every suite with such a call minutes at its end.
export function within(promise, what, ms = patience) {
	let timer;
	const late = new Promise((_, reject) => {
		timer = setTimeout(() => reject(new Error(`not within ${ms} ms: ${typeof what === "function" ? what() : what}`)), ms);
	});
	timer.unref();
	return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// Try until `probe` gives something true. For what tells nobody when it happens.
export async function eventually(probe, what, ms = patience) {
	const until = Date.now() + ms;
	for (;;) {
		const value = await probe();
		if (value) return value;
		if (Date.now() > until) throw new Error(`not within ${ms} ms: ${typeof what === "function" ? what() : what}`);
		await new Promise((resolve) => setTimeout(resolve, 20));
	}
}

// A port for a server that is started again at the same place. Not one of those that the system gives to whoever asks for
// any: another test could get it while the server is away. Where the search begins depends on the process.
let lastPort = 0;
export async function freePort() {
	const [first] = readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8").trim().split(/\s+/).map(Number);
	const least = 10000, count = first - least;
	if (count < 1000) throw new Error(`the system gives away ports from ${first} on`);
	lastPort ||= least + (process.pid * 61) % count;
	for (let tries = 0; tries < count; tries++) {
		lastPort = lastPort + 1 < first ? lastPort + 1 : least;
		const taken = await new Promise((resolve) => {
			const probe = net.createServer().once("error", () => resolve(true));
			probe.listen(lastPort, "0.0.0.0", () => probe.close(() => resolve(false)));
		});
		if (!taken) return lastPort;
	}
	throw new Error("no port is free");
}

// A test that fails leaves its server behind; the runner would wait for it.
const running = new Set();
after(() => running.forEach((child) => child.kill("SIGKILL")));

// A test's own processes may stand still for longer than the 8 s after which a silent node is given up. A test of these 8 s
// gives EXOGPU_TEST_NODE_SILENCE_S: "" to what it starts (common/base/longer.h).
export function launch(args, env = {}, program = binary) {
	const child = spawn(program, args, {
		stdio: ["ignore", "pipe", "pipe"], env: { EXOGPU_SPARES: "off", EXOGPU_TEST_NODE_SILENCE_S: "300", ...process.env, EXOGPU_DATA: "", EXOGPU_TOKEN: "", EXOGPU_URL: "", ...env } });
	const output = { stdout: "", stderr: "" };
	running.add(child);
	for (const name of ["stdout", "stderr"]) child[name].setEncoding("utf8").on("data", (text) => (output[name] += text));
	const exited = once(child, "close").then(([code, signal]) => {
		running.delete(child);
		return { code, signal, ...output };
	});
	return { child, output, exited };
}

// The program run to its end: {code, signal, stdout, stderr}.
export async function run(args, env) {
	const { child, exited } = launch(args, env);
	return within(exited, `exogpu ${args.join(" ")} ends`, patience).finally(() => child.kill("SIGKILL"));
}

// A directory that no server has used gets a database of its own in a PostgreSQL: tests/postgres.py runs any suite so.
export function useDatabase(data, folder, programs) {
	if (existsSync(join(data, "store")) || existsSync(join(data, "state.db"))) return;
	const name = basename(data);
	execFileSync(join(programs, "createdb"), ["-h", folder, "-U", "exogpu", name]);
	mkdirSync(data, { recursive: true, mode: 0o700 });
	writeFileSync(join(data, "store"), `postgres://exogpu@/${name}?host=${folder}\n`, { mode: 0o600 });
}

export async function startServer({ data = temporary(), listen = "127.0.0.1:0", args = [], env, localNode = false, under = [] } = {}) {
	const started = performance.now();
	if (process.env.EXOGPU_TEST_POSTGRES) useDatabase(data, process.env.EXOGPU_TEST_POSTGRES, process.env.EXOGPU_TEST_POSTGRES_BIN);
	const [program, ...before] = [...under, binary]; // `under`: what runs it, with its arguments
	const { child, output, exited } = launch(
		[...before, "serve", "--data", data, "--listen", listen, ...(localNode ? [] : ["--no-local-node"]), ...args], env, program);
	const ready = new Promise((resolve) => child.stdout.on("data", () => {
		const line = /^dashboard: (\S+)$/m.exec(output.stdout);
		if (line && /^token: /m.test(output.stdout)) resolve(line[1]);
	}));
	const early = exited.then(({ code, stderr }) => {
		throw new Error(`the server ended at its start with ${code}: ${stderr}`);
	});
	early.catch(() => {});
	const url = new URL(await within(Promise.race([ready, early]), () => `ready; it said: ${output.stderr}`, patience));
	const server = {
		data, child, output, exited, url, port: Number(url.port), socket: join(data, "exogpu.sock"),
		// Off loopback it speaks TLS, by its own authority, also to who comes by 127.0.0.1.
		ca: url.protocol === "https:" ? readFileSync(join(data, "tls", "authority.pem")) : undefined,
		readyMs: performance.now() - started,
		token: readFileSync(join(data, "admin.token"), "utf8").trim(),
		http: (path, options) => request(server, path, options),
		// SIGTERM, and how it ended: {code, signal, ms, stderr}.
		async stop(signal = "SIGTERM") {
			const begun = performance.now();
			child.kill(signal);
			const end = await within(exited, () => `the server ends after ${signal}; it said: ${output.stderr}`, patience);
			return { ...end, ms: performance.now() - begun };
		},
		// What others of its user can read of the environment that it was started with.
		environment: () => readFileSync(`/proc/${child.pid}/environ`, "utf8"),
		residentBytes() {
			const [, pages] = readFileSync(`/proc/${child.pid}/statm`, "utf8").split(" ");
			return Number(pages) * 4096;
		},
	};
	// Its end is checked too: that is where the sanitizers say what was leaked.
	server.finish = async () => {
		const { code, signal, stderr } = await server.stop();
		if (code !== 0) throw new Error(`the server ended with ${code ?? signal}: ${stderr.slice(-4000)}`);
		const wrong = /^.*Please report this.*$/m.exec(stderr);
		if (wrong) throw new Error(`the server did what it must not: ${wrong[0]}`);
	};
	return server;
}

// The data of each event of a streamed answer, as text, to its [DONE].
export async function* streamedData(response) {
	const decoder = new TextDecoder();
	let rest = "";
	for await (const bytes of response.body) {
		rest += decoder.decode(bytes, { stream: true });
		for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) yield rest.slice(6, end);
	}
}

// One HTTP exchange: {status, headers, body (Buffer), text, json(), port (the client's)}.
export function request(server, path, { method = "GET", headers = {}, body, unix = false, agent, ms } = {}) {
	const where = unix ? { socketPath: server.socket } : { host: "127.0.0.1", port: server.port, ca: server.ca };
	const exchange = new Promise((resolve, reject) => {
		const outgoing = (server.ca && !unix ? https : http).request({ ...where, path, method, headers, agent }, (incoming) => {
			const pieces = [], port = incoming.socket.localPort;
			incoming.on("data", (piece) => pieces.push(piece));
			incoming.on("error", reject);
			incoming.on("end", () => {
				const bytes = Buffer.concat(pieces);
				resolve({ status: incoming.statusCode, headers: incoming.headers, body: bytes, text: bytes.toString("utf8"),
					json: () => JSON.parse(bytes.toString("utf8")), port });
			});
		});
		outgoing.on("error", reject);
		outgoing.end(body);
	});
	return within(exchange, `${method} ${path} is answered`, ms);
}

// A bare TCP connection with what came over it, for requests that no client library would send.
export function connectRaw(server, text) {
	const socket = net.connect(server.port, "127.0.0.1");
	const raw = { socket, received: "", ended: once(socket, "close").then(() => raw.received) };
	socket.on("error", () => {}); // shows as its end
	socket.setEncoding("latin1").on("data", (piece) => (raw.received += piece));
	if (text) socket.write(text, "latin1");
	raw.until = (pattern) => within(new Promise((resolve, reject) => {
		const look = () => pattern.test(raw.received) && resolve(raw.received);
		socket.on("data", look);
		raw.ended.then(() => (pattern.test(raw.received) ? resolve(raw.received) : reject(
			new Error(`closed before ${pattern}; came: ${JSON.stringify(raw.received.slice(0, 400))}`))));
		look();
	}), () => `${pattern} comes; came: ${JSON.stringify(raw.received.slice(0, 400))}`);
	return raw;
}

export const upgradeHead = (server, path = "/ws", more = "") =>
	`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
	`Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n${more}\r\n`;
