// A program that holds connections as long as it can, as strangers or with the token in DRIP_TOKEN: so many at once
// from some addresses, each again at its next turn when it was closed. `node drip.mjs KIND HOST PORT COUNT [tls]`; it
// sends its parent "begun" once all have said what they had to say, and goes on until it is killed.
import { once } from "node:events";
import net from "node:net";
import { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import tls from "node:tls";

const addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3"], everyMs = 5000;

// What a client of TLS says first, as bytes.
export function clientHello() {
	return new Promise((resolve) => {
		const wire = new Duplex({ read() {}, write: (bytes) => resolve(bytes) });
		tls.connect({ socket: wire, rejectUnauthorized: false }).on("error", () => {});
	});
}

const post = (host, more) => `POST /v1/completions HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/json\r\n${more}\r\n`;
const list = (host) => `GET /v1/models HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${process.env.DRIP_TOKEN}\r\n\r\n`;
const upgrade = (host, path) => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

// What each says first, and then every five seconds. `bare`: below TLS, where the server speaks it. `deaf`: never reads.
// `from`: of how many addresses.
export const kinds = {
	post: { first: (host) => post(host, "Content-Length: 100000\r\n"), then: "a" },
	holder: { first: (host) => post(host, `Authorization: Bearer ${process.env.DRIP_TOKEN}\r\nContent-Length: 100000\r\n`), then: "a" },
	kept: { from: 1, first: (host) => list(host), then: (host) => list(host) },
	chunks: { first: (host) => post(host, "Transfer-Encoding: chunked\r\n"), then: "1\r\na\r\n" },
	expect: { first: (host) => post(host, "Content-Length: 100000\r\nExpect: 100-continue\r\n") },
	wrong: { first: (host) => post(host, "Authorization: Bearer exo_0000000000\r\nContent-Length: 100000\r\n"), then: "a" },
	head: { first: (host) => `GET /healthz HTTP/1.1\r\nHost: ${host}\r\nX: `, then: "a" },
	silent: { first: () => "" },
	alive: { first: (host) => `GET /healthz HTTP/1.1\r\nHost: ${host}\r\n\r\n`, then: (host) => `GET /healthz HTTP/1.1\r\nHost: ${host}\r\n\r\n` },
	upgrade: { first: (host) => upgrade(host, "/ws") },
	node: { first: (host) => upgrade(host, "/node") },
	unread: { first: (host) => `GET /schema/api.json HTTP/1.1\r\nHost: ${host}\r\n\r\n`.repeat(40), deaf: true },
	handshake: { bare: true, first: (host, hello) => hello.subarray(0, hello.length - 200), then: (host, hello) => hello.subarray(200, 201) },
	hello: { bare: true, first: (host, hello) => hello.subarray(0, 1), rest: (host, hello) => hello.subarray(1) },
};

function connect({ kind, host, port, secure }, from) {
	const socket = net.connect({ host, port, localAddress: from });
	const stream = secure && !kinds[kind].bare ? tls.connect({ socket, rejectUnauthorized: false }) : socket;
	socket.on("error", () => {});
	if (stream !== socket) stream.on("error", () => {});
	if (kinds[kind].deaf) stream.pause();
	else stream.resume();
	return stream;
}

async function attack(aim, count) {
	const { first, then, rest, from } = kinds[aim.kind], name = `${aim.host}:${aim.port}`, hello = await clientHello();
	const of = (text) => (typeof text === "function" ? text(name, hello) : text);
	const open = [];
	const begin = (i) => {
		open[i] = connect(aim, addresses[i % (from ?? addresses.length)]);
		if (of(first).length) open[i].write(of(first));
	};
	for (let i = 0; i < count; i++) {
		begin(i);
		if (i % 20 === 19) await sleep(1); // as fast as they are accepted, not faster
	}
	await Promise.all(open.map((one) => (one.connecting ? Promise.race([once(one, "connect"), once(one, "close"), sleep(2000)]) : null)));
	process.send?.("begun");
	if (rest) open.forEach((one) => one.writable && one.write(of(rest)));
	for (;;) {
		const turn = performance.now();
		for (let i = 0; i < count; i++) {
			if (open[i].destroyed || !open[i].writable) begin(i);
			else if (then) open[i].write(of(then));
			if (i % 20 === 19) await sleep(1);
		}
		await sleep(Math.max(0, turn + everyMs - performance.now()));
		if (rest) open.forEach((one) => one.writable && one.write(of(rest)));
	}
}

if (process.argv[1]?.endsWith("drip.mjs")) {
	const [kind, host, port, count, secure] = process.argv.slice(2);
	await attack({ kind, host, port: Number(port), secure: secure === "tls" }, Number(count));
}
