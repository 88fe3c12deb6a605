// Models and Playground, over a real model file on this machine's CPU: it is added, looked at before it is loaded,
// loaded, talked to, and stopped. Its weights are nothing in particular, so what it says is nothing in particular, too.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client } from "../api/client.mjs";
import { modelFile } from "../api/gguf.mjs";
import { eventually, patience, startServer, temporary } from "../api/server.mjs";
import { cutLayers } from "../published/cut_layers.mjs";
import { devicesUp, goTo, hasten, kindOf, openDashboard, picture, saved, see, shapes, startBrowser, suite } from "./browser.mjs";

const template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'}}{% endfor %}";

suite("models", () => {
	let server, admin, browser, folder;
	const panel = (page, name) => page.getByRole("region", { name });

	// A conversation of one question and its answer: other versions of both, what is kept of them, and the way out and in again.
	async function branches(page) {
		const answers = page.getByRole("article", { name: "The model" }), questions = page.getByRole("article", { name: "You" });
		const versions = page.getByRole("group", { name: "Versions" });
		const told = (of, text) => of.getByText(text, { exact: true }).waitFor();
		await answers.getByRole("button", { name: "Again" }).click();
		await told(answers.getByRole("status"), "Version 2 / 2");
		await page.getByLabel("Files to attach").setInputFiles({ name: "sum.py", mimeType: "text/x-python", buffer: Buffer.from("def f(a): return a # the sum\n") });
		await page.getByRole("button", { name: "Leave out sum.py" }).click();
		await page.getByLabel("Files to attach").setInputFiles({ name: "x.png", mimeType: "image/png", buffer: Buffer.from([0x89, 0x50, 0xff]) });
		await page.getByRole("alert").getByText("x.png is not text in UTF-8.").waitFor();
		await questions.getByRole("button", { name: "Edit" }).click();
		assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Edited text");
		await page.keyboard.press("Escape");
		await questions.getByRole("button", { name: "Edit" }).click();
		await page.getByLabel("Edited text").fill("Say something else:\n```python\ndef f(a): return a # the sum\n```");
		await page.getByRole("button", { name: "Send" }).first().click();
		await questions.getByText("Say something else").waitFor();
		await page.getByText(/first token after/).waitFor();
		await told(questions.getByRole("status"), "Version 2 / 2");
		await page.getByRole("group", { name: "Code, python" }).waitFor();
		await answers.getByRole("button", { name: "Edit" }).click();
		await page.getByLabel("Edited text").fill("# What it is\n\nA **sum**, as `f` has it:\n\n1. one\n   - inner\n2. two\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```c\nint x = 1; // one\n```\n\nso $x^2$, see https://example.org/.\n\n<b>not HTML</b>");
		await page.getByRole("button", { name: "Save" }).click();
		await answers.getByRole("heading", { name: "What it is" }).waitFor();
		await answers.getByRole("table").waitFor();
		assert.equal(await answers.locator("b").count(), 0, "nothing of an answer is HTML");
		assert.equal(await answers.getByRole("link").getAttribute("rel"), "noopener noreferrer");
		for (const [name, shape] of Object.entries(shapes)) {
			await page.emulateMedia({ colorScheme: shape.colorScheme });
			await page.setViewportSize(shape.viewport);
			await picture(page, `playground-branches-${name}`, { fullPage: false });
			const { scroll, width } = await page.evaluate(() => ({ scroll: document.documentElement.scrollWidth, width: document.documentElement.clientWidth }));
			assert.ok(scroll <= width, `it scrolls sideways: ${scroll} in ${width}`);
		}
		await page.emulateMedia({ colorScheme: "light" });
		await page.setViewportSize(shapes["wide-light"].viewport);
		await questions.getByRole("button", { name: "Earlier version" }).press("Enter"); // by keyboard, too
		await told(answers.getByRole("status"), "Version 2 / 2"); // the newest answer to the first question
		await page.reload();
		await told(answers.getByRole("status"), "Version 2 / 2");
		await told(questions.getByRole("status"), "Version 1 / 2");
		assert.equal(await versions.count(), 2);

		const exported = await saved(page, () => page.getByRole("button", { name: "Export" }).click());
		const file = { name: "exogpu-conversations.json", mimeType: "application/json", buffer: exported };
		const other = await browser.page();
		await openDashboard(other, server, "#/playground");
		const choose = other.getByLabel("File to import");
		await choose.setInputFiles({ name: "x.json", mimeType: "application/json", buffer: Buffer.from('{"conversations":[{"id":"x","turns":"<script>"}]}') });
		await other.getByRole("alert").getByText("Conversation 1 of 1 in this file is not as the Playground writes it").waitFor();
		assert.equal(await other.getByRole("article").count(), 0);
		await choose.setInputFiles(file);
		await see(other, "1 conversation imported.");
		assert.equal(await other.getByRole("alert").count(), 0);
		await told(other.getByRole("article", { name: "You" }).getByRole("status"), "Version 1 / 2");
		await other.getByRole("button", { name: "Later version" }).first().click();
		await other.getByRole("heading", { name: "What it is" }).waitFor();
		await choose.setInputFiles(file);
		await see(other, "1 conversation imported."); // what was changed here stays, beside that of the file
		await choose.setInputFiles(file);
		await see(other, "1 conversation of the file is here already.");
		await longOne(other);
		await other.context().close();
	}

	// 10,000 turns: the page is there soon, and a letter that is typed as well.
	async function longOne(page) {
		const turns = Array.from({ length: 10_000 }, (_, i) => ({ role: i % 2 ? "assistant" : "user", text: `turn ${i} with *some* words in it` }));
		await page.evaluate((text) => localStorage.setItem("exogpu.chats", text), JSON.stringify([{ id: "long", at: Date.now(), system: "", turns }]));
		await page.reload();
		await page.getByText("turn 9999 with").waitFor();
		assert.equal(await page.getByRole("article").count(), 60);
		const ms = await page.evaluate(async () => {
			const field = document.querySelector("textarea[aria-label=Message]"), began = performance.now();
			field.value = "x";
			field.dispatchEvent(new InputEvent("input", { bubbles: true }));
			await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
			return performance.now() - began;
		});
		console.log(`a letter in a conversation of 10,000 turns: drawn after ${ms.toFixed(0)} ms`);
		await page.getByRole("button", { name: /^Show earlier ones, 9,940 are hidden$/ }).click();
		assert.equal(await page.getByRole("article").count(), 120);
	}

	before(async () => {
		// A token takes 5 ms at least, so that an answer of thousands is under way still when a busy page comes to stop it.
		server = await startServer({ localNode: true, env: { EXOGPU_TEST_PACE: "1:5" } });
		admin = await Client.login(server);
		await devicesUp(admin);
		folder = temporary();
		writeFileSync(join(folder, "small.gguf"), modelFile({ megabytes: 0.8 }));
		writeFileSync(join(folder, "other.gguf"), modelFile({ megabytes: 0.8 }));
		writeFileSync(join(folder, "page.gguf"), "<html>".repeat(100));
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	test("nothing there: what a model is, where one comes from, and the playground says what it waits for", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		await page.getByRole("heading", { name: "Add the first model" }).waitFor();
		await see(page, "exogpu model add");
		await goTo(page, "#/playground");
		await page.getByRole("heading", { name: "No model is loaded" }).waitFor();
		await page.context().close();
	});

	test("/ filters the models in place, and Enter opens the only one that is left", async () => {
		const page = await browser.page();
		await admin.call("model.add", { source: join(folder, "other.gguf") });
		await openDashboard(page, server, "#/models");
		const models = page.getByRole("region", { name: "Models", exact: true }), field = page.locator("[data-filter]:visible");
		await models.getByRole("link", { name: "other", exact: true }).waitFor();
		const type = async (text) => {
			await page.keyboard.press("/");
			await eventually(() => field.evaluate((one) => one === document.activeElement), "the filter has the focus");
			await page.keyboard.type(text);
		};
		await type("no such model");
		await models.getByText("Nothing here fits the filter.").waitFor();
		assert.equal(await page.evaluate(() => location.hash), "#/models");
		await page.keyboard.press("Escape");
		await models.getByRole("link", { name: "other", exact: true }).waitFor();
		await type("other.gguf");
		await models.getByRole("link", { name: "other", exact: true }).waitFor();
		await page.keyboard.press("Enter");
		await page.getByRole("heading", { level: 1, name: "other" }).waitFor();
		await page.context().close();
		const { models: [{ model_id }] } = await admin.call("model.list");
		await admin.call("model.remove", { model_id });
	});

	test("a file is added by its path; one that is no model says why", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		const field = page.getByLabel("Where the model is");
		for (const name of ["page", "small"]) {
			await field.fill(join(folder, `${name}.gguf`));
			await page.getByRole("button", { name: "Add", exact: true }).click();
			await page.getByRole("link", { name, exact: true }).waitFor();
		}
		await page.getByText(/llama, .* parameters, F32/).waitFor();
		await page.getByText(/GGUF/).first().waitFor();
		await page.getByRole("button", { name: "Remove page" }).click();
		await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
		await hasten(page);
		await page.getByRole("link", { name: "page", exact: true }).waitFor({ state: "detached" });
		await page.context().close();
	});

	test("where it would go is shown before it is loaded; then it is loaded, talked to, and stopped", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/models");
		await panel(page, "Models").getByRole("link", { name: "small", exact: true }).click();
		const preview = panel(page, "Placement preview");
		await preview.getByText(/holds all of it/).waitFor();
		await preview.getByText(/^other use and reserve \d/).waitFor(); // what is kept free is no other model's
		await preview.getByLabel("Optimise for").selectOption("throughput"); // then what counts is what all get together
		await preview.getByText(/for \d+ requests together, .+ for one alone/).waitFor();
		await preview.getByLabel("Optimise for").selectOption("latency");
		await preview.getByText(/for one request, .+ for \d+ together/).waitFor();
		await preview.getByText(/^(proven to be the best|good, not proven)/).waitFor(); // no longer the first answer
		assert.deepEqual((await admin.call("instance.list")).instances, [], "a preview loads nothing");
		await picture(page, "models-preview");
		await preview.getByLabel("Chat template").selectOption("chatml"); // its file has none
		await preview.getByRole("button", { name: "Load" }).click();
		const running = panel(page, /small, running/);
		await running.getByText("running", { exact: true }).waitFor({ timeout: 2 * patience });
		await running.getByText("chatml").waitFor();
		await running.getByRole("link", { name: "Chat" }).click();
		// With a seed it says the same every time, and does not end before it has to.
		for (const [name, value] of [["Max tokens", "12"], ["Seed", "1"]]) {
			await page.getByLabel(name).fill(value);
			await page.getByLabel(name).press("Tab");
		}
		await page.getByLabel("Files to attach").setInputFiles({ name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("hi\n") });
		await page.getByRole("button", { name: "Leave out a.txt" }).waitFor();
		await page.getByLabel("Message").fill("Say something.");
		await page.getByLabel("Message").press("Enter");
		await page.getByText(/12 tokens/).waitFor();
		await page.getByRole("article", { name: "You" }).getByText("a.txt:").waitFor(); // it went with the question, as text
		await page.getByRole("article", { name: "You" }).getByText("hi", { exact: true }).waitFor();
		await page.getByText(/first token after/).waitFor();
		await see(page, "stopped at the token limit");
		await picture(page, "playground");
		await page.reload();
		await page.getByRole("article", { name: "You" }).getByText("Say something.").waitFor();
		const { entries } = await admin.call("audit.list", { action: "infer.", limit: 5 });
		assert.ok(entries.length > 0, "a request is an entry of the audit log");
		assert.doesNotMatch(JSON.stringify(entries), /Say something/, "and its text is in none");
		await branches(page);
		for (const [name, shape] of Object.entries(shapes)) {
			const shaped = await browser.page(shape);
			await openDashboard(shaped, server, "#/models");
			await panel(shaped, /small, running/).waitFor();
			await picture(shaped, `models-${name}`);
			await shaped.context().close();
		}
		await goTo(page, "#/models");
		const stop = page.getByRole("button", { name: "Stop small" });
		await stop.waitFor();
		for (const byKey of [false, true]) { // within the page, so that a slow machine does not use up the time to undo
			const said = await page.evaluate(async (byKey) => {
				document.querySelector("[aria-label='Stop small']").click();
				const undo = () => document.querySelector(".toasts [aria-label='Undo: small stops']");
				while (!undo()) await new Promise(requestAnimationFrame);
				const text = undo().closest("li").innerText;
				if (byKey) dispatchEvent(new KeyboardEvent("keydown", { key: "z", ctrlKey: true }));
				else undo().click();
				return text;
			}, byKey);
			assert.match(said, /^small stops in \d s\s+Its memory is freed then\. Nobody is using it now\./);
			await page.locator(".toasts").waitFor({ state: "detached" });
			await page.getByRole("status").getByText("Undone: small stops.").waitFor({ state: "attached" });
			assert.equal((await admin.call("instance.list")).instances[0].state, "running");
		}
		await stop.click();
		await page.goto("about:blank"); // who leaves does not change their mind
		await eventually(async () => !(await admin.call("instance.list")).instances.length, "it has stopped");
		await page.context().close();
	});

	test("a model that is not loaded is loaded from the playground, and answers there", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/playground");
		await page.getByRole("heading", { name: "small" }).waitFor();
		await page.getByText("small is not loaded.").waitFor();
		assert.equal(await page.getByLabel("Message").isDisabled(), true);
		await picture(page, "playground-load");
		await page.getByRole("button", { name: "Load", exact: true }).click();
		await page.getByText("small is not loaded.").waitFor({ state: "detached", timeout: 2 * patience });
		await page.locator("textarea[aria-label=Message]:enabled").waitFor({ timeout: 2 * patience });
		await page.getByLabel("Max tokens").fill("5");
		await page.getByLabel("Max tokens").press("Tab");
		await page.getByLabel("Message").fill("Say something.");
		await page.getByLabel("Message").press("Enter");
		await page.getByText(/first token after/).waitFor({ timeout: 2 * patience });
		const { instances } = await admin.call("instance.list");
		assert.deepEqual(instances.map((one) => [one.model_name, one.state]), [["small", "running"]]);
		await admin.call("instance.delete", { instance_id: instances[0].instance_id });
		await page.getByText("small is not loaded.").waitFor();
		await page.context().close();
	});

	test("a system prompt and every setting go with a question, and an answer is stopped in the middle", { skip: kindOf === "firefox" && "Firefox, driven so, does not tell what is sent" }, async () => {
		const page = await browser.page(), bodies = [], most = 3500;
		writeFileSync(join(folder, "long.gguf"), modelFile({ megabytes: 19, context: 4096, template }));
		await admin.call("model.add", { source: join(folder, "long.gguf") });
		const model = await eventually(async () => (await admin.call("model.list")).models
			.find((one) => one.name === "long" && one.state === "ready"), "the model is there");
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id });
		await eventually(async () => (await admin.call("instance.list")).instances.every((one) => one.state === "running"), "it is ready", 2 * patience);
		page.on("request", (request) => request.url().endsWith("/v1/chat/completions") && bodies.push(request.postDataJSON()));
		await openDashboard(page, server, "#/playground");
		// What it has said it says on, then: it does not come upon its end by chance before it is stopped.
		for (const [name, value] of [["System prompt", "Be brief."], ["Max tokens", `${most}`], ["Temperature", "0"], ["Presence penalty", "0.5"],
			["Frequency penalty", "-0.5"], ["Seed", "3"], ["Stop sequences", "neverinhere\nnor this"]]) {
			await page.getByLabel(name, { exact: true }).fill(value);
			await page.getByLabel(name, { exact: true }).press("Tab");
		}
		await picture(page, "playground-settings");
		await page.getByLabel("Message").fill("Say a lot.");
		await page.getByRole("button", { name: "Send" }).click();
		const answer = page.getByRole("article", { name: "The model" });
		await eventually(async () => (await answer.textContent()).length > 40, "it says something", 2 * patience);
		await page.getByRole("button", { name: "Stop", exact: true }).click();
		await answer.getByText("stopped").waitFor();
		await page.getByRole("button", { name: "Again" }).waitFor();
		await answer.getByText(/^about [\d,]+ tokens$/).waitFor(); // by what has come, since nobody else tells
		await answer.getByText(/^about [\d.,]+ tokens per s$/).waitFor();
		const said = await answer.textContent();
		const entry = await eventually(async () => (await admin.call("audit.list", { action: "infer.chat", limit: 5 })).entries
			.find((one) => one.detail.reason === "cancelled"), "the model has stopped, too");
		assert.ok(entry.detail.generated_tokens < most, `${entry.detail.generated_tokens} of ${most} tokens`);
		const [{ messages, ...settings }] = bodies;
		assert.deepEqual(messages, [{ role: "system", content: "Be brief." }, { role: "user", content: "Say a lot." }]);
		assert.deepEqual([settings.presence_penalty, settings.frequency_penalty, settings.stop, settings.seed, settings.max_completion_tokens],
			[0.5, -0.5, ["neverinhere", "nor this"], 3, most]);
		await page.getByRole("button", { name: "Keep this prompt" }).click();
		await page.reload();
		assert.equal(await page.getByLabel("System prompt", { exact: true }).inputValue(), "Be brief.", "it is the conversation's");
		await page.getByRole("button", { name: "New" }).click();
		await page.getByLabel("Kept system prompts").selectOption("Be brief.");
		assert.equal(await page.getByLabel("System prompt", { exact: true }).inputValue(), "Be brief.");
		await page.getByRole("button", { name: /^Say a lot\./ }).click();
		assert.equal((await answer.textContent()).slice(0, 40), said.slice(0, 40), "what had come stays");
		const small = (await admin.call("model.list")).models.find((one) => one.name === "small");
		const other = await admin.call("instance.create", { model_id: small.model_id });
		await goTo(page, `#/playground/${instance_id}`);
		await page.locator(`select[aria-label=Model] option[value=${other.instance_id}]`).waitFor({ state: "attached", timeout: 2 * patience });
		await admin.call("instance.delete", { instance_id });
		await page.getByText("long is not loaded.").waitFor(); // and nothing is asked of the other instead
		assert.equal(await page.getByLabel("Message").isDisabled(), true);
		await admin.call("instance.delete", { instance_id: other.instance_id });
		await eventually(() => admin.call("model.remove", { model_id: model.model_id }).catch(() => false), "nothing holds it any more");
		await page.context().close();
	});

	test("of a draft model the preview says where it lies, that its memory is counted, and that its speed is not", async () => {
		const whole = modelFile({ megabytes: 12, context: 512 });
		const ids = [];
		for (const [name, bytes] of [["large", whole], ["draft", cutLayers(whole, 2)]]) {
			writeFileSync(join(folder, `${name}.gguf`), bytes);
			ids.push((await admin.call("model.add", { source: join(folder, `${name}.gguf`), name })).model_id);
		}
		await eventually(async () => (await admin.call("model.list")).models.filter((one) => ids.includes(one.model_id) && one.state === "ready").length === 2, "both are there");
		const page = await browser.page();
		await openDashboard(page, server, `#/models/${ids[0]}`);
		const preview = panel(page, "Placement preview"), weights = async () => Number(/^weights ([\d.]+)/.exec(await preview.getByText(/^weights \d/).textContent())[1]);
		await preview.getByText(/holds all of it/).waitFor();
		const alone = await weights();
		assert.equal(await preview.getByRole("note").count(), 0);
		await preview.getByLabel("Draft model").selectOption("draft");
		await preview.getByRole("note").getByText(/^draft lies on .+, beside the last layers\. The memory below includes it\. The speed is predicted without it/).waitFor();
		await eventually(async () => (await weights()) > alone, "its weights are in the figures");
		await page.context().close();
		for (const model_id of ids) await admin.call("model.remove", { model_id });
	});

	test("who may only observe sees models and loads none; who may infer may ask", async () => {
		const tokenOf = async (scopes) => (await admin.call("token.create", { name: scopes.join(" "), scopes })).token;
		const page = await browser.page();
		await openDashboard(page, { ...server, token: await tokenOf(["observe"]) }, "#/models");
		await panel(page, "Models").getByRole("link", { name: "small", exact: true }).waitFor();
		assert.equal(await page.getByLabel("Where the model is").count(), 0);
		assert.equal(await page.getByRole("button", { name: "Remove small" }).count(), 0);
		await page.getByRole("link", { name: "Preview" }).click();
		assert.ok(await panel(page, "Placement preview").getByRole("button", { name: "Load" }).isDisabled());
		await goTo(page, "#/playground");
		await page.getByRole("heading", { name: "This token cannot use models" }).waitFor();
		await page.getByRole("button", { name: "Copy: exogpu token create --name NAME --scopes observe,infer" }).waitFor();
		await page.context().close();
		const other = await browser.page();
		await openDashboard(other, { ...server, token: await tokenOf(["observe", "infer"]) }, "#/playground");
		await other.getByRole("heading", { name: "No model is loaded" }).waitFor();
		await other.context().close();
	});

	test("a token for models only lands in the Playground: it loads nothing, sees no page besides, and talks", async () => {
		const { token } = await admin.call("token.create", { name: "guest", scopes: ["infer"] });
		const { nodes, devices } = await admin.call("cluster.snapshot");
		const small = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.name === "small" && one.state === "ready"), "small is there");
		const page = await browser.page();
		await openDashboard(page, server, "#/devices", token);
		await page.getByRole("heading", { name: "small (not loaded)" }).waitFor();
		await see(page, "small is not loaded. Ask an admin to load it.");
		assert.ok(await page.getByLabel("Message").isDisabled());
		assert.deepEqual([await page.getByRole("navigation").count(), await page.getByRole("link").count()], [0, 0]);
		await page.keyboard.press("?");
		const { instance_id } = await admin.call("instance.create", { model_id: small.model_id });
		await page.getByRole("heading", { name: "small", exact: true }).waitFor();
		for (const [name, value] of [["Max tokens", "12"], ["Seed", "1"]]) {
			await page.getByLabel(name).fill(value);
			await page.getByLabel(name).press("Tab");
		}
		await page.getByLabel("Message").fill("Say something.");
		await page.getByLabel("Message").press("Enter");
		await page.getByText(/first token after/).waitFor({ timeout: 2 * patience });
		assert.equal(await page.getByRole("dialog").count(), 0, "? shows no keys of pages that are not there");
		const words = `${await page.title()} ${await page.locator("body").innerText()}`;
		for (const name of [...nodes.flatMap((one) => [one.name, one.host_name]), ...devices.map((one) => one.name)])
			assert.ok(!name || !words.includes(name), `${name} is on the page`);
		const guest = await Client.login(server, token), keeps = (of) => of.getByLabel("Keep conversations on the server");
		const kept = async () => (await guest.call("conversation.list")).conversations.map((one) => [one.version, one.deleted]);
		assert.equal(await keeps(page).isChecked(), false);
		assert.deepEqual(await kept(), []);
		await keeps(page).check();
		await see(page, "The server has all of them.");
		assert.deepEqual(await kept(), [[1, false]]);
		await picture(page, "guest-wide-light");
		await keeps(page).uncheck();
		await see(page, "The server still keeps 1 conversation of this token");
		await admin.call("instance.delete", { instance_id });
		await see(page, "small is not loaded. Ask an admin to load it.");
		await page.getByRole("button", { name: "Log out" }).click();
		await page.getByRole("button", { name: "Log in" }).waitFor();
		await page.context().close();
		const other = await browser.page(shapes["narrow-dark"]);
		await openDashboard(other, server, "#/overview", token);
		await see(other, "small is not loaded. Ask an admin to load it.");
		await keeps(other).check(); // another browser with the same token
		await panel(other, "Conversations").getByRole("button", { name: /^Say something\./ }).click();
		await other.getByText(/first token after/).waitFor();
		const third = await browser.page(); // which sees at once what is changed in another
		await openDashboard(third, server, "#/overview", token);
		await keeps(third).check();
		await panel(third, "Conversations").getByRole("button", { name: /^Say something\./ }).click();
		await other.getByRole("article", { name: "The model" }).getByRole("button", { name: "Edit" }).click();
		await other.getByLabel("Edited text").fill("It was changed elsewhere.");
		await other.getByRole("button", { name: "Save" }).click();
		await see(third, "It was changed elsewhere.");
		await third.getByRole("article", { name: "The model" }).getByText("Version 2 / 2", { exact: true }).waitFor();
		await third.context().close();
		await picture(other, "guest-narrow-dark");
		await other.getByRole("button", { name: "Delete Say something." }).click();
		await see(other, "None yet.");
		assert.deepEqual(await kept(), [[3, true]]);
		await guest.close();
		await other.context().close();
	});
});
