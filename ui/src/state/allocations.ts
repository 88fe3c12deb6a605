/* Selectors for allocations: who holds how much memory on which device. Pure. */
import type { Allocation, Login } from "../lib/api.gen";
import { remember } from "../lib/remember";
import { stageBytes } from "./models";
import { byName, memoryTotal } from "./select";
import type { DeviceEntry, State } from "./state";

/** The allocations of one session on one device. */
export interface Holding {
  readonly session: string;
  readonly holder: string;
  readonly token: string | null;
  readonly bytes: number;
  /** Oldest first. */
  readonly allocations: readonly Allocation[];
}

/** Another's, of whom this login is not told. */
export const isMasked = ({ session }: Holding): boolean => session.startsWith("other_");

/** A device on which something is held. */
export interface Lent {
  readonly device: string;
  readonly bytes: number;
  /** The largest first. */
  readonly holdings: readonly Holding[];
}

function holdingsOf(allocations: readonly Allocation[]): Holding[] {
  const sessions = new Map<string, Allocation[]>();
  for (const one of allocations) {
    const known = sessions.get(one.session_id);
    if (known) known.push(one);
    else sessions.set(one.session_id, [one]);
  }
  return [...sessions.entries()]
    .map(([session, all]): Holding => {
      const { holder, token_id: token } = all[0]!;
      const sorted = all.sort((a, b) => a.created_at.localeCompare(b.created_at) || byName(a.allocation_id, b.allocation_id));
      return { session, holder, token, bytes: sum(all), allocations: sorted };
    })
    .sort((a, b) => b.bytes - a.bytes || byName(a.holder, b.holder) || byName(a.session, b.session));
}

const sum = (allocations: readonly Allocation[]): number => allocations.reduce((all, one) => all + one.bytes, 0);

/** The memory that a token holds in all its sessions. */
export function heldBy(allocations: State["allocations"], token: string): { allocations: number; bytes: number; devices: number } {
  const own = Object.values(allocations).filter((one) => one.token_id === token);
  return { allocations: own.length, bytes: sum(own), devices: new Set(own.map((one) => one.device_id)).size };
}

/** Everything that is held, by device; only devices on which something is. */
export const lentMemory = remember((allocations: State["allocations"]): ReadonlyMap<string, Lent> => {
  const devices = new Map<string, Allocation[]>();
  for (const one of Object.values(allocations)) {
    const known = devices.get(one.device_id);
    if (known) known.push(one);
    else devices.set(one.device_id, [one]);
  }
  return new Map(
    [...devices.entries()].map(([device, all]) => [device, { device, bytes: sum(all), holdings: holdingsOf(all) }]),
  );
});

/** The bytes that loaded models hold of a device; of those that load, what has been loaded. */
export function heldByModels(instances: State["instances"], device: string): number {
  let bytes = 0;
  for (const { state, stages, progress } of Object.values(instances)) {
    if (state === "running") {
      for (const stage of stages) bytes += stage.device_id === device ? stageBytes(stage) : 0;
    } else if (progress)
      for (const part of progress.parts) for (const one of part.devices) bytes += one.device_id === device ? one.loaded_bytes : 0;
  }
  return bytes;
}

/** A device's memory in parts. What is lent may not be touched yet, and then does not count as used; so the rest
 * of what is used is told only where it is more than what is lent. Null where the hardware does not tell. */
export interface Parts {
  readonly lent: number;
  /** Of loaded models. */
  readonly models: number;
  readonly other: number | null;
  readonly free: number | null;
  readonly total: number | null;
}

export function memoryParts(entry: DeviceEntry | undefined, lent: number, models = 0): Parts {
  const total = entry ? memoryTotal(entry) : null;
  const used = entry?.reading?.memory_used_bytes ?? null;
  const other = used === null ? null : Math.max(0, used - lent - models);
  return { lent, models, other, total, free: total === null || other === null ? null : Math.max(0, total - lent - models - other) };
}

/** May this login free what others hold? */
export const mayFree = (login: Login | null): boolean => login?.scopes.includes("admin") ?? false;

/** May this login read labels, by memory.list? */
export const mayList = (login: Login | null): boolean => mayFree(login) || (login?.scopes.includes("allocate") ?? false);
