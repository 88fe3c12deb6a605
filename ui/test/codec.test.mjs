import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { load } from "./load.mjs";

const codec = await load("net/codec.ts");
const { vectors } = JSON.parse(readFileSync(new URL("../../tests/vectors/wire.json", import.meta.url), "utf8"));
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
const hex = (data) => Buffer.from(data).toString("hex");

function faultOf(frame) {
  try {
    codec.decodeFrame(frame);
    return null;
  } catch (error) {
    assert.equal(error.name, "FrameError", `threw ${error}`);
    return error.fault;
  }
}

for (const vector of vectors) {
  test(`wire vector: ${vector.name}`, () => {
    assert.equal(faultOf(bytes(vector.hex)), vector.error);
    if (vector.error) return;
    const { head, body } = codec.decodeFrame(bytes(vector.hex));
    assert.deepEqual(head, JSON.parse(vector.head));
    assert.equal(hex(body), vector.body_hex);
    assert.equal(hex(codec.encodeFrame(vector.head, bytes(vector.body_hex))), vector.hex);
  });
}

test("a frame inside a larger buffer is read at its own offset", () => {
  const frame = codec.encodeFrame('{"jsonrpc":"2.0","method":"x"}', new Uint8Array([7]));
  const around = new Uint8Array(frame.length + 10);
  around.set(frame, 5);
  const { head, body } = codec.decodeFrame(around.subarray(5, 5 + frame.length));
  assert.equal(head.method, "x");
  assert.deepEqual([...body], [7]);
});

test("limits hold in both directions", () => {
  const big = new Uint8Array(codec.BODY_BYTES_MAX + 1);
  assert.throws(() => codec.encodeFrame("{}", big), { fault: "body_too_big" });
  assert.throws(() => codec.encodeFrame(" ".repeat(codec.HEAD_BYTES_MAX + 1)), { fault: "head_too_big" });
  const frame = new Uint8Array(4 + 2 + big.length);
  frame.set([2, 0, 0, 0, 0x7b, 0x7d]);
  assert.equal(faultOf(frame), "body_too_big");
  assert.equal(faultOf(frame.subarray(0, frame.length - 1)), null);
});

test("limits are those of the server", () => {
  const text = readFileSync(new URL("../../common/base/limits.h", import.meta.url), "utf8");
  const limit = (name) => {
    const found = new RegExp(`X\\(${name},\\s*"\\w+",\\s*([0-9 *]+)\\)`).exec(text);
    assert.ok(found, `${name} is not in limits.h`);
    return found[1].split("*").reduce((product, factor) => product * Number(factor), 1);
  };
  assert.equal(codec.HEAD_BYTES_MAX, limit("LIMIT_HEAD_BYTES"));
  assert.equal(codec.BODY_BYTES_MAX, limit("LIMIT_BODY_BYTES"));
  assert.equal(codec.NESTING_MAX, limit("LIMIT_NESTING"));
});
