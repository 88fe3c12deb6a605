// Spot checks of a browser's results, in words.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { checkShares, checksText, errorText, shareText } = await load("state/checks.ts");

const checks = (changes) => ({ passed: 0, failed: 0, given_up: 0, not_begun: 0, last: null, at: null, largest_error: null, reason: null, ...changes });

test("what came of the last check, and how far off it was", () => {
  for (const [given, words] of [[{}, /None .* compared yet/], [{ last: "passed" }, /passed/], [{ last: "failed" }, /no more layers/],
    [{ last: "given_up" }, /could not be finished/], [{ last: "not_begun" }, /Not checked/]])
    assert.match(checksText(checks(given)), words);
  for (const [error, words] of [[null, null], [0, "0"], [0.00001, "under 0.0001"], [0.00017, "0.00017"], [13.42, "13"]])
    assert.equal(errorText(checks({ largest_error: error })), words);
});

test("the shares that are offered have the one that is set", () => {
  assert.deepEqual(checkShares(1), [0, 1, 5, 10, 25, 100]);
  assert.deepEqual(checkShares(2.5), [0, 1, 2.5, 5, 10, 25, 100]);
  assert.deepEqual([0, 2.5, 100].map(shareText), ["none", "2.5 % of requests", "all requests"]);
});
