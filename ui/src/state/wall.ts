/* The content of the wall view: a verdict, the devices that are shown, and what may go wrong next. Pure. */
import { count, figure } from "../lib/format";
import { t } from "../text/text";
import { word } from "../text/words";
import { attention, worstLevel } from "./attention";
import { deviceLabel, memoryTotal, serverTime, shownState, sortedDevices, vitals } from "./select";
import type { DeviceEntry, State } from "./state";

export interface Verdict {
  readonly level: "well" | "attention" | "error" | "unknown";
  readonly text: string;
}

/** In one line, for who reads nothing else. */
export function verdict(state: State): Verdict {
  if (!state.loaded) return { level: "unknown", text: t`Waiting for the server` };
  if (state.connection.phase !== "live") return { level: "unknown", text: t`No connection to the server` };
  if (Object.keys(state.nodes).length === 0)
    return { level: "unknown", text: state.discovering ? t`Looking for devices` : t`No machine is connected` };
  const found = attention(state);
  const worst = worstLevel(found);
  if (worst === null) return { level: "well", text: t`Nothing needs attention` };
  const [first] = found;
  return { level: worst, text: found.length === 1 ? first!.title : t`${found.length} things need attention` };
}

/** Devices that need to be seen come before those that are at rest. */
const urgency = ["offline", "throttled", "unsupported", "draining", "resting", "computing", "used by others", "idle"];

/** In their usual order where all fit, else the most urgent ones; and how many of which state are left out. */
export function wallDevices(state: State, most: number): { shown: readonly DeviceEntry[]; rest: string } {
  const all = sortedDevices(state);
  if (all.length <= most) return { shown: all, rest: "" };
  const stateOf = (one: DeviceEntry): string => shownState(one.record).word;
  const ordered = all.map((one, i) => ({ one, i, rank: urgency.indexOf(stateOf(one)) })).sort((a, b) => a.rank - b.rank || a.i - b.i);
  const left = ordered.slice(most).map(({ one }) => stateOf(one));
  const parts = urgency.map((name) => [name, left.filter((one) => one === name).length] as const).filter(([, n]) => n > 0);
  return { shown: ordered.slice(0, most).map(({ one }) => one), rest: t`and ${left.length} more: ${parts.map(([name, n]) => `${n} ${word(name)}`).join(", ")}` };
}

export interface Ahead {
  readonly key: string;
  readonly level: "error" | "attention" | "watch";
  readonly text: string;
}

const DAY_MS = 86_400_000;
/** From how many days before its end the screen's own token is told of. */
const TOKEN_DAYS = 14;

/** What is wrong, worst first, and then what is nearest to becoming so. */
export function ahead(state: State, now: number, most: number): { lines: readonly Ahead[]; more: number } {
  const found: Ahead[] = attention(state).map(({ key, level, title }) => ({ key, level, text: title }));
  const watch = [nearestHeat(state), fullestMemory(state), ownToken(state, now)].filter((one) => one !== null);
  const room = Math.max(1, most - watch.length);
  return { lines: [...found.slice(0, room), ...watch], more: Math.max(0, found.length - room) };
}

function nearestHeat(state: State): Ahead | null {
  const nearest = vitals(state).heat?.nearest;
  if (!nearest) return null;
  const name = deviceLabel(state, nearest.id);
  const text = nearest.margin > 0 ? t`${name} is ${figure(nearest.margin)} °C below its slowdown, the nearest of all` : t`${name} has reached the temperature of its slowdown`;
  return { key: "heat", level: "watch", text };
}

function fullestMemory(state: State): Ahead | null {
  let fullest: { id: string; share: number } | null = null;
  for (const entry of Object.values(state.devices)) {
    const total = memoryTotal(entry);
    const used = entry.reading?.memory_used_bytes ?? null;
    if (entry.record.state === "offline" || used === null || !total) continue;
    if (!fullest || used / total > fullest.share) fullest = { id: entry.record.device_id, share: used / total };
  }
  return fullest && { key: "memory", level: "watch", text: t`Memory of ${deviceLabel(state, fullest.id)} is ${figure(fullest.share * 100)} % full, the fullest of all` };
}

function ownToken({ login, ...state }: State, now: number): Ahead | null {
  if (!login?.expires_at) return null;
  const days = Math.floor((Date.parse(login.expires_at) - serverTime({ login, ...state }, now)) / DAY_MS);
  if (days >= TOKEN_DAYS) return null;
  return { key: "token", level: "attention", text: days < 1 ? t`This screen's token expires within a day` : t`This screen's token expires in ${count(days, "day")}` };
}
