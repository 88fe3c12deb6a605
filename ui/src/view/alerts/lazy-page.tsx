/* The page of alerts is a file of its own. */
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).AlertsPage);

export const loadAlerts = page.load;

export const LazyAlerts = () => (
  <page.View
    waiting={(failed) => (
      <Page title="Alerts">
        <section class="panel empty">
          {failed ? <p>This page comes when the connection is back.</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
