// With whom the playground talks while models move, and what it says then; what a drain brings about.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";
import { GIB, allocation, device, instance, model, node, snapshot, stage } from "./records.mjs";

const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");
const { choiceOf, choiceWord, hold, isMoving, moveText } = await load("state/talk.ts");
const { attention } = await load("state/attention.ts");
const { drainText } = await load("state/drain.ts");

const nodes = [node("n1", { name: "atelier" }), node("n2", { name: "kitchen-pc", local: false })];
const devices = (more = {}) => [device("d1", { name: "Fast GPU", ...more }), device("d2", { name: "Small GPU", node_id: "n2" })];
const models = [model("m1", { name: "words" }), model("m2", { name: "other" })];
const stateWith = (more) => ({
  ...reduce(initialState, { type: "snapshot", snapshot: snapshot({ nodes, devices: devices(), models, ...more }) }),
  login: { token_id: "t", name: "admin", scopes: ["admin"], expires_at: null, session_id: "s" },
});
const gone = (to) => [{ first_layer: 0, layer_count: 11, device_id: "d1", to_device_id: to }];
const words = (more = {}) => instance("i1", { model_id: "m1", model_name: "words", stages: [stage("d1"), stage("d2", { first_layer: 11 })], ...more });
const pausedWords = (to, more = {}) => words({ state: "paused", state_reason: "it waits for a place: memory binds", missing: gone(to), ...more });

test("a model that moves during a chat stays the one that is talked to, whatever else is loaded", () => {
  const other = instance("i2", { model_id: "m2", model_name: "other", created_at: "2026-11-20T14:00:00.000Z" });
  const before = stateWith({ instances: [words()] });
  const held = hold(before, "i1", null);
  const moving = stateWith({ instances: [pausedWords("d2"), other] });
  for (const id of ["i1", ""]) {
    const choice = choiceOf(moving, hold(moving, id, held));
    assert.equal(choice.instance.instance_id, "i1");
    assert.deepEqual([choice.model, choice.models.length], [null, 0]);
    assert.deepEqual(choice.instances.map(choiceWord), ["other", "words (moving)"]);
  }
});

test("an instance that is gone stands for its model, and nothing that is loaded is 'not loaded'", () => {
  const held = hold(stateWith({ instances: [words()] }), "i1", null);
  const anew = stateWith({ instances: [{ ...words(), instance_id: "i9" }] });
  assert.equal(choiceOf(anew, hold(anew, "i1", held)).instance.instance_id, "i9");
  const none = stateWith({ instances: [instance("i2", { model_id: "m2", model_name: "other" })] });
  const choice = choiceOf(none, hold(none, "i1", held));
  assert.deepEqual([choice.instance, choice.model.model_id, choice.models.map((one) => one.model_id)], [null, "m1", ["m1"]]);
});

test("with nothing chosen it is one that answers, then one that is paused, then a model to load", () => {
  const first = (instances) => choiceOf(stateWith({ instances }), null);
  assert.equal(first([pausedWords("d2"), instance("i2", { model_id: "m2" })]).instance.instance_id, "i2");
  assert.equal(first([pausedWords("d2")]).instance.instance_id, "i1");
  assert.deepEqual([first([]).instance, first([]).model !== null], [null, true]);
});

test("what happens to a model is said in its place", () => {
  const say = (one, more = {}) => moveText(stateWith({ instances: [one], ...more }), one);
  const draining = { devices: devices({ draining: true, state: "draining" }) };
  assert.equal(say(words()), null);
  assert.equal(say(pausedWords("d2"), draining), "Fast GPU of atelier is draining; continuing on Small GPU of kitchen-pc. No text is lost: answers continue where they stopped.");
  const cut = { nodes: [node("n1", { name: "atelier", state: "offline" }), nodes[1]] };
  assert.match(say(pausedWords("d2"), cut), /^Fast GPU of atelier is offline; continuing on Small GPU of kitchen-pc\./);
  assert.match(say(pausedWords("d2", { state_reason: "its worker ended" })), /^Its worker ended\. It continues on Small GPU of kitchen-pc\./);
  assert.match(say(pausedWords(null), draining), /^Fast GPU of atelier is draining\. It waits for a place: memory binds\. No text is lost/);
  assert.equal(say(words(), draining), "Fast GPU of atelier is draining; searching for a place for words on other devices.");
  assert.match(say(words({ state_reason: "there is no other place: memory binds" }), draining), /There is no other place: memory binds\. Answers that have begun are finished here; new requests are refused\.$/);
  assert.deepEqual([isMoving(pausedWords("d2")), isMoving(pausedWords(null)), isMoving(words())], [true, false, false]);
});

test("the Overview says of a model that moves where it goes, and not that it waits for room", () => {
  const of = (one) => attention(stateWith({ instances: [one], devices: devices({ draining: true, state: "draining" }) }))[0];
  assert.deepEqual([of(pausedWords("d2")).title, of(pausedWords(null)).title], ["words is moving", "words is paused"]);
  assert.match(of(pausedWords("d2")).text, /^Fast GPU of atelier is draining; continuing on Small GPU of kitchen-pc\./);
  assert.doesNotMatch(of(pausedWords("d2")).text, /once it has room/);
  assert.match(of(pausedWords(null)).text, /continue by themselves once it has room\.$/);
});

test("a drain is announced as what it is: models move, and what sessions hold stays", () => {
  const text = (more) => drainText(stateWith(more), "d1").join(" ");
  assert.equal(text({}), "It gets no new work. The device stays drained, also after a restart, until you return it to service.");
  assert.match(text({ instances: [words()] }), /words moves to other devices, if they have room\. Its answers wait meanwhile and continue there\./);
  assert.doesNotMatch(text({ instances: [words()] }), /goes on to its end/);
  assert.match(text({ instances: [words(), instance("i2", { model_name: "other", model_id: "m2" })] }), /words, other move to other devices/);
  assert.match(text({ allocations: [allocation("a1", { bytes: GIB }), allocation("a2", { bytes: GIB })] }), /2 allocations of sessions, 2\.0 GiB, stay here until they are freed\./);
});
