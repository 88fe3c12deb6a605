// Uploads: how a file is cut, what is in flight, what is sent again; and the path of a folder.
import assert from "node:assert/strict";
import { File } from "node:buffer";
import { createHash, webcrypto } from "node:crypto";
import { test } from "node:test";
import { load } from "./load.mjs";

globalThis.crypto ??= webcrypto; // Node 18 has it as a module only

const { isSending, nextLength, sending, upload } = await load("command/upload.ts");
const { crumbs, uploadOf } = await load("state/models.ts");
const KIB = 1024, MIB = 1024 * KIB;

test("pieces grow while they are fast and shrink while they are slow, within bounds", () => {
  assert.equal(nextLength(256 * KIB, 10, 4 * MIB), 512 * KIB);
  assert.equal(nextLength(4 * MIB, 10, 4 * MIB), 4 * MIB);
  assert.equal(nextLength(MIB, 500, 4 * MIB), MIB);
  assert.equal(nextLength(MIB, 3000, 4 * MIB), 512 * KIB);
  assert.equal(nextLength(256 * KIB, 3000, 4 * MIB), 256 * KIB);
  assert.equal(nextLength(100, 3000, 1000), 1000);
});

test("a file is sent from the first byte that is missing to its end, at most three pieces at a time, each with its digest", async () => {
  const bytes = Buffer.from(Array.from({ length: 3 * MIB + 17 }, (_, i) => (i * 7) & 255)), from = 1000;
  const file = new File([bytes], "a.gguf", { lastModified: Date.parse("2026-11-20T14:31:52.000Z") });
  const got = Buffer.alloc(bytes.length), calls = [];
  let flying = 0, most = 0;
  const server = {
    async call(name, params) {
      calls.push([name, params]);
      return name === "model.upload_begin" ? { model: { model_id: "mod_1" }, received_bytes: from, next_offset: from, piece_bytes: MIB } : {};
    },
    async callWith(name, { model_id, offset, sha256 }, body) {
      assert.deepEqual([name, model_id, sha256], ["model.upload_write", "mod_1", createHash("sha256").update(body).digest("hex")]);
      assert.ok(isSending("a.gguf") && body.length <= MIB);
      most = Math.max(most, ++flying);
      await new Promise((done) => setTimeout(done, 50)); // so that other digests are there meanwhile; far below what counts as slow
      flying--;
      got.set(body, offset);
      return {};
    },
  };
  await upload({ server, current: () => ({ models: {} }) }, file);
  assert.deepEqual(calls, [["model.upload_begin", { file: "a.gguf", bytes: bytes.length, modified_at: "2026-11-20T14:31:52.000Z" }],
    ["model.upload_end", { model_id: "mod_1" }]]);
  assert.ok(got.subarray(from).equals(bytes.subarray(from)) && got.subarray(0, from).every((byte) => byte === 0));
  assert.ok(most > 1 && most <= 3, `${most} at a time`);
  assert.deepEqual(sending.value, {});
  await upload({ server, current: () => ({ models: {} }) }, new File([], "none.gguf"));
  assert.match(sending.value["none.gguf"].refusal.what, /is empty/);
});

test("the path of a folder begins at the folder that is allowed", () => {
  const names = (allowed, dir) => crumbs(allowed, dir).map((one) => [one.name, one.path]);
  assert.deepEqual(names(["/srv"], "/srv"), [["/srv", "/srv"]]);
  assert.deepEqual(names(["/srv", "/srv/models"], "/srv/models/a/b"), [["/srv/models", "/srv/models"], ["a", "/srv/models/a"], ["b", "/srv/models/a/b"]]);
  assert.deepEqual(names(["/"], "/a"), [["/", "/"], ["a", "/a"]]);
  assert.equal(uploadOf({ source: "upload:a b.gguf" }), "a b.gguf");
  assert.equal(uploadOf({ source: "/a.gguf" }), null);
});
