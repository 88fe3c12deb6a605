// Kinds of tokens, and the lines that are shown with a new one.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import test from "node:test";
import { load } from "./load.mjs";

const { kindOf, kinds, pageLink, snippets } = await load("state/kinds.ts");
const made = { token: "exo_abc_def", address: "http://127.0.0.1:52415", model: "it's \"a\" model" };
const secure = { ...made, address: "https://10.0.0.2:52415" };
const text = (scopes, of, name) => snippets(scopes, of).find((one) => one.name === name)?.text;

test("a kind by its scopes, in any order; what is none of them is other", () => {
  assert.deepEqual(kinds.map((one) => one.name), ["App or chat", "Viewer", "Lend a device", "Admin", "Other"]);
  assert.deepEqual([["infer"], ["observe"], ["admin"], ["observe", "infer"], []].map(kindOf), ["chat", "viewer", "admin", "other", "other"]);
});

test("what is shown fits what the token may do", () => {
  assert.deepEqual(snippets(["infer"], made).map((one) => one.name), ["curl", "Python, openai", "JavaScript, ollama", "Programs for OpenAI's API"]);
  assert.deepEqual(snippets(["observe"], made).map((one) => one.name), ["Command line"]);
  assert.deepEqual(snippets(["allocate"], made), []);
  assert.equal(pageLink(["infer"], made), "http://127.0.0.1:52415/#token=exo_abc_def");
  assert.equal(pageLink(["allocate"], made), null);
});

test("the shell reads curl's line as it is meant, whatever the model's name", () => {
  for (const [of, first] of [[made, []], [secure, ["--cacert", "exogpu-authority.pem"]]]) {
    const line = text(["infer"], of, "curl").replace(/^curl/, "printf '%s\\n'");
    const words = execFileSync("sh", ["-c", line], { encoding: "utf8" }).trimEnd().split("\n");
    assert.deepEqual(words.slice(0, -1), [...first, `${of.address}/v1/chat/completions`, "-H", "Authorization: Bearer exo_abc_def", "-H",
      "Content-Type: application/json", "-d"]);
    assert.deepEqual(JSON.parse(words.at(-1)), { model: made.model, messages: [{ role: "user", content: "Hello" }] });
  }
});

test("by TLS clients are told whom to trust, without it they are not", () => {
  assert.match(text(["infer"], secure, "Python, openai"), /cafile="exogpu-authority.pem"/);
  assert.doesNotMatch(text(["infer"], made, "Python, openai"), /exogpu-authority/);
});
