/* Whether the GPU of this browser really computes, and how fast it reads its memory: what engine/worker/verify.c and
 * measure.c do for native devices. The reference works in 64-bit integers and doubles, not with the code that it checks. */
import { STREAM_READ, VERIFY, groupsFor } from "./builtin";
import { Device } from "./device";
import { Memory } from "./memory";
import { bitsOf } from "./arguments";

const ELEMENTS = 256 * 1024;
const SCALE = 3.25;
const BIAS = -1.5;
/** Of a hanging driver. */
const PATIENCE_MS = 60_000;
/** Read for the bandwidth: a first, small reading says how much a quarter of a second is. */
const READ_LEAST = 4 * 1024 * 1024;
const READ_MOST = 128 * 1024 * 1024;
const READ_S = 0.25;
const RUNS = 3;

export interface Verification {
  state: "passed" | "failed";
  error: string | null;
  duration_ms: number;
  /** null: not measured. By the clock of the browser, around the submission. */
  memory_bandwidth_bytes_per_s: number | null;
}

export function mix(value: number, seed: number): number {
  let x = (value ^ seed) >>> 0;
  x = Number((BigInt(x ^ (x >>> 16)) & 0xffffffffn) * 2654435761n & 0xffffffffn);
  x = Number((BigInt((x ^ (x >>> 15)) >>> 0) * 3039394381n) & 0xffffffffn);
  return (x ^ (x >>> 16)) >>> 0;
}

/** What is wrong with words that were written, copied and read; null: nothing. */
export function compareCopy(found: Uint32Array, pattern: Uint32Array): string | null {
  const at = pattern.findIndex((word, index) => found[index] !== word);
  return at < 0 ? null : `verification failed: word ${at} read back as ${found[at]}, written and copied as ${pattern[at]}`;
}

/** What is wrong with what the kernel left; null: nothing. */
export function compareKernel(result: Uint32Array<ArrayBuffer>, pattern: Uint32Array, seed: number): string | null {
  const floats = new Float32Array(result.buffer, result.byteOffset, result.length);
  for (let i = 0; i < pattern.length; i++) {
    const bits = mix(((pattern[i] ?? 0) + i) >>> 0, seed);
    if (result[i] !== bits) return `verification failed: the kernel's integer ${i} is ${result[i]}, not ${bits}`;
    const value = floats[pattern.length + i] ?? Number.NaN;
    const expected = ((bits >>> 8) / 16777216) * SCALE + BIAS;
    if (!(Math.abs(value - expected) <= 1e-6)) // also false for NaN
      return `verification failed: the kernel's float ${i} is ${value}, not ${expected}`;
  }
  return null;
}

async function compute(device: Device, memory: Memory): Promise<string | null> {
  const [seed] = crypto.getRandomValues(new Uint32Array(1)) as unknown as [number];
  const pattern = Uint32Array.from({ length: ELEMENTS }, (_, i) => mix(i, ~seed >>> 0));
  const bytes = pattern.byteLength;
  await memory.allocate(1, bytes);
  await memory.allocate(2, bytes);
  await memory.allocate(3, 2 * bytes);
  memory.write(1, 0, new Uint8Array(pattern.buffer));
  await memory.copy({ from: 1, from_offset: 0, to: 2, to_offset: 0, bytes }, () => {});
  const copied = await memory.read(2, 0, bytes);
  const fault = compareCopy(new Uint32Array(copied.slice().buffer), pattern);
  if (fault) return fault;
  const buffers = [memory.find(3).buffers[0], memory.find(2).buffers[0]] as GPUBuffer[];
  device.run(VERIFY, buffers, [ELEMENTS, seed, bitsOf(SCALE), bitsOf(BIAS)], [groupsFor(ELEMENTS)]);
  const result = await memory.read(3, 0, 2 * bytes);
  return compareKernel(new Uint32Array(result.slice().buffer), pattern, seed);
}

async function readSeconds(device: Device, buffers: GPUBuffer[], bytes: number): Promise<number> {
  await device.done();
  const began = performance.now();
  device.run(STREAM_READ, buffers, [bytes / 16], [groupsFor(bytes / 16)]);
  await device.done();
  return Math.max(1e-5, (performance.now() - began) / 1000);
}

async function bandwidth(device: Device, memory: Memory): Promise<number> {
  await memory.allocate(4, 16);
  let bytes = READ_LEAST;
  await memory.allocate(5, bytes);
  const of = (): GPUBuffer[] => [memory.find(4).buffers[0], memory.find(5).buffers[0]] as GPUBuffer[];
  await readSeconds(device, of(), bytes); // compiles the kernel
  const first = await readSeconds(device, of(), bytes);
  const wanted = Math.min(READ_MOST, device.chunk, (bytes / first) * READ_S);
  if (wanted >= 2 * bytes) {
    memory.free(5);
    bytes = Math.floor(wanted / READ_LEAST) * READ_LEAST;
    await memory.allocate(5, bytes);
    await readSeconds(device, of(), bytes); // the memory is touched
  }
  let best = 0;
  for (let run = 0; run < RUNS; run++) best = Math.max(best, bytes / (await readSeconds(device, of(), bytes)));
  return best;
}

/** Allocate, write, copy, compute, read back, compare, measure. Never throws. */
export async function verifyDevice(): Promise<Verification> {
  const began = performance.now();
  const out: Verification = { state: "failed", error: null, duration_ms: 0, memory_bandwidth_bytes_per_s: null };
  let device: Device | null = null;
  try {
    device = await Device.open();
    const ledger = { reserve: () => Promise.resolve(true), release: () => {} };
    const memory = new Memory({ device, ledger, limit_bytes: null });
    const lost = device.gpu.lost.then(({ message }) => Promise.reject(new Error(message || "the GPU device is lost")));
    let refused: string | null = null;
    device.gpu.addEventListener("uncapturederror", ({ error }) => (refused ??= error.message));
    const late = new Promise<never>((_, reject) =>
      setTimeout(() => reject(new Error(`verification took longer than ${PATIENCE_MS / 1000} s`)), PATIENCE_MS),
    );
    for (const end of [lost, late]) end.catch(() => {});
    out.error = await Promise.race([compute(device, memory), lost, late]);
    out.error ??= refused;
    if (out.error === null) {
      out.state = "passed";
      out.memory_bandwidth_bytes_per_s = await Promise.race([bandwidth(device, memory), lost, late]).catch(() => null);
    }
  } catch (error) {
    out.error = error instanceof Error ? error.message : String(error);
  }
  device?.close();
  out.duration_ms = performance.now() - began;
  return out;
}
