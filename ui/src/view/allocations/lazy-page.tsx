/* The page of allocations is a file of its own. */
import { t } from "../../text/text";
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).AllocationsPage);

export const loadAllocations = page.load;

export const LazyAllocations = () => (
  <page.View
    waiting={(failed) => (
      <Page title={t`Allocations`}>
        <section class="panel empty">
          {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
