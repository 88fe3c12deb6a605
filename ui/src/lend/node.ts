/* The node that a tab is: it says who it is, describes its device, answers for its workers, and comes back by itself.
 *
 * Runs in a dedicated worker, since timers of a hidden page stand still. Its connection is a lease, as a native node's
 * (engine/node/uplink/lease.c): a round trip every PING_MS; without one for FENCE_MS its workers send nothing, and after
 * LOST_MS they are ended, as the server has given the node up by then. */
import { backoff } from "../net/backoff";
import type * as gpuSide from "./gpu";
import { Line, LineError, type Served } from "./line";
import type { FromNode, Identity, NodeState, Readings, Rest, StartParams } from "./messages";
import { deviceId, deviceReadings, deviceRecord, gpuName, linkReading, nodeReadings, nodeRecord } from "./record";

type GpuSide = Pick<typeof gpuSide, "describe" | "verify" | "openWorker" | "setMemoryLimit" | "memory" | "hangs" | "setStoreLimit" | "stored">;
type GpuDescription = gpuSide.GpuDescription;

const PROTOCOL = 1;
const SUBPROTOCOL = "exogpu.tab.v1";
const PING_MS = 2000;
const FENCE_MS = 5000;
const LOST_MS = 8000;
const OPEN_MS = 10_000;
const REPORT_MS = 5000;
const REPORT_WATCHED_MS = 2000;
const NEWS_MS = 11_000; // the server counts over 10 s
const WORKERS_MOST = 16;
/** Only a connection that held so long makes the next wait short again. */
const STEADY_MS = 5000;
const CLOSE_FORBIDDEN = 4403;
const CLOSE_SUPERSEDED = 4409;
const CLOSE_OTHER_VERSION = 4426;
/** A server that cannot be told is left without a word. */
const LEAVING_MS = 15_000;

const text = (params: Record<string, unknown>, name: string): string => {
  const value = params[name];
  if (typeof value !== "string" || value === "" || value.length > 64) throw new LineError("invalid_params", `${name} must be a short text`);
  return value;
};

export class Node {
  private readonly gpu: GpuSide;
  private readonly tell: (message: FromNode) => void;
  private params: StartParams | null = null;
  private identity: Identity | null = null;
  private readings: Readings = { battery_percent: null, charging: null, visible: null, pressure: null };
  private rest: Rest | null = null;
  private state: NodeState;
  private socket: WebSocket | null = null;
  private line: Line | null = null;
  private attempt = 0;
  private heard = 0; // performance.now() of the last answer
  private watched = false;
  private reported = 0;
  private pinging = false;
  private rtts: number[] = [];
  private fenced = false;
  private leaving = false;
  private described: GpuDescription | null = null;
  private verified: (gpuSide.Verification & { at: string }) | null = null;
  private verifying: Promise<void> | null = null;
  private readonly workers = new Map<string, gpuSide.GpuWorker>();
  private readonly stages = new Map<string, gpuSide.StageTold>(); // by worker
  private retry: ReturnType<typeof setTimeout> | undefined;
  private tick: ReturnType<typeof setInterval> | undefined;

  constructor(gpu: GpuSide, tell: (message: FromNode) => void) {
    this.gpu = gpu;
    this.tell = tell;
    this.state = {
      phase: "stopped", message: null, hint: null, retry_at: null, reached: false, device: null, verified: null, verification_error: null,
      rtt_ms: null, held_bytes: 0, sessions: 0, stages: [], stored: { bytes: 0, full: false },
    };
  }

  start(params: StartParams): void {
    this.params = params;
    this.readings = params.readings;
    this.rest = params.rest;
    this.identity = "secret" in params.credential ? params.credential : null;
    this.attempt = 0;
    this.gpu.setMemoryLimit(params.limit_bytes);
    this.gpu.setStoreLimit(params.store_bytes, () => this.set({}));
    this.gpu.hangs((hangs) => this.setHanging(hangs));
    if (params.leave) this.leave();
    else void this.dial();
  }

  setReadings(readings: Readings, rest: Rest): void {
    this.readings = readings;
    this.rest = rest;
    if (this.state.phase === "online") this.report();
  }

  stop(): void {
    this.drop(1000);
    this.set({ phase: "stopped", message: null, hint: null, retry_at: null });
  }

  /** For good: the server forgets this node. */
  leave(): void {
    if (this.leaving) return;
    this.leaving = true;
    setTimeout(() => this.gone(), LEAVING_MS);
    if (this.state.phase === "online") this.sayLeave();
    else if (this.state.phase !== "connecting") void this.dial(); // and says it once it is known
  }

  private sayLeave(): void {
    const { line, socket } = this;
    const gone = (): void => this.gone();
    if (socket) socket.onclose = gone;
    line?.call("tab.leave", {}).then(gone, gone);
  }

  private gone(): void {
    this.drop(1000);
    this.set({ phase: "left", message: null, hint: null, retry_at: null });
  }

  tryNow(): void {
    if (this.state.phase !== "waiting" && this.state.phase !== "elsewhere") return;
    clearTimeout(this.retry);
    void this.dial();
  }

  // ---- the connection ----

  private set(change: Partial<NodeState>): void {
    const { held_bytes } = this.gpu.memory();
    const stages = [...this.stages.values()];
    this.state = { ...this.state, held_bytes, stages, stored: this.gpu.stored(), sessions: this.workers.size - stages.length, ...change };
    this.tell({ kind: "state", state: this.state });
  }

  private async dial(): Promise<void> {
    const params = this.params;
    if (!params) return;
    this.drop(1000);
    this.set({ phase: "connecting", message: null, hint: null, retry_at: null });
    const socket = new WebSocket(params.url, SUBPROTOCOL);
    const line = new Line((message) => socket.readyState === WebSocket.OPEN && socket.send(message), this.methods());
    this.socket = socket;
    this.line = line;
    const slow = setTimeout(() => socket.close(), OPEN_MS);
    socket.onopen = () => {
      clearTimeout(slow);
      this.heard = performance.now();
      this.state.reached = true;
      this.greet(line, params).catch((error: unknown) => line === this.line && this.refused(error));
    };
    socket.onmessage = ({ data }) => {
      this.heard = performance.now();
      try {
        line.receive(data);
      } catch {
        socket.close(1002);
      }
    };
    socket.onclose = ({ code, reason }) => {
      clearTimeout(slow);
      this.closed(code, reason);
    };
  }

  private async greet(line: Line, params: StartParams): Promise<void> {
    if (this.identity) await line.call("tab.hello", { protocol: PROTOCOL, ...this.identity });
    else if ("token" in params.credential) {
      const joined = await line.call("tab.join", { protocol: PROTOCOL, token: params.credential.token });
      this.identity = { node_id: text(joined, "node_id"), secret: text(joined, "secret") };
      this.tell({ kind: "joined", identity: this.identity });
    }
    if (!this.identity) throw new LineError("internal", "there is neither a token nor a secret");
    this.described ??= await this.gpu.describe();
    const registered = await line.call("node.register", {
      protocol: PROTOCOL,
      node: nodeRecord(this.identity.node_id, params.name, params.facts, this.described),
    });
    if (line !== this.line) return;
    this.watched = registered["watched"] === true;
    if (this.leaving) return this.sayLeave();
    this.set({ phase: "online", device: this.described ? gpuName(this.described) : null, message: null, hint: null });
    this.tick = setInterval(() => this.look(), 500);
    setTimeout(() => line === this.line && (this.attempt = 0), STEADY_MS);
    await this.reportDevices();
    this.report();
    if (this.described && !this.verified) await this.verify();
  }

  /** What the server said instead of letting us in. The connection's end follows, whose code says what comes next. */
  private refused(error: unknown): void {
    if (this.leaving && error instanceof LineError && error.reason === "unauthenticated") return this.gone(); // it is forgotten already
    if (error instanceof LineError && error.reason === "unauthenticated")
      this.set({ phase: "refused", ...error.told(), retry_at: null });
    else if (error instanceof LineError) this.set(error.told());
    this.socket?.close(1000);
  }

  private closed(code: number, reason: string): void {
    this.drop(1000);
    if (this.state.phase === "refused" || this.state.phase === "left") return;
    if (code === CLOSE_FORBIDDEN && this.leaving) return this.gone();
    if (code === CLOSE_FORBIDDEN)
      return this.set({ phase: "refused", message: reason || "the server does not let this device in", hint: null, retry_at: null });
    if (code === CLOSE_OTHER_VERSION) return this.set({ phase: "outdated", message: null, hint: null, retry_at: null });
    if (code === CLOSE_SUPERSEDED) return this.set({ phase: "elsewhere", message: null, hint: null, retry_at: null });
    const wait = backoff(this.attempt++, Math.random());
    this.retry = setTimeout(() => void this.dial(), wait);
    this.set({ phase: "waiting", retry_at: performance.timeOrigin + performance.now() + wait });
  }

  /** End what there is of a connection, and every worker: what they held belongs to the node that the server has lost. */
  private drop(code: number): void {
    const { socket, line } = this;
    clearTimeout(this.retry);
    clearInterval(this.tick);
    this.socket = null;
    this.line = null;
    this.fenced = false;
    this.pinging = false;
    this.rtts = [];
    for (const worker of this.workers.values()) worker.close();
    this.workers.clear();
    this.stages.clear();
    line?.close("the connection to the server is gone");
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(code);
  }

  // ---- while it is online ----

  private look(): void {
    const now = performance.now();
    const silent = now - this.heard;
    if (silent > LOST_MS) return this.closed(1006, "");
    if (silent > FENCE_MS !== this.fenced) {
      this.fenced = !this.fenced;
      for (const worker of this.workers.values()) worker.fence(this.fenced);
    }
    if (!this.pinging && now - this.reported >= 0) void this.ping();
    if (now - this.reported > (this.watched ? REPORT_WATCHED_MS : REPORT_MS)) this.report();
  }

  private pinged = -PING_MS;
  private async ping(): Promise<void> {
    const { line } = this;
    const began = performance.now();
    if (!line || began - this.pinged < PING_MS) return;
    this.pinged = began;
    this.pinging = true;
    try {
      await line.call("tab.ping", {});
    } catch {
      return; // its end is told by the socket
    }
    if (line !== this.line) return;
    this.pinging = false;
    this.rtts = [...this.rtts.slice(-7), performance.now() - began];
  }

  /** The smallest of the last is the way itself; the rest is what else this browser did. */
  private report(): void {
    const { line, identity, rest } = this;
    if (!line || !identity) return;
    const at = new Date().toISOString();
    this.reported = performance.now();
    line.notify("node.telemetry", {
      node: nodeReadings(identity.node_id, at, this.readings),
      devices: this.described ? [deviceReadings(identity.node_id, at, this.gpu.memory())] : [],
      ...(rest && { rest }),
    });
    if (this.rtts.length > 0) {
      const rtt = Math.min(...this.rtts);
      const jitter = this.rtts.length > 1 ? Math.max(...this.rtts) - rtt : null;
      line.notify("node.links", { links: [linkReading(at, rtt, jitter)] });
      this.set({ rtt_ms: rtt });
    }
  }

  /** The server takes only so many changes in a time: what it does not take is reported again later, as it then is. */
  private async reportNews(): Promise<void> {
    const { line } = this;
    try {
      await this.reportDevices();
    } catch (error) {
      if (!(error instanceof LineError) || error.reason !== "rate_limited") return; // a new connection reports it again
      setTimeout(() => void (line === this.line && this.reportNews()), NEWS_MS);
    }
  }

  private async reportDevices(): Promise<void> {
    const { line, identity, described, params } = this;
    if (!line || !identity || !params) return;
    const devices = described ? [deviceRecord(identity.node_id, described, params.limit_bytes, this.verified)] : [];
    await line.call("node.devices", { devices });
  }

  /** Compute, compare, and report the outcome. */
  private verify(): Promise<void> {
    if (this.gpu.hangs()) return Promise.resolve(); // whoever asks it for anything may be stopped until it answers
    this.verifying ??= (async () => {
      const outcome = await this.gpu.verify();
      this.verified = { ...outcome, at: new Date().toISOString() };
      this.verifying = null;
      this.set({ verified: outcome.state, verification_error: outcome.error });
      await this.reportNews();
    })();
    return this.verifying;
  }

  /** A GPU that hangs computes for nobody; what it can do once it answers, it has to show again. */
  private setHanging(hangs: boolean): void {
    if (!hangs) return void this.verify();
    const error = "the GPU does not answer since a kernel has outlasted its time limit";
    this.verified = { state: "failed", error, duration_ms: 0, memory_bandwidth_bytes_per_s: null, at: new Date().toISOString() };
    this.set({ verified: "failed", verification_error: error });
    void this.reportNews();
  }

  // ---- what the server asks ----

  private methods(): Record<string, Served> {
    return {
      "node.watch": (params) => void (this.watched = params["watched"] === true),
      "device.verify": (params) => {
        if (!this.identity || text(params, "device_id") !== deviceId(this.identity.node_id))
          throw new LineError("invalid_params", "this browser has no such device");
        void this.verify();
      },
      "tenant.open": (params) => this.open(params),
      "tenant.device": async (params) => {
        const worker = this.workers.get(text(params, "worker_id"));
        const number = params["device"];
        if (!worker || !this.identity || params["device_id"] !== deviceId(this.identity.node_id) || !Number.isInteger(number))
          throw new LineError("invalid_params", "there is no such worker, or no such device");
        return worker.device(number as number);
      },
      "hop.connect": async (params) => {
        const worker = this.workers.get(text(params, "worker_id"));
        const { end, via } = params;
        if (!worker || (end !== "in" && end !== "out")) throw new LineError("invalid_params", "there is no such worker, or no such end");
        if (via !== "server") throw new LineError("unavailable", "a browser is reached by way of the server only");
        await worker.hop({ hop_id: text(params, "hop_id"), key: text(params, "key"), end });
        return {};
      },
      "tenant.close": (params) => {
        const began = performance.now();
        const worker_id = text(params, "worker_id");
        this.workers.get(worker_id)?.close();
        this.forget(worker_id);
        return { ended_ms: performance.now() - began };
      },
    };
  }

  private forget(worker_id: string): void {
    this.workers.delete(worker_id);
    this.stages.delete(worker_id);
    this.set({});
  }

  private async open(params: Record<string, unknown>): Promise<object> {
    const worker_id = text(params, "worker_id");
    const limit = params["memory_limit_bytes"];
    if (params["backend"] !== "webgpu") throw new LineError("invalid_params", "a browser tab has WebGPU only");
    if (this.workers.has(worker_id)) throw new LineError("invalid_params", "this worker is there already");
    if (this.workers.size >= WORKERS_MOST) throw new LineError("unavailable", `a browser tab has ${WORKERS_MOST} workers at most`);
    const url = this.params?.url ?? "";
    const worker = this.gpu.openWorker(
      { worker_id, key: text(params, "key"), url, part: params["ring"] === true, ...(typeof limit === "number" ? { memory_limit_bytes: limit } : {}) },
      {
        ended: (reason) => {
          if (this.workers.get(worker_id) !== worker) return;
          this.forget(worker_id);
          this.line?.notify("tenant.ended", { worker_id, message: (reason || "it ended").slice(0, 512) });
        },
        hopEnded: ({ hop_id, end }, reason) => this.line?.notify("hop.ended", { worker_id, end, hop_id, message: reason.slice(0, 512) }),
        stage: (told) => {
          if (this.workers.get(worker_id) !== worker) return;
          this.stages.set(worker_id, told);
          this.set({});
        },
      },
    );
    this.workers.set(worker_id, worker);
    this.set({});
    const { started_ms } = await worker.ready;
    return { started_ms, sandbox: { applied: ["the browser's own sandbox of a page"], missing: [] } };
  }
}
