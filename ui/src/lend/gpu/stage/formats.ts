/* Number formats of model files as a kernel reads them: the blocks of engine/model/format.h, byte for byte as in the
 * file, so that nothing is repacked while a model is loaded. All blocks begin at even bytes. Pure text and numbers.
 *
 * Each format is a WGSL function `group(at, index)`: the 32 values of group `index` of the row that begins at byte `at`
 * of `weights`, into eight vectors. */

export const GROUP = 32; // values
export const FORMATS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"] as const;
export type Format = (typeof FORMATS)[number];

/** Values and bytes of a block. */
const BLOCKS: Record<Format, [number, number]> = {
  F32: [1, 4],
  F16: [1, 2],
  BF16: [1, 2],
  Q8_0: [32, 34],
  Q4_0: [32, 18],
  Q4_K: [256, 144],
  Q5_K: [256, 176],
  Q6_K: [256, 210],
};

export const isFormat = (name: unknown): name is Format => FORMATS.includes(name as Format);

/** Bytes of a row; null: a row of so many values has no whole blocks, or no whole groups. */
export function rowBytes(format: Format, columns: number): number | null {
  const [values, bytes] = BLOCKS[format];
  return columns % GROUP || columns % values ? null : (columns / values) * bytes;
}

const READ = `
struct Group { v: array<vec4f, 8> }
fn half_at(at: u32) -> u32 { return (weights[at / 4u] >> (8u * (at & 2u))) & 0xffffu; }
fn word_at(at: u32) -> u32 {
  let low = weights[at / 4u];
  if ((at & 2u) == 0u) { return low; }
  return (low >> 16u) | (weights[at / 4u + 1u] << 16u);
}
fn number_at(at: u32) -> f32 { return unpack2x16float(half_at(at)).x; }
fn unsigned4(word: u32) -> vec4f { return vec4f(vec4u(word, word >> 8u, word >> 16u, word >> 24u) & vec4u(255u)); }
fn signed4(word: u32) -> vec4f {
  let high = vec4i(bitcast<i32>(word << 24u), bitcast<i32>(word << 16u), bitcast<i32>(word << 8u), bitcast<i32>(word));
  return vec4f(high >> vec4u(24u));
}`;

/** The scale and the min of a group of Q4_K and Q5_K, times what both are multiplied with. */
const SCALES = `
fn byte_of(at: u32, index: u32) -> u32 { return (word_at(at + (index & 12u)) >> (8u * (index & 3u))) & 255u; }
fn scales_of(block: u32, g: u32) -> vec2f {
  let at = block + 4u;
  var scale: u32;
  var low: u32;
  if (g < 4u) {
    scale = byte_of(at, g) & 63u;
    low = byte_of(at, g + 4u) & 63u;
  } else {
    scale = (byte_of(at, g + 4u) & 15u) | ((byte_of(at, g - 4u) >> 6u) << 4u);
    low = (byte_of(at, g + 4u) >> 4u) | ((byte_of(at, g) >> 6u) << 4u);
  }
  return unpack2x16float(word_at(block)) * vec2f(f32(scale), f32(low));
}`;

const GROUPS: Record<Format, string> = {
  F32: `
fn group(at: u32, index: u32) -> Group {
  var out: Group;
  let first = at / 4u + 32u * index;
  for (var i = 0u; i < 8u; i++) {
    let w = first + 4u * i;
    out.v[i] = bitcast<vec4f>(vec4u(weights[w], weights[w + 1u], weights[w + 2u], weights[w + 3u]));
  }
  return out;
}`,
  F16: `
fn group(at: u32, index: u32) -> Group {
  var out: Group;
  for (var i = 0u; i < 8u; i++) {
    let w = at + 64u * index + 8u * i;
    out.v[i] = vec4f(unpack2x16float(word_at(w)), unpack2x16float(word_at(w + 4u)));
  }
  return out;
}`,
  BF16: `
fn pair(word: u32) -> vec2f { return vec2f(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u)); }
fn group(at: u32, index: u32) -> Group {
  var out: Group;
  for (var i = 0u; i < 8u; i++) {
    let w = at + 64u * index + 8u * i;
    out.v[i] = vec4f(pair(word_at(w)), pair(word_at(w + 4u)));
  }
  return out;
}`,
  Q8_0: `
fn group(at: u32, index: u32) -> Group {
  var out: Group;
  let block = at + 34u * index;
  let d = number_at(block);
  for (var i = 0u; i < 8u; i++) { out.v[i] = d * signed4(word_at(block + 2u + 4u * i)); }
  return out;
}`,
  Q4_0: `
fn group(at: u32, index: u32) -> Group {
  var out: Group;
  let block = at + 18u * index;
  let d = number_at(block);
  for (var i = 0u; i < 4u; i++) {
    let word = word_at(block + 2u + 4u * i);
    out.v[i] = d * (unsigned4(word & 0x0f0f0f0fu) - 8.0);
    out.v[i + 4u] = d * (unsigned4((word >> 4u) & 0x0f0f0f0fu) - 8.0);
  }
  return out;
}`,
  Q4_K: `${SCALES}
fn group(at: u32, index: u32) -> Group {
  var out: Group;
  let block = at + 144u * (index / 8u);
  let g = index % 8u;
  let by = scales_of(block, g);
  for (var i = 0u; i < 8u; i++) {
    let word = word_at(block + 16u + 32u * (g / 2u) + 4u * i) >> (4u * (g & 1u));
    out.v[i] = by.x * unsigned4(word & 0x0f0f0f0fu) - by.y;
  }
  return out;
}`,
  Q5_K: `${SCALES}
fn group(at: u32, index: u32) -> Group {
  var out: Group;
  let block = at + 176u * (index / 8u);
  let g = index % 8u;
  let by = scales_of(block, g);
  for (var i = 0u; i < 8u; i++) {
    let low = (word_at(block + 48u + 32u * (g / 2u) + 4u * i) >> (4u * (g & 1u))) & 0x0f0f0f0fu;
    let high = (word_at(block + 16u + 4u * i) >> g) & 0x01010101u;
    out.v[i] = by.x * unsigned4(low | (high << 4u)) - by.y;
  }
  return out;
}`,
  Q6_K: `
fn group(at: u32, index: u32) -> Group {
  var out: Group;
  let block = at + 210u * (index / 8u);
  let g = index % 8u;
  let low_at = block + 64u * (g / 4u) + 32u * (g & 1u);
  let high_at = block + 128u + 32u * (g / 4u);
  let d = number_at(block + 208u);
  let scales = half_at(block + 192u + 2u * g);
  for (var i = 0u; i < 8u; i++) {
    let low = (word_at(low_at + 4u * i) >> (2u * (g & 2u))) & 0x0f0f0f0fu;
    let high = (word_at(high_at + 4u * i) >> (2u * (g & 3u))) & 0x03030303u;
    let scale = bitcast<i32>(scales << (24u - 8u * (i / 4u))) >> 24u;
    out.v[i] = d * f32(scale) * (unsigned4(low | (high << 4u)) - 32.0);
  }
  return out;
}`,
};

/** WGSL of `group` for this format; the module has `weights`, an array of words. */
export const groupText = (format: Format): string => READ + GROUPS[format];
