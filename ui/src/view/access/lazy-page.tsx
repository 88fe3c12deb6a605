/* The page of tokens, waiting nodes and certificates is a file of its own. */
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).AccessPage);

export const loadAccess = page.load;

export const LazyAccess = () => (
  <page.View
    waiting={(failed) => (
      <Page title="Access">
        <section class="panel empty">
          {failed ? <p>This page comes when the connection is back.</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
