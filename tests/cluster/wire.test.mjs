// The wire itself: what a test tells it is what happens to packets.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { eventually } from "../api/server.mjs";
import { Net, long, missing } from "./net.mjs";

const echo = `require("net").createServer((s) => { s.setNoDelay(); s.pipe(s); s.on("error", () => {}); }).listen(7000, () => console.log("listening"))`;
// The shortest of 21 round trips of a small message, in ms: others wait for a processor as well.
const roundTrips = (address) => `
	const s = require("net").connect(7000, "${address}", async () => {
		s.setNoDelay();
		const times = [];
		for (let i = 0; i < 21; i++) { const t = performance.now(); s.write("x"); await new Promise((f) => s.once("data", f)); times.push(performance.now() - t); }
		console.log("shortest", Math.min(...times)); s.destroy();
	});
	s.on("error", (e) => console.log("failed", e.code));`;
const bulk = (address, bytes) => `
	const s = require("net").connect(7000, "${address}", () => { const t = performance.now(); let got = 0;
		s.on("data", (d) => { got += d.length; if (got === ${bytes}) { console.log("took", performance.now() - t); s.destroy(); } });
		s.write(Buffer.alloc(${bytes})); });`;

describe("the wire", { skip: missing ?? false }, () => {
	let net, a, b;
	before(async () => {
		net = await Net.make(["a", "b"]);
		({ a, b } = net.machines);
		const server = b.spawn(process.execPath, ["-e", echo]);
		await eventually(() => server.output.stdout.includes("listening"), "it listens", long);
	});
	after(() => net?.destroy());
	const said = async (program, pattern) => {
		const { exited } = a.spawn(process.execPath, ["-e", program]);
		const { stdout, stderr } = await exited;
		const found = pattern.exec(stdout);
		assert.ok(found, `${stdout} ${stderr}`);
		return Number(found[1]);
	};
	const plain = { delay_ms: 0, jitter_ms: 0, loss_percent: 0, reorder_percent: 0, bits_per_s: 0 };

	test("without settings it is quick; a delay is there in both directions", async () => {
		const bare = await said(roundTrips(b.address), /shortest (\S+)/);
		await net.set(null, null, { ...plain, delay_ms: 25 });
		const late = await said(roundTrips(b.address), /shortest (\S+)/);
		assert.ok(bare < 25 && late >= 50, `${bare} ms without, ${late} ms with 25 ms each way`);
	});

	test("a rate is kept, and TCP gets through loss and reordering with every byte", async () => {
		await net.set(null, null, { ...plain, bits_per_s: 10e6 });
		const bytes = 500000, ms = await said(bulk(b.address, bytes), /took (\S+)/);
		assert.ok(ms >= 0.9 * (bytes * 8) / 10e3, `${bytes} bytes at 10 Mbit/s took ${ms} ms`);
		await net.set(null, null, { ...plain, delay_ms: 2, jitter_ms: 1, loss_percent: 2, reorder_percent: 5 });
		const before = await net.count();
		assert.ok(await said(bulk(b.address, 300000), /took (\S+)/) > 0);
		assert.ok((await net.count()).lost > before.lost, "some were lost");
	});

	test("one way can be cut, and mended", async () => {
		await net.set(null, null, plain);
		await net.cut(b, a);
		const { child, output } = a.spawn(process.execPath, ["-e", roundTrips(b.address)]);
		const before = await net.count();
		await eventually(async () => (await net.count()).lost > before.lost, "an answer is lost", long);
		assert.equal(output.stdout, "");
		await net.mend(null, null);
		await eventually(() => /shortest/.test(output.stdout), "it gets through", long);
		child.kill();
	});

	test("what is not understood is told", () => assert.rejects(net.tell("0 1 colour=red"), /not understood: colour=red/));
});
