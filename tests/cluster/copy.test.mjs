// memory.copy between two machines whose wire is cut in the middle of it: it goes on by way of the server, or ends with
// the reason; what is held is counted rightly at both ends, the next copy works, and other sessions notice nothing.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { Client } from "../api/client.mjs";
import { alive, workers } from "../api/machine.mjs";
import { eventually, within } from "../api/server.mjs";
import { pattern } from "../api/workers.mjs";
import { becomes, cpuOf, letIn, node, serve, snapshot } from "./cluster.mjs";
import { Net, long, missing } from "./net.mjs";

const MiB = 1 << 20, SIZE = 12 * MiB;
const whole = { bits_per_s: 0 }, narrow = { bits_per_s: 10e6 }; // SIZE takes 10 s by this

describe("copies between machines whose wire is cut", { skip: missing ?? false }, () => {
	let net, server, admin, one, two;

	const allocate = async (client, { cpu }, bytes = SIZE) => (await client.call("memory.allocate", { device_id: cpu.device_id, bytes })).allocation_id;
	const write = async (client, id, bytes) => {
		for (let at = 0; at < bytes.length; at += MiB) await client.callWith("memory.write", { allocation_id: id, offset: at }, bytes.subarray(at, at + MiB));
	};
	const read = async (client, id, size) => {
		const pieces = [];
		for (let offset = 0; offset < size; offset += MiB)
			pieces.push((await client.call("memory.read", { allocation_id: id, offset, bytes: Math.min(MiB, size - offset) })).body);
		return Buffer.concat(pieces);
	};
	// Its answer, or the error that it ends with; however long that takes.
	const copy = (client, from, to) => {
		client.call("memory.copy", { from, from_offset: 0, to, to_offset: 0, bytes: SIZE }).catch(() => {});
		const call = client.calls.get(client.nextId - 1);
		const ended = new Promise((resolve) => Object.assign(call, { resolve, reject: resolve }));
		return within(ended, () => `the copy ends; server: ${server.output.stderr.slice(-1500)}`, 4 * long);
	};
	const session = async () => {
		const { token, token_id } = await admin.call("token.create", { name: "copier", scopes: ["observe", "allocate"] });
		return Object.assign(await Client.login(server, token, { unix: true }), { token_id });
	};
	const held = async ({ token_id }) => (await admin.call("token.list")).tokens.find((other) => other.token_id === token_id).memory_bytes;
	const linked = () => eventually(async () => {
		const { links } = await snapshot(admin);
		return [[one, two], [two, one]].every(([from, to]) =>
			links.some((link) => link.from_node_id === from.id && link.to_node_id === to.id && link.state === "up"));
	}, "the two nodes have a link", 2 * long);
	const between = async (settings) => {
		await net.set(one.machine, two.machine, settings);
		await net.set(two.machine, one.machine, settings);
	};
	// The copy has begun, and is not done: what is told of it.
	const underWay = (client) => client.until(() => client.notices.find(({ method, params }) => method === "session.progress" && params.done_bytes > 0)?.params,
		"progress is told", long);

	// A session that writes and reads what it has, over and over, until it is told to stop; then it must have seen nothing.
	const bystander = async (where) => {
		const client = await session(), bytes = pattern(MiB, 77), ids = [];
		for (const place of where) ids.push(await allocate(client, place, MiB));
		let over = false, rounds = 0;
		const going = (async () => {
			for (; !over || rounds < 2; rounds++)
				for (const id of ids) {
					await write(client, id, bytes);
					assert.ok((await read(client, id, MiB)).equals(bytes));
				}
		})();
		going.catch(() => {});
		return {
			async stop() {
				over = true;
				await going;
				assert.deepEqual(client.notices, []);
				assert.equal(await held(client), ids.length * MiB);
				await client.close();
			},
		};
	};

	before(async () => {
		net = await Net.make(["home", "one", "two"]);
		server = await serve(net.machines.home);
		admin = await server.login();
		[one, two] = await Promise.all(["one", "two"].map((name) => node(net.machines[name], ["--join", `${net.machines.home.address}:52415`])));
		for (const each of [one, two]) {
			await letIn(admin, each);
			each.cpu = await cpuOf(admin, each.id);
		}
	});
	// Whatever became of the test before.
	beforeEach(async () => {
		await net.mend(null, null);
		await between(whole);
		for (const each of [one, two]) await becomes(admin, each.id, "online");
		await linked();
	});
	after(async () => {
		await server?.stop();
		net?.destroy();
	});

	for (const [what, ways] of Object.entries({
		"between the two, both ways": (from, to) => [[from, to], [to, from]],
		"between the two, the way of the data": (from, to) => [[from, to]],
		"between the two, the way back": (from, to) => [[to, from]],
	}))
		test(`${what}: it goes on by way of the server`, async () => {
			const client = await session(), bytes = pattern(SIZE, what.length), other = await bystander([one, two]);
			const [from, to, back] = [await allocate(client, one), await allocate(client, two), await allocate(client, one)];
			await write(client, from, bytes);
			await between(narrow);
			const copied = copy(client, from, to), { done_bytes, total_bytes } = await underWay(client);
			assert.ok(done_bytes < SIZE && total_bytes === SIZE, `${done_bytes} of ${total_bytes}`);
			for (const [a, b] of ways(one.machine, two.machine)) await net.cut(a, b);
			assert.deepEqual(await copied, { bytes: SIZE, path: "relay" });
			assert.ok((await read(client, to, SIZE)).equals(bytes), "bit for bit");
			assert.deepEqual(await copy(client, to, back), { bytes: SIZE, path: "relay" });
			assert.ok((await read(client, back, SIZE)).equals(bytes), "and back");
			await net.mend(null, null);
			await between(whole);
			await linked();
			assert.deepEqual(await copy(client, from, to), { bytes: SIZE, path: "link" });
			assert.equal(await held(client), 3 * SIZE);
			for (const allocation_id of [from, to, back]) await client.call("memory.free", { allocation_id });
			assert.equal(await held(client), 0);
			assert.ok(client.notices.every(({ method }) => method === "session.progress"));
			await other.stop();
			await client.close();
		});

	for (const [which, pick] of Object.entries({ "is written": () => two, "is read": () => one }))
		test(`around the machine that ${which}: it ends with the reason, and costs what lay there`, async () => {
			const gone = pick(), stays = gone === one ? two : one;
			const client = await session(), bytes = pattern(SIZE, 5), other = await bystander([stays]);
			const [from, to] = [await allocate(client, one), await allocate(client, two)];
			await write(client, from, bytes);
			const ends = workers(gone.child.pid);
			await between(narrow);
			const copied = copy(client, from, to);
			await underWay(client);
			await net.cut(gone.machine, null);
			await net.cut(null, gone.machine);
			assert.equal((await copied).reason, "device_lost");
			const { allocations } = await client.notice("device_lost");
			assert.deepEqual(allocations, [gone === one ? from : to]);
			assert.equal(await held(client), SIZE);
			await eventually(() => !ends.some(alive), "its workers have ended", long);
			await net.mend(null, null);
			await between(whole);
			await becomes(admin, gone.id, "online");
			await linked();
			const again = await eventually(() => allocate(client, gone).catch((error) => {
				if (error.reason !== "unavailable") throw error;
			}), "its memory can be had again", long);
			const [source, target] = gone === one ? [again, to] : [from, again];
			await write(client, source, bytes);
			await eventually(async () => { // until each has heard of the other's link
				const done = await copy(client, source, target);
				assert.equal(done.bytes, SIZE);
				return done.path === "link";
			}, "it goes by the link again", long);
			assert.ok((await read(client, target, SIZE)).equals(bytes));
			assert.equal(await held(client), 2 * SIZE);
			await other.stop();
			await client.close();
		});
});
