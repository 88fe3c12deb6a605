/* Weights that a browser keeps: what is read back is what was kept, whatever happened to the files meanwhile. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import test from "node:test";
import { load } from "./load.mjs";

const { WeightStore } = await load("lend/gpu/store.ts");
const { storeLimits } = await load("lend/storage.ts");

/** A browser's file system, of one folder; `quota` bytes in all. */
function disk(quota = Infinity) {
  const root = { folder: null };
  const missing = () => {
    throw new DOMException("it is not there", "NotFoundError");
  };
  const used = () => [...(root.folder?.values() ?? [])].reduce((sum, one) => sum + one.body.length, 0);
  const handle = (files, name) => ({
    kind: "file",
    name,
    getFile: async () => {
      const { body, at } = files.get(name) ?? missing();
      return { size: body.length, lastModified: at, arrayBuffer: async () => body.slice().buffer };
    },
    createSyncAccessHandle: async () => ({
      truncate: () => (files.get(name).body = new Uint8Array(0)),
      write: (body) => {
        if (used() + body.length > quota) throw new DOMException("no more", "QuotaExceededError");
        files.get(name).body = body.slice();
        return body.length;
      },
      close() {},
    }),
  });
  let clock = 0;
  const open = (files) => ({
    getFileHandle: async (name, { create } = {}) => {
      if (files !== root.folder || (!files.has(name) && !create)) missing();
      if (!files.has(name)) files.set(name, { body: new Uint8Array(0), at: ++clock });
      return handle(files, name);
    },
    removeEntry: async (name) => void (files === root.folder && files.delete(name) ? 0 : missing()),
    async *values() {
      for (const name of files.keys()) yield handle(files, name);
    },
  });
  const directory = {
    getDirectoryHandle: async (_name, { create }) => {
      if (!root.folder && !create) missing();
      return open((root.folder ??= new Map()));
    },
    removeEntry: async () => void (root.folder ? (root.folder = null) : missing()),
  };
  Object.defineProperty(globalThis, "navigator", { value: { storage: { getDirectory: async () => directory } }, configurable: true });
  return root;
}
const piece = (seed, bytes = 100) => {
  const body = new Uint8Array(bytes).fill(seed);
  return [createHash("sha256").update(body).digest("hex"), body];
};
async function opened(limit) {
  const store = new WeightStore();
  await store.setLimit(limit);
  return store;
}

test("a piece is found again by its hash, by the next page too; one that was changed or cut short is not, and is gone", async () => {
  const root = disk();
  const [hash, body] = piece(1);
  const [other, bytes] = piece(2);
  let store = await opened(1000);
  assert.equal(await store.begin(), false, "nothing is kept yet");
  assert.deepEqual([await store.keep(hash, body), await store.keep(other, bytes)], [true, true]);
  store = await opened(1000);
  assert.equal(await store.begin(), true);
  assert.deepEqual(new Uint8Array(await store.find(hash, 100)), body);
  assert.equal(await store.find(piece(3)[0], 100), null);
  assert.equal(store.told().bytes, 200);
  root.folder.get(hash).body[7] ^= 1;
  root.folder.get(other).body = bytes.slice(0, 50);
  assert.deepEqual([await store.find(hash, 100), await store.find(other, 100)], [null, null]);
  assert.equal(root.folder.size, 0);
  assert.equal(await store.keep(hash, body), true);
  assert.deepEqual(new Uint8Array(await store.find(hash, 100)), body);
});

test("the limit: what was used least recently goes, but nothing that the load under way uses; 0 keeps nothing", async () => {
  disk();
  const store = await opened(300);
  const pieces = [1, 2, 3, 4, 5].map((seed) => piece(seed));
  const there = async () => (await Promise.all(pieces.map(([hash]) => store.find(hash, 100)))).map((one, i) => (one ? i : null)).filter((one) => one !== null);
  await store.begin();
  for (const [hash, body] of pieces.slice(0, 3)) await store.keep(hash, body);
  assert.equal(await store.keep(...pieces[3]), false, "all that is kept is of this load");
  await store.begin();
  await store.find(pieces[0][0], 100);
  assert.equal(await store.keep(...pieces[3]), true);
  assert.deepEqual(await there(), [0, 2, 3]);
  await store.begin();
  assert.equal(await store.keep(pieces[4][0], new Uint8Array(301)), false, "more than the limit");
  await store.setLimit(150);
  assert.equal(store.told().bytes, 100);
  await store.setLimit(0);
  assert.deepEqual([store.told().bytes, await store.begin(), await store.keep(...pieces[0])], [0, false, false]);
});

test("a browser that gives no more room is told, until the next load; what is kept stays", async () => {
  const root = disk(250);
  const store = await opened(1000);
  await store.begin();
  const kept = [];
  for (const seed of [1, 2, 3]) kept.push(await store.keep(...piece(seed)));
  assert.deepEqual([kept, store.told()], [[true, true, false], { bytes: 200, full: true }]);
  assert.equal(root.folder.size, 2, "nothing is left of the third");
  await store.begin();
  assert.equal(store.told().full, false);
  await store.keep(...piece(3));
  await store.clear();
  assert.deepEqual([store.told(), root.folder], [{ bytes: 0, full: false }, null]);
});

test("files that somebody else deletes meanwhile are missing, and kept again", async () => {
  const root = disk();
  const store = await opened(1000);
  const [hash, body] = piece(1);
  await store.keep(hash, body);
  root.folder = null;
  assert.equal(await store.find(hash, 100), null);
  assert.equal(await store.keep(hash, body), true);
  assert.equal(store.told().bytes, 100);
  const [other, more] = piece(2);
  root.folder = null;
  assert.deepEqual([await store.keep(other, more), await store.keep(other, more)], [false, true]);
  Object.defineProperty(globalThis, "navigator", { value: { storage: { getDirectory: () => Promise.reject(new Error("refused")) } }, configurable: true });
  const without = await opened(1000);
  assert.deepEqual([await without.begin(), await without.keep(hash, body), await without.find(hash, 100)], [false, false, null]);
});

test("the limit that is proposed is a quarter of what the browser gives", () => {
  const MIB = 2 ** 20, of = (mib) => storeLimits(mib === null ? null : { quota: mib * MIB });
  assert.deepEqual(of(null), { choices: [0], usual: 0 });
  assert.deepEqual([of(10240).usual, of(10240).choices.at(-1)], [2048 * MIB, 8192 * MIB]);
  assert.deepEqual(of(300), { choices: [0, 256 * MIB], usual: 0 });
  assert.equal(of(1e6).usual, 4096 * MIB);
  assert.deepEqual([storeLimits({}).usual, storeLimits({}).choices.at(-1)], [0, 1024 * MIB]);
});
