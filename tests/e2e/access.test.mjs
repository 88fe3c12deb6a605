// The page of access, by TLS as a network sees it: tokens made, used and revoked; a machine that joins by ticket, one that
// a person lets in after comparing six digits, one that is turned away and one that is removed; a browser that joins by
// a link; certificates.
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { networkInterfaces } from "node:os";
import { after, before, test } from "node:test";
import { Client } from "../api/client.mjs";
import { eventually, launch, patience, startServer, temporary } from "../api/server.mjs";
import { goTo, gpuFlags, kindOf, openDashboard, picture, see, shapes, startBrowser, suite } from "./browser.mjs";

suite("access", () => {
	let server, browser;
	const nodes = [];
	const region = (page, name) => page.getByRole("region", { name, exact: true });
	const ask = (args) => {
		const node = launch(["node", "--join", server.url.origin, "--data", temporary(), "--backends", "cpu", ...args]);
		nodes.push(node);
		return node;
	};
	const open = async (hash = "#/access", options = {}) => {
		const page = await browser.page(options);
		await openDashboard(page, server, hash);
		return page;
	};

	before(async () => {
		server = await startServer({ listen: "0.0.0.0:0", localNode: false });
		browser = await startBrowser({ authority: server.ca, more: gpuFlags });
	});
	after(async () => {
		for (const { child } of nodes) child.kill("SIGKILL");
		await browser?.close();
		await server?.stop();
	});

	test("a token is made, shown once, works, and is revoked", async () => {
		const page = await open();
		await region(page, "Tokens").getByRole("button", { name: "Make a token" }).click();
		const dialog = page.getByRole("dialog");
		await dialog.getByLabel("Name").fill("laptop of alice");
		await dialog.getByRole("radio", { name: /^Other/ }).check();
		await dialog.getByRole("checkbox", { name: /allocate/ }).check();
		await dialog.getByLabel("Memory at most, GiB").fill("2");
		await dialog.getByLabel("Lasts").selectOption({ label: "a day" });
		await picture(page, "access-make-token", { fullPage: false });
		await dialog.getByRole("button", { name: "Make", exact: true }).click();
		const text = await (await see(page, /^exo_\w{10}_\w{43}_\w{6}$/)).textContent();
		await dialog.getByRole("button", { name: "I have it" }).click();
		await dialog.waitFor({ state: "detached" });
		await eventually(async () => (await page.getByText(text).count()) === 0, "the token is shown once"); // a closed dialog goes a moment later
		const alice = await Client.login(server, text);
		const row = page.getByRole("row", { name: /laptop of alice/ });
		await row.getByText("2.0 GiB").waitFor();
		await row.getByRole("button", { name: new RegExp(`^Copy: \\w*${text.split("_")[1]}$`) }).waitFor();
		await row.getByText(/in use, 1 session/).waitFor();
		await page.keyboard.press("/"); // filters in place
		const field = page.locator("[data-filter]:visible");
		await eventually(() => field.evaluate((one) => one === document.activeElement), "the filter has the focus");
		await page.keyboard.type("alice");
		await region(page, "Certificates").getByText("Nothing here fits the filter.").waitFor();
		assert.equal(await region(page, "Tokens").locator("tbody tr").count(), 1);
		await row.waitFor();
		await page.keyboard.press("Escape");
		await region(page, "Certificates").getByRole("row").nth(1).waitFor();
		await row.getByRole("button", { name: /^Revoke/ }).click();
		await page.getByRole("dialog").getByText("1 open session ends").waitFor();
		await page.getByRole("dialog").getByRole("button", { name: "Revoke", exact: true }).click();
		assert.equal((await alice.closed).code, 4410);
		await row.waitFor({ state: "detached" });
		await page.getByRole("button", { name: "Show 1 token that ended" }).click();
		await row.getByText("revoked").waitFor();
		await page.context().close();
	});

	test("the login page names the file with the first token on the server's own machine only", async (t) => {
		const other = Object.values(networkInterfaces()).flat().find((one) => one.family === "IPv4" && !one.internal)?.address;
		if (!other) return t.skip("this machine has no address but loopback");
		const page = await browser.page();
		for (const [host, times] of [["localhost", 1], [other, 0]]) {
			await page.goto(`https://${host}:${server.port}`);
			await page.getByRole("button", { name: /^Copy: exogpu token create / }).waitFor();
			assert.equal(await page.getByRole("button", { name: /^Copy: cat .*admin\.token$/ }).count(), times, host);
			assert.equal(await page.getByText("the one given with --data").count(), times, host);
		}
		await page.context().close();
	});

	test("what is not allowed is said beside the button", async () => {
		const page = await open();
		await region(page, "Tokens").getByRole("button", { name: "Make a token" }).click();
		const dialog = page.getByRole("dialog");
		await dialog.getByRole("radio", { name: /^Other/ }).check();
		await dialog.getByRole("checkbox", { name: /observe/ }).uncheck();
		assert.ok(await dialog.getByRole("button", { name: "Make", exact: true }).isDisabled(), "a token of no scope cannot be asked for");
		await page.context().close();
	});

	test("a token for an app: lines for curl and openai, with the address that others reach, and a QR code; lending is a ticket", async () => {
		const page = await open();
		await region(page, "Tokens").getByRole("button", { name: "Make a token" }).click();
		const dialog = page.getByRole("dialog");
		assert.ok(await dialog.getByRole("radio", { name: /^App or chat/ }).isChecked());
		await dialog.getByLabel("Name").fill("an app");
		await picture(page, "access-kinds-wide-light", { fullPage: false });
		await dialog.getByRole("button", { name: "Make", exact: true }).click();
		const token = await (await see(page, /^exo_\w{10}_\w{43}_\w{6}$/)).textContent();
		const line = await dialog.getByLabel("curl", { exact: true }).textContent();
		assert.match(line, new RegExp(`^curl --cacert exogpu-authority.pem https://\\S+:${server.port}/v1/chat/completions .*${token}`));
		await dialog.getByLabel("Python, openai", { exact: true }).waitFor();
		await dialog.getByRole("button", { name: "Show a QR code for a phone" }).click();
		await dialog.getByRole("img", { name: /QR code/ }).waitFor();
		await picture(page, "access-made-wide-light", { fullPage: false });
		assert.deepEqual((await Client.login(server, token)).session.scopes, ["infer"]);
		await dialog.getByRole("button", { name: "I have it" }).click();
		await region(page, "Tokens").getByRole("button", { name: "Make a token" }).click();
		await dialog.getByRole("radio", { name: /^Lend a device/ }).check();
		await dialog.getByRole("button", { name: "Make a ticket" }).waitFor();
		assert.equal(await dialog.getByLabel("Name").count(), 0);
		await page.context().close();
		const phone = await open("#/access", shapes["narrow-dark"]);
		await region(phone, "Tokens").getByRole("button", { name: "Make a token" }).click();
		await picture(phone, "access-kinds-narrow-dark", { fullPage: false });
		await phone.context().close();
	});

	test("a machine joins by the line that the page shows", async () => {
		const page = await open();
		const panel = region(page, "Join another machine");
		await panel.getByRole("button", { name: new RegExp(`^Copy: exogpu node --join https://\\S+:${server.port}$`) }).waitFor();
		await panel.getByRole("button", { name: "Make a ticket" }).click();
		const line = await panel.getByRole("status").locator("code").textContent();
		const ticket = /--ticket (exojoin_\S+)/.exec(line)?.[1];
		assert.ok(ticket, line);
		// by loopback the page knows only from what the server hears of itself where others reach it
		assert.match(line, new RegExp(`^exogpu node --join https://\\S+:${server.port} `));
		await panel.getByText("Waiting for it …").waitFor();
		await picture(page, "access-waiting-wide-light", { fullPage: false });
		ask(["--ticket", ticket, "--name", "garage"]);
		await panel.getByText("garage has joined.").waitFor();
		await region(page, "Certificates").getByRole("link", { name: "garage" }).waitFor();
		await region(page, "Certificates").getByRole("row", { name: "garage" }).getByRole("button", { name: /^Copy: (\w\w:){31}\w\w$/ }).waitFor();
		await goTo(page, "#/overview");
		await region(page, "garage").waitFor();
		await page.context().close();
	});

	test("one without a ticket shows the same six digits here and there, and is let in", async () => {
		const page = await open();
		const node = ask(["--name", "attic", "--accept-code"]);
		const panel = page.getByRole("region", { name: "Machines that ask to join" });
		const code = await panel.locator("output").filter({ hasText: /\d{3} \d{3}/ }).textContent();
		await eventually(() => (node.output.stdout + node.output.stderr).replace(/\s/g, "").includes(code.replace(" ", "")), `the node shows ${code}`);
		for (const [name, shape] of Object.entries(shapes)) {
			const shaped = await open("#/access", shape);
			await see(shaped, code);
			await picture(shaped, `access-${name}`);
			await shaped.context().close();
		}
		await goTo(page, "#/overview");
		await see(page, "attic asks to join");
		await goTo(page, "#/access");
		await panel.getByRole("button", { name: "Let attic in" }).click();
		await page.getByRole("dialog").getByText(`Does attic show ${code}?`).waitFor();
		await page.getByRole("dialog").getByRole("button", { name: "The same: let it in" }).click();
		await panel.waitFor({ state: "detached" });
		await region(page, "Certificates").getByRole("link", { name: "attic" }).waitFor();
		await page.context().close();
	});

	test("one that is turned away is told so", async () => {
		const page = await open();
		const node = ask(["--name", "stranger", "--accept-code"]);
		await page.getByRole("button", { name: "Turn stranger away" }).click();
		await page.getByRole("dialog").getByRole("button", { name: "Turn away", exact: true }).click();
		const { code } = await node.exited;
		assert.equal(code, 1);
		await page.getByText("stranger", { exact: true }).waitFor({ state: "detached" });
		await page.context().close();
	});

	test("a machine that is removed is cut off, and leaves the page", async () => {
		const page = await open("#/overview");
		await region(page, "garage").getByRole("link", { name: "garage" }).first().click();
		await page.getByRole("button", { name: "Remove garage" }).click();
		await page.getByRole("dialog").getByText("Its certificate is revoked").waitFor();
		await page.getByRole("dialog").getByRole("button", { name: "Remove", exact: true }).click();
		await see(page, "No such node");
		const { code } = await nodes[0].exited;
		assert.equal(code, 1, "the node ends");
		await page.context().close();
	});

	test("a browser joins by the link that the page shows, and is cut off when the link is revoked", { skip: kindOf === "firefox" && "Firefox ESR has no WebGPU" }, async () => {
		const page = await open();
		await region(page, "Phones and browsers").getByText("No link is out, and no browser has joined.").waitFor();
		await region(page, "Tokens").getByRole("button", { name: "Make a token" }).click();
		const dialog = page.getByRole("dialog", { name: "Make a token" });
		await dialog.getByRole("radio", { name: /^Lend a device/ }).check();
		await dialog.getByRole("radio", { name: /^A phone or a browser/ }).check();
		await dialog.getByLabel("name", { exact: true }).fill("phones");
		await dialog.getByLabel("for how many devices").selectOption({ label: "2 devices" });
		await dialog.getByRole("button", { name: "Make a link" }).click();
		const link = await dialog.getByText(/\/lend#token=/).first().textContent();
		assert.match(link, new RegExp(`^https://\\S+:${server.port}/lend#token=exolend_\\w{61}$`));
		assert.notEqual(new URL(link).hostname, "127.0.0.1", "another device reaches it");
		await dialog.getByRole("img", { name: /QR code/ }).waitFor();
		const shown = await dialog.locator(".lend-trust .code").textContent();
		assert.equal(shown, new X509Certificate(server.ca).fingerprint256, "the authority's fingerprint");
		await dialog.getByText("Waiting for up to 2 devices …").waitFor();
		await picture(page, "access-lend-wide-light", { fullPage: false });

		const lending = await browser.page();
		await lending.goto(link);
		await lending.getByLabel("Name").fill("my phone");
		await lending.getByRole("button", { name: "Yes, lend it" }).click();
		await dialog.getByText("my phone has joined. Waiting for up to 1 more …").waitFor({ timeout: 2 * patience });
		await dialog.getByRole("button", { name: "Close" }).click();
		const row = region(page, "Phones and browsers").getByRole("listitem").filter({ hasText: "phones" });
		await row.getByText("1 of 2 uses left").waitFor();
		await row.getByText("made by admin.token;").waitFor();
		await row.getByRole("link", { name: "my phone" }).waitFor();
		const phone = await open("#/access", shapes["narrow-dark"]);
		await region(phone, "Phones and browsers").getByRole("link", { name: "my phone" }).waitFor();
		await region(phone, "Phones and browsers").getByRole("button", { name: "Make a link" }).click();
		await region(phone, "Phones and browsers").getByRole("img", { name: /QR code/ }).waitFor();
		assert.ok(await phone.evaluate("document.documentElement.scrollWidth <= innerWidth"), "a phone shows all of it");
		await picture(phone, "access-lend-narrow-dark");
		await phone.context().close();
		await row.getByRole("button", { name: "Revoke the link phones" }).click();
		const sure = page.getByRole("dialog", { name: "Revoke the link phones?" });
		await sure.getByText("1 device leaves at once: my phone.").waitFor();
		await sure.getByRole("button", { name: "Revoke", exact: true }).click();
		await row.waitFor({ state: "detached" });
		await see(lending, "Its address was revoked.");
		await lending.context().close();
		await page.context().close();
	});

	test("without the scope admin the page says what it takes", async () => {
		const admin = await Client.login(server);
		const { token } = await admin.call("token.create", { name: "watcher", scopes: ["observe"] });
		const page = await browser.page();
		await openDashboard(page, server, "#/access", token);
		await page.getByRole("heading", { name: "This page is for admins" }).waitFor();
		await goTo(page, "#/audit");
		await page.getByRole("heading", { name: "The audit log is for admins" }).waitFor();
		await page.context().close();
	});
});
