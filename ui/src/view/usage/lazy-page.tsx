/* The page of usage is a file of its own. */
import { t } from "../../text/text";
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).UsagePage);

export const loadUsage = page.load;

export const LazyUsage = () => (
  <page.View
    waiting={(failed) => (
      <Page title={t`Usage`}>
        <section class="panel empty">
          {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
