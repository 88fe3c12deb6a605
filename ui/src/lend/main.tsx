/* The page /lend: a browser becomes a node, once its owner has said yes. Its token comes in the fragment, and leaves the
 * address at once. Nothing is asked of the GPU or the server before yes, but whether there is a GPU. */
import { type Signal, signal } from "@preact/signals";
import { render } from "preact";
import { followSystem } from "../lib/theme";
import { backoff } from "../net/backoff";
import { inLanguage } from "../text/said";
import { t } from "../text/text";
import { describe } from "./gpu";
import { WeightStore } from "./gpu/store";
import type { Credential, Facts, FromNode, NodeState, Readings, Rest, StartParams, ToNode } from "./messages";
import { type Obstacle, findObstacle } from "./obstacle";
import { Page } from "./page";
import { browserName, readFacts, systemName, watchReadings } from "./readings";
import { type Kept, USUAL_REST, forgetKept, readKept, readRoom, storeLimits, takeToken, writeKept } from "./storage";
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
  readonly system: string | null;
  /** Of the weights that this browser may keep. */
  readonly choices: Signal<number[]>;
  yes(lent: Lent): void;
  keepAtMost(bytes: number): void;
  deleteKept(): void;
  restWhile(rest: Rest): void;
  stop(): void;
  resume(): void;
  leave(): void;
  tryNow(): void;
  /** Load this page anew; an address that is not used yet stays good. */
  reload(): void;
}

/** What its owner has chosen. */
export type Lent = Pick<Kept, "name" | "limit_bytes" | "store_bytes" | "rest">;

export type View =
  | { kind: "looking" }
  | { kind: "obstacle"; obstacle: Obstacle; system: string | null }
  | ({ kind: "ask"; gpu: string } & Lent)
  | { kind: "no_token" }
  /** certificate: the server's may be why there is no connection. */
  | ({ kind: "node"; state: NodeState; kept: boolean; certificate: boolean } & Lent);

const system = systemName(navigator.userAgent, navigator.maxTouchPoints);
const view = signal<View>({ kind: "looking" });
const readings = signal<Readings | null>(null);
const awake = new WakeLock();
const choices = signal<number[]>([0]);
const files = new WeightStore(); // that the node keeps: while there is none, this page looks at them and deletes them
let usualStore = 0;
let token = takeToken();
let kept: Kept | null = readKept();
let gpuName = "";
let node: Worker | null = null;
let started = false; // the node has been told to begin
let reached = false; // a connection to the server has been open since this page was loaded
let unanswered = false; // no connection has been open, and the first did not open
let failures = 0; // to start the node, one after the other
let again: (() => void) | null = null; // starts the node that could not be started
let timer: ReturnType<typeof setTimeout> | undefined; // of `again`
let unwatch = (): void => {};

const limitOf = (): number => (system === "iOS" ? BYTES_OF_IOS : BYTES_OF_PHONE);
const defaultName = (): string => [browserName(navigator.userAgent), system].filter(Boolean).join(" on ") || "a browser";

const say = (message: ToNode): void => node?.postMessage(message);

async function begin(chosen: Lent, leave = false): Promise<void> {
  const credential = kept?.identity ?? (token ? { token } : null);
  if (!credential) return void (view.value = { kind: "no_token" });
  end();
  const worker = new Worker(LEND_NODE_URL, { type: "module", name: "exogpu node" });
  node = worker;
  let known = kept !== null;
  const show = (state: NodeState): void => {
    reached ||= state.reached;
    unanswered = !reached && (unanswered || (state.phase === "waiting" && state.message === null));
    const certificate = location.protocol === "https:" && unanswered && (state.phase === "waiting" || state.phase === "connecting");
    view.value = { kind: "node", ...lentNow(chosen), state: inLanguage(state), kept: known, certificate };
  };
  const failed = (message: string): void => {
    if (node !== worker) return;
    end();
    const wait = backoff(failures++, Math.random());
    again = () => void begin(lentNow(chosen), leave);
    timer = setTimeout(again, wait);
    show({ ...stoppedState, phase: "waiting", message, retry_at: Date.now() + wait });
  };
  show({ ...stoppedState, phase: "connecting" });
  worker.onmessage = ({ data }: MessageEvent<FromNode>) => {
    if (node !== worker) return;
    if (data.kind === "joined") {
      token = null;
      kept = { identity: data.identity, ...lentNow(chosen), paused: false };
      known = writeKept(kept);
      return;
    }
    if (data.state.phase === "left") return forget();
    if (data.state.phase === "online") failures = 0;
    show(data.state);
    if (data.state.phase === "refused") refused(credential);
  };
  worker.onerror = (event) => {
    console.error("exogpu: the node failed:", event.message);
    failed(t`the part of this page that lends the GPU has failed, or could not be loaded`);
  };
  const facts = await readFacts().catch((): Facts | null => (leave ? { os: system, cpu_threads: null, version: "" } : null));
  if (node !== worker) return;
  if (!facts) return failed(t`the server does not answer`);
  unwatch = watchReadings((now) => {
    readings.value = now;
    awake.follow(now.visible === true);
    tellReadings();
  });
  const lent = lentNow(chosen);
  const params: StartParams = {
    url: `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/node`,
    credential, name: lent.name, limit_bytes: lent.limit_bytes, store_bytes: lent.store_bytes, rest: lent.rest, facts, leave,
    readings: readings.value ?? { battery_percent: null, charging: null, visible: null, pressure: null },
  };
  started = true;
  say({ kind: "start", params });
}

/** What may have been changed on the page since it began is taken from there. */
function lentNow({ name, limit_bytes, store_bytes, rest }: Lent): Lent {
  const { value } = view;
  return { name, limit_bytes, ...(value.kind === "node" ? { store_bytes: value.store_bytes, rest: value.rest } : { store_bytes, rest }) };
}

function tellReadings(): void {
  const { value } = view;
  if (started && value.kind === "node" && readings.value) say({ kind: "readings", readings: readings.value, rest: value.rest });
}

/** Something else is chosen than before. */
function choose(change: Partial<Pick<Lent, "store_bytes" | "rest">>): void {
  const { value } = view;
  if (value.kind !== "node") return;
  view.value = { ...value, ...change };
  if (kept) writeKept((kept = { ...kept, ...change }));
}

/** With the node's workers gone, nobody has the files open, or not for long. */
async function deleteFiles(): Promise<void> {
  for (let tries = 0; tries < 10; tries++) {
    await files.clear();
    if (!(await files.measure()).bytes) return;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** What there is, where no node tells. */
async function showFiles(): Promise<void> {
  const stored = await files.measure();
  const { value } = view;
  if (!started && value.kind === "node") view.value = { ...value, state: { ...value.state, stored } };
}

function end(): void {
  unwatch();
  awake.ask(false);
  clearTimeout(timer);
  again = null;
  started = false;
  node?.terminate();
  node = null;
}

/** The server does not know this node any more: with a new address it becomes another. */
function refused(credential: Credential): void {
  end();
  forgetKept();
  void deleteFiles();
  kept = null;
  if ("token" in credential && token === credential.token) token = null;
  if (token) ask();
}

function ask(): void {
  view.value = token ? { kind: "ask", name: defaultName(), limit_bytes: limitOf(), store_bytes: usualStore, rest: USUAL_REST, gpu: gpuName } : { kind: "no_token" };
}

function forget(): void {
  end();
  forgetKept();
  void deleteFiles();
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
  system,
  choices,
  yes: ({ name, ...limits }) => {
    if (view.value.kind === "ask") void begin({ ...limits, name: name.trim() || defaultName() }); // once, of two taps
  },
  keepAtMost: (bytes) => {
    choose({ store_bytes: bytes });
    if (started) say({ kind: "store", limit_bytes: bytes });
    else void files.setLimit(bytes).then(showFiles);
  },
  restWhile: (rest) => {
    choose({ rest });
    tellReadings();
  },
  deleteKept: () => {
    if (started) say({ kind: "clear store" });
    else void files.clear().then(showFiles);
  },
  stop: () => {
    setPaused(true);
    awake.ask(false);
    if (started) return say({ kind: "stop" });
    end();
    const { value } = view;
    if (value.kind === "node") view.value = { ...value, state: stoppedState, certificate: false };
    void showFiles();
  },
  resume: () => {
    setPaused(false);
    const { value } = view;
    if (value.kind === "node") void begin(value);
  },
  leave: () => {
    if (started) say({ kind: "leave" });
    else if (kept) void begin(kept, true);
    else forget();
  },
  tryNow: () => (again ? again() : say({ kind: "try_now" })),
  reload: () => {
    if (token) history.replaceState(null, "", `#token=${token}`); // it is taken out again at once
    location.reload();
  },
};

async function look(): Promise<void> {
  const webgpu = "gpu" in navigator;
  const gpu = isSecureContext && webgpu ? await describe().catch(() => null) : null;
  const obstacle = findObstacle({
    secure: isSecureContext, webgpu, adapter: gpu !== null, system, browser: browserName(navigator.userAgent),
  });
  ({ choices: choices.value, usual: usualStore } = storeLimits(isSecureContext ? await readRoom() : null));
  gpuName = gpu ? gpuLine(gpu) : "";
  if (obstacle) view.value = { kind: "obstacle", obstacle, system };
  else if (kept && !kept.paused) void begin(kept);
  else if (kept) {
    view.value = { kind: "node", ...lentNow(kept), kept: true, state: stoppedState, certificate: false };
    void showFiles();
  } else ask();
}

const stoppedState: NodeState = {
  phase: "stopped", message: null, hint: null, retry_at: null, reached: false, device: null, verified: null, verification_error: null,
  rtt_ms: null, held_bytes: 0, sessions: 0, stages: [], stored: { bytes: 0, full: false },
};

const gpuLine = (gpu: NonNullable<Awaited<ReturnType<typeof describe>>>): string =>
  [gpu.description ?? gpu.device ?? ([gpu.vendor, gpu.architecture].filter(Boolean).join(" ") || t`a GPU that the browser does not name`),
    gpu.software ? t`(computed by the processor: slow)` : ""].filter(Boolean).join(" ");

followSystem();
document.title = `${t`Lend this device`} · exogpu`;
render(<Page app={app} />, document.getElementById("lend")!);
void look();
// The node ends with the page in any case; this only says it sooner than the server would notice.
addEventListener("pagehide", () => say({ kind: "stop" }));
// An address that is opened where this page is open already only changes the fragment.
addEventListener("hashchange", () => {
  token = takeToken() ?? token;
  const { value } = view;
  if (value.kind === "no_token" || (value.kind === "node" && value.state.phase === "refused")) ask();
});
addEventListener("pageshow", ({ persisted }) => persisted && location.reload()); // it was put aside as it stood, stopped
