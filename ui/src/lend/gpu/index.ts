/* The GPU of this browser, lent: what it is, whether it computes, and workers for sessions.
 *
 * For the coordinator of a tab that is a node: it calls `describe` and `verify` once, `openWorker` for each tenant.open,
 * and `device` of that worker for tenant.device. Runs in a page or in a worker; uses no DOM. docs/lend.md has the whole. */
import { findAdapter, isSoftware } from "./device";
import type { DeviceLimits, FromWorker, HopParams, OpenParams, StageTold, StoreAsk, ToWorker } from "./messages";
import { type StoreTold, WeightStore } from "./store";
import { type Verification, verifyDevice } from "./verify";

export type { DeviceLimits, HopParams, OpenParams, StageTold } from "./messages";
export type { Verification } from "./verify";

/** Where the build has put worker.ts. */
declare const GPU_WORKER_URL: string;

/** What the browser says of its GPU; what it hides is null. */
export interface GpuDescription {
  vendor: string | null;
  architecture: string | null;
  device: string | null;
  description: string | null;
  /** The processor in disguise: lending it makes no sense but for tests. */
  software: boolean;
  /** Bytes of one buffer, and of one binding, at most. */
  buffer_bytes: number;
  binding_bytes: number;
  storage_buffers: number;
  workgroup_invocations: number;
  workgroup_bytes: number;
  features: string[];
}

const told = (text: string | undefined): string | null => text || null;

/** null: the browser has no WebGPU, or no adapter for it. */
export async function describe(): Promise<GpuDescription | null> {
  const adapter = await findAdapter();
  if (!adapter) return null;
  const { info, limits } = adapter;
  return {
    vendor: told(info.vendor),
    architecture: told(info.architecture),
    device: told(info.device),
    description: told(info.description),
    software: isSoftware(adapter),
    buffer_bytes: limits.maxBufferSize,
    binding_bytes: limits.maxStorageBufferBindingSize,
    storage_buffers: limits.maxStorageBuffersPerShaderStage,
    workgroup_invocations: limits.maxComputeInvocationsPerWorkgroup,
    workgroup_bytes: limits.maxComputeWorkgroupStorageSize,
    features: [...adapter.features].sort(),
  };
}

/** Compute on the GPU and compare; about a second, on a software adapter longer. */
export function verify(): Promise<Verification> {
  return verifyDevice();
}

// ---- what is lent in all ----

let limitBytes = 0;
let heldBytes = 0;

/** What all workers of this tab may hold together. It takes nothing away that is held already. 0 at first. */
export function setMemoryLimit(bytes: number): void {
  limitBytes = bytes;
}

export function memory(): { limit_bytes: number; held_bytes: number } {
  return { limit_bytes: limitBytes, held_bytes: heldBytes };
}

// ---- weights that are kept ----

let hearStored: () => void = () => {};
const store = new WeightStore(() => hearStored());

/** What is kept here of models, at most. `changed` is called when what is kept has changed. */
export function setStoreLimit(bytes: number, changed?: () => void): void {
  if (changed) hearStored = changed;
  void store.setLimit(bytes);
}

export const stored = (): StoreTold => store.told();
export const clearStore = (): Promise<void> => store.clear();

async function askStore(ask: StoreAsk): Promise<{ found: boolean; body: Uint8Array<ArrayBuffer> | null }> {
  if (ask.what === "begin") return { found: await store.begin(), body: null };
  if (ask.what === "keep") return { found: await store.keep(ask.sha256, ask.body), body: null };
  const body = await store.find(ask.sha256, ask.bytes);
  return { found: body !== null, body: body && new Uint8Array(body) };
}

// ---- a GPU that hangs ----

/** A GPU that does nothing else in so long, after a kernel has outlasted its limit, hangs on that kernel. */
const HANG_MS = 10_000;
const HANGS = "the browser's GPU does not answer since a kernel has outlasted its time limit";

const open = new Set<(reason: string) => void>(); // the end of each open worker
let asking = false;
let hanging = false;
let hear: (hangs: boolean) => void = () => {};

/** Whether the GPU hangs; `changed` is called when that changes. Workers that are opened meanwhile end at once. */
export function hangs(changed?: (hangs: boolean) => void): boolean {
  if (changed) hear = changed;
  return hanging;
}

function setHanging(now: boolean): void {
  if (now === hanging) return;
  hanging = now;
  if (now) for (const end of [...open]) end(HANGS);
  hear(now);
}

/** WebGPU cannot stop a kernel: whether the GPU still works for others, a device of its own shows. It is asked for in a
 * worker of its own, since the browser may stop whoever asks until its GPU process answers. */
function askGpu(): void {
  if (asking) return;
  asking = true;
  const late = setTimeout(() => setHanging(true), HANG_MS);
  const worker = new Worker(GPU_WORKER_URL, { type: "module", name: "gpu probe" });
  const answered = (): void => {
    clearTimeout(late);
    worker.terminate();
    asking = false;
    setHanging(false);
  };
  worker.onmessage = answered;
  worker.onerror = answered;
  const message: ToWorker = { kind: "probe" };
  worker.postMessage(message);
}

// ---- workers ----

export interface GpuWorker {
  /** It is connected to the server and has its device; rejects with its end. tenant.open is answered then. */
  readonly ready: Promise<{ started_ms: number }>;
  /** Open the device under the number that the server's calls name (tenant.device); rejects with the worker's end. */
  device(number: number): Promise<{ opened_ms: number; limits: DeviceLimits }>;
  /** Connect an end of the ring of a worker with layers of a model (hop.connect); rejects with its end. */
  hop(params: HopParams): Promise<void>;
  /** While it is fenced it begins and sends nothing. */
  fence(held: boolean): void;
  /** End it at once; `ended` is not called any more. */
  close(): void;
}

export interface WorkerEvents {
  /** Once, if it ends by itself: with why, for tenant.ended. */
  ended(reason: string): void;
  /** A hop that was connected is broken (hop.ended). */
  hopEnded?(hop: { hop_id: string; end: HopParams["end"] }, reason: string): void;
  /** What a worker with layers of a model holds and has computed. */
  stage?(told: StageTold): void;
}

/** Start a worker for a session, or for a part of a model. */
export function openWorker(params: OpenParams, events: WorkerEvents): GpuWorker {
  const began = performance.now();
  const worker = new Worker(GPU_WORKER_URL, { type: "module", name: `gpu ${params.worker_id}` });
  let mine = 0; // bytes
  let over = false;
  let software = false;
  const waiting = new Map<number | string, { opened(): void; failed(error: Error): void }>(); // of `device` and `hop`
  let begun: (value: { started_ms: number }) => void = () => {};
  let failed: (error: Error) => void = () => {};
  const ready = new Promise<{ started_ms: number }>((resolve, reject) => {
    begun = resolve;
    failed = reject;
  });
  ready.catch(() => {}); // `ended` says it too
  const say = (message: ToWorker): void => worker.postMessage(message);

  const finish = (reason: string): boolean => {
    if (over) return false;
    over = true;
    open.delete(end);
    worker.terminate();
    heldBytes -= mine;
    for (const one of waiting.values()) one.failed(new Error(reason));
    waiting.clear();
    failed(new Error(reason));
    return true;
  };
  const end = (reason: string): void => {
    if (finish(reason)) events.ended(reason);
  };
  const limits = (): DeviceLimits => ({
    capabilities: software ? ["zeroed", "software"] : ["zeroed"],
    memory_bytes: limitBytes,
    free_bytes: Math.max(0, limitBytes - heldBytes),
    buffer_bytes: limitBytes, // buffers are split where the adapter's limits ask for it
  });
  const take = (message: FromWorker): void => {
    if (over) return;
    switch (message.kind) {
      case "ready":
        software = message.software;
        begun({ started_ms: performance.now() - began });
        break;
      case "opened":
        waiting.get(message.number)?.opened();
        waiting.delete(message.number);
        break;
      case "reserve": {
        const granted = heldBytes + message.bytes <= limitBytes;
        if (granted) {
          mine += message.bytes;
          heldBytes += message.bytes;
        }
        say({ kind: "granted", id: message.id, granted });
        break;
      }
      case "release":
        mine -= message.bytes;
        heldBytes -= message.bytes;
        break;
      case "hopped":
        waiting.get(`${message.hop_id} ${message.end}`)?.opened();
        waiting.delete(`${message.hop_id} ${message.end}`);
        break;
      case "hop ended": {
        const connecting = waiting.get(`${message.hop_id} ${message.end}`);
        waiting.delete(`${message.hop_id} ${message.end}`);
        if (connecting) connecting.failed(new Error(message.reason));
        else events.hopEnded?.(message, message.reason);
        break;
      }
      case "stage":
        events.stage?.(message.told);
        break;
      case "store":
        void askStore(message.ask).then((told) => {
          const answer: ToWorker = { kind: "stored", id: message.id, ...told };
          worker.postMessage(answer, told.body ? [told.body.buffer] : []);
        });
        break;
      case "late":
        askGpu();
        break;
      case "ended":
        end(message.reason);
        break;
    }
  };
  worker.onmessage = ({ data }: MessageEvent<FromWorker>) => take(data);
  worker.onerror = (event) => {
    event.preventDefault();
    end(`its program failed: ${event.message || "it could not be loaded"}`);
  };
  open.add(end);
  if (hanging) queueMicrotask(() => end(HANGS));
  else say({ kind: "open", params });

  return {
    ready,
    device: async (number) => {
      await ready;
      const asked = performance.now();
      if (over) throw new Error("the worker has ended");
      await new Promise<void>((opened, failed) => {
        waiting.set(number, { opened, failed });
        say({ kind: "device", number });
      });
      return { opened_ms: performance.now() - asked, limits: limits() };
    },
    hop: async (params) => {
      await ready;
      if (over) throw new Error("the worker has ended");
      await new Promise<void>((opened, failed) => {
        waiting.set(`${params.hop_id} ${params.end}`, { opened, failed });
        say({ kind: "hop", params });
      });
    },
    fence: (held) => say({ kind: "fence", held }),
    close: () => void finish("it was closed"),
  };
}
