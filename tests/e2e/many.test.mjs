// 64 devices on one machine, each with new readings every second: the page stays quick, and readable. The frames of
// three seconds are counted and told; what is asserted is that the page answers and shows the figures of the moment.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, FakeNode } from "../api/client.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "../api/records.mjs";
import { eventually, startServer } from "../api/server.mjs";
import { goTo, openDashboard, picture, shapes, startBrowser, suite } from "./browser.mjs";

const DEVICES = 64;
const GIB = 1024 ** 3;

suite("64 devices", () => {
	let server,
		client,
		browser,
		fake,
		timer,
		beats = 0;
	const id = (i) => `dev_card${String(i).padStart(2, "0")}`;

	// Each card lives at its own pace; the last one has no power sensor.
	const reading = (i) => {
		const own = i % (DEVICES - 1); // the last card works as the first does
		const use = 50 + 45 * Math.sin(beats / (3 + own / 9) + own);
		return deviceReadings({
			device_id: id(i),
			utilization_percent: use,
			power_watts: i === DEVICES - 1 ? null : 60 + 2.2 * use,
			memory_used_bytes: Math.round((4 + (i % 11)) * GIB + use * 1e7),
			temperature_celsius: 40 + use / 3,
			clock_mhz: 1200 + 6 * use,
			at: new Date().toISOString(),
		});
	};

	before(async () => {
		server = await startServer();
		client = await Client.login(server);
		fake = await FakeNode.connect(server, nodeRecord({ node_id: "nod_many", name: "rack 7" }));
		await fake.devices(
			Array.from({ length: DEVICES }, (_, i) =>
				deviceRecord({
					device_id: id(i),
					hardware_key: `uuid:${i}`,
					uuid: null,
					name: `Card ${String(i + 1).padStart(2, "0")}`,
					memory_pool: `uuid:${i}`,
					pci_address: `0000:${i.toString(16).padStart(2, "0")}:00.0`,
				}),
			),
		);
		const tell = () => {
			beats++;
			fake.telemetry(
				Array.from({ length: DEVICES }, (_, i) => reading(i)),
				nodeReadings({ node_id: "nod_many" }),
			);
		};
		tell();
		timer = setInterval(tell, 1000);
		browser = await startBrowser();
	});
	after(async () => {
		clearInterval(timer);
		await browser?.close();
		fake?.socket.close();
		await server?.stop();
	});

	// Frames of three seconds, and the longest time between two.
	const frames = (page) =>
		page.evaluate(
			() =>
				new Promise((resolve) => {
					const times = [];
					const next = (time) => {
						times.push(time);
						if (time - times[0] < 3000) return requestAnimationFrame(next);
						const gaps = times.slice(1).map((one, i) => one - times[i]);
						resolve({ perSecond: gaps.length / ((time - times[0]) / 1000), longestMs: Math.max(...gaps) });
					};
					requestAnimationFrame(next);
				}),
		);

	// Card 64, below the window, is drawn again less often than card 1, which has the same readings; at once when it is no
	// reading that changes, and when it is scrolled to.
	async function drawnByTurns(page) {
		await page.evaluate(() => {
			const row = (name) => [...document.querySelectorAll("tbody tr")].find((one) => one.querySelector("a").title === name);
			window.drawn = { "Card 01": 0, "Card 64": 0 };
			for (const name of Object.keys(window.drawn)) new MutationObserver(() => window.drawn[name]++).observe(row(name), { subtree: true, characterData: true, childList: true, attributes: true });
		});
		const drawn = () => page.evaluate(() => window.drawn);
		await eventually(async () => {
			const { "Card 01": seen, "Card 64": below } = await drawn();
			return below >= 1 && seen - below >= 6;
		}, "a row below the window is drawn again, but less often");
		const state = page.getByRole("row").filter({ has: page.getByRole("link", { name: "Card 64", exact: true }) }).locator(".c-state");
		await client.call("device.drain", { device_id: id(DEVICES - 1), drain: true });
		await eventually(async () => /draining/.test(await state.textContent()), "its state is shown");
		await client.call("device.drain", { device_id: id(DEVICES - 1), drain: false });
		await eventually(async () => !/draining/.test(await state.textContent()), "and the end of it");
		const figures = () => page.evaluate(() => ["Card 01", "Card 64"].map((name) => [...document.querySelectorAll("tbody tr")].find((one) => one.querySelector("a").title === name).querySelector("[data-name=Use] .num").textContent));
		await page.setViewportSize({ width: 1440, height: 6000 }); // both are in the window
		await eventually(async () => new Set(await figures()).size === 1, "both show the same");
		await page.setViewportSize(shapes["wide-light"].viewport);
	}

	for (const shape of ["wide-light", "wide-dark", "narrow-light"])
		test(`the page stays quick and readable, ${shape}`, async (t) => {
			const page = await browser.page(shapes[shape]);
			await openDashboard(page, server);
			await page.getByRole("region", { name: "Cluster" }).getByText(`${DEVICES} of ${DEVICES} online`).waitFor();
			await page.getByText("more in the table of devices").waitFor();
			for (const [name, hash] of [
				["overview", "#/overview"],
				["devices", "#/devices"],
			]) {
				await goTo(page, hash);
				await page.getByRole("heading", { level: 1 }).waitFor();
				const { perSecond, longestMs } = await frames(page);
				t.diagnostic(
					`${name}: ${perSecond.toFixed(1)} frames a second, the longest ${longestMs.toFixed(0)} ms`,
				);
				const { scroll, width } = await page.evaluate(() => ({
					scroll: document.documentElement.scrollWidth,
					width: document.documentElement.clientWidth,
				}));
				assert.ok(scroll <= width, `${name} scrolls sideways: ${scroll} in ${width}`);
				await picture(page, `many-${name}-${shape}`);
			}
			await eventually(async () => (await page.locator("tbody tr").count()) === DEVICES, "a row for each"); // cards on a phone, without a head
			const heights = await page
				.locator("td.c-reading")
				.evaluateAll((all) => [...new Set(all.map((one) => one.offsetHeight))]);
			assert.ok(
				heights.every((height) => height < 60) && (shape !== "narrow-light" || heights.length === 1),
				`a reading is one line: ${heights}`,
			);
			const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "Card 07", exact: true }) });
			const figure = () => row.locator("[data-name=Use] .num").textContent();
			const seen = new Set();
			await eventually(async () => seen.add(await figure()).size >= 3, "the figures of one card move");
			if (shape === "wide-light") await drawnByTurns(page);
			const without = page
				.getByRole("row")
				.filter({ has: page.getByRole("link", { name: "Card 64", exact: true }) });
			assert.equal((await without.locator("[data-name=Power] .num").textContent()).trim(), "not reported");
			const begun = Date.now();
			const field = page.getByRole("searchbox", { name: "Filter devices" }).locator("visible=true").first();
			await field.fill("Card 42");
			await eventually(async () => (await page.locator("tbody tr").count()) === 1, "the filter narrows");
			t.diagnostic(`filtered in ${Date.now() - begun} ms`);
			await field.fill("Card 4");
			await eventually(async () => (await page.locator("tbody tr").count()) > 1, "several fit");
			await field.press("Enter"); // leads nowhere
			await field.fill("Card 42");
			await eventually(async () => (await page.locator("tbody tr").count()) === 1, "one fits");
			await field.press("Enter");
			await page.getByRole("heading", { level: 1, name: "Card 42" }).waitFor();
			await goTo(page, "#/usage");
			await page.getByLabel("Price per kWh").fill("0.30");
			await goTo(page, "#/overview");
			await page.getByRole("region", { name: "Cluster" }).getByText(/^Power, \d+\.\d\d per hour$/).waitFor();
			await picture(page, `many-price-${shape}`, { fullPage: false });
			await page.context().close();
		});
});
