// The picture of the overview in the README, from this machine as it is: node tests/e2e/picture.mjs
// docs/images/overview.png
//
// A server with its own node has a small model, of random weights, loaded and asked again and again for four minutes, with
// pauses, so that the sparklines have something to show; then the page is taken, 1440 pixels wide, in the light theme.
// EXOGPU_BINARY names the program.
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Client } from "../api/client.mjs";
import { modelFile } from "../api/gguf.mjs";
import { eventually, startServer, temporary } from "../api/server.mjs";
import { devicesUp, openDashboard, startBrowser } from "./browser.mjs";

const MINUTES = 4;
const [path] = process.argv.slice(2);
if (!path) {
	console.error("usage: node tests/e2e/picture.mjs FILE.png");
	process.exit(2);
}
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const server = await startServer({ localNode: true });
const admin = await Client.login(server);
await devicesUp(admin);
const file = join(temporary(), "example.gguf");
writeFileSync(file, modelFile({ megabytes: 8, context: 4096 }));
await admin.call("model.add", { source: file });
const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is there", 60000);
await admin.call("instance.create", { model_id: model.model_id });
await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "it is loaded", 60000);
// Answers, one after the other, until it is stopped.
function ask() {
	const ends = new AbortController();
	const asking = (async () => {
		while (!ends.signal.aborted) {
			const response = await fetch(new URL("/v1/completions", server.url), { method: "POST", signal: ends.signal,
				headers: { authorization: `Bearer ${server.token}` },
				body: JSON.stringify({ model: "example", prompt: "a b c", max_tokens: 1000, temperature: 0 }) });
			await response.text();
		}
	})().catch(() => {});
	return { stop: () => (ends.abort(), asking) };
}
const browser = await startBrowser();
const page = await browser.page({ viewport: { width: 1440, height: 900 } });
await openDashboard(page, server);
for (const end = Date.now() + MINUTES * 60000; Date.now() < end;) {
	const one = ask();
	await pause(4000 + 9000 * Math.random());
	await one.stop();
	await pause(5000 + 9000 * Math.random());
}
const last = ask(); // at work when the picture is taken
await pause(5000);
mkdirSync(dirname(path), { recursive: true });
await page.screenshot({ path, caret: "initial" });
await last.stop();
await browser.close();
await server.stop();
console.log(`${path}: ${statSync(path).size} bytes`);
process.exit(0);
