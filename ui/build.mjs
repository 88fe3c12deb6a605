/* Builds the dashboard: node build.mjs OUTDIR [--dev]
 *
 * Writes into OUTDIR: index.html, app-HASH.js and what it loads when needed, lend.html with its lend-HASH.js, lend-node-HASH.js and gpu-worker-HASH.js, style-HASH.css, theme-HASH.js (classic script; sets light or dark
 * before the first paint), icon-HASH.svg, licenses-HASH.txt, app-HASH.webmanifest and lend-HASH.webmanifest (by which a phone installs a page) with
 * icon-SIZE-HASH.png, each also as .gz, and assets.json, the list of them
 * {path, file, type, immutable} from which they are embedded. The same sources give the same bytes. */
import { build } from "esbuild";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { basename, dirname, join, resolve } from "node:path";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const args = process.argv.slice(2);
const dev = args.includes("--dev");
const outdir = args.find((arg) => !arg.startsWith("--"));
if (!outdir || args.some((arg) => arg.startsWith("--") && arg !== "--dev")) {
  console.error("usage: node build.mjs OUTDIR [--dev]\n  --dev  readable code with source maps");
  process.exit(2);
}
const out = resolve(outdir);

const types = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
  ".txt": "text/plain; charset=utf-8",
  ".map": "application/json",
};
const extension = (file) => file.slice(file.lastIndexOf("."));

async function bundle(entries, options) {
  return build({
    entryPoints: entries,
    bundle: true,
    outdir: out,
    write: false,
    metafile: true,
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    minify: !dev,
    sourcemap: dev ? "linked" : false,
    target: ["es2022", "chrome94", "firefox93", "safari15.4"],
    charset: "utf8",
    legalComments: "none",
    absWorkingDir: here,
    logLevel: "warning",
    ...options,
  }).catch(() => process.exit(1));
}

/** The licences of what is bundled, as they ask: of every package that a byte of the results comes from. */
function licenses() {
  const inputs = results.flatMap(({ metafile }) => Object.values(metafile.outputs).flatMap((output) => Object.keys(output.inputs)));
  const names = inputs.map((path) => /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter(Boolean);
  return [...new Set(names)]
    .sort()
    .map((name) => {
      const folder = join(here, "node_modules", name);
      const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
      return `${name} ${version}\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}\n`;
    })
    .join("\n----\n\n");
}

execFileSync("python3", ["-B", join(here, "../tools/clients/generate.py"), "ui"], { stdio: "inherit" });
// First: the others name the file.
const worker = await bundle([{ in: "src/lend/gpu/worker.ts", out: "gpu-worker" }], { format: "esm" });
const workerFile = basename(worker.outputFiles.find(({ path }) => path.endsWith(".js")).path);
const gpuDefine = { GPU_WORKER_URL: JSON.stringify(`/${workerFile}`) };
const node = await bundle([{ in: "src/lend/node-worker.ts", out: "lend-node" }], { format: "esm", define: gpuDefine });
const nodeFile = basename(node.outputFiles.find(({ path }) => path.endsWith(".js")).path);
const define = { ...gpuDefine, LEND_NODE_URL: JSON.stringify(`/${nodeFile}`) };
const results = await Promise.all([
  worker,
  node,
  bundle([{ in: "src/lend/main.tsx", out: "lend" }], {
    format: "esm",
    splitting: true,
    define,
    jsx: "automatic",
    jsxImportSource: "preact",
  }),
  bundle([{ in: "src/main.tsx", out: "app" }], {
    format: "esm",
    splitting: true,
    define,
    jsx: "automatic",
    jsxImportSource: "preact",
  }),
  bundle([{ in: "src/theme.ts", out: "theme" }], { format: "iife" }),
  bundle([{ in: "src/style/main.css", out: "style" }], {}),
]);

/** file name → bytes, in the order in which they are listed */
const files = new Map();
for (const { outputFiles } of results)
  for (const { path, contents } of outputFiles) files.set(basename(path), Buffer.from(contents));

const named = (start, ending) => [...files.keys()].find((file) => file.startsWith(start) && file.endsWith(ending));

function addHashed(name, content) {
  const bytes = Buffer.from(content);
  const hash = createHash("sha256").update(bytes).digest("hex").slice(0, 8).toUpperCase();
  files.set(name.replace(/(\.\w+)$/, `-${hash}$1`), bytes);
}
addHashed("icon.svg", readFileSync(join(here, "src/icon.svg"), "utf8"));
addHashed("licenses.txt", licenses());
for (const size of [192, 512]) addHashed(`icon-${size}.png`, readFileSync(join(here, `src/icon-${size}.png`)));
addManifest("app", { id: "/", start_url: "/", scope: "/", name: "exogpu", short_name: "exogpu", description: "Every GPU that you own, as one machine" });
addManifest("lend", { id: "/lend", start_url: "/lend", scope: "/lend", name: "exogpu: lend this device", short_name: "Lend GPU", description: "Lends this device's GPU to a cluster" });

/** What a system needs to install a page. The icons bear their own ground, up to the edge. */
function addManifest(name, page) {
  const icons = [192, 512].flatMap((size) =>
    ["any", "maskable"].map((purpose) => ({ src: `/${named(`icon-${size}-`, ".png")}`, sizes: `${size}x${size}`, type: types[".png"], purpose })),
  );
  addHashed(`${name}.webmanifest`, JSON.stringify({ ...page, display: "standalone", background_color: "#0D0F10", theme_color: "#0D0F10", icons }));
}

/** What app-HASH.js imports at once, so that the browser need not read it first to know. */
function preloads() {
  const app = String(files.get(named("app-", ".js")));
  const imported = [...files.keys()].filter((file) =>
    new RegExp(`from\\s*"\\./${file}"|import\\s*"\\./${file}"`).test(app),
  );
  return imported.map((file) => `\n<link rel="modulepreload" href="/${file}">`).join("");
}

const lendFile = [...files.keys()].find((file) => /^lend-[A-Z0-9]+\.js$/.test(file));
/** The pages, with the names of the files that they load. */
function addPage(name) {
  const html = readFileSync(join(here, "src", name), "utf8")
    .replace("%THEME%", `/${named("theme-", ".js")}`)
    .replace("%STYLE%", `/${named("style-", ".css")}`)
    .replace("%PRELOADS%", preloads())
    .replace("%APP%", `/${named("app-", ".js")}`)
    .replace("%LEND%", `/${lendFile}`)
    .replace("%ICON%", `/${named("icon-", ".svg")}`)
    .replace("%PICTURE%", `/${named("icon-192-", ".png")}`)
    .replace("%MANIFEST%", `/${named(name === "lend.html" ? "lend-" : "app-", ".webmanifest")}`)
    .replace("%LICENSES%", `/${named("licenses-", ".txt")}`);
  if (/%[A-Z]+%/.test(html)) throw new Error(`${name}: ${/%[A-Z]+%/.exec(html)[0]} was not filled in`);
  files.set(name, Buffer.from(html));
}
addPage("index.html");
addPage("lend.html");

mkdirSync(out, { recursive: true });
try {
  for (const { file } of JSON.parse(readFileSync(join(out, "assets.json"), "utf8"))) {
    if (file !== basename(file)) continue;
    rmSync(join(out, file), { force: true });
    rmSync(join(out, `${file}.gz`), { force: true });
  }
} catch {
  // nothing built here before
}
const assets = [];
for (const [file, bytes] of files) {
  writeFileSync(join(out, file), bytes);
  writeFileSync(join(out, `${file}.gz`), gzipSync(bytes, { level: 9 }));
  const page = { "index.html": "/", "lend.html": "/lend" }[file];
  assets.push({ path: page ?? `/${file}`, file, type: types[extension(file)], immutable: !page });
}
writeFileSync(join(out, "assets.json"), `${JSON.stringify(assets, null, "\t")}\n`);

for (const [file, bytes] of files)
  console.log(
    `${file.padEnd(26)} ${String(bytes.length).padStart(8)} B  ${String(gzipSync(bytes, { level: 9 }).length).padStart(7)} B gz`,
  );
