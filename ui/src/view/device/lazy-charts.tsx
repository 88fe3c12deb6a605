/* The charts and the library that draws them are a file of their own. It is fetched soon after the first paint, so
 * that it is there when a device's page is opened, also while the connection is lost. */
import { useEffect, useState } from "preact/hooks";
import { isLive } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import { useApp } from "../app-context";

type Charts = (typeof import("./charts"))["Charts"];
let loaded: Charts | null = null;

/** Fetches them; false when they cannot be had now. */
export async function loadCharts(): Promise<boolean> {
  try {
    loaded = (await import("./charts")).Charts;
    return true;
  } catch {
    return false;
  }
}

export function LazyCharts({ entry }: { entry: DeviceEntry }) {
  const { state } = useApp();
  const [outcome, setOutcome] = useState<boolean | null>(loaded ? true : null);
  const live = isLive(state.value);
  useEffect(() => {
    if (!loaded) void loadCharts().then(setOutcome);
  }, [live]);
  if (loaded) {
    const Charts = loaded;
    return <Charts entry={entry} />;
  }
  return (
    <section class="panel charts-panel" aria-label="Charts">
      <div class="panel-head">
        <h2>Readings over time</h2>
      </div>
      {outcome === false || !live ? (
        <p class="panel-body quiet">The charts come when the connection is back.</p>
      ) : (
        <p class="panel-body charts-wait" />
      )}
    </section>
  );
}
