// A model's file from the machine of the browser: dropped on the page, chosen, gone on with after the page was loaded
// again, cancelled; and what is said of a file that is no model.
import assert from "node:assert/strict";
import { mkdirSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client } from "../api/client.mjs";
import { modelFile } from "../api/gguf.mjs";
import { eventually, startServer, temporary } from "../api/server.mjs";
import { devicesUp, hasten, openDashboard, picture, shapes, startBrowser, suite } from "./browser.mjs";

const slowly = { timeout: 120000 }; // for what a busy machine takes long for

suite("uploads", () => {
	let server, admin, browser, folder;
	const large = modelFile({ megabytes: 9 }), changed = new Date("2026-11-20T14:31:52.000Z");
	const models = async () => (await admin.call("model.list")).models;

	// As a person drags files onto the page: what the browser tells it is the same.
	const drop = async (page, name, bytes) => {
		const files = await page.evaluateHandle(([called, text]) => {
			const all = new DataTransfer(), raw = atob(text);
			all.items.add(new File([Uint8Array.from(raw, (letter) => letter.charCodeAt(0))], called));
			return all;
		}, [name, Buffer.from(bytes).toString("base64")]);
		await eventually(async () => { // the page listens a moment after it is drawn
			await page.dispatchEvent("main", "dragover", { dataTransfer: files });
			return page.getByText("Drop .gguf files to upload them to the server").isVisible();
		}, "the page takes files");
		return async () => page.dispatchEvent("main", "drop", { dataTransfer: files });
	};

	before(async () => {
		folder = temporary();
		mkdirSync(join(folder, "deep"));
		server = await startServer({ localNode: true, args: ["--model-dir", folder] });
		admin = await Client.login(server);
		await devicesUp(admin);
		writeFileSync(join(folder, "large.gguf"), large);
		utimesSync(join(folder, "large.gguf"), changed, changed);
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	test("a file that is dropped on the page becomes a model that loads", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		await page.getByRole("region", { name: "Add the first model" }).getByRole("button", { name: "Choose a file" }).waitFor();
		const go = await drop(page, "dropped.gguf", modelFile({ megabytes: 0.8 }));
		await picture(page, "upload-drop", { fullPage: false });
		await go();
		await page.getByRole("button", { name: "Load dropped" }).click(slowly);
		await page.waitForURL(/#\/playground\//, slowly); // what was loaded opens its conversation once it runs
		assert.deepEqual((await models()).map(({ name, source, state }) => [name, source, state]), [["dropped", "upload:dropped.gguf", "ready"]]);
		await page.context().close();
	});

	test("what is no model says why, and what to do", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		await (await drop(page, "page.gguf", "<html>".repeat(100)))();
		await page.getByText("This is not a model file: it does not begin with GGUF").waitFor(slowly);
		await page.getByRole("button", { name: "Remove page" }).click();
		await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
		await hasten(page);
		await (await drop(page, "weights.bin", "x"))();
		const uploads = page.getByRole("region", { name: "Uploads" });
		await uploads.getByText('"weights.bin" does not end with .gguf').waitFor();
		await uploads.getByText(/models are files in the format GGUF/i).waitFor();
		await picture(page, "upload-refused");
		await uploads.getByRole("button", { name: "Dismiss weights.bin" }).click();
		await uploads.waitFor({ state: "detached" });
		await page.context().close();
	});

	test("an upload that broke off goes on with the same file, or is cancelled", async () => {
		const begin = (file) => admin.call("model.upload_begin", { file, bytes: large.length, modified_at: changed.toISOString() });
		const { model: { model_id } } = await begin("large.gguf"), other = await begin("other.gguf");
		for (const id of [model_id, other.model.model_id])
			await admin.callWith("model.upload_write", { model_id: id, offset: 0 }, large.subarray(0, 4 << 20));
		for (const [shape, options] of Object.entries(shapes)) {
			const shaped = await browser.page(options);
			await openDashboard(shaped, server, "#/models");
			await shaped.getByRole("button", { name: "Choose large.gguf again" }).waitFor();
			await picture(shaped, `upload-${shape}`);
			await shaped.context().close();
		}
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		await page.getByText(/^uploading 4 MiB of 9 MiB$/).first().waitFor();
		const chooser = page.waitForEvent("filechooser");
		await page.getByRole("button", { name: "Choose large.gguf again" }).click();
		await (await chooser).setFiles(join(folder, "large.gguf"));
		const ready = await eventually(async () => (await models()).find((one) => one.model_id === model_id && one.state === "ready"), "it is ready", slowly.timeout);
		assert.equal(ready.file_bytes, large.length);
		await page.getByRole("button", { name: "Load large" }).waitFor(slowly);
		await page.getByRole("button", { name: "Cancel adding other" }).click();
		await page.getByRole("dialog").getByText("What has come of its file is deleted.").waitFor();
		await page.getByRole("dialog").getByRole("button", { name: "Cancel it" }).click();
		await hasten(page);
		await page.getByRole("link", { name: "other", exact: true }).waitFor({ state: "detached" });
		await page.context().close();
	});

	test("a file in a folder of the server that may be browsed is added where it lies", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		const panel = page.getByRole("region", { name: "This server's folders" });
		await panel.getByRole("button", { name: "Browse this server's folders" }).click();
		await panel.getByRole("button", { name: `Open ${folder}` }).click();
		await panel.getByRole("button", { name: "Open deep" }).click();
		await panel.getByText("There are neither folders nor .gguf files here.").waitFor();
		await panel.getByRole("button", { name: folder, exact: true }).click(); // back, by the path
		await panel.getByRole("button", { name: "Add large.gguf" }).waitFor();
		await picture(page, "browse");
		await panel.getByRole("button", { name: "Add large.gguf" }).click();
		await panel.getByText("Added", { exact: true }).waitFor(slowly);
		assert.ok((await models()).some((one) => one.source === join(folder, "large.gguf")));
		await page.context().close();
	});
});
