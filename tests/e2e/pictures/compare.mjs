// Pictures of a page that are compared, with what is kept in this folder or with another of the same run. So that they are equal
// on every system, the page is drawn with a font whose letters are all the same box, and without what moves by itself; it is
// compared at a quarter of its size, where it does not matter how an edge is smoothed. EXOGPU_REFERENCE=write keeps it anew.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "../../api/server.mjs";
import { pictures } from "../browser.mjs";
import { boxFont } from "./box_font.mjs";

const font = boxFont().toString("base64");
// A point is another where one of its colours is off by more than this, of 255.
const MOST_OFF = 24;
// Of a thousand points so many may be others.
const MOST_OTHERS = 2;

// `hidden`: selectors of what differs from run to run.
export async function still(page, hidden = []) {
	await page.evaluate(async ([font, hidden]) => {
		const face = new FontFace("Box", Uint8Array.from(atob(font), (letter) => letter.charCodeAt(0)).buffer);
		document.fonts.add(await face.load());
		for (const name of ["--font", "--font-code"]) document.documentElement.style.setProperty(name, "Box");
		const sheet = new CSSStyleSheet();
		sheet.replaceSync(`*, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent !important; scrollbar-width: none }
			${hidden.join(", ") || "none"} { display: none !important }`);
		document.adoptedStyleSheets.push(sheet);
	}, [font, hidden]);
}

// Runs in the page: the picture at a quarter of its size, and how many of a thousand points differ from `known`.
async function look([png, known, mostOff]) {
	const draw = async (text, scale) => {
		const image = await createImageBitmap(new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))]));
		const canvas = Object.assign(document.createElement("canvas"), { width: Math.round(image.width * scale), height: Math.round(image.height * scale) });
		const context = canvas.getContext("2d", { willReadFrequently: true });
		context.imageSmoothingQuality = "high";
		context.drawImage(image, 0, 0, canvas.width, canvas.height);
		return { canvas, points: context.getImageData(0, 0, canvas.width, canvas.height).data };
	};
	const now = await draw(png, 0.25), small = now.canvas.toDataURL("image/png").split(",")[1];
	if (!known) return { small, others: 1000 };
	const before = await draw(known, 1);
	if (before.points.length !== now.points.length) return { small, others: 1000 };
	let others = 0;
	for (let i = 0; i < now.points.length; i += 4) others += [0, 1, 2].some((of) => Math.abs(now.points[i + of] - before.points[i + of]) > mostOff);
	return { small, others: (4000 * others) / now.points.length };
}

// The window as it is. `known`: what `take` gave before; the picture gets to be like it.
export async function take(page, known, name) {
	let seen;
	await eventually(async () => {
		const png = (await page.screenshot({ caret: "initial", scale: "css" })).toString("base64");
		seen = await page.evaluate(look, [png, known, MOST_OFF]);
		return !known || seen.others <= MOST_OTHERS;
	}, "the pictures are alike").catch(() => {
		mkdirSync(pictures, { recursive: true });
		writeFileSync(join(pictures, `${name}.now.png`), Buffer.from(seen.small, "base64"));
		assert.fail(`${name} looks otherwise: ${seen.others.toFixed(0)} of 1000 points are others; see ${join(pictures, `${name}.now.png`)}`);
	});
	return seen.small;
}

// Like the picture that is kept under this name.
export async function comparePicture(page, name) {
	const file = new URL(`${name}.png`, import.meta.url);
	if (process.env.EXOGPU_REFERENCE === "write") return writeFileSync(file, Buffer.from(await take(page, null, name), "base64"));
	assert.ok(existsSync(file), `${name} is kept nowhere: EXOGPU_REFERENCE=write`);
	await take(page, readFileSync(file).toString("base64"), name);
}
