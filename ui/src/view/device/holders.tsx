/* Who holds memory on this device; the page of allocations has the whole. */
import { memory } from "../../lib/format";
import { lentMemory } from "../../state/allocations";
import { useApp } from "../app-context";
import { Figure, Panel } from "../parts";

/** So many are named here. */
const MOST = 8;

export function Holders({ device }: { device: string }) {
  const { state } = useApp();
  const lent = lentMemory(state.value.allocations).get(device);
  if (!lent)
    return (
      <Panel title="Lent memory">
        <p class="panel-body quiet">Nobody holds memory on this device.</p>
      </Panel>
    );
  const more = lent.holdings.length - MOST;
  return (
    <Panel
      title="Lent memory"
      aside={
        <a class="link" href="#/allocations">
          all allocations
        </a>
      }
    >
      <ul class="rows">
        {lent.holdings.slice(0, MOST).map((one) => (
          <li key={one.session} class="holder">
            <b class="clip">{one.holder}</b>
            <span class="small faint">{one.allocations.length > 1 ? `${one.allocations.length} allocations` : ""}</span>
            <span class="num">
              <Figure {...memory(one.bytes)} />
            </span>
          </li>
        ))}
      </ul>
      {more > 0 && <p class="panel-body small faint">and {more} more</p>}
    </Panel>
  );
}
