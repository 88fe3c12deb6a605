// Toasts: what waits, what is offered, and what becomes of it.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { load } from "./load.mjs";

const { FLUSH_MS, OFFER_MS, WAIT_MS, announced, count, dismiss, flush, hasten, isAsked, later, offer, toasts, undo, undoNewest } =
  await load("command/toasts.ts");

let done, refusal;
const run = (key) => async () => {
  done.push(key);
  return refusal;
};
const wish = (key) => ({ key, text: `${key} stops`, note: "Its memory is freed then.", act: "Stop", busy: `Stopping ${key}`, run: run(key) });
const drained = (key) => ({ key, text: `${key} is draining`, note: "It gets no new work.", busy: `Returning ${key}`, undo: run(`undo ${key}`) });
const stages = () => toasts.value.map((one) => `${one.key} ${one.stage}`);
const pass = (ms) => {
  for (let left = ms; left > 0; left -= 250) count(Math.min(left, 250));
};

beforeEach(() => {
  done = [];
  refusal = null;
  for (const { key } of toasts.value) dismiss(key);
});

test("a wish waits for its time and is done then, once", async () => {
  later(wish("a"));
  assert.equal(announced.value, "a stops in 5 seconds. Its memory is freed then. Control Z undoes this.");
  pass(WAIT_MS - 1);
  assert.deepEqual([done, stages(), isAsked("a")], [[], ["a waiting"], true]);
  later(wish("a"));
  assert.equal(toasts.value.length, 1, "it is asked for already");
  count(1);
  assert.deepEqual([done, stages(), isAsked("a")], [["a"], ["a busy"], true]);
  pass(WAIT_MS);
  undo("a");
  await flush();
  assert.deepEqual([done, stages(), isAsked("a")], [["a"], [], false]);
});

test("an undone wish is never done, and can be wished again", async () => {
  later(wish("a"));
  pass(2000);
  undo("a");
  assert.equal(announced.value, "Undone: a stops.");
  pass(2 * WAIT_MS);
  await flush();
  assert.deepEqual([done, stages()], [[], []]);
  later(wish("a"));
  assert.equal(toasts.value[0].leftMs, WAIT_MS);
});

test("a page that stood still takes nobody's time to think", () => {
  later(wish("a"));
  count(60_000);
  assert.deepEqual([done, toasts.value[0].leftMs], [[], WAIT_MS - 1000]);
});

test("what is refused stays and says why, until it is closed or wished again", async () => {
  refusal = { what: "it is busy", hint: "wait" };
  later(wish("a"));
  hasten("a");
  await flush();
  assert.deepEqual(toasts.value, [{ stage: "refused", key: "a", text: "Stopping a", refusal }]);
  pass(2 * OFFER_MS);
  assert.deepEqual([stages(), isAsked("a"), undoNewest()], [["a refused"], false, false]);
  refusal = null;
  later(wish("a"));
  assert.deepEqual(stages(), ["a waiting"]);
});

test("what is done already offers its opposite for a while", async () => {
  offer(drained("d"));
  pass(OFFER_MS);
  assert.deepEqual([done, stages()], [[], []], "nothing is undone by itself");
  offer(drained("d"));
  undo("d");
  await flush();
  assert.deepEqual([done, stages()], [["undo d"], []]);
});

test("leaving the page does what waits, and undoes nothing", async () => {
  later(wish("a"));
  offer(drained("d"));
  later(wish("b"));
  const end = flush();
  assert.deepEqual(done, ["a", "b"], "at once, before anything else runs");
  await end;
  assert.deepEqual([done, stages()], [["a", "b"], ["d offered"]]);
});

test("the newest is undone first", async () => {
  offer(drained("d"));
  later(wish("a"));
  assert.deepEqual([undoNewest(), stages()], [true, ["d offered"]]);
  assert.equal(undoNewest(), true);
  await flush();
  assert.deepEqual([undoNewest(), done, stages()], [false, ["undo d"], []]);
});

test("an answer that does not come keeps nobody logged in", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  later({ ...wish("a"), run: () => new Promise(() => {}) });
  let over = false;
  const end = flush().then(() => (over = true));
  t.mock.timers.tick(FLUSH_MS - 1);
  await Promise.resolve();
  assert.equal(over, false);
  t.mock.timers.tick(1);
  await end;
  assert.deepEqual(stages(), ["a busy"]);
});
