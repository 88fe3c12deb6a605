// The event stream: subscribing, resuming where one left off, what may be seen by whom, and what becomes of a client that
// does not read.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { api } from "./contract.mjs";
import { deviceReadings, deviceRecord, nodeRecord } from "./records.mjs";
import { eventually, launch, run, slow, startServer, within } from "./server.mjs";

describe("events", () => {
	let server, admin, node, round = 0;
	const names = (events) => events.map((one) => one.data.device?.name);
	// One inventory event, seen by `admin`.
	async function change() {
		const name = `GPU ${++round}`;
		await node.devices([deviceRecord({ name })]);
		return admin.event((one) => one.data.device?.name === name, name);
	}

	before(async () => {
		// The address sanitizer keeps what was freed for a while; little enough here to see whether the server grows.
		server = await startServer({ env: { ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ""}:quarantine_size_mb=16` } });
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["inventory"] });
		node = await FakeNode.connect(server, nodeRecord());
		await change();
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("a subscription begins with a snapshot, and goes on from there", async () => {
		const client = await Client.login(server);
		const { epoch, seq, resumed, snapshot } = await client.call("events.subscribe", { topics: ["inventory"] });
		assert.equal(resumed, false);
		assert.deepEqual([snapshot.epoch, snapshot.seq], [epoch, seq]);
		const again = await client.call("cluster.snapshot");
		assert.ok(again.seq >= seq, `${again.seq} after ${seq}`); // the entry of this log-in counts, too
		assert.deepEqual({ ...snapshot, seq: 0 }, { ...again, seq: 0 });
		const told = await change();
		const heard = await client.event(() => true);
		assert.deepEqual(heard, told, "everyone gets the same event");
		assert.ok(heard.seq > seq, `${heard.seq} after ${seq}`);
		assert.equal(heard.epoch, epoch);
		await client.close();
	});

	test("only the topics asked for, and the newest subscription counts", async () => {
		const client = await Client.login(server);
		await client.call("events.subscribe", { topics: ["telemetry", "placement", "topology", "alerts"] });
		await change();
		node.telemetry([deviceReadings()]);
		await client.event((one) => one.topic === "telemetry");
		assert.deepEqual([...new Set(client.events.map((one) => one.topic))], ["telemetry"]);
		await client.call("events.subscribe", { topics: ["inventory"] });
		const from = client.events.length;
		node.telemetry([deviceReadings()]);
		await change();
		await client.event((one) => one.topic === "inventory");
		assert.deepEqual([...new Set(client.events.slice(from).map((one) => one.topic))], ["inventory"]);
		const ended = await client.call("events.subscribe", { topics: [] });
		assert.deepEqual([ended.resumed, ended.snapshot], [false, null]);
		const seen = client.events.length;
		await change();
		await client.call("server.info");
		assert.equal(client.events.length, seen, "nothing comes any more");
		await client.close();
	});

	test("resuming replays exactly what was missed, in order, once", async () => {
		const client = await Client.login(server);
		const { epoch, seq } = await client.call("events.subscribe", { topics: ["inventory"] });
		await client.close();
		const missed = [];
		for (let i = 0; i < 20; i++) missed.push(await change());
		const again = await Client.login(server);
		const answer = await again.call("events.subscribe", { topics: ["inventory"], since: { epoch, seq } });
		assert.deepEqual([answer.resumed, answer.snapshot, answer.epoch], [true, null, epoch]);
		await change();
		await again.event((one) => one.data.device?.name === `GPU ${round}`);
		assert.deepEqual(again.events.slice(0, 20), missed);
		assert.deepEqual(names(again.events), [...names(missed), `GPU ${round}`]);
		const middle = await Client.login(server);
		await middle.call("events.subscribe", { topics: ["inventory"], since: { epoch, seq: missed[9].seq } });
		await middle.event((one) => one.data.device?.name === `GPU ${round}`);
		assert.deepEqual(middle.events.slice(0, 10), missed.slice(10));
		// With telemetry the newest readings follow, since those are not replayed.
		const both = await Client.login(server);
		await both.call("events.subscribe", { topics: ["inventory", "telemetry"], since: { epoch, seq: missed[18].seq } });
		const newest = await both.event((one) => one.topic === "telemetry");
		assert.equal(newest.data.devices[0].device_id, "dev_gpu");
		const none = await Client.login(server);
		const now = await none.call("cluster.snapshot");
		assert.equal((await none.call("events.subscribe", { topics: ["inventory"], since: { epoch, seq: now.seq } })).resumed, true);
		await none.call("server.info");
		assert.deepEqual(none.events, [], "nothing missed, nothing replayed");
		await Promise.all([again, middle, both, none].map((one) => one.close()));
	});

	test("another epoch, or a number from the future, gets a snapshot", async () => {
		const { epoch, seq } = await admin.call("cluster.snapshot");
		for (const since of [{ epoch: "other", seq }, { epoch: "", seq }, { epoch, seq: seq + 1000 }]) {
			const client = await Client.login(server);
			const answer = await client.call("events.subscribe", { topics: ["inventory"], since });
			assert.equal(answer.resumed, false, JSON.stringify(since));
			assert.ok(answer.snapshot, JSON.stringify(since));
			await client.close();
		}
	});

	test("topics of admins are refused to others, as a whole", async () => {
		const { token } = await admin.call("token.create", { name: "observer", scopes: ["observe"] });
		const client = await Client.login(server, token);
		for (const [topic, { "x-scope": scope }] of Object.entries(api["x-events"].topics)) {
			const call = client.call("events.subscribe", { topics: [topic] });
			if (scope === "observe") await call;
			else await assert.rejects(call, { reason: "forbidden" }, topic);
		}
		await client.call("events.subscribe", { topics: ["telemetry"] });
		await client.refused("events.subscribe", { topics: ["inventory", "audit"] }, "forbidden");
		const from = client.events.length;
		await change();
		node.telemetry([deviceReadings()]);
		await client.event((one) => one.topic === "telemetry", "telemetry", from);
		assert.deepEqual(client.events.slice(from).filter((one) => one.topic !== "telemetry"), [], "what was refused changed nothing");
		await client.close();
	});

	test("the log, without secrets", async () => {
		const client = await Client.login(server);
		await client.call("events.subscribe", { topics: ["log"] });
		const made = await admin.call("token.create", { name: "logged", scopes: ["observe"] });
		const { data } = await client.event((one) => one.topic === "log" && one.data.text.includes(made.token_id), "a line about the token");
		assert.equal(data.dropped, 0);
		assert.equal(JSON.stringify(client.events).includes(made.token), false);
		assert.equal(server.output.stderr.includes(made.token), false);
		assert.equal(server.output.stderr.includes(server.token), false);
		await client.close();
	});

	test("what a node warns of: with its name, no control characters, and no more than its share", async () => {
		const fake = await FakeNode.connect(server, nodeRecord({ node_id: "nod_warns", name: "far\u001b[31m" })), client = await Client.login(server);
		await client.call("events.subscribe", { topics: ["log"] });
		const warn = (text, more = {}) => fake.notify("node.log", { level: "warning", area: "node", text, at: "2026-11-20T14:31:52.000Z", dropped: 0, ...more });
		const heard = () => client.events.filter(({ topic, data }) => topic === "log" && data.node_id === "nod_warns").map(({ data }) => data);
		warn("one\nline, \u001b[2J and \u009b", { dropped: 3 });
		await client.until(() => heard().length, "the first");
		assert.deepEqual(heard()[0], { level: "warning", area: "node", text: "one?line, ?[2J and ??", dropped: 3, node_id: "nod_warns",
			node_name: "far?[31m", said_at: "2026-11-20T14:31:52.000Z" });
		for (const wrong of [{ level: "info" }, { text: "x".repeat(513) }, { at: "in the morning, or a bit later" }, { area: "" }]) warn("wrong", wrong);
		const most = 2 ** 31 - 1;
		warn("\u20ac".repeat(512), { dropped: Number.MAX_SAFE_INTEGER }); // so many characters are three times as many bytes
		for (let i = 0; i < 60; i++) warn(`flood ${i}`, { dropped: i < 3 ? i : Number.MAX_SAFE_INTEGER });
		await fake.devices([]); // what came before is seen to
		const kept = (await client.call("log.list", { limit: 500 })).lines.filter((one) => one.node_id === "nod_warns");
		assert.equal(kept.length, 10);
		assert.deepEqual(kept.slice(1).map((one) => one.dropped), [most, 0, 1, 2, most, most, most, most, most]);
		assert.deepEqual(kept.slice(2).map((one) => one.text), Array.from({ length: 8 }, (_, i) => `flood ${i}`), "and nothing that is wrong");
		assert.match(kept[1].text, /^\u20ac{170}\ufffd{1,2}$/, "512 bytes, and what was cut is no character");
		assert.deepEqual(kept.map(({ seq, at, ...one }) => one), heard());
		assert.ok(kept.every((one, i) => !i || one.seq > kept[i - 1].seq));
		const { lines } = await client.call("log.list", { limit: 2 });
		assert.equal(lines.length, 2);
		// It comes back: its share is no larger for that.
		await fake.close();
		const again = await FakeNode.connect(server, nodeRecord({ node_id: "nod_warns", name: "far" }));
		again.notify("node.log", { level: "error", area: "node", text: "again", at: "2026-11-20T14:31:52.000Z", dropped: 0 });
		await again.devices([]);
		assert.ok((await client.call("log.list", { limit: 500 })).lines.every((one) => one.text !== "again"));
		await Promise.all([again.close(), client.close()]);
	});

	test("exogpu log: the newest lines, with the node's name; --follow goes on; --json tells the same", async () => {
		const warn = (text) => node.notify("node.log", { level: "warning", area: "node", text, at: new Date().toISOString(), dropped: 2 });
		warn("a disk is \u001b[31mslow");
		await node.devices([]);
		const { code, stdout, stderr } = await run(["log", "--limit", "5", "--data", server.data]);
		assert.equal(code, 0, stderr);
		assert.match(stdout, /warning +bench +node: a disk is \?\[31mslow\n +and 2 earlier ones/);
		const { lines } = JSON.parse((await run(["log", "--json", "--data", server.data])).stdout);
		assert.equal(lines.findLast((one) => one.node_id).node_name, nodeRecord().name);
		assert.equal((await run(["log", "--limit", "501", "--data", server.data])).code, 2);
		const { child, exited, output } = launch(["log", "--follow", "--json", "--limit", "1", "--data", server.data]);
		await eventually(() => output.stdout.includes("slow"), "it has begun");
		warn("a disk is full");
		await eventually(() => output.stdout.includes("full"), "it goes on");
		child.kill("SIGINT");
		assert.equal((await within(exited, "it ends")).code, 0);
		const told = output.stdout.trim().split("\n").map((line) => JSON.parse(line));
		assert.deepEqual(told.map((one) => one.seq), [...new Set(told.map((one) => one.seq))].sort((a, b) => a - b), "each once, in order");
	});

	test("what is older than the ring gets a snapshot, the rest is replayed whole", async () => {
		const { epoch, seq } = await admin.call("cluster.snapshot");
		const fat = Array.from({ length: 64 }, (_, i) => "x".repeat(60) + i % 10);
		const report = (step) => Array.from({ length: 100 }, (_, i) => deviceRecord({
			device_id: `dev_ring_${i}`, hardware_key: `ring:${i}`, name: `Ring ${step}`, features: fat }));
		for (let step = 0; step < 12; step++) {
			await node.devices(report(step));
			await admin.event((one) => one.data.device?.name === `Ring ${step}` && one.data.device.device_id === "dev_ring_99",
				`report ${step}`);
		}
		const late = await Client.login(server);
		const answer = await late.call("events.subscribe", { topics: ["inventory"], since: { epoch, seq } });
		assert.equal(answer.resumed, false, "too long ago");
		assert.ok(answer.snapshot);
		// From the oldest that is still there: found by trying.
		const events = admin.events.filter((one) => one.data.device?.device_id.startsWith("dev_ring_"));
		let low = 0, high = events.length - 1;
		while (low < high) {
			const middle = (low + high) >> 1;
			const probe = await late.call("events.subscribe", { topics: ["topology"], since: { epoch, seq: events[middle].seq } });
			if (probe.resumed) high = middle;
			else low = middle + 1;
		}
		assert.ok(low > 0 && low < events.length - 100, `the ring begins at ${low} of ${events.length}`);
		const client = await Client.login(server);
		await client.call("events.subscribe", { topics: ["inventory"], since: { epoch, seq: events[low].seq } });
		await client.event((one) => one.seq === events.at(-1).seq, "the last event");
		assert.deepEqual(client.events.map((one) => one.seq), events.slice(low + 1).map((one) => one.seq));
		await Promise.all([late.close(), client.close()]);
	});

	test("who does not read is closed with 4408, and the server keeps its size", async () => {
		// By the Unix socket, whose buffers in the kernel are small: those of TCP hold megabytes.
		const client = await Client.login(server, server.token, { unix: true });
		await client.call("events.subscribe", { topics: ["inventory", "log"] });
		const quick = await Client.login(server);
		await quick.call("events.subscribe", { topics: ["inventory"] });
		const before_ = server.residentBytes();
		client.socket._socket.pause();
		const fat = Array.from({ length: 64 }, (_, i) => "y".repeat(60) + i % 10);
		// 6.5 MB: more than the kernel's buffers of both ends and the server's queue, 4 MiB, hold together.
		let told = 0;
		for (let step = 0; step < 10; step++) {
			await node.devices(Array.from({ length: 140 }, (_, i) => deviceRecord({
				device_id: `dev_slow_${i}`, hardware_key: `slow:${i}`, name: `Slow ${step}`, features: fat })));
			await quick.event((one) => one.data.device?.name === `Slow ${step}` && one.data.device.device_id === "dev_slow_139",
				`report ${step}`, told);
			told = quick.events.length;
		}
		const grown = server.residentBytes() - before_;
		assert.ok(grown < (24 << 20) * (slow > 2 ? 4 : 1), `grew by ${(grown / 1048576).toFixed(1)} MiB`);
		client.socket._socket.resume();
		const end = await within(client.closed, "the slow reader is closed");
		assert.ok([4408, 1006].includes(end.code), `closed with ${end.code}`);
		assert.ok(client.events.length < quick.events.length, "it missed some");
		await quick.call("server.info"); // nobody else was held up
		await quick.close();
	});

	test("telemetry for who does not read is the newest only", async () => {
		const most = slow > 2 ? 600 : 3000, begun = performance.now(); // more than 24 MiB, where the bound is as narrow as that
		// By the Unix socket, whose buffers in the kernel are small, so that a slow machine fills them, too.
		const client = await Client.login(server, server.token, { unix: true });
		await client.call("events.subscribe", { topics: ["telemetry"] });
		client.socket._socket.pause();
		const before_ = server.residentBytes();
		const wide = { throttle: Array.from({ length: 16 }, () => "z".repeat(64)), processes: Array.from({ length: 64 },
			(_, pid) => ({ pid, name: "n".repeat(200), memory_bytes: 1 })) };
		let many = 0; // within a third of the time for which a silent client is borne
		while (many < most && (many < 100 || performance.now() - begun < 10000)) {
			for (let i = 0; i < 100; i++) node.telemetry([deviceReadings({ ...wide, utilization_percent: ++many / 100 })]);
			await node.devices([]); // answered after them
		}
		const grown = server.residentBytes() - before_;
		assert.ok(grown < (24 << 20) * (slow > 2 ? 4 : 1), `grew by ${(grown / 1048576).toFixed(1)} MiB`);
		client.socket._socket.resume();
		const last = await client.event((one) => one.data.devices[0]?.utilization_percent === many / 100, "the newest reading");
		assert.ok(last);
		console.log(`${client.events.length} of ${many} readings came`);
		assert.ok(client.events.length < many, `${client.events.length} of ${many} came`);
		await client.close();
	});
});
