// Sentences of the page and of the server that readers did not understand: they were said otherwise, and stay away.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const riddles = [
  "nothing wants it",
  "Nobody can be heard",
  "nobody is listened for",
  "wants a token",
  "Tokens at most",
  "read of prompts",
  "Even another log",
  "which somebody else remembers",
  "remembered by others",
  "M weights",
  "holds the others up",
  "goes on to its end there",
  "keep their last readings",
  "can be used after that ends",
  "Nobody joins with it any more",
  "until logged out; else",
  "orders the first guess",
];

/** Without the line breaks of the source inside of a text. */
const flat = (text) => text.replace(/"\s*\n\s*"/g, "").replace(/\s+/g, " ");

test("no text of the page or the server is one of the riddles", () => {
  let files = 0;
  for (const [folder, ending] of [["ui/src", /\.tsx?$/], ["server", /\.c$/], ["common", /\.c$/]])
    for (const name of readdirSync(join(root, folder), { recursive: true })) {
      if (!ending.test(name)) continue;
      files++;
      const text = flat(readFileSync(join(root, folder, name), "utf8"));
      for (const riddle of riddles) assert.ok(!text.includes(riddle), `${folder}/${name} says "${riddle}"`);
    }
  assert.ok(files > 200, `${files} files were read`);
});

test("a command with its options stands beside a button that copies it", () => {
  for (const name of readdirSync(join(root, "ui/src"), { recursive: true }))
    if (name.endsWith(".tsx")) assert.doesNotMatch(readFileSync(join(root, "ui/src", name), "utf8"), /<code[^>]*>exogpu [a-z ]+ --?\w/, name);
});

test("an id, an address or a fingerprint is drawn by what copies it", () => {
  const drawn = /class="[^"]*\bcode\b[^"]*"[^>]*>\s*\{\w*\.?(\w+_id|token|target|source|revision|sha256|root|first_key|address(es)?)\b/;
  assert.match('<span class="small code"> {token.token_id}</span>', drawn);
  for (const name of readdirSync(join(root, "ui/src/view"), { recursive: true }))
    if (name.endsWith(".tsx")) assert.doesNotMatch(readFileSync(join(root, "ui/src/view", name), "utf8"), drawn, name);
});
