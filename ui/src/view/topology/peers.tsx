/* Devices of one machine that copy to each other directly: how fast, and which copies are refused that way. */
import type { DevicePeer } from "../../lib/api.gen";
import { count, rate, sentence } from "../../lib/format";
import { type PeerPair, type Peers, peersOf } from "../../state/topology";
import { useApp } from "../app-context";
import { Age, Figure, MarkIcon, Panel } from "../parts";

export function PeersPanel() {
  const { state } = useApp();
  const machines = peersOf(state.value);
  if (machines.length === 0) return null;
  return (
    <Panel title="Inside machines" class="links-panel" aside="direct copies">
      {machines.map((one) => (
        <Machine key={one.node} {...one} />
      ))}
    </Panel>
  );
}

function Machine({ node, pairs, staged }: Peers) {
  const { state } = useApp();
  return (
    <div class="table-wrap">
      <table class="links">
        <caption class="small faint">
          {state.value.nodes[node]?.record.name ?? node}: {count(pairs.length, "pair")}
        </caption>
        <thead>
          <tr>
            <th scope="col">Between</th>
            <th scope="col">Kind</th>
            <th scope="col" class="num">
              There
            </th>
            <th scope="col" class="num">
              and back
            </th>
            <th scope="col">Measured</th>
          </tr>
        </thead>
        <tbody>
          {pairs.map((pair) => (
            <PairRow key={pair.key} pair={pair} />
          ))}
        </tbody>
      </table>
      {staged.map(([from, to]) => (
        <p key={`${from} ${to}`} class="small warm panel-body">
          <MarkIcon mark="throttled" class="mini" /> from {from} to {to} by way of the host's memory: the direct way was
          refused
        </p>
      ))}
    </div>
  );
}

/** How fast copies go one way. */
export function PeerRate({ peer }: { peer: DevicePeer | null }) {
  if (peer?.bytes_per_s != null) return <Figure {...rate(peer.bytes_per_s)} />;
  return <span class="not-reported">not measured</span>;
}

function PairRow({ pair: { a, b, there, back } }: { pair: PeerPair }) {
  const staged = [there, back].some((one) => one?.class === "staged");
  const at = there?.measured_at ?? back?.measured_at ?? null;
  const reason = there?.reason ?? back?.reason ?? null;
  return (
    <tr>
      <th scope="row">
        {a} <span class="faint">and</span> {b}
      </th>
      <td>{staged ? "by way of the host" : "direct"}</td>
      <td class="num" data-label="there">
        <PeerRate peer={there} />
      </td>
      <td class="num" data-label="back">
        <PeerRate peer={back} />
      </td>
      <td class="why" data-label={at ? "measured" : undefined}>
        {at && <Age at={at} />} {reason && <span class="small faint">{sentence(reason)}</span>}
      </td>
    </tr>
  );
}
