// The port as a browser, a scraper and a stranger meet it.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, statSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { hostname } from "node:os";
import { after, before, describe, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { apiText } from "./contract.mjs";
import { deviceReadings, deviceRecord, nodeRecord } from "./records.mjs";
import { connectRaw, eventually, slow, startServer, upgradeHead, within } from "./server.mjs";

describe("HTTP", () => {
	let server, admin;
	const own = () => `127.0.0.1:${server.port}`;

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("the page, with a policy that lets nothing foreign in", async () => {
		const { status, headers, text } = await server.http("/");
		assert.equal(status, 200);
		assert.match(headers["content-type"], /^text\/html; ?charset=utf-8$/i);
		assert.match(text, /<!doctype html>/i);
		const policy = Object.fromEntries(headers["content-security-policy"].split(";").map((one) => {
			const [name, ...values] = one.trim().split(/\s+/);
			return [name, values.join(" ")];
		}));
		assert.equal(policy["default-src"], "'none'");
		assert.equal(policy["script-src"], "'self'");
		assert.equal(policy["frame-ancestors"], "'none'");
		assert.equal(policy["base-uri"], "'none'");
		assert.equal(policy["form-action"], "'none'");
		assert.doesNotMatch(headers["content-security-policy"], /unsafe|\*|https?:/);
		assert.equal(headers["x-content-type-options"], "nosniff");
		assert.equal(headers["referrer-policy"], "no-referrer");
		assert.equal(headers["cross-origin-opener-policy"], "same-origin");
	});

	test("every answer carries the security headers", async () => {
		for (const [path, options] of [["/healthz"], ["/schema/api.json"], ["/metrics"], ["/none"], ["/ws"], ["/", { method: "POST" }],
			["/", { headers: { host: "evil.example" } }]]) {
			const { headers } = await server.http(path, options);
			assert.ok(headers["content-security-policy"], path);
			assert.equal(headers["x-content-type-options"], "nosniff", path);
		}
	});

	test("assets: compressed where asked for, immutable, and not sent twice", async () => {
		const page = await server.http("/");
		const paths = [...page.text.matchAll(/(?:src|href)="(\/[^"]+)"/g)].map((one) => one[1]);
		for (const path of ["/", ...paths]) {
			const plain = await server.http(path);
			assert.equal(plain.status, 200, path);
			assert.equal(plain.headers["content-encoding"], undefined, path);
			assert.equal(Number(plain.headers["content-length"]), plain.body.length, path);
			const packed = await server.http(path, { headers: { "accept-encoding": "br, gzip" } });
			if (packed.headers["content-encoding"]) {
				assert.equal(packed.headers["content-encoding"], "gzip");
				assert.match(packed.headers.vary, /accept-encoding/i);
				assert.ok(gunzipSync(packed.body).equals(plain.body), `${path}: the same compressed`);
				assert.ok(packed.body.length < plain.body.length, path);
			}
			const tag = plain.headers.etag;
			if (!tag) continue;
			const again = await server.http(path, { headers: { "if-none-match": tag } });
			assert.deepEqual([again.status, again.body.length], [304, 0], path);
			assert.equal((await server.http(path, { headers: { "if-none-match": '"other"' } })).status, 200, path);
		}
		for (const path of paths.filter((one) => /-[0-9a-z]{8,}\./i.test(one)))
			assert.match((await server.http(path)).headers["cache-control"], /immutable/, path);
		assert.match(page.headers["cache-control"], /no-cache/);
	});

	test("/healthz and /schema/api.json answer anybody", async () => {
		const health = await server.http("/healthz");
		assert.deepEqual([health.status, health.json().status], [200, "ok"]);
		assert.equal(health.headers["cache-control"], "no-store");
		const schema = await server.http("/schema/api.json");
		assert.equal(schema.text, apiText);
		assert.match(schema.headers["content-type"], /^application\/json/);
	});

	test("HEAD answers as GET does, without the body", async () => {
		for (const path of ["/", "/healthz", "/schema/api.json", "/none"]) {
			const [get, head] = [await server.http(path), await server.http(path, { method: "HEAD" })];
			assert.deepEqual([head.status, head.body.length], [get.status, 0], path);
			assert.equal(head.headers["content-length"], get.headers["content-length"], path);
			assert.equal(head.headers["content-type"], get.headers["content-type"], path);
		}
	});

	test("what is not there", async () => {
		for (const path of ["/none", "/healthz/", "/schema/node.json", "/schema/", "/%2e%2e/etc/passwd", "/../../etc/passwd", "/admin.token",
			"/assets/none.js", `/${"x".repeat(400)}`]) {
			const { status, headers, json } = await server.http(path);
			assert.equal(status, 404, path);
			assert.match(headers["content-type"], /^application\/json/);
			assert.equal(json().error, "not_found");
		}
		const { status } = await server.http("/healthz?verbose=1");
		assert.equal(status, 200, "a query is passed over");
	});

	test("only GET and HEAD, and no body", async () => {
		for (const method of ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
			for (const body of [undefined, "a=1"]) {
				const { status, headers } = await server.http("/healthz", { method, body });
				assert.deepEqual([status, headers.connection], [405, "close"], `${method} ${body}`);
			}
		const withBody = await server.http("/healthz", { headers: { "content-length": "3" }, body: "abc" });
		assert.equal(withBody.status, 405);
		const smuggled = connectRaw(server,
			`GET /healthz HTTP/1.1\r\nHost: ${own()}\r\nContent-Length: 40\r\n\r\nGET /schema/api.json HTTP/1.1\r\nHost: x\r\n\r\n`);
		const answer = await within(smuggled.ended, "the connection is closed");
		assert.equal(answer.match(/HTTP\/1\.1 /g)?.length, 1, answer.slice(0, 300));
	});

	test("control characters in headers are refused, of a page, a POST and an upgrade", async () => {
		const get = `GET /healthz HTTP/1.1\r\nHost: ${own()}\r\nOrigin: http://${own()}\r\nAuthorization: Bearer x\r\n\r\n`;
		const post = `POST /v1/completions HTTP/1.1\r\nHost: ${own()}\r\nOrigin: http://${own()}\r\nAuthorization: Bearer x\r\nContent-Length: 2\r\n\r\n{}`;
		assert.match(await within(connectRaw(server, get.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")).until(/ready/), "a good one"), /^HTTP\/1.1 200/);
		for (const head of [get, post, upgradeHead(server)])
			for (const name of ["Host", "Origin", "Authorization"])
				for (const byte of ["\0", "\x01", "\x1d", "\x7f"]) {
					const text = head.includes(`\r\n${name}: `) ? head.replace(`\r\n${name}: `, (found) => `${found}a${byte}`)
						: head.replace("\r\n", `\r\n${name}: a${byte}b\r\n`);
					assert.match(await within(connectRaw(server, text).ended, "a refusal"), /^HTTP\/1.[01] 400[^]*control character/, JSON.stringify(text));
				}
	});
	test("who is refused and keeps its end open holds nothing", async () => {
		const files = () => readdirSync(`/proc/${server.child.pid}/fd`).length, before = files(), open = [];
		const heads = [`GET /healthz HTTP/1.1\r\nHost: ${own()}\r\nContent-Length: 1\r\n\r\nx`, `PUT / HTTP/1.1\r\nHost: ${own()}\r\nContent-Length: 1\r\n\r\nx`,
			`POST /v1/models HTTP/1.1\r\nHost: ${own()}\r\nOrigin: \x01\r\nContent-Length: 2\r\n\r\n{}`, upgradeHead(server).replace("13", "12"),
			`GET /healthz HTTP/1.1\r\nHost: ${own()}\r\n\r\n${upgradeHead(server, "/nowhere")}`, `POST /v1/completions HTTP/1.1\r\nHost: ${own()}\r\nContent-Length: 2\r\n\r\n{}`];
		for (const head of heads)
			for (let i = 0; i < 8; i++) {
				const socket = net.connect({ port: server.port, host: "127.0.0.1", allowHalfOpen: true });
				socket.on("error", () => {}).resume().write(head, "latin1");
				open.push(socket);
			}
		await eventually(() => open.every((socket) => socket.readableEnded || socket.destroyed), "all have their answer, and its end");
		await eventually(() => files() <= before + 2, "the server has let go of them", 8000 * slow);
		for (const socket of open) if (!socket.destroyed) socket.write("x");
		assert.equal((await server.http("/healthz")).status, 200);
		for (const socket of open) socket.destroy();
	});
	test("Host must name this server", async () => {
		for (const host of ["evil.example", `evil.example:${server.port}`, `${hostname()}:${server.port}`, `${hostname()}.local`, "127.1",
			"[127.0.0.1]", "[::1", "[::1]x", "::1", "127.0.0.1:x", ":1",
			`localhost.evil.example:${server.port}`, `127.0.0.1:${server.port}.evil.example`, `${"x".repeat(300)}:${server.port}`, " "]) {
			for (const path of ["/", "/healthz", "/schema/api.json", "/metrics"])
				assert.equal((await server.http(path, { headers: { host } })).status, 403, `${host} ${path}`);
			const raw = connectRaw(server, upgradeHead(server).replace(/Host: .*\r\n/, `Host: ${host}\r\n`));
			assert.match(await raw.until(/HTTP\/1\.. \d+/), /HTTP\/1\.. 403/, host);
			raw.socket.destroy();
		}
		// An address cannot be rebound, and a port may have been forwarded.
		for (const host of ["127.0.0.1", `127.0.0.1:${server.port + 1}`, "localhost", "10.1.2.3:80", "[fd00::1]:443", "[::1]"])
			assert.equal((await server.http("/healthz", { headers: { host } })).status, 200, host);
		for (const host of [own(), `localhost:${server.port}`, `LocalHost:${server.port}`, `[::1]:${server.port}`])
			assert.equal((await server.http("/healthz", { headers: { host } })).status, 200, host);
		const bare = connectRaw(server, "GET /healthz HTTP/1.0\r\n\r\n");
		assert.match(await bare.until(/HTTP\/1\.. \d+/), /HTTP\/1\.. 403/);
	});

	test("Origin must be the page's own", async () => {
		const opening = (origin, host = own()) => Client.open(server, { headers: { origin, host } });
		for (const origin of ["http://evil.example", `https://${own()}`, "http://127.0.0.1", `http://localhost:${server.port}`, "null",
			`http://${own()}.evil.example`, `http://${own()}/`, "file://", `http://${"x".repeat(400)}`]) {
			const refusal = await opening(origin).then(() => assert.fail(`taken: ${origin}`), (error) => error);
			assert.equal(refusal.status, 403, origin);
		}
		await (await opening(`http://${own()}`)).close();
		await (await opening(`http://localhost:${server.port}`, `localhost:${server.port}`)).close();
	});

	test("WebSocket upgrades that are none", async () => {
		const plain = await server.http("/ws");
		assert.equal(plain.status, 400);
		const cases = { "a foreign subprotocol": ["/ws", "Sec-WebSocket-Protocol: chat\r\n"], "an unknown address": ["/none", ""],
			"the page's address": ["/", ""] };
		for (const [name, [path, more]] of Object.entries(cases)) {
			const raw = connectRaw(server, upgradeHead(server, path, more));
			assert.match(await raw.until(/HTTP\/1\.. \d+/), /HTTP\/1\.. 4\d\d/, name);
			raw.socket.destroy();
		}
		for (const [name, from, to] of [["no key", /Sec-WebSocket-Key: .*\r\n/, ""],
			["another upgrade", "Upgrade: websocket", "Upgrade: h2c"]]) {
			const raw = connectRaw(server, upgradeHead(server).replace(from, to));
			const answer = await Promise.race([raw.ended, raw.until(/HTTP\/1\.1 \d+/).catch(() => raw.received)]);
			assert.doesNotMatch(answer, / 101 /, name);
			raw.socket.destroy();
		}
		await (await Client.open(server, { protocol: "" })).close(); // none named is taken too
		await admin.call("server.info");
	});

	test("requests that no client would send", async () => {
		const requests = ["\r\n\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", `GET / HTTP/1.1\r\nHost: ${own()}\r\nX: ${"a".repeat(20000)}\r\n\r\n`,
			`GET /${"a".repeat(20000)} HTTP/1.1\r\nHost: ${own()}\r\n\r\n`, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "\0\0\0\0",
			`GET / HTTP/1.1\r\nHost: ${own()}\r\n${"A: b\r\n".repeat(3000)}\r\n`, `GET / HTTP/1.1\r\nHost: ${own()}\r\n no colon\r\n\r\n`,
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
		for (const text of requests) {
			const raw = connectRaw(server, text);
			raw.socket.end();
			await within(raw.ended, `the end after ${JSON.stringify(text.slice(0, 40))}`);
			assert.doesNotMatch(raw.received, /HTTP\/1\.1 200[^]*<!doctype/i, text.slice(0, 40));
		}
		await admin.call("server.info");
	});

	test("keep-alive: many requests over one connection", async () => {
		const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
		const ports = new Set();
		for (let i = 0; i < 30; i++) {
			const { status, port } = await server.http(["/healthz", "/", "/schema/api.json", "/none"][i % 4], { agent });
			assert.equal(status, i % 4 === 3 ? 404 : 200);
			ports.add(port);
		}
		agent.destroy();
		assert.equal(ports.size, 1, "one connection");
		const raw = connectRaw(server, `GET /healthz HTTP/1.1\r\nHost: ${own()}\r\n\r\n`.repeat(2) +
			`GET /healthz HTTP/1.1\r\nHost: ${own()}\r\nConnection: close\r\n\r\n`);
		await raw.until(/(HTTP\/1\.1 200[^]*){3}/);
		raw.socket.destroy();
	});

	test("/metrics: names, types and values as Prometheus reads them", async () => {
		const node = await FakeNode.connect(server, nodeRecord());
		await node.devices([deviceRecord({ name: 'a "quoted" \\ name\nof two lines' })]);
		await admin.call("events.subscribe", { topics: ["telemetry"] });
		node.telemetry([deviceReadings()]);
		await admin.event((one) => one.topic === "telemetry");
		const { status, headers, text } = await server.http("/metrics", { headers: { authorization: `Bearer ${server.token}` } });
		assert.equal(status, 200);
		assert.match(headers["content-type"], /^text\/plain; version=0\.0\.4/);
		assert.ok(text.endsWith("\n"));
		const types = new Map(), helps = new Set(), samples = new Map();
		for (const line of text.trimEnd().split("\n")) {
			const help = /^# HELP ([a-z_:][a-z0-9_:]*) \S.*$/.exec(line), type = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line);
			const sample = /^([a-z_:][a-z0-9_:]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+-]+|NaN|[+-]Inf)$/.exec(line);
			assert.ok(help || type || sample, `a line of no known form: ${line}`);
			if (help) helps.add(help[1]);
			if (type) {
				assert.ok(!types.has(type[1]) && !samples.has(type[1]), `${type[1]} is introduced once, before its samples`);
				types.set(type[1], type[2]);
			}
			if (!sample) continue;
			assert.ok(types.has(sample[1]) && helps.has(sample[1]), `${sample[1]} has TYPE and HELP`);
			const key = `${sample[1]}{${sample[2] ?? ""}}`;
			assert.ok(!samples.has(key), `${key} stands once`);
			assert.ok(Number.isFinite(Number(sample[3])), line);
			samples.set(key, Number(sample[3]));
		}
		for (const [name, type] of types) {
			assert.equal(name.endsWith("_total"), type === "counter", `${name} is a ${type}`);
			assert.doesNotMatch(name, /_(ms|mhz|percent|celsius_total)$/, "base units");
		}
		const value = (name) => [...samples].find(([key]) => key.startsWith(`${name}{`))?.[1];
		assert.ok(value("exogpu_connections") >= 1);
		assert.ok(value("process_resident_memory_bytes") > 1e6);
		assert.equal(value("exogpu_device_utilization_ratio"), 0.25);
		assert.equal(value("exogpu_device_power_watts"), 120.5);
		assert.equal(value("exogpu_device_clock_hertz"), 1.8e9);
		assert.equal(value("exogpu_device_memory_temperature_celsius"), undefined, "what is not known is left out");
		await node.close();
	});

	test("/metrics wants the scope observe", async () => {
		const open = async (scopes) => (await admin.call("token.create", { name: "m", scopes })).token;
		const get = (authorization) => server.http("/metrics", authorization ? { headers: { authorization } } : {});
		const none = await get();
		assert.deepEqual([none.status, none.json().error], [401, "unauthenticated"]);
		assert.match(none.headers["www-authenticate"], /^Bearer/);
		assert.equal((await get("Bearer x")).status, 401);
		assert.equal((await get("Basic eDp5")).status, 401);
		const join = await get(`Bearer ${await open(["join"])}`);
		assert.deepEqual([join.status, join.json().error], [403, "forbidden"]);
		assert.equal((await get(`Bearer ${await open(["observe"])}`)).status, 200);
	});

	test("the Unix socket is its owner's, who needs no token", async () => {
		assert.equal(statSync(server.socket).mode & 0o777, 0o600);
		assert.equal(statSync(server.data).mode & 0o077, 0);
		const owner = await Client.open(server, { unix: true, headers: { host: "localhost" } });
		const made = await owner.call("token.create", { name: "by the owner", scopes: ["admin"] });
		assert.equal((await owner.call("token.list")).tokens.find((one) => one.token_id === made.token_id).parent_id, null);
		await owner.close();
		assert.equal((await server.http("/metrics", { unix: true })).status, 200);
		// A token given all the same counts.
		const { token } = await admin.call("token.create", { name: "less", scopes: ["observe"] });
		const less = await Client.open(server, { unix: true, bearer: token });
		await less.refused("token.list", {}, "forbidden");
		await less.close();
	});

	test("a silent connection is dropped, others go on", async () => {
		const raw = connectRaw(server, "");
		await once(raw.socket, "connect");
		await admin.call("server.info");
		raw.socket.destroy();
	});
});
