// Heads of requests and what follows them, as bytes, plain and by TLS, cut in two at every place: what could be read in
// two ways is refused, and requests that come behind one another are answered in their order.
import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import tls from "node:tls";
import { Client, assertContractKept } from "./client.mjs";
import { slow, startServer, upgradeHead, within } from "./server.mjs";

// A connection has 5 s for its handshake and for a head: so few are open at once, and bytes on their own come so soon after
// one another, that a busy machine is not too slow for that.
const apartMs = 15 * slow, bytesApartMs = 2, atOnce = 20;

for (const secure of [false, true])
	describe(`heads of requests, ${secure ? "by TLS" : "without TLS"}`, () => {
		let server, host;
		before(async () => {
			// Hundreds of handshakes at once: on a busy machine one may take longer than the limit, which api/drip tests.
			server = await startServer({ listen: secure ? "0.0.0.0:0" : undefined, env: { EXOGPU_TEST_ARRIVAL_MS: "60000" } });
			host = `127.0.0.1:${server.port}`;
		});
		after(async () => {
			await server?.finish();
			assertContractKept();
		});

		// What comes back for these pieces, sent one after another: {text, ended} once `until` is there, or the end is.
		async function say(pieces, until, apart = apartMs) {
			const socket = secure ? tls.connect({ host: "127.0.0.1", port: server.port, ca: server.ca }) : net.connect(server.port, "127.0.0.1");
			let text = "", ended = false;
			socket.on("error", () => {}).setNoDelay(true).setEncoding("latin1");
			await within(Promise.race([once(socket, secure ? "secureConnect" : "connect"), once(socket, "close")]), "a connection");
			const done = new Promise((resolve) => {
				socket.on("data", (piece) => { text += piece; if (until?.test(text)) resolve(); });
				socket.on("close", () => { ended = true; resolve(); });
			});
			for (const piece of pieces) {
				if (piece !== pieces[0]) await sleep(apart);
				if (socket.writable && piece) socket.write(piece, "latin1");
			}
			await within(done, () => `an answer to ${JSON.stringify(pieces)}; came: ${JSON.stringify(text)}`);
			socket.destroy();
			return { text, ended };
		}
		// `check` what comes for the text cut at every place, and whole.
		async function cut(text, check, until) {
			let next = 0;
			await Promise.all(Array.from({ length: atOnce }, async () => {
				while (next < text.length) {
					const at = next++;
					check(await say(at ? [text.slice(0, at), text.slice(at)] : [text], until), at);
				}
			}));
		}
		const refused = (status, text) => (got, at) => {
			assert.ok(got.ended, `${JSON.stringify(text)} at ${at}: the connection is closed`);
			assert.match(got.text, new RegExp(`^HTTP/1\\.1 ${status} [^]*connection: close`), `${JSON.stringify(text)} at ${at}`);
			assert.equal(got.text.match(/HTTP\/1\.1 /g).length, 1, `${JSON.stringify(text)} at ${at}: one answer`);
		};
		const get = (more = "") => `GET /healthz HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;
		const post = (body, more = `Content-Length: ${body.length}\r\n`) =>
			`POST /v1/completions HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${server.token}\r\n${more}\r\n${body}`;
		const unknown = JSON.stringify({ model: "none", prompt: "a" });

		test("what has more than one reading is refused, cut at every place", async () => {
			const behind = get();
			for (const text of [`GET /healthz HTTP/1.1\nHost: ${host}\r\n\r\n`, `GET /healthz HTTP/1.1\r\nHost: ${host}\n\r\n`, `GET /healthz HTTP/1.1\r\nHost: ${host}\r\n\n`,
				get("X: a\r\n b\r\n"), get("X: a\0b\r\n"), get("X : a\r\n"), get("X: a\rb\r\n")])
				await cut(text, refused(400, text));
			for (const text of [get("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), get("Content-Length: 3\r\nContent-Length: 3\r\n"),
				get("Content-Length: +3\r\n"), get("Content-Length: 3, 3\r\n"), get("Content-Length:\r\n"), get("Transfer-Encoding: chunked, identity\r\n"),
				get("Transfer-Encoding:\vchunked\r\n"), get(`Host: ${host}\r\n`), get("X: \x01\r\n"), get("X: \x7f\r\n"), get("X\x00: a\r\n"), get(": a\r\n"), get("no colon\r\n"),
				`GET /healthz HTTP/1.1\r\n\r\n`, `GET /healthz\r\n\r\n`, `GET  /healthz HTTP/1.1\r\nHost: ${host}\r\n\r\n`, `GET /healthz%00 HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
				post("{}", "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"), post("{}", "Content-Length: 2\r\nContent-Length: 0\r\n"), post("{}", "Content-Length: -2\r\n"),
				post("{}", "Content-Length : 2\r\n"), post("{}", "Content-Length: 2\n"), upgradeHead(server, "/ws", "X: \0\r\n"), upgradeHead(server, "/ws", "X: a\r\n b\r\n"),
				upgradeHead(server).replaceAll("\r\n", "\n")])
				refused(400, text)(await say([text + behind]), "once");
			refused(505, "")(await say([get().replace("1.1", "2.0")]), "once");
			refused(431, "")(await say([get(`X: ${"a".repeat(9000)}\r\n`)]), "once");
			refused(431, "")(await say([get("X: a\r\n".repeat(200))]), "once");
		});

		test("good heads are taken, cut at every place and byte by byte", async () => {
			const until = /\r\n\r\n\{.*\}\n$/, ok = (got, at) => assert.match(got.text, /^HTTP\/1\.1 200 OK\r\n/, `at ${at}`);
			await cut(get(), ok, until);
			await cut(`GET //healthz?a=%b HTTP/1.1\r\nhost:\t${host} \t\r\nX:\r\n\r\n`, ok, until);
			ok(await say([...get()], until, bytesApartMs), "byte by byte");
			await cut(upgradeHead(server), (got, at) => assert.match(got.text, /^HTTP\/1\.1 101 [^]*Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=\r\n/, `at ${at}`),
				/\r\n\r\n/);
		});

		test("a POST with another request behind it gets both answers, cut at every place", async () => {
			const both = (got, at) => assert.match(got.text, /^HTTP\/1\.1 404 [^]*model_not_found[^]*HTTP\/1\.1 200 OK[^]*"status"/, `at ${at}`);
			const chunks = `${unknown.length.toString(16)};x\r\n${unknown}\r\n0\r\nA: b\r\n\r\n`;
			for (const text of [post(unknown), post(chunks, "Transfer-Encoding: chunked\r\n")]) {
				await cut(text + get(), both, /"status"[^]*\n$/);
				both(await say([text + get("Connection: close\r\n")]), "once");
				const { text: four } = await say([(text + get()).repeat(2)], /("status"[^]*){2}\n$/);
				assert.deepEqual(four.match(/(?<=HTTP\/1\.1 )\d+/g), ["404", "200", "404", "200"]);
			}
			const last = await say([post(unknown, `Content-Length: ${unknown.length}\r\nConnection: close\r\n`) + get()]);
			assert.deepEqual(last.text.match(/(?<=HTTP\/1\.1 )\d+/g), ["404"], "nothing behind the last one is answered");
			const wrong = await say([post(unknown) + get("X: \0\r\n") + get()]);
			assert.deepEqual(wrong.text.match(/(?<=HTTP\/1\.1 )\d+/g), ["404", "400"]);
		});

		test("a WebSocket behind a POST, with much behind it, is opened and heard from then on", async () => {
			const frame = (text) => {
				const head = Buffer.from([0x81, 0x80 | 126, text.length >> 8, text.length & 255, 0, 0, 0, 0]);
				return Buffer.concat([head, Buffer.from(text)]).toString("latin1");
			};
			const call = (id, room = 200) => frame(JSON.stringify({ jsonrpc: "2.0", id, method: "server.info", params: {} }).padEnd(room));
			const upgrade = upgradeHead(server, "/ws", `Authorization: Bearer ${server.token}\r\nSec-WebSocket-Protocol: exogpu.v1\r\n`);
			const { text } = await say([post(unknown) + upgrade + call(1, 9000), call(2)], /"id":2/);
			assert.match(text, /^HTTP\/1\.1 404 [^]*HTTP\/1\.1 101 [^]*"id":1[^]*"id":2/);
		});

		test("very many requests behind a POST are answered in their order, and held back meanwhile", async () => {
			const count = 900, pathOf = (i) => (i % 50 === 2 ? "/schema/api.json" : i % 2 ? "/none" : "/healthz");
			const many = Array.from({ length: count }, (_, i) => get().replace("/healthz", pathOf(i))).join("");
			const { text } = await say([post(unknown) + many + get("Connection: close\r\n")]);
			assert.deepEqual(text.match(/(?<=HTTP\/1\.1 )\d+/g), ["404", ...Array.from({ length: count }, (_, i) => (pathOf(i) === "/none" ? "404" : "200")), "200"]);
			const client = await Client.login(server);
			await client.call("server.info");
			await client.close();
		});
	});
