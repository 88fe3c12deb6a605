// The page of the audit log: what is done shows at once, is filtered, checked and copied; and a browser that remembers
// another past says so.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client } from "../api/client.mjs";
import { eventually, startServer } from "../api/server.mjs";
import { goTo, openDashboard, picture, press, see, shapes, startBrowser, suite } from "./browser.mjs";

suite("audit", () => {
	let server, admin, browser;
	const entries = (page) => page.getByRole("region", { name: "Entries" });
	const whole = (page) => page.getByRole("region", { name: "The log as a whole" });
	const open = async (options) => {
		const page = await browser.page(options);
		await openDashboard(page, server, "#/audit");
		await entries(page).getByRole("row").nth(1).waitFor();
		return page;
	};

	before(async () => {
		server = await startServer({ localNode: false });
		admin = await Client.login(server);
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	test("what is done shows at once, with who and from where", async () => {
		const page = await open();
		const { token_id } = await admin.call("token.create", { name: "made by the test", scopes: ["observe"] });
		const row = entries(page).getByRole("row").filter({ hasText: token_id }).first();
		await row.getByText("token.create").waitFor();
		const copy = row.getByRole("button", { name: `Copy: ${token_id}` });
		await page.evaluate(() => Object.defineProperty(navigator.clipboard, "writeText", { value: async (text) => (globalThis.clip = text) }));
		await copy.click();
		await page.waitForFunction((id) => globalThis.clip === id, token_id);
		const [made] = (await admin.call("audit.list", { action: "token.create", limit: 1 })).entries; // who it was, and from where
		for (const text of [made.actor.split(":")[1], made.peer]) {
			await row.getByRole("button", { name: `Copy: ${text}`, exact: true }).click();
			await page.waitForFunction((one) => globalThis.clip === one, text);
		}
		assert.match(await row.textContent(), /127\.0\.0\.1.*done/s);
		for (const [name, shape] of Object.entries(shapes)) {
			const shaped = await open(shape);
			await picture(shaped, `audit-${name}`);
			await shaped.context().close();
		}
		await page.context().close();
	});

	test("filters: by words, by action, by result; and not followed", async () => {
		const page = await open();
		await entries(page).getByLabel("Action").selectOption({ label: "tokens" });
		await entries(page).getByText("server.start").waitFor({ state: "detached" });
		await entries(page).getByText("token.create").first().waitFor();
		await entries(page).getByLabel("Filter entries").fill("there is no such word in it");
		await see(page, "Nothing matches");
		await entries(page).getByLabel("Filter entries").fill("");
		await entries(page).getByText("token.create").first().waitFor();
		await entries(page).getByRole("checkbox", { name: "Follow" }).uncheck();
		const { token_id } = await admin.call("token.create", { name: "unfollowed", scopes: ["observe"] });
		await see(page, /1 newer entry; follow to see it/);
		assert.equal(await entries(page).getByRole("row").filter({ hasText: token_id }).count(), 0);
		await entries(page).getByRole("checkbox", { name: "Follow" }).check();
		await entries(page).getByRole("row").filter({ hasText: token_id }).waitFor();
		await page.context().close();
	});

	test("all of it is checked on the server, and can be copied", async () => {
		const page = await open();
		await whole(page).getByRole("button", { name: "Check all of it" }).click();
		await see(page, /^All \d+ entries verified/);
		const [download] = await Promise.all([page.waitForEvent("download"), whole(page).getByRole("button", { name: "Export" }).click()]);
		const lines = readFileSync(await download.path(), "utf8").trim().split("\n").map((line) => JSON.parse(line));
		assert.deepEqual(lines.map((one) => one.seq), lines.map((_, i) => i), "every entry once, in order");
		await page.context().close();
	});

	test("older entries go on into archives, and are in the copy", async () => {
		const archiving = await startServer({ localNode: false, args: ["--limit", "audit_segment_entries=1000"] });
		const client = await Client.login(archiving);
		for (let made = 0; made < 520; made += 40)
			await Promise.all(Array.from({ length: 40 }, async () => {
				const { token_id } = await client.call("token.create", { name: "made", scopes: ["observe"] });
				await client.call("token.revoke", { token_id });
			}));
		const found = () => readdirSync(join(archiving.data, "audit")).some((name) => name.endsWith(".exoaudit"));
		await eventually(found, "an archive");
		const page = await browser.page();
		await openDashboard(page, archiving, "#/audit");
		await entries(page).getByRole("checkbox", { name: "Follow" }).uncheck();
		// While older entries are looked for, the button is disabled and has another name.
		const older = entries(page).getByRole("button", { name: /^(Load older|Looking through)/ });
		const rows = entries(page).getByRole("row");
		await older.waitFor();
		while ((await older.count()) > 0) {
			const before = await rows.count();
			await older.click();
			await eventually(async () => (await rows.count()) > before || (await older.count()) === 0, "more rows");
		}
		await entries(page).getByText("server.start").waitFor();
		const [download] = await Promise.all([page.waitForEvent("download"), whole(page).getByRole("button", { name: "CSV" }).click()]);
		const [head, ...lines] = readFileSync(await download.path(), "utf8").trim().split("\n");
		assert.match(head, /bound/);
		assert.deepEqual(lines.map((line) => Number(line.split(",")[0])), lines.map((_, i) => i), "every entry once, in order");
		assert.ok(lines.length > 1000);
		await page.context().close();
		await archiving.stop();
	});

	test("a browser remembers: it proves that the log goes on, and shouts when it does not", async () => {
		const page = await open();
		await see(page, /sees this log for the first time/);
		await admin.call("token.create", { name: "one more", scopes: ["observe"] });
		await page.reload();
		await see(page, /It continues the log of \d+ entries/);
		const forget = (change) =>
			page.evaluate((what) => {
				const key = Object.keys(localStorage).find((one) => one.startsWith("exogpu.audit."));
				localStorage.setItem(key, JSON.stringify({ ...JSON.parse(localStorage.getItem(key)), ...what }));
			}, change);
		await forget({ size: 1000000 });
		await page.reload();
		await see(page, /The log is shorter than it was/);
		await picture(page, "audit-shorter");
		const { size } = await admin.call("audit.head");
		await forget({ size: size - 1, root: Buffer.alloc(32, 7).toString("base64") });
		await page.reload();
		await see(page, /does not continue the one that this browser saw/);
		await page.context().close();
	});

	test("keys: g u goes here, / to the filter", async () => {
		const page = await browser.page();
		await openDashboard(page, server);
		await press(page, "g", "u");
		await page.getByRole("heading", { name: "Audit", level: 1 }).waitFor();
		await entries(page).getByLabel("Filter entries").waitFor();
		await page.keyboard.press("/");
		const focused = () => page.evaluate(() => document.activeElement.getAttribute("aria-label"));
		await eventually(async () => (await focused()) === "Filter entries", "the filter has the focus");
		await goTo(page, "#/overview");
		await page.context().close();
	});
});
