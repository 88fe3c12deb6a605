// The page in another language: nothing that it shows stays English. In the test language each text of the page stands in
// marks (ui/src/text/language.ts), and what is shown outside of them and is no data is a fault. Then German itself: some of its
// sentences, and whether all of it fits, wide and on a phone.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client, FakeNode } from "../api/client.mjs";
import { modelFile } from "../api/gguf.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "../api/records.mjs";
import { eventually, patience, startServer, temporary } from "../api/server.mjs";
import { devicesUp, goTo, picture, shapes, startBrowser, suite } from "./browser.mjs";
import { unmarked } from "./marks.mjs";

const template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'}}{% endfor %}";

suite("in other languages", () => {
	let server, client, browser, device, node, model, fake, timer, data;

	before(async () => {
		server = await startServer({ localNode: true });
		client = await Client.login(server);
		device = (await devicesUp(client)).find((one) => one.backend === "cpu");
		node = (await client.call("cluster.snapshot")).nodes[0];
		const file = join(temporary(), "small.gguf");
		writeFileSync(file, modelFile({ megabytes: 0.8, template }));
		await client.call("model.add", { source: file });
		model = await eventually(async () => (await client.call("model.list")).models.find((one) => one.state === "ready"), "the model is there", 2 * patience);
		fake = await FakeNode.connect(server, nodeRecord({ name: "узел" }));
		await fake.devices([
			deviceRecord({ name: "прибор" }),
			deviceRecord({ device_id: "dev_bad", hardware_key: "uuid:2", uuid: null, name: "плохой", memory_pool: "q", pci_address: "0000:02:00.0", support: "unsupported", support_reason: "the check failed", verification: { state: "failed", at: new Date().toISOString(), duration_ms: 3.5, error: "copying on the device gave other bytes" } }),
		]);
		const tell = () => fake.telemetry([deviceReadings({ temperature_celsius: 91, thermal_state: "throttled", throttle: ["thermal"], memory_used_bytes: 17179000000 })], nodeReadings());
		tell();
		timer = setInterval(tell, 1000);
		browser = await startBrowser();
		data = await names();
	});
	after(async () => {
		clearInterval(timer);
		fake?.socket.close();
		await browser?.close();
		await server?.stop();
	});

	// What the server tells that is a name, and no word.
	async function names() {
		const named = /^(name|host_name|os|kernel|arch|cpu_model|vendor|model|model_name|family|version|driver_version|api_version|file|source|label|holder|actor|actor_name|addresses|features|formats|capabilities|languages|licence|good_at|from|chat_template|format|url|task|path|pci_address)$/;
		const found = new Set();
		const look = (value, name) => {
			if (typeof value === "string" && named.test(name) && /\p{L}{2}/u.test(value)) found.add(value);
			else if (Array.isArray(value)) for (const one of value) look(one, name);
			else if (value && typeof value === "object") for (const [key, one] of Object.entries(value)) look(one, key);
		};
		for (const [method, params] of [["cluster.snapshot", {}], ["server.info", {}], ["model.list", {}], ["model.catalog", {}], ["token.list", {}]]) look(await client.call(method, params), "");
		return [...found];
	}

	const inLanguage = async (language, shape = "wide-light", options = {}) => {
		const page = await browser.page({ ...shapes[shape], ...options });
		await page.addInitScript((to) => localStorage.setItem("exogpu.language", to), language);
		return page;
	};
	// Once what the page asked for has come.
	const settled = (page) => eventually(async () => {
		await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
		return (await page.locator("h1:visible, dialog h2:visible").count()) >= 1 && (await page.locator(".skeleton:visible").count()) === 0;
	}, "it is drawn");
	const check = async (page, name) => {
		await settled(page);
		return (await page.evaluate(unmarked, data)).map((one) => `${name}: ${one}`);
	};

	const button = (page, name) => page.getByRole("button", { name: `⟦${name}⟧`, exact: true });

	test("nothing that is shown stays English", async () => {
		const faults = [];
		const page = await inLanguage("zz");
		const see = async (name, at = page) => void faults.push(...await check(at, name));
		const dialog = async (name, open, leave = "Escape") => {
			await open();
			await page.locator("dialog[open]").waitFor();
			await see(name);
			await page.keyboard.press(leave);
			await page.locator("dialog[open]").waitFor({ state: "detached" });
		};
		await page.goto(server.url.origin);
		await page.getByRole("form").waitFor();
		await see("login");
		await page.goto(`${server.url.origin}/#token=${server.token}`);
		await page.locator(".live:not(.off)").waitFor({ timeout: 2 * patience });
		const walk = async (when, hashes) => {
			for (const [hash, there] of hashes) {
				await goTo(page, `#/${hash}`);
				await page.locator(there).first().waitFor();
				await see(`${hash}, ${when}`);
			}
		};
		await walk("at first", [
			["overview", ".events li"], ["devices", ".devices tbody tr"], [`devices/${device.device_id}`, "figure .plot canvas"], ["devices/dev_gpu", "figure .plot canvas"], ["devices/dev_bad", ".dev-head"],
			[`nodes/${node.node_id}`, ".libs"], ["nodes/nod_test", ".libs"], ["topology", ".wires"], ["models", ".offer, .found-row, .add-model"], [`models/${model.model_id}`, ".preview .found, .preview h3"],
			["playground", ".begin, .talk"], ["allocations", ".empty"], ["access", ".token-list tbody tr"], ["audit", "td.what"], ["usage", ".empty, table"], ["alerts", ".rule-list tbody tr"],
			["logs", ".log-lines li"], ["wall", ".wall-device"], ["nowhere", ".empty"],
		]);

		await goTo(page, "#/overview");
		await settled(page);
		await dialog("keys", () => page.keyboard.press("?"));
		await dialog("find", () => page.keyboard.press("Control+k"));

		await goTo(page, "#/devices/dev_gpu");
		await page.locator("figure .plot canvas").first().waitFor();
		await dialog("times", () => button(page, "From, to").click());
		await dialog("heat policy", () => button(page, "Change").click());
		await button(page, "Drain").click();
		await page.locator("dialog[open]").waitFor();
		await see("drain");
		await page.locator("dialog[open]").getByRole("button", { name: "⟦Drain⟧", exact: true }).click();
		await page.locator(".toasts").waitFor();
		await see("drained");

		await client.call("instance.create", { model_id: model.model_id });
		await eventually(async () => (await client.call("cluster.snapshot")).instances.some((one) => one.state === "running"), "it is loaded", 4 * patience);
		await client.call("memory.allocate", { device_id: device.device_id, bytes: 1 << 20, label: "метка" });
		data = await names();
		await goTo(page, "#/playground");
		await page.getByRole("textbox", { name: "⟦Message⟧" }).fill("Здравствуй");
		await button(page, "Send").click();
		await page.getByText(/first token after/).waitFor({ timeout: 4 * patience });
		await see("an answer");
		await walk("with a model", [
			["overview", ".run-panel li"], ["models", ".run-speed, .instance, .panel h3"], [`models/${model.model_id}`, ".preview h3"], ["allocations", ".lent-vitals"], ["usage", "table tbody tr"],
			["wall", ".wall-model"], ["audit", "td.what"], [`devices/${device.device_id}`, "figure .plot canvas"],
		]);
		await goTo(page, "#/audit");
		await button(page, "Check all of it").click();
		await page.locator(".audit-report").waitFor();
		await see("the log is checked");

		await goTo(page, "#/access");
		await page.locator(".token-list tbody tr").first().waitFor();
		await dialog("a token", () => button(page, "Make a token").first().click());
		await page.locator(".lend-name").fill("телефон");
		await button(page, "Make a link").click();
		await page.getByText("телефон").first().waitFor();
		await see("a link");
		await goTo(page, "#/alerts");
		await page.locator(".rule-list tbody tr").first().waitFor();
		await dialog("a channel", () => button(page, "Add a channel").click());
		await dialog("a rule", () => page.locator(".rule-list button:not(.copy-id)").first().click());

		const { token } = await client.call("token.create", { name: "гость", scopes: ["infer"], expires_in_s: 3600 });
		const guest = await inLanguage("zz");
		await guest.goto(`${server.url.origin}/#token=${token}`);
		await guest.locator(".talk").waitFor({ timeout: 2 * patience });
		await see("a guest", guest);
		await guest.goto(`${server.url.origin}/lend`);
		await guest.locator(".lend-card").waitFor();
		await see("lending", guest);
		await guest.context().close();
		await page.context().close();
		assert.deepEqual([...new Set(faults)], []);
	});

	test("German, as the browser asks for it, fits wide and on a phone", async () => {
		for (const shape of ["wide-light", "narrow-dark"]) {
			const page = await browser.page({ ...shapes[shape], locale: "de-DE" });
			const fits = async (name) => {
				await settled(page);
				await picture(page, `german-${name}-${shape}`);
				const { scroll, width } = await page.evaluate(() => ({ scroll: document.documentElement.scrollWidth, width: document.documentElement.clientWidth }));
				assert.ok(scroll <= width, `${name}, ${shape}: it scrolls sideways, ${scroll} in ${width}`);
			};
			await page.goto(server.url.origin);
			await page.getByRole("form", { name: "Anmelden" }).waitFor();
			assert.equal(await page.evaluate(() => document.documentElement.lang), "de");
			await fits("login");
			await page.goto(`${server.url.origin}/#token=${server.token}`);
			await page.getByRole("status", { name: "Verbindung: steht" }).waitFor({ timeout: 2 * patience });
			for (const [name, hash, text] of [
				["overview", "#/overview", "Letzte Ereignisse"], ["devices", "#/devices", "прибор"], ["device", "#/devices/dev_gpu", "Wärme-Vorhersage"], ["node", `#/nodes/${node.node_id}`, "Bibliotheken und Treiber"], ["topology", "#/topology", "Rechner und Verbindungen"],
				["models", "#/models", "Modell hinzufügen"], ["model", `#/models/${model.model_id}`, "Warum diese Platzierung"], ["playground", "#/playground", "Einstellungen"], ["allocations", "#/allocations", "Vergeben"], ["access", "#/access", "Weiteren Rechner aufnehmen"],
				["usage", "#/usage", "Preis je kWh"], ["alerts", "#/alerts", "Kanäle"], ["audit", "#/audit", "Zeugen"], ["logs", "#/logs", "Mitlaufen"], ["wall", "#/wall", "Im Blick behalten"],
			]) {
				await goTo(page, hash);
				await page.getByText(text).locator("visible=true").first().waitFor();
				await fits(name);
			}
			// What the server says, by its key, as why a device is in its state.
			await goTo(page, "#/devices/dev_gpu");
			await client.call("device.drain", { device_id: "dev_gpu", drain: true });
			await page.getByText(/bekommt keine neue Arbeit, bis es wieder in Betrieb genommen wird/i).locator("visible=true").first().waitFor();
			await page.context().close();
		}
	});

	test("the language is chosen in the page, and kept", async () => {
		const page = await browser.page({ ...shapes["wide-light"], locale: "de-DE" });
		await openDashboardIn(page, "Verbindung: steht");
		await page.getByRole("button", { name: "English", exact: true }).click();
		await page.getByRole("status", { name: "Connection: live" }).waitFor({ timeout: 2 * patience });
		assert.equal(await page.evaluate(() => document.documentElement.lang), "en");
		await page.reload();
		await page.getByRole("status", { name: "Connection: live" }).waitFor({ timeout: 2 * patience });
		await page.getByRole("button", { name: "Deutsch", exact: true }).click();
		await page.getByRole("status", { name: "Verbindung: steht" }).waitFor({ timeout: 2 * patience });
		await page.context().close();
	});

	const openDashboardIn = async (page, name) => {
		await page.goto(`${server.url.origin}/#token=${server.token}`);
		await page.getByRole("status", { name }).waitFor({ timeout: 2 * patience });
	};

	test("a lost connection is told in the page's language", async () => {
		const page = await inLanguage("zz", "wide-light", { expected: [/WebSocket|ERR_CONNECTION/] });
		await page.goto(`${server.url.origin}/#token=${server.token}`);
		await page.locator(".live:not(.off)").waitFor({ timeout: 2 * patience });
		await settled(page);
		clearInterval(timer);
		fake.socket.close();
		await server.stop();
		server = null;
		await page.locator(".lost").waitFor();
		assert.deepEqual(await check(page, "lost"), []);
		await page.context().close();
	});
});
