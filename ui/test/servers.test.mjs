// Several servers that take turns: what their answers mean to a page without a connection.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { readHealth, mayConnect, otherAddresses, inOrder } = await load("state/servers");
const { reduce } = await load("state/reduce");
const { initialState } = await load("state/state");

const seen = (address, more) => ({ address, host: "one", role: "follower", since: "2026-11-20T14:31:52.000Z", answers: true, silent_ms: 900, behind_ms: 800, ...more });

test("what a server says of itself is read, and whatever else answers there is not", () => {
	assert.deepEqual(readHealth({ status: "ok", role: "follower", behind_ms: 250, leader: "https://a:1/" }), { role: "follower", behindMs: 250, leader: "https://a:1/" });
	for (const other of [null, undefined, 1, "x", [], {}, { status: "ok" }, { role: "king", behind_ms: 1, leader: "" }, { role: "leader", behind_ms: "1", leader: "" }, { role: "leader", behind_ms: 1 }])
		assert.equal(readHealth(other), null, JSON.stringify(other));
});

test("a connection is tried where this server leads, or follows one that is well", () => {
	const follower = { role: "follower", behindMs: 250, leader: "https://a:1/" };
	assert.deepEqual([follower, { ...follower, behindMs: 4000 }, { ...follower, leader: "" }, { ...follower, role: "leader", behindMs: 9000 }].map(mayConnect), [true, false, false, true]);
});

test("the other addresses are those that answer, but for the page's own and what is no address", () => {
	const info = { servers: ["https://a:1/", "https://b:1/"] };
	const others = (servers, server = info) => otherAddresses({ server, servers }, "https://a:1");
	assert.deepEqual(others([]), ["https://b:1/"]);
	assert.deepEqual(others([seen("https://a:1/"), seen("https://b:1/", { answers: false }), seen("https://[fd00::1]:1/")]), ["https://[fd00::1]:1/"]);
	assert.deepEqual(others([seen("javascript:alert(1)"), seen("https://b:1/x"), seen("//b:1/"), seen("https://a@b:1/")]), []);
	assert.deepEqual(others([], null), []);
});

test("who leads comes first", () => {
	const all = [seen("https://b:1/", { host: "b" }), seen("https://c:1/", { host: "c", role: "leader" }), seen("https://a:1/", { host: "a" })];
	assert.deepEqual(inOrder(all).map((one) => one.host), ["c", "a", "b"]);
});

test("an event of the topology tells of them; one that does not leaves them as they were", () => {
	const tell = (state, data) => reduce(state, { type: "event", now: 0, event: { epoch: "e", seq: state.seq + 1, at: "2026-11-20T14:31:52.000Z", topic: "topology", data: { links: [], removed: [], heard: null, servers: null, ...data } } });
	const told = tell({ ...initialState, epoch: "e" }, { servers: [seen("https://a:1/")] });
	assert.equal(told.servers.length, 1);
	assert.equal(tell(told, {}).servers, told.servers);
	assert.deepEqual(tell(told, { servers: [] }).servers, []);
});
