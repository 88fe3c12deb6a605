// Coming in: by a link, by the login screen, and everything that can be wrong with a token, each with its sentence.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client } from "../api/client.mjs";
import { desktop } from "../api/desktop.mjs";
import { eventually, launch, slow, startServer, within } from "../api/server.mjs";
import { openDashboard, picture, see, startBrowser, suite } from "./browser.mjs";

suite("coming in", () => {
	let server, client, browser;
	const make = (params) => client.call("token.create", { name: "laptop", scopes: ["observe"], ...params });
	const field = (page) => page.getByLabel("Token", { exact: true });
	const enter = async (page, token) => {
		await field(page).fill(token);
		await page.getByRole("button", { name: "Log in" }).click();
	};
	const live = (page) => page.getByRole("status", { name: "Connection: live" }).waitFor();

	before(async () => {
		server = await startServer();
		client = await Client.login(server);
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	test("without a token the login screen says which server this is and where tokens come from", async () => {
		const page = await browser.page();
		await page.goto(server.url.origin);
		await page.getByRole("form", { name: "Log in" }).waitFor();
		const { version } = await client.call("server.info");
		await see(page, `exogpu ${version}`);
		await see(page, "exogpu token create");
		await see(page, "admin.token");
		await eventually(() => field(page).evaluate((element) => element === document.activeElement), "the field has the focus");
		assert.equal(await page.getByRole("alert").count(), 0, "nothing is wrong yet");
		await picture(page, "login-wide-light");
		await enter(page, server.token);
		await live(page);
		await see(page, "No machine yet");
		await page.context().close();
	});

	test("a token is for this tab, unless it is to be kept", async () => {
		const page = await browser.page();
		await page.goto(server.url.origin);
		await enter(page, server.token);
		await live(page);
		await page.reload();
		await live(page);
		const other = await page.context().newPage();
		await other.goto(server.url.origin);
		await other.getByLabel("Keep on this device").check();
		await enter(other, server.token);
		await live(other);
		const third = await page.context().newPage();
		await third.goto(server.url.origin);
		await live(third);
		await third.getByRole("button", { name: "Log out" }).first().click();
		await third.getByRole("form", { name: "Log in" }).waitFor();
		assert.equal(await third.getByRole("alert").count(), 0, "logging out is no error");
		assert.equal(await third.evaluate(() => localStorage.length), 0, "nothing is kept");
		await enter(third, server.token);
		await live(third); // a token that was typed stays good
		await page.context().close();
	});

	const mistyped = (token) => token.slice(0, 20) + (token[20] === "A" ? "B" : "A") + token.slice(21);
	const wrong = {
		"a word": [() => "hello", /^This (is not a token|token was mistyped)/],
		"one letter exchanged": [() => mistyped(server.token), /^This (is not a token|token was mistyped)/],
		"a letter missing": [() => server.token.slice(0, -1), /^This (is not a token|token was mistyped)/],
		revoked: [
			async () => {
				const made = await make({});
				await client.call("token.revoke", { token_id: made.token_id });
				return made.token;
			},
			/^This token was revoked at \d{4}-/,
		],
		expired: [
			async () => {
				const made = await make({ expires_in_s: 1 });
				await new Promise((resolve) =>
					setTimeout(resolve, Math.max(0, Date.parse(made.expires_at) - Date.now()) + 50),
				);
				return made.token;
			},
			/^This token expired at \d{4}-/,
		],
		"without the scope observe": [async () => (await make({ scopes: ["join"] })).token, /scope|observe/],
	};
	for (const [name, [token, sentence]] of Object.entries(wrong))
		test(`a wrong token: ${name}`, async () => {
			const page = await browser.page();
			await page.goto(server.url.origin);
			await enter(page, await token());
			const said = page.getByRole("alert");
			await said.filter({ hasText: sentence }).waitFor();
			assert.match(
				(await said.textContent()).trim(),
				/^[A-Z].{15,}[.:] [A-Z].{15,}[.:]$/,
				"what is wrong, and what to do",
			);
			assert.equal(await field(page).getAttribute("aria-invalid"), "true");
			await see(page, "exogpu token create");
			if (name === "one letter exchanged") await picture(page, "login-wrong-wide-light");
			assert.equal(await page.evaluate(() => sessionStorage.length), 0, "it is not kept");
			await enter(page, server.token);
			await live(page);
			await page.context().close();
		});

	test("a wrong token in the link leads to the login screen", async () => {
		const page = await browser.page();
		await page.goto(`${server.url.origin}/#token=${mistyped(server.token)}`);
		await page.getByRole("alert").filter({ hasText: "mistyped" }).waitFor();
		assert.equal(await page.evaluate(() => location.hash), "#/overview");
		await page.context().close();
	});

	test("a login code in the link logs in, once, and leaves the address", async () => {
		const { url } = await client.call("auth.login_code");
		const page = await browser.page();
		await page.goto(url);
		await live(page);
		assert.equal(await page.evaluate(() => location.hash), "#/overview");
		const kept = await page.evaluate(() => [sessionStorage.getItem("exogpu.token"), localStorage.length]);
		assert.match(kept[0], /^exo_/);
		assert.notEqual(kept[0], server.token, "a token of its own");
		assert.equal(kept[1], 0);
		await page.reload();
		await live(page);
		await page.goto("about:blank");
		await page.goto(url); // used, but this tab is logged in
		await live(page);
		const entries = async () => (await client.call("audit.list", { action: "token.revoke", limit: 1000 })).entries;
		const before = (await entries()).length;
		await page.getByRole("button", { name: "Log out" }).first().click(); // nobody else has this token
		await page.getByRole("form", { name: "Log in" }).waitFor();
		assert.equal(await page.getByRole("alert").count(), 0, "its end is no surprise");
		let ended = [];
		await eventually(async () => (ended = await entries()).length > before, "the log tells of the end");
		const [revoked, ...more] = ended.slice(0, ended.length - before);
		assert.deepEqual([more.length, revoked.target, revoked.actor], [0, kept[0].slice(4, 14), `token:${kept[0].slice(4, 14)}`]);
		await enter(page, kept[0]);
		await page.getByRole("alert").filter({ hasText: /^This token was revoked at/ }).waitFor();
		await page.context().close();

		const other = await browser.page();
		await other.goto(url);
		await other.getByRole("alert").filter({ hasText: "This login link was used already" }).waitFor();
		await see(other, "exogpu open");
		assert.equal(await field(other).getAttribute("aria-invalid"), null, "no token was wrong");
		for (const theme of ["light", "dark"]) {
			await other.emulateMedia({ colorScheme: theme });
			for (const [name, width, height] of [["wide", 1280, 800], ["phone", 390, 844]]) {
				await other.setViewportSize({ width, height });
				await picture(other, `login-link-${name}-${theme}`);
			}
		}
		await enter(other, server.token);
		await live(other);
		await other.context().close();
	});

	test("the page that exogpu open gives the browser leads there", async () => {
		const { env, opened, folders } = desktop();
		const open = launch(["open", "--data", server.data], env);
		const page = await browser.page();
		await page.goto(`file://${await opened()}`);
		await live(page);
		assert.ok(page.url().endsWith("/#/overview"), page.url());
		assert.equal((await within(open.exited, "exogpu open ends")).code, 0);
		assert.deepEqual(folders(), []);
		await page.context().close();
	});

	test("revoking the token of an open page leads to the login screen", async () => {
		const made = await make({ name: "to be revoked" });
		const page = await browser.page();
		await openDashboard(page, server, "#/overview", made.token);
		await client.call("token.revoke", { token_id: made.token_id });
		await page.getByRole("alert").filter({ hasText: "This token was revoked or has expired." }).waitFor();
		assert.equal(await page.evaluate(() => sessionStorage.length + localStorage.length), 0, "it is forgotten");
		assert.equal(await page.getByText("No machine yet").count(), 0, "nothing of the cluster is left on the page");
		await page.context().close();
	});

	test("a token that expires while its page is open leads there as well", async () => {
		const page = await browser.page();
		await page.goto(server.url.origin);
		await page.getByRole("form", { name: "Log in" }).waitFor(); // before the token's time begins
		const made = await make({ name: "short", expires_in_s: 10 * slow }); // a busy browser takes seconds to be there
		await enter(page, made.token);
		await live(page);
		await page.getByRole("alert").filter({ hasText: "This token was revoked or has expired." }).waitFor();
		await page.context().close();
	});
});
