// Conversations that are kept on the server: two browsers and a server that keeps versions, as schema/api.json says.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { planOf, isKept, textOf, fromText, markOf } = await load("state/keeping.ts");
const { bringTogether, forgetAll, tellServer, CallError } = await load("command/keep.ts", "net/calls.ts");
const { parseConversations, printConversations, freshId, exportOf } = await load("state/chat.ts", "state/conversation/storage.ts", "state/conversation/file.ts");

const talk = (id, text, at = 1) => ({ id, at, system: "", turns: [{ role: "user", text }] });
const day = 86_400_000;

/** A server of one token: {id: {version, text, deleted}}. */
function makeServer() {
  const rows = new Map();
  const server = { rows, calls: [], online: true, refuse: () => null };
  const of = (id) => ({ conversation_id: id, version: rows.get(id).version, updated_at: new Date().toISOString(),
    expires_at: new Date(Date.now() + day).toISOString(), bytes: rows.get(id).text.length, deleted: rows.get(id).deleted });
  const answer = (name, params) => {
    server.calls.push(name);
    if (!server.online) throw new CallError("disconnected", "Not connected");
    const refused = server.refuse(name, params);
    if (refused) throw refused;
    return rows.get(params?.conversation_id);
  };
  server.call = async (name, params) => {
    answer(name, params);
    if (name === "conversation.list") return { conversations: [...rows.keys()].map(of) };
    const ids = params.all ? [...rows.keys()].filter((id) => !rows.get(id).deleted) : [params.conversation_id];
    for (const id of ids) {
      if (!rows.get(id) || rows.get(id).deleted) throw new CallError("not_found", "there is no such conversation");
      rows.set(id, { version: rows.get(id).version + 1, text: "", deleted: true });
    }
    return { deleted: ids.length };
  };
  server.callWith = async (name, params, body) => {
    const row = answer(name, params);
    if (row ? row.version !== params.version && !(row.deleted && params.version === 0) : params.version !== 0)
      throw new CallError("conflict", "it was changed elsewhere");
    rows.set(params.conversation_id, { version: (row?.version ?? 0) + 1, text: new TextDecoder().decode(body), deleted: false });
    return of(params.conversation_id);
  };
  server.callFor = async (name, params) => {
    const row = answer(name, params);
    if (!row || row.deleted) throw new CallError("not_found", "there is no such conversation");
    return { result: of(params.conversation_id), body: new TextEncoder().encode(row.text) };
  };
  return server;
}

function browser(server, ...first) {
  let all = first;
  const others = (id) => all.filter((one) => one.id !== id);
  const shelf = {
    all: () => all,
    put: (one) => (all = [...others(one.id), one]),
    drop: (id) => (all = others(id)),
    rename: (id, to) => {
      const { kept: _, ...mine } = all.find((one) => one.id === id);
      all = [...others(id), { ...mine, id: to }];
    },
  };
  return {
    shelf,
    texts: () => all.map((one) => one.turns[0].text).sort(),
    bring: (more = {}) => bringTogether({ server, shelf, token: "tok", busy: () => null, looks: false, ...more }),
    change: (id, text) => shelf.put({ ...all.find((one) => one.id === id), ...talk(id, text, 2) }),
  };
}

test("what one browser has comes to the other, and so do changes and deletions", async () => {
  const server = makeServer(), here = browser(server, talk("a", "one"), talk("b", "two")), there = browser(server, talk("c", "three"));
  assert.deepEqual(await here.bring(), { refusal: null, forked: [], offline: false, held: 0 });
  await there.bring();
  await here.bring();
  assert.deepEqual([here.texts(), there.texts()], [["one", "three", "two"], ["one", "three", "two"]]);
  assert.ok(here.shelf.all().every((one) => isKept(one, "tok") && !isKept(one, "another")));
  there.change("a", "one, and more");
  await there.bring();
  await here.bring();
  assert.deepEqual(here.texts(), ["one, and more", "three", "two"]);
  await tellServer(server, { conversation_id: "b" });
  here.shelf.drop("b");
  await there.bring();
  assert.deepEqual(there.texts(), ["one, and more", "three"]);
  const before = server.calls.length;
  await here.bring();
  await there.bring();
  assert.deepEqual(server.calls.slice(before), ["conversation.list", "conversation.list"], "nothing is sent twice");
  assert.ok([...server.rows.values()].every((row) => !row.text.includes("kept")), "what a browser knows of the server stays there");
});

test("what both have changed stays twice, and is told", async () => {
  const server = makeServer(), here = browser(server, talk("a", "one")), there = browser(server);
  await here.bring();
  await there.bring();
  here.change("a", "here");
  there.change("a", "there");
  await here.bring();
  const { forked } = await there.bring();
  assert.deepEqual(forked, ["there"]);
  assert.deepEqual(there.texts(), ["here", "there"]);
  assert.ok(there.shelf.all().every((one) => isKept(one, "tok")), "the copy is sent at once");
  await here.bring();
  assert.deepEqual(here.texts(), ["here", "there"]);
  assert.equal(here.shelf.all().find((one) => one.id === "a").turns[0].text, "here");
});

test("branches come to the other browser, and stay where both have changed one", async () => {
  const server = makeServer(), here = browser(server, talk("a", "one")), there = browser(server), of = ({ shelf }, fits) => shelf.all().find(fits);
  const branched = { ...talk("a", "one", 2), turns: [...talk("a", "one").turns, { role: "user", text: "another way", after: -1 }], leaf: 0 };
  await here.bring();
  await there.bring();
  here.shelf.put({ ...of(here, () => true), ...branched });
  await here.bring();
  await there.bring();
  const { kept: _, ...came } = of(there, ({ id }) => id === "a");
  assert.deepEqual(came, branched);
  here.change("a", "here");
  there.shelf.put({ ...of(there, () => true), at: 3, leaf: 1 });
  await here.bring();
  await there.bring();
  await here.bring();
  for (const one of [here, there]) {
    assert.deepEqual(one.texts(), ["here", "one"]);
    assert.deepEqual([of(one, ({ turns }) => turns[0].text === "one").turns.length, of(one, ({ turns }) => turns[0].text === "one").leaf], [2, 1], "the copy has its branches");
  }
});

test("the same change in both is none", async () => {
  const server = makeServer(), here = browser(server, talk("a", "one")), there = browser(server, talk("a", "one"));
  await here.bring();
  assert.deepEqual((await there.bring()).forked, []);
  assert.deepEqual(there.texts(), ["one"]);
});

test("what was deleted elsewhere but changed here stays, and comes back", async () => {
  const server = makeServer(), here = browser(server, talk("a", "one"));
  await here.bring();
  await tellServer(server, { all: true });
  here.change("a", "changed");
  await here.bring();
  assert.equal(JSON.parse(server.rows.get("a").text).turns[0].text, "changed");
});

test("without a connection nothing is lost, and one refusal does not hold up the others", async () => {
  const server = makeServer(), here = browser(server, talk("a", "one"), talk("b", "two"));
  server.online = false;
  assert.equal((await here.bring()).offline, true);
  assert.deepEqual(here.texts(), ["one", "two"]);
  server.online = true;
  server.refuse = (name, params) => (name === "conversation.write" && params.conversation_id === "a" ? new CallError("limit_exceeded", "too much", "delete some") : null);
  const { refusal } = await here.bring();
  assert.deepEqual(refusal, { what: "too much", hint: "delete some" });
  assert.deepEqual([...server.rows.keys()], ["b"]);
});

test("what is being answered waits, and what changes while it is fetched is not overwritten", async () => {
  const server = makeServer(), here = browser(server, talk("a", "one")), there = browser(server);
  await here.bring({ busy: () => "a" });
  assert.equal(server.rows.size, 0);
  await here.bring();
  await there.bring();
  there.change("a", "two");
  await there.bring();
  const { callFor } = server;
  server.callFor = (...args) => {
    here.change("a", "meanwhile");
    return callFor(...args);
  };
  await here.bring();
  assert.deepEqual(here.texts(), ["meanwhile"]);
  server.callFor = callFor;
  await here.bring();
  assert.deepEqual(here.texts(), ["meanwhile", "two"]);
});

test("what the server forgot is sent again, but for what it has deleted in time", () => {
  const one = talk("a", "one"), kept = { token: "tok", version: 3, mark: markOf(textOf(one)), until: 1000 };
  assert.deepEqual(planOf([{ ...one, kept }], [], "tok", 999), [{ do: "write", id: "a", version: 0 }]);
  assert.deepEqual(planOf([{ ...one, kept }], [], "tok", 1001), []);
  assert.deepEqual(planOf([{ ...talk("a", "changed"), kept }], [], "tok", 1001), [{ do: "write", id: "a", version: 0 }]);
  const row = (version) => ({ conversation_id: "a", version, deleted: false });
  assert.deepEqual(planOf([{ ...one, kept }], [row(2)], "tok", 0), [{ do: "write", id: "a", version: 2 }], "it was put back from a backup");
  assert.deepEqual(planOf([{ ...one, kept }], [row(4)], "tok", 0), [{ do: "read", id: "a" }]);
  assert.deepEqual(planOf([{ ...one, kept }], [], "another", 1001), [{ do: "write", id: "a", version: 0 }]);
});

test("turned off: nothing is sent, and what the server has can be deleted there alone", async () => {
  const server = makeServer(), here = browser(server, talk("a", "one"));
  await here.bring();
  here.change("a", "two");
  assert.deepEqual(await here.bring({ looks: true }), { refusal: null, forked: [], offline: false, held: 1 });
  assert.equal(await forgetAll(server, here.shelf), null);
  assert.deepEqual([here.texts(), here.shelf.all()[0].kept, server.rows.get("a").deleted], [["two"], undefined, true]);
});

test("a text is read as it was written, or not at all; the browser's storage keeps what is known of the server", async () => {
  const one = { ...talk("a", "ünicode"), tools: "[]", kept: { token: "t", version: 1, mark: "m", until: 5 } };
  const { kept: _, ...plain } = one;
  assert.deepEqual(fromText("a", textOf(one)), plain);
  for (const text of ["", "null", "7", '{"turns":[{}]}', "not json"]) assert.equal(fromText("a", text), null);
  assert.deepEqual(parseConversations(printConversations([one])), [one]);
  assert.deepEqual(parseConversations(JSON.stringify([{ ...one, kept: { token: 1 } }])), []);
  assert.deepEqual(JSON.parse(await exportOf([one]).text()).conversations, [plain]);
  assert.match(freshId(), /^[0-9a-z-]{8,64}$/);
  assert.notEqual(markOf("ab"), markOf("ba"));
});
