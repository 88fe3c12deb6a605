// Writes GGUF files (version 3) that hold keys and no tensors, for tokenizers.
import { writeFileSync } from "node:fs";

const U32 = 4;
const I32 = 5;
const F32 = 6;
const BOOL = 7;
const TEXT = 8;
const ARRAY = 9;

const u32 = (value) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
const u64 = (value) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};
const text = (value) => {
  const bytes = Buffer.from(value, "utf8");
  return [u64(bytes.length), bytes];
};
const list = (type, values, bytes) => [u32(ARRAY), u32(type), u64(values.length), bytes];

// All in one, as there may be hundreds of thousands.
function texts(values) {
  const bytes = Buffer.alloc(values.reduce((sum, entry) => sum + 8 + Buffer.byteLength(entry), 0));
  let at = 0;
  for (const entry of values) {
    const length = bytes.write(entry, at + 8);
    bytes.writeUInt32LE(length, at); // the high half is 0
    at += 8 + length;
  }
  return bytes;
}

// A value of a key, by its kind: {u32: 1}, {bool: true}, {text: "…"}, {texts: […]}, {f32s: […]}, {i32s: […]}.
function value(entry) {
  const [[kind, data]] = Object.entries(entry);
  switch (kind) {
    case "u32":
      return [u32(U32), u32(data)];
    case "bool":
      return [u32(BOOL), Buffer.from([data ? 1 : 0])];
    case "text":
      return [u32(TEXT), ...text(data)];
    case "texts":
      return list(TEXT, data, texts(data));
    case "f32s":
      return list(F32, data, Buffer.from(Float32Array.from(data).buffer));
    case "i32s":
      return list(I32, data, Buffer.from(Int32Array.from(data).buffer));
    default:
      throw new Error(`no such kind: ${kind}`);
  }
}

export function writeGguf(path, keys) {
  const entries = Object.entries(keys);
  const parts = [Buffer.from("GGUF"), u32(3), u64(0), u64(entries.length)];
  for (const [key, entry] of entries) parts.push(...text(key), ...value(entry));
  const bytes = Buffer.concat(parts);
  writeFileSync(path, Buffer.concat([bytes, Buffer.alloc((32 - (bytes.length % 32)) % 32)]));
}
