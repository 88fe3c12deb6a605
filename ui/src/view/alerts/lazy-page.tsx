/* The page of alerts is a file of its own. */
import { t } from "../../text/text";
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).AlertsPage);

export const loadAlerts = page.load;

export const LazyAlerts = () => (
  <page.View
    waiting={(failed) => (
      <Page title={t`Alerts`}>
        <section class="panel empty">
          {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
