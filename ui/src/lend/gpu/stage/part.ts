/* A worker of a browser that holds layers of a model: one of the parts of an instance, between others.
 *
 * The server says what the stage is (stage.open), sends its weights (stage.write), and has it loaded (instance.load), as
 * it has native workers. Two hops, each a connection to the server, bring the steps of the ring and take them on
 * (ring.ts). A message that comes goes on as exactly one message, so that the server sees by counting whether a tab
 * still passes on what it gets. What cannot be computed is told to the next part (ring.failed), and the worker ends. */
import type { Device } from "../device";
import { Breach, Fault } from "../fault";
import { type Answer, type PartCall, type Refused, printAnswer, printFault, readPartCall } from "../contract";
import type { Ledger } from "../memory";
import type { StageTold } from "../messages";
import { PAGE_TOKENS } from "./kernels";
import { sha256 } from "../store";
import { type Plan, readPlan } from "./plan";
import { type RingPart, type RingStep, printFailed, printHello, printPast, printStep, readRing, ringRows } from "./ring";
import { Stage } from "./stage";

/** As LIMIT_STEP_MS: a step that takes longer never ends. */
const STEP_MS = 30_000;
/** Of the ring that wait here; there are no more steps than parts. */
const WAITING_MOST = 256;
const CALLS_MOST = 64;
/** Of what waits here of either: the server sends two pieces of weights at once, and a ring has a step for each part. */
const BYTES_MOST = 256 * 1024 * 1024;
const MEASURE_MS = 200;
const MEASURE_RUNS = 8;
const MEASURE_ROWS = 64;
const TELL_MS = 500;

/** The weights that this browser keeps: ../store.ts. */
export interface Kept {
  begin(): Promise<boolean>;
  /** The hash was verified; null: it is not kept. */
  find(sha256: string, bytes: number): Promise<Uint8Array<ArrayBuffer> | null>;
  /** The bytes are gone afterwards. */
  keep(sha256: string, body: Uint8Array<ArrayBuffer>): Promise<void>;
}

export interface PartParams {
  device: Device;
  ledger: Ledger;
  store: Kept;
  send(message: Uint8Array): void;
  /** To the next part. Where the hop is broken it is lost: it is connected again, and a new round begins. */
  pass(message: Uint8Array<ArrayBuffer>): void;
  tell(told: StageTold): void;
  ended(reason: string): void;
}

export class Part {
  private readonly params: PartParams;
  private stage: Stage | null = null;
  private ring: RingPart | null = null;
  private loaded: Answer | null = null;
  private round = 0;
  private greeted = false;
  private firstEpoch = 0;
  private calls = 0;
  private waiting = 0;
  private waitingBytes = 0;
  private callTail: Promise<void> = Promise.resolve();
  private ringTail: Promise<void> = Promise.resolve();
  private passes: Promise<void> = Promise.resolve(); // pending while it is fenced
  private unfence: (() => void) | null = null;
  private over = false;
  private fetched = 0; // bytes of the weights
  private tokens = 0;
  private toldAt = 0;

  constructor(params: PartParams) {
    this.params = params;
    void params.device.gpu.lost.then(({ reason, message }) => this.end(`the GPU device is lost: ${message || reason}`));
    params.device.gpu.addEventListener("uncapturederror", (event) => this.end(`the device refused its work: ${event.error.message}`));
  }

  end(reason: string): void {
    if (this.over) return;
    this.over = true;
    this.unfence?.();
    this.params.device.close();
    this.params.ended(reason);
  }

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

  // ---- the server's calls ----

  receive(frame: unknown): void {
    if (this.over) return;
    try {
      if (!(frame instanceof ArrayBuffer)) throw new Breach("what came is no binary frame");
      const call = readPartCall(frame);
      const { byteLength } = frame;
      this.waitingBytes += byteLength;
      if (++this.calls > CALLS_MOST || this.waitingBytes > BYTES_MOST)
        throw new Breach(`the server sent more than ${CALLS_MOST} calls or ${BYTES_MOST} bytes at once`);
      this.callTail = this.callTail.then(async () => {
        await this.serve(call);
        this.waitingBytes -= byteLength;
      });
    } catch (error) {
      this.end(`the server broke the protocol: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  private async serve(call: PartCall | Refused): Promise<void> {
    let message: Uint8Array;
    try {
      if ("refused" in call) throw call.refused;
      message = printAnswer(call.id, await this.answer(call));
    } catch (error) {
      message = printFault(call.id, error);
    }
    this.calls--;
    await this.passes;
    if (!this.over) this.params.send(message);
  }

  private async answer(call: PartCall): Promise<Answer> {
    switch (call.method) {
      case "stage.open": {
        if (this.stage) throw new Fault("conflict", "the stage is open already");
        this.stage = new Stage(this.params.device, this.params.ledger, readPlan(call.params));
        await this.stage.open();
        return { result: { keeps: await this.params.store.begin() } };
      }
      case "stage.offer": {
        const { tensor, offset, bytes } = call.params;
        const body = await this.params.store.find(call.params.sha256, bytes);
        if (body) await this.put(tensor, offset, body);
        return { result: { kept: body !== null } };
      }
      case "stage.write":
        return this.write(call);
      case "instance.load":
        return this.load(call.params);
      case "instance.adopt":
        return this.adopt(call.params);
    }
  }

  private async put(tensor: number, offset: number, body: Uint8Array): Promise<void> {
    if (!this.stage || this.loaded) throw new Fault("conflict", "there is no stage that takes weights");
    this.stage.weights.write(tensor, offset, body);
    await this.params.device.done();
    if (performance.now() - this.toldAt > TELL_MS) this.tell();
  }

  private async write({ params, body }: PartCall & { method: "stage.write" }): Promise<Answer> {
    const bytes = body as Uint8Array<ArrayBuffer>;
    if ((await sha256(bytes)) !== params.sha256) throw new Fault("invalid_params", "the bytes are not those of the hash");
    this.fetched += bytes.length;
    await this.put(params.tensor, params.offset, bytes);
    await this.params.store.keep(params.sha256, bytes);
    return { result: {} };
  }

  private async load(params: (PartCall & { method: "instance.load" })["params"]): Promise<Answer> {
    const began = performance.now();
    const { stage } = this;
    if (!stage || this.loaded) throw new Fault("conflict", "there is no stage to be loaded");
    if (stage.weights.missingBytes) throw new Fault("conflict", `${stage.weights.missingBytes} bytes of the weights have not come`);
    this.ring = ringOf(stage.plan, params);
    this.firstEpoch = this.ring.epoch;
    await stage.prepare(this.ring);
    const { layers_s, prompt_row_s } = await measure(stage, this.ring);
    const memory = stage.memory();
    const loaded_bytes = memory.weights_bytes;
    this.loaded = {
      result: {
        memory: [{ ...memory, host_bytes: 0 }],
        times: [{ layers_s, output_s: null, prompt_row_s }],
        prompt_row_s, row_s: [layers_s], load_ms: performance.now() - began, loaded_bytes, chat_template: null,
        vocabulary: stage.plan.shape.vocabulary, embedding: stage.plan.shape.embedding,
      },
    };
    this.tell();
    return this.loaded;
  }

  /** Another placement begins, which has kept this part. */
  private adopt(params: (PartCall & { method: "instance.adopt" })["params"]): Answer {
    const { ring, loaded } = this;
    if (!ring || !loaded) throw new Fault("conflict", "no model is loaded yet");
    const place = params.part ?? ring;
    if (params.epoch < ring.epoch) throw new Fault("conflict", `this worker is of epoch ${ring.epoch} already`);
    if ((place.index === 0) !== (ring.index === 0) || place.index + 1 >= place.count)
      throw new Fault("conflict", `part ${ring.index + 1} of ${ring.count} cannot be part ${place.index + 1} of ${place.count}`);
    this.ring = { ...ring, epoch: params.epoch, index: place.index, count: place.count };
    this.greeted = false;
    return loaded;
  }

  // ---- the ring ----

  /** A message of the part before. */
  take(frame: unknown): void {
    const arrived = performance.now();
    if (this.over) return;
    const bytes = frame instanceof ArrayBuffer ? frame.byteLength : 0;
    this.waitingBytes += bytes;
    if (++this.waiting > WAITING_MOST || this.waitingBytes > BYTES_MOST) {
      this.end("more messages of the ring came than a ring has");
      return;
    }
    this.ringTail = this.ringTail.then(async () => {
      await this.passes;
      if (!this.over) await this.turn(frame, arrived);
      this.waiting--;
      this.waitingBytes -= bytes;
    });
  }

  private async turn(frame: unknown, arrived: number): Promise<void> {
    const { ring } = this;
    try {
      if (!ring || !this.stage) throw new Breach("the ring began before the model was loaded");
      const message = readRing(frame, ring);
      switch (message.said) {
        case "hello":
          return this.greet(ring, message);
        case "failed":
          return this.pass(printFailed(message.epoch, message.part, message.message));
        case "past":
          return this.pass(printPast(ring, message.epoch, 0));
        case "step":
          return await this.step(ring, message, arrived);
      }
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      if (ring) this.pass(printFailed(ring.epoch, ring.index, `part ${ring.index + 1} of ${ring.count}: ${why}`));
      this.end(why);
    }
  }

  private pass(message: Uint8Array<ArrayBuffer>): void {
    this.params.pass(message);
  }

  private greet(ring: RingPart, hello: { epoch: number; round: number; differs: string | null }): void {
    const past = hello.round < this.round || (hello.epoch >= this.firstEpoch && hello.epoch < ring.epoch);
    if (hello.differs && !past) throw new Breach(`the parts do not agree: ${hello.differs}`);
    if (past) return this.pass(printPast(ring, hello.epoch, hello.round));
    this.round = hello.round;
    this.greeted = true;
    this.pass(printHello(ring, hello.round));
  }

  private async step(ring: RingPart, step: RingStep, arrived: number): Promise<void> {
    const { stage } = this;
    if (!stage || step.epoch !== ring.epoch || step.round !== this.round || !this.greeted)
      return this.pass(printPast(ring, step.epoch, step.round));
    const began = performance.now();
    if (step.zero.length) stage.zero(step.zero);
    const output = step.row_count ? await within(stage.step(step.runs, step.input)) : new Float32Array(0);
    const now = performance.now();
    const ns = (ms: number): number => Math.max(0, Math.round(ms * 1e6));
    await this.passes;
    if (this.over) return;
    this.pass(printStep(step, { waited_ns: ns(began - arrived), spent_ns: ns(now - began) }, output));
    this.tokens += step.row_count;
    if (now - this.toldAt > TELL_MS) this.tell();
  }

  private tell(): void {
    const { stage } = this;
    if (!stage) return;
    this.toldAt = performance.now();
    const { name, first_layer, layer_count } = stage.plan;
    this.params.tell({ name, first_layer, layer_count, weights_bytes: stage.weights.bytes, fetched_bytes: this.fetched, tokens: this.tokens });
  }
}

async function within<T>(work: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Fault("timeout", `a step was not done within ${STEP_MS / 1000} s`)), STEP_MS);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** What the ring agrees on, as a native worker takes it from the same params. Throws Fault. */
function ringOf(plan: Plan, params: (PartCall & { method: "instance.load" })["params"]): RingPart {
  const { part, page_count, sequences } = params;
  const stages = params.stages;
  if (!part || stages.length !== 1 || stages[0]?.first_layer !== plan.first_layer || stages[0].layer_count !== plan.layer_count)
    throw new Fault("invalid_params", "a browser holds one stage of a model in several parts");
  if (params.format) throw new Fault("unavailable", "a browser holds weights as they are in the file");
  if (params.draft) throw new Fault("unavailable", "a browser has no generator, and so no draft model");
  if (part.activations !== "f32") throw new Fault("unavailable", `a browser does not pass activations on in ${part.activations}`);
  if (part.index + 1 >= part.count || plan.embeds !== (part.index === 0)) throw new Fault("unavailable", "a browser holds no last part of a model");
  const ring = {
    instance_id: part.instance_id, version: plan.version, epoch: part.epoch, index: part.index, count: part.count,
    first_layer: plan.first_layer, next_layer: part.last_layer, embedding: plan.shape.embedding, vocabulary: plan.shape.vocabulary,
    context_tokens: Math.min(params.context_tokens, page_count * PAGE_TOKENS), page_count, sequences,
  };
  const batch_rows = ringRows(ring, params.batch_rows);
  if (!batch_rows || !ring.context_tokens || !sequences) throw new Fault("invalid_params", "the sizes of the stage do not fit each other");
  return { ...ring, batch_rows };
}

/** A step of one row, and a row in a piece of a prompt. The pages are zeroed behind it. */
async function measure(stage: Stage, ring: RingPart): Promise<{ layers_s: number; prompt_row_s: number }> {
  const timed = async (row_count: number): Promise<number> => {
    const pages = Uint32Array.from({ length: Math.ceil(row_count / PAGE_TOKENS) }, (_, page) => page);
    const input = ring.index ? new Float32Array(row_count * ring.embedding).fill(0.01) : new Uint32Array(row_count);
    const began = performance.now();
    await within(stage.step([{ row_count, position: 0, pages }], input));
    return (performance.now() - began) / 1000;
  };
  const rows = Math.min(ring.batch_rows, ring.context_tokens, MEASURE_ROWS);
  await timed(1); // some drivers compile now
  let spent = 0;
  let runs = 0;
  for (; runs < MEASURE_RUNS && spent * 1000 < MEASURE_MS; runs++) spent += await timed(1);
  const prompt_row_s = (await timed(rows)) / rows;
  stage.zero(Uint32Array.from({ length: Math.ceil(rows / PAGE_TOKENS) }, (_, page) => page));
  return { layers_s: spent / runs, prompt_row_s };
}
