/* The page of the server's log is a file of its own. */
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).LogsPage);

export const loadLogs = page.load;

export const LazyLogs = () => (
  <page.View
    waiting={(failed) => (
      <Page title="Logs">
        <section class="panel empty">
          {failed ? <p>This page comes when the connection is back.</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
