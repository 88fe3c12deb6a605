// A server that follows passes connections on to the one that leads: clients, /v1, the dashboard and browsers that lend find
// the leader at every server, and are known to it by their own address. Nodes are sent to the leader itself.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import https from "node:https";
import tls from "node:tls";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { Postgres, skip } from "./postgres.mjs";
import { eventually, request, slow, within } from "./server.mjs";
import { Servers } from "./servers.mjs";

delete process.env.EXOGPU_TEST_POSTGRES; // this suite says itself what is where
if (skip) console.log(`# skipped: ${skip}`);

describe("followers that pass on", { skip, timeout: 600000 * slow }, () => {
	let postgres, servers, leader, follower, third, admin;
	const url = ({ port }) => `https://127.0.0.1:${port}/`;

	// Bytes by TLS, and what came back until the other end closed.
	const raw = async (server, bytes, from) => {
		const socket = tls.connect({ host: "127.0.0.1", port: server.port, ca: server.ca, localAddress: from });
		const pieces = [];
		socket.on("data", (piece) => pieces.push(piece)).on("error", () => {});
		socket.write(bytes);
		await within(new Promise((resolve) => socket.on("close", resolve)), "it is answered and closed");
		return Buffer.concat(pieces).toString("latin1");
	};
	const head = (server, path, more = "") => `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n${more}\r\n`;
	const mac = (text) => createHmac("sha256", createHmac("sha256", Buffer.from(readFileSync(servers.key, "utf8").trim(), "hex"))
		.update("exogpu: connections that are passed on").digest()).update(text).digest("hex");
	// It passes on once it has found the leader.
	const passes = (server) => eventually(async () => {
		Object.assign(server, servers.known(server));
		return (await server.http("/schema/api.json")).status === 200;
	}, () => `it passes on; it said: ${server.output.stderr.slice(-2000)}`);

	before(async () => {
		postgres = await Postgres.start();
		// On a busy machine this process is late with its heads and handshakes.
		servers = new Servers(postgres.make("passed"), { address: "0.0.0.0", env: { EXOGPU_TEST_ARRIVAL_MS: "60000" } });
		leader = await servers.start();
		await servers.role(leader, "leader");
		[follower, third] = [await servers.start(), await servers.start()];
		for (const one of [follower, third]) await servers.role(one, "follower");
		admin = await servers.login(leader);
		for (const one of [follower, third]) await passes(one);
	});
	after(async () => {
		await servers?.end();
		await postgres?.stop();
		assertContractKept();
	});

	test("what the leader answers comes from a follower as well, and its health is its own", async () => {
		for (const path of ["/", "/schema/api.json", "/ca.pem", "/nothing"]) {
			const [here, there] = [await follower.http(path), await leader.http(path)];
			assert.deepEqual([here.status, here.body, here.headers["content-security-policy"]], [there.status, there.body, there.headers["content-security-policy"]], path);
		}
		assert.equal((await follower.http("/v1/models")).status, 401);
		const authorization = `Bearer ${leader.token}`;
		assert.deepEqual((await follower.http("/v1/models", { headers: { authorization } })).json().data, []);
		assert.equal((await follower.http("/", { method: "HEAD" })).body.length, 0);
		assert.equal((await follower.http("/healthz", { agent: false })).json().role, "follower");
		assert.equal((await follower.http("/readyz", { agent: false })).status, 503);
		assert.match((await follower.http("/v1/chat/completions", { method: "POST", headers: { authorization }, body: "{}" })).text, /is missing/);
	});

	test("a client's calls and events go through, and the log has its own address", async () => {
		const far = await Client.login(follower, leader.token, { from: "127.0.0.9" });
		const seen = await Client.login(follower, leader.token);
		await seen.call("subscribe", { topics: ["tokens"] }).catch(() => {});
		const { token_id } = await far.call("token.create", { name: "through a follower", scopes: ["observe"] });
		const { entries } = await admin.call("audit.list", { action: "token.create", limit: 10 });
		const entry = entries.find(({ target }) => target === token_id);
		assert.equal(entry.peer, "127.0.0.9", JSON.stringify(entry));
		far.socket.close();
		seen.socket.close();
	});

	test("many requests on one connection, one behind the other and at once, and a body larger than what may wait", async () => {
		const authorization = `Bearer ${leader.token}`;
		const agent = new https.Agent({ keepAlive: true, maxSockets: 1 });
		const answers = await Promise.all(Array.from({ length: 20 }, () => follower.http("/v1/models", { agent, headers: { authorization } })));
		assert.deepEqual([...new Set(answers.map(({ status, port }) => `${status} ${port}`))].length, 1, "by one connection");
		agent.destroy();
		const text = await raw(follower, head(follower, "/schema/api.json").repeat(9) + head(follower, "/ca.pem", "Connection: close\r\n"));
		assert.equal(text.split("HTTP/1.1 200").length - 1, 10);
		const large = JSON.stringify({ model: "none", messages: [{ role: "user", content: "x".repeat(900_000) }] });
		const refused = await follower.http("/v1/chat/completions", { method: "POST", headers: { authorization }, body: large });
		assert.equal(refused.status, 404, refused.text);
	});

	test("nobody speaks for an address who does not have the key", async () => {
		const said = "1 192.0.2.1 tls";
		for (const value of [`${said} ${"0".repeat(64)}`, `${said} ${mac("1 192.0.2.2 tls")}`, said, "1", `${said} ${mac(said)} x`, `${"x".repeat(4000)}`]) {
			const answer = await raw(leader, head(leader, "/v1/models", `exogpu-passed-on: ${value}\r\nConnection: close\r\n`));
			assert.match(answer, /^HTTP\/1\.1 403 .*not passed on by a server/s, value);
		}
		const twice = await raw(leader, head(leader, "/v1/models", `exogpu-passed-on: ${said} ${mac(said)}\r\n`.repeat(2)));
		assert.match(twice, /^HTTP\/1\.1 403/);
		for (const wrong of ["1 localhost tls", "1 192.0.2.1 neither", "2 192.0.2.1 tls", "1  "]) {
			const answer = await raw(leader, head(leader, "/v1/models", `exogpu-passed-on: ${wrong} ${mac(wrong)}\r\nConnection: close\r\n`));
			assert.match(answer, /^HTTP\/1\.1 403/, wrong);
		}
		// With the key it does; this is also what shows that the test's way to make a MAC is right.
		const right = await raw(leader, head(leader, "/v1/models", `exogpu-passed-on: ${said} ${mac(said)}\r\nAuthorization: Bearer exo_wrong\r\nConnection: close\r\n`));
		assert.match(right, /^HTTP\/1\.1 401/);
		// The same by a follower is not believed: its own word stands.
		const forged = await raw(follower, head(follower, "/v1/models", `Exogpu-Passed-On: ${said} ${mac(said)}\r\nAuthorization: Bearer exo_0123456789_${"b".repeat(43)}\r\nConnection: close\r\n`), "127.0.0.7");
		assert.match(forged, /^HTTP\/1\.1 401/);
		// Only the first request of a connection may have it.
		const late = await raw(leader, head(leader, "/ca.pem") + head(leader, "/v1/models", `exogpu-passed-on: ${said} nonsense\r\nConnection: close\r\n`));
		assert.match(late, /HTTP\/1\.1 200[^]*HTTP\/1\.1 401/);
	});

	test("heads that mean two things, foreign names and pages are refused", async () => {
		const smuggled = await raw(follower, `POST /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc`);
		assert.match(smuggled, /^HTTP\/1\.1 400/);
		const foreign = await raw(follower, `GET / HTTP/1.1\r\nHost: attacker.example\r\nConnection: close\r\n\r\n`);
		assert.match(foreign, /^HTTP\/1\.1 403 .*does not have the name in Host/s);
		await assert.rejects(Client.open(follower, { headers: { Origin: "https://attacker.example" } }), (error) => error.status === 403);
		const own = await Client.open(follower, { headers: { Origin: url(follower).slice(0, -1) } });
		own.socket.close();
	});

	test("nodes are sent to the leader itself", async () => {
		await assert.rejects(FakeNode.open(follower, { path: "/node", protocol: "exogpu.node.v1" }), (error) => {
			assert.deepEqual([error.status, JSON.parse(error.body).error], [503, "unavailable"]);
			return error.body.includes(`:${leader.port}/`);
		});
	});

	test("a client that goes takes nothing with it, and one that only says goodbye gets its answer", async () => {
		for (let i = 0; i < 20; i++) {
			const socket = tls.connect({ host: "127.0.0.1", port: follower.port, ca: follower.ca });
			socket.on("error", () => {});
			await within(new Promise((resolve) => socket.on("secureConnect", resolve)), "it is connected");
			socket.write(i % 2 ? head(follower, "/schema/api.json") : head(follower, "/schema/api.json").slice(0, 30));
			if (i % 3) await new Promise((resolve) => setTimeout(resolve, i % 5));
			socket.destroy();
		}
		assert.equal((await follower.http("/schema/api.json")).status, 200);
	});

	test("when the leader dies its connections end, and the same address leads to the next one", async () => {
		const { token } = leader, client = await Client.login(third, token);
		await client.call("token.create", { name: "before", scopes: ["observe"] });
		await servers.stop(leader, "SIGKILL");
		await within(client.closed, "the connection ends");
		// Until one leads, it says so.
		const [one, other] = await (async () => {
			const led = await servers.leader([follower, third]);
			return led === follower ? [follower, third] : [third, follower];
		})();
		const again = await eventually(() => Client.login(other, token).catch(() => undefined), () => `a login by ${other.port}; it said: ${other.output.stderr.slice(-2000)}`);
		const { tokens } = await again.call("token.list", {});
		assert.ok(tokens.some(({ name }) => name === "before"));
		assert.equal((await other.http("/healthz", { agent: false })).json().role, "follower");
		again.socket.close();
		// Nobody else: what leads is frozen and another not there yet. A request ends with words.
		one.child.kill("SIGSTOP");
		const waits = await request(other, "/v1/models", { ms: 60000 * slow }).catch((error) => ({ status: error.code ?? error.message }));
		assert.ok([401, 503, "ECONNRESET", "socket hang up"].includes(waits.status), JSON.stringify(waits.status));
		await servers.role(other, "leader");
		one.child.kill("SIGCONT");
		await within(one.exited, "the woken one ends");
		const last = await Client.login(Object.assign(other, servers.known(other)), token);
		assert.equal((await last.call("audit.verify", {})).verdict, "holds");
	});
});
