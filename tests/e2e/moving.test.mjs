// A chat whose model has to leave its device: the page tells in that place what is left and where it continues, no other
// model takes its place, and the answer goes on. On two machines which played nodes have.
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
import { devicesUp, kindOf, openDashboard, picture, shapes, startBrowser, suite } from "./browser.mjs";

const LONG = 120000 * slow, MIB = 1 << 20;

// Answers one token at a time, as the test says, and loads when it says.
class HeldWorker extends ModelWorker {
	static holds = false;
	static loads = [];

	run(method, params, body, id) {
		if (method !== "instance.load" || !HeldWorker.holds) return super.run(method, params, body, id);
		HeldWorker.loads.push(() => this.send({ jsonrpc: "2.0", id, ...super.run(method, params, body, id) }));
		return null;
	}
}

suite("moving", () => {
	let server, admin, browser, nodes;
	const only = async (name) => (await admin.call("instance.list")).instances.find((one) => one.model_name === name);
	const device = (n) => deviceRecord({ device_id: `dev_${n}`, hardware_key: `uuid:${n}`, name: `GPU ${n}`, memory_pool: `uuid:${n}`, memory_bytes: 1 << 30,
		memory_bandwidth_bytes_per_s: 4e10 });

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		nodes = await Promise.all([1, 2].map((n) => WorkerNode.start(server, { Worker: HeldWorker, devices: [device(n)],
			record: nodeRecord({ node_id: `nod_${n}`, name: ["atelier", "kitchen-pc"][n - 1] }) })));
		for (const [i, node] of nodes.entries()) {
			const tell = () => node.telemetry([deviceReadings({ device_id: `dev_${i + 1}`, memory_total_bytes: 1 << 30, memory_used_bytes: 64 * MIB })]);
			node.beat = setInterval(tell, 1000);
			tell();
		}
		for (const name of ["words", "other"]) {
			const path = join(temporary(), `${name}.gguf`);
			writeFileSync(path, modelFile({ megabytes: name === "words" ? 4 : 2, context: 2048 }));
			await admin.call("model.add", { source: path });
		}
		const models = await eventually(async () => {
			const all = (await admin.call("model.list")).models.filter((one) => one.state === "ready");
			return all.length === 2 && all;
		}, "both models are ready", LONG);
		await devicesUp(admin);
		await admin.call("device.drain", { device_id: "dev_2", drain: true });
		await admin.call("instance.create", { model_id: models.find((one) => one.name === "words").model_id });
		await eventually(async () => (await only("words"))?.state === "running", "it is loaded", LONG);
		await admin.call("device.drain", { device_id: "dev_2", drain: false });
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		nodes?.forEach((one) => { clearInterval(one.beat); one.socket.close(); });
		await server?.stop();
	});

	test("the chat stays where it is, says where its model continues, and goes on to its end", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/playground");
		const model = page.getByLabel("Model"), answer = page.getByRole("article", { name: "The model" }).last();
		await model.waitFor();
		const chosen = (text) => eventually(async () => (await model.locator("option:checked").textContent()) === text, `the chosen model is shown as "${text}"`);
		await chosen("words");
		const worker = nodes[0].worker();
		worker.manual = true;
		await page.getByLabel("Message").fill("one two three");
		await page.getByLabel("Message").press("Enter");
		const [request] = await eventually(() => worker.requests.size && [...worker.requests.keys()], "it is asked");
		worker.say(request, "one");
		await answer.getByText("one").waitFor();

		HeldWorker.holds = true;
		await admin.call("device.drain", { device_id: "dev_1", drain: true });
		const notice = page.getByRole("status").filter({ hasText: "draining" });
		await notice.getByText(/^GPU 1 of atelier is draining; continuing on GPU 2 of kitchen-pc\. No text is lost/).waitFor({ timeout: LONG });
		await chosen("words (moving)"); // no other model takes its place
		assert.equal(await page.getByPlaceholder("Load a model first").count(), 0, "a model is loaded");
		await answer.getByText("one").waitFor();
		await picture(page, "playground-moving");
		for (const shape of kindOf === "firefox" ? ["narrow-light"] : ["narrow-dark", "narrow-light", "wide-dark"]) { // whoever looks now sees it, too
			const other = await browser.page(shapes[shape]);
			await openDashboard(other, server, "#/playground");
			await other.getByText(/is draining; continuing on GPU 2 of kitchen-pc/).waitFor();
			await picture(other, `playground-moving-${shape}`);
			await other.context().close();
		}

		HeldWorker.holds = false;
		HeldWorker.loads.splice(0).forEach((load) => load());
		await answer.getByText("one two three").waitFor({ timeout: LONG });
		await notice.waitFor({ state: "detached" });
		await chosen("words");
		assert.deepEqual((await only("words")).stages.map((one) => one.device_id), ["dev_2"]);
		await page.context().close();
	});
});
