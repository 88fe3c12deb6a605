/* Several servers that take turns: what a page may say and do without a connection. Pure. */
import type { ServerSeen } from "../lib/api.gen";
import type { State } from "./state";

/** What a server says of itself at /healthz. */
export interface Health {
  readonly role: "leader" | "follower";
  /** How old its knowledge of the leader is. */
  readonly behindMs: number;
  readonly leader: string;
}

/** An answer of /healthz, which may be anybody's; null: it is not that of one of several servers. */
export function readHealth(answer: unknown): Health | null {
  const { role, behind_ms: behindMs, leader } = (answer ?? {}) as Readonly<Record<string, unknown>>;
  if ((role !== "leader" && role !== "follower") || typeof behindMs !== "number" || typeof leader !== "string") return null;
  return { role, behindMs, leader };
}

/** A leader renews its stamp every second. */
const FRESH_MS = 3_000;

/** Whether it is worth an attempt to connect: this server leads, or passes on to one that is well. */
export const mayConnect = (health: Health): boolean => health.role === "leader" || (health.leader !== "" && health.behindMs < FRESH_MS);

/** Where the others are, for links: other addresses than the page's own. What is no address of a page is left out. */
export function otherAddresses({ server, servers }: Pick<State, "server" | "servers">, origin: string): string[] {
  const answering = servers.filter((one) => one.answers).map((one) => one.address);
  const known = answering.length > 0 ? answering : (server?.servers ?? []);
  return known.filter((address) => /^https?:\/\/[\w.:[\]-]+\/$/.test(address) && address !== `${origin}/`);
}

/** Who leads first, then by name and address. */
export const inOrder = (servers: readonly ServerSeen[]): ServerSeen[] =>
  [...servers].sort((a, b) => Number(b.role === "leader") - Number(a.role === "leader") || a.host.localeCompare(b.host) || a.address.localeCompare(b.address));
