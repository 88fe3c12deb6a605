// This machine's own devices, as a person sees them: the overview whose numbers move, the table, a device's page
// with its charts and actions, a node's page; by mouse and by keyboard, as admin and as somebody who may only look.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { Client } from "../api/client.mjs";
import { eventually, patience, startServer } from "../api/server.mjs";
import { devicesUp, goTo, loadCpu, openDashboard, picture, press, see, startBrowser, suite } from "./browser.mjs";

const MIB = 2 ** 20;

suite("this machine's devices", () => {
	let server, client, browser, devices, cpu, page;
	const region = (name) => page.getByRole("region", { name, exact: true });
	const heading = (name) => page.getByRole("heading", { level: 1, name, exact: true });
	const rows = () => page.getByRole("table").getByRole("row");

	before(async () => {
		server = await startServer({ localNode: true });
		client = await Client.login(server);
		devices = await devicesUp(client);
		cpu = devices.find((one) => one.backend === "cpu");
		browser = await startBrowser();
		page = await browser.page();
		await openDashboard(page, server);
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	test("the overview shows every device of this host, and how many", async () => {
		await goTo(page, "#/overview");
		for (const { name } of devices) {
			await region("Devices").getByText(name, { exact: true }).first().waitFor();
			await region("Topology").getByText(name, { exact: true }).first().waitFor();
		}
		const online = devices.filter((one) => one.state !== "offline").length;
		await region("Cluster").getByText(`${online} of ${devices.length} online`).waitFor();
		const { nodes } = await client.call("cluster.snapshot");
		await region("Topology").getByText("this host").waitFor();
		if ((await region("No GPU found").count()) > 0) { // below what happens, and short until it is asked for more
			const top = async (name) => (await region(name).boundingBox()).y;
			assert.ok((await top("No GPU found")) > (await top("Last events")));
			assert.equal(await region("No GPU found").locator("details[open]").count(), 0);
		}
		await region("Topology").getByText(nodes[0].name, { exact: true }).first().waitFor();
	});

	test("its numbers move while the CPU works", async () => {
		await goTo(page, "#/overview");
		const cell = region("Devices").getByRole("link", { name: cpu.name }).first();
		const use = cell.locator("dd.num").first();
		await use.filter({ hasText: /^\d+ %$/ }).waitFor();
		const figures = async () =>
			`${await use.textContent()} ${await region("Topology").locator(".node-foot").textContent()}`;
		const loads = [loadCpu(), loadCpu()];
		try {
			for (let i = 0; i < 3; i++) { // the use stays at 100 % where the machine has much else to do; its memory moves
				const before = await figures();
				const { allocation_id } = await client.call("memory.allocate", { device_id: cpu.device_id, bytes: 256 * MIB });
				await eventually(async () => (await figures()) !== before, "the figures change");
				await client.call("memory.free", { allocation_id });
			}
			await eventually(async () => parseInt(await use.textContent()) >= 50, "the load shows");
			// what others compute is not exogpu's work; what a session computes is
			await cell.getByText("used by others").waitFor();
			await region("Cluster").getByText("used by others").waitFor();
			assert.equal(await region("Cluster").getByText("computing").count(), 0, "no model is loaded and no session computes");
			const args = [{ zeros: 64 }, { zeros: 64 }, { zeros: 64 }, { u32: 8 }, { u32: 8 }, { u32: 8 }];
			const product = { device_id: cpu.device_id, kernel: "matmul_f32", args };
			const calls = setInterval(() => void client.call("compute.run", product).catch(() => {}), 300);
			try {
				await cell.getByText("computing").waitFor();
			} finally {
				clearInterval(calls);
			}
		} finally {
			loads.forEach((one) => one.stop());
		}
		await eventually(
			async () => (await cell.locator("svg.spark .trace").first().getAttribute("d"))?.length > 8,
			"the sparkline has a line",
		);
	});

	test("the heartbeat's age grows, and is small again whenever the server is heard", async () => {
		const age = async () => parseFloat(/^(\d+(?:\.\d)?) s ago$/.exec(await page.locator(".live .ago").textContent())?.[1] ?? "NaN");
		for (let i = 0; i < 2; i++) {
			server.child.kill("SIGSTOP");
			try {
				await eventually(async () => (await age()) >= 2, "the age grows while the server is silent");
			} finally {
				server.child.kill("SIGCONT");
			}
			await eventually(async () => (await age()) < 2, "it is small again when the server is heard");
		}
	});

	test("what is not reported is said as such, never 0", async () => {
		const { telemetry } = await client.call("cluster.snapshot");
		await goTo(page, "#/devices");
		await page.getByRole("table").waitFor();
		let absent = 0;
		for (const { device_id: id, name } of devices) {
			const reading = telemetry.devices.find((one) => one.device_id === id);
			const row = page
				.getByRole("row")
				.filter({ has: page.getByRole("link", { name, exact: true }) })
				.first();
			for (const [cell, key] of [
				["Use", "utilization_percent"],
				["Power", "power_watts"],
				["Heat", "temperature_celsius"],
			]) {
				if (!reading || reading[key] !== null) continue;
				absent++;
				await row.locator(`[data-name=${cell}] .num`).filter({ hasText: /^\s*not reported\s*$/ }).waitFor();
			}
		}
		if (telemetry.devices.every((one) => one.power_watts === null)) {
			await goTo(page, "#/overview");
			await region("Cluster").getByText("no device reports it").waitFor();
		}
		assert.ok(
			absent > 0 || devices.some((one) => one.backend !== "cpu"),
			"a machine that reports everything has a GPU",
		);
	});

	test("the table sorts by what is pressed, and back", async () => {
		await goTo(page, "#/devices");
		const head = (name) => page.getByRole("columnheader", { name, exact: true });
		const names = async () => (await rows().locator("th a").allTextContents()).filter(Boolean);
		await page.getByRole("table").waitFor();
		await eventually(async () => (await names()).length === devices.length, "a row for each device");
		const usual = await names();
		const button = head("Device").getByRole("button");
		await button.click();
		assert.equal(await head("Device").getAttribute("aria-sort"), "ascending");
		const ascending = await names();
		await button.press("Enter"); // by keyboard as well
		assert.equal(await head("Device").getAttribute("aria-sort"), "descending");
		assert.deepEqual(await names(), [...ascending].reverse());
		await button.click();
		assert.equal(await head("Device").getAttribute("aria-sort"), null);
		assert.deepEqual(await names(), usual);
	});

	test("the filter narrows, says what it looks at, and is cleared", async () => {
		await goTo(page, "#/devices");
		const field = page.getByRole("searchbox", { name: "Filter devices" }).first();
		await field.fill("no such device");
		await see(page, "No device fits “no such device”.");
		await page.getByRole("button", { name: "Clear the filter" }).first().click();
		await field.fill(cpu.name);
		await rows().filter({ hasText: cpu.name }).first().waitFor();
		const fitting = (await rows().count()) - 1;
		assert.ok(fitting >= 1 && fitting <= devices.length);
		if (fitting < devices.length) await see(page, `${fitting} fit the filter`);
		await field.press("Escape");
		await eventually(async () => (await field.inputValue()) === "" && (await rows().count()) - 1 === devices.length, "all are shown again");
	});

	test("a row leads to its device from anywhere on it; there, its id can be copied", async () => {
		await goTo(page, "#/devices");
		const row = rows().filter({ has: page.getByRole("link", { name: cpu.name, exact: true }) });
		await row.locator(".c-support").click();
		await heading(cpu.name).waitFor();
		await region("Identity").getByRole("button", { name: `Copy: ${cpu.device_id}` }).waitFor();
	});

	test("by keyboard alone: g d, g o, /, ?, Esc, Tab", async () => {
		await goTo(page, "#/overview");
		await heading("Overview").waitFor();
		await press(page, "g", "d");
		await heading("Devices").waitFor();
		assert.equal(await page.evaluate(() => location.hash), "#/devices");
		await page.keyboard.press("/");
		const field = page.getByRole("searchbox", { name: "Filter devices" }).first();
		await eventually(
			() => field.evaluate((element) => element === document.activeElement),
			"the filter has the focus",
		);
		await page.keyboard.type("gd?/");
		assert.equal(await field.inputValue(), "gd?/", "letters in the field are letters");
		await page.keyboard.press("Escape");
		await eventually(async () => (await field.inputValue()) === "", "the filter is empty");
		await page.keyboard.press("?");
		const keys = page.getByRole("dialog", { name: "Keys" });
		await keys.waitFor();
		await page.keyboard.press("Escape");
		await keys.waitFor({ state: "detached" });
		await press(page, "g", "o");
		await heading("Overview").waitFor();
		await page.evaluate(() => document.activeElement.blur());
		await page.reload();
		await heading("Overview").waitFor();
		await page.keyboard.press("Tab");
		assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), "Skip to the page");
		await page.keyboard.press("Enter");
		await eventually(() => page.evaluate(() => document.activeElement.id === "main"), "the page's content has the focus");
	});

	test("Ctrl-K finds a device by its name and a page by its name, from inside a field too", async () => {
		await goTo(page, "#/devices");
		await heading("Devices").waitFor();
		await page.getByRole("searchbox", { name: "Filter devices" }).first().focus();
		await page.keyboard.press("Control+k");
		const dialog = page.getByRole("dialog", { name: "Find" });
		await dialog.waitFor();
		await page.keyboard.type(cpu.name);
		await dialog.getByRole("option", { name: cpu.name, selected: true }).waitFor();
		await page.keyboard.press("Enter");
		await heading(cpu.name).waitFor();
		await dialog.waitFor({ state: "detached" });
		await page.keyboard.press("Control+k");
		await page.keyboard.type("no such thing"); // at once: no letter may miss the field
		await dialog.getByText("Nothing here has that name").waitFor();
		await page.keyboard.press("Escape");
		await dialog.waitFor({ state: "detached" });
		await page.getByRole("button", { name: "find", exact: false }).first().click();
		await dialog.getByRole("combobox").fill("overv");
		await dialog.getByRole("option", { name: "Overview" }).click();
		await heading("Overview").waitFor();
	});

	test("the charts of a device have points in each span", async () => {
		await goTo(page, `#/devices/${cpu.device_id}`);
		await heading(cpu.name).waitFor();
		const chart = page.getByRole("figure", { name: /^Use, use now \d+ %/ });
		const drawn = () =>
			chart.locator("canvas").evaluate((canvas) => {
				const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
				const colours = new Set();
				for (let i = 0; i < data.length; i += 4)
					if (data[i + 3] > 200) colours.add(`${data[i]} ${data[i + 1]} ${data[i + 2]}`);
				return colours.size;
			});
		await chart.waitFor({ timeout: 2 * patience });
		await eventually(async () => (await drawn()) > 1, "axes and a line are drawn");
		const span = (name) => page.getByRole("group", { name: "Time span" }).getByRole("button", { name });
		assert.equal(await span("10 min").getAttribute("aria-pressed"), "true");
		// what is drawn, since the figure stays at 100 % where the machine has much else to do
		const drawing = () => chart.locator("canvas").evaluate((canvas) => canvas.toDataURL());
		const before = await drawing();
		await eventually(async () => (await drawing()) !== before, "the chart goes on live");
		for (const name of ["24 h", "30 d"]) {
			await span(name).click();
			assert.equal(await span(name).getAttribute("aria-pressed"), "true");
			// a server that has just begun has no minute yet: the page says so in words; it draws where the test took minutes
			await page.getByText("there is little to show yet").or(chart.locator("canvas")).first().waitFor();
		}
		await span("10 min").click();
		await chart.locator("canvas").waitFor();
		const [saved] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()]);
		assert.match(saved.suggestedFilename(), /^exogpu-.*\.csv$/);
		const lines = readFileSync(await saved.path(), "utf8").split("\r\n");
		assert.match(lines[0], /^at,utilization_percent,.*,clock_mhz_max$/);
		assert.ok(lines.length > 2, "with readings");
		await page.getByRole("button", { name: "From, to" }).click();
		const dialog = page.getByRole("dialog", { name: "Readings of any time" });
		const ask = async (from, to) => {
			await dialog.getByLabel("From").fill(from);
			await dialog.getByLabel("To").fill(to);
			await dialog.getByRole("button", { name: "Show" }).click();
		};
		// as such a field has it: by the clock of whoever reads
		const daysAgo = (days) => page.evaluate((at) => {
			const text = new Date(at);
			text.setMinutes(text.getMinutes() - text.getTimezoneOffset());
			return text.toISOString().slice(0, 16);
		}, Date.now() - days * 86400e3);
		await ask("", "2020-01-02T00:00");
		await dialog.getByText("Give both times").waitFor();
		await ask(await daysAgo(2), await daysAgo(3));
		await dialog.getByText("The first time has to be before the second.").waitFor();
		await ask("2020-01-01T00:00", "2020-01-02T00:00");
		await dialog.getByText("The history holds 30 days").waitFor();
		await picture(page, "devices-any-time", { fullPage: false });
		assert.equal(await span("10 min").getAttribute("aria-pressed"), "true", "nothing was asked for");
		await ask(await daysAgo(3), await daysAgo(2));
		await dialog.waitFor({ state: "hidden" });
		assert.equal(await span("10 min").getAttribute("aria-pressed"), "false");
		await page.getByText("There are no readings of this time.").waitFor();
		await span("10 min").click();
		await chart.locator("canvas").waitFor();
	});

	test("Verify again checks the device again", async () => {
		await goTo(page, `#/devices/${cpu.device_id}`);
		const entry = async () =>
			(await client.call("cluster.snapshot")).devices.find((one) => one.device_id === cpu.device_id);
		const { verification: before } = await entry();
		await new Promise((resolve) => setTimeout(resolve, Math.max(0, Date.parse(before.at) + 1500 - Date.now())));
		await page.getByRole("button", { name: "Verify again" }).click();
		const after = await eventually(
			async () => {
				const { verification: now } = await entry();
				return now.state === "passed" && now.at > before.at && now;
			},
			"a later check passed",
		);
		// the page's age of it is that of the later check
		const shown = page.getByRole("region", { name: "State" }).locator(".verdict.ok", { hasText: "verified" });
		let text;
		await eventually(async () => {
			text = (await shown.textContent()).trim();
			const [, age] = /verified ([\d.]+) s ago/.exec(text) ?? [];
			return Date.now() - Number(age) * 1000 > Date.parse(before.at) + 500;
		}, () => `"${text}" is the age of the check at ${after.at}, not of the one at ${before.at}`);
		await page.getByRole("button", { name: "Verify again" }).waitFor();
	});

	test("Drain asks first; Return to service takes it back", async () => {
		await goTo(page, `#/devices/${cpu.device_id}`);
		const draining = async () =>
			(await client.call("cluster.snapshot")).devices.find((one) => one.device_id === cpu.device_id).draining;
		const dialog = page.getByRole("dialog", { name: `Drain ${cpu.name}?` });
		await page.getByRole("button", { name: "Drain", exact: true }).click();
		await dialog.waitFor();
		await dialog.getByRole("button", { name: "Cancel" }).click();
		await dialog.waitFor({ state: "hidden" });
		assert.equal(await draining(), false, "nothing happened");
		await page.getByRole("button", { name: "Drain", exact: true }).click();
		await dialog.waitFor();
		await page.keyboard.press("Escape");
		await dialog.waitFor({ state: "hidden" });
		await page.getByRole("button", { name: "Drain", exact: true }).click();
		await dialog.getByRole("button", { name: "Drain", exact: true }).click();
		await page.getByRole("button", { name: "Return to service" }).waitFor();
		assert.equal(await draining(), true);
		await page.getByRole("region", { name: "State" }).getByText("draining").first().waitFor();
		await page.getByRole("button", { name: "Return to service" }).click();
		await page.getByRole("button", { name: "Drain", exact: true }).waitFor();
		assert.equal(await draining(), false);
		assert.equal(await page.getByRole("button", { name: /^Undo/ }).count(), 0, "there is nothing left to undo");
	});

	test("who may only look is told why nothing can be done", async () => {
		const { token } = await client.call("token.create", { name: "guest", scopes: ["observe"] });
		const other = await browser.page();
		await openDashboard(other, server, `#/devices/${cpu.device_id}`, token);
		for (const name of ["Verify again", "Drain"]) {
			const button = other.getByRole("button", { name, exact: true });
			await button.waitFor();
			assert.equal(await button.isDisabled(), true);
			const reason = other.locator(`#${await button.getAttribute("aria-describedby")}`);
			assert.match(await reason.textContent(), /need a token with the scope admin/);
		}
		await goTo(other, "#/overview");
		await other.getByRole("link", { name: "Wall view" }).click();
		await other.getByRole("region", { name: "Devices" }).getByText(cpu.name).first().waitFor();
		assert.equal(await other.locator("a:visible, button:visible, input:visible").count(), 0, "the wall has nothing to press");
		assert.equal(await other.locator("html").getAttribute("data-theme"), "dark");
		for (const [width, height] of [[1920, 1080], [3840, 2160]]) {
			await other.setViewportSize({ width, height });
			const { tall, type } = await other.evaluate(() => ({ tall: document.documentElement.scrollHeight, type: parseFloat(getComputedStyle(document.querySelector(".wall")).fontSize) }));
			assert.ok(tall <= height && type >= height / 65, `${tall} of ${height}, type of ${type}`);
			const over = await other.locator(".wall-device > .state").evaluateAll((all) => all.filter((one) => one.scrollWidth > one.clientWidth || one.getBoundingClientRect().right > one.nextElementSibling.getBoundingClientRect().left + 1).length);
			assert.equal(over, 0, "a state lies over the figure beside it");
			await picture(other, `wall-${width}`);
		}
		await other.keyboard.press("Escape");
		await other.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
		assert.equal(await other.locator("html").getAttribute("data-theme"), "light");
		await other.context().close();
	});

	test("addresses that lead nowhere say so and offer the way back", async () => {
		await goTo(page, "#/devices/dev_nowhere");
		await see(page, "No such device");
		await page.getByRole("link", { name: "Show all devices" }).click();
		await heading("Devices").waitFor();
		await goTo(page, "#/nodes/nod_nowhere");
		await see(page, "No such node");
		await goTo(page, "#/a/b/c");
		await see(page, "Nothing is at this address");
		await page.getByRole("link", { name: "Go to Overview" }).click();
		await heading("Overview").waitFor();
	});

	test("a node's page tells of the machine", async () => {
		const {
			nodes: [node],
		} = await client.call("cluster.snapshot");
		await goTo(page, `#/nodes/${node.node_id}`);
		await heading(node.name).waitFor();
		await region("Machine").getByText(node.kernel).waitFor();
		for (const { name } of devices) await region("Devices").getByRole("link", { name }).first().waitFor();
		const lines = await region("Back ends").getByRole("listitem").allTextContents();
		assert.deepEqual(
			lines.map((line) => /enabled$/.test(line)),
			node.backends.map((one) => one.enabled),
			lines.join("; "),
		);
	});

	test("light and dark are switched, and stay", async () => {
		await goTo(page, "#/overview");
		const theme = () =>
			page.evaluate(() => [
				document.documentElement.dataset.theme,
				getComputedStyle(document.body).backgroundColor,
			]);
		const [before, paper] = await theme();
		assert.equal(before, "light");
		await page.getByRole("button", { name: "Switch to dark" }).click();
		const [after, other] = await theme();
		assert.equal(after, "dark");
		assert.notEqual(other, paper);
		await page.reload();
		await page.getByRole("button", { name: "Switch to light" }).click();
		assert.equal((await theme())[0], "light");
	});
});
