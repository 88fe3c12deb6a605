/* Allocations: who holds how much memory on which device, since when; and freeing it. */
import { useEffect, useState } from "preact/hooks";
import { readLabels } from "../../command/memory";
import { count, memory } from "../../lib/format";
import { type Lent, heldByModels, lentMemory, mayFree, mayList, memoryParts } from "../../state/allocations";
import { deviceHref } from "../../lib/route";
import { deviceName, isLive, isStale, memoryAxis, memoryTotal, sortedDevices } from "../../state/select";
import { now } from "../../lib/clock";
import type { DeviceEntry, State } from "../../state/state";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Command } from "../command-line";
import { DeviceMark, Figure } from "../parts";
import { Page } from "../shell";
import { PartsBar, PartsFigures } from "./bar";
import { HoldingRows } from "./rows";

const LABELS_MS = 500;

/** Why this login cannot free anything now, or null. */
function obstacle(state: State): string | null {
  if (!isLive(state)) return t`Nothing can be changed while the connection is lost.`;
  return mayFree(state.login) ? null : t`Taking memory back needs a token with the scope admin.`;
}

/** Labels are their owners' own words: they come by call, not by event, and only to whom they concern. */
function useLabels(): ReadonlyMap<string, string> {
  const { state, server } = useApp();
  const [labels, setLabels] = useState<ReadonlyMap<string, string>>(new Map());
  const { allocations, login } = state.value;
  const allowed = mayList(login) && isLive(state.value);
  const unknown = Object.keys(allocations).length;
  useEffect(() => {
    if (!allowed || unknown === 0) return;
    const timer = setTimeout(() => void readLabels(server).then((read) => read && setLabels(read)), LABELS_MS);
    return () => clearTimeout(timer);
  }, [allocations, allowed]);
  return labels;
}

export function AllocationsPage() {
  const { state } = useApp();
  const labels = useLabels();
  const all = state.value;
  const lent = lentMemory(all.allocations);
  const devices = sortedDevices(all).filter((one) => lent.has(one.record.device_id));
  const sessions = new Set(Object.values(all.allocations).map((one) => one.session_id)).size;
  const bytes = [...lent.values()].reduce((sum, one) => sum + one.bytes, 0);
  return (
    <Page title={t`Allocations`}>
      {lent.size === 0 ? (
        <Nothing />
      ) : (
        <div class="stack">
          <section class="panel lent-vitals" aria-label={t`Lent memory`}>
            <p class="vital">
              <span class="label">{t`Lent`}</span>
              <span class="value">
                <Figure {...memory(bytes)} />
              </span>
            </p>
            <p class="quiet">
              {t`${count(Object.keys(all.allocations).length, "allocation")} of ${count(sessions, "session")} on ${count(lent.size, "device")}`}
            </p>
            {obstacle(all) && (
              <p class="small faint" id="why-not-free">
                {obstacle(all)}
              </p>
            )}
          </section>
          {devices.map(({ record }) => (
            <DevicePanel
              key={record.device_id}
              lent={lent.get(record.device_id)!}
              axis={memoryAxis(devices)}
              labels={labels}
              why={obstacle(all)}
            />
          ))}
        </div>
      )}
    </Page>
  );
}

function DevicePanel({
  lent,
  axis,
  labels,
  why,
}: {
  lent: Lent;
  axis: number;
  labels: ReadonlyMap<string, string>;
  why: string | null;
}) {
  const { state } = useApp();
  const entry = state.value.devices[lent.device];
  const name = deviceName(state.value, lent.device);
  const node = entry && state.value.nodes[entry.record.node_id];
  const parts = memoryParts(entry, lent.bytes, heldByModels(state.value.instances, lent.device));
  const stale = entry ? isStale(state.value, entry, now.value) : true;
  return (
    <section class={`panel lent-device ${stale ? "stale" : ""}`} aria-label={name}>
      <div class="panel-head">
        <h2 class="clip">
          <a href={deviceHref(lent.device)}>{name}</a>
        </h2>
        {entry && <DeviceMark record={entry.record} stale={stale} />}
        <span class="aside">{node ? t`on ${node.record.name}` : ""}</span>
      </div>
      <div class="lent-parts">
        <PartsBar parts={parts} axis={axis} />
        <PartsFigures parts={parts} />
      </div>
      <div class="table-wrap">
        <table class="list lent-list">
          <caption class="sr">{t`Who holds memory on ${name}`}</caption>
          <thead>
            <tr>
              <th scope="col">{t`Holder`}</th>
              <th scope="col" class="w-label">
                {t`Label`}
              </th>
              <th scope="col" class="w-id">
                {t`Allocation`}
              </th>
              <th scope="col" class="num w-size">
                {t`Size`}
              </th>
              <th scope="col" class="num w-since">
                {t`Since`}
              </th>
              <th scope="col" class="w-act">
                <span class="sr">{t`Take back`}</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {lent.holdings.map((one) => (
              <HoldingRows key={one.session} holding={one} labels={labels} why={why} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Nothing() {
  const { state } = useApp();
  const free = (one: DeviceEntry): number => (memoryTotal(one) ?? 0) - (one.reading?.memory_used_bytes ?? 0);
  const device = sortedDevices(state.value)
    .filter(({ record }) => record.state === "idle" || record.state === "computing")
    .sort((a, b) => free(b) - free(a))[0];
  const much = device && free(device) > 4 * 2 ** 30 ? "1GiB" : "64MiB";
  return (
    <section class="panel empty" aria-label={t`Nothing is lent`}>
      <h2>{t`Nothing is lent now`}</h2>
      <p>
        {t`Memory that a token's holder allocates shows here, by device, with who holds it and since when. It is freed when its session ends. On this machine, try it:`}
      </p>
      <Command text={`exogpu alloc ${device ? device.record.device_id : "DEVICE"} ${much}`} />
      <p class="quiet small">
        {t`From anywhere, with a token of the scope allocate: the method memory.allocate, as /schema/api.json describes it.`}
      </p>
    </section>
  );
}
