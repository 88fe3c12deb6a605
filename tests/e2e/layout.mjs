// Where the named parts of a page stand, compared with what tests/e2e/layout.json has of them: left edge and width within a
// scroll bar and some rounding, and how each lies to the one before it. No pixels: fonts and their rasterisers differ
// between systems, and so does how high a text is. EXOGPU_LAYOUT=write writes the file anew.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { eventually } from "../api/server.mjs";

const MOST_OFF_PX = 24;
const file = new URL("layout.json", import.meta.url);

// Runs in the page: "NAME x width relation", in reading order.
function parts() {
	const all = [...document.querySelectorAll("nav, header, main, section[aria-label]")].filter((one) => one.getClientRects().length > 0 && !one.closest("dialog"));
	return all.map((one, i) => {
		const box = one.getBoundingClientRect(), before = all[i - 1]?.getBoundingClientRect();
		const to = !before ? "first" : getComputedStyle(one).position === "fixed" ? "fixed" : all[i - 1].contains(one) ? "in" : box.top >= before.bottom - 1 ? "below" : box.left >= before.right - 1 ? "right" : "over";
		return [one.getAttribute("aria-label") ?? one.nodeName.toLowerCase(), Math.round(box.left), Math.round(box.width), to];
	});
}

export async function compareLayout(page, name) {
	const all = JSON.parse(readFileSync(file, "utf8")), order = (list) => list.map(([part, , , to]) => `${part}: ${to}`);
	let now = await page.evaluate(parts);
	if (process.env.EXOGPU_LAYOUT === "write") {
		all[name] = now;
		const lines = Object.entries(all).map(([key, list]) => `\t${JSON.stringify(key)}: [\n${list.map((one) => `\t\t${JSON.stringify(one)}`).join(",\n")}\n\t]`);
		return writeFileSync(file, `{\n${lines.join(",\n")}\n}\n`);
	}
	const known = all[name];
	await eventually(async () => `${order((now = await page.evaluate(parts)))}` === `${order(known)}`, `the parts of ${name} are there`).catch(() =>
		assert.deepEqual(order(now), order(known), name));
	now.forEach(([part, left, width], i) => {
		const [, knownLeft, knownWidth] = known[i];
		const off = Math.max(Math.abs(left - knownLeft), Math.abs(width - knownWidth));
		assert.ok(off <= MOST_OFF_PX, `${name}, ${part}: from ${left}, ${width} wide; it was from ${knownLeft}, ${knownWidth} wide`);
	});
}
