// What the search of the whole page (Ctrl-K) finds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";
import { device, instance, model, node, snapshot } from "./records.mjs";

const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");
const { FOUND_MAX, find } = await load("state/find.ts");
const { pages } = await load("lib/pages.ts");

const state = reduce(initialState, {
  type: "snapshot",
  snapshot: snapshot({
    nodes: [node("n1", { name: "atelier" }), node("n2", { name: "kitchen-pc", local: false })],
    devices: [device("d1", { name: "H200" }), device("d2", { name: "Radeon Pro", node_id: "n2", backend: "vulkan" })],
    models: [model("m1", { name: "qwen3-8b" })],
    instances: [instance("i1", { model_id: "m1" })],
  }),
});
const names = (typed) => find(state, typed).map((one) => one.name);

test("a name, the start of a word, or what stands beside it", () => {
  assert.equal(names("atel")[0], "atelier");
  assert.equal(names("pro")[0], "Radeon Pro");
  assert.deepEqual(names("radeon kitchen"), ["Radeon Pro"], "every word counts, also the machine's");
  assert.deepEqual(names("QWEN").sort(), ["Chat with qwen3-8b", "qwen3-8b"]);
  assert.deepEqual(names("no such thing"), []);
});

test("each leads to its page, and what is done is told by name", () => {
  const first = (typed) => find(state, typed)[0];
  assert.equal(first("kitchen").go.href, "#/nodes/n2");
  assert.equal(first("h200").go.href, "#/devices/d1");
  assert.equal(first("chat qwen").go.href, "#/playground/i1");
  assert.equal(first("dark").go.act, "theme");
  for (const { page, name } of pages) assert.ok(find(state, name).some((one) => one.go.href === `#/${page}`), name);
});

test("tokens that are not revoked, by their name or id; not before something is typed", () => {
  const tokens = [{ token_id: "tok0123456", name: "laptop", scopes: ["infer"], revoked_at: null }, { token_id: "tok6543210", name: "lost laptop", scopes: ["admin"], revoked_at: "2026-01-01T00:00:00Z" }];
  const found = (typed) => find(state, typed, tokens).filter(({ kind }) => kind === "token").map(({ name }) => name);
  assert.deepEqual([found("lap"), found("tok012"), found("")], [["laptop"], ["laptop"], []]);
});

test("nothing typed: machines first; never more than can be looked over", () => {
  assert.equal(find(state, " ")[0].kind, "machine");
  assert.deepEqual([names("").includes("Log out"), names("log o").includes("Log out")], [false, true], "only who asks for it logs out");
  const many = reduce(state, { type: "snapshot", snapshot: snapshot({ devices: Array.from({ length: 40 }, (_, i) => device(`x${i}`)) }) });
  assert.equal(find(many, "x").length, FOUND_MAX);
});
