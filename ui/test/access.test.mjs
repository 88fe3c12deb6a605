/* What the pages of access and audit ask of tokens, certificates and entries. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { tokenEnd, tokenState, sortedTokens, madeWith, certificateState, certificateWords, fingerprint, joinAddress, makerText, tokenWords } = await load("state/access.ts");
const { confirmedText, matches, actorOf, csvLine, CSV_HEAD, detailOf, gapText, joinGaps, touchesAccess } = await load("state/audit.ts");
const { fits } = await load("lib/fits.ts");
const DAY = 24 * 3600 * 1000;
const at = Date.parse("2026-11-21T12:00:00Z");
const time = (days) => new Date(at + days * DAY).toISOString();
const token = (id, more) => ({
  token_id: id, name: id, scopes: ["observe"], parent_id: null, created_at: time(-10), expires_at: time(80), last_used_at: null,
  revoked_at: null, calls_per_s: null, max_sessions: null, memory_limit_bytes: null, memory_bytes: 0, sessions: 0, ...more,
});

test("a token's state, and what wants a look first", () => {
  const tokens = [
    token("good"), token("used", { sessions: 2 }), token("soon", { expires_at: time(2) }), token("gone", { expires_at: time(-1) }),
    token("revoked", { revoked_at: time(-1) }), token("short", { created_at: time(0), expires_at: time(0.04) }),
  ];
  assert.deepEqual(tokens.map((one) => tokenState(one, at)), ["good", "in use", "expires soon", "expired", "revoked", "good"]);
  assert.deepEqual(sortedTokens(tokens, at).map((one) => one.token_id), ["soon", "used", "short", "good", "gone", "revoked"]);
});

test("the tokens that end with one: children of children, in whatever order", () => {
  const tokens = [token("c", { parent_id: "b" }), token("b", { parent_id: "a" }), token("a"), token("x"), token("d", { parent_id: "a", revoked_at: time(-1) })];
  assert.deepEqual(madeWith(tokens, "a").map((one) => one.token_id).sort(), ["b", "c"]);
});

test("a certificate that was not renewed in time", () => {
  const one = { not_after: time(30), renews_at: time(1), revoked_at: null };
  assert.equal(certificateState(one, at), "good");
  assert.equal(certificateState({ ...one, renews_at: time(-2) }, at), "renewal is due");
  assert.equal(certificateState({ ...one, renews_at: null, not_after: time(10) }, at), "renewal is due");
  assert.equal(certificateState({ ...one, not_after: time(-1) }, at), "expired");
  assert.equal(certificateState({ ...one, revoked_at: time(-1) }, at), "revoked");
  assert.equal(fingerprint("3f9c0b"), "3F:9C:0B");
});

test("a filter of tokens and certificates looks at what their rows show", () => {
  const words = tokenWords(token("tok_1", { name: "laptop", expires_at: time(-1) }), at);
  for (const one of ["laptop", "TOK_1 observe", "expired", ""]) assert.ok(fits(one, words), one);
  assert.ok(!fits("laptop admin", words), "every word");
  const one = { subject: "CN=workstation,O=exogpu", names: ["10.0.0.7"], sha256: "3f9c0b", not_after: time(30), renews_at: time(1), revoked_at: null };
  for (const typed of ["workstation", "10.0.0.7", "3F:9c", "good"]) assert.ok(fits(typed, certificateWords(one, undefined, at)), typed);
  assert.ok(fits("attic", certificateWords(one, "attic", at)), "by the machine's name");
  assert.ok(!fits("exogpu", certificateWords(one, undefined, at)), "what is not shown is not looked at");
});

const entry = (more) => ({
  seq: 7, at: time(0), actor: "token:7Qm2xTzR0a", actor_name: "laptop", session_id: "ses_1", peer: "10.0.0.7", action: "memory.allocate",
  target: "alloc_9", node_id: "nod_1", device_id: "dev_1", outcome: "ok", count: 1, duration_ms: 0.4, detail: { bytes: 1024, label: null }, ...more,
});

test("entries that fit a filter", () => {
  const fits = (filter, more) => matches(entry(more), filter);
  assert.ok(fits({}));
  assert.ok(fits({ action: "memory." }) && fits({ action: "memory.allocate" }) && !fits({ action: "memory.free" }) && !fits({ action: "memory" }));
  assert.ok(fits({ outcome: "ok" }) && !fits({ outcome: "failed" }) && fits({ outcome: "failed" }, { outcome: "forbidden" }));
  assert.ok(fits({ text: "LAPTOP" }) && fits({ text: "10.0.0" }) && fits({ text: "1024" }) && !fits({ text: "phone" }));
  assert.ok(fits({ device_id: "dev_1" }) && !fits({ device_id: "dev_2" }) && !fits({ actor: "server" }));
  assert.ok(fits({ from: time(0), to: time(1) }) && !fits({ to: time(0) }) && !fits({ from: time(1) }));
});

test("who it was, and what is told besides", () => {
  assert.deepEqual(actorOf(entry()), { name: "laptop", id: "7Qm2xTzR0a", copies: true });
  assert.deepEqual(actorOf(entry({ actor: "node:nod_1", actor_name: "" })), { name: "", id: "nod_1", copies: true });
  assert.deepEqual(actorOf(entry({ actor: "owner:1000", actor_name: "" })), { name: "the machine's owner", id: "user 1000" });
  assert.deepEqual(actorOf(entry({ actor: "server", actor_name: "" })), { name: "the server", id: "" });
  assert.deepEqual(actorOf(entry({ actor: "nobody", actor_name: "" })), { name: "nobody", id: "not logged in" });
  assert.equal(detailOf(entry()), "1 KiB");
  assert.ok(["token.create", "lend.create", "lend.revoke"].every((action) => touchesAccess(entry({ action }))) && !touchesAccess(entry()));
});

test("other machines are not sent to a loopback address where another one is known", () => {
  const page = (hostname) => ({ hostname, origin: `https://${hostname}:52415` });
  const heard = (...addresses) => [{ verdict: "member", addresses: ["192.0.2.9"], port: 7 }, { verdict: "self", addresses, port: 52415 }];
  assert.equal(joinAddress(page("rack.example"), heard("192.0.2.1")), "https://rack.example:52415");
  for (const own of ["localhost", "127.0.0.1", "[::1]"]) assert.equal(joinAddress(page(own), heard("fd00::1", "192.0.2.1")), "https://192.0.2.1:52415");
  assert.equal(joinAddress(page("localhost"), heard("fd00::1")), "https://[fd00::1]:52415");
  for (const nobody of [null, [], heard()]) assert.equal(joinAddress(page("localhost"), nobody), "https://localhost:52415");
});

test("an entry as a line of CSV: what it binds, quotes, and nothing that a spreadsheet takes for a formula", () => {
  const line = csvLine(
    entry({
      actor_name: '=cmd|"x"',
      duration_ms: null,
      bound: [
        { kind: "token", id: "a", sha256: "00ff" },
        { kind: "workers", id: "b", sha256: null },
      ],
    }),
  );
  assert.ok(line.endsWith(',"token a 00ff; workers b -"\n'), line);
  assert.ok(line.includes(`"'=cmd|""x"""`), line);
  assert.ok(line.includes(",0.000,"), line);
  assert.equal(CSV_HEAD.split(",").length, 15);
});

test("gaps are told, and those that adjoin are one", () => {
  const gap = (first, last, reason = "missing", told_by = null) => ({ first, last, reason, told_by });
  assert.deepEqual(joinGaps([gap(300, 399), gap(200, 299), gap(0, 99), gap(150, 199)]), [gap(200, 399), gap(0, 99), gap(150, 199)]);
  assert.deepEqual(joinGaps([gap(5, 9, "pruned", 12), gap(0, 4, "pruned", 13)]).length, 2);
  assert.equal(gapText(gap(0, 39, "pruned", 57)), "Entries 0 to 39 were pruned, as entry 57 tells.");
  assert.equal(gapText(gap(7, 7, "pruned")), "Entry 7 was pruned.");
});

test("a token ends with the one that makes it", () => {
  const at = Date.parse("2026-11-20T00:00:00.000Z");
  const day = 24 * 3600;
  assert.deepEqual(tokenEnd(at, 30 * day, null), { end: at + 30 * day * 1000, cut: false });
  assert.deepEqual(tokenEnd(at, 30 * day, "2026-12-25T00:00:00.000Z"), { end: at + 30 * day * 1000, cut: false });
  assert.deepEqual(tokenEnd(at, 30 * day, "2026-11-27T00:00:00.000Z"), { end: at + 7 * day * 1000, cut: true });
});

test("what witnesses have confirmed is told only of those that were asked and agree", () => {
  const report = (witnessed, ...states) => ({ entries: 40, witnessed, witnesses: states.map((state) => ({ node_id: state, name: state, state, size: null, reason: null })) });
  assert.equal(confirmedText(report(0)), "no witness was asked");
  assert.equal(confirmedText(report(0, "offline", "silent")), "no witness has confirmed any of them in this check");
  assert.equal(confirmedText(report(38, "agrees", "offline")), "the first 38 confirmed by witnesses");
  assert.equal(confirmedText(report(40, "agrees", "agrees")), "all confirmed by witnesses");
});

test("who made a ticket or a link is named where the token is known", () => {
  const tokens = [token("t1", { name: "laptop of alice" }), token("t2", { name: "" })];
  assert.deepEqual(["token:t1", "token:t2", "token:t9", "owner:1000", "server"].map((maker) => makerText(tokens, maker)),
    ["laptop of alice", "token t2", "a deleted token (t9)", "the machine's owner", "server"]);
});
