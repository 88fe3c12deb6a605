/* The page of the server's log is a file of its own. */
import { t } from "../../text/text";
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).LogsPage);

export const loadLogs = page.load;

export const LazyLogs = () => (
  <page.View
    waiting={(failed) => (
      <Page title={t`Logs`}>
        <section class="panel empty">
          {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
