/* Sessions and models that hold memory on this device; the pages of allocations and models have all details. */
import { memory } from "../../lib/format";
import { modelHref } from "../../lib/route";
import { lentMemory } from "../../state/allocations";
import { sortedInstances, stageBytes, stageParts } from "../../state/models";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Figure, Panel } from "../parts";

/** Number of holders named here. */
const MOST = 8;

/** Parts of models that lie on this device. */
function ModelsHere({ device }: { device: string }) {
  const { state } = useApp();
  const here = sortedInstances(state.value.instances).flatMap((one) =>
    one.state === "failed" ? [] : one.stages.filter((stage) => stage.device_id === device).map((stage) => ({ one, stage })),
  );
  if (here.length === 0) return null;
  return (
    <Panel title={t`Models here`}>
      <ul class="rows">
        {here.map(({ one, stage }) => (
          <li key={`${one.instance_id} ${stage.first_layer}`} class="holder">
            <b class="clip">
              <a href={modelHref(one.model_id)}>{one.model_name}</a>
            </b>
            <span class="small faint">{one.state === "running" ? stageParts(stage) : one.state}</span>
            <span class="num">
              <Figure {...memory(stageBytes(stage))} />
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

export const Holders = ({ device }: { device: string }) => (
  <>
    <ModelsHere device={device} />
    <Lent device={device} />
  </>
);

function Lent({ device }: { device: string }) {
  const { state } = useApp();
  const lent = lentMemory(state.value.allocations).get(device);
  if (!lent)
    return (
      <Panel title={t`Lent memory`}>
        <p class="panel-body quiet">{t`Nobody holds memory on this device.`}</p>
      </Panel>
    );
  const more = lent.holdings.length - MOST;
  return (
    <Panel
      title={t`Lent memory`}
      aside={
        <a class="link" href="#/allocations">
          {t`all allocations`}
        </a>
      }
    >
      <ul class="rows">
        {lent.holdings.slice(0, MOST).map((one) => (
          <li key={one.session} class="holder">
            <b class="clip">{one.holder}</b>
            <span class="small faint">{one.allocations.length > 1 ? t`${one.allocations.length} allocations` : ""}</span>
            <span class="num">
              <Figure {...memory(one.bytes)} />
            </span>
          </li>
        ))}
      </ul>
      {more > 0 && <p class="panel-body small faint">{t`and ${more} more`}</p>}
    </Panel>
  );
}
