/* The page of tokens, waiting nodes and certificates is a file of its own. */
import { t } from "../../text/text";
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).AccessPage);

export const loadAccess = page.load;

export const LazyAccess = () => (
  <page.View
    waiting={(failed) => (
      <Page title={t`Access`}>
        <section class="panel empty">
          {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
