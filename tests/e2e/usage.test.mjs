// The page of usage: rows by token, model and device, the sum of them, energy that some report and others do not, and what
// became of tokens, models and devices that are gone.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startServer } from "../api/server.mjs";
import { openDashboard, picture, shapes, startBrowser, suite } from "./browser.mjs";

const row = (key, name, joules) => ({ key, name, at: "2026-11-20T00:00:00.000Z", requests: 2, prompt_tokens: 1000, cached_tokens: 40, completion_tokens: 50,
	device_s: 1.5, energy_joules: joules, idle_joules: null, energy_source: joules === null ? null : "counter" });

suite("usage", () => {
	let server, browser;

	before(async () => {
		server = await startServer();
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	// The server's rows are tested in tests/api/usage.test.mjs; here they are given, to have every kind of them.
	async function open(rows, shape) {
		const page = await browser.page(shape);
		await page.routeWebSocket(/\/ws$/, (socket) => {
			const onward = socket.connectToServer();
			socket.onMessage((message) => {
				const call = typeof message === "string" && message.includes('"usage.list"') ? JSON.parse(message) : null;
				if (!call) return onward.send(message);
				socket.send(JSON.stringify({ jsonrpc: "2.0", id: call.id, result: { rows: rows(call.params.by) } }));
			});
		});
		await openDashboard(page, server, "#/usage");
		return page;
	}
	const rowsOf = (by) => ({
		token: [row("owner", "the machine's owner", 7200), row("tok_gone", "laptop of alice", 100), row("others", "others", null)],
		model: [row("mod_gone", "a model", 7200), row("mod_other", "", 100)],
		device: [row("dev_gone", "GPU One", null), row("dev_other", "GPU Two", null)],
	})[by];

	test("rows that are gone are named, and sums leave out what is not reported", async () => {
		for (const [name, shape] of Object.entries(shapes)) {
			const page = await open(rowsOf, shape);
			const table = page.getByRole("table", { name: "Usage by token" });
			await table.getByText("laptop of alice deleted token").waitFor();
			await table.getByText("others beyond the 512").waitFor();
			const all = table.getByRole("row").filter({ hasText: /^All/ });
			await all.getByText("at least 2.03 Wh").waitFor();
			await all.getByText("3,000 (120 cached)").waitFor();
			await page.getByText("At least: some rows report no energy").waitFor();
			assert.ok(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is no wider than its window");
			await picture(page, `usage-${name}`);
			await page.context().close();
		}
		const page = await open(rowsOf);
		await page.getByRole("button", { name: "By model" }).click();
		await page.getByRole("row").filter({ hasText: "a model removed model" }).waitFor();
		await page.getByRole("row").filter({ hasText: "mod_other removed model" }).waitFor();
		await page.getByRole("button", { name: "By device" }).click();
		const all = page.getByRole("row").filter({ hasText: /^All/ });
		await all.getByText("not reported").first().waitFor();
		await all.getByText("3.00 s").waitFor();
		await page.getByText("Energy is not reported: no device").waitFor();
		await picture(page, "usage-by-device");
		await page.context().close();
	});

	test("nothing was used", async () => {
		const page = await open(() => []);
		await page.getByRole("heading", { name: "Nothing was used in this time" }).waitFor();
		await page.context().close();
	});
});
