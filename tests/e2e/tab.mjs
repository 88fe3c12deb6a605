// A tab that can be hidden behind another. Playwright keeps every page "visible", so this one is driven over the
// browser's own debugging protocol: its own Chromium, one tab with the page, one empty tab to put in front of it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import WebSocket from "ws";
import { eventually, patience, within } from "../api/server.mjs";
import { desktop, flags } from "./browser.mjs";

// {evaluate(expression), hide(), show(), freeze(), thaw(), close()}; the page at `url` has been loaded. `more`: flags.
export async function openTab(url, more = []) {
	const profile = mkdtempSync(join(tmpdir(), "exogpu-tab-"));
	const child = spawn(
		desktop, // the headless shell has no windows, and hides nothing
		["--headless=new", ...flags, ...more, "--remote-debugging-port=0", `--user-data-dir=${profile}`, "about:blank"],
		{ stdio: ["ignore", "ignore", "pipe"], detached: true }, // a group of its own, to end all of it
	);
	const exited = once(child, "exit");
	const end = () => {
		try {
			process.kill(-child.pid, "SIGKILL"); // its helper processes write to the profile as long as they live
		} catch {
			// all of them are gone
		}
		try {
			rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
		} catch (error) {
			console.log(`# ${profile} is left behind: ${error.message}`); // says nothing about the page
		}
	};
	process.on("exit", end);
	let said = "";
	child.stderr.setEncoding("utf8").on("data", (text) => (said += text));
	const [, address] = await eventually(() => /DevTools listening on (ws:\S+)/.exec(said), "Chromium listens", 2 * patience);
	const socket = new WebSocket(address);
	await within(once(socket, "open"), "Chromium answers");

	const calls = new Map();
	let lastId = 0;
	socket.on("message", (data) => {
		const { id, result, error } = JSON.parse(data);
		if (id === undefined) return;
		const { resolve, reject } = calls.get(id);
		calls.delete(id);
		if (error) reject(new Error(error.message));
		else resolve(result);
	});
	const call = (method, params = {}, sessionId) =>
		within(
			new Promise((resolve, reject) => {
				calls.set(++lastId, { resolve, reject });
				socket.send(JSON.stringify({ id: lastId, method, params, sessionId }));
			}),
			method,
		);

	const front = await call("Target.createTarget", { url: "about:blank" });
	const tab = await call("Target.createTarget", { url });
	const { sessionId } = await call("Target.attachToTarget", { targetId: tab.targetId, flatten: true });
	const evaluate = async (expression) => {
		const { result, exceptionDetails } = await call(
			"Runtime.evaluate",
			{ expression, awaitPromise: true, returnByValue: true },
			sessionId,
		);
		if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
		return result.value;
	};
	const bring = async (target, hidden) => {
		await call("Target.activateTarget", { targetId: target.targetId });
		await eventually(async () => (await evaluate("document.hidden")) === hidden, `document.hidden is ${hidden}`);
	};
	// while the page is on its way there is nothing to evaluate in, or only the blank page before it
	const loaded = "location.protocol !== 'about:' && document.readyState === 'complete'";
	await eventually(
		() => evaluate(loaded).catch(() => false),
		`${url} is loaded`,
	);
	return {
		evaluate,
		hide: () => bring(front, true),
		show: () => bring(tab, false),
		// As a browser does with a page that was hidden for long: it runs nothing, and its connections are closed.
		freeze: () => call("Page.setWebLifecycleState", { state: "frozen" }, sessionId),
		thaw: () => call("Page.setWebLifecycleState", { state: "active" }, sessionId),
		async close() {
			socket.close();
			child.kill("SIGTERM");
			await within(exited, "Chromium ends", 10000).catch(() => {});
			process.off("exit", end);
			end();
		},
	};
}
