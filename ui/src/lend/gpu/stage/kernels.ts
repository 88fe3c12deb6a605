/* The kernels of a stage, as WGSL. Pure text.
 *
 * All have the bindings 0 to 4 (buffers) and PARAMS (a uniform of their own); constants of the model are filled in, so
 * that there is a pipeline for each text. `step` tells of the rows of a step, two words each: position, and where in it
 * the list of the row's pages begins. Rows of activations lie one behind another, without gaps. */
import { GROUP, type Format, groupText } from "./formats";

export const PARAMS = 5;
export const PAGE_TOKENS = 32; // STAGE_PAGE_TOKENS
export const LANES = 64;
/** Rows of the matrix that a group of invocations makes, and of the batch that it takes at once. */
export const MATRIX_ROWS = 4;
export const BATCH = 8;
export const HEAD_SIZE_MOST = 256;

const ROW_LANES = LANES / MATRIX_ROWS;

/** y = W x, or y += W x. The grid is (rows of the matrix / MATRIX_ROWS, rows of the batch / `batch`). */
export function productText(format: Format, batch: 1 | typeof BATCH): string {
  return `struct Params { rows: u32, first: u32, all: u32, groups: u32, row_bytes: u32, add: u32 }
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<vec4f>;
@group(0) @binding(${PARAMS}) var<uniform> p: Params;
var<workgroup> sums: array<f32, ${LANES * batch}>;
${groupText(format)}
@compute @workgroup_size(${LANES})
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) id: vec3u, @builtin(num_workgroups) wide: vec3u) {
  let begin = (id.x + id.z * wide.x) * ${MATRIX_ROWS}u;
  let row = min(begin + lane / ${ROW_LANES}u, p.rows - 1u);
  var sum: array<f32, ${batch}>;
  for (var index = lane % ${ROW_LANES}u; index < p.groups; index += ${ROW_LANES}u) {
    let w = group(row * p.row_bytes, index);
    for (var b = 0u; b < ${batch}u; b++) {
      let at = ((id.y * ${batch}u + b) * p.groups + index) * ${GROUP / 4}u;
      var one = dot(w.v[0], x[at]) + dot(w.v[1], x[at + 1u]) + dot(w.v[2], x[at + 2u]) + dot(w.v[3], x[at + 3u]);
      one += dot(w.v[4], x[at + 4u]) + dot(w.v[5], x[at + 5u]) + dot(w.v[6], x[at + 6u]) + dot(w.v[7], x[at + 7u]);
      sum[b] += one;
    }
  }
  for (var b = 0u; b < ${batch}u; b++) { sums[b * ${LANES}u + lane] = sum[b]; }
  workgroupBarrier();
  if (lane >= ${MATRIX_ROWS * batch}u || begin + lane % ${MATRIX_ROWS}u >= p.rows) { return; }
  let begins = (lane / ${MATRIX_ROWS}u) * ${LANES}u + (lane % ${MATRIX_ROWS}u) * ${ROW_LANES}u;
  var total = 0.0;
  for (var i = 0u; i < ${ROW_LANES}u; i++) { total += sums[begins + i]; }
  let to = (id.y * ${batch}u + lane / ${MATRIX_ROWS}u) * p.all + p.first + begin + lane % ${MATRIX_ROWS}u;
  if (p.add != 0u) { total += y[to]; }
  y[to] = total;
}
`;
}

/** y = rows of a table, by token, times a number. Tokens outside this part of the table are left to others. The grid is
 * (groups of a row / LANES, rows). */
export function embedText(format: Format): string {
  return `struct Params { rows: u32, first: u32, groups: u32, row_bytes: u32, by: f32 }
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read> tokens: array<u32>;
@group(0) @binding(${PARAMS}) var<uniform> p: Params;
${groupText(format)}
@compute @workgroup_size(${LANES})
fn main(@builtin(global_invocation_id) id: vec3u) {
  let token = tokens[id.y];
  if (id.x >= p.groups || token < p.first || token - p.first >= p.rows) { return; }
  let w = group((token - p.first) * p.row_bytes, id.x);
  for (var i = 0u; i < ${GROUP / 4}u; i++) { y[(id.y * p.groups + id.x) * ${GROUP / 4}u + i] = w.v[i] * p.by; }
}
`;
}

/** y = x / rms(x) * gain, of each row. The grid is (rows). */
export const NORM = `struct Params { columns: u32, epsilon: f32 }
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> gain: array<f32>;
@group(0) @binding(${PARAMS}) var<uniform> p: Params;
var<workgroup> sums: array<f32, ${LANES}>;
@compute @workgroup_size(${LANES})
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) id: vec3u) {
  let begin = id.x * p.columns;
  var own = 0.0;
  for (var i = lane; i < p.columns; i += ${LANES}u) { own += x[begin + i] * x[begin + i]; }
  sums[lane] = own;
  workgroupBarrier();
  var sum = 0.0;
  for (var i = 0u; i < ${LANES}u; i++) { sum += sums[i]; }
  let by = inverseSqrt(sum / f32(p.columns) + p.epsilon);
  for (var i = lane; i < p.columns; i += ${LANES}u) { y[begin + i] = x[begin + i] * by * gain[i]; }
}
`;

/** f = act(gate) * up, into gate. The grid is (columns / LANES, rows). */
export const gateText = (gate: "silu" | "gelu"): string => `struct Params { columns: u32 }
@group(0) @binding(0) var<storage, read_write> f: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(${PARAMS}) var<uniform> p: Params;
fn act(v: f32) -> f32 {
  ${
    gate === "silu"
      ? "return v / (1.0 + exp(-v));"
      : "return 0.5 * v * (1.0 + tanh(clamp(0.7978845608 * (v + 0.044715 * v * v * v), -15.0, 15.0)));"
  }
}
@compute @workgroup_size(${LANES})
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= p.columns) { return; }
  let at = id.y * p.columns + id.x;
  f[at] = act(f[at]) * up[at];
}
`;

export interface HeadParams {
  headSize: number;
  bias: boolean;
  norm: boolean;
  /** Values of a head that turn; 0: none. */
  turns: number;
  /** Value i turns with i + turns / 2, else 2 i with 2 i + 1. */
  halves: boolean;
  epsilon: number;
  /** q stays where it is; k and v go to their pages, as f16. */
  store: boolean;
}

/** What comes after the products of q, k and v: bias, norm of the head, turning, storing. Bindings: q (or pages), x (of
 * k and v), extra (bias, then gain), step, turn. The grid is (heads, rows). */
export function headText({ headSize, bias, norm, turns, halves, epsilon, store }: HeadParams): string {
  const value = store ? "x[begin + i]" : "y[begin + i]";
  return `struct Params { heads: u32, gain: u32 }
@group(0) @binding(0) var<storage, read_write> y: array<${store ? "u32" : "f32"}>;
${store ? "@group(0) @binding(1) var<storage, read> x: array<f32>;" : ""}
${bias || norm ? "@group(0) @binding(2) var<storage, read> extra: array<f32>;" : ""}
${store ? "@group(0) @binding(3) var<storage, read> step: array<u32>;" : ""}
${turns ? "@group(0) @binding(4) var<storage, read> turn: array<vec2f>;" : ""}
@group(0) @binding(${PARAMS}) var<uniform> p: Params;
var<workgroup> head: array<f32, ${headSize}>;
fn value_of(i: u32, row: u32) -> f32 {
  ${
    turns
      ? `if (i >= ${turns}u) { return head[i]; }
  let pair = ${halves ? `i % ${turns / 2}u` : "i / 2u"};
  let first = ${halves ? "pair" : "2u * pair"};
  let second = ${halves ? `pair + ${turns / 2}u` : "2u * pair + 1u"};
  let by = turn[row * ${turns / 2}u + pair];
  if (i == first) { return head[first] * by.x - head[second] * by.y; }
  return head[second] * by.x + head[first] * by.y;`
      : "return head[i];"
  }
}
@compute @workgroup_size(${LANES})
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) id: vec3u) {
  let begin = (id.y * p.heads + id.x) * ${headSize}u;
  for (var i = lane; i < ${headSize}u; i += ${LANES}u) { head[i] = ${value}${bias ? ` + extra[id.x * ${headSize}u + i]` : ""}; }
  workgroupBarrier();
  ${
    norm
      ? `var sum = 0.0;
  for (var i = 0u; i < ${headSize}u; i++) { sum += head[i] * head[i]; }
  let by = inverseSqrt(sum / ${headSize}.0 + ${epsilon.toExponential(9)});
  workgroupBarrier();
  for (var i = lane; i < ${headSize}u; i += ${LANES}u) { head[i] *= by * extra[p.gain + i]; }
  workgroupBarrier();`
      : ""
  }
  ${
    store
      ? `let position = step[2u * id.y];
  let page = step[step[2u * id.y + 1u] + position / ${PAGE_TOKENS}u];
  let to = ((page * ${PAGE_TOKENS}u + position % ${PAGE_TOKENS}u) * p.heads + id.x) * ${headSize / 2}u;
  for (var i = lane; i < ${headSize / 2}u; i += ${LANES}u) {
    let two = vec2f(value_of(2u * i, id.y), value_of(2u * i + 1u, id.y));
    y[to + i] = pack2x16float(clamp(two, vec2f(-65504.0), vec2f(65504.0)));
  }`
      : `for (var i = lane; i < ${headSize}u; i += ${LANES}u) { y[begin + i] = value_of(i, id.y); }`
  }
}
`;
}

/** y = softmax(scale q · k) v, over the positions until the row's own. The grid is (heads, rows). */
export function attentionText(headSize: number, heads: number, kvHeads: number, scale: number): string {
  const each = Math.ceil(headSize / LANES);
  return `@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read> values: array<u32>;
@group(0) @binding(4) var<storage, read> step: array<u32>;
var<workgroup> query: array<f32, ${headSize}>;
var<workgroup> scores: array<f32, ${LANES}>;
var<workgroup> shares: array<f32, ${LANES}>;
var<workgroup> places: array<u32, ${LANES}>;
@compute @workgroup_size(${LANES})
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) id: vec3u) {
  let begin = (id.y * ${heads}u + id.x) * ${headSize}u;
  let count = step[2u * id.y] + 1u;
  let pages = step[2u * id.y + 1u];
  for (var i = lane; i < ${headSize}u; i += ${LANES}u) { query[i] = q[begin + i] * ${scale.toExponential(9)}; }
  workgroupBarrier();
  var most = -3.0e38;
  var all = 0.0;
  var sum: array<f32, ${each}>;
  for (var first = 0u; first < count; first += ${LANES}u) {
    let position = first + lane;
    var score = -3.0e38;
    if (position < count) {
      let page = step[pages + position / ${PAGE_TOKENS}u];
      let at = ((page * ${PAGE_TOKENS}u + position % ${PAGE_TOKENS}u) * ${kvHeads}u + id.x / ${heads / kvHeads}u) * ${headSize / 2}u;
      places[lane] = at;
      score = 0.0;
      for (var i = 0u; i < ${headSize / 2}u; i++) {
        score += dot(unpack2x16float(keys[at + i]), vec2f(query[2u * i], query[2u * i + 1u]));
      }
    }
    scores[lane] = score;
    workgroupBarrier();
    let here = min(count - first, ${LANES}u);
    var highest = most;
    for (var i = 0u; i < here; i++) { highest = max(highest, scores[i]); }
    shares[lane] = exp(score - highest);
    workgroupBarrier();
    let kept = exp(most - highest);
    most = highest;
    all *= kept;
    for (var i = 0u; i < here; i++) { all += shares[i]; }
    for (var e = 0u; e < ${each}u; e++) {
      let i = lane + e * ${LANES}u;
      if (i < ${headSize}u) {
        var one = sum[e] * kept;
        for (var j = 0u; j < here; j++) { one += shares[j] * unpack2x16float(values[places[j] + i / 2u])[i & 1u]; }
        sum[e] = one;
      }
    }
    workgroupBarrier();
  }
  for (var e = 0u; e < ${each}u; e++) {
    let i = lane + e * ${LANES}u;
    if (i < ${headSize}u) { y[begin + i] = sum[e] / all; }
  }
}
`;
}
