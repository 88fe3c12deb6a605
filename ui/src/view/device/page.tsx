/* A device: how it stands, its charts, what it is, which APIs see it, whether it passed its check, who uses it. */
import { isFresh } from "../../command/forecast";
import { now } from "../../lib/clock";
import { sentence } from "../../lib/format";
import { deviceName, isStale } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import { useApp } from "../app-context";
import { Age, DeviceMark, MarkIcon, Panel } from "../parts";
import { EventList } from "../overview/events";
import { describe } from "../overview/cells";
import { LibraryList } from "../node/libraries";
import { nodeHref } from "../../lib/route";
import { t } from "../../text/text";
import { supportWord } from "../../text/words";
import { Page } from "../shell";
import { Actions } from "./actions";
import { ChecksPanel } from "./checks";
import { Holders } from "./holders";
import { ForecastPanel, useForecast } from "./forecast";
import { LazyCharts } from "./lazy-charts";
import { PolicyPanel } from "./policy";
import { ApiTable, Identity, Processes } from "./facts";
import { Readings } from "./readings";

const devices = { name: t`Devices`, href: "#/devices" };

export function DevicePage({ id }: { id: string }) {
  const { state } = useApp();
  const foreseen = useForecast(id);
  const entry = state.value.devices[id];
  if (!entry)
    return (
      <Page title={t`Device`} parent={devices}>
        <section class="panel empty">
          <h2>{t`No such device`}</h2>
          <p>{t`No device with the id ${id} is known here. Devices keep their ids, so it may belong to another server.`}</p>
          <a class="btn" href="#/devices">
            {t`Show all devices`}
          </a>
        </section>
      </Page>
    );
  const { record } = entry;
  const node = state.value.nodes[record.node_id];
  const stale = isStale(state.value, entry, now.value);
  const changes = state.value.recent.filter((change) => change.device_id === id);
  return (
    <Page title={deviceName(state.value, id)} parent={devices}>
      <div class="stack">
        <Head entry={entry} stale={stale} />
        <Readings entry={entry} stale={stale} />
        <div class="cols">
          <div class="stack">
            <LazyCharts entry={entry} forecast={isFresh(foreseen, now.value) ? foreseen.forecast : null} />
            <Processes entry={entry} />
            <Holders device={id} />
          </div>
          <aside class="stack">
            <ForecastPanel entry={entry} foreseen={foreseen} />
            <PolicyPanel entry={entry} />
            <ChecksPanel entry={entry} />
            <Identity entry={entry} />
            <ApiTable entry={entry} />
            {node && node.record.libraries.length > 0 && (
              <Panel
                title={t`Libraries and drivers`}
                aside={
                  <a class="link" href={nodeHref(record.node_id)} title={node.record.name}>
                    {t`on ${node.record.name}`}
                  </a>
                }
              >
                <div class="panel-body">
                  <LibraryList libraries={node.record.libraries} />
                </div>
              </Panel>
            )}
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

const supportMark = { full: "ok", partial: "info", experimental: "info", unsupported: "unsupported" } as const;

function Head({ entry, stale }: { entry: DeviceEntry; stale: boolean }) {
  const { state } = useApp();
  const { record, reading } = entry;
  const node = state.value.nodes[record.node_id];
  return (
    <section class="panel dev-head" aria-label={t`State`}>
      <div class="dev-what">
        <p class="quiet">
          {t`${describe(entry)}, on`}{" "}
          <a class="link" href={nodeHref(record.node_id)}>
            {node?.record.name ?? record.node_id}
          </a>
        </p>
        <p class="dev-marks">
          {stale && record.state !== "offline" ? (
            <>
              <DeviceMark record={record} stale />
              <span class="faint small">
                <Age at={reading?.at ?? record.last_seen_at} />
              </span>
            </>
          ) : (
            <DeviceMark record={record} />
          )}
          <span class="verdict">
            <MarkIcon mark={supportMark[record.support]} />
            {supportWord(record.support)}
          </span>
          <Verified entry={entry} />
        </p>
        {record.state_reason && <p class="quiet">{sentence(record.state_reason)}</p>}
        {record.support_reason && <p class="quiet">{sentence(record.support_reason)}</p>}
        {record.verification.error && <p class="crit">{sentence(record.verification.error)}</p>}
      </div>
      <Actions entry={entry} />
    </section>
  );
}

function Verified({ entry }: { entry: DeviceEntry }) {
  const { state, at } = entry.record.verification;
  switch (state) {
    case "passed":
      return (
        <span class="verdict ok">
          <MarkIcon mark="ok" />
          {t`verified`}{" "}
          <span class="faint small">
            <Age at={at} />
          </span>
        </span>
      );
    case "failed":
      return (
        <span class="verdict no">
          <MarkIcon mark="offline" />
          {t`check failed`}{" "}
          <span class="faint small">
            <Age at={at} />
          </span>
        </span>
      );
    case "pending":
      return (
        <span class="verdict">
          <MarkIcon mark="stale" />
          {t`not yet verified`}
        </span>
      );
  }
}
