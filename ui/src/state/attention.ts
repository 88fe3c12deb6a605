/* Things that need a person's attention, worst first, each with advice. Derived from the state; pure. */
import type { Alert, Instance } from "../lib/api.gen";
import { sentence } from "../lib/format";
import { remember } from "../lib/remember";
import type { DeviceEntry, State } from "./state";
import { deviceHref, modelHref, nodeHref } from "../lib/route";
import { t } from "../text/text";
import { sortedInstances } from "./models";
import { deviceLabel, memoryTotal, sortedDevices, sortedNodes } from "./select";
import { isMoving, moveText } from "./talk";
import { type Pair, SERVER, pairState, pairTrouble, pairsOf } from "./topology";

/** A memory that is fuller than this needs attention. */
export const NEARLY_FULL = 0.97;

export interface Attention {
  readonly key: string;
  readonly level: "error" | "attention";
  readonly title: string;
  readonly text: string;
  /** The page that tells more, and what the way there is called. */
  readonly href: string;
  readonly open: string;
  /** When it began, where that is known. */
  readonly since: string | null;
  /** The kind and subject of the alert that says the same once it is raised. */
  readonly alert?: string;
}

export const attention = remember((state: State): readonly Attention[] => {
  const found: Attention[] = [];
  const waiting = sortedNodes(state).flatMap(({ record }) => (record.state === "pending" ? [record] : []));
  for (const { record } of sortedNodes(state)) {
    const about = { href: nodeHref(record.node_id), open: t`Open the node` };
    if (record.state === "offline")
      found.push({
        ...about,
        key: `${record.node_id}/offline`,
        alert: `node_offline/${record.node_id}`,
        level: "error",
        since: record.last_seen_at,
        title: t`${record.name} is offline`,
        text:
          `${sentence(record.state_reason)} ${lastReadings(state, record.node_id)} ` +
          t`It reconnects by itself once it runs again.`,
      });
    else if (record.state === "pending" && waiting.length > EACH) {
      if (record === waiting[0])
        found.push({
          key: "pending",
          level: "attention",
          since: record.last_seen_at,
          title: t`${waiting.length} machines ask to join`,
          text: t`They wait for an admin: compare their codes on the page Access, then let them in or turn them away.`,
          href: "#/access",
          open: t`Open Access`,
        });
    } else if (record.state === "pending")
      found.push({
        ...about,
        key: `${record.node_id}/pending`,
        href: "#/access",
        open: t`Open Access`,
        level: "attention",
        since: record.last_seen_at,
        title: t`${record.name} asks to join`,
        text: t`It waits for an admin: compare its code on the page Access, then let it in or turn it away.`,
      });
    else
      for (const library of record.libraries)
        if (library.state === "broken" || library.state === "too_old")
          found.push({
            ...about,
            key: `${record.node_id}/${library.name}`,
            alert: `driver_unusable/${record.node_id}`,
            level: "attention",
            since: null,
            title: library.state === "broken" ? t`${library.name} on ${record.name} does not work` : t`${library.name} on ${record.name} is too old`,
            text: `${sentence(library.reason)} ${sentence(library.hint)}`,
          });
  }
  for (const entry of sortedDevices(state)) {
    const one = ofDevice(state, entry);
    if (one) found.push({ ...one, href: deviceHref(entry.record.device_id), open: t`Open the device` });
  }
  found.push(...sortedInstances(state.instances).flatMap((one) => ofInstance(state, one) ?? []));
  found.push(...ofLinks(state), ...ofAlerts(state));
  return found.filter((one) => !toldByAlert(state, one)).sort((a, b) => Number(b.level === "error") - Number(a.level === "error"));
});

function lastReadings(state: State, node: string): string {
  const devices = Object.values(state.devices).filter((one) => one.record.node_id === node);
  if (devices.length === 0) return t`It has no known devices.`;
  return devices.some((one) => one.reading !== null)
    ? t`Its devices show their last readings.`
    : t`Its devices have no readings, because the server has started since.`;
}

function ofInstance(state: State, one: Instance): Attention | null {
  const { instance_id: key, model_id, model_name, state: how, state_reason } = one;
  const about = { key, since: null, href: modelHref(model_id), open: t`Open the model` };
  if (how === "failed") return { ...about, level: "error", title: t`${model_name} has failed`, text: sentence(state_reason) };
  if (how !== "paused") return null;
  if (isMoving(one)) return { ...about, level: "attention", title: t`${model_name} is moving`, text: moveText(state, one) ?? "" };
  const text = t`${sentence(state_reason)} Its requests wait and continue by themselves once it has room.`;
  return { ...about, level: "attention", title: t`${model_name} is paused`, text };
}

/** The level of a badge that stands for all of them; null where there is nothing. */
export function worstLevel(found: readonly Attention[]): Attention["level"] | null {
  return found.some((one) => one.level === "error") ? "error" : (found[0]?.level ?? null);
}

/** Where more stands about what an alert is about. */
export function subjectHref({ kind, subject }: Pick<Alert, "kind" | "subject">): string {
  if (kind === "audit_forked" || kind === "audit_failed") return "#/audit";
  if (subject.type === "node") return nodeHref(subject.id);
  if (subject.type === "device") return deviceHref(subject.id);
  if (subject.type === "instance") return "#/models";
  return subject.type === "server" ? "#/logs" : "#/access";
}

/** Alerts that nobody has acknowledged yet. */
const ofAlerts = (state: State): Attention[] =>
  Object.values(state.alerts)
    .filter((one) => one.acknowledged_at === null)
    .map((one) => {
      const href = subjectHref(one);
      return {
        key: one.alert_id,
        level: one.severity === "critical" ? "error" : "attention",
        title: sentence(one.message).replace(/\.$/, ""),
        text: sentence(one.hint),
        href,
        open: href === "#/audit" ? t`Open Audit` : href === "#/logs" ? t`Open Logs` : href === "#/access" ? t`Open Access` : href === "#/models" ? t`Open Models` : one.subject.type === "node" ? t`Open the node` : t`Open the device`,
        since: one.raised_at,
      };
    });

/** What an alert says already, acknowledged or not, is not said a second time. */
function toldByAlert(state: State, { alert }: Attention): boolean {
  return alert !== undefined && Object.values(state.alerts).some((one) => alert === `${one.kind}/${one.subject.id}`);
}

/** Up to this many of one kind are listed one by one, more as one. */
const EACH = 2;

function ofLinks(state: State): Attention[] {
  const name = (id: string): string => (id === SERVER ? t`the server` : (state.nodes[id]?.record.name ?? id));
  const between = ({ a, b }: Pair): string => t`from ${name(a)} to ${name(b)}`;
  const worse = pairsOf(state).filter((one) => pairState(one) === "degraded");
  const about = { level: "attention", since: null, href: "#/topology", open: t`Open Topology` } as const;
  const placed = t`Model placement takes this into account.`;
  if (worse.length > EACH)
    return [
      {
        ...about,
        key: "links",
        title: t`${worse.length} links are degraded`,
        text: t`The first, ${between(worse[0]!)}: ${pairTrouble(worse[0]!) ?? t`it is slower than links of its kind should be`}. ${placed}`,
      },
    ];
  return worse.map((pair) => ({
    ...about,
    key: pair.key,
    title: t`The link ${between(pair)} is degraded`,
    text: `${sentence(pairTrouble(pair))} ${placed}`,
  }));
}

type Finding = Omit<Attention, "href" | "open">;

function ofDevice(state: State, entry: DeviceEntry): Finding | null {
  const { record, reading } = entry;
  const key = record.device_id;
  const name = deviceLabel(state, key);
  if (state.nodes[record.node_id]?.record.state === "offline") return null; // said once, for its node
  if (record.verification.state === "failed")
    return {
      key,
      level: "error",
      since: record.verification.at,
      title: t`${name} failed its check`,
      text: t`${sentence(record.verification.error)} It gets no work. The other devices are not affected.`,
    };
  if (record.state === "offline")
    return {
      key,
      alert: `device_lost/${key}`,
      level: "attention",
      since: record.last_seen_at,
      title: t`${name} is gone`,
      text: t`${sentence(record.state_reason)} It was here before; it keeps its name and history until it is back.`,
    };
  if (reading?.thermal_state === "critical")
    return {
      key,
      alert: `throttled/${key}`,
      level: "error",
      since: null,
      title: t`${name} is critically hot`,
      text: sentence(record.state_reason),
    };
  if (record.state === "throttled")
    return {
      key,
      alert: `throttled/${key}`,
      level: "attention",
      since: null,
      title: t`${name} is throttled`,
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
      alert: `memory_full/${key}`,
      level: "attention",
      since: null,
      title: t`Memory of ${name} is nearly full`,
      text: t`New work that needs more memory is refused. Its page shows the processes that hold it.`,
    };
  return null;
}
