// A device's heat policy, in words, and what is wrong with one that somebody has typed.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { heatActions, policyFault, resumeText, targetText } = await load("state/policy.ts");

const usual = { device_id: "d", margin_celsius: 5, resume_celsius: 10, actions: ["limit", "step_down", "move", "pause"] };

test("the target and where models are free again, with and without a limit that is reported", () => {
  assert.equal(targetText(usual, 90), "85 °C, 5 °C under its limit");
  assert.equal(resumeText(usual, 90), "75 °C");
  assert.equal(targetText({ ...usual, margin_celsius: 2.5 }, 90), "87.5 °C, 2.5 °C under its limit");
  assert.equal(targetText(usual, null), "5 °C under its limit, which it does not report");
  assert.equal(resumeText(usual, null), "10 °C under that");
});

test("all actions are named, in the order in which they are taken", () => {
  assert.deepEqual(heatActions.map((one) => one.action), usual.actions);
});

test("a policy that the server would refuse is not sent", () => {
  assert.equal(policyFault(5, 10, usual.actions), null);
  assert.equal(policyFault(1, 40, []), null);
  for (const value of [0, 41, NaN]) {
    assert.match(policyFault(value, 10, []), /^The margin is between 1 and 40 °C/);
    assert.match(policyFault(5, value, []), /^The way to cool is between 1 and 40 °C/);
  }
  for (const actions of [["move"], ["step_down"], ["step_down", "move"]]) assert.match(policyFault(5, 10, actions), /tick Less load or Pause/);
  assert.equal(policyFault(5, 10, ["move", "pause"]), null);
});
