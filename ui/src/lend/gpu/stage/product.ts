/* y = x · Wᵀ of quantised rows, for few vectors: each weight is read once for each vector. After stage_product.comp of
 * the Vulkan back end, with the same planes (planes.ts).
 *
 * The text is a module as users' are (docs/lend.md), so that compute.load takes it: kernel `product`, with
 * y f32 (vectors, rows), weights as planes, x f32 (vectors, columns), and the values rows, groups, scales, tops.
 * The grid is (ceil(rows / ROWS), 1, vectors). Weights and activations are used as f32. Pure text. */
import type { RowFormat } from "./planes";

/** Rows of the matrix that a group of invocations computes: each value of x is used so often. */
export const ROWS = 4;
const LANES = 64;

/** The sum of a row's group of 32 columns times x, by format. `at`: of x, in four columns. */
const GROUPS: Record<RowFormat, string> = {
  Q8_0: `
fn signed_bytes(word: u32) -> vec4f {
  let wide = vec4i(bitcast<i32>(word << 24u), bitcast<i32>(word << 16u), bitcast<i32>(word << 8u), bitcast<i32>(word));
  return vec4f(wide >> vec4u(24u));
}
fn group_sum(row: u32, group: u32, at: u32) -> f32 {
  var sum = 0.0;
  for (var piece = 0u; piece < 2u; piece++) {
    let four = weights[(2u * row + piece) * p.groups + group];
    for (var w = 0u; w < 4u; w++) { sum += dot(signed_bytes(four[w]), x[at + 4u * piece + w]); }
  }
  let index = row * p.groups + group;
  let halves = weights[p.scales + index / 8u][(index / 2u) % 4u];
  return sum * unpack2x16float(halves >> (16u * (index % 2u))).x;
}`,
  Q4_K: `
fn low_bytes(word: u32) -> vec4f {
  return vec4f(vec4u(word, word >> 8u, word >> 16u, word >> 24u) & vec4u(255u));
}
fn group_sum(row: u32, group: u32, at: u32) -> f32 {
  let four = weights[row * p.groups + group];
  var sum = 0.0;
  var ones = 0.0;
  for (var w = 0u; w < 4u; w++) {
    let first = x[at + 2u * w];
    let second = x[at + 2u * w + 1u];
    sum += dot(low_bytes(four[w] & 0x0f0f0f0fu), first) + dot(low_bytes((four[w] >> 4u) & 0x0f0f0f0fu), second);
    ones += dot(first + second, vec4f(1.0));
  }
  let top = weights[p.tops + row * (p.groups / 8u) + group / 8u];
  let g = group % 8u;
  let high = top.w >> (2u * g);
  let scale = ((top.y >> (4u * g)) & 15u) | ((high & 3u) << 4u);
  let low = ((top.z >> (4u * g)) & 15u) | (((high >> 16u) & 3u) << 4u);
  let by = unpack2x16float(top.x);
  return by.x * f32(scale) * sum - by.y * f32(low) * ones;
}`,
};

export function productText(format: RowFormat): string {
  return `struct Params { rows: u32, groups: u32, scales: u32, tops: u32 }
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<vec4u>;
@group(0) @binding(2) var<storage, read> x: array<vec4f>;
@group(0) @binding(3) var<uniform> p: Params;
var<workgroup> sums: array<f32, ${ROWS * LANES}>;
${GROUPS[format]}
@compute @workgroup_size(${LANES})
fn product(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) id: vec3u) {
  let begin = id.x * ${ROWS}u;
  let vector = id.z * p.groups * 8u;
  for (var r = 0u; r < ${ROWS}u; r++) {
    let row = min(begin + r, p.rows - 1u);
    var sum = 0.0;
    for (var group = lane; group < p.groups; group += ${LANES}u) { sum += group_sum(row, group, vector + 8u * group); }
    sums[r * ${LANES}u + lane] = sum;
  }
  for (var half = ${LANES / 2}u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) {
      for (var r = 0u; r < ${ROWS}u; r++) { sums[r * ${LANES}u + lane] += sums[r * ${LANES}u + lane + half]; }
    }
  }
  workgroupBarrier();
  if (lane < ${ROWS}u && begin + lane < p.rows) { y[id.z * p.rows + begin + lane] = sums[lane * ${LANES}u]; }
}
`;
}
