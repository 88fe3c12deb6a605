/* Devices of one machine that copy to each other directly: how many pairs, and which copies are refused that way. */
import { Fragment } from "preact";
import { count } from "../../lib/format";
import { peersOf } from "../../state/topology";
import { useApp } from "../app-context";
import { MarkIcon, Panel } from "../parts";

export function PeersPanel() {
  const { state } = useApp();
  const machines = peersOf(state.value);
  if (machines.length === 0) return null;
  return (
    <Panel title="Inside machines" aside="direct copies">
      <dl class="facts panel-body">
        {machines.map(({ node, pairs, staged }) => (
          <Fragment key={node}>
            <dt>{state.value.nodes[node]?.record.name ?? node}</dt>
            <dd>
              {count(pairs, "pair")}
              {staged.map(([from, to]) => (
                <p key={`${from} ${to}`} class="small warm">
                  <MarkIcon mark="throttled" class="mini" /> from {from} to {to} by way of the host's memory: the direct way
                  was refused
                </p>
              ))}
            </dd>
          </Fragment>
        ))}
      </dl>
    </Panel>
  );
}
