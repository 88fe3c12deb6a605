// The client commands for memory and measuring, as someone at a terminal or a script would use them: against a real
// server, its own node and this machine's CPU.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { FakeNode } from "./client.mjs";
import { deviceRecord, nodeRecord } from "./records.mjs";
import { eventually, launch, patience, run, startServer, within } from "./server.mjs";

const MiB = 1024 * 1024;

describe("commands that hold and measure", () => {
	let server, cpu;
	const exogpu = (...words) => run([...words, "--data", server.data]);
	const json = async (...words) => {
		const { code, stdout, stderr } = await exogpu(...words, "--json");
		assert.equal(code, 0, stderr);
		return JSON.parse(stdout);
	};
	const held = async () => (await json("alloc", "list")).allocations;

	// An alloc that stays, and what it said it holds.
	async function hold(words, env) {
		const one = launch(["alloc", ...words, "--json", ...(env ? [] : ["--data", server.data])], env);
		const early = one.exited.then(({ code, stderr }) => assert.fail(`it ended with ${code}: ${stderr}`));
		early.catch(() => {});
		const said = new Promise((resolve) => one.child.stdout.on("data", () =>
			one.output.stdout.endsWith("\n") && resolve(JSON.parse(one.output.stdout))));
		return { ...one, answer: await within(Promise.race([said, early]), "it holds memory", 2 * patience) };
	}
	async function end(one, signal) {
		if (signal) one.child.kill(signal);
		return within(one.exited, "exogpu alloc ends");
	}

	before(async () => {
		server = await startServer({ localNode: true });
		cpu = await eventually(async () => (await json("devices")).devices.find((one) => one.backend === "cpu" &&
			one.verification.state === "passed"), "the CPU is verified", 6 * patience);
	});
	after(() => server?.finish());

	test("alloc holds memory until Ctrl-C, and gives it back at once", async () => {
		const one = await hold([cpu.device_id, "16MiB", "--label", "a test"]);
		assert.equal(one.answer.bytes, 16 * MiB);
		assert.equal(one.answer.device_id, cpu.device_id);
		const [listed, ...others] = await held();
		assert.deepEqual(others, []);
		assert.deepEqual([listed.allocation_id, listed.bytes, listed.label], [one.answer.allocation_id, 16 * MiB, "a test"]);
		const { stdout } = await exogpu("alloc", "list");
		for (const text of ["ALLOCATION", "HOLDER", one.answer.allocation_id, "a test", "16 MiB"])
			assert.ok(stdout.includes(text), `${text} in: ${stdout}`);
		assert.equal((await end(one, "SIGINT")).code, 0);
		assert.deepEqual(await held(), []);
	});

	test("a device is drained and returned; it goes by the beginning of its id there, too", async () => {
		const state = async () => (await json("devices")).devices.find((one) => one.device_id === cpu.device_id).draining;
		const { code, stdout, stderr } = await exogpu("devices", "drain", cpu.device_id.slice(0, -2));
		assert.equal(code, 0, stderr);
		assert.match(stdout, new RegExp(`${cpu.device_id}\\) is draining`));
		assert.equal(await state(), true);
		assert.equal((await json("devices", "return", cpu.device_id)).draining, false);
		assert.equal(await state(), false);
		assert.equal((await exogpu("devices", "drain", "no-such-device")).code, 1);
	});

	test("a device goes by its name, or the beginning of its id", async () => {
		for (const words of [[cpu.name], [cpu.name.slice(0, 8).toLowerCase()], [cpu.device_id.slice(0, -2)]]) {
			const one = await hold([...words, "4096"]);
			assert.equal(one.answer.device_id, cpu.device_id);
			assert.equal((await end(one, "SIGTERM")).code, 0);
		}
	});

	test("what an admin frees is lost to whoever held it", async () => {
		const one = await hold([cpu.device_id, "1MiB"]);
		const { code, stdout } = await exogpu("alloc", "free", one.answer.allocation_id);
		assert.equal(code, 0);
		assert.match(stdout, /freed .*1(\.0)? MiB/);
		const ended = await end(one);
		assert.equal(ended.code, 1);
		assert.match(ended.stderr, /lost/);
		const again = await exogpu("alloc", "free", one.answer.allocation_id);
		assert.equal(again.code, 1);
		assert.match(again.stderr, /alloc list/);
	});

	test("a token's limit holds, and is shown", async () => {
		const made = await json("token", "create", "--name", "small", "--scopes", "observe,allocate", "--memory-limit", "8MiB");
		const env = { EXOGPU_TOKEN: made.token, EXOGPU_URL: server.url.origin };
		const one = await hold([cpu.device_id, "6MiB"], env);
		const more = await run(["alloc", cpu.device_id, "4MiB"], env);
		assert.equal(more.code, 1);
		assert.match(more.stderr, /limit/);
		const token = (await json("token", "list")).tokens.find((each) => each.token_id === made.token_id);
		assert.deepEqual([token.memory_bytes, token.memory_limit_bytes], [6 * MiB, 8 * MiB]);
		assert.match((await exogpu("token", "list")).stdout, /6(\.0)? ?(MiB)? \/ 8(\.0)? MiB/);
		assert.equal((await exogpu("token", "revoke", made.token_id)).code, 0);
		assert.equal((await end(one)).code, 1);
		await eventually(async () => !(await held()).length, "the memory of a revoked token is free");
	});

	test("mistakes are told with what to do", async () => {
		const nobody = await exogpu("alloc", "no such device", "1MiB");
		assert.equal(nobody.code, 1);
		assert.ok(nobody.stderr.includes(cpu.device_id), nobody.stderr);
		const large = await exogpu("alloc", cpu.device_id, "4000TiB");
		assert.equal(large.code, 1);
		assert.match(large.stderr, /exogpu: .+/);
		assert.equal((await exogpu("bench", "device", "no such device")).code, 1);
		assert.deepEqual(await held(), []);
	});

	test("devices of one name are told apart by their number and their machine", async () => {
		const far = await FakeNode.connect(server, nodeRecord({ node_id: "nod_far", name: "far" }));
		await far.devices([1, 2].map((n) => deviceRecord({ device_id: `dev_far${n}`, hardware_key: `uuid:far${n}`, name: cpu.name, pci_address: `0000:0${n}:00.0`,
			support: "unsupported", support_reason: "read back something else" })));
		const { code, stderr } = await exogpu("alloc", cpu.name, "1MiB");
		assert.equal(code, 1);
		assert.match(stderr, /may be one of 3 devices/);
		for (const title of [" of ", " · 0 of far)", " · 1 of far)"]) assert.ok(stderr.includes(title), `${title}: ${stderr}`);
		assert.match((await exogpu("devices")).stderr, / · 1 of far is unsupported: read back something else\n/);
		assert.match((await exogpu("devices", "drain", "dev_far2")).stdout, / · 1 of far \(dev_far2\) is draining/);
		const same = await FakeNode.connect(server, nodeRecord({ node_id: "nod_same", name: "far" }));
		await same.devices([]);
		assert.match((await exogpu("devices")).stderr, / · 1 of far \(nod_far\) is unsupported/);
		await same.close();
		await far.close();
	});

	test("bench device measures, for people and for programs", async () => {
		const one = launch(["bench", "device", cpu.device_id, "--json", "--data", server.data]);
		const { code, stdout, stderr } = await within(one.exited, "it has measured", 24 * patience);
		assert.equal(code, 0, stderr);
		assert.equal(stderr, "", "no progress into a pipe");
		const [figures] = JSON.parse(stdout).devices;
		for (const [name, value] of Object.entries(figures))
			if (/^(write|read|copy|fill|saxpy|matmul|launch)_/.test(name)) assert.ok(value > 0, `${name}: ${value}`);
		assert.equal(figures.device_id, cpu.device_id);
		assert.deepEqual(await held(), [], "it has freed what it used");
	});
});
