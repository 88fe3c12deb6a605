/* Memory of a client as pieces of the device's buffers, and bytes as the words that a device can address. Pure functions.
 *
 * An allocation lies in buffers of `chunk` bytes, the last of which may be shorter. WebGPU copies and computes in words
 * of 4 bytes only, so a range of bytes is a range of words whose first and last word are changed in part. */
import { Fault } from "./fault";

/** A part of a range inside one buffer. */
export interface Piece {
  index: number; // of the buffer
  at: number; // in it
  bytes: number;
  done: number; // bytes of the range before it
}

export function checkRange(size: number, offset: number, bytes: number): void {
  if (offset > size || bytes > size - offset)
    throw new Fault("invalid_params", `${bytes} bytes at ${offset} are not within the allocation of ${size}`);
}

/** The pieces of `bytes` at `offset`, of at most `most` bytes each. */
export function pieces(offset: number, bytes: number, chunk: number, most = chunk): Piece[] {
  const out: Piece[] = [];
  for (let done = 0; done < bytes; ) {
    const index = Math.floor((offset + done) / chunk);
    const at = offset + done - index * chunk;
    const now = Math.min(bytes - done, chunk - at, most);
    out.push({ index, at, bytes: now, done });
    done += now;
  }
  return out;
}

/** A copy from one allocation to another, as pieces that lie in one buffer of each. */
export interface Move {
  from: Piece;
  to: Piece;
}

export function moves(fromOffset: number, toOffset: number, bytes: number, chunk: number, most = chunk): Move[] {
  const out: Move[] = [];
  for (const from of pieces(fromOffset, bytes, chunk, most))
    for (const to of pieces(toOffset + from.done, from.bytes, chunk))
      out.push({
        from: { index: from.index, at: from.at + to.done, bytes: to.bytes, done: from.done + to.done },
        to: { ...to, done: from.done + to.done },
      });
  return out;
}

export function overlap(offset: number, other: number, bytes: number): boolean {
  return bytes > 0 && offset < other + bytes && other < offset + bytes;
}

/** A range of bytes as words: which, and what of the first and of the last belongs to it (of one word: both). */
export interface Words {
  first: number;
  count: number;
  firstMask: number;
  lastMask: number;
}

export function words(at: number, bytes: number): Words {
  const first = Math.floor(at / 4);
  const end = at + bytes;
  const count = Math.ceil(end / 4) - first;
  const firstMask = (0xffffffff << (8 * (at % 4))) >>> 0;
  const lastMask = end % 4 ? 0xffffffff >>> (32 - 8 * (end % 4)) : 0xffffffff;
  return { first, count, firstMask, lastMask };
}

/** A range of bytes as whole words in the middle and what is before and after them. */
export interface Edges {
  before: number; // bytes
  middle: number;
  after: number;
}

export function edges(at: number, bytes: number): Edges {
  const before = Math.min(bytes, (4 - (at % 4)) % 4);
  const middle = Math.floor((bytes - before) / 4) * 4;
  return { before, middle, after: bytes - before - middle };
}

export const wordsUp = (bytes: number): number => Math.ceil(bytes / 4) * 4;
