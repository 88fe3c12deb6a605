import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { raisedBy } = await load("state/news.ts");
const { initialState } = await load("state/state.ts");

const alert = { alert_id: "a1", severity: "warning", cleared_at: null, acknowledged_at: null };
const event = (one, topic = "alerts") => ({ type: "event", now: 1, event: { topic, epoch: "e", seq: 1, at: "1970-01-01T00:00:00.000Z", data: { alert: one } } });

test("an alert is told once, when it is raised", () => {
  assert.equal(raisedBy(initialState, event(alert)), alert);
  const known = { ...initialState, alerts: { a1: alert } };
  assert.equal(raisedBy(known, event(alert)), null, "one that is known, such as after a reconnect");
  assert.equal(raisedBy(initialState, event({ ...alert, severity: "info" })), null);
  assert.equal(raisedBy(initialState, event({ ...alert, cleared_at: "1970-01-01T00:00:01.000Z" })), null);
  assert.equal(raisedBy(initialState, event({ ...alert, acknowledged_at: "1970-01-01T00:00:01.000Z" })), null);
  assert.equal(raisedBy(initialState, event(alert, "audit")), null);
  assert.equal(raisedBy(initialState, { type: "heard", now: 1 }), null);
});
