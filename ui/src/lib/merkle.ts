/* Consistency of two heads of an RFC 6962 tree: whether the later one continues the earlier one. The browser remembers
 * the last head that it saw; a log that was cut or written anew cannot prove that it continues it. */

const bytes = (base64: string): Uint8Array => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

async function node(left: Uint8Array, right: Uint8Array): Promise<Uint8Array> {
  const input = new Uint8Array(1 + left.length + right.length);
  input[0] = 1;
  input.set(left, 1);
  input.set(right, 1 + left.length);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", input));
}

const same = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && a.every((byte, i) => byte === b[i]);

function isPowerOfTwo(size: number): boolean {
  let odd = size;
  while (odd % 2 === 0) odd /= 2;
  return odd === 1;
}

/** Hashing is there on https and on loopback only. */
export const canHash = (): boolean => typeof crypto !== "undefined" && crypto.subtle !== undefined;

export interface Head {
  readonly size: number;
  /** Base64 */
  readonly root: string;
}

/** RFC 9162, 2.1.4.2. Sizes are below 2^53, so shifts are divisions. */
export async function continues(from: Head, to: Head, proof: readonly string[]): Promise<boolean> {
  if (from.size > to.size) return false;
  if (from.size === to.size) return proof.length === 0 && from.root === to.root;
  if (from.size === 0) return proof.length === 0;
  const hashes = proof.map(bytes);
  if (hashes.some((one) => one.length !== 32)) return false;
  let first = from.size - 1;
  let second = to.size - 1;
  const half = (): void => {
    first = Math.floor(first / 2);
    second = Math.floor(second / 2);
  };
  while (first % 2 === 1) half();
  // where `from` is a whole subtree its root is not in the proof
  if (isPowerOfTwo(from.size)) hashes.unshift(bytes(from.root));
  let old = hashes[0];
  let grown = hashes[0];
  if (!old || !grown) return false;
  for (const hash of hashes.slice(1)) {
    if (second === 0) return false;
    if (first % 2 === 1 || first === second) {
      old = await node(hash, old);
      grown = await node(hash, grown);
      while (first !== 0 && first % 2 === 0) half();
    } else grown = await node(grown, hash);
    half();
  }
  return second === 0 && same(old, bytes(from.root)) && same(grown, bytes(to.root));
}
