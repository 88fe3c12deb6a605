/* The distances between machines: the drawing, every link in figures, and discovery. */
import { useEffect, useState } from "preact/hooks";
import { isRefused } from "../../command/models";
import { readSummary } from "../../command/topology";
import type { TopologySummary } from "../../lib/api.gen";
import { count, figure, memory, sentence } from "../../lib/format";
import { isLive, machinesText, members } from "../../state/select";
import {
  type Pair,
  SERVER,
  bitRate,
  classWord,
  latency,
  linkedPairs,
  pairClass,
  pairRtt,
  pairState,
  pairTrouble,
  pairsOf,
} from "../../state/topology";
import { plural, t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { Command } from "../command-line";
import { Age, Figure, type Mark, MarkIcon, NotReported, Panel } from "../parts";
import { Page } from "../shell";
import { Servers } from "../servers/lazy";
import { HeardPanel } from "./heard";
import { LinkPanel } from "./link";
import { PeersPanel } from "./peers";
import { Matrix, WIRES_MAX, Wires, WiresKey } from "./wires";

const SUMMARY_MS = 5000;

/** Asked while the page is open: it is about all links together. */
function useSummary(): TopologySummary | null {
  const { state, server } = useApp();
  const [summary, setSummary] = useState<TopologySummary | null>(null);
  const live = isLive(state.value);
  const members = Object.values(state.value.nodes)
    .map(({ record }) => `${record.node_id} ${record.state}`)
    .join();
  useEffect(() => {
    if (!live) return;
    const read = async (): Promise<void> => {
      if (document.hidden) return;
      const outcome = await readSummary(server);
      if (!isRefused(outcome)) setSummary(outcome);
    };
    void read();
    const timer = setInterval(() => void read(), SUMMARY_MS);
    return () => clearInterval(timer);
  }, [live, members]);
  return summary;
}

export function TopologyPage() {
  const { state } = useApp();
  const [chosen, setChosen] = useState<string | null>(null);
  const summary = useSummary();
  const pairs = pairsOf(state.value);
  const nodes = Object.keys(state.value.nodes).length;
  const pair = pairs.find((one) => one.key === chosen);
  const choose = (key: string): void => setChosen(key === chosen ? null : key);
  return (
    <Page title={t`Topology`}>
      <div class="stack">
        {summary && members(state.value).length > 1 && <Summary summary={summary} />}
        <Panel
          title={t`Machines and links`}
          class="wires-panel"
          aside={[machinesText(state.value), nodes > 1 && count(linkedPairs(pairs), "direct link")].filter(Boolean).join(", ")}
        >
          {nodes > WIRES_MAX ? (
            <Matrix pairs={pairs} chosen={chosen} choose={choose} />
          ) : (
            nodes > 0 && (
              <div class="wires-room">
                <Wires pairs={pairs} chosen={chosen} choose={choose} />
              </div>
            )
          )}
          {pairs.length > 0 && nodes <= WIRES_MAX && <WiresKey />}
          {members(state.value).length < 2 && <Alone none={members(state.value).length === 0} />}
        </Panel>
        {pair && <LinkPanel key={pair.key} pair={pair} close={() => setChosen(null)} />}
        {pairs.length > 0 && <Links pairs={pairs} chosen={chosen} choose={choose} />}
        <PeersPanel />
        <Servers as="panel" />
        <HeardPanel />
      </div>
    </Page>
  );
}

function Alone({ none }: { none: boolean }) {
  const { tls } = useApp().state.value.server ?? { tls: false };
  return (
    <div class="panel-body alone">
      <p>
        {none ? t`No machine yet.` : t`One machine, so there are no links.`}{" "}
        {tls
          ? t`On another machine of this network this command finds the server, and asks to be let in:`
          : t`This server listens on its own machine only. Start it for the network, and other machines can join:`}
      </p>
      <Command text={tls ? "exogpu node" : "exogpu serve --lan"} />
    </div>
  );
}

function Summary({ summary }: { summary: TopologySummary }) {
  const { state } = useApp();
  const { bottleneck } = summary;
  return (
    <section class="panel vitals topo-vitals" aria-label={t`The cluster as one machine`}>
      <div class="vital">
        <p class="label">{t`Total memory`}</p>
        <p class="row">
          <span class="value">
            <Figure {...memory(summary.memory_bytes)} />
          </span>
        </p>
        <p class="small faint">
          {t`${count(summary.devices, "device")} on ${count(summary.nodes, "machine")}`}
        </p>
      </div>
      <div class="vital">
        <p class="label">{t`Round trip of links, mean`}</p>
        <p class="row">
          <span class="value">
            {summary.mean_rtt_ms === null ? <NotMeasured /> : <Figure {...latency(summary.mean_rtt_ms)} />}
          </span>
        </p>
        <p class="small faint">
          {summary.diameter_ms !== null && t`${latency(summary.diameter_ms).value} ms between the two most distant machines`}
        </p>
      </div>
      <div class="vital">
        <p class="label">{t`Throughput of links, mean`}</p>
        <p class="row">
          <span class="value">
            {summary.mean_throughput_bytes_per_s === null ? (
              <NotMeasured />
            ) : (
              <Figure {...bitRate(summary.mean_throughput_bytes_per_s)} />
            )}
          </span>
        </p>
        <p class="small faint">
          {t`${figure(summary.direct_pairs)} of ${count(summary.pairs, "pair")} linked directly`}
        </p>
      </div>
      <div class="vital bottleneck">
        <p class="label">{t`Slowest`}</p>
        {bottleneck ? (
          <p class="small">{sentence(bottleneck.text)}</p>
        ) : (
          <p class="small quiet">{isLive(state.value) ? t`No link slows the others down now.` : t`No link slows the others down.`}</p>
        )}
        {summary.degraded > 0 && (
          <p class="small warm">
            <MarkIcon mark="throttled" class="mini" /> {plural(
              summary.degraded,
              t`${count(summary.degraded, "link direction")} slower than its kind should be`,
              t`${count(summary.degraded, "link direction")} slower than their kind should be`,
            )}
          </p>
        )}
      </div>
    </section>
  );
}

const NotMeasured = () => <span class="not-reported">{t`not measured yet`}</span>;

const marks: Record<ReturnType<typeof pairState>, Mark> = {
  up: "ok",
  degraded: "throttled",
  down: "offline",
  stale: "stale",
};

/** With more links than this, the worst are shown first, the others on request. */
const LINKS_SHOWN = 20;
const rank: Record<ReturnType<typeof pairState>, number> = { degraded: 0, down: 1, stale: 2, up: 3 };

function Links({
  pairs,
  chosen,
  choose,
}: {
  pairs: readonly Pair[];
  chosen: string | null;
  choose: (key: string) => void;
}) {
  const [all, setAll] = useState(false);
  const many = pairs.length > LINKS_SHOWN;
  const shown = all || !many ? pairs : [...pairs].sort((a, b) => rank[pairState(a)] - rank[pairState(b)]).slice(0, LINKS_SHOWN);
  return (
    <Panel title={t`Links`} class="links-panel" aside={t`select a row for its history`}>
      <div class="table-wrap">
        <table class="links">
          <thead>
            <tr>
              <th scope="col">{t`Between`}</th>
              <th scope="col">{t`Kind`}</th>
              <th scope="col" class="num">
                {t`Round trip`}
              </th>
              <th scope="col" class="num">
                {t`Throughput there`}
              </th>
              <th scope="col" class="num">
                {t`and back`}
              </th>
              <th scope="col" class="num">
                {t`Retransmitted`}
              </th>
              <th scope="col">{t`State`}</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((pair) => (
              <LinkRow key={pair.key} pair={pair} chosen={chosen === pair.key} choose={choose} />
            ))}
          </tbody>
        </table>
      </div>
      {many && (
        <p class="more">
          <button class="btn small-btn" type="button" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? t`Show fewer` : t`Show all ${count(pairs.length, "link")}`}
          </button>
        </p>
      )}
    </Panel>
  );
}

function LinkRow({ pair, chosen, choose }: { pair: Pair; chosen: boolean; choose: (key: string) => void }) {
  const { state } = useApp();
  const { nodes } = state.value;
  const name = (id: string): string => (id === SERVER ? t`the server` : (nodes[id]?.record.name ?? id));
  const how = pairState(pair);
  const rtt = pairRtt(pair);
  const losses = [pair.there?.loss_percent, pair.back?.loss_percent].filter((one) => one != null);
  const trouble = pairTrouble(pair);
  const through = (value: number | null | undefined) =>
    value == null ? <NotMeasured /> : <Figure {...bitRate(value)} />;
  return (
    <tr class={`${chosen ? "chosen" : ""} ${how}`}>
      <th scope="row">
        <button type="button" class="text-btn" aria-pressed={chosen} onClick={() => choose(pair.key)}>
          <span class="clip">{name(pair.a)}</span>
          <span class="faint">{" "}{t`to`}{" "}</span>
          <span class="clip">{name(pair.b)}</span>
        </button>
      </th>
      <td>{how === "down" ? <span class="faint">{t`no link`}</span> : classWord(pairClass(pair))}</td>
      <td class="num" data-label={t`round trip`}>
        {rtt === null ? <NotMeasured /> : <Figure {...latency(rtt)} />}
      </td>
      <td class="num" data-label={t`there`}>
        {through(pair.there?.throughput_bytes_per_s)}
      </td>
      <td class="num" data-label={t`back`}>
        {through(pair.b === SERVER ? pair.there?.throughput_back_bytes_per_s : pair.back?.throughput_bytes_per_s)}
      </td>
      <td class="num" data-label={t`retransmitted`}>
        {losses.length ? <Figure value={figure(Math.max(...losses), 2)} unit="%" /> : <NotReported />}
      </td>
      <td title={trouble ? sentence(trouble) : undefined}>
        <span class="state" data-state={marks[how]}>
          <MarkIcon mark={marks[how]} />
          {word(how)}
        </span>
        {how !== "up" && (
          <span class="small faint">
            {" "}
            <Age at={pair.there?.measured_at ?? pair.back?.measured_at ?? null} />
          </span>
        )}
      </td>
    </tr>
  );
}
