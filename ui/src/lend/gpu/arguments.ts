/* The arguments of a launch against the signature of its kernel: kinds and ranges. Pure functions; the same rules and
 * texts as engine/worker/compute.c and engine/module.c. */
import type { Kind, Signature } from "./builtin";
import type { Argument } from "./contract";
import { Fault } from "./fault";

/** Words of 32 bits as a kernel takes them, a count, or memory by its handle. */
export type Read = { handle: number } | { word: number } | { count: bigint };

const names: Record<string, string> = {
  allocation: "a buffer",
  handle: "a buffer",
  f32: "an f32",
  i32: "an i32",
  u32: "a u32",
  u64: "a u64",
  count: "a u64",
};
const FLOAT_MAX = 3.4028234663852886e38;
const COUNT_MAX = (1n << 64n) - 1n;

const misfit = (index: number, kind: string): Fault =>
  new Fault("invalid_params", `args[${index}]: not a value of the kind ${kind}`);

function wide(value: number | string, index: number): bigint {
  if (typeof value === "string" && !/^[0-9]{1,20}$/.test(value)) throw misfit(index, "u64");
  const count = BigInt(value);
  if (count > COUNT_MAX) throw misfit(index, "u64");
  return count;
}

const float = new DataView(new ArrayBuffer(4));

/** The bits of an f32. */
export function bitsOf(value: number): number {
  float.setFloat32(0, value);
  return float.getUint32(0);
}

/** A number as an f32 is told to be one: finite, and within what f32 holds. */
export function checkFloat(value: number, what: string): void {
  if (!(value >= -FLOAT_MAX && value <= FLOAT_MAX)) throw new Fault("invalid_params", what);
}

function readOne(argument: Argument, index: number): Read {
  if ("handle" in argument) return argument;
  if ("f32" in argument) {
    checkFloat(argument.f32, `args[${index}]: not a value of the kind f32`);
    return { word: bitsOf(argument.f32) };
  }
  if ("i32" in argument) return { word: argument.i32 >>> 0 };
  if ("u32" in argument) return { word: argument.u32 };
  return { count: wide(argument.u64, index) };
}

const fits = (wanted: Kind, given: string): boolean =>
  wanted === "allocation"
    ? given === "handle"
    : wanted === "count"
      ? given === "u32" || given === "u64"
      : wanted === given;

/** Throws Fault where an argument is none of the kernel's. */
export function readArguments(signature: Signature, args: Argument[]): Read[] {
  const { kernel, parameters } = signature;
  const read = args.map(readOne);
  if (args.length !== parameters.length)
    throw new Fault("invalid_params", `${kernel} takes ${parameters.length} arguments, not ${args.length}`);
  return read.map((one, index) => {
    const given = Object.keys(args[index] ?? {})[0] ?? "";
    const { name, kind } = parameters[index] ?? { name: null, kind: "allocation" };
    if (!fits(kind, given))
      throw new Fault(
        "invalid_params",
        `${kernel}: ${name ?? "argument"} (number ${index}) takes ${names[kind]}, not ${names[given]}`,
      );
    return kind === "count" && "word" in one ? { count: BigInt(one.word) } : one;
  });
}
