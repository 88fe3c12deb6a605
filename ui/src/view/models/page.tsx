/* Models: what runs, what there is, and where more comes from. */
import { signal } from "@preact/signals";
import { fits } from "../../lib/fits";
import { instanceWords, mayManage, modelWords, sortedInstances, sortedModels } from "../../state/models";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { NothingFits, Panel } from "../parts";
import { FilterField, Page } from "../shell";
import { AddPanel } from "./add";
import { BrowsePanel } from "./browse";
import { CatalogPanel } from "./catalog";
import { InstancePanel } from "./instance";
import { ModelRow } from "./row";
import { DropZone, Uploads } from "./upload";

/** Kept while the page is away, so that coming back from a model finds it as it was. */
const filter = signal("");

export function ModelsPage() {
  const { state } = useApp();
  const all = state.value;
  const models = sortedModels(all.models);
  const instances = sortedInstances(all.instances);
  const shown = models.filter((one) => fits(filter.value, modelWords(one)));
  const field = { text: filter, label: t`Filter models` };
  const admin = mayManage(all.login);
  return (
    <Page title={t`Models`} filter={field}>
      {admin && <DropZone />}
      <div class="stack">
        <div class="filter-row">
          <FilterField {...field} />
        </div>
        {admin && <Uploads />}
        {instances
          .filter((one) => fits(filter.value, instanceWords(all, one)))
          .map((one) => (
            <InstancePanel key={one.instance_id} instance={one} />
          ))}
        {models.length > 0 && (
          <Panel title={t`Models`} aside={shown.length < models.length ? t`${shown.length} fit the filter` : instances.length === 0 ? t`none is loaded` : undefined}>
            <ul class="rows models">
              {shown.map((one) => (
                <ModelRow key={one.model_id} model={one} />
              ))}
            </ul>
            {shown.length === 0 && <NothingFits />}
          </Panel>
        )}
        <CatalogPanel filter={filter.value} />
        {admin ? (
          <>
            <AddPanel first={models.length === 0} />
            <BrowsePanel />
          </>
        ) : (
          models.length === 0 && (
            <section class="panel empty">
              <h2>{t`There is no model yet`}</h2>
              <p>{t`An admin adds one here, or on the server's machine with exogpu model add.`}</p>
            </section>
          )
        )}
      </div>
    </Page>
  );
}
