// Somebody who has a keyboard and a screen reader, and nothing else: keys go to what has the focus, which is looked for by
// Tab; what a live region says is kept as it would be read out.
import assert from "node:assert/strict";
import { eventually, patience } from "../api/server.mjs";

const MOST_STOPS = 200;

// Runs in the page, before its own script. What is said: `spoken`, oldest first. A region speaks of what changes in it, not
// of what it has when it comes; only an alert does that. While a region is busy it says nothing.
function listen() {
	const spoken = (globalThis.spoken = []);
	const element = (node) => (node.nodeType === 1 ? node : node.parentElement);
	const selector = "[aria-live], [role=status], [role=alert], [role=log], output";
	const regionOf = (node) => {
		const region = element(node)?.closest(selector);
		return region && region.getAttribute("aria-live") !== "off" && !region.closest("[aria-busy=true]") && region.checkVisibility() ? region : null;
	};
	const textOf = (node) => {
		if (node.nodeType === 3) return node.data;
		if (node.nodeType !== 1 || node.matches("[aria-hidden=true], [hidden]")) return "";
		return [...node.childNodes].map(textOf).join(node.nodeName === "SPAN" ? "" : " ");
	};
	const say = (node) => {
		const text = element(node)?.closest("[aria-hidden=true]") ? "" : textOf(node).replace(/\s+/g, " ").trim();
		if (text) spoken.push(text);
	};
	new MutationObserver((changes) => {
		for (const { target, addedNodes } of changes) {
			const region = regionOf(target);
			if (region?.matches("[role=status], [role=alert], output")) say(region); // they are read as a whole
			else if (region) addedNodes.length ? addedNodes.forEach(say) : say(target);
			else for (const node of addedNodes) {
				if (node.nodeType !== 1) continue;
				const alerts = [...(node.matches("[role=alert]") ? [node] : []), ...node.querySelectorAll("[role=alert]")];
				alerts.filter((one) => one.checkVisibility()).forEach(say);
			}
		}
	}).observe(document, { subtree: true, childList: true, characterData: true });
}

// Runs in the page, before its own script: toasts do not count down, since a busy machine would use up their time.
function holdToasts() {
	const every = globalThis.setInterval;
	globalThis.setInterval = (run, ms, ...rest) => every(ms === 250 ? () => {} : run, ms, ...rest);
}

// Runs in the page: role and name of what has the focus, as far as a look at it tells. "" where nothing has it.
function atFocus() {
	const one = document.activeElement;
	if (!one || one === document.body) return "";
	const roles = { A: "link", BUTTON: "button", TEXTAREA: "textbox", SELECT: "combobox", SUMMARY: "summary", MAIN: "main", SECTION: "region" };
	const types = { checkbox: "checkbox", radio: "radio", number: "spinbutton", search: "searchbox", range: "slider" };
	const role = one.getAttribute("role") ?? (one.matches("input") ? (types[one.type] ?? "textbox") : (roles[one.nodeName] ?? one.nodeName.toLowerCase()));
	const texts = [...(one.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent), one.getAttribute("aria-label"),
		[...(one.labels ?? [])].map((label) => label.textContent).join(" "), role === "main" ? "" : one.textContent, one.title, one.placeholder];
	const name = texts.find((text) => text?.trim())?.replace(/\s+/g, " ").trim();
	return name ? `${role} "${name}"` : role;
}

// Runs in the page. Behind its last stop a browser goes on in its own windows; from there Firefox, driven so, does not come
// back. So the first stop gets the focus where the last has it: true.
function beginAgain() {
	const selector = "a[href], button, input, select, textarea, summary, [tabindex='0']";
	const all = [...(document.querySelector("dialog[open]") ?? document).querySelectorAll(selector)].filter((one) => !one.matches(":disabled") && one.getClientRects().length > 0);
	if (document.activeElement !== all.at(-1)) return false;
	all[0].focus();
	return true;
}

export class Person {
	static async at(page) {
		await page.context().addInitScript(listen);
		await page.context().addInitScript(holdToasts);
		return new Person(page);
	}

	constructor(page) {
		this.page = page;
	}

	// The address, typed by a person: loaded again where a file of it did not come. (Chromium opens connections ahead; one that
	// a busy server closed meanwhile fails with ERR_SOCKET_NOT_CONNECTED, and is not tried again.)
	async open(address, heading) {
		let failed = false;
		const note = () => (failed = true);
		this.page.on("requestfailed", note);
		await this.page.goto(address);
		await eventually(async () => {
			if (failed) {
				failed = false;
				await this.page.reload();
			}
			return this.page.getByRole("heading", { level: 1, name: heading }).isVisible();
		}, `${address} is drawn`);
		this.page.off("requestfailed", note);
	}

	// What has the focus as a screen reader names it: `button "Load small"`. "" where nothing has it.
	async focus() {
		const focused = this.page.locator(":focus");
		if ((await focused.count()) === 0) return "";
		const tree = await focused.ariaSnapshot({ depth: 1, timeout: 2000 }).catch(() => ""); // it may move on meanwhile
		const { role, name } = /^- '?(?<role>\w+)(?: "(?<name>(?:[^"\\]|\\.)*)")?/.exec(tree)?.groups ?? {};
		if (role === "text") return `summary "${tree.slice("- text: ".length).split("\n")[0]}"`;
		return role ? `${role}${name === undefined ? "" : ` "${name}"`}` : "";
	}

	// The focus gets to what is named so, by itself. Never is it nowhere for long.
	async isAt(what, why = "") {
		let now;
		const told = () => `${why} the focus is at ${what}; it is at ${now || "nothing"}`;
		await eventually(async () => matches((now = await this.page.evaluate(atFocus)), what), told);
		await eventually(async () => matches((now = await this.focus()), what), told); // by the names that browsers compute
	}

	// Tab until it is at what is named so, if it is not there yet; from the end of the page on from its start, as often as it
	// takes until the page has drawn it. Every stop on the way has a name.
	async tabTo(what) {
		const stops = new Set(), began = performance.now();
		let now = await this.page.evaluate(atFocus);
		for (let rounds = 0, steps = 0; !matches(now, what); now = await this.page.evaluate(atFocus)) {
			if (now) stops.add(now);
			if ((rounds > 1 && performance.now() - began > patience) || steps > MOST_STOPS) assert.fail(`${what} is not reached by Tab, but ${[...stops].join(", ")}`);
			if (await this.page.evaluate(beginAgain)) [rounds, steps] = [rounds + 1, 0];
			else {
				await this.page.keyboard.press("Tab");
				steps++;
			}
		}
		assert.deepEqual([...stops].filter((one) => !one.includes(' "')), [], `on the way to ${what}: without a name`);
		return this.isAt(what, "after Tab");
	}

	async press(...keys) {
		for (const key of keys) await this.page.keyboard.press(key);
	}

	type(text) {
		return this.page.keyboard.type(text);
	}

	async enter(what) {
		await this.tabTo(what);
		await this.press("Enter");
	}

	// Ctrl-K, some letters, Enter.
	async find(text, option) {
		await this.press("Control+k");
		await this.isAt(/^combobox "Find machines/, "after Ctrl-K");
		await this.type(text);
		await this.page.getByRole("option", { name: option, selected: true }).waitFor();
		await this.press("Enter");
	}

	// A live region has said so since the last time that something was heard.
	async hears(text) {
		let all;
		await eventually(async () => {
			all = await this.page.evaluate(() => globalThis.spoken);
			return all.some((one) => matches(one, text));
		}, () => `${text} is said; said was ${JSON.stringify(all)}`);
		await this.page.evaluate(() => void (globalThis.spoken.length = 0));
	}
}

const matches = (text, what) => (what instanceof RegExp ? what.test(text) : text === what);

// What Tab reaches on a page, from its first stop to its last: {count, wrong}, wrong being what comes before the one before
// it, in the document or, in the same column, on the screen.
export async function disorder(page) {
	await page.evaluate(() => {
		globalThis.stops ??= (addEventListener("focusin", ({ target }) => globalThis.stops.push(target)), []);
		globalThis.stops.length = 0;
		document.querySelector("a[href], button").focus();
	});
	for (let i = 0; i < MOST_STOPS && !(await page.evaluate(beginAgain)); i++) await page.keyboard.press("Tab");
	return page.evaluate(() => {
		const end = globalThis.stops.indexOf(globalThis.stops[0], 1); // where it begins anew
		const all = end < 0 ? globalThis.stops : globalThis.stops.slice(0, end);
		const name = (one) => one.outerHTML.slice(0, 90);
		const floats = (one) => (one ? /fixed|sticky/.test(getComputedStyle(one).position) || floats(one.parentElement) : false);
		return { count: all.length, wrong: all.flatMap((one, i) => {
			const before = all[i - 1];
			if (!before || !one.isConnected || !before.isConnected) return [];
			if (!(before.compareDocumentPosition(one) & 4)) return [`${name(one)} comes before ${name(before)} in the document`];
			if (floats(one) || floats(before)) return [];
			const [a, b] = [before.getBoundingClientRect(), one.getBoundingClientRect()];
			return b.bottom <= a.top + 1 && b.left < a.right && b.width > 1 ? [`${name(one)} stands above ${name(before)}`] : [];
		}) };
	});
}
