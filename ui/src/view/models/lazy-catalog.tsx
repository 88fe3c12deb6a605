/* The catalogue is a file of its own: the overview shows it, and the first paint does not need it. */
import { t } from "../../text/text";
import { lazy } from "../lazy";
import { Panel } from "../parts";

const panel = lazy(async () => (await import("./catalog")).CatalogPanel);

export const loadCatalog = panel.load;

export const LazyCatalog = ({ most }: { most?: number }) => (
  <panel.View
    {...(most ? { most } : {})}
    waiting={() => (
      <Panel title={t`Start with a model`}>
        <p class={`skeleton panel-body ${most ? "" : "catalog-wait"}`} />
      </Panel>
    )}
  />
);
