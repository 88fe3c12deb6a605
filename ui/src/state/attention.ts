/* What a person should look at, worst first, each with what to do. Derived from the state; pure. */
import { sentence } from "../lib/format";
import { remember } from "../lib/remember";
import type { DeviceEntry, State } from "./state";
import { memoryTotal, sortedDevices, sortedNodes } from "./select";

/** A memory that is fuller than this wants attention. */
export const NEARLY_FULL = 0.97;

export interface Attention {
  readonly key: string;
  readonly level: "error" | "attention";
  readonly title: string;
  readonly text: string;
  readonly nodeId: string;
  readonly deviceId: string | null;
  /** It is a machine that waits to be let in. */
  readonly pending?: true;
  /** When it began, where that is known. */
  readonly since: string | null;
}

export const attention = remember((state: State): readonly Attention[] => {
  const found: Attention[] = [];
  for (const { record } of sortedNodes(state)) {
    const about = { nodeId: record.node_id, deviceId: null };
    if (record.state === "offline")
      found.push({
        ...about,
        key: `${record.node_id}/offline`,
        level: "error",
        since: record.last_seen_at,
        title: `${record.name} is offline`,
        text:
          `${sentence(record.state_reason)} Its devices keep their last readings. ` +
          "It comes back by itself once it is running.",
      });
    else if (record.state === "pending")
      found.push({
        ...about,
        key: `${record.node_id}/pending`,
        pending: true,
        level: "attention",
        since: record.last_seen_at,
        title: `${record.name} asks to join`,
        text: "It waits for an admin: compare its code on the page Access, then let it in or turn it away.",
      });
    else
      for (const library of record.libraries)
        if (library.state === "broken" || library.state === "too_old")
          found.push({
            ...about,
            key: `${record.node_id}/${library.name}`,
            level: "attention",
            since: null,
            title: `${library.name} on ${record.name} ${library.state === "broken" ? "does not work" : "is too old"}`,
            text: `${sentence(library.reason)} ${sentence(library.hint)}`,
          });
  }
  for (const entry of sortedDevices(state)) {
    const one = ofDevice(state, entry);
    if (one) found.push({ ...one, nodeId: entry.record.node_id, deviceId: entry.record.device_id });
  }
  return found.sort((a, b) => Number(b.level === "error") - Number(a.level === "error"));
});

type Finding = Omit<Attention, "nodeId" | "deviceId">;

function ofDevice(state: State, entry: DeviceEntry): Finding | null {
  const { record, reading } = entry;
  const key = record.device_id;
  if (state.nodes[record.node_id]?.record.state === "offline") return null; // said once, for its node
  if (record.verification.state === "failed")
    return {
      key,
      level: "error",
      since: record.verification.at,
      title: `${record.name} failed its check`,
      text: `${sentence(record.verification.error)} It gets no work. The other devices are not affected.`,
    };
  if (record.state === "offline")
    return {
      key,
      level: "attention",
      since: record.last_seen_at,
      title: `${record.name} is gone`,
      text: `${sentence(record.state_reason)} It was here before; it keeps its name and history until it is back.`,
    };
  if (reading?.thermal_state === "critical")
    return {
      key,
      level: "error",
      since: null,
      title: `${record.name} is critically hot`,
      text: sentence(record.state_reason),
    };
  if (record.state === "throttled")
    return {
      key,
      level: "attention",
      since: null,
      title: `${record.name} is throttled`,
      text: sentence(record.state_reason) || sentence(reading?.throttle?.join(", ") ?? null),
    };
  const total = memoryTotal(entry);
  if (
    reading?.memory_used_bytes != null &&
    total !== null &&
    total > 0 &&
    reading.memory_used_bytes / total >= NEARLY_FULL
  )
    return {
      key,
      level: "attention",
      since: null,
      title: `Memory of ${record.name} is nearly full`,
      text: "New work that needs more will be refused. Its page shows the processes that hold it.",
    };
  return null;
}
