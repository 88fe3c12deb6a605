/* Some layers of a model on the browser's GPU, and the keys and values of the tokens that went through them: what
 * engine/stage.h is to native back ends. Weights lie as in the file; keys and values in pages, as f16.
 *
 * A step is one submission (of many rows one for each layer) and one wait. What can be made before the first step is
 * made when the model is loaded: pipelines, bindings, and the values that kernels get. Activations of rows that fill a
 * batch up beyond the step's rows are computed and never read. */
import type { Device } from "../device";
import { Fault } from "../fault";
import { MAP_READ, USAGE } from "../flags";
import type { Ledger } from "../memory";
import { Weights } from "./weights";
import {
  BATCH, LANES, MATRIX_ROWS, NORM, PAGE_TOKENS, PARAMS, attentionText, embedText, gateText, headText, productText,
} from "./kernels";
import type { MatrixRole, Plan } from "./plan";

/** Of WebGPU, in each direction. */
const GROUPS_MOST = 65535;
const PARAMS_BYTES = 256;
/** From so many rows on, each layer is a submission of its own, so that none takes long enough to be taken for a hang. */
const ROWS_TOGETHER = 32;

export interface StageSizes {
  context_tokens: number;
  page_count: number;
  batch_rows: number;
  sequences: number;
}

export interface Run {
  row_count: number;
  position: number;
  pages: Uint32Array;
}

export interface StageMemory {
  weights_bytes: number;
  kv_bytes: number;
  workspace_bytes: number;
}

/** One kernel of a step. `batch` of rows of the step are one of its groups in the second direction. */
interface Operation {
  one: GPUComputePipeline;
  oneBindings: GPUBindGroup;
  /** Of several rows; NULL: the same. */
  many: { pipeline: GPUComputePipeline; bindings: GPUBindGroup } | null;
  wide: number;
  rowsFirst: boolean; // the rows are the first direction
}

interface Buffers {
  x: GPUBuffer;
  h: GPUBuffer;
  q: GPUBuffer;
  k: GPUBuffer;
  v: GPUBuffer;
  a: GPUBuffer;
  gate: GPUBuffer;
  up: GPUBuffer;
  step: GPUBuffer;
  turn: GPUBuffer;
  tokens: GPUBuffer;
  out: GPUBuffer;
}

const up = (count: number, by: number): number => Math.ceil(count / by);
const pagesOf = (tokens: number): number => up(tokens, PAGE_TOKENS);

export class Stage {
  readonly plan: Plan;
  readonly weights: Weights;
  private readonly device: Device;
  private readonly ledger: Ledger;
  private sizes: StageSizes | null = null;
  private buffers: Buffers | null = null;
  private params: GPUBuffer | null = null;
  private paramsUsed = 0;
  private readonly caches: { keys: GPUBuffer; values: GPUBuffer }[] = [];
  private readonly pipelines = new Map<string, GPUComputePipeline>();
  private readonly operations: Operation[][] = []; // of the input, and of each layer
  private kvBytes = 0;
  private workspaceBytes = 0;

  constructor(device: Device, ledger: Ledger, plan: Plan) {
    this.device = device;
    this.ledger = ledger;
    this.plan = plan;
    this.weights = new Weights(device, plan);
  }

  /** Memory for the weights. Throws Fault. */
  async open(): Promise<void> {
    await this.reserve(this.weights.bytes, "weights");
    await this.weights.create();
  }

  private async reserve(bytes: number, what: string): Promise<void> {
    if (!(await this.ledger.reserve(bytes)))
      throw new Fault(
        "out_of_memory",
        `${bytes} bytes of ${what} are more than what is left of the memory that this browser lends`,
        "place fewer layers there; the limit is set on the page in the browser",
      );
  }

  memory(): StageMemory {
    return { weights_bytes: this.weights.bytes, kv_bytes: this.kvBytes, workspace_bytes: this.workspaceBytes };
  }

  // ---- loading ----

  /** All weights are written: keys and values, room for activations, kernels. Throws Fault. */
  async prepare(sizes: StageSizes): Promise<void> {
    const { shape } = this.plan;
    const pageBytes = PAGE_TOKENS * shape.kv_heads * shape.head_size * 2;
    if (sizes.page_count * pageBytes > this.device.chunk)
      throw new Fault("limit_exceeded", `the keys of a layer have ${sizes.page_count * pageBytes} bytes; this browser's GPU takes ${this.device.chunk}`);
    this.sizes = sizes;
    this.kvBytes = 2 * this.plan.layer_count * sizes.page_count * pageBytes;
    await this.reserve(this.kvBytes, "keys and values");
    const fault = await this.device.faultIn(() => {
      for (let i = 0; i < this.plan.layer_count; i++)
        this.caches.push({ keys: this.buffer(sizes.page_count * pageBytes), values: this.buffer(sizes.page_count * pageBytes) });
    });
    if (fault) throw new Fault("out_of_memory", `the browser has no memory for keys and values: ${fault.message}`);
    await this.makeBuffers(sizes);
    await this.makePipelines();
    this.makeOperations();
  }

  private buffer(bytes: number, usage: number = USAGE.STORAGE | USAGE.COPY_DST | USAGE.COPY_SRC): GPUBuffer {
    return this.device.gpu.createBuffer({ size: Math.max(4, up(bytes, 4) * 4), usage });
  }

  private async makeBuffers({ batch_rows, sequences, context_tokens }: StageSizes): Promise<void> {
    const { embedding, feed_forward, heads, kv_heads, head_size, rope_size } = this.plan.shape;
    const rows = up(batch_rows, BATCH) * BATCH;
    const layout: Record<keyof Buffers, number> = {
      x: rows * embedding,
      h: rows * embedding,
      q: rows * heads * head_size,
      k: rows * kv_heads * head_size,
      v: rows * kv_heads * head_size,
      a: rows * heads * head_size,
      gate: rows * feed_forward,
      up: rows * feed_forward,
      step: 2 * rows + sequences * pagesOf(context_tokens),
      turn: rows * Math.max(2, rope_size),
      tokens: rows,
      out: rows * embedding,
    };
    const slots = (this.plan.layer_count + 1) * 16 + this.weights.chunkCount();
    this.workspaceBytes = 4 * Object.values(layout).reduce((sum, words) => sum + words, 0) + slots * PARAMS_BYTES;
    await this.reserve(this.workspaceBytes, "activations");
    const made: Partial<Buffers> = {};
    const fault = await this.device.faultIn(() => {
      for (const [name, words] of Object.entries(layout) as [keyof Buffers, number][])
        made[name] = this.buffer(4 * words, name === "out" ? USAGE.MAP_READ | USAGE.COPY_DST : undefined);
      this.params = this.buffer(slots * PARAMS_BYTES, USAGE.UNIFORM | USAGE.COPY_DST);
    });
    if (fault) throw new Fault("out_of_memory", `the browser has no memory for activations: ${fault.message}`);
    this.buffers = made as Buffers;
  }

  private headTexts(layer: number): { q: string; k: string; v: string } {
    const { shape } = this.plan;
    const turns = shape.unturned.includes(layer) ? 0 : shape.rope_size;
    const common = { headSize: shape.head_size, bias: shape.qkv_bias, halves: shape.rope_halves, epsilon: shape.norm_epsilon };
    return {
      q: headText({ ...common, norm: shape.qk_norm, turns, store: false }),
      k: headText({ ...common, norm: shape.qk_norm, turns, store: true }),
      v: headText({ ...common, norm: false, turns: 0, store: true }),
    };
  }

  private attention(): string {
    const { head_size, heads, kv_heads, attention_scale } = this.plan.shape;
    return attentionText(head_size, heads, kv_heads, attention_scale);
  }

  /** All at once: the browser compiles them side by side. */
  private async makePipelines(): Promise<void> {
    const { plan } = this;
    const texts = new Set([NORM, gateText(plan.shape.gate), this.attention()]);
    for (let i = 0; i < plan.layer_count; i++)
      for (const text of Object.values(this.headTexts(plan.first_layer + i))) texts.add(text);
    for (const { role, format } of this.weights.matrices())
      if (role === "token_embedding") texts.add(embedText(format));
      else for (const batch of [1, BATCH] as const) texts.add(productText(format, batch));
    await Promise.all(
      [...texts].map(async (code) => {
        const module = this.device.gpu.createShaderModule({ code });
        try {
          this.pipelines.set(code, await this.device.gpu.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: "main" } }));
        } catch (error) {
          throw new Fault("unavailable", `this browser's GPU does not compile a kernel: ${error instanceof Error ? error.message : error}`);
        }
      }),
    );
  }

  // ---- operations ----

  /** Values that a kernel gets: whole numbers, or floats where they are given as [float]. */
  private slot(values: (number | [number])[]): GPUBufferBinding | null {
    if (!values.length || !this.params) return null;
    const bytes = new DataView(new ArrayBuffer(4 * values.length));
    values.forEach((value, i) => (Array.isArray(value) ? bytes.setFloat32(4 * i, value[0], true) : bytes.setUint32(4 * i, value, true)));
    const offset = PARAMS_BYTES * this.paramsUsed++;
    this.device.gpu.queue.writeBuffer(this.params, offset, bytes.buffer);
    return { buffer: this.params, offset, size: PARAMS_BYTES };
  }

  private bind(code: string, buffers: (GPUBuffer | null)[], slot: GPUBufferBinding | null): [GPUComputePipeline, GPUBindGroup] {
    const pipeline = this.pipelines.get(code);
    if (!pipeline) throw new Fault("internal", "a kernel was not compiled");
    const entries: GPUBindGroupEntry[] = [];
    buffers.forEach((buffer, binding) => buffer && entries.push({ binding, resource: { buffer } }));
    if (slot) entries.push({ binding: PARAMS, resource: slot });
    return [pipeline, this.device.gpu.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries })];
  }

  private operation(code: string, buffers: (GPUBuffer | null)[], values: (number | [number])[], wide: number, rowsFirst = false): Operation {
    const [one, oneBindings] = this.bind(code, buffers, this.slot(values));
    return { one, oneBindings, many: null, wide, rowsFirst };
  }

  private product(role: MatrixRole, layer: number, from: GPUBuffer, to: GPUBuffer, add = false): Operation[] {
    const matrix = this.weights.matrix(role, layer);
    return matrix.chunks.map(({ buffer, first, rows }) => {
      const slot = this.slot([rows, first, matrix.rows, matrix.columns / 32, matrix.row_bytes, Number(add)]);
      const buffers = [to, buffer, from];
      const [one, oneBindings] = this.bind(productText(matrix.format, 1), buffers, slot);
      const [pipeline, bindings] = this.bind(productText(matrix.format, BATCH), buffers, slot);
      return { one, oneBindings, many: { pipeline, bindings }, wide: up(rows, MATRIX_ROWS), rowsFirst: false };
    });
  }

  private layer(index: number, b: Buffers): Operation[] {
    const { shape, first_layer } = this.plan;
    const layer = first_layer + index;
    const cache = this.caches[index];
    if (!cache) throw new Fault("internal", "a layer has no keys");
    const { weights } = this;
    const texts = this.headTexts(layer);
    const norm = (role: "attention_norm" | "ffn_norm"): Operation =>
      this.operation(NORM, [b.h, b.x, weights.vectors([[role, layer]])], [shape.embedding, [shape.norm_epsilon]], 1, true);
    const extra = (name: "q" | "k" | "v"): GPUBuffer | null =>
      weights.vectors([...(shape.qkv_bias ? [[`${name}_bias`, layer] as const] : []), ...(shape.qk_norm && name !== "v" ? [[`${name}_norm`, layer] as const] : [])]);
    const turn = shape.unturned.includes(layer) || !shape.rope_size ? null : b.turn;
    const gain = (heads: number): number => (shape.qkv_bias ? heads * shape.head_size : 0);
    return [
      norm("attention_norm"),
      ...this.product("q", layer, b.h, b.q),
      ...this.product("k", layer, b.h, b.k),
      ...this.product("v", layer, b.h, b.v),
      this.operation(texts.q, [b.q, null, extra("q"), null, turn], [shape.heads, gain(shape.heads)], shape.heads),
      this.operation(texts.k, [cache.keys, b.k, extra("k"), b.step, turn], [shape.kv_heads, gain(shape.kv_heads)], shape.kv_heads),
      this.operation(texts.v, [cache.values, b.v, extra("v"), b.step], [shape.kv_heads, 0], shape.kv_heads),
      this.operation(this.attention(), [b.a, b.q, cache.keys, cache.values, b.step], [], shape.heads),
      ...this.product("attention_output", layer, b.a, b.x, true),
      norm("ffn_norm"),
      ...this.product("gate", layer, b.h, b.gate),
      ...this.product("up", layer, b.h, b.up),
      this.operation(gateText(shape.gate), [b.gate, b.up], [shape.feed_forward], up(shape.feed_forward, LANES)),
      ...this.product("down", layer, b.gate, b.x, true),
    ];
  }

  private makeOperations(): void {
    const b = this.buffers;
    if (!b) throw new Fault("internal", "there are no buffers");
    const { shape, embeds, layer_count } = this.plan;
    const table = embeds ? this.weights.matrix("token_embedding", 0) : null;
    this.operations.push(
      (table?.chunks ?? []).map(({ buffer, first, rows }) =>
        this.operation(
          embedText(table?.format ?? "F32"),
          [b.x, buffer, b.tokens],
          [rows, first, shape.embedding / 32, table?.row_bytes ?? 0, [shape.embedding_scale]],
          up(shape.embedding / 32, LANES),
        ),
      ),
    );
    for (let i = 0; i < layer_count; i++) this.operations.push(this.layer(i, b));
  }

  private record(pass: GPUComputePassEncoder, operation: Operation, rows: number): void {
    const many = rows > 1 ? operation.many : null;
    const deep = many ? up(rows, BATCH) : rows;
    pass.setPipeline(many?.pipeline ?? operation.one);
    pass.setBindGroup(0, many?.bindings ?? operation.oneBindings);
    if (operation.rowsFirst) pass.dispatchWorkgroups(rows);
    else if (operation.wide <= GROUPS_MOST) pass.dispatchWorkgroups(operation.wide, deep);
    else pass.dispatchWorkgroups(GROUPS_MOST, deep, up(operation.wide, GROUPS_MOST));
  }

  // ---- steps ----

  /** Pages are somebody else's from now on. */
  zero(pages: Uint32Array): void {
    const { kv_heads, head_size } = this.plan.shape;
    const bytes = PAGE_TOKENS * kv_heads * head_size * 2;
    const encoder = this.device.gpu.createCommandEncoder();
    for (const page of pages)
      for (const { keys, values } of this.caches) {
        encoder.clearBuffer(keys, page * bytes, bytes);
        encoder.clearBuffer(values, page * bytes, bytes);
      }
    this.device.gpu.queue.submit([encoder.finish()]);
  }

  /** Positions, places of the lists of pages, and the lists; and how far each pair of values turns. */
  private tell(runs: readonly Run[], rows: number, b: Buffers): void {
    const { rope_size, rope_frequency, rope_magnitude } = this.plan.shape;
    const step = new Uint32Array(2 * rows + runs.reduce((sum, run) => sum + run.pages.length, 0));
    const turn = new Float32Array(rows * rope_size);
    let row = 0;
    let at = 2 * rows;
    for (const run of runs) {
      step.set(run.pages, at);
      for (let i = 0; i < run.row_count; i++, row++) {
        const position = run.position + i;
        step[2 * row] = position;
        step[2 * row + 1] = at;
        for (let pair = 0; pair < rope_size / 2; pair++) {
          const angle = position * (rope_frequency[pair] ?? 0);
          turn[row * rope_size + 2 * pair] = Math.cos(angle) * rope_magnitude;
          turn[row * rope_size + 2 * pair + 1] = Math.sin(angle) * rope_magnitude;
        }
      }
      at += run.pages.length;
    }
    this.device.gpu.queue.writeBuffer(b.step, 0, step);
    if (turn.length) this.device.gpu.queue.writeBuffer(b.turn, 0, turn);
  }

  /** Compute the rows of these runs; `input`: their tokens, of a stage that embeds, or their activations. */
  async step(runs: readonly Run[], input: Uint32Array<ArrayBuffer> | Float32Array<ArrayBuffer>): Promise<Float32Array<ArrayBuffer>> {
    const b = this.buffers;
    const rows = runs.reduce((sum, run) => sum + run.row_count, 0);
    if (!b || !this.sizes || rows > this.sizes.batch_rows) throw new Fault("internal", "the step does not fit the stage");
    const { gpu } = this.device;
    this.tell(runs, rows, b);
    gpu.queue.writeBuffer(this.plan.embeds ? b.tokens : b.x, 0, input);
    let encoder = gpu.createCommandEncoder();
    for (const operations of this.operations) {
      if (!operations.length) continue;
      const pass = encoder.beginComputePass();
      for (const operation of operations) this.record(pass, operation, rows);
      pass.end();
      if (rows < ROWS_TOGETHER) continue;
      gpu.queue.submit([encoder.finish()]);
      encoder = gpu.createCommandEncoder();
    }
    const bytes = rows * this.plan.shape.embedding * 4;
    encoder.copyBufferToBuffer(b.x, 0, b.out, 0, bytes);
    gpu.queue.submit([encoder.finish()]);
    await b.out.mapAsync(MAP_READ, 0, bytes);
    const output = new Float32Array(b.out.getMappedRange(0, bytes).slice(0));
    b.out.unmap();
    return output;
  }
}
