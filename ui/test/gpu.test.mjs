/* The pure parts of a browser's GPU worker: what of the server's messages it takes, ranges, signatures, users' WGSL. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { load } from "./load.mjs";

const [contract, range, builtin, args, wgsl, verify] = await Promise.all(
  ["contract", "range", "builtin", "arguments", "wgsl", "verify"].map((name) => load(`lend/gpu/${name}.ts`)),
);
const schema = JSON.parse(readFileSync(new URL("../../schema/node.json", import.meta.url), "utf8"));

function frame(head, body = new Uint8Array(0)) {
  const text = new TextEncoder().encode(typeof head === "string" ? head : JSON.stringify(head));
  const out = new Uint8Array(4 + text.length + body.length);
  new DataView(out.buffer).setUint32(0, text.length, true);
  out.set(text, 4);
  out.set(body, 4 + text.length);
  return out.buffer;
}
const call = (method, params, body) => contract.readCall(frame({ jsonrpc: "2.0", id: 7, method, params }, body));
const reasonOf = (call) => call.refused?.reason ?? null;
const reasonIn = (work) => {
  try {
    work();
    return null;
  } catch (error) {
    return error.reason ?? `${error}`;
  }
};

// ---- messages ----

const good = {
  "memory.allocate": { device: 0, handle: 1, bytes: 16 },
  "memory.write": { handle: 1, offset: 0 },
  "memory.read": { handle: 1, offset: 0, bytes: 16 },
  "memory.copy": { from: 1, from_offset: 0, to: 2, to_offset: 0, bytes: 4 },
  "memory.fill": { handle: 1, offset: 0, bytes: 4, value: 255 },
  "memory.free": { handle: 4294967295 },
  "compute.load": { device: 255, module: 1, format: "wgsl" },
  "compute.launch": { module: 1, kernel: "k", grid: [1, 2, 3], args: [{ handle: 1 }, { f32: 1.5 }, { u64: "9" }], timeout_ms: 1 },
  "compute.run": { device: 0, kernel: "sum_f32", args: [{ zeros: 1 }, { f32s: [1] }, { u32: 1 }], timeout_ms: 1 },
  "compute.unload": { module: 1 },
};

test("the methods and params are those of schema/node.json", () => {
  assert.deepEqual(Object.keys(good).sort(), Object.keys(contract.methods).sort());
  for (const [name, fields] of Object.entries(contract.methods)) {
    const known = schema.methods.find((one) => one.name === name);
    assert.equal(known["x-direction"], "server-to-worker", name);
    const told = Object.fromEntries(known.params.map((one) => [one.name, Boolean(one.required)]));
    assert.deepEqual(Object.fromEntries(Object.entries(fields).map(([field, { required }]) => [field, required])), told, name);
  }
});

test("the bounds of numbers, words and lists are those of schema/node.json", () => {
  const api = JSON.parse(readFileSync(new URL("../../schema/api.json", import.meta.url), "utf8"));
  const resolve = (one) => (one.$ref ? resolve(api.components.schemas[one.$ref.split("/").pop()]) : one);
  for (const [name, fields] of Object.entries(contract.methods))
    for (const { name: field, schema: told } of schema.methods.find((one) => one.name === name).params) {
      const { type, minimum, maximum, minLength, maxLength, minItems, maxItems, enum: words } = resolve(told);
      const check = (value) => fields[field].check(value);
      if (type === "integer") {
        assert.deepEqual([minimum - 1, minimum, maximum, maximum + 1].map(check), [false, true, true, false], `${name} ${field}`);
        assert.deepEqual([1.5, "1", null, [1], Number.NaN].map(check), [false, false, false, false, false], `${name} ${field}`);
      } else if (words) {
        assert.ok(words.every(check) && !check("other") && !check(""), `${name} ${field}`);
      } else if (type === "string") {
        const lengths = [minLength - 1, minLength, maxLength, maxLength + 1].map((length) => check("a".repeat(length)));
        assert.deepEqual(lengths, [false, true, true, false], `${name} ${field}`);
      } else {
        assert.equal(type, "array");
        const item = field === "args" ? { u32: 1 } : 1;
        for (const [length, fits] of [[minItems ?? 0, true], [maxItems, true], [maxItems + 1, false], [(minItems ?? 0) - 1, false]])
          if (length >= 0) assert.equal(check(Array(length).fill(item)), fits, `${name} ${field} of ${length}`);
      }
    }
});

test("good calls are read as they are", () => {
  for (const [method, params] of Object.entries(good)) {
    const read = call(method, params);
    assert.deepEqual({ ...read, body: read.body.length }, { id: 7, method, params, body: 0 });
  }
  assert.deepEqual([...call("memory.write", good["memory.write"], new Uint8Array([1, 2])).body], [1, 2]);
});

test("params that do not fit are answered, and not served", () => {
  for (const [method, params] of Object.entries(good)) {
    for (const name of Object.keys(params)) {
      const { [name]: gone, ...rest } = params;
      if (contract.methods[method][name].required) assert.equal(reasonOf(call(method, rest)), "invalid_params", `${method} without ${name}`);
      for (const value of [null, -1, 1.5, {}, [], "", "x".repeat(200), 2 ** 53, true])
        if (!contract.methods[method][name].check(value))
          assert.equal(reasonOf(call(method, { ...params, [name]: value })), "invalid_params", `${method} ${name} ${value}`);
    }
    assert.equal(reasonOf(call(method, { ...params, more: 1 })), "invalid_params");
    assert.equal(reasonOf(call(method, { ...params, __proto__x: 1 })), "invalid_params");
    if (method !== "memory.write" && method !== "compute.load")
      assert.equal(reasonOf(call(method, params, new Uint8Array(1))), "invalid_params");
  }
  for (const one of [{ handle: 1, f32: 1 }, {}, { toString: 1 }, { constructor: 1 }, { f32: "1" }, { u64: -1 }, { u64: "" }, { i32: 2 ** 31 }, [1], null])
    assert.equal(reasonOf(call("compute.launch", { ...good["compute.launch"], args: [one] })), "invalid_params", JSON.stringify(one));
  for (const method of ["memory.share", "memory.send", "instance.load", "toString", "__proto__", "", "constructor"])
    assert.equal(reasonOf(call(method, {})), "method_not_found", method);
  assert.equal(reasonOf(call("memory.read", { ...good["memory.read"], at: 0 })), "invalid_params");
});

test("what is no request ends the worker", () => {
  const heads = [
    "", "{", "[]", "null", "7", '"x"', '{"jsonrpc":"2.0"}', '{"jsonrpc":"1.0","id":1,"method":"memory.free"}',
    '{"jsonrpc":"2.0","id":1,"result":{}}', '{"jsonrpc":"2.0","method":"memory.free","params":{"handle":1}}',
    '{"jsonrpc":"2.0","id":null,"method":"memory.free"}', '{"jsonrpc":"2.0","id":{},"method":"x"}',
    '{"jsonrpc":"2.0","id":1.5,"method":"x"}', `{"jsonrpc":"2.0","id":"${"i".repeat(65)}","method":"x"}`,
    '{"jsonrpc":"2.0","id":1,"method":7}', `${"[".repeat(40)}${"]".repeat(40)}`,
  ];
  for (const head of heads) assert.throws(() => contract.readCall(frame(head)), { name: "Breach" }, head);
  for (const bytes of [[], [1], [9, 0, 0, 0, 1], [255, 255, 255, 255, 0], [2, 0, 0, 0, 0xff, 0xff]])
    assert.throws(() => contract.readCall(new Uint8Array(bytes).buffer), { name: "Breach" });
});

test("random bytes and random changes never get further than a verdict", () => {
  let seed = 20261128;
  const random = (most) => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) % most;
  const samples = Object.entries(good).map(([method, params]) => new Uint8Array(frame({ jsonrpc: "2.0", id: 1, method, params }, new Uint8Array(8))));
  for (let round = 0; round < 5000; round++) {
    const sample = samples[random(samples.length)].slice(0, round % 3 ? undefined : random(200));
    for (let i = random(4); i >= 0; i--) sample[random(sample.length || 1)] = random(256);
    try {
      const read = contract.readCall(sample.buffer);
      assert.ok("refused" in read || Object.hasOwn(good, read.method));
    } catch (error) {
      assert.equal(error.name, "Breach", `${error.stack}`);
    }
  }
});

test("faults are told with the server's codes and bounded texts", () => {
  const status = readFileSync(new URL("../../common/base/status.h", import.meta.url), "utf8");
  const codes = new Map([...status.matchAll(/"(\w+)",\s+"[^"]*",\s+\d+,\s+(-?\d+)\)/g)].map(([, word, code]) => [word, Number(code)]));
  const told = (bytes) => JSON.parse(new TextDecoder().decode(bytes.subarray(4)));
  const fault = told(contract.printFault(3, Object.assign(call("memory.free", {}).refused, { message: "m".repeat(5000) })));
  assert.equal(fault.error.code, codes.get("invalid_params"));
  assert.ok(fault.error.message.length <= 380);
  assert.deepEqual(fault.error.data, { reason: "invalid_params", hint: null });
  assert.equal(told(contract.printFault(3, new Error("x"))).error.code, codes.get("internal"));
});

test("a server that sends more than anybody waits for ends the worker", async () => {
  const { Session } = await load("lend/gpu/session.ts");
  const begin = () => {
    const told = { sent: 0, closed: 0, reason: null };
    const device = { gpu: { lost: new Promise(() => {}), addEventListener() {} }, close: () => told.closed++ };
    const session = new Session({ device, ledger: null, limit_bytes: null, send: () => told.sent++, unsent: () => 0, ended: (reason) => (told.reason = reason) });
    session.fence(true); // nothing is served, so all of it waits
    return { session, told };
  };
  const free = frame({ jsonrpc: "2.0", id: 1, method: "memory.free", params: { handle: 1 } });
  const write = frame({ jsonrpc: "2.0", id: 1, method: "memory.write", params: { handle: 1, offset: 0 } }, new Uint8Array(16 * 2 ** 20));
  for (const [message, most] of [[free, 4097], [write, 16]]) {
    const { session, told } = begin();
    for (let i = 0; i < most; i++) session.receive(message.slice(0));
    assert.equal(told.reason, null);
    session.receive(message);
    assert.match(told.reason, /broke the protocol: the server sent more/);
    session.receive(message);
    assert.deepEqual([told.sent, told.closed], [0, 1]);
  }
  const { session, told } = begin();
  session.receive("text");
  assert.match(told.reason, /no binary frame/);
});

test("calls are answered in their order, and a fence holds them", async () => {
  const { Session } = await load("lend/gpu/session.ts");
  const sent = [];
  const device = { gpu: { lost: new Promise(() => {}), addEventListener() {} }, close() {} };
  const session = new Session({ device, ledger: null, limit_bytes: null, unsent: () => 0, ended: assert.fail,
    send: (bytes) => sent.push(JSON.parse(new TextDecoder().decode(bytes.subarray(4)))) });
  session.fence(true);
  for (let id = 1; id <= 30; id++) session.receive(frame({ jsonrpc: "2.0", id, method: id % 3 ? "memory.free" : "other", params: { handle: id } }));
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(sent.length, 0);
  session.fence(false);
  while (sent.length < 30) await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual(sent.map(({ id }) => id), Array.from({ length: 30 }, (_, i) => i + 1));
  assert.deepEqual([...new Set(sent.map(({ error }) => error.data.reason))], ["not_found", "method_not_found"]);
});

// ---- ranges ----

test("pieces cover a range once, in order, inside their buffers", () => {
  for (const [offset, bytes, chunk, most] of [[0, 0, 256], [0, 256, 256], [255, 2, 256], [1, 1000, 256], [300, 5000, 256, 100], [2 ** 40, 2 ** 31, 2 ** 30]]) {
    let at = offset;
    for (const piece of range.pieces(offset, bytes, chunk, most)) {
      assert.equal(piece.index * chunk + piece.at, at);
      assert.equal(piece.done, at - offset);
      assert.ok(piece.bytes > 0 && piece.at + piece.bytes <= chunk && piece.bytes <= (most ?? chunk));
      at += piece.bytes;
    }
    assert.equal(at, offset + bytes);
  }
});

test("moves pair the pieces of two allocations", () => {
  for (const [from, to, bytes] of [[0, 0, 600], [3, 250, 700], [255, 1, 513], [10, 10, 0]]) {
    const source = Uint8Array.from({ length: 2048 }, (_, i) => i * 7 + (i >> 8));
    const target = new Uint8Array(2048);
    for (const move of range.moves(from, to, bytes, 256, 300)) {
      assert.equal(move.from.bytes, move.to.bytes);
      const at = move.from.index * 256 + move.from.at;
      target.set(source.subarray(at, at + move.to.bytes), move.to.index * 256 + move.to.at);
    }
    assert.deepEqual(target.subarray(to, to + bytes), source.subarray(from, from + bytes));
    assert.ok(target.subarray(0, to).every((one) => one === 0) && target.subarray(to + bytes).every((one) => one === 0));
  }
});

test("words and their masks are the bytes of a range", () => {
  for (let at = 0; at < 9; at++)
    for (let bytes = 1; bytes < 14; bytes++) {
      const { first, count, firstMask, lastMask } = range.words(at, bytes);
      const covered = [];
      for (let word = 0; word < count; word++) {
        const mask = ((word ? ~0 : firstMask) & (word === count - 1 ? lastMask : ~0)) >>> 0;
        for (let byte = 0; byte < 4; byte++) if ((mask >>> (8 * byte)) & 0xff) covered.push((first + word) * 4 + byte);
      }
      assert.deepEqual(covered, Array.from({ length: bytes }, (_, i) => at + i));
      const { before, middle, after } = range.edges(at, bytes);
      assert.equal(before + middle + after, bytes);
      assert.ok(middle % 4 === 0 && after < 4 && before < 4 && (!middle || (at + before) % 4 === 0));
    }
});

test("ranges beyond an allocation are refused", () => {
  for (const [size, offset, bytes, fits] of [[8, 0, 8, true], [8, 8, 0, true], [8, 1, 8, false], [8, 9, 0, false], [8, 0, 2 ** 53 - 1, false], [8, 2 ** 53 - 1, 2, false]])
    assert.equal(reasonIn(() => range.checkRange(size, offset, bytes)), fits ? null : "invalid_params");
  assert.ok(range.overlap(0, 4, 5) && range.overlap(4, 0, 5) && !range.overlap(0, 4, 4) && !range.overlap(3, 3, 0));
});

// ---- built-in kernels and arguments ----

test("the built-in kernels are those of engine/builtin.c", () => {
  const text = readFileSync(new URL("../../engine/builtin.c", import.meta.url), "utf8");
  for (const [name, { parameters }] of Object.entries(builtin.signatures)) {
    const [, kinds, names] = new RegExp(`"${name}",\\s*\\d+,\\s*\\{([^}]*)\\},\\s*\\{([^}]*)\\}`).exec(text);
    const words = { BUFFER: "allocation", F32: "f32", U64: "count" };
    assert.deepEqual(parameters.map(({ kind }) => kind), kinds.split(/,\s*/).map((kind) => words[kind]), name);
    assert.deepEqual(parameters.map((one) => one.name), names.split(/,\s*/).map((one) => one.slice(1, -1)), name);
  }
});

test("counts must fit the buffers, whatever they are", () => {
  const check = (kernel, ...values) => reasonIn(() => builtin.checkCounts(kernel, values));
  const memory = (memory, bytes) => ({ memory, bytes });
  const count = (value) => ({ count: BigInt(value) });
  assert.equal(check("fill_f32", memory(1, 16), { number: 0 }, count(4)), null);
  assert.equal(check("fill_f32", memory(1, 19), { number: 0 }, count(5)), "invalid_params");
  assert.equal(check("saxpy_f32", memory(1, 16), memory(1, 16), { number: 0 }, count(4)), null);
  assert.equal(check("matmul_f32", memory(1, 24), memory(2, 32), memory(3, 48), count(2), count(3), count(4)), null);
  assert.equal(check("matmul_f32", memory(1, 24), memory(1, 32), memory(3, 48), count(2), count(3), count(4)), "invalid_params");
  const huge = 2n ** 64n - 1n;
  assert.equal(check("matmul_f32", memory(1, 24), memory(2, 32), memory(3, 48), count(huge), count(huge), count(huge)), "invalid_params");
  assert.equal(check("matmul_f32", memory(1, 24), memory(2, 32), memory(3, 48), count(0), count(0), count(huge)), null);
  assert.equal(check("sum_f32", memory(1, 4), memory(1, 16), count(4)), "invalid_params");
  assert.equal(check("sum_f32", memory(1, 3), memory(2, 16), count(4)), "invalid_params");
});

test("arguments are of the kinds that the kernel takes", () => {
  const read = (...values) => args.readArguments(builtin.signatures.fill_f32, values);
  assert.deepEqual(read({ handle: 3 }, { f32: 1.5 }, { u32: 7 }), [{ handle: 3 }, { word: 0x3fc00000 }, { count: 7n }]);
  assert.deepEqual(read({ handle: 3 }, { f32: -0 }, { u64: "18446744073709551615" })[2], { count: 2n ** 64n - 1n });
  for (const values of [
    [{ handle: 3 }, { f32: 1 }], [{ u32: 3 }, { f32: 1 }, { u32: 1 }], [{ handle: 3 }, { u32: 1 }, { u32: 1 }],
    [{ handle: 3 }, { f32: 1e300 }, { u32: 1 }], [{ handle: 3 }, { f32: 1 }, { i32: 1 }], [{ handle: 3 }, { f32: 1 }, { u64: "0x1" }],
    [{ handle: 3 }, { f32: 1 }, { u64: "18446744073709551616" }], [{ handle: 3 }, { f32: 1 }, { u64: "" }],
  ])
    assert.equal(reasonIn(() => read(...values)), "invalid_params", JSON.stringify(values));
});

test("the reference of verification is that of the native one", () => {
  // mix(v, s) of engine/builtin.h in 64-bit integers
  const mix = (value, seed) => {
    let v = BigInt((value ^ seed) >>> 0);
    v = ((v ^ (v >> 16n)) * 0x9e3779b1n) & 0xffffffffn;
    v = ((v ^ (v >> 15n)) * 0xb5297a4dn) & 0xffffffffn;
    return Number(v ^ (v >> 16n));
  };
  for (const [value, seed] of [[0, 0], [1, 0], [0xffffffff, 0x12345678], [123456789, 0xffffffff]]) assert.equal(verify.mix(value, seed), mix(value, seed));
  const pattern = Uint32Array.from([5, 6]);
  const result = new Uint32Array(4), floats = new Float32Array(result.buffer);
  pattern.forEach((word, i) => {
    result[i] = mix(word + i, 9);
    floats[2 + i] = ((result[i] >>> 8) / 16777216) * 3.25 - 1.5;
  });
  assert.equal(verify.compareKernel(result, pattern, 9), null);
  assert.equal(verify.compareCopy(pattern, pattern), null);
  assert.match(verify.compareCopy(Uint32Array.from([5, 7]), pattern), /word 1 read back as 7/);
  result[1] ^= 0x100;
  assert.match(verify.compareKernel(result, pattern, 9), /integer 1/);
  result[1] ^= 0x100;
  floats[2] = Number.NaN;
  assert.match(verify.compareKernel(result, pattern, 9), /float 0 is NaN/);
});

// ---- users' WGSL ----

test("kernels of a module, and what a launch passes to each", () => {
  const entries = wgsl.entriesOf(`
    /* a comment /* in one */ @compute fn no() {} */
    enable f16; // @compute
    const SIZE = 64u; const TWICE = 2 * 32;
    alias Count = u32;
    struct Params { scale: f32, n: Count, shift: i32, }
    @group(0) @binding(3) var<storage, read_write> out: array<vec2<f32>>;
    @binding(1) @group(0) var<storage> x: array<array<f32, 4>, 2>;
    @group(0) @binding(0) var<uniform> p: Params;
    @group(0) @binding(7) var<storage, read> unused: array<u32>;
    var<workgroup> shared_sums: array<f32, 64>; var<private> own: u32 = 3u;
    fn helper(i: u32) -> f32 { if (i > 3u) { return x[0][i]; } return 0.0; }
    @compute @workgroup_size(SIZE) fn first(@builtin(global_invocation_id) id: vec3<u32>) {
      for (var i = 0u; i < p.n; i++) { out[i] = vec2<f32>(helper(i) * p.scale); }
    }
    @workgroup_size(8, 4) @compute fn second() { out[0].x = f32(own); }
    @compute @workgroup_size(TWICE) fn third() {}
  `);
  const told = entries.map((entry) => [entry.name, entry.block, wgsl.parametersOf(entry).map(({ name, kind }) => `${name}:${kind}`).join(" ")]);
  assert.deepEqual(told, [
    ["first", [64, 1, 1], "x:allocation out:allocation scale:f32 n:u32 shift:i32"],
    ["second", [8, 4, 1], "out:allocation"],
    ["third", null, ""],
  ]);
  assert.deepEqual(entries[0].storages.map(({ written }) => written), [false, true]);
});

test("modules that no launch could run are refused with a reason", () => {
  const kernel = "@compute @workgroup_size(1) fn k() { _ = v; }";
  for (const [text, said] of [
    ["", /no @compute/], ["fn f() {}", /no @compute/], ["/* open", /comment/], ["struct {", /name/], ["fn f() { {", /ends in the middle/], ["fn f() } {", /./],
    [`@group(0) @binding(0) var v: texture_2d<f32>; ${kernel}`, /textures/], [`@group(1) @binding(0) var<storage> v: array<u32>; ${kernel}`, /@group\(0\)/],
    [`@group(0) var<storage> v: array<u32>; ${kernel}`, /@binding/], [`@group(0) @binding(0) var<uniform> v: vec2f; ${kernel}`, /f32, i32 and u32/],
    [`struct P { @align(16) a: f32 } @group(0) @binding(0) var<uniform> v: P; ${kernel}`, /attributes/],
    [`alias A = A; @group(0) @binding(0) var<uniform> v: A; ${kernel}`, /f32, i32 and u32/],
    [`@group(0) @binding(0) var<storage> v: u32; @group(0) @binding(0) var<storage> w: u32; @compute @workgroup_size(1) fn k() { _ = v + w; }`, /binding of another/],
    [`@group(0) @binding(0) var<uniform> v: u32; @group(0) @binding(1) var<uniform> w: u32; @compute @workgroup_size(1) fn k() { _ = v + w; }`, /two uniform/],
    ["@compute @workgroup_size(1) fn k() {} nonsense x;", /nothing begins with nonsense/],
  ])
    assert.throws(() => wgsl.entriesOf(text), (error) => error.reason === "invalid_params" && said.test(error.message), text);
  const many = Array.from({ length: 33 }, (_, i) => `@compute @workgroup_size(1) fn k${i}() {}`).join("\n");
  assert.equal(reasonIn(() => wgsl.entriesOf(many)), "limit_exceeded");
  assert.equal(reasonIn(() => wgsl.entriesOf(";".repeat(100001))), "limit_exceeded");
  assert.equal(reasonIn(() => wgsl.sourceOf(new Uint8Array(wgsl.SOURCE_MAX + 1))), "limit_exceeded");
  assert.equal(reasonIn(() => wgsl.sourceOf(new Uint8Array([0xff]))), "invalid_params");
});

test("any text gives kernels or a reason, soon", () => {
  const sample = "struct P { a: f32 } @group(0) @binding(0) var<uniform> p: P; @compute @workgroup_size(4) fn k(x: u32) -> f32 { return p.a; } /* c */";
  let seed = 7;
  const random = (most) => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) % most;
  for (let round = 0; round < 3000; round++) {
    let text = sample;
    for (let i = random(3); i >= 0; i--) {
      const at = random(text.length), other = random(sample.length);
      text = text.slice(0, at) + sample.slice(other, other + random(8)) + text.slice(at + random(6));
    }
    const reason = reasonIn(() => wgsl.entriesOf(text));
    assert.ok([null, "invalid_params", "limit_exceeded"].includes(reason), `${text}: ${reason}`);
  }
  const deep = "(".repeat(60000);
  assert.equal(reasonIn(() => wgsl.entriesOf(`@workgroup_size(${deep}`)), "invalid_params");
  assert.equal(reasonIn(() => wgsl.entriesOf(`${"/*".repeat(60000)}`)), "invalid_params");
});

// ---- the node that lends it ----

test("a GPU that hangs is a device that failed, until it has computed again", async () => {
  const { Node } = await load("lend/node.ts");
  const before = globalThis.WebSocket;
  globalThis.WebSocket = class {
    static OPEN = 1;
    readyState = 0;
    close() {}
  };
  let hanging = false, changed, verified = 0;
  const states = [];
  const gpu = {
    describe: async () => null,
    verify: async () => (verified++, { state: "passed", error: null, duration_ms: 1, memory_bandwidth_bytes_per_s: 1 }),
    openWorker: assert.fail,
    setMemoryLimit() {},
    memory: () => ({ limit_bytes: 1, held_bytes: 0 }),
    hangs: (listener) => ((changed = listener ?? changed), hanging),
    setStoreLimit() {},
    stored: () => ({ bytes: 0, full: false }),
  };
  const node = new Node(gpu, ({ state }) => states.push(state));
  node.start({ url: "ws://127.0.0.1:1/node", credential: { token: "t" }, name: "n", limit_bytes: 1, facts: {}, readings: {} });
  hanging = true;
  changed(true);
  assert.equal(states.at(-1).verified, "failed");
  assert.match(states.at(-1).verification_error, /does not answer/);
  assert.equal(verified, 0);
  hanging = false;
  changed(false);
  await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual([verified, states.at(-1).verified, states.at(-1).verification_error], [1, "passed", null]);
  node.stop();
  globalThis.WebSocket = before;
});
