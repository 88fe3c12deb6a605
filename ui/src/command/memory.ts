/* Commands for memory that sessions hold. */
import type { Allocation } from "../lib/api.gen";
import { CallError } from "../net/calls";
import type { Server } from "../net/socket";
import { type Refusal, tried } from "./tried";

/** Free these, one after the other, and stop at the first that is refused. One that is gone meanwhile is as good. */
export function freeAllocations(server: Server, ids: readonly string[]): Promise<Refusal | null> {
  return tried(async () => {
    for (const id of ids)
      await server.call("memory.free", { allocation_id: id }).catch((error: unknown) => {
        if (!isGone(error)) throw error;
      });
  });
}

const isGone = (error: unknown): boolean =>
  error instanceof CallError && (error.reason === "not_found" || error.reason === "device_lost");

/** The labels of the allocations that this login may read; null when they cannot be had now. */
export async function readLabels(server: Server): Promise<ReadonlyMap<string, string> | null> {
  try {
    const { allocations } = await server.call("memory.list", {});
    return new Map(allocations.flatMap((one: Allocation) => (one.label === null ? [] : [[one.allocation_id, one.label]])));
  } catch {
    return null; // without labels everything else is still there
  }
}
