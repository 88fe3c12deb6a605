/* The page of allocations is a file of its own. */
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).AllocationsPage);

export const loadAllocations = page.load;

export const LazyAllocations = () => (
  <page.View
    waiting={(failed) => (
      <Page title="Allocations">
        <section class="panel empty">
          {failed ? <p>This page comes when the connection is back.</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
