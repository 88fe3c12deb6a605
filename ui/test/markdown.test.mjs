// Markdown as models write it, and hostile text.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { blocksOf, plainBlocksOf, spansOf, safeHref, partsOf } = await load("state/conversation/markdown.ts", "state/conversation/spans.ts", "state/conversation/highlight.ts");

// A short form of spans: text as it is, others by their first letters.
const short = (spans) => spans.map((one) => (one.kind === "text" ? one.text : one.spans ? `<${one.kind}${one.href ? ` ${one.href}` : ""}:${short(one.spans)}>` : `<${one.kind}:${one.text}>`)).join("");
const kinds = (text) => blocksOf(text).map(({ kind }) => kind);

test("within a line", () => {
  const cases = {
    "plain": "plain",
    "**bold** and *em*, ~~gone~~": "<strong:bold> and <em:em>, <strike:gone>",
    "***both***": "<strong:<em:both>>",
    "__low__ and _low_ but snake_case_name": "<strong:low> and <em:low> but snake_case_name",
    "2 * 3 * 4": "2 * 3 * 4",
    "`a*b*` and ``a`b``": "<code:a*b*> and <code:a`b>",
    "open ` and ** stay": "open ` and ** stay",
    "[here](https://e.org/a_(b)) now": "<link https://e.org/a_(b):here> now",
    "[bad](javascript:alert(1))": "bad",
    "[bad](data:text/html,x)": "bad",
    "![picture](https://e.org/x.png)": "<link https://e.org/x.png:picture>",
    "see https://e.org/x. Then": "see <link https://e.org/x:https://e.org/x>. Then",
    "costs $5 and $10": "costs $5 and $10",
    "so $x^2$ and \\(y_1\\)": "so <math:x^2> and <math:y_1>",
    "\\*not\\*": "*not*",
    "a<br>b": "a\nb",
    "<script>alert(1)</script>": "<script>alert(1)</script>",
    "[a] and [b](https://e.org/)": "[a] and <link https://e.org/:b>",
  };
  for (const [text, said] of Object.entries(cases)) assert.equal(short(spansOf(text)), said, text);
  for (const no of ["javascript:alert(1)", "//e.org", "/x", "https://", "https:// x", "ftp://e.org"]) assert.equal(safeHref(no), null, no);
});

test("blocks", () => {
  assert.deepEqual(kinds("# One\n\ntext\nmore\n\n---\n> said\n\n- a\n- b\n\n1. x\n\n```js\nlet a;\n```\n$$\nx\n$$\n"), ["heading", "text", "rule", "quote", "list", "list", "code", "math"]);
  const [code] = blocksOf("```Python title\nx = 1\n```");
  assert.deepEqual(code, { kind: "code", language: "python", text: "x = 1", open: false });
  assert.deepEqual(blocksOf("````\n```\n````")[0].text, "```");
  assert.equal(blocksOf("Look:\n```c\nint x;")[1].open, true, "its end has not come");
  const [list] = blocksOf("3. one\n   more\n   - inner\n     deep\n\n4. two\n\nafter");
  assert.equal(list.start, 3);
  assert.deepEqual(list.items.map((item) => item.map(({ kind }) => kind)), [["text", "list"], ["text"]]);
  const [table, after] = blocksOf("| a | b \\| c |\n|---|:-:|\n| 1 | **2** |\n| 3\n\nafter");
  assert.deepEqual([table.kind, table.aligns, table.head.map(short), table.rows.map((row) => row.map(short))], ["table", ["left", "center"], ["a", "b | c"], [["1", "<strong:2>"], ["3", ""]]]);
  assert.equal(after.kind, "text");
  assert.deepEqual(kinds("text before\n| a | b |\n|---|---|\n| 1 | 2 |"), ["text", "table"]);
  assert.deepEqual(kinds("a | b"), ["text"]);
  const said = blocksOf("$$a$$ where a is small");
  assert.deepEqual([said[0].text, short(said[1].spans)], ["a", "where a is small"]);
  assert.deepEqual(kinds("$$ no end"), ["text"]);
  assert.deepEqual(blocksOf(""), []);
});

test("what a person wrote stays as it is, but for code", () => {
  assert.deepEqual(plainBlocksOf("# no\n*heading*\n```c\nint x;\n```\n"), [
    { kind: "text", spans: [{ kind: "text", text: "# no\n*heading*" }] },
    { kind: "code", language: "c", text: "int x;", open: false },
  ]);
});

test("no letter is lost, however the text is cut", () => {
  const text = "# A\n\n**b** `c` [d](https://e.org)\n\n- f\n  - g\n\n> h\n\n| i | j |\n|---|---|\n| k | l |\n\n```js\nm\n```\n\\[ n \\]\n";
  const letters = (value) => JSON.stringify(value, (key, one) => (["kind", "href", "language", "aligns"].includes(key) ? undefined : one));
  for (let length = 0; length <= text.length; length++) {
    const seen = letters(blocksOf(text.slice(0, length)));
    for (const letter of "bcdfghijklmn") // those that have come, and are not in an address, an unread table's dashes or a fence's name
      if (new RegExp(`(^|[^a-z])${letter}([^a-z]|$)`).test(text.slice(0, length))) assert.ok(seen.includes(letter), `${letter} at ${length}`);
  }
});

test("hostile text is read in time, and nested no deeper than a page bears", () => {
  const n = 60_000;
  const hostile = ["*", "**a ", "_a ", "`", "[", "[a](", "![", "$a ", "\\(", "> ", "- ", "|", "| a\n|-\n", "~~~", "```\n", "#", "1. ", "~", "\\[\n", "$$\n", "(", "https://", "<br", "\n", " ", "***", "`a``"].map((part) => part.repeat(n / part.length));
  hostile.push(`[a](${" ".repeat(n)})`, `${"[".repeat(n)}]`, `\`\`\`${" ".repeat(n)}\``, `${"~".repeat(n)}\``, Array.from({ length: 300 }, (_, i) => "`".repeat(i + 1)).join(" "),
    Array.from({ length: 400 }, (_, i) => `${" ".repeat(i)}- x`).join("\n"));
  for (const text of hostile) {
    const began = process.cpuUsage();
    const blocks = blocksOf(text);
    const ms = process.cpuUsage(began).user / 1000; // of a processor, whatever else runs beside it; what is quadratic takes minutes
    assert.ok(ms < 10_000, `${JSON.stringify(text.slice(0, 12))}: ${ms.toFixed(0)} ms`);
    const depth = (value) => (Array.isArray(value) ? Math.max(0, ...value.slice(0, 50).map(depth)) : value && typeof value === "object" ? 1 + Math.max(0, ...Object.values(value).map(depth)) : 0);
    assert.ok(depth(blocks) < 40, JSON.stringify(text.slice(0, 12)));
  }
});

test("code by its language: every character once; what is not known stays plain", () => {
  const shown = (text, language) => partsOf(text, language).map(({ kind, text: part }) => (kind === "plain" ? part : `<${kind[0]}:${part}>`)).join("");
  assert.equal(shown("int x = 0x1f; // no\n", "c"), "<w:int> x = <n:0x1f>; <c:// no>\n");
  assert.equal(shown('def f(a): return "x\\"y" # no', "python"), '<w:def> f(a): <w:return> <s:"x\\"y"> <c:# no>');
  assert.equal(shown("SELECT a FROM b -- no", "sql"), "<w:SELECT> a <w:FROM> b <c:-- no>");
  assert.equal(shown("classy $if if", "js"), "classy $if <w:if>");
  assert.equal(shown("if x", "unknown"), "if x");
  for (const language of ["c", "python", "sql", "html", "unknown"])
    for (const text of ['"""', "'", '"'.repeat(9_999), "/*".repeat(9_999), '"""'.repeat(9_999), "'''a".repeat(5_000), "0x".repeat(9_999), "if ".repeat(9_999), "<!--".repeat(9_999), "\\", `"\\${"x".repeat(20_000)}`]) {
      const began = process.cpuUsage();
      assert.equal(partsOf(text, language).map((part) => part.text).join(""), text);
      assert.ok(process.cpuUsage(began).user < 5e6, `${language}: ${text.slice(0, 9)}`); // of a processor; what is quadratic takes minutes
    }
});
