// The first minutes: from the login page to the first token in three clicks, over a hub that sends 100 Mbit a second; and
// what a person reads where there is no way to a hub. The model is SmolLM2 135M Instruct as it was published
// (tests/published/fetch.py); without a network the flow is driven with a file of random weights, and that is said.
// EXOGPU_CATALOG_MODEL names another file, for docs/performance.md: generate_model FILE qwen2.5-0.5b Q4_K_M --layers 17, of 392 MB.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { catalogueEntry, catalogueFile } from "../api/catalogue.mjs";
import { Client } from "../api/client.mjs";
import { modelFile } from "../api/gguf.mjs";
import { Hub } from "../api/hub.mjs";
import { eventually, startServer } from "../api/server.mjs";
import { devicesUp, goTo, hasten, openDashboard, picture, shapes, startBrowser, suite } from "./browser.mjs";

const slowly = { timeout: 300000 }; // for what a busy machine takes long for
const template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'}}{% endfor %}";
const fetched = spawnSync("python3", ["-B", fileURLToPath(new URL("../published/fetch.py", import.meta.url))], { encoding: "utf8" });
const given = process.env.EXOGPU_CATALOG_MODEL;
const real = given ? readFileSync(given) : fetched.status === 0 ? readFileSync(fetched.stdout.trim()) : null;
if (!real) console.log(`the catalogue's flow runs with random weights: ${(fetched.stderr || String(fetched.error)).trim()}`);
const qwen = { architecture: "qwen2", layers: 17, embedding: 896, feed_forward: 4864, heads: 14, kv_heads: 2, head_size: 64, vocabulary: 151936, context: 32768, tied: true };
const smollm2 = { architecture: "llama", layers: 30, embedding: 576, feed_forward: 1536, heads: 9, kv_heads: 3, head_size: 64, vocabulary: 49152, context: 8192, tied: true };

suite("the catalogue", () => {
	let server, admin, browser, hub, told = false;
	const bytes = real ?? modelFile({ megabytes: 20, context: 2048, template });
	const name = "The first one";

	before(async () => {
		hub = await Hub.start();
		hub.files.set("maker/small/first.gguf", bytes);
		// the last quarter waits until the page has told how far it is
		Object.defineProperty(hub.plan, "pace", { configurable: true, get: () => (told || hub.sent < 0.75 * bytes.length ? 100e6 / 8 : 2e5) });
		server = await startServer({ localNode: true, args: ["--hub-url", hub.url, "--ollama-url", hub.url, "--catalog", catalogueFile([
			catalogueEntry("first", { file: "first.gguf", bytes, format: "F16", ...(real ? { geometry: given ? qwen : smollm2 } : {}) }),
			catalogueEntry("huge", { file: "huge.gguf", bytes: 4e12, format: "F16" })])] });
		admin = await Client.login(server);
		await devicesUp(admin);
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		hub?.stop();
		await server?.stop();
	});

	test("three clicks from the login page to the first token", async () => {
		const page = await browser.page();
		await page.goto(server.url.origin);
		await page.getByRole("textbox", { name: "Token" }).fill(server.token);
		const began = Date.now();
		await page.getByRole("button", { name: "Log in" }).click(); // the first
		const card = page.getByRole("region", { name: "Catalogue" });
		await card.getByText(/^fits, /).first().waitFor(slowly);
		await card.getByRole("button", { name: `Load ${name}` }).click(); // the second
		const asked = Date.now();
		await card.getByText(/^downloading .* [MKG]iB of .* left/).waitFor(slowly); // bytes, and seconds that are left
		told = true;
		await picture(page, "catalog-downloading");
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "it is here", slowly.timeout);
		const here = Date.now();
		await page.waitForURL(/#\/playground\//, slowly);
		await page.locator("textarea[aria-label=Message]:enabled").waitFor(slowly);
		await page.getByLabel("Message").fill("What is a GPU?");
		const send = Date.now();
		await page.getByRole("button", { name: "Send" }).click(); // the third
		const answer = page.getByRole("article", { name: "The model" });
		await eventually(async () => (await answer.textContent()).length > 0 && page.getByText(/first token|tokens/).count(), "it answers", slowly.timeout);
		const first = Date.now();
		const s = (ms) => (ms / 1000).toFixed(1);
		console.log(`three clicks to the first token: ${s(first - began)} s, with ${s(here - asked)} s for ${(bytes.length / 1e6).toFixed(0)} MB at 100 Mbit/s, ` +
			`${s(send - here)} s until it was loaded and ${s(first - send)} s for the first token; ${given ?? (real ? "SmolLM2 135M" : "random weights")}`);
		assert.equal(model.source, "hf:maker/small/first.gguf");
		await page.context().close();
	});

	test("what is loaded has one button, which leads to the conversation", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		const card = page.getByRole("region", { name: "Catalogue" });
		await card.getByRole("link", { name: `Chat with ${name}` }).waitFor();
		await card.getByText(/^needs [\d,.]+ [TG]iB more memory/).waitFor();
		assert.ok(await card.getByRole("button", { name: "Load The huge one" }).isDisabled(), "what does not fit is not loaded");
		assert.equal(await card.getByRole("button", { name: `Load ${name}` }).count(), 0);
		await page.getByRole("region", { name: "Models" }).getByRole("link", { name: /^Chat with/ }).waitFor();
		await page.getByRole("link", { name: "first", exact: true }).last().click();
		const preview = page.getByRole("region", { name: "Placement preview" });
		await preview.getByRole("heading", { name: "Placement of another instance" }).waitFor();
		assert.doesNotMatch(await preview.getByRole("button", { name: "Load another" }).getAttribute("class"), /primary/);
		await goTo(page, "#/models");
		for (const [shape, options] of Object.entries(shapes)) {
			const shaped = await browser.page(options);
			await openDashboard(shaped, server, "#/models");
			await shaped.getByRole("region", { name: "Catalogue" }).getByText(/^fits, /).waitFor();
			await picture(shaped, `catalog-${shape}`);
			await shaped.context().close();
		}
		const { instances } = await admin.call("instance.list");
		for (const { instance_id } of instances) await admin.call("instance.delete", { instance_id });
		await card.getByRole("button", { name: `Load ${name}` }).waitFor(); // it is here, and not loaded
		await page.context().close();
	});

	test("a download goes on after the page was loaded again, and ends in the conversation", async () => {
		const { models } = await admin.call("model.list");
		for (const { model_id } of models) await eventually(() => admin.call("model.remove", { model_id }).catch(() => false), "nothing holds it");
		let held = [];
		hub.plan.store = (request, response) => { // until they are let go
			held.push(() => hub.serve(request, response, bytes));
			return true;
		};
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		const card = page.getByRole("region", { name: "Catalogue" });
		await card.getByRole("button", { name: `Load ${name}` }).click();
		await eventually(() => held.length > 0, "its bytes are asked for", slowly.timeout);
		await page.reload();
		await card.getByRole("button", { name: /^Give up/ }).waitFor();
		hub.plan = {};
		for (const go of held) go();
		await page.waitForURL(/#\/playground\//, slowly);
		await page.context().close();
	});
});

suite("the catalogue without a network", () => {
	let server, browser;

	before(async () => {
		server = await startServer({ localNode: true, args: ["--hub-url", "http://127.0.0.1:9", "--ollama-url", "http://127.0.0.1:9"] });
		await devicesUp(await Client.login(server));
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	test("the page says that the hub is not reached, why, and what to do", async () => {
		const page = await browser.page();
		await openDashboard(page, server);
		const card = page.getByRole("region", { name: "Catalogue" });
		const began = Date.now();
		await card.getByText("The server does not reach Hugging Face").waitFor();
		console.log(`without a hub: what to do is on the page after ${((Date.now() - began) / 1000).toFixed(1)} s`);
		await card.getByText(/127\.0\.0\.1/).waitFor();
		await card.getByText(/copy a \.gguf file to this machine/).waitFor();
		await card.getByText("exogpu model upload ./file.gguf").waitFor();
		await card.getByRole("button", { name: "Ask again" }).click();
		await card.getByRole("button", { name: "Ask again" }).waitFor();
		await picture(page, "catalog-no-hub");
		await page.context().close();
	});

	test("a hub that takes the question and says nothing is given up soon", async () => {
		const hub = await Hub.start();
		hub.plan.front = () => true; // no answer
		const silent = await startServer({ localNode: true, args: ["--hub-url", hub.url, "--ollama-url", hub.url] });
		await devicesUp(await Client.login(silent));
		const page = await browser.page();
		await openDashboard(page, silent);
		const began = Date.now();
		await page.getByText("The server does not reach Hugging Face").waitFor();
		console.log(`with a silent hub: what to do is on the page after ${((Date.now() - began) / 1000).toFixed(1)} s`);
		await page.getByText("exogpu model upload ./file.gguf").waitFor();
		await page.context().close();
		hub.stop();
		await silent.stop();
	});

	test("a search that reaches no hub is an error, and no empty result", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		await page.getByLabel("Where the model is").fill("llama");
		await page.getByRole("button", { name: "Search" }).click();
		await page.getByRole("alert").getByText(/could not be searched: Hugging Face: .*; Ollama: /).waitFor();
		assert.equal(await page.getByText("Nothing found").count(), 0);
		await page.context().close();
	});

	test("a download that cannot succeed says why after its first try, and can be given up", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		const card = page.getByRole("region", { name: "Catalogue" });
		const row = card.getByRole("listitem").filter({ hasText: "SmolLM2 135M Instruct" });
		await row.getByRole("button", { name: /^Load / }).click();
		await row.getByText(/127\.0\.0\.1.*It is tried again/).waitFor();
		await row.getByRole("button", { name: /^Give up/ }).click();
		await page.getByRole("dialog").getByRole("button", { name: "Give up" }).click();
		await hasten(page);
		await row.getByRole("button", { name: /^Load / }).waitFor();
		await page.context().close();
	});
});
