/* The page of a device is a file of its own. */
import { deviceName } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { lazy } from "../lazy";
import { Page } from "../shell";

const page = lazy(async () => (await import("./page")).DevicePage);

export const loadDevice = page.load;

export function LazyDevice({ id }: { id: string }) {
  const { state } = useApp();
  return (
    <page.View
      id={id}
      waiting={(failed) => (
        <Page title={state.value.devices[id] ? deviceName(state.value, id) : t`Device`} parent={{ name: t`Devices`, href: "#/devices" }}>
          <section class="panel empty">
            {failed ? <p>{t`This page comes when the connection is back.`}</p> : <p class="skeleton" />}
          </section>
        </Page>
      )}
    />
  );
}
