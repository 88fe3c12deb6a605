// Where a token's time goes, of a model over two nodes that really computes: stages, waiting and hops in the order in
// which a step goes around, and the bottleneck in words; on the page of links, the way to the server in both directions.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { modelFile } from "../api/gguf.mjs";
import { startCluster } from "../api/remote.mjs";
import { eventually, slow, temporary } from "../api/server.mjs";
import { goTo, openDashboard, picture, see, shapes, startBrowser, suite } from "./browser.mjs";

const LAYERS = 12, LONG = 60000 * slow;

suite("breakdown", () => {
	let cluster, browser, instance;
	const told = async () => (await cluster.admin.call("instance.list")).instances.find((one) => one.instance_id === instance.instance_id);
	// Requests until it is told to stop, so that there is something to see.
	function generate() {
		const ends = new AbortController();
		const one = async () => {
			while (!ends.signal.aborted) {
				const response = await fetch(new URL("/v1/completions", cluster.server.url).href, { method: "POST", signal: ends.signal,
					headers: { authorization: `Bearer ${cluster.server.token}` },
					body: JSON.stringify({ model: "words", prompt: "a b c", max_tokens: 400, temperature: 0 }) });
				await response.text();
			}
		};
		const all = [one(), one()].map((promise) => promise.catch(() => {}));
		return async () => (ends.abort(), await Promise.all(all));
	}

	before(async () => {
		cluster = await startCluster();
		const { server, admin, remote, local } = cluster;
		process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.19 * LAYERS, context: 4096 }));
		await admin.call("model.add", { source: path });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		instance = await admin.call("instance.create", { model_id: model.model_id, context_tokens: 4096, sequences: 4, pins: [
			{ device_id: local.device_id, first_layer: 0, layer_count: 4 }, { device_id: remote.device.device_id, first_layer: 4, layer_count: 8 }] });
		await eventually(async () => (await told())?.state === "running", "it is ready", LONG);
		browser = await startBrowser({ authority: server.ca });
	});
	after(async () => {
		await browser?.close();
		await cluster?.remote.finish();
		cluster?.proxy.close();
		await cluster?.server.finish();
	});

	test("stages, hops and waiting, measured, with the bottleneck in words", async () => {
		for (const [name, shape] of Object.entries(shapes)) {
			const page = await browser.page(shape);
			await openDashboard(page, cluster.server, "#/models");
			const stop = generate();
			try {
				await eventually(async () => (await told())?.timing?.sent_bytes_per_token > 0, "its timing is told", LONG);
				const fall = page.getByRole("region", { name: "Time of a token" });
				await fall.getByText("Time of a token, measured").waitFor();
				const terms = async () => { // a hop is there once it has been measured
					const names = await fall.getByRole("term").allTextContents();
					return { names, hops: names.filter((one) => /^(to|back to) /.test(one)), stages: names.filter((one) => /^\d {2}/.test(one)) };
				};
				let found;
				await eventually(async () => (found = await terms()).hops.length === 2, () => `two hops: ${found.names.join(" | ")}`);
				assert.equal(found.stages.length, 2, found.names.join(" | "));
				assert.match(found.hops[0], /^to second, /);
				await see(page, /The time of a single hop is an estimate/);
				await eventually(async () => (await told()).timing?.bottleneck.length > 20, "the bottleneck is told in words");
				// amber is what the words are about, and nothing where nothing holds the others up
				await eventually(async () => {
					const kind = (await told()).timing?.slowest.kind;
					return kind && (await page.locator(".fall.slowest").count()) === (kind === "none" ? 0 : 1);
				}, "colours follow the words");
				await picture(page, `breakdown-${name}`);
			} finally {
				await stop();
			}
			await see(page, /^Idle\. This is how it was when it last worked, .* ago\.$/);
			assert.equal(await page.locator(".fall.slowest, .measured-fall .mini").count(), 0, "an idle model has no amber bar");
			await picture(page, `breakdown-idle-${name}`);
			await goTo(page, "#/overview");
			await see(page, /^Idle\. This is how it was when it last worked, .* ago\.$/);
			assert.equal(await page.locator(".run-time .slowest, .run-time .warm").count(), 0);
			await picture(page, `running-idle-${name}`);
			await page.context().close();
		}
	});

	test("the way to the server is measured in both directions", async () => {
		const link = await eventually(async () => (await cluster.admin.call("cluster.snapshot")).links.find((one) =>
			one.to_node_id === "server" && one.throughput_bytes_per_s && one.throughput_back_bytes_per_s), "it is measured", LONG);
		assert.equal(link.from_node_id, cluster.remote.node_id);
		const page = await browser.page();
		await openDashboard(page, cluster.server, "#/topology");
		await page.getByRole("region", { name: "Links", exact: true }).getByRole("row").filter({ hasText: "the server" }).getByRole("button").click();
		await see(page, "And back");
		await picture(page, "topology-server-link");
		await page.context().close();
	});
});
