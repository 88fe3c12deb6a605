/* The charts and the library that draws them are a file of their own. */
import type { ThermalForecast } from "../../lib/api.gen";
import type { DeviceEntry } from "../../state/state";
import { t } from "../../text/text";
import { lazy } from "../lazy";

interface Props {
  entry: DeviceEntry;
  forecast: ThermalForecast | null;
}

const charts = lazy<Props>(async () => (await import("./charts")).Charts);

export const loadCharts = charts.load;

export const LazyCharts = ({ entry, forecast }: Props) => (
  <charts.View
    entry={entry}
    forecast={forecast}
    waiting={(failed) => (
      <section class="panel charts-panel" aria-label={t`Charts`}>
        <div class="panel-head">
          <h2>{t`Readings over time`}</h2>
        </div>
        {failed ? (
          <p class="panel-body quiet">{t`The charts come when the connection is back.`}</p>
        ) : (
          <p class="panel-body charts-wait" />
        )}
      </section>
    )}
  />
);
