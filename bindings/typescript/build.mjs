/* Builds the package exogpu for browsers and Node: node build.mjs [--types] [OUTDIR]
 *
 * Makes src/api.gen.ts from the contract, then OUTDIR/index.js (dist unless said) from all sources, and with --types the
 * declarations beside it. esbuild and TypeScript are the dashboard's (npm ci in ui/). */
import { execFileSync } from "node:child_process";
import { copyFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const ui = createRequire(join(here, "../../ui/package.json"));
const args = process.argv.slice(2);
const out = resolve(args.find((one) => !one.startsWith("--")) ?? join(here, "dist"));

execFileSync("python3", ["-B", join(here, "../../tools/clients/generate.py"), "typescript"], { stdio: "inherit" });
await ui("esbuild").build({
  entryPoints: [join(here, "src/index.ts")],
  outfile: join(out, "index.js"),
  bundle: true,
  format: "esm",
  platform: "neutral",
  external: ["ws"],
  target: "es2022",
  logLevel: "warning",
});
if (args.includes("--types")) {
  const compiler = join(dirname(ui.resolve("typescript/package.json")), "bin/tsc");
  execFileSync(
    process.execPath,
    [compiler, "-p", here, "--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--outDir", out],
    { stdio: "inherit" },
  );
  copyFileSync(join(here, "../../LICENSE"), join(here, "LICENSE"));
}
