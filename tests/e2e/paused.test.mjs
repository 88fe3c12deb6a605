// An instance that a faster device is offered to, one that has lost its place, and layers that are moved to where they
// do not fit, as they are shown: on two machines whose devices have one name, which played nodes have.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client } from "../api/client.mjs";
import { ModelWorker } from "../api/generating.mjs";
import { modelFile } from "../api/gguf.mjs";
import { deviceReadings, deviceRecord, nodeRecord } from "../api/records.mjs";
import { eventually, slow, startServer, temporary } from "../api/server.mjs";
import { WorkerNode } from "../api/workers.mjs";
import { devicesUp, openDashboard, picture, shapes, startBrowser, suite } from "./browser.mjs";

const LONG = 120000 * slow, MIB = 1 << 20, NAME = "Intel(R) Xeon(R) Processor";

suite("paused", () => {
	let server, admin, browser, nodes, instance_id, model, used = 64 * MIB;
	const device = (n, memory_bandwidth_bytes_per_s) => deviceRecord({ device_id: `dev_${n}`, hardware_key: `uuid:${n}`, name: NAME,
		memory_pool: `uuid:${n}`, memory_bytes: 1 << 30, memory_bandwidth_bytes_per_s });
	const is = (what, matches) => {
		let last;
		return eventually(async () => {
			last = (await admin.call("instance.list")).instances.find((one) => one.instance_id === instance_id);
			return last && matches(last) && last;
		}, what, LONG).catch((error) => { throw new Error(`${error.message}; it is ${JSON.stringify(last)}`); });
	};
	const drain = (device_id, drain) => admin.call("device.drain", { device_id, drain });
	const everywhere = async (name, look) => {
		for (const [shape, options] of Object.entries(shapes)) {
			const page = await browser.page(options);
			await openDashboard(page, server, "#/models");
			await look(page);
			await picture(page, `${name}-${shape}`);
			await page.context().close();
		}
	};

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		nodes = await Promise.all([1, 2].map((n) => WorkerNode.start(server, { Worker: ModelWorker, devices: [device(n, n === 1 ? 2e10 : 8e11)],
			record: nodeRecord({ node_id: `nod_${n}`, name: ["one", "two"][n - 1] }) })));
		for (const [i, node] of nodes.entries()) {
			const tell = () => node.telemetry([deviceReadings({ device_id: `dev_${i + 1}`, memory_total_bytes: 1 << 30, memory_used_bytes: used })]);
			node.beat = setInterval(tell, 1000);
			tell();
		}
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 24, context: 4096 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready", LONG);
		await devicesUp(admin);
		const place = async (device_id, layers_s) => { // a place is offered by what was timed
			ModelWorker.times = { layers_s, output_s: layers_s / 4, batch_s: [], prompt_row_s: layers_s };
			({ instance_id } = await admin.call("instance.create", { model_id: model.model_id, ...(device_id && { pins: [{ device_id, first_layer: 0, layer_count: 0 }] }) }));
			await is("it is ready", (one) => one.state === "running");
		};
		await place("dev_2", 0.0004);
		await admin.call("instance.delete", { instance_id });
		await drain("dev_2", true);
		await place(null, 0.004);
		browser = await startBrowser();
	});
	after(async () => {
		ModelWorker.times = undefined;
		await browser?.close();
		nodes?.forEach((one) => { clearInterval(one.beat); one.socket.close(); });
		await server?.stop();
	});

	test("a faster device is offered, by its machine's name", async () => {
		await drain("dev_2", false);
		await is("it is offered a place", (one) => one.offer?.device_ids[0] === "dev_2");
		await everywhere("instance-offer", async (page) => {
			await page.getByText(/it would generate .* tokens per s/).waitFor();
			await page.getByText(`two, ${NAME}`).first().waitFor();
			await page.getByRole("button", { name: `Move words to two, ${NAME}` }).waitFor();
		});
	});

	test("what is gone, where it was, and what would give it a place", async () => {
		await drain("dev_2", true); // first, or it goes there
		await drain("dev_1", true);
		nodes[0].worker().kill();
		const { missing, remedies } = await is("it waits for a place, and says what would give it one", (one) => one.state === "paused" &&
			/^it waits for a place/.test(one.state_reason) && one.remedies.length);
		assert.match(remedies[0], /^with .* of one back in service it would fit: exogpu devices return dev_1$/);
		assert.deepEqual(missing, [{ first_layer: 0, layer_count: model.architecture.layers, device_id: "dev_1", to_device_id: null }]);
		await everywhere("instance-paused", async (page) => {
			await page.getByText(/it waits for a place/i).first().waitFor();
			await page.getByText(`Layers 0 to ${model.architecture.layers - 1} were on one, ${NAME}; no device has room for them yet`).waitFor();
		});
		const talk = await browser.page();
		await openDashboard(talk, server, "#/playground");
		await talk.getByRole("heading", { name: "words (paused)" }).waitFor(); // no other model takes its place
		await talk.getByRole("status").getByText(new RegExp(`^${NAME.replace(/[()]/g, "\\$&")} of one is draining\\. It waits for a place`)).waitFor();
		await talk.getByPlaceholder("Message, answered once words goes on").waitFor();
		await picture(talk, "playground-paused");
		await drain("dev_2", false);
		await drain("dev_1", false);
		await talk.getByRole("heading", { name: "words", exact: true }).waitFor({ timeout: LONG });
		await talk.getByPlaceholder("Message", { exact: true }).waitFor();
		await eventually(async () => (await talk.locator(".moves").count()) === 0, "the page says no more that it moves");
		await talk.context().close();
		await is("it goes on", (one) => one.state === "running" && one.recoveries === 1);
	});

	test("layers that were moved to where they do not fit: what each device lacks, and what would do", async () => {
		await admin.call("instance.delete", { instance_id });
		await drain("dev_2", false);
		used = (1 << 30) - (1 << 26) - 64 * MIB; // a sixteenth is the machine's own: free are 64 MiB on each, for 88 MiB
		const asked = { model_id: model.model_id, context_tokens: 2048, sequences: 1 };
		await eventually(async () => (await admin.call("placement.preview", asked)).stages.length === 2, "it takes both devices", LONG);
		for (const [shape, options] of Object.entries(shapes)) {
			const page = await browser.page(options);
			await openDashboard(page, server, `#/models/${model.model_id}`);
			const preview = page.getByRole("region", { name: "Placement preview" });
			await preview.getByRole("combobox", { name: "Context", exact: true }).selectOption("4096");
			await preview.getByRole("combobox", { name: "Parallel requests", exact: true }).selectOption("8");
			await preview.getByText("It does not fit with these settings.").waitFor(); // there is no stage to show
			for (const [i, one] of ["one", "two"].entries())
				await preview.locator(".lacks li").nth(i).getByText(`${one}, ${NAME} has 64 MiB free of 1.0 GiB`, { exact: true }).waitFor();
			assert.equal(await preview.locator(".lacks li").count(), 2);
			await picture(page, `placement-none-${shape}`);
			await preview.getByRole("combobox", { name: "Context", exact: true }).selectOption("2048");
			await preview.getByRole("combobox", { name: "Parallel requests", exact: true }).selectOption("1");
			const handle = preview.getByRole("slider"), stages = preview.locator(".stage-row");
			const load = preview.getByRole("button", { name: "Load" });
			await handle.waitFor();
			await handle.press("End"); // all layers but one are the first device's
			await preview.getByText("It does not fit with these settings.").waitFor();
			assert.equal(await load.isEnabled(), false);
			assert.equal(await stages.count(), 2);
			await stages.nth(0).getByText(/[1-9]\d* MiB more than is free/).waitFor();
			await stages.nth(0).getByText("layers 0 to 124, the embedding").waitFor();
			assert.equal(await stages.nth(1).getByText("more than is free").count(), 0);
			await preview.getByText(/: its 125 layers take/).waitFor();
			await preview.getByText(/^With \d+ MiB more on .* they would fit there\.$/).waitFor();
			const remedy = await preview.getByText(/^With \d+ layers? fewer on .* they would fit there\.$/).textContent();
			await picture(page, `placement-misfit-${shape}`);
			const fewer = Number(/\d+/.exec(remedy)[0]);
			for (let i = 0; i < fewer; i++) await handle.press("ArrowLeft"); // as it says, and it fits
			await preview.getByText(`layers 0 to ${124 - fewer}, the embedding`).waitFor();
			await preview.getByText("ms per token").waitFor();
			await eventually(() => load.isEnabled(), "it can be loaded");
			await eventually(async () => (await preview.getByText("more than is free").count()) === 0, "nothing is lacking any more");
			await page.context().close();
		}
	});
});
