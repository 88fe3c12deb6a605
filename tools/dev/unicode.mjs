// Writes common/text/unicode_table.h, the classes of characters that pre-tokenizers tell apart, and what is needed to
// compose characters (NFC), from the Unicode data of the JavaScript engine that runs this:
//
//   node tools/dev/unicode.mjs > common/text/unicode_table.h
//
// The table is committed; this is run again only for a newer Unicode.

const LAST = 0x10ffff;
// The order of enum character in common/text/unicode.h.
const classes = [/\p{Lu}|\p{Lt}/u, /\p{Ll}/u, /\p{Lm}|\p{Lo}/u, /\p{M}/u, /\p{N}/u, /\p{White_Space}/u, /\p{P}|\p{S}/u];
const isSurrogate = (code) => code >= 0xd800 && code <= 0xdfff;

function classOf(code) {
  if (isSurrogate(code)) return 0;
  const text = String.fromCodePoint(code);
  return classes.findIndex((pattern) => pattern.test(text)) + 1;
}

const ranges = [];
for (let code = 0, last = -1; code <= LAST; code++) {
  const now = classOf(code);
  if (now !== last) ranges.push(code * 8 + now);
  last = now;
}

// Whole canonical decompositions. Hangul syllables are arithmetic and not in the table.
const decompositions = [];
for (let code = 0x80; code <= LAST; code++) {
  if (isSurrogate(code) || (code >= 0xac00 && code <= 0xd7a3)) continue;
  const text = String.fromCodePoint(code);
  const whole = [...text.normalize("NFD")];
  if (whole.length === 1 && whole[0] === text) continue;
  decompositions.push([code, whole.map((part) => part.codePointAt(0))]);
}

// Which two characters compose to which one: only those whose composite is stable under NFC.
const compositions = [];
for (const [code, whole] of decompositions) {
  const text = String.fromCodePoint(code);
  if (whole.length < 2 || text.normalize("NFC") !== text) continue;
  const last = String.fromCodePoint(whole.at(-1));
  const first = String.fromCodePoint(...whole.slice(0, -1)).normalize("NFC");
  if ([...first].length !== 1 || (first + last).normalize("NFC") !== text)
    throw new Error(`U+${code.toString(16)} is not of two characters`);
  compositions.push([first.codePointAt(0), last.codePointAt(0), code]);
}
compositions.sort((a, b) => a[0] - b[0] || a[1] - b[1]);

// Classes of combination, as far as they matter: which of two marks is put first. The engine does not tell them, but
// sorts by them: marks are put in order by comparing them, two of the same class being left as they stand.
const marks = [];
for (let code = 0x300; code <= LAST; code++) {
  if (isSurrogate(code)) continue;
  const mark = String.fromCodePoint(code);
  if (mark.normalize("NFD") !== mark) continue; // its parts are looked at instead
  // A mark of any class but 0 changes places with one of class 1 or of class 240 (the least and the greatest).
  const swapped = [`\u{345}${mark}`, `${mark}\u{334}`].some((pair) => pair.normalize("NFD") !== pair);
  if (swapped || mark === "\u{345}" || mark === "\u{334}") marks.push(code);
}
const before = (a, b) => {
  const pair = String.fromCodePoint(b, a);
  return pair.normalize("NFD") !== pair; // b a becomes a b
};
const groups = []; // of marks of one class, in order
for (const mark of marks) {
  let low = 0;
  let high = groups.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (before(groups[middle][0], mark)) low = middle + 1;
    else high = middle;
  }
  if (low < groups.length && !before(mark, groups[low][0])) groups[low].push(mark);
  else groups.splice(low, 0, [mark]);
}
const orderOf = new Map(groups.flatMap((group, index) => group.map((mark) => [mark, index + 1])));
const orders = []; // [first, last, order]
for (const mark of marks) {
  const range = orders.at(-1);
  if (range && range[1] === mark - 1 && range[2] === orderOf.get(mark)) range[1] = mark;
  else orders.push([mark, mark, orderOf.get(mark)]);
}

// Lines of 120 columns.
function table(entries) {
  const lines = [""];
  for (const entry of entries) {
    if (lines.at(-1).length + String(entry).length > 118) lines.push("");
    lines[lines.length - 1] += `${entry},`;
  }
  return `{\n${lines.join("\n")}\n}`;
}
const entry = (numbers) => `{${numbers.join(",")}}`;
let offset = 0;
const steps = decompositions.map(([code, whole]) => {
  offset += whole.length;
  return entry([code, offset - whole.length, whole.length]);
});
console.log(`// Written by tools/dev/unicode.mjs from Unicode ${process.versions.unicode}. Read by common/text/unicode.c alone.
#pragma once
#include <stdint.h>

// clang-format off
#define UNICODE_TABLE_VERSION "${process.versions.unicode}"

// Where a class of characters begins: the first character * 8 + the class.
static const uint32_t class_ranges[] = ${table(ranges)};

// Whole canonical decompositions: the character, where its parts are, and how many.
static const struct {
	uint32_t character;
	uint16_t offset, count;
} decompositions[] = ${table(steps)};
static const uint32_t decomposition_parts[] = ${table(decompositions.flatMap(([, whole]) => whole))};

// Two characters and what they compose to.
static const uint32_t compositions[][3] = ${table(compositions.map(entry))};

// Marks, from first to last, and their order: as by the published classes of combination, numbered without gaps.
static const uint32_t mark_orders[][3] = ${table(orders.map(entry))};
// clang-format on`);
