// The forecast of a device on its page: why there is none, then what it foresees, with the curve; and what is nearest to
// slowing down on the Overview. The readings are those of a simulated card, by the clock that they bear.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, FakeNode } from "../api/client.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "../api/records.mjs";
import { eventually, startServer } from "../api/server.mjs";
import { openDashboard, picture, shapes, startBrowser, suite } from "./browser.mjs";

suite("heat ahead", () => {
	let server, admin, browser, node, feed, at = Date.now() - 1200e3, rise = 5, watts = 50;
	const card = () => {
		rise += (0.1 * watts - rise) / 60;
		return deviceReadings({ at: new Date(at += 1000).toISOString(), power_watts: watts, slowdown_celsius: 90,
			temperature_celsius: Math.round(25 + rise) });
	};
	const flow = (seconds, power) => {
		watts = power;
		for (let i = 0; i < seconds; i += 30) node.telemetry(Array.from({ length: 30 }, card), nodeReadings());
	};

	before(async () => {
		server = await startServer({ env: { EXOGPU_THERMAL_CLOCK: "readings" } });
		admin = await Client.login(server);
		node = await FakeNode.connect(server, nodeRecord());
		await node.devices([deviceRecord()]);
		feed = setInterval(() => node.telemetry([card()], nodeReadings()), 250);
		browser = await startBrowser();
	});
	after(async () => {
		clearInterval(feed);
		await browser?.close();
		await server?.stop();
	});

	test("it says why there is no forecast, and then draws one", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/devices/dev_gpu");
		const heat = page.getByRole("region", { name: "Heat ahead" });
		await heat.getByText(/No forecast yet\. .*has not changed enough yet/).waitFor();
		for (const power of [300, 60, 400, 120, 350]) flow(180, power);
		await eventually(async () => (await admin.call("thermal.forecast", { device_id: "dev_gpu" })).state === "ready", "a forecast is made");
		await heat.getByText("not reached").waitFor();
		await heat.getByText(/^\d+ °C, from \d+ to \d+$/).first().waitFor();
		await heat.getByText(/^\d+ W hold 85 °C$/).waitFor();
		for (const [name, shape] of Object.entries(shapes)) {
			const shaped = await browser.page(shape);
			await openDashboard(shaped, server, "#/devices/dev_gpu");
			await shaped.getByRole("region", { name: "Heat ahead" }).getByText("not reached").waitFor();
			await shaped.getByRole("figure", { name: /^Temperature/ }).locator("canvas").waitFor();
			await picture(shaped, `heat-${name}`);
			await shaped.context().close();
		}
	});

	test("while no forecast comes, the last one stays with its age and the reason", async () => {
		const page = await browser.page();
		let fails = false;
		await page.routeWebSocket(/\/ws$/, (socket) => {
			const onward = socket.connectToServer();
			socket.onMessage((message) => {
				const call = fails && typeof message === "string" ? JSON.parse(message) : {};
				if (call.method !== "thermal.forecast") return onward.send(message);
				const error = { code: -32002, message: "forecasts are not made now", data: { reason: "unavailable", hint: "wait" } };
				socket.send(JSON.stringify({ jsonrpc: "2.0", id: call.id, error }));
			});
		});
		await openDashboard(page, server, "#/devices/dev_gpu");
		const heat = page.getByRole("region", { name: "Heat ahead" });
		await heat.getByText("not reached").waitFor();
		fails = true;
		await heat.getByText("Forecasts are not made now. Wait. The page asks again by itself.").waitFor();
		await heat.getByText(/This forecast is .* old\./).waitFor();
		await heat.getByText("not reached").waitFor();
		await picture(page, "heat-old-wide-light");
		fails = false;
		await heat.getByText(/This forecast is/).waitFor({ state: "detached" });
		await heat.getByText("not reached").waitFor();
		await page.context().close();
	});

	test("the Overview names the hottest device and its margin", async () => {
		const page = await browser.page();
		await openDashboard(page, server);
		const text = page.getByRole("region", { name: "Cluster" }).getByText(/hottest \d+ °C \(GPU One\), \d+ °C to slowdown/);
		await text.waitFor();
		assert.equal(await text.count(), 1);
		await picture(page, "heat-overview");
	});
});
