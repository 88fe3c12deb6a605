// One quick walk through the dashboard of a server with its own node, for the builds with sanitizers: a link with a
// token, this machine's devices on the overview, one of them on its page, log out. The size of the script is asserted;
// the time of the first paint is only told.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { Client } from "../api/client.mjs";
import { startServer } from "../api/server.mjs";
import { devicesUp, goTo, openDashboard, see, startBrowser, suite } from "./browser.mjs";

const MAX_SCRIPT_BYTES = 60 * 1024; // compressed, what the first paint waits for; pages that come later are their own

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

	test("a phone can install the dashboard and the page that lends a device", async () => {
		for (const path of ["/", "/lend"]) {
			const page = await browser.page();
			await page.goto(server.url.origin + path);
			const chromium = await page.context().newCDPSession(page);
			const { errors, data } = await chromium.send("Page.getAppManifest");
			assert.deepEqual(errors, []);
			const { start_url, icons } = JSON.parse(data);
			assert.equal(start_url, path);
			for (const { src, type } of icons) {
				const { status, headers } = await server.http(src);
				assert.deepEqual([status, headers["content-type"]], [200, type]);
			}
			const { installabilityErrors } = await chromium.send("Page.getInstallabilityErrors");
			// a page of a test is a private one
			assert.deepEqual(installabilityErrors.map((one) => one.errorId).filter((one) => one !== "in-incognito"), []);
			await page.context().close();
		}
	});

	test("the script is small, the first paint soon", async (t) => {
		const html = (await server.http("/")).text;
		const first = new Set(html.match(/\/[\w-]+\.js/g));
		const all = new Set(first);
		const sizes = {};
		for (const path of all) {
			const { body, headers } = await server.http(path, { headers: { "Accept-Encoding": "gzip" } });
			assert.equal(headers["content-encoding"], "gzip", path);
			sizes[path] = body.length;
			const text = gunzipSync(body).toString();
			for (const [, file] of text.matchAll(/["']\.\/([\w-]+\.js)["']/g)) all.add(`/${file}`);
			if (first.has(path))
				for (const [, file] of text.matchAll(/(?:from|import)\s*["']\.\/([\w-]+\.js)["']/g)) first.add(`/${file}`);
		}
		const sum = (paths) => [...paths].reduce((bytes, path) => bytes + sizes[path], 0);
		t.diagnostic(`script: ${sum(first)} bytes compressed at first, ${sum(all)} in all: ${JSON.stringify(sizes)}`);
		assert.ok(sum(first) < MAX_SCRIPT_BYTES, `${sum(first)} bytes of script`);
		assert.ok(all.size > first.size, "something comes later");

		const page = await browser.page();
		await openDashboard(page, server);
		const paints = await page.evaluate(() =>
			performance.getEntriesByType("paint").map((one) => [one.name, one.startTime]),
		);
		t.diagnostic(`paint, ms after the navigation began: ${JSON.stringify(Object.fromEntries(paints))}`);
		await page.context().close();
	});
});
