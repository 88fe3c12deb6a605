// The distribution's Chromium on the dashboard of a real server, driven by Playwright as a person would: by role and
// by name. Whatever a page says on its console as an error, throws, or does against the content security policy is
// kept and fails the test that opened it. Pictures go to EXOGPU_PICTURES (build/e2e when nothing is said), to be
// looked at.
//
// Without Chromium the suites are skipped and say why; EXOGPU_CHROMIUM names another than those of /usr/bin. Chromium's
// headless shell, where it is installed, is the same engine without the windows of a desktop, which take half of the time.
// The same flows run in the distribution's Firefox (EXOGPU_FIREFOX names another), which Playwright drives by WebDriver BiDi:
// EXOGPU_BROWSER=firefox. EXOGPU_SHAPE=narrow-light gives a suite's pages the size of a phone where it names none itself.
import assert from "node:assert/strict";
import { X509Certificate, createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { chromium, firefox } from "playwright-core";
import { eventually, patience } from "../api/server.mjs";

// A browser connects ahead of what it asks. On a busy machine the server has given such a connection up before the browser
// comes to use it, and a page without its script stays empty.
process.env.EXOGPU_TEST_ARRIVAL_MS ??= "60000";

export const desktop = process.env.EXOGPU_CHROMIUM ?? "/usr/bin/chromium";
const shell = process.env.EXOGPU_CHROMIUM ?? "/usr/bin/chromium-headless-shell";
export const executable = existsSync(shell) ? shell : desktop;
export const pictures = process.env.EXOGPU_PICTURES ?? fileURLToPath(new URL("../../build/e2e", import.meta.url));

export const kinds = {
	chromium: { executable, missing: "apt-get install chromium, or set EXOGPU_CHROMIUM" },
	firefox: { executable: process.env.EXOGPU_FIREFOX ?? "/usr/bin/firefox-esr", missing: "apt-get install firefox-esr, or set EXOGPU_FIREFOX" },
};

// The browser that a suite runs in where it names none, and the shape of its pages.
export const kindOf = process.env.EXOGPU_BROWSER ?? "chromium";
assert.ok(kinds[kindOf], `EXOGPU_BROWSER is one of ${Object.keys(kinds).join(", ")}`);

// describe(), or where no browser is there one test that is skipped with the reason: a skipped suite is not counted.
export function suite(name, body, kind = kindOf) {
	const { executable, missing } = kinds[kind];
	if (existsSync(executable)) describe(name, body);
	else test(name, { skip: `there is no browser at ${executable}; ${missing}` }, () => {});
}

export const flags = [
	...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
	"--disable-quic",
	"--disable-background-networking",
	"--no-first-run",
];

// What gives Chromium a GPU for WebGPU where there is none: SwiftShader, which computes on the processor.
export const gpuFlags = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];

export const shapes = {
	"wide-light": { viewport: { width: 1440, height: 1000 }, colorScheme: "light" },
	"wide-dark": { viewport: { width: 1440, height: 1000 }, colorScheme: "dark" },
	"narrow-light": { viewport: { width: 390, height: 844 }, colorScheme: "light", isMobile: true, hasTouch: true },
	"narrow-dark": { viewport: { width: 390, height: 844 }, colorScheme: "dark", isMobile: true, hasTouch: true },
};

const usual = shapes[process.env.EXOGPU_SHAPE ?? "wide-light"];
assert.ok(usual, `EXOGPU_SHAPE is one of ${Object.keys(shapes).join(", ")}`);

// A browser whose pages are watched. `close` ends it and fails if a page had something to complain about.
// `authority`: a certificate (PEM) whose server is believed, as a person who installed it would have it; Firefox
// believes any then. (Playwright's own ignoreHTTPSErrors answers each connection's fault anew, and Chromium gives up after some.) `more`: flags of its own.
// Firefox takes the colours of the desktop, and knows no phone: its pages are light, and narrow ones are not touched.
export async function startBrowser({ authority, more = [], kind = kindOf } = {}) {
	const key = authority && new X509Certificate(authority).publicKey.export({ type: "spki", format: "der" });
	const believed = key ? [`--ignore-certificate-errors-spki-list=${createHash("sha256").update(key).digest("base64")}`] : [];
	const browser = kind === "firefox"
		? await firefox.launch({ channel: "moz-firefox", executablePath: kinds.firefox.executable, timeout: 2 * patience })
		: await chromium.launch({ executablePath: executable, args: [...flags, ...believed, ...more], timeout: 2 * patience });
	const faults = [];
	// For a picture Playwright puts a style into Firefox's page, which the policy refuses; Chromium watches the page's own.
	const always = kind === "firefox" ? [/style-src-elem by inline|\(style-src-elem\)/] : [];
	return {
		browser,
		faults,
		// A page of its own context; `expected` are patterns of complaints that belong to what the test does.
		async page({ expected = [], ...options } = {}) {
			const shape = { ...usual, ...options };
			if (kind === "firefox") {
				delete shape.isMobile; // it refuses it
				shape.ignoreHTTPSErrors = Boolean(authority);
			}
			const context = await browser.newContext(shape);
			await context.addInitScript(() =>
				addEventListener("securitypolicyviolation", (event) =>
					console.error(
						`policy violated: ${event.violatedDirective} by ${event.blockedURI} ${event.sourceFile ?? ""}`,
					),
				),
			);
			context.setDefaultTimeout(patience);
			const page = await context.newPage();
			const complain = (text) =>
				[...always, ...expected].some((pattern) => pattern.test(text)) || faults.push(`${page.url()}: ${text}`);
			page.on("console", (message) => message.type() === "error" && complain(message.text()));
			page.on("pageerror", (error) => complain(`thrown: ${error.stack ?? error}`));
			return page;
		},
		async close() {
			await browser.close();
			assert.deepEqual(faults, [], "no error on the console, nothing thrown, no policy violated");
		},
	};
}

// Open the dashboard as a link with a token would; at the page `hash` when the first snapshot is there.
export async function openDashboard(page, server, hash = "#/overview", token = server.token) {
	await page.goto(`${server.url.origin}/#token=${token}`);
	await page.getByRole("status", { name: "Connection: live" }).waitFor({ timeout: 2 * patience });
	if (hash !== "#/overview") await goTo(page, hash);
}

export const goTo = (page, hash) => page.evaluate((to) => (location.hash = to), hash);

// Presses keys one after the other without waiting for the page in between: a letter counts for a short time after "g".
export const press = (page, ...keys) => Promise.all(keys.map((key) => page.keyboard.press(key)));

// What a toast counts down is done now. One that has counted to its end meanwhile is no fault.
export const hasten = (page) => page.evaluate(() => document.querySelector(".toasts .acts .plain")?.click());

// What the page gives to be saved by `act`, as bytes. Firefox, driven so, tells of no download: there it is what the page has made.
export async function saved(page, act) {
	if (kindOf !== "firefox") {
		const [download] = await Promise.all([page.waitForEvent("download"), act()]);
		return readFileSync(await download.path());
	}
	await page.evaluate(() => {
		const make = URL.createObjectURL;
		URL.createObjectURL = (blob) => ((globalThis.made = blob.text()), make.call(URL, blob));
	});
	await act();
	return Buffer.from(await (await page.waitForFunction(() => globalThis.made)).jsonValue());
}

// Until text that a person reads is there; gives the element.
export async function see(page, text, options = {}) {
	const found = page.getByText(text, options).first();
	await found.waitFor();
	return found;
}

// The whole page, not only what fits the window. The window is made as tall as the page: a picture of more than the
// window would end the emulation of touch.
export async function picture(page, name, { fullPage = true } = {}) {
	mkdirSync(pictures, { recursive: true });
	const size = page.viewportSize();
	const height = fullPage ? await page.evaluate(() => document.documentElement.scrollHeight) : size.height;
	if (height > size.height) await page.setViewportSize({ width: size.width, height });
	// the caret stays as it is: hiding it would put a style into the page, against its policy
	await page.screenshot({ path: join(pictures, `${name}.png`), caret: "initial" });
	if (height > size.height) await page.setViewportSize(size);
}

// One thread of full load until it is told to stop.
export function loadCpu() {
	const worker = new Worker("for (;;);", { eval: true });
	return { stop: () => worker.terminate() };
}

// The ids of the processes that `pid` started, with their command lines.
export function childrenOf(pid) {
	return readdirSync("/proc")
		.filter((name) => /^\d+$/.test(name))
		.flatMap((name) => {
			try {
				const parent = readFileSync(`/proc/${name}/stat`, "utf8").split(") ")[1].split(" ")[1];
				if (Number(parent) !== pid) return [];
				return [{ pid: Number(name), command: readFileSync(`/proc/${name}/cmdline`, "utf8").split("\0") }];
			} catch {
				return []; // ended meanwhile
			}
		});
}

// The devices of a server with its own node, once all have been found, verified and read.
export function devicesUp(client) {
	return eventually(
		async () => {
			const { discovering, devices, telemetry } = await client.call("cluster.snapshot");
			const settled = !discovering && devices.length > 0 && devices.every((one) => one.verification.state !== "pending");
			return settled && telemetry.devices.length > 0 ? devices : null;
		},
		"the devices of this machine are verified and read",
		4 * patience,
	);
}

// The server alone is killed; its node lives on and looks for it. (stop() would wait for the node as well: it shares
// the server's output.) Gives the ids of the node's processes, to be ended with `endAll` when the test is over.
export async function crash(server) {
	const left = childrenOf(server.child.pid).map((one) => one.pid);
	const exited = once(server.child, "exit");
	server.child.kill("SIGKILL");
	await exited;
	return left;
}

export function endAll(pids) {
	for (const pid of pids) {
		try {
			process.kill(pid, "SIGKILL");
		} catch {
			// ended by itself
		}
	}
}
