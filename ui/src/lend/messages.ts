/* What the page and the worker that is the node say to each other. */
import type { StageTold } from "./gpu/messages";
import type { StoreTold } from "./gpu/store";

/** What a browser says of the device it runs on; null: it does not tell. */
export interface Facts {
  os: string | null;
  cpu_threads: number | null;
  /** Of exogpu: of the server that this page came from. */
  version: string;
}

export interface Readings {
  battery_percent: number | null;
  charging: boolean | null;
  visible: boolean | null;
  pressure: "nominal" | "fair" | "serious" | "critical" | null;
}

/** When this device is to get no new work, as its owner has chosen. */
export interface Rest {
  hidden: boolean;
  /** 0: at no level. */
  below_percent: number;
}

export interface Identity {
  node_id: string;
  secret: string;
}

export type Credential = { token: string } | Identity;

export interface StartParams {
  /** The server's /node, as a WebSocket address. */
  url: string;
  credential: Credential;
  name: string;
  /** What sessions may hold here together. */
  limit_bytes: number;
  /** What is kept here of models, at most. */
  store_bytes: number;
  facts: Facts;
  readings: Readings;
  rest: Rest;
  /** It was opened only to leave. */
  leave: boolean;
}

export type ToNode =
  | { kind: "start"; params: StartParams }
  | { kind: "readings"; readings: Readings; rest: Rest }
  | { kind: "store"; limit_bytes: number }
  | { kind: "clear store" }
  | { kind: "stop" }
  | { kind: "leave" }
  | { kind: "try_now" };

/** connecting: dialling, or saying who it is. waiting: until `retry_at`, by performance.timeOrigin's clock. refused: the
 * server does not know it; outdated: this page is of another version than the server; elsewhere: another tab of this
 * browser is the node. The last five do not end by themselves. */
export type Phase = "connecting" | "online" | "waiting" | "refused" | "outdated" | "elsewhere" | "stopped" | "left";

export interface NodeState {
  phase: Phase;
  /** What is wrong, and what to do; for `waiting` and `refused`. */
  message: string | null;
  hint: string | null;
  /** What the server says beside them, for other languages (text/said.ts). */
  message_said?: unknown;
  hint_said?: unknown;
  retry_at: number | null;
  /** A connection to the server has been open. */
  reached: boolean;
  device: string | null;
  /** Of the device; null: not yet known. */
  verified: "passed" | "failed" | null;
  verification_error: string | null;
  rtt_ms: number | null;
  held_bytes: number;
  /** Without the workers with layers of models. */
  sessions: number;
  stages: StageTold[];
  stored: StoreTold;
}

export type FromNode = { kind: "state"; state: NodeState } | { kind: "joined"; identity: Identity };
