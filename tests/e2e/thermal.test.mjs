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

	test("the policy is told in words, changed, taken back, and what cannot be is said", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/devices/dev_gpu");
		const policy = page.getByRole("region", { name: "Before the limit" });
		await policy.getByText("85 °C, 5 °C under its limit").waitFor();
		await policy.getByText("75 °C", { exact: true }).waitFor();
		await policy.getByRole("button", { name: "Change" }).click();
		const dialog = page.getByRole("dialog", { name: "Heat policy of GPU One" });
		await dialog.getByLabel("Margin under the limit (°C)").fill("50");
		await dialog.getByRole("button", { name: "Save" }).click();
		await dialog.getByText("The margin is between 1 and 40 °C.").waitFor();
		await picture(page, "policy-dialog");
		await dialog.getByLabel("Margin under the limit (°C)").fill("12");
		await dialog.getByRole("checkbox", { name: /^Move models/ }).uncheck();
		await dialog.getByRole("button", { name: "Save" }).click();
		await policy.getByText("78 °C, 12 °C under its limit").waitFor();
		const now = () => admin.call("thermal.policy", { device_id: "dev_gpu" });
		assert.deepEqual(await now(), { device_id: "dev_gpu", margin_celsius: 12, resume_celsius: 10, actions: ["limit", "step_down", "pause"] });
		await page.getByRole("button", { name: /^Undo: GPU One has another heat policy/ }).click();
		await policy.getByText("85 °C, 5 °C under its limit").waitFor();
		assert.deepEqual((await now()).actions, ["limit", "step_down", "move", "pause"]);
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
