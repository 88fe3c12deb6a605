/* Overview: what there is, how it stands, what wants attention. In the order of a phone: vitals, attention,
 * topology, devices, events. */
import { isRealGpu, matches, sortedDevices } from "../../state/select";
import { t } from "../../text/text";
import { useApp, useStale } from "../app-context";
import { FilterField, Page } from "../shell";
import { Servers } from "../servers/lazy";
import { AttentionPanel } from "./attention";
import { DeviceSheet } from "./cells";
import { EventsPanel } from "./events";
import { FirstModel, NextSteps, NoGpu, NoNode } from "./empty";
import { RunningModels } from "./running";
import { Topology } from "./topology";
import { Vitals } from "./vitals";

const MANY = 12;

export function Overview() {
  const { state, filter } = useApp();
  const stale = useStale();
  const all = state.value;
  const devices = sortedDevices(all);
  const shown = filter.value
    ? devices.filter((one) => matches(one, all.nodes[one.record.node_id], filter.value))
    : devices;
  const nodes = Object.keys(all.nodes).length;
  // the sheet of many devices is far longer than the side column: it lies below both
  const many = nodes > 0 && devices.length > MANY;
  const sheet = <DeviceSheet shown={shown} stale={stale} all={devices.length} />;
  return (
    <Page title={t`Overview`} filter={devices.length > 0 ? { text: filter, label: t`Filter devices` } : undefined}>
      <div class="overview">
        <Vitals />
        {nodes === 0 ? (
          <NoNode />
        ) : (
          <div class="cols">
            <div class="stack">
              <FirstModel />
              <Topology shown={shown} stale={stale} all={devices.length} />
              <Servers as="panel" />
              <RunningModels />
              {devices.length > 6 && (
                <div class="filter-row">
                  <FilterField text={filter} label={t`Filter devices`} />
                </div>
              )}
              {!many && sheet}
              <NextSteps />
            </div>
            <aside class="stack">
              <AttentionPanel />
              <EventsPanel />
              {!devices.some((one) => isRealGpu(one.record)) && <NoGpu />}
              <p class="small quiet">
                <a class="link" href="#/wall">
                  {t`Wall view`}
                </a>{" "}
                {t`shows this in large type, on a screen that everybody sees`}
              </p>
            </aside>
          </div>
        )}
        {many && sheet}
      </div>
    </Page>
  );
}
