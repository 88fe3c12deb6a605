/* Layers of models in a browser, the pure parts: what it takes of the server and of the part before, and what it says. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { load } from "./load.mjs";

const [ring, plan, formats, contract] = await Promise.all(
  ["stage/ring", "stage/plan", "stage/formats", "contract"].map((name) => load(`lend/gpu/${name}.ts`)),
);
const schema = JSON.parse(readFileSync(new URL("../../schema/node.json", import.meta.url), "utf8"));

function frame(head, body = new Uint8Array(0)) {
  const text = new TextEncoder().encode(JSON.stringify(head));
  const out = new Uint8Array(4 + text.length + body.length);
  new DataView(out.buffer).setUint32(0, text.length, true);
  out.set(text, 4);
  out.set(body, 4 + text.length);
  return out.buffer;
}
const unframe = (bytes) => {
  const length = new DataView(bytes.buffer).getUint32(0, true);
  return { head: JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))), body: bytes.slice(4 + length) };
};

// ---- the server's calls ----

test("methods and params are those of schema/node.json", () => {
  for (const [name, fields] of Object.entries(contract.partMethods)) {
    const known = schema.methods.find((one) => one.name === name);
    assert.equal(known["x-direction"], "server-to-worker", name);
    const told = Object.fromEntries(known.params.map((one) => [one.name, Boolean(one.required)]));
    assert.deepEqual(Object.fromEntries(Object.entries(fields).map(([field, { required }]) => [field, required])), told, name);
  }
  const shape = schema.methods.find((one) => one.name === "stage.open").params.find((one) => one.name === "shape").schema;
  assert.deepEqual(Object.keys(good().shape).sort(), shape.required.toSorted());
});

const E = 64, HEADS = 4, SIZE = 16;
function good(changes = {}, shapeChanges = {}) {
  const shape = { embedding: E, feed_forward: 96, heads: HEADS, kv_heads: 2, head_size: SIZE, vocabulary: 300, norm_epsilon: 1e-5, embedding_scale: 1,
    attention_scale: 0.25, gate: "silu", qkv_bias: true, qk_norm: false, rope_size: SIZE, rope_halves: true, rope_magnitude: 1,
    rope_frequency: Array(SIZE / 2).fill(0.5), unturned: [], ...shapeChanges };
  const tensors = [{ role: "token_embedding", layer: 0, format: "F16", rows: 300, columns: E }];
  for (const layer of [0, 1])
    for (const role of plan.rolesOf(shape)) {
      const [rows, columns] = plan.sizeOf(shape, role);
      tensors.push({ role, layer, format: plan.isVector(role) ? "F32" : "Q8_0", rows, columns });
    }
  return { name: "m", version: "1", first_layer: 0, layer_count: 2, embeds: true, shape, tensors, ...changes };
}

test("a stage: what does not fit is refused by name", () => {
  const told = plan.readPlan(good());
  assert.deepEqual([told.tensors.length, told.tensors[0].row_bytes, told.tensors.find((one) => one.role === "q").row_bytes], [1 + 2 * 12, 128, 68]);
  const without = good(), twice = good(), other = good();
  without.tensors.pop();
  twice.tensors.push(twice.tensors[3]);
  other.tensors[2] = { ...other.tensors[2], rows: 63 };
  const format = (name) => {
    const one = good();
    one.tensors[2] = { ...one.tensors[2], format: name };
    return one;
  };
  for (const [params, why] of [
    [without, /is missing/], [twice, /one too many/], [other, /does not fit/], [format("MXFP4"), /does not compute MXFP4/], [format("Q4_K"), /rows of 64 values in Q4_K/],
    [good({ layer_count: 0 }), /layer_count/], [good({ first_layer: 511 }), /layer_count/], [good({ name: "" }), /name/], [good({}, { heads: 3 }), /heads/],
    [good({}, { rope_frequency: [1] }), /rope_frequency/], [good({}, { rope_frequency: Array(8).fill(null) }), /rope_frequency/], [good({}, { norm_epsilon: 0 }), /norm_epsilon/],
    [good({}, { head_size: 512 }), /head_size/], [good({}, { embedding: 1e9 }), /embedding/], [good({}, { gate: "relu" }), /gate/], [good({ shape: null }), /shape/],
  ])
    assert.throws(() => plan.readPlan(params), why);
});

test("bytes of rows", () => {
  assert.deepEqual(formats.FORMATS.map((name) => formats.rowBytes(name, 256)), [1024, 512, 512, 272, 144, 144, 176, 210]);
  assert.deepEqual(formats.FORMATS.map((name) => formats.rowBytes(name, 96)), [384, 192, 192, 102, 54, null, null, null]);
  assert.equal(formats.rowBytes("F16", 40), null);
});

// ---- the ring ----

const part = { instance_id: "ins_1", version: "1", epoch: 7, index: 1, count: 3, first_layer: 2, next_layer: 4, embedding: 2, vocabulary: 9, context_tokens: 64, page_count: 4, batch_rows: 8, sequences: 2 };
const entry = { waited_ns: 1, spent_ns: 2, came_bytes: 3, stages_ns: [2] };
const stepParams = { epoch: 7, round: 1, lane: 0, step: 5, parts: [entry] };
const words = (...all) => new Uint8Array(Uint32Array.from(all).buffer);
const floats = (...all) => new Uint8Array(Float32Array.from(all).buffer);
const join = (...parts) => Uint8Array.from(parts.flatMap((one) => [...one]));
const step = (body, params = {}) => frame({ jsonrpc: "2.0", method: "ring.step", params: { ...stepParams, ...params } }, body);
// two runs: 2 rows at position 31, and one at 0; a page is zeroed
const body = (changes = {}) => {
  const { kind = 2, zero = [3], rows = 3, runs = [2, 31, 0, 0, 1, 0, 0, 0], pages = [2, 0, 1], values = [1, 2, 3, 4, 5, NaN] } = changes;
  return join(words(kind, zero.length, runs.length / 4, rows, ...zero, ...runs, ...pages), floats(...values));
};

test("a step comes, and goes on with what it was told and what was computed", () => {
  const read = ring.readRing(step(body()), part);
  assert.deepEqual([read.said, [...read.zero], read.row_count, read.runs.map(({ row_count, position, pages }) => [row_count, position, [...pages]])],
    ["step", [3], 3, [[2, 31, [2, 0]], [1, 0, [1]]]]);
  assert.deepEqual([...read.input], [1, 2, 3, 4, 5, NaN]); // a model may overflow
  const { head, body: sent } = unframe(ring.printStep(read, { waited_ns: 10, spent_ns: 20 }, Float32Array.of(9, 8, 7, 6, 5, 4)));
  assert.deepEqual(head.params.parts, [entry, { waited_ns: 10, spent_ns: 20, came_bytes: read.came_bytes, stages_ns: [20] }]);
  assert.deepEqual({ ...head.params, parts: [entry] }, stepParams);
  const next = ring.readRing(frame(head, sent), { ...part, index: 2, batch_rows: 8 });
  assert.deepEqual([[...next.input], [...next.zero]], [[9, 8, 7, 6, 5, 4], [3]]);
});

test("the first part takes tokens, and sends rows", () => {
  const first = { ...part, index: 0 }, tokens = words(1, 0, 1, 2, 2, 0, 0, 0, 1, 4, 8);
  const read = ring.readRing(step(tokens, { parts: [] }), first);
  assert.deepEqual([...read.input], [4, 8]);
  assert.equal(new DataView(unframe(ring.printStep(read, { waited_ns: 0, spent_ns: 0 }, new Float32Array(4))).body.buffer).getUint32(0, true), 2);
  assert.throws(() => ring.readRing(step(words(1, 0, 1, 1, 1, 0, 0, 0, 1, 9), { parts: [] }), first), /vocabulary/);
});

test("messages that break the protocol end the worker", () => {
  for (const [name, message] of Object.entries({
    text: "no frame", short: new ArrayBuffer(3), request: frame({ jsonrpc: "2.0", id: 1, method: "ring.step", params: stepParams }),
    method: frame({ jsonrpc: "2.0", method: "ring.else", params: {} }), "other parts": step(body(), { parts: [] }), "no parts": step(body(), { parts: 5 }),
    "an entry": step(body(), { parts: [{ ...entry, spent_ns: -1 }] }), epoch: step(body(), { epoch: "7" }), kind: step(body({ kind: 1 })),
    rows: step(body({ rows: 4 })), "many rows": step(body({ rows: 9 })), zero: step(body({ zero: [4] })), page: step(body({ pages: [2, 0, 4] })),
    position: step(body({ runs: [2, 63, 0, 0, 1, 0, 0, 0] })), state: step(body({ runs: [2, 31, 1, 0, 1, 0, 0, 0] })), "no rows": step(body({ runs: [0, 31, 0, 0, 3, 0, 0, 0] })),
    long: step(body({ values: [1, 2, 3, 4, 5, 6, 7] })), cut: step(body({ values: [1] })), "no body": step(new Uint8Array(0)),
  }))
    assert.throws(() => ring.readRing(message, part), { name: "Breach" }, name);
});

test("a hello says what does not agree; what is past is passed on as nothing", () => {
  const before = { ...part, index: 0, next_layer: 2 };
  const hello = (of) => ring.readRing(ring.printHello(of, 4).buffer, part);
  assert.deepEqual(hello(before), { said: "hello", epoch: 7, round: 4, differs: null });
  for (const [name, value] of Object.entries({ version: "2", embedding: 4, page_count: 5, next_layer: 3, batch_rows: 7, index: 1 }))
    assert.match(hello({ ...before, [name]: value }).differs, name === "index" ? /^part is 0 here, and 1/ : new RegExp(`^${name} is`));
  assert.deepEqual(ring.readRing(step(new Uint8Array(0), { epoch: 6, parts: [] }), part), { said: "past", epoch: 6 });
  const next = { ...part, index: 2 };
  assert.deepEqual(ring.readRing(ring.printPast(part, 6, 0).buffer, next), { said: "past", epoch: 6 });
  const nothing = ring.readRing(ring.printPast(part, 7, 3).buffer, next);
  assert.deepEqual([nothing.round, nothing.row_count, nothing.runs, nothing.zero.length], [3, 0, [], 0]);
  assert.deepEqual(ring.readRing(ring.printFailed(7, 0, "x".repeat(600)).buffer, part), { said: "failed", epoch: 7, part: 0, message: "x".repeat(512) });
});

test("rows of a step fit a message", () => {
  assert.equal(ring.ringRows({ ...part, embedding: 4096 }, 512), 512);
  assert.equal(ring.ringRows({ ...part, embedding: 65536 }, 512), 63);
  assert.equal(ring.ringRows({ ...part, embedding: 65536, sequences: 64 }, 512), 0);
});
