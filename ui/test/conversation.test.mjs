// Conversations with branches, read from outside, and as files.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { grow, shownPath, showBranch, followers, pathTo, turnsAt, leafOf, importFrom, importInto, tooLarge, exportOf, conversationFrom, textOf, fromText,
  parseConversations, printConversations, attachedFrom, withFiles, contextUsed } = await load("state/conversation/branches.ts", "state/conversation/file.ts",
  "state/conversation/read.ts", "state/conversation/storage.ts", "state/conversation/attach.ts", "state/keeping.ts", "state/chat.ts");

const user = (text) => ({ role: "user", text }), model = (text) => ({ role: "assistant", text });
const shown = (one) => turnsAt(one.turns, shownPath(one)).map(({ text }) => text);
const begun = () => {
  let one = { id: "a", at: 1, system: "", turns: [] };
  for (const turn of [user("q1"), model("a1"), user("q2"), model("a2")]) one = grow(one, leafOf(one), turn);
  return one;
};

test("turns one after the other are as they were before there were branches", () => {
  const one = begun();
  assert.deepEqual(one, { id: "a", at: 1, system: "", turns: [user("q1"), model("a1"), user("q2"), model("a2")] });
  assert.deepEqual(shown(one), ["q1", "a1", "q2", "a2"]);
});

test("an edited question or another answer keeps what was, and each version leads to its own end", () => {
  let one = begun();
  one = grow(one, 2, model("a2 again")); // another answer to q2: place 4
  assert.deepEqual(shown(one), ["q1", "a1", "q2", "a2 again"]);
  one = grow(one, -1, user("q1 edited")); // place 5
  one = grow(one, leafOf(one), model("b1"));
  assert.deepEqual(shown(one), ["q1 edited", "b1"]);
  assert.deepEqual(followers(one.turns).get(-1), [0, 5]);
  assert.deepEqual(followers(one.turns).get(2), [3, 4]);
  const first = showBranch(one, 0);
  assert.deepEqual(shown(first), ["q1", "a1", "q2", "a2 again"], "the newest end of that version");
  assert.deepEqual(shown(showBranch(first, 3)), ["q1", "a1", "q2", "a2"]);
  assert.deepEqual(shown(grow(showBranch(first, 3), 3, user("on"))), ["q1", "a1", "q2", "a2", "on"]);
  assert.equal(showBranch(first, 5).leaf, undefined, "the last of all needs no mark");
  assert.deepEqual(pathTo(one.turns, 4), [0, 1, 2, 4]);
  assert.equal(one.turns.length, 7, "nothing is lost");
});

test("branches survive the browser's storage, the server's copy and a file", async () => {
  const one = showBranch(grow(grow(begun(), 2, model("a2 again")), -1, user("q1 edited")), 3);
  assert.equal(one.leaf, 3);
  assert.deepEqual(parseConversations(printConversations([one])), [one]);
  assert.deepEqual(fromText("a", textOf(one)), one);
  assert.equal(textOf(fromText("a", textOf(one))), textOf(one), "or each round would send it again");
  const [back] = importFrom(await exportOf([one]).text());
  assert.deepEqual(back, one);
  assert.deepEqual(importInto([], [back], 5).added, [one]);
});

test("what does not hold together is no conversation, and members that nobody knows are left out", () => {
  const one = begun();
  for (const wrong of [null, 7, [], "x", { ...one, at: "1" }, { ...one, at: NaN }, { ...one, turns: {} }, { ...one, leaf: 4 }, { ...one, leaf: -1 }, { ...one, leaf: 0.5 },
    { ...one, turns: [{ ...user("q"), after: 0 }] }, { ...one, turns: [{ ...user("q"), after: -2 }] }, { ...one, turns: [user("q"), { ...model("a"), after: 1 }] },
    { ...one, turns: [{ ...model("a"), figures: { firstMs: 1, restMs: 1, tokens: "many", promptTokens: 1, reason: null } }] },
    { ...one, turns: [{ ...model("a"), figures: {} }] }, { ...one, turns: [{ ...model("a"), model: 1 }] }, { ...one, turns: Array(20_001).fill(user("")) }])
    assert.equal(conversationFrom(wrong), null, JSON.stringify(wrong)?.slice(0, 100));
  const more = JSON.parse('{"id":"a","at":1,"system":"","__proto__":{"x":1},"hidden":true,"turns":[{"role":"user","text":"q","html":"<b>"}]}');
  const read = conversationFrom(more);
  assert.deepEqual(read, { id: "a", at: 1, system: "", turns: [user("q")] });
  assert.equal(read.x, undefined);
});

test("a file that is not ours is refused in words, whatever is in it, and nothing of it is taken", () => {
  const said = (text) => importFrom(text).what;
  assert.match(said("<html>"), /^This file is not JSON$/);
  assert.match(said("[".repeat(200_000)), /not JSON/);
  for (const text of ["null", "7", "[]", "{}", '{"conversations":{}}', '{"conversations":null}', '{"__proto__":{"conversations":[]}}']) assert.match(said(text), /holds no conversation/, text);
  assert.match(said('{"conversations":[]}'), /list is empty/);
  assert.match(said(JSON.stringify({ conversations: Array(101).fill(begun()) })), /101 conversations; at most 100/);
  const two = importFrom(JSON.stringify({ conversations: [begun(), { ...begun(), turns: [{ role: "system", text: "obey" }] }] }));
  assert.match(two.what, /^Conversation 2 of 2 in this file is not as the Playground writes it; nothing was imported$/);
  assert.match(two.hint, /Export/);
  assert.equal(tooLarge(8 * 1024 * 1024), null);
  assert.match(tooLarge(8 * 1024 * 1024 + 1).what, /9 MiB; at most 8 MiB/);
});

test("an import changes nothing that is here: the same is known, another under the same id becomes a copy", () => {
  const here = [begun()], other = { ...begun(), turns: [user("else")] };
  assert.deepEqual(importInto(here, [begun()], 5), { added: [], known: 1 });
  const { added, known } = importInto(here, [{ ...other, kept: { token: "t", version: 9, mark: "m", until: 1 } }, { ...begun(), id: "../../x" }, { ...begun(), id: "b", at: 1e300 }], 5);
  assert.equal(known, 1, "the same under another id");
  assert.deepEqual(added.map((one) => one.at), [5, 1], "none is from the future");
  assert.deepEqual(added.map((one) => one.id === "b"), [true, false]);
  assert.deepEqual(importInto([...here, ...added], [other], 5), { added: [], known: 1 }, "nor does a copy come twice");
  const [renamed] = importInto([], [{ ...begun(), id: "../../x" }], 5).added;
  assert.match(renamed.id, /^[0-9A-Za-z-]{1,64}$/);
  for (const one of added) assert.match(one.id, /^[0-9A-Za-z_-]{1,64}$/);
  assert.ok(added.every((one) => one.kept === undefined && one.id !== "a"));
  const twice = importInto([], [begun(), other, { ...begun(), id: "e", turns: [] }], 5).added;
  assert.equal(new Set(twice.map((one) => one.id)).size, 2, "nor do two of the file become one");
});

test("files go with a message between fences that none of their lines closes; what is no text is refused", () => {
  const bytes = (text) => new TextEncoder().encode(text);
  assert.deepEqual(attachedFrom("a.py", bytes("x = 1\n")), { name: "a.py", text: "x = 1\n" });
  assert.match(attachedFrom("a.png", new Uint8Array([0x89, 0x50, 0xff])), /not text in UTF-8/);
  assert.match(attachedFrom("a.bin", bytes("a\0b")), /not text/);
  assert.match(attachedFrom("a.txt", new Uint8Array(256 * 1024 + 1)), /257 KiB; a file of at most 256 KiB/);
  assert.equal(withFiles("Look:", [{ name: "a.py", text: "x = 1\n" }]), "Look:\n\na.py:\n```py\nx = 1\n```");
  assert.equal(withFiles("", [{ name: "b", text: "````\nno\n````" }]), "b:\n`````\n````\nno\n````\n`````");
  assert.equal(withFiles("only this", []), "only this");
});

test("the context that is used is that of the last answer", () => {
  const figures = { firstMs: 1, restMs: 1, tokens: 5, promptTokens: 20, reason: "stop" };
  assert.equal(contextUsed([user("q"), { ...model("a"), figures }, user("q")]), 25);
  assert.equal(contextUsed([user("q"), { ...model("a"), figures: { ...figures, promptTokens: null } }]), null);
  assert.equal(contextUsed([user("q")]), null);
});

test("10,000 turns are read, printed and followed in a moment", () => {
  let one = { id: "a", at: 1, system: "", turns: Array.from({ length: 10_000 }, (_, i) => (i % 2 ? model : user)(`turn ${i}`)) };
  const began = process.cpuUsage();
  one = parseConversations(printConversations([one]))[0];
  one = grow(one, 4_998, model("in the middle"));
  assert.equal(shownPath(one).length, 5_000);
  assert.equal(shownPath(showBranch(one, 4_999)).length, 10_000);
  assert.ok(process.cpuUsage(began).user < 2e6, "a screen's turn, not a search for each turn");
});
