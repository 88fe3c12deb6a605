/* The playground is a file of its own. */
import { t } from "../../text/text";
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).PlaygroundPage);

const guest = lazy(async () => (await import("./guest")).GuestPage);

export const loadPlayground = page.load;

export const LazyPlayground = ({ id }: { id: string }) => (
  <page.View
    id={id}
    waiting={(failed) => (
      <Page title={t`Playground`}>
        <section class="panel empty">
          {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);

export const LazyGuest = () => (
  <guest.View
    waiting={(failed) => (
      <Page title={t`Playground`}>
        <section class="panel empty">
          {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
        </section>
      </Page>
    )}
  />
);
