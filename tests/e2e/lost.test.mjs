// The page when its server or node goes away: the server killed and started again, the node killed, nothing but
// silence. Old values stay, grey and with their age; the page comes back by itself; a hidden tab draws nothing.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client } from "../api/client.mjs";
import { eventually, freePort, patience, startServer, temporary } from "../api/server.mjs";
import {
	childrenOf,
	crash,
	devicesUp,
	endAll,
	goTo,
	kindOf,
	loadCpu,
	openDashboard,
	picture,
	startBrowser,
	suite,
} from "./browser.mjs";
import { openTab } from "./tab.mjs";

suite("losing the other side", () => {
	const data = temporary();
	const orphans = [];
	let server, client, browser;
	const start = async (listen) => {
		server = await startServer({ data, listen, localNode: true });
		client = await Client.login(server);
	};
	// What browsers themselves say of connections that end: part of what is tested here.
	const expected = [/WebSocket connection to .* failed/, /ERR_CONNECTION_(REFUSED|RESET)/, /can.t establish a connection|connection to ws:.* was interrupted/];
	const live = (page) => page.getByRole("status", { name: "Connection: live" });
	const stale = (page) => page.locator(".dev-panel .cell.stale").count();

	before(async () => {
		await start(`127.0.0.1:${await freePort()}`);
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
		endAll(orphans);
	});

	test("the server is killed and comes back at the same place", async (t) => {
		const devices = await devicesUp(client);
		const page = await browser.page({ expected });
		await openDashboard(page, server);
		// The page of a device is a file of its own; it is there before the server goes.
		await goTo(page, `#/devices/${devices[0].device_id}`);
		await page.getByRole("button", { name: "Verify again" }).waitFor();
		await goTo(page, "#/overview");
		const sheet = page.getByRole("region", { name: "Devices" });
		const figures = () => sheet.locator("dd.num").allTextContents();
		await eventually(async () => (await figures()).some((text) => /%/.test(text)), "figures are shown");
		const { epoch } = await client.call("cluster.snapshot");
		const before = await figures();

		orphans.push(...(await crash(server)));
		const banner = page.getByRole("alert", { name: "Connection lost" });
		await banner.waitFor();
		assert.match(await banner.textContent(), /No connection to the server for \d+(\.\d)? s/);
		assert.match(await banner.textContent(), /What you see is from \d\d:\d\d:\d\d/);
		await page.getByRole("status", { name: "Connection: not connected" }).waitFor();
		const age = async () => parseFloat(/for ([\d.]+) s/.exec(await banner.textContent())[1]);
		const young = await age();
		await eventually(async () => (await age()) >= young + 1, "the age grows");
		const countdowns = new Set();
		await eventually(
			async () => countdowns.add(/again in \d+ s|trying now/.exec(await banner.textContent())?.[0]).size > 1,
			"the countdown counts",
		);
		const kept = await figures();
		assert.equal(kept.length, before.length, "the values are kept");
		assert.ok(
			kept.some((text) => /%/.test(text)),
			kept.join(", "),
		);
		await eventually(async () => (await stale(page)) === devices.length, "and greyed");
		let ages;
		await eventually(async () => {
			ages = await sheet.locator(".cell .age").allTextContents();
			return ages.length === devices.length && ages.every((text) => /\d s ago|min ago/.test(text));
		}, () => `each has its age: ${ages.join(", ")}`);
		await page.getByRole("region", { name: "Cluster" }).getByText(/ago/).first().waitFor();
		await picture(page, "disconnected-wide-light");
		await page.setViewportSize({ width: 390, height: 844 });
		await picture(page, "disconnected-narrow-light");
		await page.emulateMedia({ colorScheme: "dark" });
		await picture(page, "disconnected-narrow-dark");
		await page.setViewportSize({ width: 1440, height: 1000 });
		await picture(page, "disconnected-wide-dark");
		await goTo(page, `#/devices/${devices[0].device_id}`);
		assert.equal(await page.getByRole("button", { name: "Verify again" }).isDisabled(), true);
		await page.getByText("Nothing can be changed while the connection is lost.").waitFor();
		await picture(page, "disconnected-device-wide-dark");
		await goTo(page, "#/overview");

		const begun = Date.now();
		await start(`127.0.0.1:${server.port}`);
		await live(page).waitFor({ timeout: 2 * patience });
		t.diagnostic(`back ${Date.now() - begun} ms after the start of the new server`);
		await banner.waitFor({ state: "detached" });
		assert.notEqual((await client.call("cluster.snapshot")).epoch, epoch, "the server counts anew");
		await devicesUp(client);
		await eventually(async () => (await stale(page)) === 0, "nothing is stale any more");
		await eventually(async () => (await sheet.getByRole("link").count()) === devices.length, "each device is there once");
		await page.context().close();
	});

	test("Try now does not wait for the countdown", async () => {
		const page = await browser.page({ expected });
		await openDashboard(page, server);
		orphans.push(...(await crash(server)));
		const banner = page.getByRole("alert", { name: "Connection lost" });
		await banner.getByText(/again in ([3-9]|\d\d) s/).waitFor({ timeout: 4 * patience });
		await start(`127.0.0.1:${server.port}`);
		// Once it waits again: by the button, in one turn of the page, and not by the end of the wait.
		const tried = await eventually(
			() =>
				page.evaluate(() => {
					const alert = document.querySelector("[role=alert][aria-label='Connection lost']");
					const button = alert && [...alert.querySelectorAll("button")].find((one) => /Try now/.test(one.textContent));
					if (!alert) return "the wait has ended";
					if (!button || button.disabled) return "";
					const real = window.WebSocket;
					let dialled = 0;
					window.WebSocket = class extends real {
						constructor(...args) {
							super(...args);
							dialled++;
						}
					};
					button.click();
					window.WebSocket = real;
					return dialled ? "at once" : "not";
				}),
			"the button is there",
		);
		assert.match(tried, /^at once$|^the wait has ended$/); // the latter where starting took longer than the wait
		await live(page).waitFor({ timeout: 2 * patience });
		await page.context().close();
	});

	test("the node is killed: the gap is shown, and its devices come back", async (t) => {
		// a server that has not been killed: one that has may still be served by its former self's node
		const own = await startServer({ localNode: true });
		const devices = await devicesUp(await Client.login(own));
		const page = await browser.page();
		await openDashboard(page, own);
		const cells = page.locator(".dev-panel .cell");
		await eventually(
			async () => (await cells.count()) === devices.length && (await stale(page)) === 0,
			"all are here",
		);
		const nodeOf = () => childrenOf(own.child.pid).find(({ command }) => command[1] === "node");
		const killed = nodeOf();
		await page.evaluate((count) => {
			window.gap = { words: [] };
			const note = () => {
				const grey = document.querySelectorAll(".dev-panel .cell.stale").length;
				if (window.gap.gone === undefined && grey === count) {
					window.gap.gone = performance.now();
					window.gap.words.push(
						document.querySelector(".topo-panel .node-foot").textContent,
						document.querySelector("[aria-label='Needs attention']")?.textContent,
					);
				}
				if (window.gap.gone !== undefined && grey === 0) window.gap.back ??= performance.now();
			};
			new MutationObserver(note).observe(document.body, { subtree: true, childList: true, attributes: true });
			window.gap.begun = performance.now();
		}, devices.length);
		// Each that is started in its place dies, too, until the page has drawn that it is gone.
		const gap = () => page.evaluate(() => window.gap);
		await eventually(async () => {
			const one = nodeOf();
			if (one) endAll([one.pid]);
			return (await gap()).gone;
		}, "the page shows that the devices are gone");
		const { begun, gone, back, words } = await eventually(async () => {
			const seen = await gap();
			return seen.back && seen;
		}, "the devices came back", 4 * patience);
		t.diagnostic(
			`greyed ${(gone - begun).toFixed(0)} ms after the kill, back ${(back - gone).toFixed(0)} ms later`,
		);
		assert.match(words[0], /^offline/, "the machine is said to be offline");
		assert.match(words[1], /is offline/, "and wants attention");
		assert.notEqual(nodeOf().pid, killed.pid);
		await page
			.getByRole("region", { name: "Last events" })
			.getByText(/its connection broke/)
			.first()
			.waitFor();
		await page.context().close();
		assert.equal((await own.stop()).code, 0);
	});

	test("a server that stops says so, and its page says what it said", async () => {
		const page = await browser.page({ expected });
		await openDashboard(page, server);
		assert.equal((await server.stop()).code, 0);
		const banner = page.getByRole("alert", { name: "Connection lost" });
		await banner.getByText("The server has shut down.").waitFor();
		await banner.getByText("Answers and sessions have ended with it.").waitFor();
		assert.equal(await banner.getByText(/goes? on/).count(), 0, "its models do not go on");
		await start(`127.0.0.1:${server.port}`);
		await live(page).waitFor({ timeout: 2 * patience });
		await page.context().close();
	});

	test("a hidden tab draws nothing, and is up to date as soon as it is seen", { skip: kindOf === "firefox" && "only Chromium is driven so that a tab is hidden" }, async () => {
		await devicesUp(client);
		const tab = await openTab(`${server.url.origin}/#token=${server.token}`);
		const load = loadCpu();
		try {
			const isLive = `document.querySelector("[role=status][aria-label='Connection: live']") !== null`;
			await eventually(() => tab.evaluate(isLive), "the page is live");
			await tab.evaluate(`window.changes = []; new MutationObserver((list) => {
				for (const { type, target } of list) {
					const element = target.nodeType === Node.ELEMENT_NODE ? target : target.parentElement;
					changes.push(performance.now().toFixed(0) + " ms: " + type + " of " + (element?.outerHTML ?? "").slice(0, 200));
				}
			}).observe(document.documentElement, { subtree: true, childList: true, attributes: true, characterData: true })`);
			await eventually(() => tab.evaluate("changes.length > 0"), "a page that is seen changes");
			await tab.hide();
			await tab.evaluate("changes.length = 0");
			await new Promise((resolve) => setTimeout(resolve, 4000));
			assert.deepEqual(await tab.evaluate("changes"), [], "nothing changed on a page that nobody sees");
			await tab.show();
			await eventually(() => tab.evaluate("changes.length > 0"), "it draws again");
			await eventually(async () => /^\d\.\d s ago$/.test(await tab.evaluate("document.querySelector('.live .ago').textContent")), "it has the newest readings");
		} finally {
			await load.stop();
			await tab.close();
		}
	});
});
