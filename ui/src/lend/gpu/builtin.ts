/* The four kernels that every device has: signatures, what they need of their buffers, and their text. The same rules as
 * engine/builtin.c, which says what they compute. Pure functions. */
import { Fault } from "./fault";

export type Kind = "allocation" | "f32" | "i32" | "u32" | "u64" | "count";
export interface Parameter {
  name: string | null;
  kind: Kind;
}
export interface Signature {
  kernel: string;
  parameters: Parameter[];
  block: [number, number, number] | null;
}

export type Builtin = "fill_f32" | "saxpy_f32" | "matmul_f32" | "sum_f32";

const of = (kernel: Builtin, parameters: [string, Kind][]): Signature => ({
  kernel,
  parameters: parameters.map(([name, kind]) => ({ name, kind })),
  block: null,
});

/** In the order of engine/builtin.c. */
export const signatures: Record<Builtin, Signature> = {
  fill_f32: of("fill_f32", [["dst", "allocation"], ["value", "f32"], ["n", "count"]]),
  saxpy_f32: of("saxpy_f32", [["y", "allocation"], ["x", "allocation"], ["a", "f32"], ["n", "count"]]),
  matmul_f32: of("matmul_f32", [
    ["c", "allocation"],
    ["a", "allocation"],
    ["b", "allocation"],
    ["m", "count"],
    ["n", "count"],
    ["k", "count"],
  ]),
  sum_f32: of("sum_f32", [["out", "allocation"], ["x", "allocation"], ["n", "count"]]),
};

export const isBuiltin = (name: string): name is Builtin => Object.hasOwn(signatures, name);

/** By position of the buffer: the positions of the counts whose product is its number of floats; none: one float. */
const needs: Record<Builtin, number[][]> = {
  fill_f32: [[2]],
  saxpy_f32: [[3], [3]],
  matmul_f32: [[3, 4], [3, 5], [5, 4]],
  sum_f32: [[], [2]],
};
/** The buffer that may be no other of the launch. */
const output: Partial<Record<Builtin, number>> = { matmul_f32: 0, sum_f32: 0 };

/** An argument whose kind fits its parameter: a count as a whole number, memory by what tells it from others. */
export type Value = { memory: number; bytes: number } | { number: number } | { count: bigint };

const countOf = (value: Value | undefined): bigint => (value && "count" in value ? value.count : 1n);

/** Throws Fault where the counts do not fit the buffers. The values are of the right number and kinds. */
export function checkCounts(kernel: Builtin, values: Value[]): void {
  const { parameters } = signatures[kernel];
  const written = output[kernel];
  needs[kernel].forEach((factors, position) => {
    const value = values[position];
    if (!value || !("memory" in value)) return;
    const [first = 1n, second = 1n] = factors.map((factor) => countOf(values[factor]));
    const name = parameters[position]?.name ?? "";
    if (first * second * 4n > BigInt(value.bytes))
      throw new Fault(
        "invalid_params",
        `${kernel}: ${name} needs ${first} x ${second} x 4 bytes and is a buffer of ${value.bytes}`,
        "give a larger buffer or smaller counts",
      );
    const other = written === undefined || written === position ? undefined : values[written];
    if (other && "memory" in other && other.memory === value.memory)
      throw new Fault("invalid_params", `${kernel}: ${parameters[written ?? 0]?.name ?? ""} and ${name} are one buffer`);
  });
}

// ---- their text ----

const GROUP = 256;
/** Groups of the first step of a sum, each of which leaves one number. */
export const SUM_GROUPS = 256;
export const TILE = 16;

const params = (fields: string): string =>
  `struct Params { ${fields} }\n@group(0) @binding(9) var<uniform> p: Params;\n`;
/** Each invocation takes every stride-th element: a grid has 65,535 groups at most. */
const loop = (body: string): string => `
@compute @workgroup_size(${GROUP})
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  let stride = groups.x * ${GROUP}u;
  for (var i = id.x; i < p.n; i += stride) { ${body} }
}`;

export const groupsFor = (n: number): number => Math.max(1, Math.min(65535, Math.ceil(n / GROUP)));

/** Sets words; of the first and the last only what the masks say. */
export const FILL_WORDS = `${params("n: u32, at: u32, value: u32, first: u32, last: u32")}
@group(0) @binding(0) var<storage, read_write> to: array<u32>;
${loop(`
    var mask = 0xffffffffu;
    if (i == 0u) { mask &= p.first; }
    if (i + 1u == p.n) { mask &= p.last; }
    let word = p.at + i;
    to[word] = (to[word] & ~mask) | (p.value & mask);`)}`;

/** Copies bytes that do not begin at words, from a buffer in which they lie from byte \`begin\` on. */
export const PUT_BYTES = `${params("n: u32, at: u32, begin: u32, first: u32, last: u32")}
@group(0) @binding(0) var<storage, read_write> to: array<u32>;
@group(0) @binding(1) var<storage, read> source: array<u32>;
fn bytes_at(byte: u32) -> u32 {
  let word = byte / 4u;
  let shift = (byte % 4u) * 8u;
  if (shift == 0u) { return source[word]; }
  return (source[word] >> shift) | (source[word + 1u] << (32u - shift));
}
${loop(`
    var mask = 0xffffffffu;
    if (i == 0u) { mask &= p.first; }
    if (i + 1u == p.n) { mask &= p.last; }
    let word = p.at + i;
    to[word] = (to[word] & ~mask) | (bytes_at(p.begin + 4u * i) & mask);`)}`;

export const SAXPY = `${params("n: u32, a: f32")}
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
${loop("y[i] = p.a * x[i] + y[i];")}`;

/** y and x are one buffer, which WebGPU binds once. */
export const SAXPY_ONE = `${params("n: u32, a: f32")}
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
${loop("y[i] = p.a * y[i] + y[i];")}`;

/** Each group leaves the sum of its share; always in the same order. */
export const SUM = `${params("n: u32")}
@group(0) @binding(0) var<storage, read_write> sums: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
var<workgroup> shares: array<f32, ${GROUP}>;
@compute @workgroup_size(${GROUP})
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) lane: u32,
        @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u) {
  var sum = 0.0;
  for (var i = id.x; i < p.n; i += groups.x * ${GROUP}u) { sum += x[i]; }
  shares[lane] = sum;
  for (var half = ${GROUP / 2}u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { shares[lane] += shares[lane + half]; }
  }
  if (lane == 0u) { sums[group.x] = shares[0]; }
}`;

/** c (m, n) = a (m, k) . b (k, n), row-major, by tiles in the memory of a group. */
export const MATMUL = `${params("m: u32, n: u32, k: u32")}
@group(0) @binding(0) var<storage, read_write> c: array<f32>;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
const T = ${TILE}u;
var<workgroup> left: array<f32, ${TILE * TILE}>;
var<workgroup> right: array<f32, ${TILE * TILE}>;
@compute @workgroup_size(${TILE}, ${TILE})
fn main(@builtin(local_invocation_id) at: vec3u, @builtin(workgroup_id) group: vec3u,
        @builtin(num_workgroups) groups: vec3u) {
  for (var top = group.y * T; top < p.m; top += groups.y * T) {
    for (var side = group.x * T; side < p.n; side += groups.x * T) {
      let row = top + at.y;
      let column = side + at.x;
      var sum = 0.0;
      for (var begin = 0u; begin < p.k; begin += T) {
        var one = 0.0;
        var other = 0.0;
        if (row < p.m && begin + at.x < p.k) { one = a[row * p.k + begin + at.x]; }
        if (column < p.n && begin + at.y < p.k) { other = b[(begin + at.y) * p.n + column]; }
        left[at.y * T + at.x] = one;
        right[at.y * T + at.x] = other;
        workgroupBarrier();
        for (var i = 0u; i < T; i++) { sum += left[at.y * T + i] * right[i * T + at.x]; }
        workgroupBarrier();
      }
      if (row < p.m && column < p.n) { c[row * p.n + column] = sum; }
    }
  }
}`;

/** What verification computes: engine/builtin.h, BUILTIN_VERIFY. */
export const VERIFY = `${params("n: u32, seed: u32, scale: f32, bias: f32")}
@group(0) @binding(0) var<storage, read_write> result: array<u32>;
@group(0) @binding(1) var<storage, read> source: array<u32>;
fn mix_bits(value: u32) -> u32 {
  var v = value ^ p.seed;
  v = (v ^ (v >> 16u)) * 0x9e3779b1u;
  v = (v ^ (v >> 15u)) * 0xb5297a4du;
  return v ^ (v >> 16u);
}
${loop(`
    let bits = mix_bits(source[i] + i);
    result[i] = bits;
    result[p.n + i] = bitcast<u32>(fma(f32(bits >> 8u) * 0x1p-24f, p.scale, p.bias));`)}`;

/** Reads everything and keeps one word of each invocation. */
export const STREAM_READ = `${params("n: u32")}
@group(0) @binding(0) var<storage, read_write> sink: array<u32>;
@group(0) @binding(1) var<storage, read> data: array<vec4u>;
@compute @workgroup_size(${GROUP})
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  var all = vec4u(0u);
  let stride = groups.x * ${GROUP}u;
  for (var i = id.x; i < p.n; i += stride) { all ^= data[i]; }
  if ((all.x ^ all.y ^ all.z ^ all.w) == 0x9e3779b1u) { sink[0] = id.x; }
}`;
