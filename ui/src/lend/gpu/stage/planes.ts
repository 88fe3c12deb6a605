/* Quantised rows as a GPU reads them: the planes of engine/vulkan/stage/stage_weights.c, bit for bit the same numbers in
 * the same number of bytes. Blocks of model files (engine/model/format.h) begin at any two bytes; shaders want 16 bytes
 * at a time, side by side. Pure functions.
 *
 *   numbers  pieces of 16 bytes: piece p of group g of a row at p * groups + g. Q8_0: 16 numbers each; Q4_K: 32 halves of
 *            bytes, those of columns 8 w .. 8 w + 3 the low halves of word w, of the next four the high ones
 *   scales   Q8_0: f16, one for each group
 *   tops     Q4_K: for each 8 groups d | dmin << 16 and words of the low 4 bits of the scales, of the mins, and of the top
 *            2 bits of both */

export type RowFormat = "Q8_0" | "Q4_K";

const GROUP = 32; // columns
const SUPER = 8; // groups
const PIECE = 16; // bytes
const Q8_BLOCK = 34;
const Q4_BLOCK = 144;

export interface Planes {
  bytes: Uint8Array<ArrayBuffer>;
  groups: number; // of a row
  scales: number; // where the plane begins, in 16 bytes
  tops: number;
}

const aligned = (bytes: number): number => Math.ceil(bytes / PIECE) * PIECE;

function packQ8(row: Uint8Array, groups: number, numbers: Uint8Array, scales: Uint8Array): void {
  for (let g = 0; g < groups; g++) {
    const block = row.subarray(g * Q8_BLOCK, (g + 1) * Q8_BLOCK);
    scales.set(block.subarray(0, 2), 2 * g);
    numbers.set(block.subarray(2, 2 + PIECE), g * PIECE);
    numbers.set(block.subarray(2 + PIECE), (groups + g) * PIECE);
  }
}

/** The scale and the min of group g of a block, 6 bits each. */
function scaleOf(scales: Uint8Array, g: number): [number, number] {
  const at = (index: number): number => scales[index] ?? 0;
  if (g < 4) return [at(g) & 63, at(g + 4) & 63];
  return [(at(g + 4) & 15) | ((at(g - 4) >> 6) << 4), (at(g + 4) >> 4) | ((at(g) >> 6) << 4)];
}

function packTop(block: Uint8Array, top: DataView, at: number): void {
  const scales = block.subarray(4, 16);
  let low = 0, mins = 0, high = 0;
  for (let g = 0; g < SUPER; g++) {
    const [scale, min] = scaleOf(scales, g);
    low |= (scale & 15) << (4 * g);
    mins |= (min & 15) << (4 * g);
    high |= ((scale >> 4) << (2 * g)) | ((min >> 4) << (16 + 2 * g));
  }
  block.subarray(0, 4).forEach((byte, i) => top.setUint8(at + i, byte)); // d and dmin
  [low, mins, high].forEach((word, i) => top.setUint32(at + 4 + 4 * i, word >>> 0, true));
}

function packQ4(row: Uint8Array, groups: number, numbers: Uint8Array, tops: DataView): void {
  for (let g = 0; g < groups; g++) {
    const block = row.subarray(Math.floor(g / SUPER) * Q4_BLOCK, (Math.floor(g / SUPER) + 1) * Q4_BLOCK);
    const q = block.subarray(16 + Math.floor((g % SUPER) / 2) * GROUP);
    const shift = (g % 2) * 4;
    for (let i = 0; i < PIECE; i++) {
      const from = Math.floor(i / 4) * 8 + (i % 4);
      const half = (at: number): number => ((q[at] ?? 0) >> shift) & 15;
      numbers[g * PIECE + i] = half(from) | (half(from + 4) << 4);
    }
    if (g % SUPER === 0) packTop(block, tops, (g / SUPER) * PIECE);
  }
}

/** Rows of a model file as planes. `columns` is a multiple of 32, and of 256 for Q4_K. Throws RangeError. */
export function pack(format: RowFormat, file: Uint8Array, rows: number, columns: number): Planes {
  const [block, values] = format === "Q8_0" ? [Q8_BLOCK, GROUP] : [Q4_BLOCK, GROUP * SUPER];
  const rowBytes = (columns / values) * block;
  if (!rows || !columns || columns % values || file.length !== rows * rowBytes)
    throw new RangeError(`${file.length} bytes are not ${rows} rows of ${columns} columns in ${format}`);
  const groups = columns / GROUP;
  const numberBytes = groups * (format === "Q8_0" ? 2 * PIECE : PIECE);
  const scales = rows * numberBytes;
  const tops = scales + (format === "Q8_0" ? aligned(rows * groups * 2) : 0);
  const topBytes = format === "Q8_0" ? 0 : (groups / SUPER) * PIECE;
  const bytes = new Uint8Array(tops + rows * topBytes);
  for (let r = 0; r < rows; r++) {
    const row = file.subarray(r * rowBytes, (r + 1) * rowBytes);
    const numbers = bytes.subarray(r * numberBytes, (r + 1) * numberBytes);
    if (format === "Q8_0") packQ8(row, groups, numbers, bytes.subarray(scales + r * groups * 2));
    else packQ4(row, groups, numbers, new DataView(bytes.buffer, tops + r * topBytes, topBytes));
  }
  return { bytes, groups, scales: scales / PIECE, tops: tops / PIECE };
}
