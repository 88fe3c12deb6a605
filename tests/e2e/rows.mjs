// Rows in formats of model files, with products that gguf and numpy have computed (tests/vectors/rows.py), and what the
// browser's product kernel needs of them.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "../../ui/node_modules/esbuild/lib/main.js";

const { rows, columns, vectors, x, formats } = JSON.parse(readFileSync(new URL("../vectors/rows.json", import.meta.url), "utf8"));
const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64"));

export async function loadStage() {
	const { outputFiles } = await build({ bundle: true, write: false, format: "esm", logLevel: "error", stdin: {
		contents: 'export * from "./planes.ts"; export * from "./product.ts";',
		resolveDir: fileURLToPath(new URL("../../ui/src/lend/gpu/stage", import.meta.url)) } });
	return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

export const given = { rows, columns, vectors, x: new Float32Array(bytes(x).buffer) };
export const formatsGiven = Object.entries(formats).map(([name, one]) => ({ name, file: bytes(one.rows), products: one.products.flat() }));

const half = (view, at) => {
	const bits = view.getUint16(at, true), sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
	return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
};

// The values of rows, as engine/model/format.h defines them.
export function decode(name, file) {
	const out = [], view = new DataView(file.buffer, file.byteOffset, file.length);
	if (name === "Q8_0")
		for (let at = 0; at < file.length; at += 34)
			for (let i = 0; i < 32; i++) out.push(half(view, at) * view.getInt8(at + 2 + i));
	else
		for (let at = 0; at < file.length; at += 144)
			for (let g = 0; g < 8; g++) {
				const s = (i) => file[at + 4 + i], scale = g < 4 ? s(g) & 63 : (s(g + 4) & 15) | ((s(g - 4) >> 6) << 4);
				const min = g < 4 ? s(g + 4) & 63 : (s(g + 4) >> 4) | ((s(g) >> 6) << 4);
				for (let i = 0; i < 32; i++)
					out.push(half(view, at) * scale * ((file[at + 16 + 32 * (g >> 1) + i] >> (4 * (g & 1))) & 15) - half(view, at + 2) * min);
			}
	return out;
}
