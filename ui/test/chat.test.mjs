// The playground's words on how tokens are drawn.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";
import { samplingByDefault } from "./records.mjs";

const { sourceOf } = await load("state/chat.ts");
const by = (from, value) => ({ value, from });

test("who recommends what a person leaves empty", () => {
  assert.equal(sourceOf(samplingByDefault), "A field left empty has the value shown in grey: all by default.");
  assert.equal(
    sourceOf({ ...samplingByDefault, temperature: by("model", 0.2), top_p: by("model", 0.9), top_k: by("instance", 5) }),
    "A field left empty has the value shown in grey: temperature, top p by the model's authors; top k as it was loaded with; the others by default.",
  );
});
