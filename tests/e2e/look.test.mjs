// How every page looks in both themes on a desk and on a phone, as far as it can be computed: nothing scrolls
// sideways, everything that can be pressed has a name and room for a finger, text has a contrast of 4.5 or more, the
// focus is seen. Pictures of all of them are left to be looked at.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client, FakeNode } from "../api/client.mjs";
import { modelFile } from "../api/gguf.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "../api/records.mjs";
import { eventually, patience, startServer, temporary } from "../api/server.mjs";
import { devicesUp, goTo, openDashboard, picture, shapes, startBrowser, suite } from "./browser.mjs";

const MIN_CONTRAST = 4.5;

// Runs in the page: every element with text of its own that is seen, with the contrast of its text to what lies
// behind it.
function measureContrast() {
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const known = new Map(); // a page has a few colours, in a thousand places
	const rgba = (colour) => {
		if (!known.has(colour)) known.set(colour, drawn(colour));
		return known.get(colour);
	};
	const drawn = (colour) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = colour;
		canvas.fillRect(0, 0, 1, 1);
		const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
		return [r, g, b, a / 255];
	};
	const over = ([r, g, b, a], under) => [r, g, b].map((value, i) => value * a + under[i] * (1 - a));
	const luminance = (colour) => {
		const [r, g, b] = colour.map((value) =>
			value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4,
		);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const poor = [];
	let measured = 0,
		least = 21;
	for (const element of document.body.querySelectorAll("*")) {
		const text = [...element.childNodes]
			.filter((node) => node.nodeType === 3)
			.map((node) => node.data.trim())
			.join("");
		const box = element.getBoundingClientRect();
		if (
			!text ||
			box.width < 2 ||
			box.height < 2 ||
			!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })
		)
			continue;
		if (element.closest("svg, .sr, :disabled, noscript")) continue;
		const chain = [];
		for (let at = element; at; at = at.parentElement) chain.unshift(getComputedStyle(at));
		let behind = [255, 255, 255],
			opacity = 1;
		for (const style of chain) {
			behind = over(rgba(style.backgroundColor), behind);
			opacity *= Number(style.opacity);
		}
		const [r, g, b, a] = rgba(chain.at(-1).color);
		const front = over([r, g, b, a * opacity], behind);
		const [light, dark] = [luminance(front), luminance(behind)].sort((one, other) => other - one);
		const contrast = (light + 0.05) / (dark + 0.05);
		measured++;
		least = Math.min(least, contrast);
		if (contrast < 4.5)
			poor.push(
				`${contrast.toFixed(2)} "${text.slice(0, 40)}" ${element.tagName.toLowerCase()}.${element.className}`,
			);
	}
	return { measured, least, poor: [...new Set(poor)] };
}

// Runs in the page: what can be pressed and has no name, or one that leads to several places, or on a phone too little room.
function measureControls(finger) {
	const nameless = [],
		small = [],
		places = new Map();
	for (const element of document.querySelectorAll("a[href], button, input, [role=button], [tabindex='0']")) {
		if (!element.checkVisibility({ visibilityProperty: true })) continue;
		const labels = [
			element.getAttribute("aria-label"),
			element.textContent,
			element.title,
			...[...(element.labels ?? [])].map((label) => label.textContent),
		];
		const what = element.outerHTML.slice(0, 120);
		const name = labels.find((text) => text?.trim())?.replace(/\s+/g, " ").trim();
		if (!name) nameless.push(what);
		else if (element.matches("a[href], button:not([aria-haspopup])") && !element.closest("[role=group], [role=radiogroup]")) {
			const same = /^(Copy: |Choose a file$)/.test(name); // do the same, wherever they stand
			const place = element.getAttribute("href") ?? (same ? name : element);
			places.set(name, (places.get(name) ?? new Set()).add(place));
		}
		const { width, height } = (element.closest("label") ?? element).getBoundingClientRect();
		const button = element.matches("button:not(.text-btn), .btn, .tabbar a, input:not([type=checkbox])");
		if (finger && button && width > 1 && (height < 40 || width < 40))
			small.push(`${Math.round(width)}x${Math.round(height)} ${what}`);
	}
	return { nameless, small, alike: [...places].filter(([, all]) => all.size > 1).map(([name, { size }]) => `${size} of "${name}"`) };
}

suite("how it looks", () => {
	let server, client, browser, device, node, model;
	const far = "A workstation with a rather long name in the far corner of the second machine room";
	let fake, timer;

	before(async () => {
		server = await startServer({ localNode: true });
		client = await Client.login(server);
		device = (await devicesUp(client)).find((one) => one.backend === "cpu");
		node = (await client.call("cluster.snapshot")).nodes[0];
		const file = join(temporary(), "small.gguf");
		writeFileSync(file, modelFile());
		await client.call("model.add", { source: file });
		model = await eventually(async () => (await client.call("model.list")).models.find((one) => one.state === "ready"), "the model is there", 2 * patience);
		browser = await startBrowser();
	});
	after(async () => {
		clearInterval(timer);
		fake?.socket.close();
		await browser?.close();
		await server?.stop();
	});

	// Name to address; the addresses are known when the test runs.
	const pages = {
		overview: () => "#/overview",
		devices: () => "#/devices",
		topology: () => "#/topology",
		device: () => `#/devices/${device.device_id}`,
		node: () => `#/nodes/${node.node_id}`,
		nowhere: () => "#/nowhere/at/all",
		keys: () => "#/overview",
		find: () => "#/overview",
	};
	// Other suites draw these: the address, and what is there once the page's own file has come.
	const others = {
		models: () => ["#/models", "completes only: no known chat template"],
		model: () => [`#/models/${model.model_id}`, "Why this placement"],
		playground: () => ["#/playground", "Preview its placement"],
		allocations: () => ["#/allocations", "Nothing is lent now"],
		access: () => ["#/access", "Join another machine"],
		audit: () => ["#/audit", "First key"],
		usage: () => ["#/usage", "Nothing was used in this time"],
		alerts: () => ["#/alerts", "Channels"],
		logs: () => ["#/logs", "Follow"],
		wall: () => ["#/wall", "What to watch"],
	};

	// Once the page of the new address is drawn, with what it asked for.
	const settled = (page, heading = /./) => eventually(async () => {
		await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
		return (await page.locator("h1:visible").filter({ hasText: heading }).count()) === 1 && (await page.locator(".skeleton:visible").count()) === 0;
	}, `${heading} is drawn`);

	async function inspect(page, shape, name, t) {
		await settled(page);
		const narrow = shape.startsWith("narrow");
		const {
			scroll,
			client: width,
			wide,
		} = await page.evaluate(() => ({
			scroll: document.documentElement.scrollWidth,
			client: document.documentElement.clientWidth,
			wide: [...document.body.querySelectorAll("*")]
				.filter(
					(one) =>
						one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".table-wrap, .sr, .skip"),
				)
				.map((one) => one.outerHTML.slice(0, 100))
				.slice(0, 5),
		}));
		assert.ok(scroll <= width, `${name} scrolls sideways: ${scroll} in ${width}; ${wide.join("\n")}`);
		const { measured, least, poor } = await page.evaluate(measureContrast);
		t.diagnostic(`${name}, ${shape}: ${measured} texts, the least contrast ${least.toFixed(2)}`);
		assert.deepEqual(poor, [], `${name}: contrast below ${MIN_CONTRAST}`);
		const { nameless, small, alike } = await page.evaluate(measureControls, narrow);
		assert.deepEqual(nameless, [], `${name}: without a name`);
		assert.deepEqual(alike, [], `${name}: one name for several`);
		assert.deepEqual(small, [], `${name}: too little room for a finger`);
		assert.equal(await page.locator("h1:visible").count(), 1, `${name}: one first heading`);
		assert.notEqual(await page.title(), "");
	}

	for (const shape of Object.keys(shapes)) {
		test(`every page, ${shape}`, async (t) => {
			const page = await browser.page(shapes[shape]);
			await page.goto(server.url.origin);
			await page.getByRole("form", { name: "Log in" }).waitFor();
			await inspect(page, shape, "login", t);
			await picture(page, `login-${shape}`);
			await openDashboard(page, server);
			for (const [name, hash] of Object.entries(pages)) {
				await goTo(page, hash());
				if (name === "keys") {
					await page.keyboard.press("?");
					await page.getByRole("dialog", { name: "Keys" }).waitFor();
				}
				if (name === "find") {
					await page.keyboard.press("Control+k");
					await page.getByRole("option").first().waitFor();
				}
				if (name === "device") await page.locator("figure .plot canvas").first().waitFor();
				await inspect(page, shape, name, t);
				await picture(page, `${name}-${shape}`, { fullPage: name !== "keys" && name !== "find" });
				if (name === "keys" || name === "find") await page.keyboard.press("Escape");
			}
			for (const [name, at] of Object.entries(others)) {
				const [hash, text] = at();
				await goTo(page, hash);
				await page.getByText(text).first().waitFor();
				await inspect(page, shape, name, t);
			}
			await page.context().close();
		});
	}

	test("the focus is seen on everything that Tab reaches", async () => {
		const page = await browser.page();
		await openDashboard(page, server);
		for (const [hash, heading] of [[pages.overview(), "Overview"], [pages.devices(), "Devices"], [pages.device(), device.name]]) {
			await goTo(page, hash);
			await settled(page, heading);
			await page.evaluate(() => document.activeElement?.blur());
			const unseen = [];
			let reached = 0;
			for (let i = 0; i < 60; i++) {
				await page.keyboard.press("Tab");
				const at = await page.evaluate(() => {
					const element = document.activeElement;
					if (!element || element === document.body) return null;
					const style = getComputedStyle(element),
						box = element.getBoundingClientRect();
					const ring =
						(style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1) ||
						style.boxShadow !== "none";
					return { ring, shown: box.width > 1 && box.height > 1, html: element.outerHTML.slice(0, 100) };
				});
				if (!at) break;
				reached++;
				if (!at.ring || !at.shown) unseen.push(at.html);
			}
			assert.ok(reached > 5, `${hash}: ${reached} elements by Tab`);
			assert.deepEqual(unseen, [], `${hash}: focus not seen`);
		}
		await page.context().close();
	});

	test("names as long as they come, and a device that failed, fit in", async (t) => {
		fake = await FakeNode.connect(
			server,
			nodeRecord({ node_id: "nod_long", name: far, host_name: `${"long-".repeat(12)}host.example` }),
		);
		const base = { family: "An architecture with a long family name", memory_pool: "p" };
		const name = "NVIDIA GeForce RTX 4090 Founders Edition with a name that goes on and on and on";
		await fake.devices([
			deviceRecord({
				...base,
				device_id: "dev_long",
				hardware_key: "uuid:l1",
				uuid: null,
				name,
				pci_address: "0000:0a:00.0",
			}),
			deviceRecord({ ...base, device_id: "dev_twin", hardware_key: "uuid:l4", uuid: null, name, pci_address: "0000:0b:00.0" }),
			deviceRecord({
				...base,
				device_id: "dev_word",
				hardware_key: "uuid:l2",
				uuid: null,
				name: "W".repeat(64),
				memory_pool: "q",
			}),
			deviceRecord({
				...base,
				device_id: "dev_bad",
				hardware_key: "uuid:l3",
				uuid: null,
				name: "A card that failed",
				memory_pool: "r",
				support: "unsupported",
				support_reason: "the check failed",
				verification: {
					state: "failed",
					at: new Date().toISOString(),
					duration_ms: 3.5,
					error: "copying 1048576 bytes on the device gave other bytes from 4096 on; the driver is faulty",
				},
			}),
		]);
		timer = setInterval(
			() =>
				fake.telemetry(
					[
						deviceReadings({
							device_id: "dev_long",
							temperature_celsius: 91,
							thermal_state: "throttled",
							throttle: ["thermal", "power"],
							utilization_percent: 99,
							memory_used_bytes: 17000000000,
						}),
						deviceReadings({ device_id: "dev_word", power_watts: null, temperature_celsius: null }),
					],
					nodeReadings({ node_id: "nod_long" }),
				),
			1000,
		);
		const long = await eventually(
			async () => {
				const { devices } = await client.call("cluster.snapshot");
				return devices.find((one) => one.pci_address === "0000:0a:00.0");
			},
			"the devices are told",
		);
		for (const shape of ["wide-light", "narrow-dark"]) {
			const page = await browser.page(shapes[shape]);
			await openDashboard(page, server);
			await page
				.getByText(/failed its check/)
				.first()
				.waitFor();
			await page.waitForTimeout(2500); // two readings for the sparklines
			for (const [name, hash, heading] of [
				["overview", "#/overview", "Overview"],
				["devices", "#/devices", "Devices"],
				["device", `#/devices/${long.device_id}`, long.name],
				["node", `#/nodes/${long.node_id}`, far],
			]) {
				await goTo(page, hash);
				await settled(page, heading);
				const numbered = name === "overview" || name === "devices";
				if (numbered) await eventually(async () => (await page.locator(".numbered").count()) >= 2, `${name}: the two of one name have numbers`);
				await picture(page, `long-${name}-${shape}`);
				// Names are cut off before the number that tells two of one name apart.
				const cut = await page.locator(".numbered").evaluateAll((all) => all.filter((one) =>
					one.lastChild.getBoundingClientRect().right > one.closest("a, th").getBoundingClientRect().right + 1).length);
				assert.equal(cut, 0, name);
				await inspect(page, shape, `long ${name}`, t);
			}
			await page.context().close();
		}
	});
});
