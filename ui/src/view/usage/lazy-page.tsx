/* The page of usage is a file of its own. */
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).UsagePage);

export const loadUsage = page.load;

export const LazyUsage = () => (
  <page.View
    waiting={(failed) => (
      <Page title="Usage">
        <section class="panel empty">
          {failed ? <p>This page comes when the connection is back.</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
