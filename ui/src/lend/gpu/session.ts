/* A session's worker in a browser: the line of the server's calls, their order and their time.
 *
 * Calls are served in the order in which they come and answered in it. What only enqueues work (write, read, fill,
 * launch) is enqueued while earlier work is under way, up to STEPS calls; what must know the state of the device
 * (allocate, free, copy, load, unload, run) waits for all before it, and the calls after it wait for it.
 *
 * A call's time runs while it is the oldest. One that takes too long is answered `timeout`, and the worker ends, as a
 * native one does: WebGPU cannot stop a kernel in another way than by giving up the device. */
import { Compute } from "./compute";
import { type Answer, type Call, type Refused, printAnswer, printFault, printNotice, readCall } from "./contract";
import type { Device } from "./device";
import { Breach, Fault } from "./fault";
import { type Ledger, Memory } from "./memory";

/** As CALL_MS of engine/worker/calls.c, and CALL_BYTES_PER_MS of reader.c. */
const CALL_MS = 60_000;
const BYTES_PER_MS = 50_000;
const STEPS = 24;
/** The server holds clients back long before these: who sends more floods. */
const CALLS_MOST = 4096;
const BYTES_MOST = 256 * 1024 * 1024;
/** Of reads that are under way, in memory between device and socket. */
const READING_MOST = 32 * 1024 * 1024;
const COPY_TELL_MS = 500;
/** What the socket has not sent yet, before more is read from the device. */
const SENDING_MOST = 2 * 1024 * 1024;
const SENDING_LOOK_MS = 5;

export interface SessionParams {
  device: Device;
  ledger: Ledger;
  limit_bytes: number | null;
  send(message: Uint8Array): void;
  /** Bytes that were sent and have not left yet. */
  unsent(): number;
  /** A call took too long: it is answered so next, and then the session ends. */
  late(): void;
  /** Once, with the reason; nothing is sent any more. */
  ended(reason: string): void;
}

interface Step {
  call: Call | Refused;
  answer: Promise<Answer>;
  limit_ms: number;
}

export class Session {
  private readonly params: SessionParams;
  private readonly memory: Memory;
  private readonly compute: Compute;
  private readonly line: (Call | Refused)[] = [];
  private lineBytes = 0;
  private readingBytes = 0;
  private number: number | null = null; // of the open device
  private readonly steps: Promise<void>[] = []; // of each call that was begun, until it is answered
  private tail: Promise<void> = Promise.resolve(); // the answer of the last step
  private pumping = false;
  private lost: string | null = null;
  private over = false;
  private lastDone = 0; // when the last step was done, by the clock of this worker
  private passes: Promise<void> = Promise.resolve(); // pending while it is fenced
  private unfence: (() => void) | null = null;

  constructor(params: SessionParams) {
    this.params = params;
    const { device, ledger, limit_bytes } = params;
    this.memory = new Memory({ device, ledger, limit_bytes });
    this.compute = new Compute(device, this.memory);
    void device.gpu.lost.then(({ reason, message }) => this.lose(message || reason));
    device.gpu.addEventListener("uncapturederror", (event) => {
      // Everything is checked before it is enqueued, so what the device then refuses is a fault of this program.
      this.end(`the device refused its work: ${event.error.message}`);
    });
  }

  /** The server's calls name the device by this number from now on. */
  openDevice(number: number): void {
    this.number = number;
  }

  get heldBytes(): number {
    return this.memory.heldBytes;
  }

  /** While it is fenced nothing is begun or sent; what was enqueued goes on. */
  fence(held: boolean): void {
    if (held && !this.unfence)
      this.passes = new Promise((resolve) => {
        this.unfence = resolve;
      });
    else if (!held) {
      this.unfence?.();
      this.unfence = null;
    }
  }

  /** One message of the server. */
  receive(frame: unknown): void {
    if (this.over) return;
    try {
      if (!(frame instanceof ArrayBuffer)) throw new Breach("what came is no binary frame");
      const call = readCall(frame);
      this.lineBytes += bytesOf(call);
      if (this.line.push(call) > CALLS_MOST || this.lineBytes > BYTES_MOST)
        throw new Breach(`the server sent more than ${CALLS_MOST} calls or ${BYTES_MOST} bytes at once`);
    } catch (error) {
      this.end(`the server broke the protocol: ${error instanceof Error ? error.message : String(error)}`);
      return;
    }
    void this.pump();
  }

  /** End it for good. */
  end(reason: string): void {
    if (this.over) return;
    this.over = true;
    this.line.length = 0;
    this.unfence?.();
    this.params.device.close();
    this.params.ended(reason);
  }

  private lose(why: string): void {
    if (this.over || this.lost !== null) return;
    this.lost = why;
    // What is unanswered is answered with it; then the worker ends.
    const last = this.line.splice(0);
    for (const call of last) this.push(call, Promise.reject(this.lostFault()));
    void this.tail.then(() => this.end(`the GPU device is lost: ${why}`));
  }

  private lostFault(): Fault {
    return new Fault("device_lost", this.lost ?? "the device is lost", "allocate and load again to go on");
  }

  // ---- the line ----

  private async pump(): Promise<void> {
    if (this.pumping) return;
    this.pumping = true;
    for (let call = this.line.shift(); call; call = this.line.shift()) {
      await this.passes;
      if (this.over) break;
      await this.serve(call);
      this.lineBytes -= bytesOf(call);
    }
    this.pumping = false;
  }

  private async serve(call: Call | Refused): Promise<void> {
    if ("refused" in call) {
      this.push(call, Promise.reject(call.refused));
      return;
    }
    const waits = !["memory.write", "memory.read", "memory.fill", "compute.launch"].includes(call.method);
    if (waits) await this.tail;
    else while (this.steps.length >= STEPS || this.readingBytes >= READING_MOST) await this.steps[0];
    if (this.over) return;
    if (call.method === "memory.read") this.readingBytes += call.params.bytes;
    this.push(call, this.lost === null ? this.begin(call) : Promise.reject(this.lostFault()));
    if (waits) await this.tail;
  }

  private push(call: Call | Refused, answer: Promise<Answer>): void {
    const step = { call, answer, limit_ms: limitOf(call) };
    answer.catch(() => {}); // it is looked at when it is the oldest
    this.tail = this.tail.then(() => this.finish(step));
    this.steps.push(this.tail);
  }

  /** The step is the oldest: wait for it, and answer. */
  private async finish(step: Step): Promise<void> {
    let message: Uint8Array;
    let fault: unknown = null;
    try {
      const answer = await this.within(step.answer, step.limit_ms);
      if (this.lost !== null) throw this.lostFault();
      message = printAnswer(step.call.id, answer);
    } catch (error) {
      fault = this.lost !== null && !isTimeout(error) ? this.lostFault() : error;
      message = printFault(step.call.id, fault);
    }
    await this.room();
    void this.steps.shift();
    if (!("refused" in step.call) && step.call.method === "memory.read") this.readingBytes -= step.call.params.bytes;
    this.lastDone = performance.now();
    if (this.over) return;
    if (isTimeout(fault)) this.params.late();
    this.params.send(message);
    if (isTimeout(fault)) this.end("a kernel outlasted its time limit");
  }

  /** Until what was sent has left, and no fence is up. */
  private async room(): Promise<void> {
    while (!this.over && this.params.unsent() > SENDING_MOST)
      await new Promise((resolve) => setTimeout(resolve, SENDING_LOOK_MS));
    await this.passes;
  }

  private async within<T>(work: Promise<T>, ms: number): Promise<T> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () =>
          reject(
            new Fault(
              "timeout",
              `not done within ${ms} ms; the worker has ended, and its memory is lost`,
              "give a larger timeout_ms, or less work at a time",
            ),
          ),
        ms,
      );
    });
    try {
      return await Promise.race([work, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  // ---- the calls ----

  private async begin(call: Call): Promise<Answer> {
    const { memory, compute, params } = this;
    if ("device" in call.params && call.params.device !== this.number)
      throw new Fault("not_found", `device ${call.params.device} is not open in this worker`);
    switch (call.method) {
      case "memory.allocate":
        await memory.allocate(call.params.handle, call.params.bytes);
        return { result: {} };
      case "memory.free":
        memory.free(call.params.handle);
        await params.device.done();
        return { result: {} };
      case "memory.write":
        memory.write(call.params.handle, call.params.offset, call.body);
        await params.device.done();
        return { result: { bytes: call.body.length } };
      case "memory.read": {
        const body = await memory.read(call.params.handle, call.params.offset, call.params.bytes);
        return { result: { bytes: body.length }, body };
      }
      case "memory.fill":
        memory.fill(call.params.handle, call.params.offset, call.params.bytes, call.params.value);
        await params.device.done();
        return { result: { bytes: call.params.bytes } };
      case "memory.copy":
        await memory.copy(call.params, this.teller(call.id));
        return { result: { bytes: call.params.bytes, path: "device" } };
      case "compute.load":
        return { result: { signatures: await compute.load(call.params, call.body) } };
      case "compute.unload":
        compute.unload(call.params.module);
        return { result: {} };
      case "compute.launch":
        return { result: { device_us: await this.timed(() => compute.launch(call.params)) } };
      case "compute.run":
        return { result: await compute.run(call.params, (work, ms) => this.within(work, ms)) };
    }
  }

  /** Microseconds on the device; where that does not tell, from the end of the work before until this is done. */
  private async timed(launch: () => Promise<void>): Promise<number> {
    const { device } = this.params;
    device.timer?.begin();
    const launched = launch(); // has enqueued it, or never will
    const ns = device.timer?.end() ?? null;
    const enqueued = performance.now();
    const [, done, told] = await Promise.all([launched, device.done().then(() => performance.now()), ns]);
    return told === null ? Math.max(0, done - Math.max(enqueued, this.lastDone)) * 1000 : told / 1000;
  }

  private teller(id: number | string): (done: number) => void {
    let told = performance.now();
    return (done) => {
      const now = performance.now();
      if (typeof id !== "number" || id < 1 || now - told < COPY_TELL_MS || this.over || this.unfence) return;
      told = now;
      this.params.send(printNotice("memory.moved", { call: id, done_bytes: done }));
    };
  }
}

const isTimeout = (fault: unknown): boolean => fault instanceof Fault && fault.reason === "timeout";
const bytesOf = (call: Call | Refused): number => ("body" in call ? call.body.length : 0);

/** compute.run bounds its kernel itself. */
function limitOf(call: Call | Refused): number {
  if ("refused" in call) return CALL_MS;
  if (call.method === "compute.launch") return call.params.timeout_ms;
  const asked = "bytes" in call.params ? (call.params.bytes ?? 0) : 0;
  const kernel_ms = call.method === "compute.run" ? call.params.timeout_ms : 0;
  return Math.min(0x7fffffff, CALL_MS + Math.ceil((asked + call.body.length) / BYTES_PER_MS) + kernel_ms);
}
