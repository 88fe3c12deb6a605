/* The page of a machine is a file of its own. */
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).NodePage);

export const loadNode = page.load;

export function LazyNode({ id }: { id: string }) {
  const { state } = useApp();
  return (
    <page.View
      id={id}
      waiting={(failed) => (
        <Page title={state.value.nodes[id]?.record.name ?? t`Node`} parent={{ name: t`Overview`, href: "#/overview" }}>
          <section class="panel empty">
            {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
          </section>
        </Page>
      )}
    />
  );
}
