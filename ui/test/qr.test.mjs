/* QR codes, compared module by module with those of the Python package qrcode 8.2 (level M, byte mode): for each version,
 * the SHA-256 of all eight masks of a text of so many characters. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import test from "node:test";
import { load } from "./load.mjs";

const { qrCode } = await load("lib/qr.ts");
const known = [
  [1, 9, "727e9d526f9dbd371148379afb5415e71ea2fdfb9ca8962b9878107a6a7006bf"],
  [2, 25, "5e203a6708c968dfab23edd83dad717699184204d0d78e358b12570f8eb2837e"],
  [3, 40, "b640e14ef94f432751a9c5cbaec3136af6aae667ee13ab4ad9a56bd0d4a89450"],
  [4, 60, "9e406468816e51aa0f5da7218a0def5522b7437e697a25865cb5ba28de6bbcb5"],
  [5, 80, "46933a5935ddc75ea966ffdd06acc59d09253b199b968542be3d196ce4e79421"],
  [6, 100, "f7e4a72d260b51392f228e649a2b09aeaa5c12b5d9f4397c463bf6e487d1be9b"],
  [7, 120, "95d7658e19ccafe351b7379f2a79405253ec89950308a49ef48727c3f6910b22"],
  [8, 150, "507388781ea87ff7a7664040aa539639a0b686938a344030b8f8f2b8e6e3c83d"],
  [9, 175, "1e0d449b00d00ad0aa752820c3219ec4f57c8e53f80f1c0dfa83ccafcccd32aa"],
  [10, 213, "34a4e1154cbe94705e38200e1bf742358d57b2a0e1f8f61488a0218f7f3b437c"],
];
const text = (length) => "0123456789abcdefghijklmnopqrstuvwxyz/#=_".repeat(6).slice(0, length);

for (const [version, length, hash] of known)
  test(`version ${version}, every mask`, () => {
    const all = Array.from({ length: 8 }, (_, mask) => qrCode(text(length), mask));
    assert.ok(all.every((rows) => rows.length === 17 + 4 * version));
    const lines = all.map((rows) => rows.map((row) => row.map(Number).join("")).join("\n")).join("\n\n");
    assert.equal(createHash("sha256").update(lines).digest("hex"), hash);
    assert.ok(all.some((rows) => JSON.stringify(rows) === JSON.stringify(qrCode(text(length)))), "without a mask it takes one of them");
  });

test("what is too long has none", () => {
  assert.equal(qrCode("x".repeat(214)), null);
  assert.equal(qrCode("ü".repeat(107)), null, "bytes count");
});
