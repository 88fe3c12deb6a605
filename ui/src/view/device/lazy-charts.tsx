/* The charts and the library that draws them are a file of their own. */
import type { DeviceEntry } from "../../state/state";
import { lazy } from "../lazy";

const charts = lazy<{ entry: DeviceEntry }>(async () => (await import("./charts")).Charts);

export const loadCharts = charts.load;

export const LazyCharts = ({ entry }: { entry: DeviceEntry }) => (
  <charts.View
    entry={entry}
    waiting={(failed) => (
      <section class="panel charts-panel" aria-label="Charts">
        <div class="panel-head">
          <h2>Readings over time</h2>
        </div>
        {failed ? (
          <p class="panel-body quiet">The charts come when the connection is back.</p>
        ) : (
          <p class="panel-body charts-wait" />
        )}
      </section>
    )}
  />
);
