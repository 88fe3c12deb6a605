/* The proof that a log continues another: RFC 6962's tree, built the plain way here. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { load } from "./load.mjs";

const { continues } = await load("lib/merkle.ts");
const sha = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();
const leaves = Array.from({ length: 70 }, (_, i) => sha(Buffer.from([0]), Buffer.from(`entry ${i}`)));
const largest = (n) => 2 ** Math.floor(Math.log2(n - 1));
function root(list) {
  if (list.length === 0) return sha();
  if (list.length === 1) return list[0];
  const k = largest(list.length);
  return sha(Buffer.from([1]), root(list.slice(0, k)), root(list.slice(k)));
}
/** RFC 6962, 2.1.2 */
function prove(m, list, whole = true) {
  if (m === list.length) return whole ? [] : [root(list)];
  const k = largest(list.length);
  return m <= k
    ? [...prove(m, list.slice(0, k), whole), root(list.slice(k))]
    : [...prove(m - k, list.slice(k), false), root(list.slice(0, k))];
}
const text = (hash) => hash.toString("base64");
const head = (size) => ({ size, root: text(root(leaves.slice(0, size))) });
const proof = (from, to) => prove(from, leaves.slice(0, to)).map(text);

test("every size up to 70 continues every smaller one", async () => {
  for (let to = 1; to <= leaves.length; to++)
    for (let from = 1; from <= to; from++)
      assert.ok(await continues(head(from), head(to), from === to ? [] : proof(from, to)), `${from} to ${to}`);
});

test("nothing else is believed", async () => {
  for (const [from, to] of [[1, 2], [3, 7], [8, 9], [8, 16], [33, 70], [64, 70]]) {
    const good = proof(from, to);
    const other = { size: from, root: text(sha(Buffer.from("other"))) };
    assert.equal(await continues(other, head(to), good), false, "another past");
    assert.equal(await continues(head(from), { ...other, size: to }, good), false, "another present");
    assert.equal(await continues(head(to), head(from), good), false, "shorter");
    assert.equal(await continues(head(from), head(to), []), false, "no proof");
    for (let i = 0; i < good.length; i++) {
      const hash = Buffer.from(good[i], "base64");
      hash[i % 32] ^= 1 << i % 8;
      assert.equal(await continues(head(from), head(to), good.map((one, at) => (at === i ? text(hash) : one))), false, `hash ${i} changed`);
      assert.equal(await continues(head(from), head(to), good.filter((_, at) => at !== i)), false, `hash ${i} left out`);
      assert.equal(await continues(head(from), head(to), good.flatMap((one, at) => (at === i ? [one, one] : [one]))), false, `hash ${i} twice`);
    }
  }
  assert.equal(await continues(head(5), { ...head(6), size: 5 }, []), false, "two logs of one size");
});
