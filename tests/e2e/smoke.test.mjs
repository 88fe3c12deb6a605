// One quick walk through the dashboard of a server with its own node, for the builds with sanitizers: a link with a
// token, this machine's devices on the overview, one of them on its page, log out. The size of the script is asserted;
// the time of the first paint is only told.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { Client } from "../api/client.mjs";
import { startServer } from "../api/server.mjs";
import { devicesUp, goTo, openDashboard, see, startBrowser, suite } from "./browser.mjs";

const MAX_SCRIPT_BYTES = 60 * 1024; // compressed, all of it

suite("a walk through the dashboard", () => {
	let server, client, browser;

	before(async () => {
		server = await startServer({ localNode: true });
		client = await Client.login(server);
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		const end = await server?.stop();
		assert.equal(end?.code, 0, end?.stderr);
	});

	test("from the link with the token to a device, and out", async () => {
		const devices = await devicesUp(client);
		const page = await browser.page();
		await openDashboard(page, server);
		assert.equal(
			await page.evaluate(() => location.href),
			`${server.url.origin}/#/overview`,
			"the token left the address",
		);
		assert.equal((await page.evaluate(() => history.length)) <= 2, true, "nor is it in the history");
		const sheet = page.getByRole("region", { name: "Devices" });
		for (const { name } of devices) await sheet.getByText(name, { exact: true }).first().waitFor();
		const first = devices.find((one) => one.backend === "cpu");
		await sheet.getByRole("link", { name: first.name }).first().click();
		await page.getByRole("heading", { level: 1, name: first.name }).waitFor();
		await see(page, "Readings over time");
		await page.locator("figure .plot canvas").first().waitFor();
		await goTo(page, "#/devices");
		await page.getByRole("table").waitFor();
		await page.getByRole("button", { name: "Log out" }).first().click();
		await page.getByRole("form", { name: "Log in" }).waitFor();
		assert.deepEqual(
			await page.evaluate(() => [sessionStorage.length, localStorage.length]),
			[0, 0],
			"no token is kept",
		);
		await page.context().close();
	});

	test("the script is small, the first paint soon", async (t) => {
		const html = (await server.http("/")).text;
		const named = [...new Set(html.match(/\/[\w-]+\.js/g))];
		const seen = new Set(),
			sizes = {};
		for (const path of named) {
			if (seen.has(path)) continue;
			seen.add(path);
			const { body, headers } = await server.http(path, { headers: { "Accept-Encoding": "gzip" } });
			assert.equal(headers["content-encoding"], "gzip", path);
			sizes[path] = body.length;
			for (const [, file] of gunzipSync(body)
				.toString()
				.matchAll(/["']\.\/([\w-]+\.js)["']/g))
				named.push(`/${file}`);
		}
		const all = Object.values(sizes).reduce((sum, size) => sum + size, 0);
		t.diagnostic(`script: ${all} bytes compressed in ${seen.size} files: ${JSON.stringify(sizes)}`);
		assert.ok(all < MAX_SCRIPT_BYTES, `${all} bytes of script`);

		const page = await browser.page();
		await openDashboard(page, server);
		const paints = await page.evaluate(() =>
			performance.getEntriesByType("paint").map((one) => [one.name, one.startTime]),
		);
		t.diagnostic(`paint, ms after the navigation began: ${JSON.stringify(Object.fromEntries(paints))}`);
		await page.context().close();
	});
});
