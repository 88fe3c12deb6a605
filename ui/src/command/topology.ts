/* What is asked about links: the summary, their history, and who is heard on the networks. */
import type { Methods, TopologySummary } from "../lib/api.gen";
import { CallError } from "../net/calls";
import type { Server } from "../net/socket";
import { type Range, type Series, spans } from "./history";
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
    return seriesOfLink(history, stepS);
  } catch (error) {
    if (error instanceof CallError) return { what: error.message, hint: error.hint };
    throw error;
  }
}

/** Rows to columns; the first column is the time, s. A row without readings stands in every gap. */
export function seriesOfLink(history: Methods["link.history"]["result"], stepS: number): Series {
  const at = history.columns.indexOf("at_s");
  const names = history.columns.filter((_, i) => i !== at);
  const series: Series = { times: [], columns: Object.fromEntries(names.map((name) => [name, []])) };
  const add = (time: number, row: readonly (number | null)[] | null): void => {
    series.times.push(time);
    for (const name of names) series.columns[name]!.push(row?.[history.columns.indexOf(name)] ?? null);
  };
  for (const row of history.rows) {
    const time = row[at];
    const last = series.times[series.times.length - 1];
    if (time == null || (last !== undefined && time <= last)) continue;
    if (last !== undefined && time - last > 2.5 * stepS) add((last + time) / 2, null);
    add(time, row);
  }
  return series;
}
