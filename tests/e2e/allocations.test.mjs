// The page of allocations, over real memory of this machine's CPU: who holds what shows live, is told to the page of
// its device, and can be taken back by an admin and by nobody else.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client } from "../api/client.mjs";
import { eventually, startServer } from "../api/server.mjs";
import { devicesUp, goTo, openDashboard, picture, see, shapes, startBrowser, suite } from "./browser.mjs";

const MIB = 2 ** 20;

suite("allocations", () => {
	let server, admin, browser, cpu, alice;
	const panel = (page, name) => page.getByRole("region", { name, exact: true });

	before(async () => {
		server = await startServer({ localNode: true });
		admin = await Client.login(server);
		cpu = (await devicesUp(admin)).find((one) => one.backend === "cpu");
		const { token } = await admin.call("token.create", { name: "alice", scopes: ["observe", "allocate"] });
		alice = await Client.login(server, token);
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await alice?.close?.();
		await server?.stop();
	});

	test("nothing lent: what would fill the page, and the command for it", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/allocations");
		await page.getByRole("heading", { name: "Nothing is lent now" }).waitFor();
		await see(page, "exogpu alloc");
		await picture(page, "allocations-empty");
		await page.context().close();
	});

	test("what a token's holder allocates shows at once, and goes at once", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/allocations");
		const one = await alice.call("memory.allocate", { device_id: cpu.device_id, bytes: 64 * MIB, label: "matrix a" });
		const two = await alice.call("memory.allocate", { device_id: cpu.device_id, bytes: 32 * MIB });
		const device = panel(page, cpu.name);
		await device.getByText("alice", { exact: true }).first().waitFor();
		await device.getByText("matrix a", { exact: true }).waitFor();
		await device.getByRole("button", { name: `Copy: ${one.allocation_id}` }).waitFor();
		await device.getByRole("cell", { name: "2 allocations", exact: true }).waitFor();
		assert.match(await panel(page, "Lent memory").textContent(), /96 MiB.*2 allocations of 1 session on 1 device/);
		// The bar of its memory moves with it, by the share of this machine's memory that is lent.
		const bar = () => device.locator(".partbar .p-lent").evaluate((part) => Number(part.style.getPropertyValue("--v")));
		const total = (await admin.call("cluster.snapshot")).devices.find((one) => one.device_id === cpu.device_id).memory_bytes;
		const shows = (mib) => eventually(async () => Math.abs((await bar()) - (mib * MIB * 100) / total) < (0.01 * MIB * 100) / total,
			`the bar shows ${mib} MiB lent`);
		await shows(96);
		const third = await alice.call("memory.allocate", { device_id: cpu.device_id, bytes: 128 * MIB });
		await shows(224);
		await alice.call("memory.free", { allocation_id: third.allocation_id });
		await shows(96);
		for (const [name, shape] of Object.entries(shapes)) {
			const shaped = await browser.page(shape);
			await openDashboard(shaped, server, "#/allocations");
			await shaped.getByText("matrix a", { exact: true }).waitFor();
			await picture(shaped, `allocations-${name}`);
			await shaped.context().close();
		}
		await alice.call("memory.free", { allocation_id: two.allocation_id });
		await device.getByText(two.allocation_id).waitFor({ state: "detached" });
		await goTo(page, `#/devices/${cpu.device_id}`);
		const lent = page.getByRole("region", { name: "Lent memory" });
		await lent.getByText("alice").waitFor();
		assert.match(await lent.textContent(), /64 MiB/);
		await page.context().close();
	});

	test("an admin takes it back after a question; its owner is told", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/allocations");
		const device = panel(page, cpu.name);
		await device.getByRole("button", { name: /^Free: 64 MiB of alice/ }).click();
		const dialog = page.getByRole("dialog");
		await dialog.getByText("Its content is lost").waitFor();
		await dialog.getByRole("button", { name: "Cancel" }).click();
		assert.equal((await admin.call("memory.list")).allocations.length, 1, "asking frees nothing");
		await device.getByRole("button", { name: /^Free: 64 MiB of alice/ }).click();
		await page.getByRole("dialog").getByRole("button", { name: "Free", exact: true }).click();
		await page.getByRole("heading", { name: "Nothing is lent now" }).waitFor();
		await eventually(async () => (await admin.call("memory.list")).allocations.length === 0, "nothing is held");
		await page.context().close();
	});

	test("an admin revokes the token of who holds it, there and then", async () => {
		const { token, token_id } = await admin.call("token.create", { name: "bob", scopes: ["observe", "allocate"] });
		const bob = await Client.login(server, token);
		for (let i = 0; i < 2; i++) await bob.call("memory.allocate", { device_id: cpu.device_id, bytes: 8 * MIB });
		const page = await browser.page();
		await openDashboard(page, server, "#/allocations");
		const revoke = panel(page, cpu.name).getByRole("button", { name: `Revoke the token of bob, ${token_id}` });
		await revoke.click();
		const dialog = page.getByRole("dialog");
		await dialog.getByText("2 allocations of 16 MiB on 1 device").waitFor();
		await picture(page, "allocations-revoke");
		await dialog.getByRole("button", { name: "Cancel" }).click();
		assert.equal((await admin.call("memory.list")).allocations.length, 2, "asking ends nothing");
		await revoke.click();
		await dialog.getByRole("button", { name: "Revoke", exact: true }).click();
		await page.getByRole("heading", { name: "Nothing is lent now" }).waitFor();
		assert.ok((await admin.call("token.list")).tokens.find((one) => one.token_id === token_id).revoked_at);
		await assert.rejects(Client.login(server, token));
		await page.context().close();
	});

	test("who may not take it back is told why, and sees neither whose it is nor its label", async () => {
		const { token } = await admin.call("token.create", { name: "onlooker", scopes: ["observe"] });
		const held = await alice.call("memory.allocate", { device_id: cpu.device_id, bytes: MIB, label: "secret plan" });
		const page = await browser.page();
		await openDashboard(page, server, "#/allocations", token);
		await page.getByText("another token").first().waitFor();
		assert.equal(await page.getByRole("button", { name: /^Free/ }).first().isDisabled(), true);
		await see(page, "needs a token with the scope admin");
		for (const hidden of [held.allocation_id, alice.session.session_id, "alice", "by the Unix socket", "secret plan"])
			assert.equal(await page.getByText(hidden).count(), 0, hidden);
		assert.equal(await page.getByRole("button", { name: /^Revoke/ }).count(), 0, "of whom it does not know");
		await page.context().close();
	});
});
