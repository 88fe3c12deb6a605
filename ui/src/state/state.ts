/* The dashboard's state: its shape and its initial value. Immutable; reduce.ts makes the next one. */
import type {
  Alert,
  Allocation,
  AuditEntry,
  Change,
  ChatStatus,
  ConversationChanged,
  Device,
  DeviceTelemetry,
  Heard,
  Instance,
  Link,
  LogEvent,
  Login,
  Model,
  Node,
  NodeTelemetry,
  ServerInfo,
  ServerSeen,
} from "../lib/api.gen";
import type { Trail } from "./trail";

/** Why the person has to log in (again). */
export type LoginReason =
  | { kind: "none" }
  | { kind: "logged_out" }
  | { kind: "refused"; message: string; hint: string | null }
  /** The address brought a login code, which the server has refused. */
  | { kind: "link"; message: string; hint: string | null }
  | { kind: "not_logged_in" }
  | { kind: "forbidden"; message: string; hint: string | null }
  | { kind: "revoked" };

export type Connection =
  | { phase: "starting" }
  | { phase: "login"; reason: LoginReason }
  | { phase: "connecting" }
  | { phase: "live" }
  /** since, retryAt: the page's own clock, ms. retryAt is null while an attempt is under way. */
  | { phase: "lost"; since: number; retryAt: number | null; waitMs: number; cause: LostCause };

export type LostCause = "gone" | "shutdown" | "slow" | "rate" | "too_big";

export interface NodeEntry {
  readonly record: Node;
  readonly reading: NodeTelemetry | null;
}

export interface LogLine extends LogEvent {
  readonly seq: number;
  /** The server's clock. */
  readonly at: string;
}

export interface DeviceEntry {
  readonly record: Device;
  readonly reading: DeviceTelemetry | null;
  readonly trail: Trail;
}

export interface State {
  readonly connection: Connection;
  readonly server: ServerInfo | null;
  readonly login: Login | null;
  readonly epoch: string | null;
  readonly seq: number;
  /** False until the first snapshot came. */
  readonly loaded: boolean;
  /** The devices of the server's own machine are still being looked for. */
  readonly discovering: boolean;
  readonly nodes: Readonly<Record<string, NodeEntry>>;
  readonly devices: Readonly<Record<string, DeviceEntry>>;
  /** Allocations by id; without labels. */
  readonly allocations: Readonly<Record<string, Allocation>>;
  readonly models: Readonly<Record<string, Model>>;
  /** Models that are loaded, being loaded, or failed to. */
  readonly instances: Readonly<Record<string, Instance>>;
  /** Directions of links, by linkKey(). */
  readonly links: Readonly<Record<string, Link>>;
  /** Current alerts by id. */
  readonly alerts: Readonly<Record<string, Alert>>;
  /** Announcements on the networks; null until known. */
  readonly heard: readonly Heard[] | null;
  /** Several servers that take turns, as the leader told last; empty: nothing was told of them. */
  readonly servers: readonly ServerSeen[];
  /** The last inventory changes, newest first. */
  readonly recent: readonly Change[];
  /** The last entries of the audit log, newest first; only where the login may see them. */
  readonly audit: readonly AuditEntry[];
  /** The last lines of the server's log, newest first; only where the login may see them. */
  readonly log: readonly LogLine[];
  /** What a login that may only use models is told, in place of everything above; null for all others. */
  readonly chat: ChatStatus | null;
  /** The last change of a conversation on the server, by whatever browser with this token; null: none was told. */
  readonly conversation: ConversationChanged | null;
  /** When anything last came from the server; the page's own clock, ms. */
  readonly heardAt: number | null;
  /** Difference in ms between the server's clock and the page's; from the fastest event of the last minute. */
  readonly serverAheadMs: number | null;
  /** When that was judged; the page's own clock, ms. */
  readonly aheadJudgedAt: number;
}

export const RECENT_MAX = 50;
export const AUDIT_MAX = 500;
export const LOG_MAX = 1000;

export const initialState: State = {
  connection: { phase: "starting" },
  server: null,
  login: null,
  epoch: null,
  seq: 0,
  loaded: false,
  discovering: false,
  nodes: {},
  devices: {},
  allocations: {},
  models: {},
  instances: {},
  links: {},
  alerts: {},
  heard: null,
  servers: [],
  recent: [],
  audit: [],
  log: [],
  chat: null,
  conversation: null,
  heardAt: null,
  serverAheadMs: null,
  aheadJudgedAt: 0,
};
