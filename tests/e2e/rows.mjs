// Rows in formats of model files, with products that gguf and numpy have computed (tests/vectors/rows.py), and what the
// browser's product kernel needs of them.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "../../ui/node_modules/esbuild/lib/main.js";

const { rows, columns, vectors, x, formats } = JSON.parse(readFileSync(new URL("../vectors/rows.json", import.meta.url), "utf8"));
const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64"));

export async function loadStage() {
	const { outputFiles } = await build({ bundle: true, write: false, format: "esm", logLevel: "error", stdin: {
		contents: 'export * from "./formats.ts"; export * from "./kernels.ts";',
		resolveDir: fileURLToPath(new URL("../../ui/src/lend/gpu/stage", import.meta.url)) } });
	return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

export const given = { rows, columns, vectors, x: new Float32Array(bytes(x).buffer) };
export const formatsGiven = Object.entries(formats).map(([name, one]) => ({ name, file: bytes(one.rows), products: one.products.flat() }));
