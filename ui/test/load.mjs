/* Loads a TypeScript module of src/ for a test: bundled by esbuild to memory, imported as data. */
import { build } from "esbuild";
import { fileURLToPath } from "node:url";
import { dirname, join } from "node:path";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

/** The modules at src/PATH as one, with all that they import: each of that once. */
export const load = (...paths) => loadAs("", paths);

/** As load(), another time for another `mark`. */
export async function loadAs(mark, paths) {
  const { outputFiles } = await build({
    stdin: { contents: paths.map((path) => `export * from "./${path}";`).join("\n"), resolveDir: join(root, "src"), loader: "ts" },
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
  return import(`data:text/javascript;base64,${Buffer.from(`${outputFiles[0].text}//${mark}`).toString("base64")}`);
}
