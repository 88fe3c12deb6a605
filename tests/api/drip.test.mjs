// Strangers who hold as many connections as they can, by everything that a connection waits for, keep nobody out: not
// those with a token, be it behind an address of theirs, and not who asks for what is open to all. Nor does the holder
// of a token keep out others.
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import http from "node:http";
import https from "node:https";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, assertContractKept } from "./client.mjs";
import { kinds } from "./drip.mjs";
import { slow, startServer, within } from "./server.mjs";

// What TLS changes nothing of is tried without it only. With a sanitizer one kind is enough to have handshakes in bulk.
const sameAboveTls = ["holder", "kept", "chunks", "expect", "wrong", "unread", "node",
	...(slow > 2 ? ["post", "head", "alive", "upgrade"] : [])];
// With a sanitizer, which looks at the memory of connections that are closed for others: one kind for each limit and stage.
const memoryOf = ["kept", "node", "unread", "handshake", "hello", "silent"];
const elsewhere = "127.0.0.9", attacking = "127.0.0.1";

async function underAttack(server, kind, count, attackers, work) {
	const script = fileURLToPath(new URL("drip.mjs", import.meta.url));
	const child = fork(script, [kind, "127.0.0.1", String(server.port), String(count), server.ca ? "tls" : ""], { stdio: "ignore", env: { ...process.env, DRIP_TOKEN: attackers } });
	try {
		await within(new Promise((resolve) => child.once("message", resolve)), `${count} of ${kind} have begun`, 300000 * slow);
		return await work();
	} finally {
		child.kill("SIGKILL");
	}
}

// One request by a connection of its own: its status and how long it took.
function ask(server, from, { path = "/healthz", method = "GET", token, body } = {}) {
	const begun = performance.now(), headers = token ? { authorization: `Bearer ${token}` } : {};
	const options = { host: "127.0.0.1", port: server.port, ca: server.ca, localAddress: from, agent: false, path, method, headers };
	return within(new Promise((resolve, reject) => {
		const request = (server.ca ? https : http).request(options, (incoming) => {
			incoming.resume().on("end", () => resolve({ status: incoming.statusCode, ms: performance.now() - begun }));
		});
		request.on("error", reject);
		request.end(body);
	}), `${method} ${path} from ${from}`);
}

// So many holders of tokens, half of them behind an address of the attackers', and some who ask for /healthz.
async function good(server, token, count) {
	const all = [], health = [];
	for (let i = 0; i < count; i += 4) {
		const pair = [attacking, elsewhere].flatMap((from) => [ask(server, from, { path: "/v1/models", token }),
			ask(server, from, { path: "/v1/completions", method: "POST", token, body: JSON.stringify({ model: "none", prompt: "a" }) })]);
		const [one, another] = [elsewhere, attacking].map((from) => ask(server, from));
		for (const { status } of await Promise.all([one, another])) health.push(status);
		all.push(...(await Promise.all(pair)));
	}
	return { statuses: all.map((one) => one.status).sort(), health, ms: all.map((one) => one.ms).sort((a, b) => a - b) };
}

for (const secure of [false, true])
	describe(`connections in bulk, ${secure ? "by TLS" : "without TLS"}`, () => {
		let server, admin, token, attackers;
		before(async () => {
			server = await startServer({ listen: secure ? "0.0.0.0:0" : undefined });
			admin = await Client.login(server);
			({ token } = await admin.call("token.create", { name: "asks", scopes: ["infer"] }));
			({ token: attackers } = await admin.call("token.create", { name: "drips", scopes: ["infer"], calls_per_s: 100000 }));
		});
		after(async () => {
			await server?.finish();
			assertContractKept();
		});

		for (const kind of Object.keys(kinds)) {
			if (kinds[kind].bare && !secure) continue;
			if (secure && sameAboveTls.includes(kind)) continue;
			if (slow > 2 && !memoryOf.includes(kind)) continue;
			const full = kind === "post" || kind === "holder";
			const count = full ? 4200 : kind === "kept" ? 2100 : 1200; // there is room for 4,096, 2,048 of an address, 1,024 strangers
			test(`${count} of ${kind}`, async () => {
				await underAttack(server, kind, count, attackers, async () => {
					const rounds = full ? 200 : 40; // each is answered in time; ./dev bench abuse measures how long they wait
					const { statuses, health, ms } = await good(server, token, rounds), p99 = ms[Math.floor(ms.length * 0.99)];
					console.log(`${kind}: p50 ${ms[ms.length >> 1].toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`);
					assert.deepEqual(statuses, [...Array(rounds / 2).fill(200), ...Array(rounds / 2).fill(404)]);
					assert.ok(health.every((one) => one === 200), health.join());
					for (const from of [attacking, elsewhere]) { // who logs in by WebSocket is a stranger at first, too
						const client = await Client.login(server, server.token, { from });
						await client.call("cluster.snapshot");
						await client.close();
					}
				});
				await admin.call("server.info"); // it was not hurt
			});
		}
	});
