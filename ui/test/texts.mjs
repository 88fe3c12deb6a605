/* Finds the texts in the page's sources: the keys of the German catalogue, and what is shown without being one.
 *
 * esbuild makes each source plain JavaScript first, with its JSX as calls of jsx(). A small reader of that finds strings
 * and templates and what they stand in. It knows just as much of JavaScript as that needs. */
import { transformSync } from "esbuild";
import { readFileSync } from "node:fs";

const BEFORE_REGEX = /[=(,[!&|?:{};+\-*%<>~^]$|\b(return|typeof|case|in|of|do|else|void)$/;
const CLOSES = { "(": ")", "[": "]", "{": "}" };

/** JavaScript as a tree: {kind: "text" | "template" | "group" | "word" | "sign", …}, in order. */
function read(code) {
  let at = 0;
  const until = (end) => {
    const items = [];
    for (;;) {
      const space = /(?:\s|\/\*[^]*?\*\/|\/\/[^\n]*)*/y;
      space.lastIndex = at;
      at += space.exec(code)[0].length;
      if (at >= code.length) return items;
      const c = code[at];
      if (c === end) return at++, items;
      if (CLOSES[c]) {
        at++;
        items.push({ kind: "group", open: c, items: until(CLOSES[c]) });
      } else if (c === "`") items.push(template());
      else if (c === '"' || c === "'") {
        const whole = /"(?:[^"\\]|\\[^])*"|'(?:[^'\\]|\\[^])*'/y;
        whole.lastIndex = at;
        const text = whole.exec(code)[0];
        at += text.length;
        items.push({ kind: "text", text: (0, eval)(text) });
      } else if (c === "/" && BEFORE_REGEX.test(code.slice(Math.max(0, at - 12), at).trimEnd())) {
        const whole = /\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/\w*/y;
        whole.lastIndex = at;
        at += whole.exec(code)[0].length;
        items.push({ kind: "sign", text: "regex" });
      } else {
        const word = /[\w$#]+|=>|[=!]==?|[<>]=|&&|\|\||\?\?|\?\.|[^]/y;
        word.lastIndex = at;
        const text = word.exec(code)[0];
        at += text.length;
        items.push({ kind: /^[\w$#]/.test(text) ? "word" : "sign", text });
      }
    }
  };
  const template = () => {
    at++;
    const parts = [""];
    const values = [];
    for (;;) {
      const c = code[at];
      if (c === "`") return at++, { kind: "template", parts: parts.map((part) => (0, eval)(`\`${part}\``)), values };
      if (c === "$" && code[at + 1] === "{") {
        at += 2;
        values.push(until("}"));
        parts.push("");
      } else {
        const length = c === "\\" ? 2 : 1;
        parts[parts.length - 1] += code.slice(at, at + length);
        at += length;
      }
    }
  };
  return until(undefined);
}

/** Items between commas. */
function split(items) {
  const all = [[]];
  for (const one of items) one.kind === "sign" && one.text === "," ? all.push([]) : all.at(-1).push(one);
  return all;
}

export const keyOf = (parts) => parts.reduce((all, part, i) => `${all}{${i}}${part}`);
const isShown = (text) => /\p{L}{2}/u.test(text.replace(/&\w+;/g, ""));
/** Several words, as nothing but a sentence for people has. */
const isSentence = (text) => /[a-z]{2,}[,;:]? [A-Za-z]*[a-z]{2,}/.test(text) && !/[<>{}=]|^[.#/]|\w+-\w+ /.test(text);
const TEXT_PROPERTIES = /^(children|aria-label|aria-description|title|placeholder|alt|label|word|busyWord|confirm|aside|sub|summary)$/;
/** What these hold is no text for people. */
const OTHER_PROPERTIES = /^(class|style|d|viewBox|autocomplete|href|rel|font|mnemonic|scopes|transform)$/;
const OTHER_CALLS = /^(querySelector|querySelectorAll|matchMedia|closest|matches|Error|TypeError|error|warn|log)$/;

/** What one file says: keys, and what it shows past them. */
export function textsOf(path) {
  const { code } = transformSync(readFileSync(path, "utf8"), { loader: path.endsWith("x") ? "tsx" : "ts", jsx: "automatic", jsxImportSource: "preact", charset: "utf8" });
  const keys = new Set();
  const nouns = new Set();
  const faults = [];
  const isCompared = (items, i) => [items[i - 1], items[i + 1]].some((one) => one?.kind === "sign" && /^[=!]==?$/.test(one.text)) || items[i - 1]?.text === "case";

  /** `shown`: what strings here are seen as they are. */
  const walk = (items, shown) => {
    items.forEach((one, i) => {
      const before = items[i - 1];
      const called = one.kind === "group" && one.open === "(" && before && (before.kind === "word" || before.kind === "group") ? (before.text ?? "()") : null;
      if (one.kind === "template") {
        if (before?.text === "t" || before?.text === "tx") keys.add(keyOf(one.parts));
        else if (one.parts.some((part) => (shown ? isShown(part) : isSentence(part)))) faults.push(one.parts.join("…"));
        for (const value of one.values) walk(value, shown || before?.text === "t");
      } else if (one.kind === "text") {
        if (!isCompared(items, i) && (shown ? isShown(one.text) : isSentence(one.text))) faults.push(one.text);
      } else if (one.kind !== "group") return;
      else if (called !== null && /^_?jsxs?$/.test(called)) element(split(one.items));
      else if (called === "count" || called === "noun") {
        const [, single, many] = split(one.items);
        if (single?.[0]?.kind === "text") nouns.add(`${single[0].text}|${many?.[0]?.text ?? `${single[0].text}s`}`);
      } else if (called !== null && OTHER_CALLS.test(called)) walk(one.items.filter(({ kind }) => kind === "group"), false);
      else if (one.open === "{") block(one.items);
      else walk(one.items, shown && called === null && !(one.open === "[" && before && before.kind !== "sign"));
    });
  };
  const element = ([tag, properties, ...others]) => {
    walk(tag ?? [], false);
    for (const one of properties ?? []) one.kind === "group" ? block(one.items, true) : null;
    for (const one of others) walk(one, false);
  };
  /** An object or a block: the same to this reader. */
  const block = (items, isElement = false) => {
    let rest = [];
    for (const part of split(items)) {
      const [name, colon] = part;
      if (colon?.kind === "sign" && colon.text === ":" && (name.kind === "word" || name.kind === "text")) {
        const value = part.slice(2);
        if (OTHER_PROPERTIES.test(name.text)) walk(value.filter(({ kind }) => kind === "group"), false);
        else if (isElement && TEXT_PROPERTIES.test(name.text)) walk(value, true);
        else walk(value, false);
      } else rest = rest.concat(part);
    }
    walk(rest, false);
  };
  walk(read(code), false);
  return { keys, nouns, faults };
}
