/* Models: what runs, what there is, and where more comes from. */
import { mayManage, sortedInstances, sortedModels } from "../../state/models";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Panel } from "../parts";
import { Page } from "../shell";
import { AddPanel } from "./add";
import { BrowsePanel } from "./browse";
import { CatalogPanel } from "./catalog";
import { InstancePanel } from "./instance";
import { ModelRow } from "./row";
import { DropZone, Uploads } from "./upload";

export function ModelsPage() {
  const { state } = useApp();
  const all = state.value;
  const models = sortedModels(all.models);
  const instances = sortedInstances(all.instances);
  const admin = mayManage(all.login);
  return (
    <Page title={t`Models`}>
      {admin && <DropZone />}
      <div class="stack">
        {admin && <Uploads />}
        {instances.map((one) => (
          <InstancePanel key={one.instance_id} instance={one} />
        ))}
        {models.length > 0 && (
          <Panel title={t`Models`} aside={instances.length === 0 ? t`none is loaded` : undefined}>
            <ul class="rows models">
              {models.map((one) => (
                <ModelRow key={one.model_id} model={one} />
              ))}
            </ul>
          </Panel>
        )}
        <CatalogPanel />
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
