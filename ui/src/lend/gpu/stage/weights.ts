/* The weights of a stage: matrices as in the model's file, in as many buffers as the adapter's limits make necessary;
 * vectors on the host until the kernels that want them are bound. They come by byte range, in any order. */
import type { Device } from "../device";
import { Fault } from "../fault";
import { USAGE } from "../flags";
import type { Format } from "./formats";
import { type MatrixRole, type Plan, type Role, type Tensor, type VectorRole, isVector } from "./plan";

/** Chunks begin at rows that are multiples of it, and so at whole words. */
const ROWS_STEP = 8;

export interface Chunk {
  buffer: GPUBuffer;
  first: number; // row
  rows: number;
}

export interface Matrix {
  format: Format;
  rows: number;
  columns: number;
  row_bytes: number;
  chunks: Chunk[];
}

const nameOf = (role: Role, layer: number): string => `${role} ${layer}`;
const wordsUp = (bytes: number): number => Math.ceil(bytes / 4) * 4;

export class Weights {
  readonly bytes: number;
  private readonly device: Device;
  private readonly plan: Plan;
  private readonly made = new Map<string, Matrix>();
  private readonly numbers = new Map<string, Uint8Array<ArrayBuffer>>();
  private readonly left: number[]; // bytes of each tensor that have not come
  private missing: number;

  constructor(device: Device, plan: Plan) {
    this.device = device;
    this.plan = plan;
    this.left = plan.tensors.map(({ rows, row_bytes }) => rows * row_bytes);
    this.missing = this.left.reduce((sum, bytes) => sum + bytes, 0);
    this.bytes = this.left.reduce((sum, bytes) => sum + wordsUp(bytes), 0);
  }

  get missingBytes(): number {
    return this.missing;
  }

  private chunkRows(tensor: Tensor): number {
    const rows = Math.floor(this.device.chunk / tensor.row_bytes / ROWS_STEP) * ROWS_STEP;
    if (!rows) throw new Fault("limit_exceeded", `${ROWS_STEP} rows of ${tensor.columns} values are more than one buffer of this browser's GPU takes`);
    return Math.min(rows, tensor.rows);
  }

  chunkCount(): number {
    return [...this.made.values()].reduce((sum, matrix) => sum + matrix.chunks.length, 0);
  }

  async create(): Promise<void> {
    const usage = USAGE.STORAGE | USAGE.COPY_DST;
    const fault = await this.device.faultIn(() => {
      for (const tensor of this.plan.tensors) {
        const { role, layer, format, rows, columns, row_bytes } = tensor;
        if (isVector(role)) {
          this.numbers.set(nameOf(role, layer), new Uint8Array(row_bytes));
          continue;
        }
        const matrix: Matrix = { format, rows, columns, row_bytes, chunks: [] };
        const each = this.chunkRows(tensor);
        for (let first = 0; first < rows; first += each) {
          const count = Math.min(each, rows - first);
          const buffer = this.device.gpu.createBuffer({ size: wordsUp(count * row_bytes), usage });
          matrix.chunks.push({ buffer, first, rows: count });
        }
        this.made.set(nameOf(role, layer), matrix);
      }
    });
    if (fault) throw new Fault("out_of_memory", `the browser has no memory for the weights: ${fault.message}`);
  }

  matrices(): { role: MatrixRole; format: Format }[] {
    return this.plan.tensors.flatMap(({ role, format }) => (isVector(role) ? [] : [{ role, format }]));
  }

  /** Bytes of a tensor, from `offset` on, a multiple of 4. Throws Fault. */
  write(index: number, offset: number, body: Uint8Array): void {
    const tensor = this.plan.tensors[index];
    const left = this.left[index];
    if (!tensor || left === undefined) throw new Fault("not_found", `there is no tensor ${index}`);
    const bytes = tensor.rows * tensor.row_bytes;
    const end = offset + body.length;
    if (offset % 4 || end > bytes || (body.length % 4 && end !== bytes) || body.length > left)
      throw new Fault("invalid_params", "the bytes do not fit the tensor");
    const numbers = this.numbers.get(nameOf(tensor.role, tensor.layer));
    if (numbers) numbers.set(body, offset);
    else this.put(this.matrix(tensor.role as MatrixRole, tensor.layer), offset, body);
    this.left[index] = left - body.length;
    this.missing -= body.length;
  }

  private put(matrix: Matrix, offset: number, body: Uint8Array): void {
    for (const { buffer, first, rows } of matrix.chunks) {
      const begin = first * matrix.row_bytes;
      const from = Math.max(offset, begin);
      const to = Math.min(offset + body.length, begin + rows * matrix.row_bytes);
      if (from >= to) continue;
      let part = body.subarray(from - offset, to - offset) as Uint8Array<ArrayBuffer>;
      if (part.length % 4) {
        const padded = new Uint8Array(wordsUp(part.length));
        padded.set(part);
        part = padded;
      }
      this.device.gpu.queue.writeBuffer(buffer, from - begin, part);
    }
  }

  matrix(role: MatrixRole, layer: number): Matrix {
    const matrix = this.made.get(nameOf(role, layer));
    if (!matrix) throw new Fault("internal", `the stage has no ${role} of layer ${layer}`);
    return matrix;
  }

  /** One buffer with these vectors, one behind another; null: there are none. */
  vectors(names: (readonly [VectorRole, number])[]): GPUBuffer | null {
    const parts = names.map(([role, layer]) => this.numbers.get(nameOf(role, layer)) ?? new Uint8Array(0));
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    if (!size) return null;
    const buffer = this.device.gpu.createBuffer({ size, usage: USAGE.STORAGE | USAGE.COPY_DST });
    let at = 0;
    for (const part of parts) {
      this.device.gpu.queue.writeBuffer(buffer, at, part);
      at += part.length;
    }
    return buffer;
  }
}
