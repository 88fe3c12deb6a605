// The container image: what it holds, what it says of itself, and that a server and a node live in it as it starts them.
// Run by tests/docker/test.sh, which builds it.
//
// buildah's chroot isolation has the user, the capabilities and the filter of system calls that containers have, but no
// namespaces: the network is this machine's, so the server takes a port that the system chooses instead of --lan's. It mounts
// the image's own volume over whatever else is mounted on /data, so the state that two containers share lies on /state here.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { chownSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import https from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

const [program, ...store] = (process.env.EXOGPU_BUILDAH ?? "buildah").split(" ");
const image = process.env.EXOGPU_IMAGE ?? "localhost/exogpu:test";
const uid = 52415, patience = 60_000;
const hardening = fileURLToPath(new URL("../packaging/hardening.py", import.meta.url));

const buildah = (...args) => execFileSync(program, [...store, ...args], { encoding: "utf8", timeout: patience }).trim();
const made = [], folders = [];
const container = (of = image) => made[made.push(buildah("from", of)) - 1];
function stateFolder() {
	const path = mkdtempSync(join(tmpdir(), "exogpu-image-"));
	chownSync(path, uid, uid);
	folders.push(path);
	return path;
}
// `volumes` is {place: folder}, or the folder of /state alone.
const runArguments = (name, volumes, user = uid) => ["run", "--isolation", "chroot", "--user", String(user),
	...Object.entries(typeof volumes === "string" ? { "/state": volumes } : volumes ?? {}).flatMap(([place, folder]) =>
		["-v", `${folder}:${place}`]), name, "--"];
// What a command says, by way of a file: buildah may lose the last words of one that ends at once.
function runAs(user, name, volumes, command) {
	buildah(...runArguments(name, volumes, user), "sh", "-c", 'exec "$@" >/tmp/said', "sh", ...command);
	return readFileSync(join(buildah("mount", name), "tmp/said"), "utf8").trim();
}
const run = (name, volumes, ...command) => runAs(uid, name, volumes, command);
const asRoot = (name, script) => runAs(0, name, null, ["sh", "-euc", script]);

// A process in a container, and when it has printed `ready`.
function start(name, volumes, command, ready) {
	const child = spawn(program, [...store, ...runArguments(name, volumes), ...command], { stdio: ["ignore", "pipe", "pipe"] });
	const one = { name, output: "" };
	const ended = new Promise((resolve) => child.on("close", resolve));
	one.ready = new Promise((resolve, reject) => {
		const hear = (text) => {
			one.output += text;
			const match = ready.exec(one.output);
			if (match) resolve(match);
		};
		for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", hear);
		ended.then((code) => reject(new Error(`it ended with ${code}: ${one.output}`)));
		setTimeout(() => reject(new Error(`not ready: ${one.output}`)), patience).unref();
	});
	one.stop = (pid = child.pid) => { // buildah passes the signal on
		process.kill(pid, "SIGTERM");
		return ended;
	};
	return one;
}

// What a service of compose.yaml runs in its shell, with the names of this place.
function composed(service, names) {
	const text = readFileSync(new URL("../../docker/compose.yaml", import.meta.url), "utf8");
	const [, block] = new RegExp(`^  ${service}:.*\n(?:    .*\n|\n)*?    command:\n      - \\|\n((?:        .*\n)+)`, "m").exec(text);
	return names.reduce((script, [from, to]) => script.replaceAll(from, to), block.replace(/^ {8}/gm, "").replaceAll("$$", "$"));
}

function get(url, ca) {
	return new Promise((resolve, reject) => {
		https.get(url, { ca, minVersion: "TLSv1.3" }, (answer) => {
			let text = "";
			answer.setEncoding("utf8").on("data", (piece) => (text += piece));
			answer.on("end", () => resolve({ status: answer.statusCode, text }));
		}).on("error", reject);
	});
}

async function eventually(probe, what) {
	for (const until = Date.now() + patience; ;) {
		const value = await probe();
		if (value) return value;
		if (Date.now() > until) throw new Error(`not in time: ${what}`);
		await new Promise((resolve) => setTimeout(resolve, 100));
	}
}

after(() => {
	for (const name of made) buildah("rm", name);
	for (const path of folders) rmSync(path, { recursive: true, force: true });
});

describe("the image", () => {
	const config = JSON.parse(buildah("inspect", "--type", "image", image)).Docker.config;

	test("says who it runs as, what it keeps, and how its health is asked", () => {
		assert.equal(config.User, `${uid}:${uid}`);
		assert.deepEqual(Object.keys(config.Volumes), ["/data"]);
		assert.deepEqual(Object.keys(config.ExposedPorts), ["52415/tcp"]);
		assert.deepEqual(config.Entrypoint, ["exogpu"]);
		assert.deepEqual(config.Cmd, ["serve", "--lan", "--data", "/data"]);
		assert.deepEqual(config.Healthcheck.Test, ["CMD", "exogpu", "health"]);
		assert.ok(config.Env.includes("NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics"), config.Env.join(" "));
	});

	test("holds no compiler, no Node.js and no sources; its state is its user's own", () => {
		const name = container();
		assert.equal(run(name, null, "sh", "-c", "command -v cc gcc clang glslc node npm cmake || true"), "");
		assert.equal(run(name, null, "sh", "-c", "ls -d /src /tmp/*.deb 2>/dev/null || true"), "");
		assert.equal(run(name, null, "stat", "-c", "%u:%g %a", "/data"), `${uid}:${uid} 700`);
		assert.match(run(name, null, "exogpu", "version"), /^exogpu \d+\.\d+\.\d+$/);
	});

	test("its program has what release builds have against memory errors", () => {
		const name = container(), root = buildah("mount", name);
		const text = execFileSync("python3", ["-B", hardening, "--release", join(root, "usr/bin/exogpu")], { encoding: "utf8" });
		assert.doesNotMatch(text, /MISSING/);
		assert.match(text, /checked copies/);
	});

	test("removing the package keeps the data; purging it deletes them and the account", () => {
		const name = container();
		const left = asRoot(name, `
			touch /var/lib/exogpu/state.db
			stat -c '%U %a' /var/lib/exogpu
			dpkg --remove exogpu >/dev/null 2>&1
			ls /var/lib/exogpu /etc/default/exogpu
			dpkg --purge exogpu >/dev/null 2>&1
			ls -d /var/lib/exogpu /etc/default/exogpu 2>/dev/null || echo gone
			getent passwd exogpu || echo nobody`).split(/\s+/);
		assert.deepEqual(left, ["exogpu", "700", "/etc/default/exogpu", "/var/lib/exogpu:", "state.db", "gone", "nobody"]);
	});
});

describe("a server in a container", () => {
	const state = stateFolder();
	let server, url, ca, stamp;

	before(async () => {
		const name = container();
		stamp = join(stateFolder(), "stamp");
		writeFileSync(stamp, "");
		await new Promise((resolve) => setTimeout(resolve, 20)); // files that are newer are newer
		server = start(name, state, ["exogpu", "serve", "--listen", "0.0.0.0:0", "--data", "/state"],
			/^dashboard: (\S+)\ntoken: (\S+)$/m);
		const [, shown] = await server.ready;
		url = new URL(`https://127.0.0.1:${new URL(shown).port}/`);
		ca = readFileSync(join(state, "tls", "authority.pem"));
	});
	after(() => server.stop(Number(readFileSync(join(state, "lock"), "utf8")))); // itself, so that it has time to end its node

	test("says where the token is, and not what it is", () => {
		const token = readFileSync(join(state, "admin.token"), "utf8").trim();
		assert.match(server.output, /^token: \/state\/admin\.token$/m);
		assert.ok(token.length > 20 && !server.output.includes(token));
		const { uid: owner, mode } = statSync(join(state, "admin.token"));
		assert.deepEqual([owner, mode & 0o777], [uid, 0o600]);
	});

	test("answers by TLS under its own authority, with the dashboard", async () => {
		const health = await get(new URL("/healthz", url), ca), page = await get(url, ca);
		assert.deepEqual([health.status, JSON.parse(health.text).status], [200, "ok"]);
		assert.equal(page.status, 200);
		const [, script] = /<script[^>]* src="([^"]+)"/.exec(page.text);
		assert.equal((await get(new URL(script, url), ca)).status, 200, script);
	});

	test("is found healthy, and is not where there is none", () => {
		run(server.name, state, "sh", "-c", "EXOGPU_DATA=/state exogpu health");
		assert.throws(() => run(server.name, state, "sh", "-c", "EXOGPU_DATA=/nowhere exogpu health 2>&1"));
	});

	test("has verified the processor and Mesa's software device", async () => {
		await eventually(() => {
			const { devices } = JSON.parse(run(server.name, state, "exogpu", "devices", "--data", "/state", "--json"));
			const passed = devices.filter((one) => one.verification.state === "passed");
			return passed.some((one) => one.backend === "cpu") && passed.some((one) => /llvmpipe/.test(one.name));
		}, "two devices have passed");
	});

	test("confines a session's worker in all but the network namespace, which the container's filter may refuse", () => {
		run(server.name, state, "exogpu", "bench", "device", "llvmpipe", "--data", "/state");
		const [, missing] = /not fully confined here: (.*)$/m.exec(server.output) ?? [];
		assert.match(missing ?? "", /^(|empty network: Operation not permitted)$/);
	});

	test("lets a second container in as a node, by the ticket that compose.yaml's service makes", async () => {
		const ticket = stateFolder(), own = stateFolder();
		run(container(), { "/state": state, "/join": ticket }, "sh", "-ec", composed("ticket", [["/data", "/state"]]));
		assert.deepEqual([statSync(join(ticket, "ticket")).mode & 0o777, statSync(join(ticket, "ticket")).uid], [0o600, uid]);
		const script = composed("node1", [["/data", "/state"], ["server:52415", url.host]]);
		const node = start(container(), { "/state": own, "/join": ticket }, ["sh", "-ec", script], /connected to the server/);
		try {
			await node.ready;
			await eventually(() => {
				const { nodes, devices } = JSON.parse(run(server.name, state, "exogpu", "nodes", "--data", "/state", "--json"));
				const joined = nodes.find((one) => !one.local && one.state === "online");
				return joined && devices.some((one) => one.node_id === joined.node_id && one.verification.state === "passed");
			}, "the node is online and a device of it verified");
			assert.ok(!node.output.includes(readFileSync(join(ticket, "ticket"), "utf8").trim()), "its log has no ticket");
		} finally {
			await node.stop();
		}
	});

	test("writes nothing outside its volume, so the root file system may be read-only", () => {
		const root = buildah("mount", server.name);
		const written = execFileSync("find", [root, "-xdev", "-newer", stamp, "-type", "f", "-printf", "/%P\n"],
			{ encoding: "utf8" }).split("\n").filter((path) => path && !/^\/(etc\/(hosts|resolv\.conf|hostname)|run\/|tmp\/)/.test(path));
		assert.deepEqual(written, []);
	});
});

// Those of docker/Dockerfile's other targets. An NVIDIA GPU is not here: what stands for its driver in the tests of the engine
// is where the container toolkit would put the driver.
describe("the smaller images", () => {
	const driver = fileURLToPath(new URL("../../build/debug/tests/libcuda_struck.so", import.meta.url));
	const inside = (name, pattern) => run(name, null, "sh", "-c", `find / -xdev -name '${pattern}' 2>/dev/null || true`);

	for (const target of ["cpu", "nvidia"])
		test(`${target}: the same program and account, and no driver`, () => {
			const of = `localhost/exogpu:${target}`, { config } = JSON.parse(buildah("inspect", "--type", "image", of)).Docker, name = container(of);
			assert.deepEqual([config.User, config.Entrypoint, config.Cmd], [`${uid}:${uid}`, ["exogpu"], ["serve", "--lan", "--data", "/data"]]);
			assert.deepEqual(config.Healthcheck.Test, ["CMD", "exogpu", "health"]);
			assert.match(run(name, null, "exogpu", "version"), /^exogpu \d+\.\d+\.\d+$/m);
			assert.deepEqual([inside(name, "libcuda*"), inside(name, "libcudart*"), inside(name, "libLLVM*"), inside(name, "*_icd*.json")], ["", "", "", ""]);
			assert.equal(inside(name, "libvulkan.so.1") !== "", target === "nvidia");
			assert.equal(config.Env.includes("NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics"), target === "nvidia");
			assert.match(run(name, null, "head", "-1", "/usr/share/doc/exogpu/LICENSES-THIRD-PARTY"), /^exogpu \d/);
		});

	test("nvidia: uses the driver that is put into it", { skip: !existsSync(driver) && "skipped: the debug build, which has the stand-in, is not there" }, async () => {
		const state = stateFolder(), name = container("localhost/exogpu:nvidia");
		const volumes = { "/state": state, "/usr/lib/x86_64-linux-gnu/libcuda.so.1": driver };
		const server = start(name, volumes, ["env", "CUDA_STANDIN=90", "exogpu", "serve", "--listen", "127.0.0.1:0", "--data", "/state"], /^dashboard: /m);
		try {
			await server.ready;
			await eventually(() => {
				const { devices } = JSON.parse(run(name, volumes, "exogpu", "devices", "--data", "/state", "--json"));
				return devices.filter((one) => one.backend === "cuda" && one.verification.state === "passed").length === 2;
			}, "both devices of the stand-in have passed");
		} finally {
			await server.stop(Number(readFileSync(join(state, "lock"), "utf8")));
		}
	});
});
