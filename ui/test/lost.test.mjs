// What a page without a connection says of what ran on the server.
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { lostText } = await load("state/lost.ts");

test("of a server that has stopped the page does not say that its models go on", () => {
  const text = lostText("shutdown", "14:31:52");
  assert.match(text, /^The server has shut down\. What you see is from 14:31:52\. Answers and sessions have ended with it\./);
  assert.doesNotMatch(text, /go on|goes on/);
});

test("where nobody knows whether it has stopped, both are said", () => {
  assert.match(lostText("gone", "14:31:52"), /If only the connection is lost, models and sessions go on there\. If the server has stopped,/);
});

test("where only this page's connection was closed, what runs goes on", () => {
  for (const cause of ["slow", "rate", "too_big"]) assert.match(lostText(cause, "14:31:52"), /Models and sessions go on there\./);
});

test("before anything has come it asks whether the address is right", () => {
  assert.match(lostText("gone", null), /^Nothing has come from it yet\./);
});
