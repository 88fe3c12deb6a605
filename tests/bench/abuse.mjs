// The effect of abusive clients on a well-behaved one: the 99th percentile of its calls while one kind of abuse goes
// on, beside the quiet value just before and after; and what log-ins, calls and idle clients cost.
//
// Of the processors that this process may use (taskset) the server has the first for itself where there are two; the
// client and the abusers are held to the others. That the client's own waiting for a processor is not taken for the
// server's, server and client go before whatever else the machine does, by SCHED_FIFO, where it lets us; elsewhere the
// abusers have nice 19. A priority alone is not enough: whoever computes may finish its slice of some milliseconds first.
// How long the client waited for its processor in each call is measured, too, and shown beside. Each
// attacked time stands between two quiet ones of half its length, so that a machine that others use moves both, and
// medians of three rounds are shown; the quiet time after one attack is that before the next. How much of these
// processors others used meanwhile stands in each row.
//
// Beside the client that is there already others come anew all the time, each with a connection and a request of its
// own,
// from the address that the attack comes from, too: how many were answered, and their 99th percentile.
//
// With --busy N as many processes that only compute run beside all this, quiet times included, and nobody is hurried or
// gives way: what is found then is what a machine shows whose owner uses it for other things.
import { execFileSync, fork, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import { existsSync, readFileSync, rmSync } from "node:fs";
import net from "node:net";
import { cpus } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import tls from "node:tls";
import { fileURLToPath } from "node:url";

const seconds = 4, everyMs = 5, comeMs = 50, mostRatio = 3;

// The processors that this process may use at its start: "0-2,5" is [0, 1, 2, 5].
const allowed = () => execFileSync("taskset", ["-cp", String(process.pid)], { encoding: "utf8" }).split(":")[1].trim();
const ours = allowed().split(",").flatMap((range) => {
	const [from, to = from] = range.split("-").map(Number);
	return Array.from({ length: to - from + 1 }, (_, i) => from + i);
});

// ---- frames and connections, raw: what is wrong here no library would send ----

function frame(payload, { opcode = 1, last = true, masked = true } = {}) {
	const bytes = Buffer.from(payload), size = bytes.length;
	const head = [opcode | (last ? 0x80 : 0)], mask = masked ? 0x80 : 0;
	if (size < 126) head.push(mask | size);
	else if (size < 65536) head.push(mask | 126, size >> 8, size & 255);
	else head.push(mask | 127, 0, 0, 0, 0, size >>> 24, (size >> 16) & 255, (size >> 8) & 255, size & 255);
	return Buffer.concat([Buffer.from(head), masked ? Buffer.alloc(4) : Buffer.alloc(0), bytes]); // a mask of zeros
}

const call = (id, method, params = {}) => JSON.stringify({ jsonrpc: "2.0", id, method, params });

// process.env.BY_TLS is set for abusers of a server that speaks it; certificates are not what is measured here.
// `from`: the last figure of the loopback address that it comes from.
let connections = 0;
function connect(port, from = 1) {
	connections++;
	const where = { port, host: "127.0.0.1", localAddress: `127.0.0.${from}` };
	const socket = process.env.BY_TLS ? tls.connect({ ...where, rejectUnauthorized: false }) : net.connect(where);
	socket.on("error", () => {}); // shows as its end
	return socket;
}

// When it happens. `once` would throw where the server closes a connection with a reset, and end the abuser.
const happens = (socket, what) => new Promise((done) => socket.once(what, done));

const upgrade = (port, more = "", host = `127.0.0.1:${port}`) =>
	`GET /ws HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n` +
	`Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}\r\nSec-WebSocket-Protocol: exogpu.v1\r\n${more}\r\n`;

async function opened({ port, token }) {
	const socket = connect(port);
	socket.write(upgrade(port, token ? `Authorization: Bearer ${token}\r\n` : ""));
	await Promise.race([happens(socket, "data"), happens(socket, "close"), sleep(1000)]);
	return socket;
}

// Write for as long as the connection takes it, then open another.
async function flood(aim, piece, lasts = Infinity) {
	for (;;) {
		const socket = await opened(aim);
		socket.resume();
		const until = Date.now() + lasts;
		while (!socket.destroyed && socket.writable && Date.now() < until)
			if (socket.write(piece)) await sleep(0);
			else await Promise.race([happens(socket, "drain"), happens(socket, "close"), sleep(200)]);
		socket.destroy();
		await sleep(5);
	}
}

async function again(count, open) {
	await Promise.all(Array.from({ length: count }, async (_, i) => {
		for (;;) {
			await open(i);
			await sleep(1);
		}
	}));
}

const brief = (port, text) => async () => {
	const socket = connect(port);
	socket.write(text);
	await Promise.race([happens(socket, "data"), happens(socket, "close"), sleep(500)]);
	socket.destroy();
};

// One that says something at once, and then as little as keeps it there: a byte every 5 s. Many of them, from three
// addresses; those that are closed come again.
const drips = 4200, dripMs = 5000;
const drip = (port, begin, more) => again(drips, async (i) => {
	const socket = connect(port, 1 + (i % 3));
	socket.resume();
	socket.write(begin);
	while (!socket.destroyed && socket.writable) {
		await Promise.race([happens(socket, "close"), sleep(dripMs)]);
		if (more && socket.writable) socket.write(more);
	}
	socket.destroy();
	await sleep(200);
});

const postHead = (port, more = "") => `POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n${more}\r\n`;

const attacks = {
	"connections that say nothing": ({ port }) => again(500, async () => {
		const socket = connect(port);
		socket.resume();
		await Promise.race([happens(socket, "close"), sleep(3000)]);
		socket.destroy();
	}),
	"headers, a byte a tenth of a second": ({ port }) => again(200, async () => {
		const socket = connect(port);
		for (const letter of upgrade(port)) {
			if (socket.destroyed || !socket.writable) return;
			socket.write(letter);
			await sleep(100);
		}
	}),
	"clients that ask and never read": (aim) => again(20, async () => {
		const socket = await opened(aim);
		socket.pause();
		const piece = Buffer.concat(Array.from({ length: 200 }, (_, i) => frame(call(i, "cluster.snapshot"))));
		for (let i = 0; i < 200 && !socket.destroyed && socket.writable; i++) {
			socket.write(piece);
			await sleep(10);
		}
		socket.destroy();
	}),
	"fragments of one byte": (aim) => flood(aim, Buffer.concat([frame("{", { last: false }), ...Array.from({ length: 4000 }, () => frame(" ", { opcode: 0, last: false })), frame("}", { opcode: 0 })])),
	"a flood of pings": (aim) => flood(aim, Buffer.concat(Array.from({ length: 1000 }, () => frame("0123456789", { opcode: 9 })))),
	"calls as fast as they go": (aim) => flood(aim, Buffer.concat(Array.from({ length: 200 }, (_, i) => frame(call(i, "server.info"))))),
	"JSON of 64,000 levels": (aim) => flood(aim, frame("[".repeat(64000))),
	"frames that say they are 2^62 bytes": ({ port, token }) => again(20, brief(port, Buffer.concat([Buffer.from(upgrade(port, `Authorization: Bearer ${token}\r\n`)),
		Buffer.from([0x82, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])]))),
	"another Host, another Origin": ({ port }) => again(20, brief(port, upgrade(port, "Origin: https://evil.example\r\n", "evil.example"))),
	"frames without a mask": ({ port, token }) => again(20, brief(port, Buffer.concat([Buffer.from(upgrade(port, `Authorization: Bearer ${token}\r\n`)), frame("{}", { masked: false })]))),
	"a storm of reconnects, each logging in": (aim) => again(50, async () => (await opened(aim)).destroy()),
	"log-ins with wrong tokens": ({ port }) => again(20, async () => {
		const socket = await opened({ port });
		socket.write(frame(call(1, "auth.login", { token: `exo_0000000000_${"0".repeat(43)}_000000` })));
		await Promise.race([happens(socket, "data"), happens(socket, "close"), sleep(5000)]);
		socket.destroy();
	}),
	"bodies without a token, a byte every 5 s": ({ port }) => drip(port, postHead(port), " "),
	"bodies with a token, a byte every 5 s": ({ port, token }) => drip(port, postHead(port, `Authorization: Bearer ${token}\r\n`), " "),
	"headers, a byte every 5 s": ({ port }) => drip(port, "GET /healthz HTTP/1.1\r\nX: ", "a"),
	"connections kept for another request": ({ port }) => drip(port, `GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`),
	"subscribers that never read": (aim) => again(100, async () => {
		const socket = await opened(aim);
		socket.pause();
		socket.write(frame(call(1, "events.subscribe", { topics: ["inventory", "telemetry", "topology", "log", "audit"] })));
		await Promise.race([happens(socket, "close"), sleep(20000)]);
		socket.destroy();
	}),
	// A record that says it is longer than what comes: the server waits for the rest of a handshake.
	"handshakes that stop halfway": ({ port }) => again(drips, async (i) => {
		const socket = net.connect({ port, host: "127.0.0.1", localAddress: `127.0.0.${1 + (i % 3)}` });
		connections++;
		socket.on("error", () => {});
		socket.resume();
		socket.write(Buffer.from([22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]));
		await Promise.race([happens(socket, "close"), sleep(60000)]);
		socket.destroy();
		await sleep(200);
	}),
};

// ---- the measuring side ----

async function login(port, token, secure = false) {
	const { WebSocket } = await import("../node_modules/ws/wrapper.mjs");
	const socket = new WebSocket(`${secure ? "wss" : "ws"}://127.0.0.1:${port}/ws`, "exogpu.v1",
		{ headers: { authorization: `Bearer ${token}` }, perMessageDeflate: false, rejectUnauthorized: false });
	const waiting = new Map();
	let last = 0;
	let gone = null; // why the connection ended
	socket.on("error", () => {});
	socket.on("close", (code) => {
		gone = new Error(`the well-behaved client was closed with ${code}`);
		for (const { fail } of waiting.values()) fail(gone);
	});
	socket.on("message", (text) => {
		const { id, result, error } = JSON.parse(text);
		waiting.get(id)?.done(error ?? result);
		waiting.delete(id);
	});
	await new Promise((open, refused) => {
		socket.once("open", open);
		socket.once("close", (code) => refused(new Error(`a log-in was refused (${code})`)));
	});
	return {
		close: () => socket.terminate(),
		call: (method, params) => new Promise((done, fail) => {
			if (gone) return fail(gone);
			waiting.set(++last, { done, fail });
			socket.send(call(last, method, params));
		}),
	};
}

// Milliseconds that this thread could have run and had no processor, in all.
const waitedMs = () => Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8").split(" ")[1]) / 1e6;

// {taken: milliseconds of each call, waited: those of them in which we waited for a processor}
async function latencies({ port, own, secure }, lasts) {
	const client = await login(port, own, secure), taken = [], waited = [];
	for (const until = performance.now() + lasts * 1000; performance.now() < until; await sleep(everyMs)) {
		const before = waitedMs(), begun = performance.now();
		await client.call("memory.list");
		taken.push(performance.now() - begun);
		waited.push(waitedMs() - before);
	}
	client.close();
	return { taken, waited };
}

// Those who come anew: {taken: milliseconds of each that was answered with 200, tried}.
async function newcomers({ port, own, secure }, lasts) {
	const seen = { taken: [], tried: 0 }, under = [];
	const options = { port, host: "127.0.0.1", path: "/v1/models", agent: false, rejectUnauthorized: false, timeout: 10000,
		headers: { authorization: `Bearer ${own}`, connection: "close" } };
	const one = () => new Promise((done) => {
		const begun = performance.now();
		const request = (secure ? https : http).get(options, (response) => {
			response.resume();
			response.on("end", () => {
				if (response.statusCode === 200) seen.taken.push(performance.now() - begun);
				done();
			});
			response.on("error", done);
		});
		request.on("timeout", () => request.destroy());
		request.on("error", done);
	});
	for (const until = performance.now() + lasts * 1000; performance.now() < until; await sleep(comeMs)) {
		seen.tried++;
		under.push(one());
	}
	await Promise.all(under);
	return seen;
}

// The client's calls, and those who come meanwhile.
async function watch(aim, lasts) {
	const [{ taken, waited }, come] = await Promise.all([latencies(aim, lasts), newcomers(aim, lasts)]);
	return { calls: taken, waited, come };
}

function percentiles(taken) {
	taken.sort((a, b) => a - b);
	return { p50: taken[Math.floor(taken.length / 2)], p99: taken[Math.floor(taken.length * 0.99)] };
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

// Lets a process go before all others, but not those that it starts. False: the machine does not allow it.
function hurry(pid, goes = true) {
	try {
		execFileSync("chrt", goes ? ["-a", "-R", "-f", "-p", "1", String(pid)] : ["-a", "-o", "-p", "0", String(pid)], { stdio: "ignore" });
		return true;
	} catch {
		return false;
	}
}

function serve(binary, work, more = []) {
	const data = join(work, "abuse");
	rmSync(data, { recursive: true, force: true });
	const args = ["serve", "--data", data, ...(more.includes("--listen") ? [] : ["--listen", "127.0.0.1:0"]), "--no-local-node", "--log-level", "error", ...more];
	const env = existsSync(join(work, "turns.so")) ? { ...process.env, LD_PRELOAD: join(work, "turns.so"), TURNS_FILE: join(work, "turns") } : process.env;
	const options = { stdio: ["ignore", "pipe", "ignore"], env };
	const child = ours.length > 1 ? spawn("taskset", ["-c", String(ours[0]), binary, ...args], options) : spawn(binary, args, options);
	return new Promise((done, fail) => {
		let text = "";
		child.once("exit", (code) => fail(new Error(`exogpu serve ended with ${code}`)));
		child.stdout.on("data", (bytes) => {
			text += bytes;
			const ready = /^dashboard: https?:\/\/\S*?:(\d+)\S*\ntoken: /m.exec(text);
			if (ready) done({ child, port: Number(ready[1]), token: readFileSync(join(data, "admin.token"), "utf8").trim() });
		});
	});
}

const residentKiB = (pid) => Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]) * 4;

async function end(child) {
	child.kill("SIGTERM");
	await once(child, "exit");
}

// Seconds of processor that a process has used; 0 of one that has ended.
function cpuSeconds(pid) {
	if (!existsSync(`/proc/${pid}/stat`)) return 0;
	const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/.*\)/, "").split(" ");
	return (Number(fields[12]) + Number(fields[13])) / 100;
}

// Seconds that our processors were at work, for whomever.
const busySeconds = () => cpus().filter((_, i) => ours.includes(i)).reduce((sum, { times }) => sum + times.user + times.nice + times.sys + times.irq, 0) / 1000;

// How long the turns of the server's loop were since it was last asked, as tests/bench/turns.c tells: p99 and longest, in ms.
async function turns(work, child) {
	if (!existsSync(join(work, "turns.so"))) return null;
	child.kill("SIGUSR2");
	await sleep(100);
	const [, p99, longest] = readFileSync(join(work, "turns"), "utf8").split(" ");
	return { p99: Number(p99) / 1000, longest: Number(longest) / 1000 };
}

const byTls = ["connections that say nothing", "clients that ask and never read", "a flood of pings", "calls as fast as they go",
	"a storm of reconnects, each logging in", "bodies without a token, a byte every 5 s", "headers, a byte every 5 s",
	"connections kept for another request"];
const byTlsAlone = ["handshakes that stop halfway"];

// Processes that only compute, on any of the processors; ends them.
function occupy(count, processors) {
	const all = Array.from({ length: count }, () => spawn("taskset", ["-c", processors, process.execPath, "-e", "for (;;) ;"], { stdio: "ignore" }));
	const stop = () => all.forEach((one) => one.kill("SIGKILL"));
	process.on("exit", stop);
	return stop;
}

// Give all threads of this process, and whom it starts from now on, these processors.
const holdTo = (list) => execFileSync("taskset", ["-acp", list, String(process.pid)], { stdio: "ignore" });

const loadNow = () => readFileSync("/proc/loadavg", "utf8").split(" ").slice(0, 3).join(", ");

// How many connections the abuser has opened.
async function count(abuser) {
	abuser.send("count");
	return (await once(abuser, "message"))[0];
}

// One quiet time before the attack, one after it; and what server, client and abuser did not use of the machine's work.
async function round({ work, child, aim, name, token, hurried, busy: others }) {
	const own = () => cpuSeconds(child.pid) + cpuSeconds(process.pid);
	const began = performance.now(), busy = busySeconds(), usedBefore = own();
	const before = aim.quiet ?? await watch(aim, seconds / 2);
	const abuser = fork(fileURLToPath(import.meta.url), ["attack", name, String(aim.port), token],
		{ stdio: ["ignore", "ignore", "ignore", "ipc"], env: { ...process.env, BY_TLS: aim.secure ? "1" : "" },
			...(others ? {} : { execPath: "nice", execArgv: ["-n", hurried ? "-20" : "19", process.execPath] }) });
	await sleep(1000);
	await turns(work, child);
	const spent = cpuSeconds(child.pid), from = performance.now(), made = await count(abuser);
	const during = await watch(aim, seconds);
	const used = cpuSeconds(child.pid) - spent, share = used * 100000 / (performance.now() - from);
	const turn = await turns(work, child), came = (await count(abuser)) - made;
	const abused = cpuSeconds(abuser.pid);
	abuser.kill("SIGKILL");
	await sleep(1000); // its connections end
	const after = await watch(aim, seconds / 2);
	aim.quiet = after;
	const other = (busySeconds() - busy - (own() - usedBefore) - abused) * 100000 / ((performance.now() - began) * ours.length);
	return { quiet: percentiles([...before.calls, ...after.calls]), during: percentiles(during.calls), waited: percentiles(during.waited).p99,
		came, each: came ? used * 1e6 / came : NaN,
		quietCome: percentiles([...before.come.taken, ...after.come.taken]), come: percentiles(during.come.taken),
		answered: during.come.taken.length, tried: during.come.tried, share, turn, others: other };
}

// busy: processes that compute beside; only: attacks whose names have this in them, or one of several with | between.
export async function benchAbuse({ work, binary, rounds = 3, busy = 0, only = "" }) {
	const all = ours.join(",");
	const names = Object.keys(attacks).filter((name) => only.split("|").some((text) => name.includes(text)));
	if (!names.length) throw new Error(`there is no attack "${only}": ${Object.keys(attacks).join("; ")}`);
	const stop = occupy(busy, all);
	if (ours.length > 1) holdTo(ours.slice(1).join(","));
	try {
		await tryAbuse({ work, binary, rounds, busy, names });
	} finally {
		stop();
		if (ours.length > 1) holdTo(all);
	}
}

async function tryAbuse({ work, binary, rounds, busy, names }) {
	const over = [];
	for (const secure of [false, true]) {
		const mine = names.filter((one) => (secure ? byTls.includes(one) || byTlsAlone.includes(one) : !byTlsAlone.includes(one)));
		if (!mine.length) continue;
		const { child, port, token } = await serve(binary, work, secure ? ["--listen", "0.0.0.0:0"] : []);
		const hurried = !busy && hurry(child.pid) && hurry(process.pid);
		try {
			// The abusers use theirs up, and what is made with it: the client's is the owner's own.
			const own = execFileSync(binary, ["token", "create", "--name", "well-behaved", "--scopes", "allocate,infer", "--data", join(work, "abuse")],
				{ encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
			const aim = { port, own, secure };
			await watch(aim, seconds); // warm
			console.log(`\n### A well-behaved client beside others that are not, ${secure ? "by TLS" : "without TLS"}, ${busy ? `beside ${busy} processes that only compute, on ${ours.length} processors` : "with nothing started beside it"} (a call every ${everyMs} ms for ${seconds} s in the attack, and as long before and after it together; medians of ${rounds} rounds; load ${loadNow()})\n`);
			console.log("| meanwhile | quiet p50, p99, ms | p50, p99, ms | of that waited for the client's processor, p99, ms | p99 over quiet | newcomers answered, p99 quiet, p99, ms | turns: p99, longest, ms | connections that came, server's µs for each | server's processor | its memory, MiB | others used of the machine |\n|---|---|---|---|---|---|---|---|---|---|---|");
			for (const name of mine) {
				const seen = [];
				for (let i = 0; i < rounds; i++) seen.push(await round({ work, child, aim, name, token, hurried, busy }));
				const of = (pick, digits = 2) => median(seen.map(pick))?.toFixed(digits) ?? "-";
				const sum = (pick) => seen.reduce((total, one) => total + pick(one), 0);
				const ratio = median(seen.map((one) => one.during.p99)) / median(seen.map((one) => one.quiet.p99));
				if (ratio > mostRatio) over.push(`${name}${secure ? ", by TLS" : ""}: ${ratio.toFixed(1)}`);
				const [answered, tried] = [sum((one) => one.answered), sum((one) => one.tried)];
				if (answered < tried) over.push(`${name}${secure ? ", by TLS" : ""}: ${tried - answered} of ${tried} newcomers were not answered`);
				console.log(`| ${name} | ${of((one) => one.quiet.p50)}, ${of((one) => one.quiet.p99)} | ${of((one) => one.during.p50)}, ${of((one) => one.during.p99)} | ${of((one) => one.waited)} | ${
					ratio.toFixed(1)} | ${answered} of ${tried}, ${of((one) => one.quietCome.p99 ?? NaN, 1)}, ${of((one) => one.come.p99 ?? NaN, 1)} | ${seen[0].turn ? `${of((one) => one.turn.p99)}, ${of((one) => one.turn.longest)}` : "-"} | ${of((one) => one.came, 0)}, ${of((one) => one.each, 0)} | ${of((one) => one.share, 0)} % | ${
					(residentKiB(child.pid) / 1024).toFixed(1)} | ${of((one) => one.others, 0)} % |`);
			}
		} finally {
			hurry(process.pid, false);
			await end(child);
		}
	}
	console.log(over.length ? `\nOver ${mostRatio} times quiet, or not answered:\n${over.map((one) => `* ${one}`).join("\n")}` : `\nNone is over ${mostRatio} times quiet, and every newcomer was answered.`);
}

export async function benchClients({ work, binary }) {
	const { child, port, token } = await serve(binary, work, ["--limit", "messages_per_s=1000000,sessions_of_token=8192"]);
	try {
		const before = residentKiB(child.pid), idle = [];
		for (let i = 0; i < 2000; i += 50) idle.push(...(await Promise.all(Array.from({ length: 50 }, () => login(port, token)))));
		await sleep(1500);
		const each = (residentKiB(child.pid) - before) / idle.length;
		for (const one of idle) one.close();
		await sleep(11000); // their sessions end
		let logins = 0;
		const begun = performance.now();
		await Promise.all(Array.from({ length: 16 }, async () => {
			while (logins < 4000) { // a session stays for 10 s, and there are 8,192 at most
				logins++;
				(await login(port, token)).close();
			}
		}));
		const loginRate = (logins * 1000) / (performance.now() - begun);
		const client = await login(port, token);
		let calls = 0;
		const started = performance.now();
		await Promise.all(Array.from({ length: 128 }, async () => {
			while (performance.now() < started + 5000) {
				await client.call("memory.list");
				calls++;
			}
		}));
		const callRate = (calls * 1000) / (performance.now() - started);
		console.log("\n### Clients\n\n| | |\n|---|---|");
		console.log(`| memory of the server for each of 2,000 idle clients that are logged in | ${each.toFixed(1)} KiB |`);
		console.log(`| log-ins a second, a new connection each, as fast as one process in Node.js dials | ${loginRate.toFixed(0)} |`);
		console.log(`| calls a second of one connection, 128 under way, as fast as one process in Node.js asks | ${callRate.toFixed(0)} |`);
	} finally {
		await end(child);
	}
}

if (process.argv[2] === "attack") {
	process.on("message", () => process.send(connections));
	await attacks[process.argv[3]]({ port: Number(process.argv[4]), token: process.argv[5] });
}
