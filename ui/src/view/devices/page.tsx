/* All devices in one dense table: sorted by any column, narrowed by the filter; cards on a phone. */
import { signal } from "@preact/signals";
import { count } from "../../lib/format";
import { deviceName, isSoftware, isSystem, matches, memoryAxis, sortedDevices } from "../../state/select";
import { t } from "../../text/text";
import { useApp, useStale } from "../app-context";
import { NoNode } from "../overview/empty";
import { FilterField, Page } from "../shell";
import { DeviceRow } from "./row";
import { type Column, type Order, sortBy } from "./sort";

const columns: { column: Column; name: string; class?: string; most: boolean }[] = [
  { column: "name", name: t`Device`, class: "w-name", most: false },
  { column: "node", name: t`Node`, class: "w-node", most: false },
  { column: "state", name: t`State`, class: "w-state", most: false },
  { column: "support", name: t`Support`, class: "w-support", most: false },
  { column: "use", name: t`Use`, class: "w-spark", most: true },
  { column: "memory", name: t`Memory`, class: "w-mem", most: true },
  { column: "power", name: t`Power`, class: "w-spark", most: true },
  { column: "heat", name: t`Heat`, class: "w-spark", most: true },
];

/** Kept while the page is away, so that coming back from a device finds it as it was. Null: the usual order. */
const order = signal<Order | null>(null);

/** Number of rows shown at first: drawing more every second takes time. */
const ROWS = 200;
const whole = signal(false);

function toggle(column: Column, most: boolean): void {
  const now = order.value;
  if (now?.column !== column) order.value = { column, descending: most };
  else order.value = now.descending === most ? { column, descending: !most } : null;
}

export function DevicesPage() {
  const { state, filter } = useApp();
  const stale = useStale();
  const all = state.value;
  const devices = sortedDevices(all);
  const fitting = devices.filter(
    (one) => filter.value === "" || matches(one, all.nodes[one.record.node_id], filter.value),
  );
  const shown = order.value ? sortBy(fitting, order.value, all.nodes) : fitting;
  const rows = whole.value ? shown : shown.slice(0, ROWS);
  const software = devices.filter((one) => isSoftware(one.record)).length;
  const cpus = devices.filter((one) => isSystem(one.record)).length;
  const gpus = devices.length - software - cpus;
  const kinds = [
    gpus ? count(gpus, "GPU") : null,
    cpus ? count(cpus, "CPU") : null,
    software ? t`${software} in software` : null,
  ];
  const axis = memoryAxis(devices);
  return (
    <Page title={t`Devices`} filter={devices.length > 0 ? { text: filter, label: t`Filter devices` } : undefined}>
      {devices.length === 0 && Object.keys(all.nodes).length === 0 && <NoNode />}
      {devices.length === 0 && Object.keys(all.nodes).length > 0 && (
        <section class="panel empty">
          <h2>{all.discovering ? t`Still looking for devices` : t`No devices found yet`}</h2>
          <p>{t`The node looks for them as it starts, which takes about a second, and again whenever one is plugged in.`}</p>
        </section>
      )}
      {devices.length > 0 && (
        <div class="stack">
          <div class="filter-row">
            <FilterField text={filter} label={t`Filter devices`} />
          </div>
          <section class="panel" aria-label={t`Devices`}>
            <div class="panel-head">
              <h2>{count(devices.length, "device")}</h2>
              <span class="aside">
                {fitting.length < devices.length
                  ? t`${fitting.length} fit the filter`
                  : kinds.filter(Boolean).join(", ")}
              </span>
            </div>
            {shown.length === 0 ? (
              <div class="empty">
                <p>
                  {t`No device fits “${filter.value}”. The filter looks at name, vendor, family, node, back end, state and support.`}
                </p>
                <button class="btn" type="button" onClick={() => (filter.value = "")}>
                  {t`Clear the filter`}
                </button>
              </div>
            ) : (
              <div class="table-wrap">
                <table class={`list devices ${Object.keys(all.nodes).length > 1 ? "" : "one-node"}`}>
                  <caption class="sr">{t`Devices with their state and newest readings`}</caption>
                  <thead>
                    <tr>
                      {columns.map((one) => (
                        <Head key={one.column} {...one} />
                      ))}
                    </tr>
                  </thead>
                  <tbody>
                    {rows.map((one) => (
                      <DeviceRow
                        key={one.record.device_id}
                        entry={one}
                        name={deviceName(all, one.record.device_id)}
                        stale={stale.has(one.record.device_id)}
                        axis={axis}
                        node={all.nodes[one.record.node_id]?.record.name ?? ""}
                        nodeId={one.record.node_id}
                      />
                    ))}
                  </tbody>
                </table>
                {rows.length < shown.length && (
                  <p class="more">
                    <button class="btn" type="button" onClick={() => (whole.value = true)}>
                      {t`Show all ${shown.length}`}
                    </button>
                  </p>
                )}
              </div>
            )}
          </section>
        </div>
      )}
    </Page>
  );
}

function Head({ column, name, class: width, most }: (typeof columns)[number]) {
  const now = order.value;
  const sorted = now?.column === column ? (now.descending ? "descending" : "ascending") : undefined;
  return (
    <th scope="col" class={width} aria-sort={sorted}>
      <button type="button" class="sort" onClick={() => toggle(column, most)}>
        {name}
        <svg aria-hidden="true">
          <use href="#i-sort" />
        </svg>
      </button>
    </th>
  );
}
