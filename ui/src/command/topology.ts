/* Queries about links: the summary, their history, and discovery on the networks. */
import type { Methods, TopologySummary } from "../lib/api.gen";
import { CallError } from "../net/calls";
import type { Server } from "../net/socket";
import { type Range, type Series, seriesOf, spans } from "./history";
import { type Refusal, tried } from "./tried";

export type Discovery = Methods["discovery.list"]["result"];

export async function readSummary(server: Server): Promise<TopologySummary | Refusal> {
  let summary: TopologySummary | null = null;
  const refusal = await tried(async () => (summary = await server.call("topology.summary", {})));
  return refusal ?? summary!;
}

export async function readDiscovery(server: Server): Promise<Discovery | Refusal> {
  let discovery: Discovery | null = null;
  const refusal = await tried(async () => (discovery = await server.call("discovery.list", {})));
  return refusal ?? discovery!;
}

/** Minute averages of one direction up to `nowMs` on the server's clock. */
export async function loadLinkHistory(
  server: Server,
  from: string,
  to: string,
  range: Exclude<Range, "10min">,
  nowMs: number,
): Promise<Series | Refusal> {
  const { ms, stepS } = spans[range];
  try {
    const history = await server.call("link.history", {
      from_node_id: from,
      to_node_id: to,
      from: new Date(nowMs - ms).toISOString(),
      to: new Date(nowMs).toISOString(),
      step_s: stepS,
    });
    return seriesOf({ ...history, source: "minutes" });
  } catch (error) {
    if (error instanceof CallError) return { what: error.message, hint: error.hint };
    throw error;
  }
}
