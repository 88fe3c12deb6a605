// What the page says while it waits for a machine that was given a ticket, or a browser that was given a link.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";
import { node, snapshot } from "./records.mjs";

const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");
const { admits, joinedSince, joiningText, leavingText, lendLink, memberIds, shownLends, tabNames, usesText } = await load("state/joining.ts");
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

const at = Date.parse("2026-11-20T14:00:00Z");
const lend = (more = {}) => ({ lend_id: "l1", name: "phones", made_by: "owner", uses: 2, used: 0, node_ids: [], created_at: "2026-11-20T13:30:00Z",
  expires_at: "2026-11-20T14:30:00Z", revoked_at: null, ...more });
const fresh = lend(), taken = lend({ used: 2, node_ids: ["b1", "b2"] }), late = lend({ expires_at: "2026-11-20T14:00:00Z" }),
  revoked = lend({ revoked_at: "2026-11-20T13:40:00Z" }), spent = lend({ used: 2 });

test("the link is at the address by which others reach the page, and says who can open it", () => {
  const made = { token: "exolend_x", url: "https://10.0.0.2:52415/lend#token=exolend_x" };
  const local = { ...made, url: "http://127.0.0.1:52415/lend#token=exolend_x" };
  assert.deepEqual(lendLink(made, "https://gpu.example.org"), { link: "https://gpu.example.org/lend#token=exolend_x", reach: "others" });
  assert.deepEqual(lendLink(made, "https://127.0.0.1:52415"), { link: made.url, reach: "others" }, "by loopback the server knows it");
  assert.deepEqual(lendLink(local, "http://127.0.0.1:52415"), { link: local.url, reach: "here" });
  assert.deepEqual(lendLink(local, "https://gpu.example.org"), { link: "https://gpu.example.org/lend#token=exolend_x", reach: "others" }, "a proxy speaks TLS");
  assert.equal(lendLink(local, "http://gpu.example.org").reach, "insecure");
});

test("a link is listed while it admits somebody, and as long as somebody who joined with it is there", () => {
  assert.deepEqual([fresh, taken, late, revoked, spent].map((one) => admits(one, at)), [true, false, false, false, false]);
  assert.deepEqual(shownLends([fresh, taken, late, revoked, spent], at), [fresh, taken]);
  assert.deepEqual([fresh, lend({ used: 1 }), taken, late].map((one) => usesText(one, at)), ["2 of 2 uses left", "1 of 2 uses left", "used up", "expired"]);
});

test("who has joined with a link, and who leaves when it is revoked", () => {
  const state = stateOf(node("b2", { name: "tablet", kind: "browser" }), node("b1", { name: "phone", kind: "browser" }), node("b3", { kind: "browser" }));
  assert.deepEqual(tabNames(state, taken), ["phone", "tablet"]);
  assert.deepEqual(tabNames(state, lend({ node_ids: ["b1", "b9"] })), ["phone"]);
  assert.deepEqual(tabNames(state, undefined), []);
  assert.equal(joiningText([], 2, "device"), "Waiting for up to 2 devices …");
  assert.equal(leavingText([], 0), "No browser has joined with it.");
  assert.equal(leavingText(["phone"], 1), "1 device leaves at once: phone. What sessions hold there is lost.");
  assert.equal(leavingText(["phone"], 2), "2 devices leave at once. What sessions hold there is lost.");
});
