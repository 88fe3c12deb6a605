// The catalogue: what its entries say, which is recommended, and what follows on the way to a conversation.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";
import { GIB, instance, model } from "./records.mjs";

const { initialState } = await load("state/state.ts");
const catalog = await load("state/catalog.ts");
const { nextStep } = await load("command/start.ts");

const entry = (id, more = {}) => ({ id, name: id, publisher: "p", licence: "mit", languages: "English", good_at: "this", source: `hf:o/r/${id}.gguf`,
  repository: "o/r", revision: null, file: `${id}.gguf`, bytes: GIB, sha256: null, format: "Q8_0", family: "llama", task: "text", parameters: 1e9, context: 4096,
  read: [], unverified: [], fits: "device", why: "a GPU", missing_bytes: null, predicted_tokens_per_s: 20, state: "absent", model_id: null, ...more });

test("what an entry is; what could not be read is said to be unverified", () => {
  assert.equal(catalog.entryFacts(entry("a")), "1.0 B parameters · 1.0 GiB · mit · English");
  assert.equal(catalog.entryFacts(entry("a", { languages: "more than 100" })), "1.0 B parameters · 1.0 GiB · mit · more than 100 languages");
  assert.equal(catalog.entryFacts(entry("a", { languages: "201 languages and dialects" })), "1.0 B parameters · 1.0 GiB · mit · 201 languages and dialects");
  assert.equal(catalog.entryFacts(entry("a", { parameters: null, bytes: null, licence: null, languages: null })),
    "parameters unverified · size unverified · licence unverified · languages unverified");
});

test("whether it fits, how fast it would be, or what is missing", () => {
  assert.equal(catalog.fitText(entry("a")), "fits, about 20 tokens/s here");
  assert.equal(catalog.fitText(entry("a", { predicted_tokens_per_s: 3.14 })), "fits, about 3.1 tokens/s here");
  assert.equal(catalog.fitText(entry("a", { predicted_tokens_per_s: null })), "fits, speed not known before it is loaded");
  assert.equal(catalog.fitText(entry("a", { fits: "devices" })), "fits across several devices, about 20 tokens/s here");
  assert.equal(catalog.fitText(entry("a", { fits: "no", missing_bytes: 3 * GIB })), "needs 3.0 GiB more memory");
  assert.equal(catalog.fitText(entry("a", { fits: "no" })), "does not fit here");
  assert.equal(catalog.fitText(entry("a", { fits: "unknown", why: "there is no device" })), "not known: there is no device");
});

test("recommended is the largest that is fast enough to read along and soon here, else the fastest", () => {
  const all = [entry("tiny", { parameters: 1e8, predicted_tokens_per_s: 200 }), entry("good", { parameters: 4e9, predicted_tokens_per_s: 12 }),
    entry("slow", { parameters: 8e9, predicted_tokens_per_s: 4 }), entry("huge", { parameters: 3e10, predicted_tokens_per_s: 15, bytes: 20 * GIB }),
    entry("vectors", { task: "embedding", parameters: 5e9 }), entry("much", { parameters: 5e9, fits: "no" })];
  assert.equal(catalog.recommended(all).id, "good");
  assert.equal(catalog.recommended([all[2], entry("slower", { predicted_tokens_per_s: 2 })]).id, "slow");
  assert.equal(catalog.recommended([all[4], all[5]]), null);
  assert.deepEqual(catalog.firstFew(all, 3).map((one) => one.id), ["good", "tiny", "huge"]);
  assert.deepEqual(catalog.firstFew([all[5], all[4]], 1).map((one) => one.id), ["much"]);
});

test("an entry goes with the model and the instance of its source", () => {
  const source = entry("a").source;
  const state = { ...initialState, models: { m1: model("m1", { source }) },
    instances: { i1: instance("i1", { model_id: "m1", state: "failed" }), i2: instance("i2", { model_id: "m1", state: "running" }) } };
  const [one, other] = catalog.offers(state, [entry("a"), entry("b")]);
  assert.deepEqual([one.model.model_id, one.instance.instance_id], ["m1", "i2"]);
  assert.deepEqual([other.model, other.instance], [null, null]);
  assert.ok(catalog.offerWords(one).includes("running") && catalog.offerWords(other).includes(entry("b").name), "what a filter looks at");
  const another = (own, described) => catalog.isAnother({ entry: entry("a", { sha256: described }), model: model("m1", { sha256: own }), instance: null });
  assert.deepEqual([another("a".repeat(64), "b".repeat(64)), another("a".repeat(64), "a".repeat(64)), another(null, "a".repeat(64)), another("a".repeat(64), null)],
    [true, false, false, false], "a file of another hash is told");
});

test("on the way to a conversation: wait, load, wait, open; and it ends where it cannot go on", () => {
  const source = "hf:o/r/a.gguf";
  const state = (one, ...all) => ({ ...initialState, models: one ? { m1: model("m1", { source, ...one }) } : {},
    instances: Object.fromEntries(all.map((each, i) => [`i${i}`, instance(`i${i}`, { model_id: "m1", ...each })])) });
  assert.equal(nextStep(state(null), source).do, "end", "given up");
  assert.equal(nextStep(state({ state: "downloading" }), source).do, "wait");
  assert.equal(nextStep(state({ state: "failed" }), source).do, "end");
  assert.deepEqual(nextStep(state({ state: "ready" }), source), { do: "load", model_id: "m1", instance_id: "" });
  assert.equal(nextStep(state({ state: "ready" }, { state: "starting" }), source).do, "wait");
  assert.deepEqual(nextStep(state({ state: "ready" }, { state: "running" }), source), { do: "open", model_id: "m1", instance_id: "i0" });
  assert.equal(nextStep(state({ state: "ready" }, { state: "failed" }), source).do, "end");
});
