/* The page of links is a file of its own. */
import { t } from "../../text/text";
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).TopologyPage);

export const loadTopology = page.load;

export const LazyTopology = () => (
  <page.View
    waiting={(failed) => (
      <Page title={t`Topology`}>
        <section class="panel empty">
          {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
