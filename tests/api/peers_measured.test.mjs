// How fast the GPUs of a machine copy to each other, from the measurement to who asks: a server with its own node, whose
// CUDA driver is the stand-in of the unit tests (two devices; its clock says that copies between them go at 400 GB/s).
import assert from "node:assert/strict";
import { symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { eventually, run, slow, startServer, temporary } from "./server.mjs";

const standin = process.env.EXOGPU_CUDA_STANDIN, patience = 60000 * slow;

describe("copies between GPUs", { skip: standin ? false : "EXOGPU_CUDA_STANDIN is not set" }, () => {
	const library = temporary(), data = temporary();
	let server, admin;

	const start = async (env = {}) => {
		server = await startServer({ data, localNode: true, env: { LD_LIBRARY_PATH: `${library}:${dirname(standin)}`, CUDA_STANDIN: "90", ...env } });
		admin = await Client.login(server);
	};
	const finish = async () => {
		await admin.close();
		await server.finish();
	};
	const gpus = async () => (await admin.call("cluster.snapshot")).devices.filter((one) => one.backend === "cuda");
	// Both directions of the pair, once `ready` is true of each.
	const directions = (ready, what) => eventually(async () => {
		const peers = (await gpus()).flatMap((one) => one.peers);
		return peers.length === 2 && peers.every(ready) ? peers : null;
	}, what, patience);
	const near = (value) => assert.ok(Math.abs(value - 4e11) < 1e9, `${value} B/s`);

	before(async () => {
		symlinkSync(standin, join(library, "libcuda.so.1"));
		await start({ EXOGPU_FAULT: "peers-crash:cuda" });
	});
	after(async () => {
		await finish();
		assertContractKept();
	});

	test("are not told where they could not be measured, and the devices are none the worse for it", async (context) => {
		const found = await directions((one) => one.bytes_per_s !== null || /crash|signal|SEGV|killed/i.test(one.reason ?? ""),
			"a worker's end is told, or it was measured: this build has no faults");
		if (found.every((one) => one.bytes_per_s !== null)) return context.skip("a build without faults");
		for (const one of found) assert.deepEqual([one.class, one.bytes_per_s, one.measured_at], ["peer", null, null]);
		for (const one of await gpus()) assert.equal(one.verification.state, "passed");
	});

	test("are measured, told with the devices and in sum, and printed", async () => {
		await finish();
		await start();
		for (const one of await directions((peer) => peer.bytes_per_s !== null, "they are measured")) {
			near(one.bytes_per_s);
			assert.deepEqual([one.class, one.reason], ["peer", null]);
			assert.ok(Math.abs(Date.now() - Date.parse(one.measured_at)) < patience);
		}
		const summary = await admin.call("topology.summary");
		assert.equal(summary.peer_to_peer_pairs, 1);
		near(summary.slowest_peer_bytes_per_s);
		near(summary.fastest_peer_bytes_per_s);
		const { code, stdout } = await run(["topology", "--data", data]);
		assert.equal(code, 0);
		assert.match(stdout, /a stand-in \(\d\) dev_\w+ +a stand-in \(\d\) dev_\w+ +direct +400 GB\/s +400 GB\/s/);
	});

	test("are known after a restart, and measured again when a person has a device verified", async () => {
		const before = await directions((peer) => peer.bytes_per_s !== null, "they are measured");
		await finish();
		await start();
		assert.deepEqual(await directions((peer) => peer.bytes_per_s !== null, "they are known"), before, "as it was");
		const [{ device_id }] = await eventually(async () => {
			const all = await gpus();
			return all.every((one) => one.state === "idle" && one.verification.state === "passed") && all;
		}, "its devices are verified", patience);
		await admin.call("device.verify", { device_id });
		const after = await directions((peer) => peer.measured_at !== null && before.every((one) => one.measured_at < peer.measured_at), "they are measured again");
		for (const one of after) near(one.bytes_per_s);
	});
});
