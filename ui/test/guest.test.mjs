// What the page tells somebody who may only use models.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");
const { guestModel, guestModels, guestText, guestWord, isGuest, takesMessages } = await load("state/guest.ts");

const model = (name, more = {}) => ({ name, task: "text", state: "ready", since: null, until: null, chat: true, progress: null, sampling: null, ...more });
const status = (...models) => ({ load_on_demand: false, models });
const states = ["ready", "leaving", "moving", "paused", "starting", "not_loaded"];

test("who is a guest: one that may use models, and neither observe nor rule", () => {
  const login = (...scopes) => ({ token_id: "t", name: "n", scopes, expires_at: null, session_id: "s" });
  const guests = [["infer"], ["infer", "allocate"], ["observe", "infer"], ["admin"], ["observe"], ["join"]].map((scopes) => isGuest(login(...scopes)));
  assert.deepEqual(guests, [true, true, false, false, false, false]);
  assert.equal(isGuest(null), false);
});

test("the state holds what was told last, and nothing after a logout", () => {
  const told = reduce(initialState, { type: "chat", status: status(model("words")) });
  assert.equal(told.chat.models[0].name, "words");
  assert.equal(reduce(told, { type: "chat", status: status() }).chat.models.length, 0);
  assert.equal(reduce(told, { type: "logged_out" }).chat, null);
});

test("the model that is talked to stays chosen while it moves; one for embeddings is never offered", () => {
  const vectors = model("vectors", { task: "embedding" });
  const before = status(model("words"), model("other"), vectors);
  const moving = status(model("words", { state: "moving" }), model("other"), vectors);
  assert.deepEqual(guestModels(moving).map(guestWord), ["other", "words (moving)"]);
  assert.equal(guestModel(before, null).name, "words");
  assert.equal(guestModel(moving, "words").name, "words");
  assert.equal(guestModel(status(model("other")), "words").name, "other", "it was removed");
  assert.equal(guestModel(status(vectors), null), null);
});

test("each state but ready is told, by the model's name; what a message brings about is true", () => {
  for (const state of states)
    for (const loads of [false, true]) {
      const text = guestText(model("words", { state }), loads);
      assert.equal(text === null, state === "ready");
      if (text) assert.match(text, /^words .*\.$/);
    }
  const takes = (loads) => states.filter((state) => takesMessages(model("words", { state }), loads));
  assert.deepEqual(takes(false), ["ready", "moving", "paused"]);
  assert.deepEqual(takes(true), ["ready", "moving", "paused", "starting", "not_loaded"]);
  assert.match(guestText(model("words", { state: "moving", until: "2026-11-21T12:00:00.000Z" }), false), /moving; the answer goes on .* given up at \d\d:00:00/);
  assert.match(guestText(model("words", { state: "not_loaded" }), false), /Ask an admin/);
});
