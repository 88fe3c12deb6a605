// The page of the audit log when witnesses are asked: one that agrees, and one that holds another log, which stands on the
// page of everybody until it is settled.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client, FakeNode } from "../api/client.mjs";
import { forge, makeKey } from "../api/cosign.mjs";
import { nodeRecord } from "../api/records.mjs";
import { eventually, launch, patience, startServer, temporary, within } from "../api/server.mjs";
import { openDashboard, picture, see, shapes, startBrowser, suite } from "./browser.mjs";

suite("audit, forked", () => {
	let server, admin, browser, node;
	const data = temporary(), lent = temporary();
	const whole = (page) => page.getByRole("region", { name: "The log as a whole" });
	const start = (args = []) => launch(["node", ...args, "--data", lent, "--backends", "cpu", "--name", "attic"]);

	before(async () => {
		server = await startServer({ data, listen: "0.0.0.0:0", localNode: false });
		admin = await Client.login(server);
		const { ticket } = await admin.call("node.ticket", { uses: 1 });
		node = start(["--join", `127.0.0.1:${server.port}`, "--ticket", ticket]);
		await eventually(async () => (await admin.call("audit.head")).witnesses.length === 1, "the node has signed", 2 * patience);
		browser = await startBrowser({ authority: readFileSync(join(data, "tls", "authority.pem")) });
	});
	after(async () => {
		await browser?.close();
		node?.child.kill("SIGTERM");
		await node?.exited;
		await server?.stop();
	});

	test("witnesses are asked, agree, and one that does not stands on the page", async () => {
		const page = await browser.page();
		await openDashboard(page, server, "#/audit");
		await whole(page).getByRole("button", { name: "Check all of it" }).click();
		await see(page, /^All \d+ entries verified/);
		await whole(page).getByLabel("What witnesses hold").getByText("agrees").waitFor();
		assert.equal(await whole(page).getByRole("alert").count(), 0);
		await picture(page, "audit-witnessed");

		const { nodes } = await admin.call("cluster.snapshot"), { node_id } = nodes.find((one) => one.name === "attic");
		node.child.kill("SIGTERM");
		await within(node.exited, "the node ends");
		const pem = readFileSync(join(lent, "node", "tls", "node.pem"), "utf8"), key = makeKey(`exogpu-witness-${node_id}`);
		const fake = await FakeNode.connect(server, undefined, { unix: false, cert: pem, key: pem });
		await fake.call("node.register", { protocol: 1, node: nodeRecord({ node_id, name: "attic" }) });
		await whole(page).getByRole("button", { name: "Check all of it" }).click();
		const request = await eventually(() => fake.requests.find((one) => one.method === "audit.held"), "it is asked what it holds");
		const forged = forge((await admin.call("audit.head")).checkpoint);
		fake.reply(request, { size: Number(forged.split("\n")[1]), key: key.text, note: `${forged}${key.sign(forged)}\n` });
		await see(page, "The log failed verification: forked");
		await whole(page).getByLabel("What witnesses hold").getByText("holds another log").waitFor();
		await whole(page).getByRole("alert").getByText(/^Node attic holds another audit log than this one/).waitFor();
		await picture(page, "audit-forked");

		for (const shape of ["narrow-dark", "wide-light"]) { // whoever comes later sees it at once
			const other = await browser.page(shapes[shape]);
			await openDashboard(other, server, "#/audit");
			await whole(other).getByRole("alert").getByText(/^Node attic holds another/).waitFor();
			await picture(other, `audit-forked-${shape}`);
			await other.context().close();
		}
		await fake.close();
		node = start();
		await whole(page).getByRole("alert").waitFor({ state: "detached", timeout: 2 * patience });
		await page.context().close();
	});
});
