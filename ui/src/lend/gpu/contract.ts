/* The server's calls to a session's worker, as schema/node.json has them: what comes is read here once, with its
 * bounds, and nothing behind this file looks at what was not named here. Pure functions.
 *
 * A message that is no request of the protocol ends the worker (Breach); a request whose method or params do not fit is
 * answered with an error, as a native worker does. */
import { FrameError, type Json, decodeFrame, encodeFrame } from "../../net/codec";
import { Breach, Fault, errorOf } from "./fault";

/** An argument of a launch: memory by its handle, or a value. */
export type Argument =
  | { handle: number }
  | { f32: number }
  | { i32: number }
  | { u32: number }
  | { u64: number | string };
/** An argument of compute.run: numbers that become memory, or a value. */
export type RunArgument = Exclude<Argument, { handle: number }> | { f32s: number[] } | { zeros: number };
export type Shape = [number, number, number];

export interface Calls {
  "memory.allocate": { device: number; handle: number; bytes: number; awaited_bytes?: number };
  "memory.write": { handle: number; offset: number; bytes?: number; at?: number };
  "memory.read": { handle: number; offset: number; bytes: number; at?: number };
  "memory.copy": { from: number; from_offset: number; to: number; to_offset: number; bytes: number };
  "memory.fill": { handle: number; offset: number; bytes: number; value: number };
  "memory.free": { handle: number };
  "compute.load": { device: number; module: number; format: "builtin" | "ptx" | "spirv" | "wgsl" };
  "compute.launch": {
    module: number;
    kernel: string;
    grid?: Shape;
    block?: Shape;
    args: Argument[];
    timeout_ms: number;
  };
  "compute.run": { device: number; kernel: string; args: RunArgument[]; timeout_ms: number };
  "compute.unload": { module: number };
}
export type Method = keyof Calls;
type CallOf<All> = { [M in keyof All]: { id: number | string; method: M; params: All[M]; body: Uint8Array } }[keyof All];
export type Call = CallOf<Calls>;

/** To a worker that holds layers of a model. The content of stage.open is checked by plan.ts. */
export interface PartCalls {
  "stage.open": { [key: string]: Json };
  "stage.offer": { tensor: number; offset: number; bytes: number; sha256: string };
  "stage.write": { tensor: number; offset: number; sha256: string };
  "instance.load": {
    stages: { hardware_key: string; first_layer: number; layer_count: number; host_layers: number }[];
    context_tokens: number;
    page_count: number;
    batch_rows: number;
    sequences: number;
    format?: string;
    draft?: { places: number; context_tokens: number };
    part?: { instance_id: string; epoch: number; index: number; count: number; lanes: number; activations: string; last_layer: number };
  };
  "instance.adopt": { epoch: number; part?: { index: number; count: number; lanes: number } };
}
export type PartCall = CallOf<PartCalls>;

// ---- kinds of values ----

type Check = (value: Json) => boolean;
export interface Field {
  check: Check;
  required: boolean;
}

const integer =
  (least: number, most: number): Check =>
  (value) =>
    typeof value === "number" && Number.isInteger(value) && value >= least && value <= most;
const text =
  (most: number): Check =>
  (value) =>
    typeof value === "string" && value.length > 0 && value.length <= most;
const list =
  (least: number, most: number, item: Check): Check =>
  (value) =>
    Array.isArray(value) && value.length >= least && value.length <= most && value.every(item);
const oneOf =
  (...words: string[]): Check =>
  (value) =>
    typeof value === "string" && words.includes(value);
const real: Check = (value) => typeof value === "number";
const either =
  (...checks: Check[]): Check =>
  (value) =>
    checks.some((check) => check(value));

const MOST = Number.MAX_SAFE_INTEGER;
const count = integer(0, MOST);
const handle = integer(1, 0xffffffff);
const moved = integer(0, 16 * 1024 * 1024);
const shape = list(3, 3, integer(1, 0x7fffffff));
const timeout = integer(1, 3600000);
const values: Record<string, Check> = {
  f32: real,
  i32: integer(-0x80000000, 0x7fffffff),
  u32: integer(0, 0xffffffff),
  u64: either(count, text(20)),
};

const isObject = (value: Json | undefined): value is { [key: string]: Json } =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** An object with exactly one of these members. */
const keyed =
  (kinds: Record<string, Check>): Check =>
  (value) => {
    if (!isObject(value)) return false;
    const [name, ...more] = Object.keys(value);
    if (name === undefined || more.length || !Object.hasOwn(kinds, name)) return false;
    return kinds[name]?.(value[name] ?? null) ?? false;
  };
const argument = keyed({ handle, ...values });
const runArgument = keyed({ f32s: list(1, 16384, real), zeros: integer(1, 16384), ...values });

const must = (check: Check): Field => ({ check, required: true });
const may = (check: Check): Field => ({ check, required: false });
const device = must(integer(0, 255));
const kernel = must(text(128));

/** Every method that a worker of a browser serves, and its params. */
export const methods: Record<Method, Record<string, Field>> = {
  "memory.allocate": { device, handle: must(handle), bytes: must(count), awaited_bytes: may(count) },
  "memory.write": { handle: must(handle), offset: must(count), bytes: may(moved), at: may(count) },
  "memory.read": { handle: must(handle), offset: must(count), bytes: must(moved), at: may(count) },
  "memory.copy": {
    from: must(handle),
    from_offset: must(count),
    to: must(handle),
    to_offset: must(count),
    bytes: must(count),
  },
  "memory.fill": { handle: must(handle), offset: must(count), bytes: must(count), value: must(integer(0, 255)) },
  "memory.free": { handle: must(handle) },
  "compute.load": { device, module: must(handle), format: must(oneOf("builtin", "ptx", "spirv", "wgsl")) },
  "compute.launch": {
    module: must(handle),
    kernel,
    grid: may(shape),
    block: may(shape),
    args: must(list(0, 32, argument)),
    timeout_ms: must(timeout),
  },
  "compute.run": { device, kernel, args: must(list(1, 32, runArgument)), timeout_ms: must(timeout) },
  "compute.unload": { module: must(handle) },
};

const object =
  (fields: Record<string, Check>): Check =>
  (value) =>
    isObject(value) && Object.keys(value).every((name) => Object.hasOwn(fields, name)) &&
    Object.entries(fields).every(([name, check]) => check(value[name] ?? null));
const word = integer(0, 0xffffffff);
const hash: Check = (value) => typeof value === "string" && /^[0-9a-f]{64}$/.test(value);
const isList: Check = (value) => Array.isArray(value);
const flag: Check = (value) => typeof value === "boolean";

/** Every method that a worker with layers of a model serves. */
export const partMethods: Record<keyof PartCalls, Record<string, Field>> = {
  "stage.open": { name: must(text(256)), version: must(text(64)), first_layer: must(word), layer_count: must(word), embeds: must(flag), shape: must(isObject), tensors: must(isList) },
  "stage.offer": { tensor: must(word), offset: must(count), bytes: must(integer(1, 2 * 1024 * 1024)), sha256: must(hash) },
  "stage.write": { tensor: must(word), offset: must(count), sha256: must(hash) },
  "instance.load": {
    stages: must(list(1, 64, object({ hardware_key: text(256), first_layer: word, layer_count: word, host_layers: word }))),
    context_tokens: must(word), page_count: must(word), batch_rows: must(word), sequences: must(word),
    format: may(oneOf("Q8_0", "Q4_0")), chat_template: may(text(64)),
    draft: may(object({ places: integer(1, 4), context_tokens: integer(32, 4096) })),
    part: may(object({ instance_id: text(64), epoch: count, index: word, count: integer(2, 64), lanes: integer(1, 64), activations: oneOf("f32", "f16"), last_layer: word })),
  },
  "instance.adopt": { epoch: must(count), part: may(object({ index: integer(0, 63), count: integer(2, 64), lanes: integer(1, 64) })) },
};
/** Of all methods, those with a body. */
const bodied = ["memory.write", "compute.load", "stage.write"];

// ---- reading ----

/** A request that cannot be served, and what it is answered. */
export interface Refused {
  id: number | string;
  refused: Fault;
}

function checkParams(method: string, fields: Record<string, Field>, params: { [key: string]: Json }): void {
  for (const name of Object.keys(params))
    if (!Object.hasOwn(fields, name)) throw new Fault("invalid_params", `${method}: there is no ${name.slice(0, 64)}`);
  for (const [name, field] of Object.entries(fields)) {
    const value = params[name];
    if (value === undefined ? field.required : !field.check(value))
      throw new Fault("invalid_params", `${method}: ${name} ${value === undefined ? "is missing" : "does not fit"}`);
  }
}

type Methods = Record<string, Record<string, Field>>;

function checkCall(known: Methods, method: string, params: Json | undefined, body: Uint8Array): void {
  const fields = Object.hasOwn(known, method) ? known[method] : undefined;
  if (!fields) throw new Fault("method_not_found", `a browser's worker has no method ${method.slice(0, 64)}`);
  if (params !== undefined && !isObject(params)) throw new Fault("invalid_params", `${method}: params are no object`);
  checkParams(method, fields, params ?? {});
  if (body.length && !bodied.includes(method)) throw new Fault("invalid_params", `${method} takes no body`);
  if (isObject(params) && "at" in params)
    throw new Fault("invalid_params", "at: a browser shares no memory with the server");
}

/** One binary message of the server. Throws Breach for what is none of its requests. */
export const readCall = (frame: ArrayBuffer): Call | Refused => readRequest(frame, methods) as Call | Refused;
export const readPartCall = (frame: ArrayBuffer): PartCall | Refused => readRequest(frame, partMethods) as PartCall | Refused;

function readRequest(frame: ArrayBuffer, known: Methods): unknown {
  let head: Json, body: Uint8Array;
  try {
    ({ head, body } = decodeFrame(new Uint8Array(frame)));
  } catch (error) {
    if (error instanceof FrameError) throw new Breach(error.message);
    throw error;
  }
  if (!isObject(head) || head.jsonrpc !== "2.0" || typeof head.method !== "string")
    throw new Breach("what came is no JSON-RPC call");
  const { id, method, params } = head;
  if ((typeof id !== "number" || !Number.isSafeInteger(id)) && (typeof id !== "string" || id.length > 64))
    throw new Breach("a worker answers requests only");
  try {
    checkCall(known, method, params, body);
  } catch (error) {
    if (error instanceof Fault) return { id, refused: error };
    throw error;
  }
  return { id, method, params: params ?? {}, body };
}

// ---- writing ----

export interface Answer {
  result: { [key: string]: unknown };
  body?: Uint8Array;
}

export function printAnswer(id: number | string, answer: Answer): Uint8Array {
  return encodeFrame(JSON.stringify({ jsonrpc: "2.0", id, result: answer.result }), answer.body);
}

export function printFault(id: number | string, fault: unknown): Uint8Array {
  return encodeFrame(JSON.stringify({ jsonrpc: "2.0", id, error: errorOf(fault) }));
}

export function printNotice(method: "link.hello" | "hop.hello" | "memory.moved", params: { [key: string]: unknown }): Uint8Array {
  return encodeFrame(JSON.stringify({ jsonrpc: "2.0", method, params }));
}
