/* The page of the audit log is a file of its own. */
import { t } from "../../text/text";
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).AuditPage);

export const loadAudit = page.load;

export const LazyAudit = () => (
  <page.View
    waiting={(failed) => (
      <Page title={t`Audit`}>
        <section class="panel empty">
          {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
