/* Devices of one machine that copy to each other directly: how fast, and which copies are refused that way. */
import { useState } from "preact/hooks";
import type { DevicePeer } from "../../lib/api.gen";
import { count, rate, sentence } from "../../lib/format";
import { PAIRS_SHOWN, type PeerPair, type Peers, type PeersSum, peersOf, sumOfPeers } from "../../state/topology";
import { plural, t } from "../../text/text";
import { useApp } from "../app-context";
import { Age, Figure, MarkIcon, Panel } from "../parts";

export function PeersPanel() {
  const { state } = useApp();
  const machines = peersOf(state.value);
  if (machines.length === 0) return null;
  return (
    <Panel title={t`Inside machines`} class="links-panel" aside={t`direct copies`}>
      {machines.map((one) => (
        <Machine key={one.node} {...one} />
      ))}
    </Panel>
  );
}

function Machine({ node, pairs, staged }: Peers) {
  const { state } = useApp();
  const [all, setAll] = useState(false);
  const many = pairs.length > PAIRS_SHOWN;
  const sum = sumOfPeers(pairs);
  const shown = all || !many ? pairs : sum.odd.slice(0, PAIRS_SHOWN);
  const name = state.value.nodes[node]?.record.name ?? node;
  return (
    <div class="table-wrap">
      {many && <Sum name={name} pairs={pairs.length} sum={sum} shown={shown.length} />}
      {shown.length > 0 && (
        <table class="links">
          <caption class={many ? "sr" : "small faint"}>
            {name}: {count(pairs.length, "pair")}
          </caption>
          <thead>
            <tr>
              <th scope="col">{t`Between`}</th>
              <th scope="col">{t`Kind`}</th>
              <th scope="col" class="num">
                {t`There`}
              </th>
              <th scope="col" class="num">
                {t`and back`}
              </th>
              <th scope="col">{t`Measured`}</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((pair) => (
              <PairRow key={pair.key} pair={pair} />
            ))}
          </tbody>
        </table>
      )}
      {many ? (
        <p class="more">
          <button type="button" class="btn small-btn" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? t`Show fewer` : t`Show all ${count(pairs.length, "pair")}`}
            <span class="sr">{" "}{t`of ${name}`}</span>
          </button>
        </p>
      ) : (
        staged.map(([from, to]) => (
          <p key={`${from} ${to}`} class="small warm panel-body">
            <MarkIcon mark="throttled" class="mini" />{" "}{t`from ${from} to ${to} through host memory: the direct way was refused`}
          </p>
        ))
      )}
    </div>
  );
}

/** Many pairs in one line; below it stand those that are not like the others. */
function Sum({ name, pairs, sum, shown }: { name: string; pairs: number; sum: PeersSum; shown: number }) {
  const { devices, least, most, unmeasured, odd } = sum;
  return (
    <div class="panel-body peers-sum">
      <p>
        <b class="clip">{name}</b>
        <span class="quiet">
          {count(devices, "device")}, {count(pairs, "pair")}
        </span>
        {least !== null && most !== null && (
          <span>
            <Figure {...rate(least)} />
            {rate(most).value !== rate(least).value && (
              <>
                {t` to `}
                <Figure {...rate(most)} />
              </>
            )}{" "}
            <span class="quiet">{t`each way`}</span>
          </span>
        )}
        {unmeasured > 0 && <span class="not-reported">{t`${count(unmeasured, "way")} not measured`}</span>}
      </p>
      {odd.length > 0 ? (
        <p class="small warm">
          <MarkIcon mark="throttled" class="mini" /> {plural(
            odd.length,
            t`${count(odd.length, "pair")} is slower than the others, through host memory, or not measured`,
            t`${count(odd.length, "pair")} are slower than the others, through host memory, or not measured`,
          )}
          {shown < odd.length && t`; ${shown} of them below`}
        </p>
      ) : (
        least !== null && <p class="small faint">{t`All alike, and direct.`}</p>
      )}
    </div>
  );
}

/** The speed of copies in one direction. */
export function PeerRate({ peer }: { peer: DevicePeer | null }) {
  if (peer?.bytes_per_s != null) return <Figure {...rate(peer.bytes_per_s)} />;
  return <span class="not-reported">{t`not measured`}</span>;
}

function PairRow({ pair: { a, b, there, back } }: { pair: PeerPair }) {
  const staged = [there, back].some((one) => one?.class === "staged");
  const at = there?.measured_at ?? back?.measured_at ?? null;
  const reason = there?.reason ?? back?.reason ?? null;
  return (
    <tr>
      <th scope="row">
        {a} <span class="faint">{t`and`}</span> {b}
      </th>
      <td>{staged ? t`through host memory` : t`direct`}</td>
      <td class="num" data-label={t`there`}>
        <PeerRate peer={there} />
      </td>
      <td class="num" data-label={t`back`}>
        <PeerRate peer={back} />
      </td>
      <td class="why" data-label={at ? "measured" : undefined}>
        {at && <Age at={at} />} {reason && <span class="small faint">{sentence(reason)}</span>}
      </td>
    </tr>
  );
}
