// The port off loopback: TLS 1.3 by the cluster's own authority or by the operator's certificate, and who is let in.
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { readFileSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { hostname, networkInterfaces } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import tls from "node:tls";
import { makeCertificate } from "./certificates.mjs";
import { Client, assertContractKept } from "./client.mjs";
import { connectRaw, eventually, patience, run, startServer, temporary, within } from "./server.mjs";

// A handshake, to its end: {cert, protocol, socket} or an error.
async function shake(server, options = {}) {
	const socket = tls.connect({ host: "127.0.0.1", port: server.port, ca: server.ca, ALPNProtocols: ["http/1.1"], ...options });
	try {
		await within(new Promise((resolve, reject) => {
			socket.once("secureConnect", resolve).once("error", reject).once("close", () => reject(new Error("closed")));
		}), "the handshake");
		return { cert: socket.getPeerX509Certificate(), protocol: socket.getProtocol(), cipher: socket.getCipher(), socket };
	} catch (error) {
		socket.destroy();
		throw error;
	}
}

// In TLS 1.3 a client is done before its certificate was looked at: the answer to a request tells.
async function ask(server, { host = `127.0.0.1:${server.port}`, ...options } = {}) {
	const { socket } = await shake(server, options);
	let got = "";
	const end = new Promise((resolve, reject) => {
		socket.on("data", (piece) => {
			got += piece;
			if (/\r\n\r\n/.test(got)) resolve(got);
		});
		socket.on("error", reject).on("close", () => reject(new Error(`closed after ${JSON.stringify(got)}`)));
	});
	socket.write(`GET /healthz HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
	return within(end, "an answer").finally(() => socket.destroy());
}

const namesOf = (cert) => cert.subjectAltName.split(", ").map((one) => one.replace(/^(DNS|IP Address|URI):/, ""));
const normal = (address) => (address.includes(":") ? new URL(`http://[${address}]`).hostname.slice(1, -1) : address);

describe("TLS with the cluster's authority", () => {
	let server;
	before(async () => (server = await startServer({ listen: "0.0.0.0:0", args: ["--tls-name", "gpu.example,198.51.100.7"] })));
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("the address that is printed is one from elsewhere, by https", () => {
		assert.equal(server.url.protocol, "https:");
		assert.equal(server.url.hostname, "gpu.example", "what the operator said comes first");
	});

	test("keys are for their owner only", () => {
		const place = join(server.data, "tls");
		assert.equal(statSync(place).mode & 0o777, 0o700);
		assert.deepEqual(readdirSync(place).sort(), ["authority.key", "authority.pem", "server.key", "server.pem"]);
		for (const name of readdirSync(place)) assert.equal(statSync(join(place, name)).mode & 0o777, 0o600, name);
	});

	test("names and addresses of this machine are in the certificate", async () => {
		const { cert, socket } = await shake(server);
		socket.destroy();
		const names = namesOf(cert), here = hostname().toLowerCase();
		const addresses = Object.values(networkInterfaces()).flat().map((one) => one.address).filter((one) => !one.startsWith("fe80"));
		const { cluster_id } = await Client.login(server).then((client) => client.call("server.info"));
		for (const wanted of ["gpu.example", "198.51.100.7", here, `${here.split(".")[0]}.local`, "localhost", "127.0.0.1", `exogpu:server:${cluster_id}`])
			assert.ok(names.includes(wanted), `${wanted} in ${names}`);
		const numeric = names.filter((one) => /^[\d.]+$|:.*:/.test(one) && !one.startsWith("exogpu")).map(normal);
		for (const address of addresses) assert.ok(numeric.includes(normal(address)), `${address} in ${numeric}`);
		const days = (new Date(cert.validTo) - new Date(cert.validFrom)) / 86400e3;
		assert.ok(days > 89 && days < 91, `${days} days`);
		assert.equal(cert.publicKey.asymmetricKeyDetails.namedCurve, "prime256v1");
		assert.equal(cert.ca, false);
		for (const servername of ["localhost", "gpu.example", here]) (await shake(server, { servername })).socket.destroy();
		const wrong = await shake(server, { servername: "evil.example" }).then(() => assert.fail("taken"), (error) => error);
		assert.equal(wrong.code, "ERR_TLS_CERT_ALTNAME_INVALID");
	});

	test("TLS 1.3 and nothing older", async () => {
		const { protocol, cipher, socket } = await shake(server);
		socket.destroy();
		assert.equal(protocol, "TLSv1.3");
		assert.match(cipher.name, /^TLS_(AES_(128|256)_GCM_SHA(256|384)|CHACHA20_POLY1305_SHA256)$/);
		for (const maxVersion of ["TLSv1.2", "TLSv1.1", "TLSv1"])
			await assert.rejects(shake(server, { maxVersion, minVersion: "TLSv1", ciphers: "DEFAULT@SECLEVEL=0" }),
				/protocol version|unsupported protocol|no protocols/i, maxVersion);
	});

	test("page, API and events by https; never Strict-Transport-Security", async () => {
		const page = await server.http("/");
		assert.equal(page.status, 200);
		assert.match(page.headers["content-security-policy"], /default-src 'none'/);
		assert.equal(page.headers["strict-transport-security"], undefined);
		const client = await Client.login(server);
		const info = await client.call("server.info");
		assert.equal(info.tls, true);
		assert.equal(info.authority_sha256, new X509Certificate(server.ca).fingerprint256.replaceAll(":", "").toLowerCase());
		await client.call("events.subscribe", { topics: ["inventory"] });
		await client.close();
	});

	test("the authority's certificate is open to all, and is the one that signs", async () => {
		const { status, headers, text } = await server.http("/ca.pem");
		assert.deepEqual([status, headers["content-type"]], [200, "application/x-x509-ca-cert"]);
		assert.equal(text, server.ca.toString());
		const authority = new X509Certificate(text), { cert, socket } = await shake(server, { ca: undefined, rejectUnauthorized: false });
		socket.destroy();
		assert.equal(authority.ca, true);
		assert.equal(cert.issuerCertificate?.fingerprint256, authority.fingerprint256, "it is sent along");
		assert.ok(cert.verify(authority.publicKey));
		const [, print] = await eventually(() => /authority: SHA256:(\S+)\n/.exec(server.output.stderr), "it stands in the log");
		assert.equal(print, authority.fingerprint256);
	});

	test("whoever does not know the authority does not come in", async () => {
		for (const ca of [undefined, makeCertificate({ name: "other", authority: true }).pem])
			await assert.rejects(shake(server, { ca }), /self-signed certificate in certificate chain|unable to/);
	});

	test("plain HTTP is told to use https, and gets nothing", async () => {
		for (const path of ["/healthz", "/", "/ws"]) {
			const raw = connectRaw(server, `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n\r\n`);
			const answer = await within(raw.ended, "the end");
			assert.doesNotMatch(answer, /HTTP\/1\.\d (101|200)/);
			assert.doesNotMatch(answer, /"status":"ok"|<!doctype/i);
		}
	});

	test("Host: this server's names and any address; Origin: the page's own, by https", async () => {
		for (const host of ["gpu.example", `GPU.example:${server.port}`, `localhost:${server.port}`, hostname(), `${hostname().split(".")[0]}.local:443`,
			"203.0.113.9", "[2001:db8::1]:1"])
			assert.match(await ask(server, { host }), /^HTTP\/1.1 200 /, host);
		for (const host of ["evil.example", `gpu.example.evil.example:${server.port}`, "example", "*.example", "exogpu.internal", "cluster.exogpu.internal"])
			assert.match(await ask(server, { host }), /^HTTP\/1.1 403 /, host);
		const own = `127.0.0.1:${server.port}`;
		for (const origin of [`http://${own}`, "https://evil.example", `https://${own}.evil.example`, "https://127.0.0.1", "null"]) {
			const refusal = await Client.open(server, { headers: { origin } }).then(() => assert.fail(`taken: ${origin}`), (error) => error);
			assert.equal(refusal.status, 403, origin);
		}
		await (await Client.open(server, { headers: { origin: `https://${own}` } })).close();
		await (await Client.open(server, { headers: { host: "localhost:1", origin: "https://localhost:1" } })).close(); // forwarded
	});

	test("client certificates: none is fine, one of another's is refused", async () => {
		assert.match(await ask(server), / 200 /);
		const foreign = makeCertificate({ name: "foreign", authority: true });
		const uri = ["exogpu:node:node_1"], uses = ["client"], day = 86400e3;
		// One that calls its issuer by the name of ours, but was signed by another key.
		const named = { ...foreign, subject: makeCertificate({ name: "vm", authority: true }).subject };
		const certificates = {
			"signed by itself": makeCertificate({ name: "node_1", names: uri, uses }),
			"of another authority": makeCertificate({ name: "node_1", issuer: foreign, names: uri, uses }),
			"of another authority of that name": makeCertificate({ name: "node_1", issuer: named, names: uri, uses }),
			expired: makeCertificate({ name: "node_1", names: uri, uses, from: new Date(Date.now() - 9 * day), to: new Date(Date.now() - day) }),
			"not yet valid": makeCertificate({ name: "node_1", names: uri, uses, from: new Date(Date.now() + day) }),
		};
		for (const [what, { pem, key }] of Object.entries(certificates))
			await assert.rejects(ask(server, { cert: pem, key }), /alert|closed|ECONNRESET|EPIPE/, what);
		// The server's own is of our authority, but not one for clients.
		const [cert, key] = ["server.pem", "server.key"].map((name) => readFileSync(join(server.data, "tls", name)));
		await assert.rejects(ask(server, { cert, key }), /alert|closed|ECONNRESET|EPIPE/, "the server's own");
		assert.match(await ask(server), / 200 /);
	});

	test("the command line by https: with the right authority, a wrong one, and none", async () => {
		const url = `https://127.0.0.1:${server.port}`, nowhere = join(temporary(), "none"), authority = join(server.data, "tls", "authority.pem");
		const env = { EXOGPU_TOKEN: server.token, EXOGPU_DATA: nowhere };
		const wrong = join(temporary(), "wrong.pem");
		writeFileSync(wrong, makeCertificate({ name: "other", authority: true }).pem);
		for (const [how, args, more] of [["--ca", ["--ca", authority], {}], ["EXOGPU_CA", [], { EXOGPU_CA: authority }],
			["the data directory's", [], { EXOGPU_DATA: server.data }], ["--ca before EXOGPU_CA", ["--ca", authority], { EXOGPU_CA: wrong }]]) {
			const end = await run(["token", "list", "--json", "--url", url, ...args], { ...env, ...more });
			assert.equal(end.code, 0, `${how}: ${end.stderr}`);
			assert.ok(JSON.parse(end.stdout).tokens.length, how);
		}
		// By a name that is not in its certificate: under its own authority it is known by the cluster's id.
		const byName = await run(["health", "--url", `wss://127.0.0.2:${server.port}/ws`, "--ca", authority], env);
		assert.deepEqual([byName.code, byName.stdout], [0, `ok: ${hostname()}\n`], byName.stderr);
		for (const [how, args, more] of [["none", [], {}], ["a wrong one", ["--ca", wrong], {}], ["a wrong one", [], { EXOGPU_CA: wrong }],
			["the system's", ["--ca", "system"], { EXOGPU_DATA: server.data }]]) {
			const end = await run(["token", "list", "--url", url, ...args], { ...env, ...more });
			assert.equal(end.code, 1, how);
			assert.match(end.stderr, /cannot be trusted/, how);
			assert.match(end.stderr, /authority\.pem|ca\.pem/, how);
			assert.doesNotMatch(end.stderr, new RegExp(server.token.slice(-40)), "the token is not told");
		}
		for (const args of [["--ca", join(nowhere, "x.pem")], ["--ca", "/etc/hostname"]])
			assert.equal((await run(["health", "--url", url, ...args], env)).code, 2, args[1]);
		const plain = await run(["health", "--url", `http://127.0.0.1:${server.port}`], env);
		assert.deepEqual([plain.code, plain.stdout], [1, ""]);
		assert.match(plain.stderr, /https:\/\//);
	});

	test("the command line shows its token to nobody who is not vouched for", async () => {
		const impostor = makeCertificate({ name: "impostor", names: ["127.0.0.1"] });
		let got = "", connections = 0;
		const fake = tls.createServer({ cert: impostor.pem, key: impostor.key, minVersion: "TLSv1.3" }, (socket) =>
			socket.on("data", (piece) => (got += piece)).on("error", () => {}));
		fake.on("connection", () => connections++).on("tlsClientError", () => {}).listen(0, "127.0.0.1");
		await once(fake, "listening");
		const url = `https://127.0.0.1:${fake.address().port}`;
		for (const ca of [join(server.data, "tls", "authority.pem"), "system"]) {
			const end = await run(["token", "list", "--url", url, "--ca", ca], { EXOGPU_TOKEN: server.token });
			assert.equal(end.code, 1);
			assert.match(end.stderr, /cannot be trusted/);
		}
		fake.close();
		assert.ok(connections >= 2, `${connections} connections`);
		assert.equal(got, "");
	});

	test("certificate.list tells what the cluster runs on", async () => {
		const admin = await Client.login(server);
		const { certificates } = await admin.call("certificate.list");
		assert.deepEqual(certificates.map((one) => one.kind), ["authority", "server"]);
		const { cert, socket } = await shake(server);
		socket.destroy();
		const [authority, shown] = certificates;
		assert.equal(shown.sha256, cert.fingerprint256.replaceAll(":", "").toLowerCase());
		assert.equal(shown.serial, cert.serialNumber.toLowerCase());
		assert.ok(shown.names.includes("gpu.example") && shown.names.includes("127.0.0.1"));
		const life = new Date(shown.not_after) - new Date(shown.not_before), renewed = new Date(shown.renews_at) - new Date(shown.not_before);
		assert.ok(Math.abs(renewed / life - 2 / 3) < 0.001, `${renewed} of ${life}`);
		assert.equal(authority.renews_at, null);
		const observer = await admin.call("token.create", { name: "observer", scopes: ["observe"] });
		await (await Client.login(server, observer.token)).refused("certificate.list", {}, "forbidden");
		const { entries } = await admin.call("audit.list", { action: "certificate.issue" });
		assert.deepEqual(entries.map((one) => one.target).sort(), certificates.map((one) => one.serial).sort());
	});

	test("[::] is every address, of IPv4 too, and those are written as such", async (t) => {
		const both = await startServer({ listen: "[::]:0" });
		const admin = await Client.login(both);
		await admin.call("token.create", { name: "made", scopes: ["observe"] });
		const { entries } = await admin.call("audit.list", { action: "token.create", limit: 1 });
		assert.equal(entries[0].peer, "127.0.0.1");
		if (Object.values(networkInterfaces()).flat().some((one) => one.address === "::1"))
			(await shake(both, { host: "::1" })).socket.destroy();
		else t.diagnostic("no IPv6 here: that part is left out");
		await both.finish();
	});

	test("listening on loopback is plain, with the authority made all the same", async () => {
		const plain = await startServer();
		const info = await (await Client.open(plain)).call("server.info");
		assert.equal(info.tls, false);
		assert.match(info.authority_sha256, /^[0-9a-f]{64}$/);
		assert.equal((await plain.http("/ca.pem")).text, readFileSync(join(plain.data, "tls", "authority.pem"), "utf8"));
		await plain.finish();
	});
});

describe("the authority on disk", () => {
	const serve = (data) => run(["serve", "--data", data, "--listen", "0.0.0.0:0", "--no-local-node"]);

	test("a restart keeps it, and clients that trust it", async () => {
		const data = temporary();
		const first = await startServer({ data, listen: "0.0.0.0:0" });
		const before = await shake(first);
		before.socket.destroy();
		await first.finish();
		const second = await startServer({ data, listen: "0.0.0.0:0" });
		const again = await shake(second, { ca: first.ca });
		again.socket.destroy();
		assert.equal(again.cert.fingerprint256, before.cert.fingerprint256, "and its certificate");
		await second.finish();
	});

	test("a half of it that is missing or damaged ends the start and says what to do", async () => {
		const data = temporary(), at = (name) => join(data, "tls", name);
		await (await startServer({ data })).finish();
		const faults = {
			"without its key": () => rmSync(at("authority.key")),
			"with another's key": () => writeFileSync(at("authority.key"), makeCertificate({ name: "x" }).key),
			"with a damaged key": () => writeFileSync(at("authority.key"), readFileSync(at("authority.key")).subarray(0, 100)),
			"with a damaged certificate": () => writeFileSync(at("authority.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n"),
		};
		for (const [how, harm] of Object.entries(faults)) {
			const kept = Object.fromEntries(["authority.key", "authority.pem"].map((name) => [name, readFileSync(at(name))]));
			harm();
			const end = await serve(data);
			assert.equal(end.code, 1, how);
			assert.match(end.stderr, /exogpu: the cluster's authority in \S+ is damaged: /, how);
			assert.match(end.stderr, /copy; or move the directory away/, how);
			assert.doesNotMatch(end.stderr, /PRIVATE KEY/, how);
			for (const [name, bytes] of Object.entries(kept)) writeFileSync(at(name), bytes);
		}
		renameSync(join(data, "tls"), join(data, "tls.old"));
		await (await startServer({ data, listen: "0.0.0.0:0" })).finish();
	});
});

describe("TLS with the operator's certificate", () => {
	const root = makeCertificate({ name: "somebody's root", authority: true });
	const own = (more = {}) => makeCertificate({ name: "own.example", names: ["own.example", "127.0.0.1"], issuer: root, ...more });
	const files = (certificate) => {
		const place = temporary(), cert = join(place, "cert.pem"), key = join(place, "key.pem");
		writeFileSync(key, certificate.key, { mode: 0o600 });
		writeFileSync(cert, certificate.pem);
		return { cert, key, args: ["--tls-cert", cert, "--tls-key", key] };
	};

	test("browsers see it, nodes and the command line the cluster's", async () => {
		const first = own(), { args } = files(first);
		const server = await startServer({ listen: "0.0.0.0:0", args });
		assert.equal(server.url.hostname, "own.example");
		const browser = await shake(server, { ca: root.pem, servername: "own.example" });
		browser.socket.destroy();
		assert.equal(browser.cert.fingerprint256, new X509Certificate(first.pem).fingerprint256);
		const node = await shake(server, { servername: "cluster.exogpu.internal", checkServerIdentity: () => undefined });
		node.socket.destroy();
		assert.match(node.cert.subjectAltName, /URI:exogpu:server:clu_/);
		for (const ca of [join(server.data, "tls", "authority.pem"), join(temporary(), "root.pem")]) {
			if (ca.endsWith("root.pem")) writeFileSync(ca, root.pem);
			const end = await run(["health", "--url", `https://127.0.0.1:${server.port}`, "--ca", ca]);
			assert.equal(end.code, 0, end.stderr);
		}
		const elsewhere = join(temporary(), "root.pem");
		writeFileSync(elsewhere, root.pem);
		const end = await run(["health", "--url", `https://127.0.0.2:${server.port}`, "--ca", elsewhere]);
		assert.equal(end.code, 1, "under another authority the name counts");
		assert.match(end.stderr, /not for 127\.0\.0\.2/);
		for (const host of ["own.example", "localhost", hostname()])
			assert.match(await ask(server, { ca: root.pem, host }), /^HTTP\/1.1 200 /, host);
		await assert.rejects(shake(server), /unable to verify/, "by address the public one is shown");
		const admin = await Client.login({ ...server, ca: root.pem });
		const { certificates } = await admin.call("certificate.list");
		assert.deepEqual(certificates.map((one) => one.kind), ["authority", "server", "own"]);
		assert.deepEqual(certificates[2].names, ["own.example", "127.0.0.1"]);
		await admin.close();
		await server.finish();
	});

	test("it is read again when it changes, while connections stay", async () => {
		const first = own(), second = own(), { cert, key, args } = files(first);
		const server = await startServer({ listen: "0.0.0.0:0", args });
		const shown = async () => {
			const { cert: seen, socket } = await shake(server, { ca: root.pem });
			socket.destroy();
			return seen.fingerprint256;
		};
		const print = ({ pem }) => new X509Certificate(pem).fingerprint256;
		const admin = await Client.login({ ...server, ca: root.pem });
		assert.equal(await shown(), print(first));

		// A pair that does not fit, and one that is over: both are logged, and the one before stays.
		const said = (pattern) => eventually(() => pattern.test(server.output.stderr), `the log says ${pattern}`, 4 * patience);
		writeFileSync(cert, second.pem);
		await said(/the one before stays: \S+key\.pem is not the key of/);
		assert.equal(await shown(), print(first));
		const over = own({ from: new Date(Date.now() - 9 * 86400e3), to: new Date(Date.now() - 86400e3) });
		writeFileSync(key, over.key);
		writeFileSync(cert, over.pem);
		await said(/the one before stays: the certificate in \S+ ended at/);
		assert.equal(await shown(), print(first));

		writeFileSync(key, second.key);
		writeFileSync(cert, second.pem);
		await eventually(async () => (await shown()) === print(second), "the new one is shown", 4 * patience);
		await admin.call("server.info"); // on the connection of before
		const put = async () => (await admin.call("audit.list", { action: "certificate.reload" })).entries.length;
		await eventually(async () => (await put()) === 1, "it is on record", 4 * patience);
		await admin.close();
		await server.finish();
	});

	test("what cannot be shown ends the start", async () => {
		const good = files(own()), none = join(temporary(), "none.pem");
		const over = files(own({ from: new Date(Date.now() - 9 * 86400e3), to: new Date(Date.now() - 86400e3) }));
		const cases = [[none, good.key, /cannot be read/], [good.cert, none, /cannot be read/], [good.key, good.key, /no certificate/],
			[good.cert, good.cert, /no private key/], [over.cert, good.key, /not the key/], [over.cert, over.key, /ended at/]];
		for (const [cert, key, message] of cases) {
			const end = await run(["serve", "--data", temporary(), "--no-local-node", "--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key]);
			assert.equal(end.code, 1);
			assert.match(end.stderr, message);
			assert.equal(end.stdout, "");
		}
	});
});
