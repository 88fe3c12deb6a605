// Models, instances and conversations: what views ask of them, and what comes over the wire.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";
import { GIB, instance, model, snapshot, stage } from "./records.mjs";

const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");
const models = await load("state/models.ts");
const chat = await load("state/chat.ts", "state/conversation/storage.ts");
const { fits } = await load("lib/fits.ts");
const { EventReader } = await load("net/sse.ts");

const event = (seq, data) => ({
  type: "event",
  now: 1,
  event: { topic: "placement", epoch: "e1", seq, at: "2026-11-20T14:31:52.000Z", data: { models: [], removed_models: [], instances: [], removed_instances: [], ...data } },
});

test("models and instances come with the snapshot, change and go with events", () => {
  let state = reduce(initialState, { type: "snapshot", snapshot: snapshot({ models: [model("m1")], instances: [instance("i1")] }) });
  assert.deepEqual([Object.keys(state.models), Object.keys(state.instances)], [["m1"], ["i1"]]);
  state = reduce(state, event(11, { models: [model("m2", { state: "downloading" })], instances: [instance("i1", { state: "stopping" })] }));
  assert.equal(state.instances.i1.state, "stopping");
  assert.deepEqual(models.sortedModels(state.models).map((one) => one.model_id), ["m2", "m1"]);
  state = reduce(state, event(12, { removed_models: ["m2"], removed_instances: ["i1"] }));
  assert.deepEqual([Object.keys(state.models), Object.keys(state.instances)], [["m1"], []]);
  assert.equal(reduce(state, event(12, { removed_models: ["m1"] })), state, "what was applied is not applied again");
});

test("a filter of models looks at name, source, kind and state; of loaded ones also at their devices", () => {
  const state = reduce(initialState, { type: "snapshot", snapshot: snapshot({ models: [model("m1", { name: "small", state: "ready" })], instances: [instance("i1", { model_id: "m1" })] }) });
  const words = models.modelWords(state.models.m1);
  for (const typed of ["SMALL", state.models.m1.source, "llama small"]) assert.ok(fits(typed, words), typed);
  assert.ok(!fits("small mistral", words));
  const { device_id } = state.instances.i1.stages[0];
  assert.ok(fits(device_id, models.instanceWords(state, state.instances.i1)), "where it runs");
});

test("sizes, sources and what is left", () => {
  assert.deepEqual([1_100_048_384, 360_000_000, 405e9, 5000].map(models.parameters), ["1.1 B", "360 M", "405 B", "5,000"]);
  for (const source of ["/a/b.gguf", "hf:a/b/c.gguf", "ollama:x:1b", "https://h/f", "./x.gguf", "~/m.gguf"]) assert.ok(models.isSource(source), source);
  for (const words of ["llama 3", "qwen", "tinyllama-1.1b", ""]) assert.ok(!models.isSource(words), words);
  assert.deepEqual([models.shareDone(1, 4), models.shareDone(1, null), models.shareDone(9, 4)], [25, null, 100]);
  assert.deepEqual([models.secondsLeft(50, 100, 10), models.secondsLeft(50, null, 10), models.secondsLeft(50, 100, 0)], [5, null, null]);
});

test("what is converted on the server", () => {
  assert.ok(models.isConverted("hf:owner/repo/model.safetensors"));
  for (const source of ["hf:owner/repo/a.gguf", "hf:owner/repo", "/a/model.safetensors", "https://h/model.safetensors"])
    assert.ok(!models.isConverted(source), source);
});

test("a device's memory with a stage on it", () => {
  const parts = models.segments(stage("d1", { weights_bytes: 4 * GIB, kv_bytes: GIB, workspace_bytes: GIB }), 24 * GIB, 20 * GIB);
  assert.deepEqual(parts.map(({ kind, bytes }) => [kind, bytes / GIB]), [["other", 4], ["weights", 4], ["kv", 1], ["work", 1], ["free", 14]]);
  const over = models.segments(stage("d1", { weights_bytes: 30 * GIB }), 24 * GIB, null);
  assert.deepEqual([over[0].bytes, over[4].bytes], [0, 0], "what is not reported is not invented, and nothing is negative");
  const unknown = models.segments(stage("d1", { weights_bytes: 4 * GIB }), 24 * GIB, null);
  assert.deepEqual([unknown[0].bytes, unknown[4].bytes], [0, 0], "what is left of it is not known either");
  assert.equal(models.stageParts(stage("d1")), "layers 0 to 21, the embedding and the output");
  assert.equal(models.stageParts(stage("d1", { first_layer: 3, layer_count: 1, embeds: false, predicts: false })), "layer 3");
});

test("slices of a stage stand side by side", () => {
  const whole = stage("d1", { layer_count: 4 });
  const pair = [stage("d2", { first_layer: 4, layer_count: 8 }), stage("d3", { first_layer: 4, layer_count: 8 })];
  const none = [stage("d4", { first_layer: 12, layer_count: 0 }), stage("d5", { first_layer: 12, layer_count: 0 })];
  const all = [whole, ...pair, ...none];
  assert.deepEqual(models.inTurn(all), [[whole], pair, [none[0]], [none[1]]]);
  assert.deepEqual(all.map((one) => models.sliceWord(all, one)), [null, "slice 1 of 2", "slice 2 of 2", null, null]);
});

test("tokens a second of all that tell", () => {
  const all = { a: instance("a", { tokens_per_s: 10 }), b: instance("b", { tokens_per_s: null }), c: instance("c", { tokens_per_s: 5.5 }) };
  assert.equal(models.tokensPerSecond(all), 15.5);
  assert.equal(models.tokensPerSecond({ b: all.b }), null);
});

test("server-sent events, however they are cut", () => {
  const text = 'data: {"a":1}\n\n: a comment\n\ndata: x\ndata: y\r\n\r\ndata:[DONE]\n\n';
  for (let size = 1; size <= text.length; size++) {
    const reader = new EventReader();
    const found = [];
    for (let i = 0; i < text.length; i += size) found.push(...reader.add(text.slice(i, i + size)));
    assert.deepEqual(found, ['{"a":1}', "x\ny", "[DONE]"], `pieces of ${size}`);
  }
  const endless = new EventReader();
  assert.throws(() => {
    for (let i = 0; i < 6; i++) endless.add("x".repeat(1024 * 1024));
  }, /without an end/);
});

test("stop texts are lines, each once, and lines may be told", () => {
  assert.deepEqual(chat.stopsOf("User:\n\n\\n\\n\r\nUser:\n end "), ["User:", "\n\n", " end "]);
  assert.equal(chat.stopsText(["User:", "\n\n"]), "User:\n\\n\\n");
  assert.equal(chat.stopsOf(Array.from({ length: 40 }, (_, i) => `x${i}`).join("\n")).length, 16);
});

test("conversations: kept newest first, bounded, and read back only as they were written", () => {
  const one = (id, at, text = "hello") => ({ id, at, system: "", turns: [{ role: "user", text }] });
  const many = Array.from({ length: 60 }, (_, i) => one(`c${i}`, i));
  const kept = chat.parseConversations(chat.printConversations(many));
  assert.deepEqual([kept.length, kept[0].id], [50, "c59"]);
  const large = chat.parseConversations(chat.printConversations([one("a", 1, "x".repeat(3e6)), one("b", 2, "y")]));
  assert.deepEqual(large.map(({ id }) => id), ["b"], "the oldest goes when they get too large");
  for (const text of [null, "", "{", "7", '[{"id":1}]', '[{"id":"a","at":1,"system":"","turns":[{"role":"root","text":"x"}]}]'])
    assert.deepEqual(chat.parseConversations(text), [], String(text));
  assert.equal(chat.titleOf(one("a", 1, "\n  First line\nsecond")), "First line");
  assert.equal(chat.speedOf({ firstMs: 1, restMs: 1000, tokens: 41, promptTokens: 1, reason: "stop" }), 40);
  assert.equal(chat.speedOf({ firstMs: 1, restMs: 0, tokens: 1, promptTokens: 1, reason: "stop" }), null);
  assert.equal(chat.foreseenText({ proposed: 50, accepted: 31 }), "62 % accepted");
  assert.equal(chat.foreseenText({ proposed: 50, accepted: 0 }), "0 % accepted");
  for (const none of [undefined, { proposed: 0, accepted: 0 }]) assert.equal(chat.foreseenText(none), null);
  assert.equal(chat.speedOf({ firstMs: 24, restMs: 0.4, tokens: 12, promptTokens: 1, reason: "length" }), null);
});
