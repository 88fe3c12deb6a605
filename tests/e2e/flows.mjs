// The main jobs done by keyboard alone, as a screen reader tells them: written once, for Chromium and for Firefox, at a
// desk and on a phone. After every step the focus is where the work goes on, with a role and a name, and what has changed
// is said. The machines are played, so that an answer lasts until the person stops it.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client } from "../api/client.mjs";
import { ModelWorker } from "../api/generating.mjs";
import { modelFile } from "../api/gguf.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "../api/records.mjs";
import { eventually, freePort, patience, startServer, temporary } from "../api/server.mjs";
import { WorkerNode } from "../api/workers.mjs";
import { crash, goTo, openDashboard, shapes, startBrowser, suite } from "./browser.mjs";
import { compareLayout } from "./layout.mjs";
import { Person, disorder } from "./person.mjs";

const GIB = 1 << 30;

export const byKeyboard = (kind) =>
	suite(`by keyboard, ${kind}`, () => {
		let server, admin, browser, node, device, beat, used = GIB / 4;

		before(async () => {
			server = await startServer({ listen: `127.0.0.1:${await freePort()}` });
			admin = await Client.login(server);
			await admin.call("alert.rule_set", { rule_id: "memory_full.device", for_s: 0 });
			node = await WorkerNode.start(server, { Worker: ModelWorker, record: nodeRecord({ name: "atelier" }),
				devices: [1, 2].map((n) => deviceRecord({ device_id: `dev_${n}`, hardware_key: `uuid:${n}`, uuid: null, name: `GPU ${n}`,
					memory_pool: `uuid:${n}`, memory_bytes: GIB, memory_bandwidth_bytes_per_s: 4e10 })) });
			const tell = () => node.telemetry([1, 2].map((n) => deviceReadings({ device_id: `dev_${n}`, memory_total_bytes: GIB,
				memory_used_bytes: n === 2 ? used : GIB / 16 })), nodeReadings());
			beat = setInterval(tell, 1000);
			tell();
			const path = join(temporary(), "words.gguf");
			writeFileSync(path, modelFile({ megabytes: 2, context: 2048 }));
			await admin.call("model.add", { source: path });
			await eventually(async () => (await admin.call("model.list")).models[0]?.state === "ready", "the model is ready", 2 * patience);
			device = (await admin.call("cluster.snapshot")).devices[0].device_id;
			browser = await startBrowser({ kind });
		});
		after(async () => {
			clearInterval(beat);
			await browser?.close();
			node?.socket.close();
			await server?.stop();
		});

		test("the parts of a page stand where they stood", async () => {
			for (const shape of ["wide-light", "narrow-dark"]) {
				const page = await browser.page(shapes[shape]);
				await openDashboard(page, server);
				for (const [hash, part] of [["overview", "Devices"], [`devices/${device}`, "Identity"], ["models", "Models"], ["access", "Certificates"]]) {
					await goTo(page, `#/${hash}`);
					await page.getByRole("region", { name: part, exact: true }).waitFor();
					await eventually(async () => (await page.locator(".skeleton:visible").count()) === 0, `${hash} is drawn`);
					await compareLayout(page, `${hash.split("/")[0]}${hash.includes("/") ? " one" : ""}, ${shape.split("-")[0]}`);
				}
				await page.context().close();
			}
		});

		for (const [size, shape] of [["desk", shapes["wide-light"]], ["phone", shapes["narrow-dark"]]])
			test(`the main jobs, ${size}`, async () => {
				const page = await browser.page({ ...shape, expected: [/ERR_SOCKET_NOT_CONNECTED/] }), person = await Person.at(page);
				// log in
				await person.open(server.url.origin, /./);
				await person.isAt(/^textbox "Token"/, "at the login");
				await person.type("exo_wrong");
				await person.press("Enter");
				await person.hears(/token/i);
				await person.isAt(/^textbox "Token"/, "after a wrong token");
				await person.press("Control+a");
				await person.type(server.token);
				await person.press("Enter");
				await person.isAt('main "Overview"', "after the login");

				// load
				await person.find("models", /Models/);
				await person.isAt('main "Models"');
				await person.enter('button "Load words"');
				await person.isAt('main "Playground"', "once it is loaded");

				// chat
				await person.tabTo(/^textbox "Message"/);
				await person.type("one two three");
				await person.press("Enter");
				await person.hears(/one two three.*tokens/);
				await person.isAt(/^textbox "Message"/, "after the answer");

				// stop
				const worker = node.worker();
				worker.manual = true;
				await person.type("four five");
				await person.press("Enter");
				const [request] = await eventually(() => worker.requests.size && [...worker.requests.keys()], "it is asked");
				worker.say(request, "four");
				await page.getByText("four", { exact: true }).waitFor();
				await person.enter('button "Stop"');
				await person.hears(/four.*stopped/);
				await person.isAt(/^textbox "Message"/, "after Stop");
				worker.manual = false;

				// look at a device
				await person.find("GPU 2", /GPU 2/);
				await person.isAt('main "GPU 2"');

				// drain, undone by key and by the button
				for (const byKey of [true, false]) {
					await person.enter('button "Drain"');
					await person.isAt('button "Cancel"', "in the dialog");
					await person.enter('button "Drain"');
					await person.hears(/^GPU 2 is draining/);
					await person.isAt('button "Return to service"', "after the dialog");
					if (byKey) await person.press("Control+z");
					else await person.enter(/^button "Undo: GPU 2/);
					await person.hears(/^Returning GPU 2 to service/);
					await page.getByRole("button", { name: "Drain", exact: true }).waitFor();
					await page.locator(".toasts").waitFor({ state: "detached" }); // with the button that had the focus
					await person.isAt(byKey ? 'button "Drain"' : /^(link|button) "./, "after the undo");
				}

				// a token
				await person.find("access", /Access/);
				await person.isAt('main "Access"');
				await person.enter('button "Make a token"');
				await person.tabTo(/^(textbox|combobox) "Name"/);
				await person.type(`by key ${size}`);
				await person.enter('button "Make"');
				await page.getByRole("heading", { name: "The token" }).waitFor();
				await person.isAt(/./, "beside the token");
				await person.enter('button "I have it"');
				await person.isAt('button "Make a token"', "after the dialog");

				// end its session
				await person.enter(new RegExp(`^button "Revoke by key ${size}, `));
				await person.enter('button "Revoke"');
				await page.getByRole("row", { name: new RegExp(`by key ${size}`) }).waitFor({ state: "detached" });
				await person.isAt(/./, "after its row has gone");

				// an alert
				await person.find("alerts", /Alerts/);
				await person.isAt('main "Alerts"');
				used = GIB;
				await person.hears(/memory of GPU 2 on atelier is nearly full/i);
				await person.enter(/^button "I have seen: .*GPU 2/);
				await page.getByText("by admin.token").first().waitFor();
				await person.isAt(/./, "after it was seen");
				used = GIB / 4;
				await page.getByText("Nothing needs attention").waitFor();

				// the search is left
				const before = await person.focus();
				await person.press("Control+k");
				await person.isAt(/^combobox "Find machines/, "after Ctrl-K");
				await person.press("Escape");
				await person.isAt(before, "after the search");
				await person.press("Control+k");
				await person.isAt(/^combobox "Find machines/, "after Ctrl-K");
				await page.evaluate(() => { // Ctrl-K again before the page has heard that it was closed
					document.querySelector("dialog.find").close();
					dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true }));
				});
				await person.isAt(/^combobox "Find machines/, "after Ctrl-K again");
				await person.press("Escape");
				await person.isAt(before, "after the second search");

				// stop the model
				await person.find("models", /Models/);
				await person.enter('button "Stop words"');
				await person.hears(/^words stops in 5 seconds/);
				await person.enter(/^button "Stop now"/);
				await page.getByRole("button", { name: "Load words" }).waitFor();
				await page.locator(".toasts").waitFor({ state: "detached" });
				await person.isAt(/./, "after it was stopped");

				// log out
				await person.enter('button "Log out"');
				await person.isAt(/^textbox "Token"/, "after the log-out");
				await page.context().close();
			});

		test("Tab goes through each page as it is read", async () => {
			const page = await browser.page(), wrong = {};
			await openDashboard(page, server);
			for (const [hash, title, last] of [["overview", "Overview", /./], ["devices", "Devices", /GPU 1/], [`devices/${device}`, "GPU 1", "Readings over time"],
				["models", "Models", "Add a model"], ["playground", "Playground", "Message"], ["access", "Access", "Certificates"], ["alerts", "Alerts", "Channels"]]) {
				await goTo(page, `#/${hash}`);
				await page.getByRole("heading", { level: 1, name: title }).waitFor();
				await page.getByText(last).or(page.getByLabel(last)).first().waitFor();
				const found = await disorder(page);
				assert.ok(found.count > 10, `${hash}: ${found.count} stops`);
				if (found.wrong.length) wrong[hash] = found.wrong;
			}
			assert.deepEqual(wrong, {});
			await page.context().close();
		});

		test("a connection that is lost is said once, and that it is back", async () => {
			const page = await browser.page({ expected: [/WebSocket|can.t establish a connection|ERR_CONNECTION/i] }), person = await Person.at(page);
			await openDashboard(page, server);
			await person.find("access", /Access/);
			await person.isAt('main "Access"');
			await crash(server);
			await person.hears(/^No connection to the server/);
			const seconds = () => page.getByRole("alert", { name: "Connection lost" }).textContent();
			const first = await seconds();
			await eventually(async () => (await seconds()) !== first, "the time goes on");
			await person.isAt('main "Access"', "without a connection");
			assert.deepEqual(await page.evaluate(() => globalThis.spoken.filter((one) => /No connection/.test(one))), [], "said once");
			server = await startServer({ data: server.data, listen: `127.0.0.1:${server.port}` });
			await person.hears("connected");
			await page.context().close();
		});
	}, kind);
