/* Loads a TypeScript module of src/ for a test: bundled by esbuild to memory, imported as data. */
import { build } from "esbuild";
import { fileURLToPath } from "node:url";
import { dirname, join } from "node:path";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

/** The module at src/PATH, with all that it imports. */
export async function load(path) {
  const { outputFiles } = await build({
    entryPoints: [join(root, "src", path)],
    bundle: true,
    write: false,
    format: "esm",
    platform: "neutral",
    mainFields: ["module", "main"],
    jsx: "automatic",
    jsxImportSource: "preact",
    absWorkingDir: root,
    logLevel: "error",
  });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}
