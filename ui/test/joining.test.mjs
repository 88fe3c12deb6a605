// What the page says while it waits for a machine that was given a ticket.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";
import { node, snapshot } from "./records.mjs";

const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");
const { joinedSince, joiningText, memberIds } = await load("state/joining.ts");
const stateOf = (...nodes) => reduce(initialState, { type: "snapshot", snapshot: snapshot({ nodes, devices: [] }) });

test("who has joined since: not one that only asks to", () => {
  const before = memberIds(stateOf(node("n1"), node("n9", { state: "pending" })));
  const after = stateOf(node("n1"), node("n3", { name: "loft" }), node("n2", { name: "garage" }), node("n4", { state: "pending" }), node("n9", { name: "attic" }));
  assert.deepEqual(joinedSince(after, before), ["attic", "garage", "loft"], "one that was let in meanwhile has joined, too");
});

test("it waits until all have come that the ticket admits", () => {
  assert.equal(joiningText([], 1), "Waiting for it …");
  assert.equal(joiningText(["garage"], 1), "garage has joined.");
  assert.equal(joiningText([], 5), "Waiting for up to 5 machines …");
  assert.equal(joiningText(["a", "b"], 5), "a, b have joined. Waiting for up to 3 more …");
});
