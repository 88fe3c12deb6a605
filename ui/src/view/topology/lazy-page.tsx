/* The page of links is a file of its own. */
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).TopologyPage);

export const loadTopology = page.load;

export const LazyTopology = () => (
  <page.View
    waiting={(failed) => (
      <Page title="Topology">
        <section class="panel empty">
          {failed ? <p>This page comes when the connection is back.</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
