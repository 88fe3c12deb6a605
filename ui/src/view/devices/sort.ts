/* The columns by which devices can be sorted. What is not known comes last in both directions. Pure. */
import { byName } from "../../state/select";
import type { DeviceEntry, NodeEntry } from "../../state/state";

export type Column = "name" | "node" | "state" | "support" | "use" | "memory" | "power" | "heat";
export interface Order {
  column: Column;
  descending: boolean;
}

const supportRank = { full: 0, partial: 1, experimental: 2, unsupported: 3 } as const;
const stateRank = { throttled: 0, computing: 1, idle: 2, draining: 3, resting: 4, unsupported: 5, offline: 6 } as const;

function valueOf(
  entry: DeviceEntry,
  column: Column,
  nodes: Readonly<Record<string, NodeEntry>>,
): string | number | null {
  const { record, reading } = entry;
  switch (column) {
    case "name":
      return record.name;
    case "node":
      return nodes[record.node_id]?.record.name ?? null;
    case "state":
      return stateRank[record.state];
    case "support":
      return supportRank[record.support];
    case "use":
      return reading?.utilization_percent ?? null;
    case "memory":
      return reading?.memory_used_bytes ?? null;
    case "power":
      return reading?.power_watts ?? null;
    case "heat":
      return reading?.temperature_celsius ?? null;
  }
}

/** Sorted; entries that are equal keep the order in which they came. */
export function sortBy(
  entries: readonly DeviceEntry[],
  order: Order,
  nodes: Readonly<Record<string, NodeEntry>>,
): DeviceEntry[] {
  const sign = order.descending ? -1 : 1;
  return [...entries].sort((one, other) => {
    const a = valueOf(one, order.column, nodes);
    const b = valueOf(other, order.column, nodes);
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return sign * (typeof a === "string" && typeof b === "string" ? byName(a, b) : Number(a) - Number(b));
  });
}
