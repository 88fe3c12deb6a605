// The picture of the overview in the README, from this machine as it is: node tests/e2e/picture.mjs
// docs/images/overview.png
//
// A server with its own node runs for four minutes while the CPU has more and less to do, so that the sparklines have
// something to show; then the page is taken, 1440 pixels wide, in the light theme. EXOGPU_BINARY names the program.
import { mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { Client } from "../api/client.mjs";
import { startServer } from "../api/server.mjs";
import { devicesUp, loadCpu, openDashboard, startBrowser } from "./browser.mjs";

const MINUTES = 4;
const [path] = process.argv.slice(2);
if (!path) {
	console.error("usage: node tests/e2e/picture.mjs FILE.png");
	process.exit(2);
}
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const server = await startServer({ localNode: true });
await devicesUp(await Client.login(server));
const browser = await startBrowser();
const page = await browser.page({ viewport: { width: 1440, height: 900 } });
await openDashboard(page, server);
for (const end = Date.now() + MINUTES * 60000; Date.now() < end;) {
	const load = loadCpu();
	await pause(4000 + 9000 * Math.random());
	await load.stop();
	await pause(5000 + 9000 * Math.random());
}
const load = loadCpu(); // at work when the picture is taken
await pause(5000);
mkdirSync(dirname(path), { recursive: true });
await page.screenshot({ path, caret: "initial" });
await load.stop();
await browser.close();
await server.stop();
console.log(`${path}: ${statSync(path).size} bytes`);
process.exit(0);
