// Several servers on one PostgreSQL, as the page shows them: beside the machines, in the banner while another one takes
// over, and with the way to another address when the page's own server is gone. With one server nothing of it is there.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { FakeNode } from "../api/client.mjs";
import { Postgres, skip } from "../api/postgres.mjs";
import { deviceRecord, nodeRecord } from "../api/records.mjs";
import { eventually, patience, slow } from "../api/server.mjs";
import { Servers } from "../api/servers.mjs";
import { goTo, openDashboard, picture, shapes, startBrowser, suite } from "./browser.mjs";

if (skip) console.log(`# skipped: ${skip}`);

suite("several servers", () => {
	const expected = [/WebSocket connection to .* failed/, /ERR_CONNECTION_|ERR_EMPTY_RESPONSE/, /status of 503/];
	let postgres, servers, leader, browser;
	const url = (server) => `http://127.0.0.1:${server.port}/`;
	const long = { timeout: 4 * patience };

	before(async () => {
		if (skip) return;
		postgres = await Postgres.start();
		// A machine that is so busy that the page has no time leaves the leader none either: it is not to be replaced for that.
		servers = new Servers(postgres.make("shown"), { env: slow > 1 ? { EXOGPU_TEST_TURN_STALE_MS: "60000" } : {} });
		leader = await servers.start();
		await servers.role(leader, "leader");
		browser = await startBrowser();
	});
	after(async () => {
		postgres?.signal("SIGCONT");
		await browser?.close();
		await servers?.end();
		await postgres?.stop();
	});

	test("they stand beside the machines, a change of the leader is told, and the page goes on", { skip }, async () => {
		const { token } = servers.known(leader);
		const node = await FakeNode.connect({ ...leader, socket: join(leader.data, "exogpu.sock") }, nodeRecord());
		await node.devices([deviceRecord()]);
		const page = await browser.page({ expected });
		const panel = page.getByRole("region", { name: "Servers" }), banner = page.getByRole("alert", { name: "Connection lost" });
		const row = (server, words) => panel.getByRole("listitem").filter({ hasText: url(server) }).filter({ hasText: words });
		const live = page.getByRole("status", { name: "Connection: live" });

		await openDashboard(page, { url: new URL(url(leader)), token });
		await page.getByRole("region", { name: "Topology" }).waitFor();
		assert.equal(await panel.count(), 0, "there is one server");
		// A second one comes, and the page that is open tells of it.
		const other = await servers.start();
		await servers.role(other, "follower");
		await row(other, "follows").waitFor(long);
		await row(leader, "leads").filter({ hasText: "this page comes from here" }).waitFor(long);

		// The page of the one that follows.
		await eventually(async () => (await other.http("/", { agent: false })).status === 200, "it passes on");
		await openDashboard(page, { url: new URL(url(other)), token });
		await row(other, "follows").filter({ hasText: "this page comes from here" }).filter({ hasText: /[\d.]+ s behind/ }).waitFor(long);
		for (const [name, shape] of Object.entries(shapes)) {
			await page.setViewportSize(shape.viewport);
			await page.emulateMedia({ colorScheme: shape.colorScheme });
			await picture(page, `servers-${name}`);
		}
		await goTo(page, "#/topology");
		await row(leader, "leads").waitFor(long);
		await picture(page, "servers-topology-narrow-dark");
		await goTo(page, "#/overview");

		// While the database stands still nobody can take over: the banner stays.
		postgres.signal("SIGSTOP");
		await servers.stop(leader, "SIGKILL");
		await banner.getByText("Another server takes over", { exact: true }).waitFor(long);
		await banner.getByText(/this page goes on by itself\. .* What you see is from \d\d:\d\d:\d\d/).waitFor();
		assert.equal(await banner.getByText("No connection to the server").count(), 0);
		for (const [name, shape] of Object.entries(shapes)) {
			await page.setViewportSize(shape.viewport);
			await page.emulateMedia({ colorScheme: shape.colorScheme });
			await picture(page, `servers-takeover-${name}`);
		}
		postgres.signal("SIGCONT");
		await servers.role(other, "leader");
		await live.waitFor(long);
		await banner.waitFor({ state: "detached" });
		await row(other, "leads").waitFor(long);
		await row(leader, "does not answer").waitFor(long);
		await panel.getByText("No other server answers: nobody takes over if this one is lost.").waitFor();
		await picture(page, "servers-alone-narrow-dark");

		// The page's own server is gone: the other address is named. It comes back at the same place.
		const again = await servers.start({ data: leader.data, port: leader.port });
		await servers.role(again, "follower");
		await row(again, "follows").waitFor(long);
		await servers.stop(other, "SIGKILL");
		await banner.getByText(/^This server does not answer for \d/).waitFor(long);
		assert.equal(await banner.getByRole("link", { name: url(again) }).getAttribute("href"), url(again));
		await picture(page, "servers-gone-narrow-dark");
		await page.setViewportSize(shapes["narrow-light"].viewport);
		await page.emulateMedia({ colorScheme: "light" });
		await picture(page, "servers-gone-narrow-light");
		await servers.role(again, "leader");
		await servers.role(await servers.start({ data: other.data, port: other.port }), "follower");
		await live.waitFor(long);
		await row(other, "follows").waitFor(long);
		await page.context().close();
	});
});
