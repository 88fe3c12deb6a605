// What pages look like: compared with pictures that are kept, at a desk and on a phone, so that a broken style sheet is seen; and
// a page after a lost connection with what it was before.
import { after, before, test } from "node:test";
import { freePort, patience, startServer } from "../api/server.mjs";
import { crash, goTo, kindOf, openDashboard, shapes, startBrowser, suite } from "./browser.mjs";
import { comparePicture, still, take } from "./pictures/compare.mjs";

suite("pictures", () => {
	let server, browser;

	before(async () => {
		server = await startServer({ listen: `127.0.0.1:${await freePort()}`, args: ["--hub-url", "http://127.0.0.1:9", "--ollama-url", "http://127.0.0.1:9"] });
		browser = await startBrowser();
	});
	after(async () => {
		await browser?.close();
		await server?.stop();
	});

	// What differs from run to run or from machine to machine: ages, names, addresses, numbers of what wants attention, lists.
	const hidden = [".live .ago", ".page-foot", ".rail-foot", ".brand small", ".count", ".login h1", ".login dl", ".token-list", ".cert-list", ".join"];

	for (const [size, shape] of [["desk", shapes["wide-light"]], ["phone", shapes["narrow-dark"]]])
		test(`pages look as they are kept, ${size}`, async () => {
			const page = await browser.page(shape);
			await page.goto(server.url.origin);
			await page.getByRole("textbox", { name: "Token" }).waitFor();
			await still(page, hidden);
			await comparePicture(page, `login-${size}-${kindOf}`);
			await openDashboard(page, server, "#/playground");
			await page.getByRole("heading", { name: "No model is loaded" }).waitFor();
			await still(page, hidden);
			await comparePicture(page, `playground-${size}-${kindOf}`);
			await page.keyboard.press("?");
			await page.getByRole("dialog", { name: "Keys" }).waitFor();
			await comparePicture(page, `keys-${size}-${kindOf}`);
			await page.keyboard.press("Escape");
			await goTo(page, "#/access");
			await page.getByRole("button", { name: "Make a token" }).click();
			await page.getByRole("dialog").getByRole("button", { name: "Make", exact: true }).waitFor();
			await comparePicture(page, `token-${size}-${kindOf}`);
			await page.context().close();
		});

	test("after a lost connection a page looks as before", async () => {
		const page = await browser.page({ expected: [/WebSocket connection to .* failed/, /ERR_CONNECTION_(REFUSED|RESET)/, /can.t establish a connection|connection to ws:.* was interrupted/] });
		await openDashboard(page, server, "#/playground");
		await page.getByRole("heading", { name: "No model is loaded" }).waitFor();
		await still(page, hidden);
		const known = await take(page, null, "before");
		await crash(server);
		await page.getByRole("alert", { name: "Connection lost" }).waitFor();
		server = await startServer({ data: server.data, listen: `127.0.0.1:${server.port}` });
		await page.getByRole("alert", { name: "Connection lost" }).waitFor({ state: "detached", timeout: 4 * patience });
		await take(page, known, `reconnected-${kindOf}`);
		await page.context().close();
	});
});
