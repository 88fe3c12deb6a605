/* Time on the device, by its own clock, where the browser offers it (timestamp-query). Browsers round it, Chromium to
 * 0.1 ms. One measurement is begun at a time; its answer may come while later ones are under way. */
import { MAP_READ, USAGE } from "./flags";

/** Launches of a session that are under way at once are fewer. */
const SLOTS = 64;
/** Where an answer may begin, and what it has: two times in ns. */
const STEP_BYTES = 256;
const ANSWER_BYTES = 16;

export class Timer {
  private readonly gpu: GPUDevice;
  private readonly set: GPUQuerySet;
  private readonly answers: GPUBuffer;
  private slot = 0;
  private running = false;
  private passes = 0;

  constructor(gpu: GPUDevice) {
    this.gpu = gpu;
    this.set = gpu.createQuerySet({ type: "timestamp", count: 2 * SLOTS });
    this.answers = gpu.createBuffer({ size: SLOTS * STEP_BYTES, usage: USAGE.QUERY_RESOLVE | USAGE.COPY_SRC });
  }

  begin(): void {
    this.slot = (this.slot + 1) % SLOTS;
    this.passes = 0;
    this.running = true;
  }

  /** What a compute pass between begin and end is made with. */
  pass(): GPUComputePassDescriptor {
    if (!this.running) return {};
    const first = this.passes++ === 0;
    return {
      timestampWrites: {
        querySet: this.set,
        ...(first ? { beginningOfPassWriteIndex: 2 * this.slot } : {}),
        endOfPassWriteIndex: 2 * this.slot + 1,
      },
    };
  }

  /** Enqueued behind the passes since begin; the promise is of ns, null where they could not be read. */
  end(): Promise<number | null> {
    this.running = false;
    if (!this.passes) return Promise.resolve(0);
    const at = this.slot * STEP_BYTES;
    const host = this.gpu.createBuffer({ size: ANSWER_BYTES, usage: USAGE.MAP_READ | USAGE.COPY_DST });
    const encoder = this.gpu.createCommandEncoder();
    encoder.resolveQuerySet(this.set, 2 * this.slot, 2, this.answers, at);
    encoder.copyBufferToBuffer(this.answers, at, host, 0, ANSWER_BYTES);
    this.gpu.queue.submit([encoder.finish()]);
    return this.read(host);
  }

  private async read(host: GPUBuffer): Promise<number | null> {
    try {
      await host.mapAsync(MAP_READ);
      const [began = 0n, ended = 0n] = new BigUint64Array(host.getMappedRange().slice(0));
      return ended > began ? Number(ended - began) : 0;
    } catch {
      return null; // the device is lost, which its session hears
    } finally {
      host.destroy();
    }
  }
}
