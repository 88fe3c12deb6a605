// The page in other languages: each text that it shows goes through t, and each has a German one.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import test from "node:test";
import { transformSync } from "esbuild";
import { fileURLToPath } from "node:url";
import { load, loadAs } from "./load.mjs";
import { textsOf } from "./texts.mjs";

const src = join(dirname(fileURLToPath(import.meta.url)), "../src");

/** Files whose strings nobody reads on the page, or which other people read. */
const OTHER_FILES = [
  /^text\/(de\/|language|said|text\.ts)/, // what translates
  /^lib\/.*\.gen\.ts$/, // the contract
  /^lend\/gpu\//, // computes; its faults are for the server's log
  /^lend\/(line|node|record)\.ts$/, // what a node tells the server, which is in English like every node's
  /^net\/codec\.ts$/, // faults of frames, for the console
  /^state\/conversation\/highlight\.ts$/, // names of programming languages
];
/** Names, and what is typed. */
const NAMES = new Set(["CPU", "Ctrl K", "Deutsch", "English", "GPU", "HTTP", "Hugging Face", "JavaScript, ollama", "Python, openai", "SHA-256", "Samsung Internet", "TLS", "URL", "UUID", "exo_…", "ntfy", "/ca.pem", "exogpu-authority.pem"]);
const isName = (text) => NAMES.has(text) || /^(exogpu\b|--|curl…| --cacert |https:)/.test(text) || /^[ …]*ms$/.test(text) || /^(…, )?exogpu …$/.test(text) || text.startsWith('[{"type"');
/** Strings of the code that are no text: CSS, HTML, messages between workers. */
const CODE = new Set(["a, button, input, select, textarea, label, summary, dialog", "tbody tr, .model-row, .run-row", "dialog, form, section, aside, nav, .toasts, main", "color-mix(in srgb, … …%, transparent)", "clear store"]);

const files = readdirSync(src, { recursive: true }).filter((name) => /\.tsx?$/.test(name) && !OTHER_FILES.some((one) => one.test(name)));
const found = files.map((name) => ({ name, ...textsOf(join(src, name)) }));
const used = new Set(found.flatMap(({ keys, nouns }) => [...keys, ...nouns]));
/** What the server's own catalogue of models says, put through told(). */
for (const { good_at, languages } of JSON.parse(readFileSync(join(src, "../../catalog/models.json"), "utf8")).models) for (const text of [good_at, languages]) if (text) used.add(text);
/** Contract words, which pages put through word(). */
const words = textsOf(join(src, "text/words.ts")).keys;

const folder = join(src, "text/de");
const catalogues = readdirSync(folder).filter((name) => name !== "index.ts" && name.endsWith(".ts"));
const german = new Map();
for (const name of catalogues) {
  const { code } = transformSync(readFileSync(join(folder, name), "utf8"), { loader: "ts" });
  const { default: texts } = await import(`data:text/javascript,${encodeURIComponent(code)}`);
  for (const [key, text] of Object.entries(texts)) {
    assert.ok(!german.has(key), `${name} and ${german.get(key)?.name} both have "${key}"`);
    german.set(key, { name, text });
  }
}

test("every text that the page shows goes through t", () => {
  assert.ok(files.length > 150, `${files.length} files were read`);
  const faults = found.flatMap(({ name, faults }) => faults.filter((text) => !isName(text) && !words.has(text) && !CODE.has(text)).map((text) => `${name}: "${text}"`));
  assert.deepEqual(faults, []);
});

test("every text has a German one, and no German one is left over", () => {
  assert.ok(used.size > 1500, `${used.size} texts were found`);
  assert.deepEqual([...used].filter((key) => !german.has(key)), [], "without German");
  assert.deepEqual([...german.keys()].filter((key) => !used.has(key)), [], "German that nothing uses");
});

test("a German text has the places of its English one, and its spaces at the ends", () => {
  const places = (text) => [...text.matchAll(/\{(\d+)[nl]?\}/g)].map(([, place]) => place).sort();
  for (const [key, { text }] of german) {
    assert.deepEqual(places(text), places(key), key);
    if (text === "") continue;
    assert.equal(/^ /.test(text), /^ /.test(key) || /^,/.test(key) && /^ /.test(text), key);
    assert.equal(/ $/.test(text), / $/.test(key), key);
    assert.equal(text.split("|").length, key.split("|").length, key);
  }
});

test("German says nothing with an exclamation mark, and addresses nobody as du or Sie", () => {
  for (const [, { text }] of german) assert.doesNotMatch(text, /!|\b(du|dich|dir|dein\w*|Ihnen|Ihr Gerät)\b/);
});

test("a text with what stands in it, in English", async () => {
  const { count, noun, plural, t, tx } = await load("text/text", "lib/format");
  assert.equal(t`${"atelier"} is offline`, "atelier is offline");
  assert.deepEqual(tx`See ${"x"}.`, ["See ", "x", ".", undefined]);
  assert.equal(count(1, "device"), "1 device");
  assert.equal(count(1200, "device"), "1,200 devices");
  assert.equal(noun(2, "entry", "entries"), "entries");
  assert.equal(plural(1, "it", "they"), "it");
});

/** The modules as in a browser that asks for German. */
async function inGerman(...paths) {
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  Object.defineProperty(globalThis, "navigator", { value: { languages: ["fr", "de-AT", "en"] }, configurable: true });
  try {
    return await loadAs("German", paths);
  } finally {
    if (before) Object.defineProperty(globalThis, "navigator", before);
    else delete globalThis.navigator;
  }
}

test("German: its order of words, its numbers and dates, its dative", async () => {
  const { count, day, figure, filled, fullTime, t, tx, age } = await inGerman("text/text", "lib/format");
  assert.equal(t`${"atelier"} is offline`, "atelier ist offline");
  assert.equal(t`${"x"} has no such text`, "x has no such text");
  assert.deepEqual(tx`Trying again ${"bald"}.`, ["Nächster Versuch ", "bald", ".", undefined]);
  assert.equal(figure(12345.6, 1), "12.345,6");
  assert.equal(figure(-0.001, 1), "0,0");
  const at = new Date(2026, 10, 18, 14, 31, 52).getTime();
  assert.equal(day(at), "18. Nov.");
  assert.equal(fullTime(at), "18. Nov. 2026, 14:31:52");
  assert.equal(t`${age(400)} ago`, "vor 0,4 s");
  assert.equal(count(2, "device"), "2 Geräte");
  assert.equal(filled("auf {1n}", [count(2, "device")]), "auf 2 Geräten");
  assert.equal(filled("auf {1n}", [count(1, "device")]), "auf 1 Gerät");
  assert.equal(filled("auf {1n}", ["atelier"]), "auf atelier");
  assert.equal(t`${t`Stop`} now`, "Jetzt beenden");
});

test("what the server says is put into the page's language where it comes with its key, and stays English otherwise", async () => {
  const { inLanguage, said } = await inGerman("text/said");
  const key = "{1} is offline"; // any text of the catalogue stands for one of the server
  assert.equal(said("den is offline", { key, args: ["den"] }), "den ist offline");
  assert.equal(said("x", { key, args: [{ key, args: ["den"] }] }), "den ist offline ist offline");
  for (const name of ["nodes", "Stop", "not logged in"]) assert.equal(said(`${name} is offline`, { key, args: [name] }), `${name} ist offline`, "a name stays, whatever it is called");
  assert.equal(said("den is offline", undefined), "den is offline");
  assert.equal(said("den is offline", { key, args: [1] }), "den is offline");
  assert.equal(said("den is gone for 3 s", { key: "%s is gone for %lld s", args: ["den", "3"] }), "den is gone for 3 s");
  const nested = { list: [{ state_reason: "den is offline", state_reason_said: { key, args: ["den"] }, name: "den" }], why: ["den is offline", "b"], why_said: [{ key, args: ["den"] }, null] };
  const shown = inLanguage(nested);
  assert.equal(shown.list[0].state_reason, "den ist offline");
  assert.equal(shown.list[0].name, "den");
  assert.deepEqual(shown.why, ["den ist offline", "b"]);
  assert.equal(nested.list[0].state_reason, "den is offline");
});

test("in English a message stays the same object", async () => {
  const { inLanguage } = await load("text/said");
  const message = { reason: "a b" };
  assert.equal(inLanguage(message), message);
});

test("each catalogue is loaded with its page's language only", () => {
  for (const name of files) assert.ok(!/from "[./]*text\/de/.test(readFileSync(join(src, name), "utf8")), `${name} imports German`);
});
