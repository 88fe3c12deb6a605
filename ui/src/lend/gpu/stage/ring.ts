/* Messages of a ring, as engine/worker/instance/ring.h has them: what the part before sends, read once with its bounds,
 * and what goes to the next part. They come from another machine, by way of the server. Pure functions. */
import { FrameError, type Json, decodeFrame, encodeFrame } from "../../../net/codec";
import { Breach } from "../fault";
import { PAGE_TOKENS } from "./kernels";
import type { Run } from "./stage";

const PROTOCOL = 3; // RING_PROTOCOL
const PARTS_MOST = 64;
const BODY_BYTES_MOST = 16 * 1024 * 1024; // LIMIT_BODY_BYTES
const KIND_TOKENS = 1;
const KIND_F32 = 2;
const TEXT_MOST = 512;

/** What all parts of a ring must agree on. */
export interface RingPart {
  instance_id: string;
  version: string;
  epoch: number;
  index: number;
  count: number;
  first_layer: number;
  next_layer: number;
  embedding: number;
  vocabulary: number;
  context_tokens: number;
  page_count: number;
  batch_rows: number;
  sequences: number;
}

type Members = { [key: string]: Json };
export interface RingStep {
  said: "step";
  /** Epoch, round, lane, step, and `parts`, to which this part adds its own. */
  params: Members;
  epoch: number;
  round: number;
  came_bytes: number;
  /** The body up to the rows: it goes on as it is, but for the kind. */
  before: Uint8Array;
  zero: Uint32Array;
  runs: Run[];
  row_count: number;
  input: Uint32Array<ArrayBuffer> | Float32Array<ArrayBuffer>;
}
export type RingMessage =
  | { said: "hello"; epoch: number; round: number; differs: string | null }
  | { said: "failed"; epoch: number; part: number; message: string }
  | { said: "past"; epoch: number }
  | RingStep;

const isObject = (value: Json | undefined): value is Members =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isCount = (value: Json | undefined): value is number =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
const pagesOf = (tokens: number): number => Math.ceil(tokens / PAGE_TOKENS);

function count(params: Members, name: string): number {
  const value = params[name];
  if (!isCount(value)) throw new Breach(`a message of the ring: ${name} does not fit`);
  return value;
}

/** Rows of a step that always fit a message; 0: not even one of each sequence. As ring_rows of ring_message.c. */
export function ringRows(part: Omit<RingPart, "batch_rows">, batch_rows: number): number {
  const fixed = 16 + 4 * part.page_count + part.sequences * (16 + 4 * pagesOf(part.context_tokens));
  const rows = fixed < BODY_BYTES_MOST ? Math.min(batch_rows, Math.floor((BODY_BYTES_MOST - fixed) / (4 * part.embedding))) : 0;
  return rows < part.sequences ? 0 : rows;
}

// ---- reading ----

/** What does not agree, in words; null: nothing. */
function difference(part: RingPart, params: Members): string | null {
  const here: Members = {
    version: part.version, instance_id: part.instance_id, activations: "f32", protocol: PROTOCOL, epoch: part.epoch, parts: part.count,
    part: (part.index + part.count - 1) % part.count, next_layer: part.first_layer, embedding: part.embedding, context_tokens: part.context_tokens,
    page_count: part.page_count, batch_rows: part.batch_rows, sequences: part.sequences,
  };
  for (const [name, value] of Object.entries(here))
    if (params[name] !== value) return `${name} is ${value} here, and ${String(params[name]).slice(0, 64)} of the part before`;
  return null;
}

function readParts(params: Members, part: RingPart): void {
  const parts = params["parts"];
  if (!Array.isArray(parts) || parts.length > PARTS_MOST || parts.length !== part.index) throw new Breach("a step has been at other parts");
  for (const one of parts)
    if (!isObject(one) || !["waited_ns", "spent_ns", "came_bytes"].every((name) => isCount(one[name])) || !Array.isArray(one["stages_ns"]) ||
        one["stages_ns"].length > PARTS_MOST || !one["stages_ns"].every(isCount))
      throw new Breach("what a step tells of the parts before does not fit");
}

/** Whole words of a body, one after the other. */
class Words {
  private readonly view: DataView;
  at = 0;
  constructor(body: Uint8Array) {
    this.view = new DataView(body.buffer, body.byteOffset, body.length);
  }
  get left(): number {
    return this.view.byteLength - this.at;
  }
  take(words: number): Uint32Array<ArrayBuffer> {
    if (4 * words > this.left) throw new Breach("a step ends before its end");
    const out = new Uint32Array(words);
    for (let i = 0; i < words; i++, this.at += 4) out[i] = this.view.getUint32(this.at, true);
    return out;
  }
}

function readRuns(words: Words, runCount: number, rowCount: number, part: RingPart): Run[] {
  const told = words.take(4 * runCount);
  const runs: Run[] = [];
  let rows = 0;
  for (let i = 0; i < runCount; i++) {
    const row_count = told[4 * i] ?? 0;
    const position = told[4 * i + 1] ?? 0;
    if (!row_count || position >= part.context_tokens || row_count > part.context_tokens - position)
      throw new Breach("a position of a step lies outside the context");
    if (told[4 * i + 2] || told[4 * i + 3]) throw new Breach("a step has states, which this model has not");
    rows += row_count;
    runs.push({ row_count, position, pages: new Uint32Array(0) });
  }
  if (rows !== rowCount) throw new Breach("the runs of a step are not as long as its rows");
  for (const run of runs) {
    run.pages = words.take(pagesOf(run.position + run.row_count));
    if (run.pages.some((page) => page >= part.page_count)) throw new Breach("a step names a page that is not there");
  }
  return runs;
}

function readStep(params: Members, body: Uint8Array, frameBytes: number, part: RingPart): RingStep {
  readParts(params, part);
  const words = new Words(body);
  const [kind = 0, zeroCount = 0, runCount = 0, rowCount = 0] = words.take(4);
  if (kind !== (part.index ? KIND_F32 : KIND_TOKENS)) throw new Breach("a step is of another kind than this part takes");
  if (zeroCount > part.page_count || runCount > part.sequences || rowCount > part.batch_rows)
    throw new Breach("a step has more rows, runs or pages than this part was made for");
  const zero = words.take(zeroCount);
  if (zero.some((page) => page >= part.page_count)) throw new Breach("a step names a page that is not there");
  const runs = readRuns(words, runCount, rowCount, part);
  const before = body.slice(0, words.at);
  const input = words.take(rowCount * (part.index ? part.embedding : 1));
  if (words.left) throw new Breach("a step is longer than its rows");
  if (!part.index && input.some((token) => token >= part.vocabulary)) throw new Breach("a token is outside the vocabulary");
  return {
    said: "step", params, epoch: count(params, "epoch"), round: count(params, "round"), came_bytes: frameBytes + 4, before, zero, runs,
    row_count: rowCount, input: part.index ? new Float32Array(input.buffer) : input,
  };
}

/** A message of the part before. Throws Breach. */
export function readRing(frame: unknown, part: RingPart): RingMessage {
  if (!(frame instanceof ArrayBuffer)) throw new Breach("what came is no binary frame");
  let head: Json, body: Uint8Array;
  try {
    ({ head, body } = decodeFrame(new Uint8Array(frame)));
  } catch (error) {
    throw error instanceof FrameError ? new Breach(error.message) : error;
  }
  if (!isObject(head) || head["jsonrpc"] !== "2.0" || "id" in head || !isObject(head["params"])) throw new Breach("what came is no message of a ring");
  const params = head["params"];
  switch (head["method"]) {
    case "ring.hello":
      return { said: "hello", epoch: count(params, "epoch"), round: count(params, "round"), differs: difference(part, params) };
    case "ring.failed":
      return { said: "failed", epoch: count(params, "epoch"), part: count(params, "part"), message: String(params["message"]).slice(0, TEXT_MOST) };
    case "ring.step":
      // It may fit the part's place in the epoch before.
      if (count(params, "epoch") < part.epoch) return { said: "past", epoch: count(params, "epoch") };
      return readStep(params, body, frame.byteLength, part);
    default:
      throw new Breach("what came is no message of a ring");
  }
}

// ---- writing ----

const print = (method: string, params: object, body?: Uint8Array): Uint8Array<ArrayBuffer> =>
  encodeFrame(JSON.stringify({ jsonrpc: "2.0", method, params }), body);

export function printHello(part: RingPart, round: number): Uint8Array<ArrayBuffer> {
  const { instance_id, version, epoch, index, count: parts, next_layer, embedding, context_tokens, page_count, batch_rows, sequences } = part;
  return print("ring.hello", {
    protocol: PROTOCOL, epoch, round, part: index, parts, next_layer, embedding, context_tokens, page_count, batch_rows, sequences, instance_id,
    activations: "f32", version,
  });
}

export const printFailed = (epoch: number, part: number, message: string): Uint8Array<ArrayBuffer> =>
  print("ring.failed", { epoch, part, message: message.slice(0, TEXT_MOST) });

/** In the place of a message that is past: a step of nothing, which is past for the next part, too. */
export function printPast(part: RingPart, epoch: number, round: number): Uint8Array<ArrayBuffer> {
  const told = { waited_ns: 0, spent_ns: 0, came_bytes: 0, stages_ns: [] };
  const body = new Uint8Array(new Uint32Array([KIND_F32, 0, 0, 0]).buffer);
  return print("ring.step", { epoch, round, lane: 0, step: 0, parts: Array.from({ length: part.index + 1 }, () => told) }, body);
}

/** The step as it goes on, with what this part has computed. */
export function printStep(step: RingStep, told: { waited_ns: number; spent_ns: number }, output: Float32Array): Uint8Array<ArrayBuffer> {
  const body = new Uint8Array(step.before.length + output.byteLength);
  body.set(step.before);
  new DataView(body.buffer).setUint32(0, KIND_F32, true);
  body.set(new Uint8Array(output.buffer, output.byteOffset, output.byteLength), step.before.length);
  const parts = step.params["parts"] as Json[];
  const own = { ...told, came_bytes: step.came_bytes, stages_ns: [told.spent_ns] };
  return print("ring.step", { ...step.params, parts: [...parts, own] }, body);
}
