/* A machine: its record, the state of the libraries on it, its devices, what it reports now. */
import { now } from "../../lib/clock";
import { figure, fullTime, memory, rate, sentence } from "../../lib/format";
import { deviceHref } from "../../lib/route";
import { backendName, deviceName, isNodeStale, nodeMemory, sortedDevices } from "../../state/select";
import type { NodeEntry } from "../../state/state";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { Copied } from "../command-line";
import {
  Age,
  Chips,
  DeviceMark,
  Fact,
  type Mark,
  MarkIcon,
  MemoryBar,
  MemoryFigure,
  NotReported,
  Panel,
} from "../parts";
import { One } from "../device/readings";
import { EventList } from "../overview/events";
import { Page } from "../shell";
import { LibraryList } from "./libraries";
import { RemoveNode } from "./remove";

const marks: Record<NodeEntry["record"]["state"], Mark> = {
  online: "idle",
  pending: "stale",
  draining: "draining",
  offline: "offline",
};

export function NodePage({ id }: { id: string }) {
  const { state } = useApp();
  const entry = state.value.nodes[id];
  if (!entry)
    return (
      <Page title={t`Node`} parent={{ name: t`Overview`, href: "#/overview" }}>
        <section class="panel empty">
          <h2>{t`No such node`}</h2>
          <p>{t`No machine with the id ${id} is known here.`}</p>
          <a class="btn" href="#/overview">
            {t`Go to Overview`}
          </a>
        </section>
      </Page>
    );
  const { record } = entry;
  const devices = sortedDevices(state.value).filter((one) => one.record.node_id === id);
  const changes = state.value.recent.filter((change) => change.node_id === id);
  const stale = isNodeStale(state.value, entry, now.value);
  return (
    <Page title={record.name} parent={{ name: t`Overview`, href: "#/overview" }}>
      <div class="stack">
        <NodeReadings entry={entry} stale={stale} />
        <div class="cols">
          <div class="stack">
            <Panel title={t`Machine`}>
              <dl class="facts panel-body">
                <Fact name={t`State`}>
                  <span class="state" data-state={marks[record.state]}>
                    <MarkIcon mark={marks[record.state]} />
                    {word(record.state)}
                  </span>
                  {record.state_reason && <span class="quiet"> {sentence(record.state_reason)}</span>}
                </Fact>
                {record.ends_at && <Fact name={t`Lent until`}>{fullTime(Date.parse(record.ends_at))}</Fact>}
                <Fact name={t`Host name`}>
                  {record.host_name}
                  {record.local && <span class="faint">{" "}{t`(this server)`}</span>}
                </Fact>
                <Fact name={t`System`}>{record.os}</Fact>
                <Fact name={t`Kernel`}>{record.kernel}</Fact>
                <Fact name={t`Architecture`}>{record.arch}</Fact>
                <Fact name={t`CPU`}>{record.cpu_model}</Fact>
                <Fact name={t`Cores`}>
                  {record.cpu_cores !== null && (record.cpu_threads === null ? t`${record.cpu_cores} cores` : t`${record.cpu_cores} cores, ${record.cpu_threads} threads`)}
                </Fact>
                <Fact name={t`Memory`}>
                  {record.memory_bytes !== null &&
                    `${memory(record.memory_bytes).value} ${memory(record.memory_bytes).unit}`}
                </Fact>
                <Fact name="exogpu">{record.version}</Fact>
                <Fact name={t`Addresses`}>{record.addresses.length > 0 && record.addresses.map((one) => <Copied key={one} text={one} />)}</Fact>
                <Fact name={t`Capabilities`}>
                  {record.capabilities.length > 0 ? <Chips items={record.capabilities} /> : t`none said`}
                </Fact>
                <Fact name={t`First seen`}>{fullTime(Date.parse(record.first_seen_at))}</Fact>
                <Fact name={t`Last seen`}>
                  <Age at={record.state !== "offline" && entry.reading ? entry.reading.at : record.last_seen_at} />
                </Fact>
                <Fact name={t`Id`}>
                  <Copied text={record.node_id} />
                </Fact>
              </dl>
              <RemoveNode record={record} />
            </Panel>
            <Panel title={t`Devices`}>
              {devices.length === 0 && <p class="panel-body quiet">{t`None found on this machine yet.`}</p>}
              <ul class="rows node-list">
                {devices.map((one) => (
                  <li key={one.record.device_id}>
                    <a class="clip" href={deviceHref(one.record.device_id)}>
                      <b>{deviceName(state.value, one.record.device_id)}</b>
                    </a>
                    <span class="small faint">
                      {backendName[one.record.backend]}, {word(one.record.support)}
                    </span>
                    <DeviceMark record={one.record} stale={stale} />
                  </li>
                ))}
              </ul>
            </Panel>
          </div>
          <aside class="stack">
            <Panel title={t`Back ends`}>
              <ul class="rows">
                {record.backends.map(({ backend, enabled, reason }) => (
                  <li key={backend}>
                    <b>{backendName[backend]}</b>
                    <span class="small faint">{sentence(reason)}</span>
                    <span class={`verdict small ${enabled ? "ok" : ""}`}>
                      <MarkIcon mark={enabled ? "ok" : "unsupported"} />
                      {enabled ? t`enabled` : t`off`}
                    </span>
                  </li>
                ))}
              </ul>
            </Panel>
            <Panel title={t`Libraries and drivers`}>
              <div class="panel-body">
                {record.libraries.length ? (
                  <LibraryList libraries={record.libraries} />
                ) : (
                  <p class="quiet">{t`Nothing reported yet.`}</p>
                )}
              </div>
            </Panel>
            {changes.length > 0 && (
              <Panel title={t`Last events`}>
                <EventList changes={changes} most={8} />
              </Panel>
            )}
          </aside>
        </div>
      </div>
    </Page>
  );
}

function NodeReadings({ entry, stale }: { entry: NodeEntry; stale: boolean }) {
  const { reading } = entry;
  const host = nodeMemory(reading);
  const swap = reading?.swap_total_bytes ? memory(reading.swap_used_bytes ?? 0) : null;
  return (
    <section class={`panel vitals ${stale ? "stale" : ""}`} aria-label={t`Readings`}>
      <One
        label={t`CPU`}
        value={reading?.cpu_percent}
        unit="%"
        sub={reading?.load_1m != null && t`load ${figure(reading.load_1m, 2)}`}
      />
      <div class="vital">
        <p class="label">{t`Memory`}</p>
        <div class="row">
          {host ? (
            <>
              <span class="value">
                <MemoryFigure {...host} word={t`of`} />
              </span>
              <MemoryBar {...host} />
            </>
          ) : (
            <NotReported />
          )}
        </div>
        <p class="small quiet">
          {swap
            ? t`swap ${swap.value} ${swap.unit} used`
            : host
              ? t`${memory(host.total - host.used).value} ${memory(host.total).unit} available`
              : ""}
        </p>
      </div>
      <Two
        label={t`Network`}
        down={reading?.network_rx_bytes_per_s}
        up={reading?.network_tx_bytes_per_s}
        words={[t`in`, t`out`]}
      />
      <Two
        label={t`Disk`}
        down={reading?.disk_read_bytes_per_s}
        up={reading?.disk_write_bytes_per_s}
        words={[t`read`, t`written`]}
      />
      <div class="vital">
        <p class="label">{t`Heard`}</p>
        <div class="row">
          {reading ? (
            <span class="small quiet">
              <Age at={reading.at} mark={stale} />
            </span>
          ) : (
            <NotReported />
          )}
        </div>
        <p class="small quiet">
          {reading?.battery_percent != null
            ? reading.charging
              ? t`battery ${figure(reading.battery_percent)} %, charging`
              : t`battery ${figure(reading.battery_percent)} %`
            : ""}
        </p>
      </div>
    </section>
  );
}

function Two({
  label,
  down,
  up,
  words,
}: {
  label: string;
  down: number | null | undefined;
  up: number | null | undefined;
  words: [string, string];
}) {
  const first = down == null ? null : rate(down);
  const second = up == null ? null : rate(up);
  return (
    <div class="vital">
      <p class="label">{label}</p>
      <div class="row">
        {first ? (
          <span class="value">
            {first.value}
            <span class="unit">
              {" "}
              {first.unit} {words[0]}
            </span>
          </span>
        ) : (
          <NotReported />
        )}
      </div>
      <p class="small quiet">{second ? `${second.value} ${second.unit} ${words[1]}` : ""}</p>
    </div>
  );
}
