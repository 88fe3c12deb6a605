/* QR codes (ISO/IEC 18004): a text as modules, dark or light. Byte mode, level M, versions 1 to 10: 213 bytes at most.
 * Pure. What it makes is compared with another program's in test/qr.test.mjs. */

/** By version, from 1: all codewords, those for correction in each block, the number of blocks. */
const SIZES: readonly (readonly [number, number, number])[] = [
  [26, 10, 1], [44, 16, 1], [70, 26, 1], [100, 18, 2], [134, 24, 2], [172, 16, 4], [196, 18, 4], [242, 22, 4], [292, 22, 5], [346, 26, 5],
];
/** Centres of the alignment patterns, by version. */
const CENTRES: readonly (readonly number[])[] = [
  [], [6, 18], [6, 22], [6, 26], [6, 30], [6, 34], [6, 22, 38], [6, 24, 42], [6, 26, 46], [6, 28, 50],
];
const PENALTY_RUN = 3;

/** Products in GF(256) by the polynomial 0x11d. */
function times(a: number, b: number): number {
  let product = 0;
  for (let bit = 7; bit >= 0; bit--) {
    product = (product << 1) ^ ((product >> 7) * 0x11d);
    if ((b >> bit) & 1) product ^= a;
  }
  return product;
}

/** The remainder of the data by the generator of this degree: the codewords for correction. */
function correction(data: readonly number[], degree: number): number[] {
  let generator = [1];
  for (let i = 0, root = 1; i < degree; i++, root = times(root, 2)) {
    const next = [...generator, 0];
    generator.forEach((factor, at) => (next[at + 1]! ^= times(factor, root)));
    generator = next;
  }
  const rest = new Array<number>(degree).fill(0);
  for (const byte of data) {
    const factor = byte ^ rest.shift()!;
    rest.push(0);
    for (let i = 0; i < degree; i++) rest[i]! ^= times(generator[i + 1]!, factor);
  }
  return rest;
}

/** The codewords in the order in which they are drawn: data of all blocks in turn, then their correction. */
function codewords(bytes: Uint8Array, version: number): number[] {
  const [total, each, blocks] = SIZES[version - 1]!;
  const capacity = total - each * blocks;
  const bits: number[] = [];
  const put = (value: number, count: number): void => {
    for (let i = count - 1; i >= 0; i--) bits.push((value >> i) & 1);
  };
  put(4, 4);
  put(bytes.length, version < 10 ? 8 : 16);
  for (const byte of bytes) put(byte, 8);
  put(0, Math.min(4, capacity * 8 - bits.length));
  while (bits.length % 8) bits.push(0);
  for (let pad = 0xec; bits.length < capacity * 8; pad ^= 0xec ^ 0x11) put(pad, 8);
  const data = Array.from({ length: capacity }, (_, i) => parseInt(bits.slice(i * 8, i * 8 + 8).join(""), 2));
  const short = Math.floor(capacity / blocks);
  const longer = capacity % blocks; // the last blocks have one more
  let at = 0;
  const parts = Array.from({ length: blocks }, (_, i) => data.slice(at, (at += short + (i >= blocks - longer ? 1 : 0))));
  const checks = parts.map((part) => correction(part, each));
  const inTurn = (all: readonly number[][], length: number): number[] =>
    Array.from({ length }, (_, i) => all.flatMap((one) => (i < one.length ? [one[i]!] : []))).flat();
  return [...inTurn(parts, short + 1), ...inTurn(checks, each)];
}

type Grid = (boolean | null)[][];

/** All that does not depend on the text: finders, timing, alignment; false where format and version come. */
function frame(version: number): Grid {
  const size = 17 + 4 * version;
  const grid: Grid = Array.from({ length: size }, () => new Array<boolean | null>(size).fill(null));
  const set = (x: number, y: number, dark: boolean): void => {
    if (x >= 0 && y >= 0 && x < size && y < size) grid[y]![x] = dark;
  };
  for (let i = 0; i < size; i++) {
    set(6, i, i % 2 === 0);
    set(i, 6, i % 2 === 0);
  }
  const centres = CENTRES[version - 1]!;
  for (const cx of centres)
    for (const cy of centres) {
      if ((cx === 6 && (cy === 6 || cy === size - 7)) || (cy === 6 && cx === size - 7)) continue;
      for (let dx = -2; dx <= 2; dx++) for (let dy = -2; dy <= 2; dy++) set(cx + dx, cy + dy, Math.max(Math.abs(dx), Math.abs(dy)) !== 1);
    }
  for (const [cx, cy] of [[3, 3], [size - 4, 3], [3, size - 4]] as const)
    for (let dx = -4; dx <= 4; dx++)
      for (let dy = -4; dy <= 4; dy++) {
        const ring = Math.max(Math.abs(dx), Math.abs(dy));
        set(cx + dx, cy + dy, ring !== 2 && ring !== 4);
      }
  writeFormat(grid, 0);
  writeVersion(grid, version);
  return grid;
}

/** The 15 bits of level M and this mask, twice. */
function writeFormat(grid: Grid, mask: number): void {
  const size = grid.length;
  let rest = mask; // level M is 00
  for (let i = 0; i < 10; i++) rest = (rest << 1) ^ ((rest >> 9) * 0x537);
  const bits = ((mask << 10) | rest) ^ 0x5412;
  for (let i = 0; i < 15; i++) {
    const dark = ((bits >> i) & 1) === 1;
    grid[i < 6 ? i : i < 8 ? i + 1 : size - 15 + i]![8] = dark;
    grid[8]![i < 8 ? size - 1 - i : i === 8 ? 7 : 14 - i] = dark;
  }
  grid[size - 8]![8] = true;
}

function writeVersion(grid: Grid, version: number): void {
  if (version < 7) return;
  let rest = version;
  for (let i = 0; i < 12; i++) rest = (rest << 1) ^ ((rest >> 11) * 0x1f25);
  const bits = (version << 12) | rest;
  for (let i = 0; i < 18; i++) {
    const [a, b] = [Math.floor(i / 3), grid.length - 11 + (i % 3)];
    grid[b]![a] = grid[a]![b] = ((bits >> i) & 1) === 1;
  }
}

const masks: readonly ((x: number, y: number) => boolean)[] = [
  (x, y) => (x + y) % 2 === 0,
  (_, y) => y % 2 === 0,
  (x) => x % 3 === 0,
  (x, y) => (x + y) % 3 === 0,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2 === 0,
  (x, y) => ((x * y) % 2) + ((x * y) % 3) === 0,
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2 === 0,
  (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2 === 0,
];

/** The bits in two columns at a time, up and down, from the right; the column of the timing is left out. */
function fill(base: Grid, words: readonly number[], mask: number): boolean[][] {
  const size = base.length;
  const grid: Grid = base.map((row) => [...row]);
  let at = 0;
  for (let right = size - 1, up = true; right > 0; right -= 2, up = !up) {
    if (right === 6) right--;
    for (let i = 0; i < size; i++) {
      const y = up ? size - 1 - i : i;
      for (const x of [right, right - 1]) {
        if (base[y]![x] !== null) continue;
        const dark = (((words[at >> 3] ?? 0) >> (7 - (at & 7))) & 1) === 1;
        grid[y]![x] = dark !== masks[mask]!(x, y);
        at++;
      }
    }
  }
  writeFormat(grid, mask);
  return grid as boolean[][];
}

/** How hard it is to read: runs, squares, what looks like a finder, and a share of dark far from half. */
function penalty(grid: readonly (readonly boolean[])[]): number {
  const size = grid.length;
  let sum = 0;
  const lines = [...grid.map((row) => [...row]), ...grid.map((_, x) => grid.map((row) => row[x]!))];
  for (const line of lines) {
    const text = line.map(Number).join("");
    for (const run of text.match(/0{5,}|1{5,}/g) ?? []) sum += PENALTY_RUN + run.length - 5;
    for (let i = 0; i + 11 <= size; i++) if (/^(10111010000|00001011101)/.test(text.slice(i, i + 11))) sum += 40;
  }
  for (let y = 0; y + 1 < size; y++)
    for (let x = 0; x + 1 < size; x++) {
      const dark = grid[y]![x];
      if (dark === grid[y]![x + 1] && dark === grid[y + 1]![x] && dark === grid[y + 1]![x + 1]) sum += 3;
    }
  const share = (grid.flat().filter(Boolean).length / (size * size)) * 100;
  return sum + 10 * Math.floor(Math.abs(share - 50) / 5);
}

/** The code of a text with this mask, or the one that is best to read; rows of modules, true: dark. Null: it is too long. */
export function qrCode(text: string, mask?: number): boolean[][] | null {
  const bytes = new TextEncoder().encode(text);
  const version = SIZES.findIndex(([total, each, blocks], i) => bytes.length + (i < 9 ? 2 : 3) <= total - each * blocks) + 1;
  if (version === 0) return null;
  const base = frame(version);
  const words = codewords(bytes, version);
  const all = (mask === undefined ? masks.map((_, i) => i) : [mask]).map((one) => fill(base, words, one));
  return all.reduce((best, one) => (penalty(one) < penalty(best) ? one : best));
}
