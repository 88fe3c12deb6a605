// Asks the program that tokens.c makes, and tells what it answered.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeGguf } from "./gguf.mjs";

export const mode = { special: 1, begin: 2, continues: 4, shown: 8, chat: 16, compose: 32, classes: 64 };
const program = process.env.EXOGPU_TOKENS;

// requests: [{text, mode}] of a model file with these keys; gives [{ids, text}], or {refused} for a conversation.
export function ask(keys, requests) {
  const folder = mkdtempSync(join(tmpdir(), "exogpu-tokens-"));
  try {
    const file = join(folder, "vocabulary.gguf");
    writeGguf(file, keys);
    const input = requests.flatMap(({ text, mode: bits }) => {
      const bytes = Buffer.from(text, "utf8");
      const head = Buffer.alloc(5);
      head.writeUInt32LE(bytes.length);
      head.writeUInt8(bits, 4);
      return [head, bytes];
    });
    const run = spawnSync(program, [file], { input: Buffer.concat(input), maxBuffer: 1 << 30 });
    if (run.status !== 0) throw new Error(`${program}: ${run.error ?? run.stderr} (${run.status ?? run.signal})`);
    return answers(run.stdout, requests.length);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function answers(bytes, count) {
  const list = [];
  let at = 0;
  const u32 = () => bytes.readUInt32LE((at += 4) - 4);
  for (let i = 0; i < count; i++) {
    const tokens = u32();
    const refused = tokens === 0xffffffff;
    const ids = refused ? [] : Array.from({ length: tokens }, u32);
    const length = u32();
    const text = bytes.subarray(at, (at += length));
    list.push(refused ? { refused: text.toString() } : { ids, text: text.toString(), bytes: text });
  }
  return list;
}
