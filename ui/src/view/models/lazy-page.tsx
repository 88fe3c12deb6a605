/* The pages of models are a file of their own. */
import { t } from "../../text/text";
import { lazy } from "../lazy";
import { Page } from "../shell";

const list = lazy(async () => (await import("./page")).ModelsPage);
const one = lazy(async () => (await import("./model")).ModelPage);

export const loadModels = async (): Promise<boolean> => (await list.load()) && one.load();

const Waiting = ({ failed }: { failed: boolean }) => (
  <Page title={t`Models`}>
    <section class="panel empty">
      {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
    </section>
  </Page>
);

export const LazyModels = () => <list.View waiting={(failed) => <Waiting failed={failed} />} />;
export const LazyModel = ({ id }: { id: string }) => <one.View id={id} waiting={(failed) => <Waiting failed={failed} />} />;
