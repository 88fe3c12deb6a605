// The page of alerts: what a rule finds shows there and on the Overview, somebody has seen it, the rule is changed, and what
// was cleared moves to the past ones.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, FakeNode } from "../api/client.mjs";
import { Receiver } from "../api/receiver.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "../api/records.mjs";
import { startServer } from "../api/server.mjs";
import { goTo, openDashboard, picture, see, shapes, startBrowser, suite } from "./browser.mjs";

suite("alerts", () => {
	let server, admin, browser, node, feed, used = 17100000000;
	const table = (page, name) => page.getByRole("table", { name });
	const full = /memory of GPU One on bench is nearly full/;

	before(async () => {
		server = await startServer({ args: ["--alert-host", "127.0.0.1"] });
		admin = await Client.login(server);
		await admin.call("alert.rule_set", { rule_id: "memory_full.device", for_s: 0 });
		node = await FakeNode.connect(server, nodeRecord());
		await node.devices([deviceRecord()]);
		feed = setInterval(() => node.telemetry([deviceReadings({ memory_used_bytes: used })], nodeReadings()), 200);
		browser = await startBrowser();
	});
	after(async () => {
		clearInterval(feed);
		await browser?.close();
		await server?.stop();
	});

	test("it is raised, seen and cleared", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/alerts");
		const now = table(page, "Alerts that stand").getByRole("row").filter({ hasText: full });
		await now.waitFor();
		for (const [name, shape] of Object.entries(shapes)) {
			const shaped = await browser.page(shape);
			await openDashboard(shaped, server, "#/alerts");
			await table(shaped, "Rules").waitFor();
			await picture(shaped, `alerts-${name}`);
			await shaped.context().close();
		}
		await goTo(page, "#/overview");
		await page.getByRole("region", { name: "Needs attention" }).getByText(full).waitFor();
		await goTo(page, "#/alerts");
		await now.getByRole("button", { name: /^I have seen/ }).click();
		await now.getByText("by admin.token").waitFor();
		await goTo(page, "#/overview");
		await page.getByRole("region", { name: "Needs attention" }).getByText(full).waitFor({ state: "detached" });
		await goTo(page, "#/alerts");
		used = 1000000000;
		await table(page, "Alerts that were cleared").getByRole("row").filter({ hasText: full }).waitFor();
		await see(page, "Nothing needs attention");
		await page.context().close();
	});

	test("a channel is added, tested and removed", async () => {
		const receiver = await new Receiver().start();
		const page = await browser.page();
		await openDashboard(page, server, "#/alerts");
		const channels = page.getByRole("region", { name: "Channels" });
		await channels.getByText("Alerts reach no other program").waitFor();
		await channels.getByRole("button", { name: "Add a channel" }).click();
		const dialog = page.getByRole("dialog", { name: "Add a channel" });
		await dialog.getByLabel("URL").fill("http://10.0.0.1/hook");
		await dialog.getByRole("button", { name: "Add", exact: true }).click();
		await dialog.getByText(/--alert-host/).waitFor();
		await dialog.getByLabel("URL").fill(`${receiver.url}/hidden-path`);
		await dialog.getByRole("button", { name: "Add", exact: true }).click();
		await dialog.waitFor({ state: "hidden" });
		receiver.secret = await channels.getByText(/^whsec_/).textContent();
		await channels.getByRole("button", { name: "Copy the secret" }).waitFor();
		await channels.getByRole("button", { name: "I have kept it" }).click();
		await channels.getByText(/^whsec_/).waitFor({ state: "detached" });
		await channels.getByRole("button", { name: /^Test / }).click();
		await channels.getByText("The receiver has it.").waitFor();
		assert.deepEqual(receiver.got.map((one) => [one.valid, one.json.type]), [[true, "alert.test"]]);
		receiver.plan = [500];
		await channels.getByRole("button", { name: /^Test / }).click();
		await channels.getByText("Not delivered: the receiver answered 500").waitFor();
		for (const [name, shape] of Object.entries(shapes)) {
			const shaped = await browser.page(shape);
			await openDashboard(shaped, server, "#/alerts");
			await shaped.getByRole("region", { name: "Channels" }).getByText(/failed/).waitFor();
			await picture(shaped, `channels-${name}`);
			await shaped.context().close();
		}
		assert.ok(!(await page.content()).includes("hidden-path"));
		await channels.getByRole("button", { name: /^Remove / }).click();
		await channels.getByText("Alerts reach no other program").waitFor();
		await page.context().close();
		await receiver.stop();
	});

	test("a secret that was typed is nowhere once it was sent, and neither after a refusal or a change of mind", async () => {
		const receiver = await new Receiver().start();
		const secret = "a-secret-of-the-person";
		const page = await browser.page();
		await openDashboard(page, server, "#/alerts");
		const channels = page.getByRole("region", { name: "Channels" });
		const dialog = page.getByRole("dialog", { name: "Add a channel" });
		const field = dialog.getByLabel(/^Secret of the webhook/);
		const fill = async (url) => {
			await dialog.getByLabel("URL").fill(url);
			await field.fill(secret);
		};
		const open = () => channels.getByRole("button", { name: "Add a channel" }).click();
		await open();
		assert.equal(await field.getAttribute("autocomplete"), "off");
		await fill(receiver.url);
		await dialog.getByRole("button", { name: "Cancel" }).click();
		await open();
		assert.equal(await field.inputValue(), "");
		await fill("http://10.0.0.1/hook");
		await dialog.getByRole("button", { name: "Add", exact: true }).click();
		await dialog.getByText(/--alert-host/).waitFor();
		assert.equal(await field.inputValue(), secret, "to be sent again");
		assert.ok(!(await page.content()).includes(secret));
		await dialog.getByLabel("URL").fill(receiver.url);
		await dialog.getByRole("button", { name: "Add", exact: true }).click();
		await dialog.waitFor({ state: "hidden" });
		await channels.getByText("webhook, ").waitFor();
		assert.equal(await page.locator("input[type=password]").count(), 0);
		assert.ok(!(await page.content()).includes(secret));
		receiver.secret = secret;
		await channels.getByRole("button", { name: /^Test / }).click();
		await channels.getByText("The receiver has it.").waitFor();
		assert.deepEqual(receiver.got.map((one) => one.valid), [true]);
		await channels.getByRole("button", { name: /^Remove / }).click();
		await channels.getByText("Alerts reach no other program").waitFor();
		await page.context().close();
		await receiver.stop();
	});

	test("where a page may show no notifications, it says so, and goes on", async () => {
		const page = await browser.page(shapes["narrow-light"]);
		await page.addInitScript(() => {
			window.Notification = class {
				static permission = "granted";
				static requestPermission = async () => "granted";
				constructor() {
					throw new TypeError("Illegal constructor"); // as Chromium on Android
				}
			};
		});
		await openDashboard(page, server, "#/alerts");
		const box = page.getByRole("checkbox", { name: "Notify me in this browser" });
		await box.click();
		await page.getByRole("alert").getByText("This browser shows no notifications of a page").waitFor();
		assert.equal(await box.isChecked(), false);
		await picture(page, "alerts-no-notifications");
		await table(page, "Rules").waitFor();
		await page.context().close();
	});

	test("a rule is changed, and what makes no sense is refused in its dialog", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/alerts");
		await page.getByRole("button", { name: "Change disk_full" }).click();
		const dialog = page.getByRole("dialog", { name: "Change the rule disk_full" });
		await dialog.getByLabel("Clear at (%)").fill("99");
		await dialog.getByRole("button", { name: "Save" }).click();
		await dialog.getByText(/clear_threshold \(99\) must be under threshold/).waitFor();
		await dialog.getByLabel("Raise at (%)").fill("99.5");
		await dialog.getByRole("button", { name: "Save" }).click();
		await dialog.waitFor({ state: "hidden" });
		await table(page, "Rules").getByText("99.5 % or more").waitFor();
		const { rules } = await admin.call("alert.rules");
		assert.deepEqual(rules.filter((one) => one.rule_id === "disk_full").map((one) => [one.threshold, one.clear_threshold]), [[99.5, 99]]);
		await page.context().close();
	});
});
