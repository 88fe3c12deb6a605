// The page of the server's log: lines show as they are written, are narrowed by level and words, and can be held.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, FakeNode } from "../api/client.mjs";
import { nodeRecord } from "../api/records.mjs";
import { startServer } from "../api/server.mjs";
import { goTo, openDashboard, picture, see, shapes, startBrowser, suite } from "./browser.mjs";

suite("logs", () => {
	let server, admin, browser;
	const log = (page) => page.getByRole("region", { name: "The server's log" });
	const lines = (page) => log(page).getByRole("listitem");
	const open = async (options) => {
		const page = await browser.page(options);
		await openDashboard(page, server, "#/logs");
		await log(page).waitFor();
		return page;
	};
	// Each makes a line of the log that names it.
	const say = async (name) => (await admin.call("token.create", { name, scopes: ["observe"] })).token_id;

	before(async () => {
		server = await startServer({ localNode: false });
		admin = await Client.login(server);
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	test("what the server says shows at once; by level, by words, and held", async () => {
		const before = await say("before the page");
		const page = await open();
		await lines(page).filter({ hasText: before }).waitFor(); // what was said before it was opened
		const first = await say("the first");
		await lines(page).filter({ hasText: first }).waitFor();
		assert.equal(await lines(page).filter({ hasText: before }).count(), 1);
		assert.match(await lines(page).filter({ hasText: first }).textContent(), /info/);
		await log(page).getByLabel("Level").selectOption("error");
		await see(page, "Nothing matches");
		await log(page).getByLabel("Level").selectOption("info");
		await log(page).getByLabel("Filter lines").fill("there is no such word in it");
		await see(page, "Nothing matches");
		await log(page).getByLabel("Filter lines").fill("");
		await log(page).getByRole("checkbox", { name: "Follow" }).uncheck();
		const second = await say("the second");
		await see(page, /newer lines?; follow to see/);
		assert.equal(await lines(page).filter({ hasText: second }).count(), 0);
		await log(page).getByRole("checkbox", { name: "Follow" }).check();
		await lines(page).filter({ hasText: second }).waitFor();
		await goTo(page, "#/overview"); // what was heard stays while another page is open
		await goTo(page, "#/logs");
		await lines(page).filter({ hasText: first }).waitFor();
		await page.context().close();
		for (const [name, shape] of Object.entries(shapes)) {
			const shaped = await open(shape);
			const heard = await say(`a line for ${name}`);
			await lines(shaped).filter({ hasText: heard }).waitFor();
			await picture(shaped, `logs-${name}`);
			await shaped.context().close();
		}
	});

	test("what a node warns of shows with its name, and is found by it", async () => {
		const page = await open(), node = await FakeNode.connect(server, nodeRecord({ node_id: "nod_far", name: "far away" }));
		await node.notify("node.log", { level: "warning", area: "node", text: "a clock is wrong", at: new Date().toISOString(), dropped: 2 });
		const line = lines(page).filter({ hasText: "a clock is wrong" });
		await line.waitFor();
		assert.match(await line.textContent(), /warning.*far away.*a clock is wrong.*2 lines before it/);
		await say("beside it");
		await log(page).getByLabel("Filter lines").fill("far away");
		await lines(page).filter({ hasText: "beside it" }).waitFor({ state: "detached" });
		await line.waitFor();
		await node.close();
		await page.context().close();
	});

	test("who is no admin is told where the log is", async () => {
		const { token } = await admin.call("token.create", { name: "looks only", scopes: ["observe"] });
		const page = await browser.page();
		await openDashboard(page, server, "#/logs", token);
		await see(page, "The log is for admins");
		await page.context().close();
	});
});
