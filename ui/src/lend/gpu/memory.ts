/* memory.* on a device: what a session holds, by handles that the server chose.
 *
 * An allocation is as many buffers as the device's limits make necessary; nobody outside this file and range.ts notices.
 * The first calls of a method here check, the rest enqueues: what is enqueued is in order with all other work. */
import { FILL_WORDS, PUT_BYTES, groupsFor } from "./builtin";
import type { Device } from "./device";
import { Fault } from "./fault";
import { MAP_READ, USAGE } from "./flags";
import { type Piece, checkRange, edges, moves, overlap, pieces, words, wordsUp } from "./range";

/** As LIMIT_ALLOCATIONS_OF_SESSION. */
const ALLOCATIONS = 1024;
/** Copied at a time through the buffer between: what lies in one buffer, or does not begin at words. */
const SCRATCH_BYTES = 4 * 1024 * 1024;
/** Before the bytes in it, so that the first may begin anywhere in a word. */
const SCRATCH_PAD = 4;
/** Of a copy, enqueued before what is enqueued is waited for. */
const STEP_BYTES = 64 * 1024 * 1024;

export interface Allocation {
  handle: number;
  bytes: number;
  buffers: GPUBuffer[];
}

/** What the tab lends in all, of which its workers take their shares. */
export interface Ledger {
  reserve(bytes: number): Promise<boolean>;
  release(bytes: number): void;
}

export interface MemoryParams {
  device: Device;
  ledger: Ledger;
  /** Of the token; null: none. */
  limit_bytes: number | null;
}

export class Memory {
  private readonly device: Device;
  private readonly ledger: Ledger;
  private readonly limit: number | null;
  private readonly slots = new Map<number, Allocation>();
  private held = 0;
  private scratch: GPUBuffer | null = null;

  constructor(params: MemoryParams) {
    this.device = params.device;
    this.ledger = params.ledger;
    this.limit = params.limit_bytes;
  }

  get heldBytes(): number {
    return this.held;
  }

  find(handle: number, name = "handle"): Allocation {
    const slot = this.slots.get(handle);
    if (!slot) throw new Fault("not_found", `${name}: there is no allocation ${handle} here`);
    return slot;
  }

  /** Buffers of so many bytes, counted and zeroed. Throws Fault. */
  async take(bytes: number): Promise<GPUBuffer[]> {
    if (this.limit !== null && (bytes > this.limit || this.held > this.limit - bytes))
      throw new Fault("limit_exceeded", `${bytes} bytes asked, ${this.held} held, at most ${this.limit} are allowed`);
    if (!(await this.ledger.reserve(bytes)))
      throw new Fault(
        "out_of_memory",
        `${bytes} bytes are more than what is left of the memory that this browser lends`,
        "free other memory, or ask for less; the limit is set on the page in the browser",
      );
    const buffers: GPUBuffer[] = [];
    try {
      await this.create(buffers, bytes);
    } catch (error) {
      for (const buffer of buffers) buffer.destroy();
      this.ledger.release(bytes);
      throw error;
    }
    this.held += bytes;
    return buffers;
  }

  private async create(buffers: GPUBuffer[], bytes: number): Promise<void> {
    for (const piece of pieces(0, bytes, this.device.chunk)) {
      const size = wordsUp(piece.bytes);
      const fault = await this.device.faultIn(() => {
        const usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST;
        const buffer = this.device.gpu.createBuffer({ size, usage });
        buffers.push(buffer);
        // WebGPU's memory is zero; this makes the driver provide it now, and say so if it cannot.
        this.clear(buffer, 0, size);
      });
      if (fault) throw new Fault("out_of_memory", `${bytes} bytes: ${fault.message || "the device has too little memory"}`);
    }
    await this.device.done();
  }

  /** Zero and give back. */
  give(buffers: GPUBuffer[], bytes: number): void {
    for (const buffer of buffers) {
      this.clear(buffer, 0, buffer.size);
      buffer.destroy();
    }
    this.held -= bytes;
    this.ledger.release(bytes);
  }

  async allocate(handle: number, bytes: number): Promise<void> {
    if (this.slots.has(handle)) throw new Fault("conflict", `handle ${handle} is taken`);
    if (this.slots.size >= ALLOCATIONS)
      throw new Fault("limit_exceeded", `a session holds at most ${ALLOCATIONS} allocations`);
    this.slots.set(handle, { handle, bytes, buffers: await this.take(bytes) });
  }

  free(handle: number): void {
    const slot = this.find(handle);
    this.slots.delete(handle);
    this.give(slot.buffers, slot.bytes);
  }

  // ---- write, read, fill ----

  write(handle: number, offset: number, body: Uint8Array): void {
    const slot = this.find(handle);
    checkRange(slot.bytes, offset, body.length);
    for (const piece of pieces(offset, body.length, this.device.chunk)) {
      const part = body.subarray(piece.done, piece.done + piece.bytes);
      const { before, middle, after } = edges(piece.at, piece.bytes);
      const to = bufferOf(slot, piece);
      this.put(to, piece.at, part.subarray(0, before));
      if (middle) {
        const whole = part.subarray(before, before + middle) as Uint8Array<ArrayBuffer>;
        this.device.gpu.queue.writeBuffer(to, piece.at + before, whole);
      }
      this.put(to, piece.at + before + middle, part.subarray(before + middle, before + middle + after));
    }
  }

  /** Less than a word, at a place inside one. */
  private put(to: GPUBuffer, at: number, bytes: Uint8Array): void {
    if (!bytes.length) return;
    const padded = new Uint8Array(8);
    padded.set(bytes, at % 4);
    this.device.gpu.queue.writeBuffer(this.between(), SCRATCH_PAD, padded);
    this.putBytes(to, at, bytes.length, SCRATCH_PAD);
  }

  /** Bytes of the buffer between; `begin`: where the byte lies in it that belongs to the first word's first. */
  private putBytes(to: GPUBuffer, at: number, bytes: number, begin: number): void {
    const { first, count, firstMask, lastMask } = words(at, bytes);
    this.device.run(PUT_BYTES, [to, this.between()], [count, first, begin, firstMask, lastMask], [groupsFor(count)]);
  }

  private between(): GPUBuffer {
    this.scratch ??= this.device.gpu.createBuffer({
      size: SCRATCH_PAD + SCRATCH_BYTES + 8,
      usage: USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST,
    });
    return this.scratch;
  }

  /** Enqueue a read; the promise is of its bytes. */
  read(handle: number, offset: number, bytes: number): Promise<Uint8Array> {
    const slot = this.find(handle);
    checkRange(slot.bytes, offset, bytes);
    if (!bytes) return Promise.resolve(new Uint8Array(0));
    return this.readBuffers(slot, offset, bytes);
  }

  private async readBuffers(slot: Pick<Allocation, "buffers">, offset: number, bytes: number): Promise<Uint8Array> {
    const lead = offset % 4;
    const size = wordsUp(lead + bytes);
    const host = this.device.gpu.createBuffer({ size, usage: USAGE.MAP_READ | USAGE.COPY_DST });
    const encoder = this.device.gpu.createCommandEncoder();
    for (const piece of pieces(offset - lead, lead + bytes, this.device.chunk))
      encoder.copyBufferToBuffer(bufferOf(slot, piece), piece.at, host, piece.done, wordsUp(piece.bytes));
    this.device.gpu.queue.submit([encoder.finish()]);
    try {
      await host.mapAsync(MAP_READ);
      return new Uint8Array(host.getMappedRange().slice(lead, lead + bytes));
    } finally {
      host.destroy();
    }
  }

  /** All of some buffers, of `bytes` together. */
  readAll(buffers: GPUBuffer[], bytes: number): Promise<Uint8Array> {
    return this.readBuffers({ buffers }, 0, bytes);
  }

  fill(handle: number, offset: number, bytes: number, value: number): void {
    const slot = this.find(handle);
    checkRange(slot.bytes, offset, bytes);
    for (const piece of pieces(offset, bytes, this.device.chunk)) this.set(bufferOf(slot, piece), piece, value);
  }

  private set(to: GPUBuffer, piece: Piece, value: number): void {
    if (!value && piece.at % 4 === 0 && piece.bytes % 4 === 0) {
      this.clear(to, piece.at, piece.bytes);
      return;
    }
    const { first, count, firstMask, lastMask } = words(piece.at, piece.bytes);
    const word = (value * 0x01010101) >>> 0;
    this.device.run(FILL_WORDS, [to], [count, first, word, firstMask, lastMask], [groupsFor(count)]);
  }

  private clear(buffer: GPUBuffer, at: number, bytes: number): void {
    const encoder = this.device.gpu.createCommandEncoder();
    encoder.clearBuffer(buffer, at, bytes);
    this.device.gpu.queue.submit([encoder.finish()]);
  }

  // ---- copy ----

  /** In steps, after each of which `told` hears how many bytes are done; the promise is of the last. */
  copy(
    what: { from: number; from_offset: number; to: number; to_offset: number; bytes: number },
    told: (done: number) => void,
  ): Promise<void> {
    const from = this.find(what.from, "from");
    const to = this.find(what.to, "to");
    checkRange(from.bytes, what.from_offset, what.bytes);
    checkRange(to.bytes, what.to_offset, what.bytes);
    if (from === to && overlap(what.from_offset, what.to_offset, what.bytes))
      throw new Fault("invalid_params", "the two ranges overlap");
    return this.copySteps(from, to, what, told);
  }

  private async copySteps(
    from: Allocation,
    to: Allocation,
    what: { from_offset: number; to_offset: number; bytes: number },
    told: (done: number) => void,
  ): Promise<void> {
    let waits = 0;
    for (const move of moves(what.from_offset, what.to_offset, what.bytes, this.device.chunk, STEP_BYTES)) {
      this.move(bufferOf(from, move.from), move.from.at, bufferOf(to, move.to), move.to.at, move.to.bytes);
      waits += move.to.bytes;
      if (waits < STEP_BYTES) continue;
      waits = 0;
      await this.device.done();
      told(move.to.done + move.to.bytes);
    }
    await this.device.done();
  }

  private move(from: GPUBuffer, fromAt: number, to: GPUBuffer, toAt: number, bytes: number): void {
    const { before, middle, after } = edges(toAt, bytes);
    if (from === to || fromAt % 4 !== toAt % 4) {
      this.moveBytes(from, fromAt, to, toAt, bytes);
      return;
    }
    this.moveBytes(from, fromAt, to, toAt, before);
    if (middle) {
      const encoder = this.device.gpu.createCommandEncoder();
      encoder.copyBufferToBuffer(from, fromAt + before, to, toAt + before, middle);
      this.device.gpu.queue.submit([encoder.finish()]);
    }
    this.moveBytes(from, fromAt + before + middle, to, toAt + before + middle, after);
  }

  /** Through the buffer between: from any byte to any byte, also within one buffer. */
  private moveBytes(from: GPUBuffer, fromAt: number, to: GPUBuffer, toAt: number, bytes: number): void {
    for (let done = 0; done < bytes; ) {
      const now = Math.min(bytes - done, SCRATCH_BYTES - 4);
      const lead = (fromAt + done) % 4;
      const encoder = this.device.gpu.createCommandEncoder();
      encoder.copyBufferToBuffer(from, fromAt + done - lead, this.between(), SCRATCH_PAD, wordsUp(lead + now));
      this.device.gpu.queue.submit([encoder.finish()]);
      this.putBytes(to, toAt + done, now, SCRATCH_PAD + lead - ((toAt + done) % 4));
      done += now;
    }
  }
}

function bufferOf(slot: Pick<Allocation, "buffers">, piece: Piece): GPUBuffer {
  const buffer = slot.buffers[piece.index];
  if (!buffer) throw new Fault("internal", "an allocation lacks a buffer");
  return buffer;
}
