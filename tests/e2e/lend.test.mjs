// A browser becomes a node: the address that `exogpu lend` prints, the page, yes, the device in the cluster, memory and
// compute on it; the tab that is closed and opened again; the address that is revoked. WebGPU is computed by SwiftShader.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Client } from "../api/client.mjs";
import { binary, eventually, patience, startServer } from "../api/server.mjs";
import { gpuFlags, picture, see, shapes, startBrowser, suite } from "./browser.mjs";

const run = promisify(execFile);

suite("a browser lends its GPU", () => {
	let server, admin, browser;
	const nodeOf = async (state) => (await admin.call("cluster.snapshot")).nodes.find((one) => one.kind === "browser" && one.state === state);
	const node = (state) => eventually(() => nodeOf(state), `the tab's node is ${state}`);
	const lend = async (...args) => (await run(binary, ["lend", "--data", server.data, ...args])).stdout.trim();
	before(async () => {
		server = await startServer({ localNode: false });
		admin = await Client.login(server);
		browser = await startBrowser({ more: gpuFlags });
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	test("opened, asked, yes: it computes; closed and opened again it is the same node; revoked it says so", async () => {
		const url = await lend("--name", "a test");
		assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/lend#token=exolend_\w{61}$/);
		const page = await browser.page();
		await page.goto(url);
		await see(page, "Lend this device's GPU?");
		assert.equal(await page.evaluate("location.href"), `${server.url.origin}/lend`, "the token is not in the address any more");
		assert.equal(await page.evaluate("localStorage.length"), 0, "nothing is stored before yes");
		assert.equal(await nodeOf("online"), undefined, "nothing has joined before yes");
		await picture(page, "lend-ask-wide-light");
		await page.getByLabel("Name").fill("my phone");
		await page.getByLabel("Memory at most").selectOption({ label: "256 MiB" });
		await page.getByRole("button", { name: "Yes, lend it" }).click();
		await see(page, "This device is lent");
		const first = await node("online");
		assert.equal(first.name, "my phone");
		await page.getByText("verified: it computes correctly").waitFor({ timeout: 4 * patience });
		await page.getByText(/^\d+\.\d ms$/).waitFor();
		await picture(page, "lend-online-wide-light");

		const { devices, links } = await eventually(async () => {
			const snapshot = await admin.call("cluster.snapshot");
			return snapshot.links.some((one) => one.from_node_id === first.node_id) && snapshot;
		}, "its round trip is measured");
		const device = devices.find((one) => one.node_id === first.node_id);
		assert.deepEqual([device.backend, device.verification.state, device.memory_bytes], ["webgpu", "passed", 256 * 2 ** 20]);
		assert.ok(links.find((one) => one.from_node_id === first.node_id && one.to_node_id === "server").rtt_ms > 0);
		const n = 16, a = Array.from({ length: n * n }, (_, i) => i % 7), one = Array.from({ length: n * n }, (_, i) => Number(i % (n + 1) === 0));
		const { f32s } = await admin.call("compute.run", { device_id: device.device_id, kernel: "matmul_f32",
			args: [{ zeros: n * n }, { f32s: a }, { f32s: one }, { u32: n }, { u32: n }, { u32: n }], timeout_ms: 60000 });
		assert.deepEqual(f32s, a, "a matrix times the identity");

		const { allocation_id } = await admin.call("memory.allocate", { device_id: device.device_id, bytes: 4096 });
		await admin.callWith("memory.write", { allocation_id, offset: 0 }, Buffer.alloc(4096, 5));
		assert.deepEqual((await admin.call("memory.read", { allocation_id, offset: 0, bytes: 4096 })).body, Buffer.alloc(4096, 5));
		const context = page.context();
		await page.close();
		await node("offline");
		await admin.notice("device_lost", (told) => told.device_id === device.device_id);

		const again = await context.newPage();
		await again.goto(`${server.url.origin}/lend`);
		await see(again, "This device is lent");
		assert.equal((await node("online")).node_id, first.node_id);
		await again.getByRole("button", { name: "Stop" }).click();
		await see(again, "Nothing is lent.");
		await node("offline");
		await again.reload();
		await see(again, "Nothing is lent.");
		await again.getByRole("button", { name: "Lend again" }).click();
		await node("online");
		const { lends } = await admin.call("lend.list");
		await run(binary, ["lend", "revoke", lends[0].lend_id, "--data", server.data]);
		await see(again, "Its address was revoked.");
		assert.equal(await again.evaluate("localStorage.getItem('exogpu.lend')"), null);
		await context.close();
	});

	test("a tab that leaves is forgotten on both sides", async () => {
		const page = await browser.page({ ...shapes["narrow-dark"] });
		await page.goto(await lend("--uses", "2"));
		await picture(page, "lend-ask-narrow-dark");
		await page.getByRole("button", { name: "Yes, lend it" }).click();
		const { node_id } = await node("online");
		await picture(page, "lend-online-narrow-dark");
		await page.getByRole("button", { name: "Leave and delete" }).click();
		await page.getByRole("button", { name: "Yes, leave and delete" }).click();
		await see(page, "To lend this device's GPU, open the address");
		assert.equal(await page.evaluate("localStorage.getItem('exogpu.lend')"), null);
		await eventually(async () => !(await admin.call("cluster.snapshot")).nodes.some((one) => one.node_id === node_id), "its node is gone");
		await page.context().close();
	});

	test("an address that is no good says why, and a browser without WebGPU what it needs", async () => {
		const url = await lend();
		const { lends } = await admin.call("lend.list");
		await admin.call("lend.revoke", { lend_id: lends[0].lend_id });
		const page = await browser.page();
		await page.goto(url);
		await page.getByRole("button", { name: "Yes, lend it" }).click();
		await page.getByText(/This address was revoked at/).waitFor();
		await picture(page, "lend-revoked-wide-light");
		await page.goto(`${server.url.origin}/lend`);
		await see(page, "To lend this device's GPU, open the address");
		const open = (address) => page.evaluate((hash) => void (location.hash = hash), new URL(address).hash);
		await open(await lend());
		await see(page, "Lend this device's GPU?");
		assert.equal(await page.evaluate("location.href"), `${server.url.origin}/lend`, "the address was opened in a tab that was open");
		await page.evaluate(`localStorage.setItem("exogpu.lend", JSON.stringify({ identity: { node_id: "nod_gone", secret: "a".repeat(43) },
			name: "gone", limit_bytes: 1, paused: false }))`);
		await page.goto("about:blank");
		await page.goto(await lend()); // who this browser was is known no more: the new address counts
		await see(page, "Lend this device's GPU?");
		assert.equal(await page.evaluate("localStorage.length"), 0);
		const without = await page.context().newPage();
		await without.addInitScript("delete Navigator.prototype.gpu");
		await without.goto(url);
		await without.getByText(/has no WebGPU/).waitFor();
		const untrusted = await page.context().newPage();
		await untrusted.addInitScript("Object.defineProperty(window, 'isSecureContext', { value: false })");
		await untrusted.goto(url);
		await see(untrusted, "This browser does not trust the connection");
		await untrusted.getByRole("link", { name: "Certificate" }).waitFor();
		await picture(untrusted, "lend-untrusted-wide-light");
		await page.context().close();
	});
});
