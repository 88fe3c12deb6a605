/* The charts and the library that draws them are a file of their own, loaded with the first device's page. */
import { useEffect, useState } from "preact/hooks";
import type { DeviceEntry } from "../../state/state";

type Charts = (typeof import("./charts"))["Charts"];
let loaded: Charts | null = null;

export function LazyCharts({ entry }: { entry: DeviceEntry }) {
  const [Charts, setCharts] = useState<Charts | null>(() => loaded);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    if (Charts) return;
    import("./charts").then(
      (module) => {
        loaded = module.Charts;
        setCharts(() => module.Charts);
      },
      () => setFailed(true),
    );
  }, []);
  if (Charts) return <Charts entry={entry} />;
  return (
    <section class="panel charts-panel" aria-label="Charts">
      <div class="panel-head"><h2>Readings over time</h2></div>
      <p class="panel-body quiet charts-wait">
        {failed ? "The charts could not be loaded from the server. Reload the page when the connection is back." : ""}
      </p>
    </section>
  );
}
