// The playground's words on how tokens are drawn.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";
import { samplingByDefault } from "./records.mjs";

const { sourceOf, hear, nothingSaid, openCalls, argsText, toolsFault, parseConversations, printConversations } = await load("state/chat.ts", "state/conversation/storage.ts");
const { ask } = await load("command/chat.ts");
const by = (from, value) => ({ value, from });

test("who recommends what a person leaves empty", () => {
  assert.equal(sourceOf(samplingByDefault), "A field left empty has the value shown in grey: all by default.");
  assert.equal(
    sourceOf({ ...samplingByDefault, temperature: by("model", 0.2), top_p: by("model", 0.9), top_k: by("instance", 5) }),
    "A field left empty has the value shown in grey: temperature, top p by the model's authors; top k as it was loaded with; the others by default.",
  );
});

test("an answer is put together from its deltas", () => {
  const deltas = [
    { content: "" },
    { reasoning_content: "h" },
    { reasoning_content: "m", content: "So" },
    { tool_calls: [{ index: 0, id: "a", function: { name: "f", arguments: "" } }] },
    { tool_calls: [{ index: 0, function: { arguments: '{"x"' } }, { index: 1, id: "b", function: { name: "g", arguments: "{}" } }] },
    { tool_calls: [{ index: 0, function: { arguments: ":1}" } }] },
    { content: null },
  ];
  const said = deltas.reduce(hear, nothingSaid);
  assert.deepEqual(said, { text: "So", thought: "hm", calls: [{ id: "a", name: "f", args: '{"x":1}' }, { id: "b", name: "g", args: "{}" }] });
  assert.equal(argsText(said.calls[0].args), '{\n  "x": 1\n}');
  assert.equal(argsText('{"x'), '{"x');
});

test("calls wait until each has its answer, or until something else is asked", () => {
  const [a, b] = ["a", "b"].map((id) => ({ id, name: "f", args: "{}" }));
  const turns = [{ role: "user", text: "?" }, { role: "assistant", text: "", calls: [a, b] }];
  assert.deepEqual(openCalls(turns), [a, b]);
  assert.deepEqual(openCalls([...turns, { role: "tool", text: "1", callId: "a" }]), [b]);
  assert.deepEqual(openCalls([...turns, { role: "user", text: "never mind" }]), []);
  assert.deepEqual(openCalls([]), []);
  const kept = { id: "1", at: 1, system: "", tools: "[]", turns: [...turns, { role: "tool", text: "1", callId: "a" }] };
  assert.deepEqual(parseConversations(printConversations([kept])), [kept]);
  for (const wrong of [{ calls: [{}] }, { calls: "x" }, { thought: 1 }, { role: "king" }, { callId: 1 }])
    assert.deepEqual(parseConversations(JSON.stringify([{ ...kept, turns: [{ ...turns[1], ...wrong }] }])), []);
});

test("a list of tools is JSON, or nothing", () => {
  assert.equal(toolsFault(" "), null);
  assert.equal(toolsFault("[]"), null);
  assert.match(toolsFault("{}"), /list/);
  assert.match(toolsFault("["), /Not JSON/);
});

test("an answer's usage says how many foreseen tokens were right", async (t) => {
  const usage = (details) => ({ choices: [], usage: { prompt_tokens: 7, completion_tokens: 40, ...details } });
  const answered = async (chunk) => {
    t.mock.method(globalThis, "fetch", async () => new Response(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`));
    return ask({ model: "m", chat: true, system: "", turns: [], sampling: { stops: [] }, signal: new AbortController().signal, tools: "", onDelta: () => {} });
  };
  assert.deepEqual(await answered(usage({ completion_tokens_details: { accepted_prediction_tokens: 31, rejected_prediction_tokens: 19 } })),
    { reason: null, promptTokens: 7, tokens: 40, foreseen: { proposed: 50, accepted: 31 } });
  assert.deepEqual(await answered(usage({})), { reason: null, promptTokens: 7, tokens: 40 });
});
