// Our tokens are those of the published tokenizers, for a corpus of everything, and give back the text.
import assert from "node:assert/strict";
import { test } from "node:test";
import { corpus, random } from "./corpus.mjs";
import {
  deepseekV3Oracle, glm4Oracle, gpt2Oracle, llama2Oracle, llama3Oracle, o200kOracle, qwen2Oracle, qwen35Oracle, smaugOracle, smollmOracle,
  tekkenOracle,
} from "./oracles.mjs";
import { ask, mode } from "./tokens.mjs";

// The least file that there is to ask with, for what needs no vocabulary.
const noWords = {
  "tokenizer.ggml.model": { text: "gpt2" },
  "tokenizer.ggml.pre": { text: "gpt-2" },
  "tokenizer.ggml.tokens": { texts: ["a"] },
  "tokenizer.ggml.merges": { texts: [] },
};
const TABLE_UNICODE = "17.0"; // of common/text/unicode_table.h
const newest = parseFloat(process.versions.unicode) === parseFloat(TABLE_UNICODE);

// In the order of enum character.
const classes = [/\p{Lu}|\p{Lt}/u, /\p{Ll}/u, /\p{Lm}|\p{Lo}/u, /\p{M}/u, /\p{N}/u, /\p{White_Space}/u, /\p{P}|\p{S}/u];

// Characters that another version of Unicode sees in another way: they are left out of comparisons.
function strangers() {
  const [{ bytes }] = ask(noWords, [{ text: "", mode: mode.classes }]);
  const found = new Set();
  for (let code = 0; code < 0x110000; code++) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const character = String.fromCodePoint(code);
    if (classes.findIndex((pattern) => pattern.test(character)) + 1 !== bytes[code]) found.add(character);
  }
  return found;
}
const unlike = strangers();
const known = (text) => ![...text].some((character) => unlike.has(character));

// JavaScript's \s has U+FEFF and lacks U+0085; Unicode's white space, which the published expressions mean, is the other
// way round. Word-cutting oracles are not asked about these two.
const sameSpaces = (text) => !/[\u0085\ufeff]/.test(text);

test("classes of characters are those of the engine that runs this, but for other versions of Unicode", () => {
  if (newest) assert.deepEqual([...unlike], []);
  for (const character of unlike)
    assert.ok(unlike.size < 40000 && character > "\u07ff", `U+${character.codePointAt(0).toString(16)} is unlike`);
});

test("composition is the engine's own", () => {
  const next = random(3);
  const every = Array.from({ length: 0x30000 }, (_, code) => (code >= 0xd800 && code < 0xe000 ? "" : String.fromCodePoint(code)));
  const moving = every.filter((text) => text.normalize("NFD") !== text || /\p{M}|[\u1100-\u11ff]/u.test(text)).filter(known);
  const texts = [...every.filter(known).map((text) => `a${text}\u0301`), ...moving];
  for (let i = 0; i < 20000; i++)
    texts.push(Array.from({ length: 1 + next(12) }, () => (next(4) ? moving[next(moving.length)] : "ab0 é"[next(5)])).join(""));
  // A line each: nothing moves over the end of one.
  const [{ text }] = ask(noWords, [{ text: texts.join("\n"), mode: mode.compose }]);
  const got = text.split("\n");
  assert.equal(got.length, texts.join("\n").split("\n").length);
  assert.equal(text === texts.join("\n").normalize("NFC"), true, firstDifference(got, texts));
});

function firstDifference(got, texts) {
  const index = got.findIndex((line, i) => line !== texts[i]?.normalize("NFC"));
  return `${escape(texts[index] ?? "")} became ${escape(got[index] ?? "")}`;
}
const escape = (text) => JSON.stringify(text).replace(/[^ -~]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

function compare(oracle, texts, special, back) {
  const got = ask(
    oracle.keys,
    texts.map((text) => ({ text, mode: (special ? mode.special : 0) | (special ? mode.shown : 0) })),
  );
  texts.forEach((text, index) => {
    const want = oracle.encode(text, special);
    const { ids, text: given } = got[index];
    if (ids.join() !== want.join()) assert.deepEqual(ids, want, `tokens of ${escape(text)}`);
    if (given !== back(text)) assert.equal(given, back(text), `text of the tokens of ${escape(text)}`);
  });
  return texts.length;
}

const cases = [
  { name: "llama 2", make: llama2Oracle, back: (text) => text.replaceAll("▁", " "), fits: () => true, count: 700 },
  { name: "llama 3", make: llama3Oracle, special: true, count: 700 },
  { name: "qwen 2.5", make: qwen2Oracle, special: true, back: (text) => text.normalize("NFC"), count: 700 },
  { name: "qwen 3.5's words", make: qwen35Oracle, back: (text) => text.normalize("NFC"), count: 300 },
  { name: "gpt-2's words", make: gpt2Oracle, count: 300 },
  { name: "smollm's words", make: smollmOracle, count: 300 },
  { name: "tekken's words", make: tekkenOracle, count: 300 },
  { name: "o200k's words", make: o200kOracle, count: 300 },
  { name: "glm 4's words", make: glm4Oracle, count: 300 },
  { name: "deepseek v3", make: deepseekV3Oracle, count: 300 },
  { name: "smaug", make: smaugOracle, count: 100 },
];
for (const { name, make, special, back = (text) => text, fits = sameSpaces, count } of cases)
  test(`tokens of ${name}`, () => {
    const oracle = make();
    const texts = corpus(count).filter((text) => known(text) && fits(text));
    assert.ok(texts.length > count + 600, `${texts.length} texts are left`);
    compare(oracle, texts, false, back);
    if (special) compare(oracle, texts.filter((text) => /[<|]/.test(text)), true, back);
  });
