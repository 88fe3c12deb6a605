/* The page /lend: a browser becomes a node, once its owner has said yes. Its token comes in the fragment, and leaves the
 * address at once. Nothing is asked of the GPU or the server before yes, but whether there is a GPU. */
import { type Signal, signal } from "@preact/signals";
import { render } from "preact";
import { followSystem } from "../lib/theme";
import { describe } from "./gpu";
import type { FromNode, NodeState, Readings, StartParams, ToNode } from "./messages";
import { type Obstacle, findObstacle } from "./obstacle";
import { Page } from "./page";
import { browserName, readFacts, systemName, watchReadings } from "./readings";
import { type Kept, forgetKept, readKept, takeToken, writeKept } from "./storage";
import { WakeLock } from "./wake";

/** Where the build has put node-worker.ts. */
declare const LEND_NODE_URL: string;

const BYTES_OF_PHONE = 1 << 30;
const BYTES_OF_IOS = 768 * 2 ** 20;

export interface App {
  /** What to draw. */
  readonly view: Signal<View>;
  readonly readings: Signal<Readings | null>;
  readonly awake: WakeLock;
  yes(name: string, limit_bytes: number): void;
  stop(): void;
  resume(): void;
  leave(): void;
  tryNow(): void;
}

export type View =
  | { kind: "looking" }
  | { kind: "obstacle"; obstacle: Obstacle; system: string | null }
  | { kind: "ask"; name: string; limit_bytes: number; gpu: string }
  | { kind: "no_token" }
  | { kind: "node"; name: string; limit_bytes: number; state: NodeState; kept: boolean };

const system = systemName(navigator.userAgent);
const view = signal<View>({ kind: "looking" });
const readings = signal<Readings | null>(null);
const awake = new WakeLock();
let token = takeToken();
let kept: Kept | null = readKept();
let node: Worker | null = null;
let unwatch = (): void => {};

const limitOf = (): number => (system === "iOS" ? BYTES_OF_IOS : BYTES_OF_PHONE);
const defaultName = (): string => [browserName(navigator.userAgent), system].filter(Boolean).join(" on ") || "a browser";

const say = (message: ToNode): void => node?.postMessage(message);

async function begin(name: string, limit_bytes: number, leave = false): Promise<void> {
  const credential = kept?.identity ?? (token ? { token } : null);
  if (!credential) return void (view.value = { kind: "no_token" });
  end();
  const worker = new Worker(LEND_NODE_URL, { type: "module", name: "exogpu node" });
  node = worker;
  let stored = kept !== null;
  worker.onmessage = ({ data }: MessageEvent<FromNode>) => {
    if (node !== worker) return;
    if (data.kind === "joined") {
      token = null;
      kept = { identity: data.identity, name, limit_bytes, paused: false };
      stored = writeKept(kept);
      return;
    }
    if (data.state.phase === "left") return forget();
    if (data.state.phase === "refused") refused();
    view.value = { kind: "node", name, limit_bytes, state: data.state, kept: stored };
  };
  worker.onerror = (event) => console.error("exogpu: the node failed:", event.message);
  const facts = await readFacts();
  let started = false;
  unwatch = watchReadings((now) => {
    readings.value = now;
    awake.follow(now.visible === true);
    if (started) say({ kind: "readings", readings: now });
  });
  const params: StartParams = {
    url: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/node`,
    credential, name, limit_bytes, facts, leave,
    readings: readings.value ?? { battery_percent: null, charging: null, visible: null, pressure: null },
  };
  started = true;
  say({ kind: "start", params });
}

function end(): void {
  unwatch();
  awake.ask(false);
  node?.terminate();
  node = null;
}

/** The server does not know this node any more: with a new address it becomes another. */
function refused(): void {
  forgetKept();
  kept = null;
  unwatch();
}

function forget(): void {
  end();
  forgetKept();
  kept = null;
  view.value = { kind: "no_token" };
}

function setPaused(paused: boolean): void {
  if (!kept) return;
  kept = { ...kept, paused };
  writeKept(kept);
}

const app: App = {
  view,
  readings,
  awake,
  yes: (name, limit_bytes) => void begin(name.trim() || defaultName(), limit_bytes),
  stop: () => {
    setPaused(true);
    awake.ask(false);
    say({ kind: "stop" });
  },
  resume: () => {
    setPaused(false);
    const { value } = view;
    if (value.kind === "node") void begin(value.name, value.limit_bytes);
  },
  leave: () => {
    if (node) say({ kind: "leave" });
    else if (kept) void begin(kept.name, kept.limit_bytes, true);
    else forget();
  },
  tryNow: () => say({ kind: "try_now" }),
};

async function look(): Promise<void> {
  const webgpu = "gpu" in navigator;
  const gpu = isSecureContext && webgpu ? await describe().catch(() => null) : null;
  const obstacle = findObstacle({
    secure: isSecureContext, webgpu, adapter: gpu !== null, system, browser: browserName(navigator.userAgent),
  });
  if (obstacle) view.value = { kind: "obstacle", obstacle, system };
  else if (kept && !kept.paused) void begin(kept.name, kept.limit_bytes);
  else if (kept) view.value = { kind: "node", name: kept.name, limit_bytes: kept.limit_bytes, kept: true, state: stoppedState };
  else if (token) view.value = { kind: "ask", name: defaultName(), limit_bytes: limitOf(), gpu: gpu ? gpuLine(gpu) : "" };
  else view.value = { kind: "no_token" };
}

const stoppedState: NodeState = {
  phase: "stopped", message: null, hint: null, retry_at: null, device: null, verified: null, verification_error: null,
  rtt_ms: null, held_bytes: 0, sessions: 0,
};

const gpuLine = (gpu: NonNullable<Awaited<ReturnType<typeof describe>>>): string =>
  [gpu.description ?? gpu.device ?? ([gpu.vendor, gpu.architecture].filter(Boolean).join(" ") || "a GPU that the browser does not name"),
    gpu.software ? "(computed by the processor: slow)" : ""].filter(Boolean).join(" ");

followSystem();
render(<Page app={app} />, document.getElementById("lend")!);
void look();
// The node ends with the page in any case; this only says it sooner than the server would notice.
addEventListener("pagehide", () => say({ kind: "stop" }));
addEventListener("pageshow", ({ persisted }) => persisted && location.reload()); // it was put aside as it stood, stopped
