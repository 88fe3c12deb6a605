// The page of links: what nodes measure of each other, drawn, in figures and over time; and who is heard.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, FakeNode } from "../api/client.mjs";
import { deviceRecord, linkReading, nodeRecord } from "../api/records.mjs";
import { eventually, patience, startServer } from "../api/server.mjs";
import { goTo, openDashboard, picture, press, shapes, startBrowser, suite } from "./browser.mjs";

suite("topology", () => {
	let server, client, browser, page, nodes, timer;
	const region = (name) => page.getByRole("region", { name, exact: true });
	const pair = [
		deviceRecord({ device_id: "dev_rack", name: "Fast GPU", peers: ["uuid:1f"] }),
		deviceRecord({ device_id: "dev_twin", name: "Other GPU", hardware_key: "uuid:1f", peers: ["uuid:0f"] }),
	];
	const reading = (peer_id, more = {}) => linkReading({ peer_id, rtt_ms: 0.5, throughput_bytes_per_s: 117e6, class: "ethernet", ...more });

	before(async () => {
		server = await startServer();
		client = await Client.login(server);
		const join = (name, i) => FakeNode.connect(server, nodeRecord({ node_id: `nod_${name}`, name, host_name: name, link_port: 7000 + i }));
		nodes = await Promise.all(["rack", "laptop"].map(join));
		await nodes[0].devices(pair);
		await nodes[1].devices([deviceRecord({ device_id: "dev_laptop", name: "Small GPU" })]);
		browser = await startBrowser();
		page = await browser.page();
		await openDashboard(page, server);
	});
	after(async () => {
		clearInterval(timer);
		await browser?.close();
		await server?.stop();
	});

	test("without links it says what would make some", async () => {
		await goTo(page, "#/topology");
		await region("Machines and links").getByText("2 machines, 0 direct links").waitFor();
		await region("Inside machines").getByText("1 pair").waitFor();
		await region("Inside machines").getByText("Its node is of a build that does not measure it.").waitFor();
		await region("Found on the network").getByText(/Discovery is off/).waitFor(); // a server on loopback does not listen
	});

	test("how fast GPUs of a machine copy to each other, there and back", async () => {
		const speed = (hardware_key, bytes_per_s, reason = null) => ({ hardware_key, bytes_per_s, direct: true, reason,
			measured_at: bytes_per_s && new Date().toISOString() });
		await nodes[0].call("node.devices", { devices: pair, peer_speeds: [
			{ device_id: "dev_rack", peers: [speed("uuid:1f", 3.91e11)] },
			{ device_id: "dev_twin", peers: [speed("uuid:0f", null, "it broke")] },
		] });
		const row = region("Inside machines").getByRole("row").filter({ hasText: "Fast GPU" });
		for (const text of ["direct", "391.0 GB/s", "not measured", /ago$/]) await row.getByText(text, { exact: typeof text === "string" }).first().waitFor();
		await row.getByText("It broke.").waitFor();
		for (const shape of ["wide-light", "narrow-dark"]) {
			const shaped = await browser.page(shapes[shape]);
			await openDashboard(shaped, server, "#/topology");
			await shaped.getByRole("region", { name: "Inside machines", exact: true }).getByText("391.0 GB/s").waitFor();
			await picture(shaped, `topology-pairs-${shape}`);
			await shaped.context().close();
		}
		await goTo(page, "#/devices/dev_rack");
		await region("Identity").getByText("391.0 GB/s").waitFor();
		await goTo(page, "#/topology");
	});

	test("links come live: a wire, a row, both directions; a choice shows the history", async () => {
		const tell = () => {
			nodes[0].notify("node.links", { links: [reading("nod_laptop")] });
			nodes[1].notify("node.links", { links: [reading("nod_rack", { throughput_bytes_per_s: 110e6 })] });
		};
		tell();
		timer = setInterval(tell, 1000);
		const row = region("Links").getByRole("row").filter({ hasText: "laptop" }).filter({ hasText: "rack" });
		await row.getByText("Ethernet").waitFor({ timeout: 2 * patience });
		for (const text of ["0.50 ms", "936 Mbit/s", "880 Mbit/s"]) await row.getByText(text).waitFor();
		await eventually(async () => (await region("Machines and links").locator("svg .wire").count()) === 1, "the link is one wire");
		await region("Machines and links").getByText("no link, or not reachable now").waitFor(); // each kind of line has its word
		await region("Machines and links").getByRole("button", { name: /Ethernet/ }).getByText("0.50 ms").waitFor();
		await row.getByRole("button").click();
		const panel = region("laptop and rack");
		await panel.getByText("from laptop to rack").waitFor();
		await panel.getByText("Minute averages").waitFor();
		await region("The cluster as one machine").getByText("1 of 1 pair linked directly").waitFor();
		const wires = region("Machines and links");
		await wires.getByRole("button", { name: /^laptop to rack: Ethernet, 0\.50 ms/, pressed: true }).waitFor(); // told with its ends
		const stroke = (where) => wires.locator(where).evaluate((one) => getComputedStyle(one).stroke);
		assert.notEqual(await stroke(".wire.chosen:not(.busy) path:last-child"), await stroke(".wires-key svg.busy"),
			"a chosen wire does not look like one that carries activations");
		await panel.getByRole("button", { name: "1 h", pressed: true }).waitFor(); // its history begins with the last hour
	});

	test("a link that is worse than its kind is marked, with the reason", async () => {
		clearInterval(timer);
		const tell = () => nodes[0].notify("node.links", { links: [reading("nod_laptop", { rtt_ms: 80 })] });
		tell();
		timer = setInterval(tell, 1100);
		await region("Links").getByText("degraded").waitFor({ timeout: 4 * patience });
		await region("laptop and rack").locator(".trouble").filter({ hasText: /80(\.0)? ms/ }).waitFor();
	});

	test("the overview draws it, and the key g t leads here", async () => {
		await goTo(page, "#/overview");
		await eventually(() => region("Topology").locator("svg .wire").count(), "the overview draws the wire");
		await press(page, "g", "t");
		await page.getByRole("heading", { level: 1, name: "Topology" }).waitFor();
	});

	test("28 pairs of eight GPUs are one line, and all of them when asked for", async () => {
		const key = (i) => `uuid:eight${i}`, others = (i) => Array.from({ length: 8 }, (_, k) => k).filter((k) => k !== i);
		const node = await FakeNode.connect(server, nodeRecord({ node_id: "nod_eight", name: `${"a-long-".repeat(8)}name.example` }));
		const devices = Array.from({ length: 8 }, (_, i) => deviceRecord({ device_id: `dev_eight${i}`, hardware_key: key(i), memory_pool: key(i),
			uuid: null, name: "A GPU with a name that goes on and on", pci_address: `0000:${16 + i}:00.0`, peers: others(i).map(key) }));
		const speed = (hardware_key) => ({ hardware_key, bytes_per_s: 3.9e11, direct: true, reason: null, measured_at: new Date().toISOString() });
		await node.call("node.devices", { devices, peer_speeds: devices.map(({ device_id }, i) => ({ device_id, peers: others(i).map((k) => speed(key(k))) })) });
		const inside = region("Inside machines"), of = inside.getByRole("row").filter({ hasText: "goes on and on" });
		await inside.getByText("8 devices, 28 pairs").waitFor();
		await inside.getByText("All alike, and direct.").waitFor();
		assert.equal(await of.count(), 0);
		await inside.getByRole("button", { name: "Show all 28 pairs" }).press("Enter");
		await eventually(async () => (await of.count()) === 28, "every pair has a row");
		await inside.getByRole("button", { name: "Show fewer" }).click();
		await eventually(async () => (await of.count()) === 0, "they are folded again");
		for (const shape of ["wide-dark", "narrow-light"]) {
			const shaped = await browser.page(shapes[shape]);
			await openDashboard(shaped, server, "#/topology");
			await shaped.getByText("8 devices, 28 pairs").waitFor();
			const { scroll, width } = await shaped.evaluate(() => ({ scroll: document.documentElement.scrollWidth, width: document.documentElement.clientWidth }));
			assert.ok(scroll <= width, `it scrolls sideways: ${scroll} in ${width}`);
			await picture(shaped, `topology-eight-${shape}`);
			await shaped.context().close();
		}
		await node.close();
	});
});
