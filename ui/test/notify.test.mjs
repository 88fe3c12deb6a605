// The browser's own notifications: also where the browser has them in name only, nothing of the page breaks.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { canNotify, notifies, notifying, turnOff, turnOn } = await load("view/alerts/notify.ts");
const { initialState } = await load("state/state.ts");

/** A browser; `make` is what `new Notification` does. */
function browser({ make = () => {}, permission = "granted", ask = async () => permission, secure = true } = {}) {
  const kept = new Map();
  const shown = [];
  class Notification {
    static permission = permission;
    static requestPermission = ask;
    constructor(title, options) {
      make();
      shown.push([title, options.body]);
    }
  }
  globalThis.window = { Notification, isSecureContext: secure };
  globalThis.Notification = Notification;
  globalThis.localStorage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value), removeItem: (key) => kept.delete(key) };
  return { shown };
}
const refuses = { make: () => { throw new TypeError("Illegal constructor. Use ServiceWorkerRegistration.showNotification() instead."); } };

const alert = { alert_id: "a1", severity: "warning", cleared_at: null, acknowledged_at: null, message: "GPU One is hot", hint: "Look at its fan" };
const raised = { type: "event", now: 1, event: { topic: "alerts", epoch: "e", seq: 1, at: "1970-01-01T00:00:00.000Z", data: { alert } } };
function storeOf() {
  const got = [];
  return { got, store: notifying({ current: () => initialState, dispatch: (action) => got.push(action) }) };
}

test("turned on, an alert is shown; turned off, it is not", async () => {
  const { shown } = browser();
  assert.equal(await turnOn(), null);
  assert.equal(shown.length, 1, "the first says that they are on");
  assert.ok(notifies());
  const { got, store } = storeOf();
  store.dispatch(raised);
  assert.deepEqual(shown[1], ["GPU One is hot.", "Look at its fan."]);
  turnOff();
  store.dispatch(raised);
  assert.equal(shown.length, 2);
  assert.equal(got.length, 2);
});

test("a browser that throws says so when it is asked, and loses no alert", async () => {
  browser(refuses);
  assert.match(await turnOn(), /^This browser shows no notifications of a page/);
  assert.equal(notifies(), false);
  localStorage.setItem("exogpu.notify", "yes"); // by an earlier version
  const { got, store } = storeOf();
  store.dispatch(raised);
  assert.deepEqual(got, [raised]);
});

test("one that does not allow them, or cannot be asked, is not turned on", async () => {
  for (const one of [{ permission: "denied" }, { ask: () => { throw new TypeError("no"); } }, { ask: async () => undefined }]) {
    const { shown } = browser(one);
    assert.match(await turnOn(), /does not allow/);
    assert.equal(notifies(), false);
    assert.deepEqual(shown, []);
  }
  browser({ secure: false });
  assert.equal(canNotify(), false);
});
