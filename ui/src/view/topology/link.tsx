/* One pair of machines: both directions in figures, and how they were over an hour, a day or 30 days. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Range, type Series, spans } from "../../command/history";
import { isRefused } from "../../command/models";
import type { Refusal } from "../../command/tried";
import { loadLinkHistory } from "../../command/topology";
import type { Link } from "../../lib/api.gen";
import { figure, rate, sentence } from "../../lib/format";
import { isLive, serverTime } from "../../state/select";
import { type Pair, SERVER, bitRate, classWord, latency, pairTrouble } from "../../state/topology";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { Chart, type ChartSpec } from "../device/chart";
import { Age, Figure, MarkIcon, NotReported, Panel, RefusalNote } from "../parts";

type LinkRange = Exclude<Range, "10min">;

const milliseconds = (value: number): string => `${latency(value).value} ms`;
const perSecond = (value: number): string => `${bitRate(value).value} ${bitRate(value).unit}`;

const specs: ChartSpec[] = [
  {
    title: t`Round trip`,
    lines: [
      { column: "rtt_ms", name: t`round trip` },
      { column: "jitter_ms", name: t`jitter` },
    ],
    top: null,
    text: milliseconds,
    tick: (value) => figure(value, value < 10 ? 1 : 0),
  },
  { title: t`Throughput`, lines: [{ column: "throughput_bytes_per_s", name: t`throughput` }], top: null, text: perSecond },
  {
    title: t`Retransmitted`,
    lines: [{ column: "loss_percent", name: t`of segments` }],
    top: 1,
    text: (value) => `${figure(value, 2)} %`,
    tick: (value) => figure(value, 1),
  },
];

export function LinkPanel({ pair, close }: { pair: Pair; close: () => void }) {
  const { state } = useApp();
  const { nodes } = state.value;
  const name = (id: string): string => (id === SERVER ? t`the server` : (nodes[id]?.record.name ?? id));
  const trouble = pairTrouble(pair);
  return (
    <Panel
      class="link-panel"
      title={t`${name(pair.a)} and ${name(pair.b)}`}
      aside={
        <button class="text-btn" type="button" onClick={close}>
          {t`Close`}
        </button>
      }
    >
      {trouble && (
        <p class="panel-body small warm trouble">
          <MarkIcon mark="throttled" class="mini" /> {sentence(trouble)}
        </p>
      )}
      <div class="directions">
        <Direction link={pair.there} from={name(pair.a)} to={name(pair.b)} />
        {pair.b !== SERVER && <Direction link={pair.back} from={name(pair.b)} to={name(pair.a)} />}
      </div>
      <LinkHistory pair={pair} name={name} />
    </Panel>
  );
}

const Maybe = ({ value, text }: { value: number | null; text: (value: number) => { value: string; unit: string } }) =>
  value === null ? <NotReported /> : <Figure {...text(value)} />;

function Direction({ link, from, to }: { link: Link | null; from: string; to: string }) {
  return (
    <dl class="facts panel-body">
      <dt class="wide">
        {t`from ${from} to ${to}`}
      </dt>
      <dd class="wide">{link ? <LinkState link={link} /> : <span class="quiet">{t`no report yet`}</span>}</dd>
      {link && (
        <>
          <dt>{t`Round trip`}</dt>
          <dd>
            <Maybe value={link.rtt_ms} text={latency} />
            {link.jitter_ms !== null && <span class="faint">{t`, jitter ${milliseconds(link.jitter_ms)}`}</span>}
          </dd>
          <dt>{t`Throughput`}</dt>
          <dd>
            <Maybe value={link.throughput_bytes_per_s} text={bitRate} />
            {link.throughput_at && (
              <span class="faint">
                , <Age at={link.throughput_at} />
              </span>
            )}
          </dd>
          {link.to_node_id === SERVER && (
            <>
              <dt>{t`Throughput back`}</dt>
              <dd>
                <Maybe value={link.throughput_back_bytes_per_s} text={bitRate} />
              </dd>
            </>
          )}
          <dt>{t`Retransmitted`}</dt>
          <dd>
            <Maybe value={link.loss_percent} text={(value) => ({ value: figure(value, 2), unit: t`% of segments` })} />
          </dd>
          <dt>{t`Traffic`}</dt>
          <dd>
            <Maybe value={link.sent_bytes_per_s} text={rate} />
          </dd>
          <dt>{t`Path`}</dt>
          <dd>
            {classWord(link.class)}
            <span class="faint">
              {link.interface && `, ${link.interface}`}
              {link.interface_bits_per_s !== null && ` (${perSecond(link.interface_bits_per_s / 8)})`}
              {link.address && t`, to ${link.address}`}
            </span>
          </dd>
          <dt>{t`Measured`}</dt>
          <dd>
            <Age at={link.measured_at} />
          </dd>
        </>
      )}
    </dl>
  );
}

function LinkState({ link }: { link: Link }) {
  const mark = link.state === "stale" ? "stale" : link.state === "down" ? "offline" : link.degraded ? "throttled" : "ok";
  return (
    <span class="state" data-state={mark}>
      <MarkIcon mark={mark} />
      {word(link.state === "up" && link.degraded ? "degraded" : link.state)}
    </span>
  );
}

function LinkHistory({ pair, name }: { pair: Pair; name: (id: string) => string }) {
  const { state, server } = useApp();
  const [range, setRange] = useState<LinkRange>("1h");
  const [back, setBack] = useState(false);
  const [loaded, setLoaded] = useState<{ key: string; series: Series; to: number } | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const hover = useSignal<number | null>(null);
  const [from, to] = back ? [pair.b, pair.a] : [pair.a, pair.b];
  const key = `${range} ${from} ${to}`;
  const live = isLive(state.value);
  useEffect(() => {
    if (!live) return;
    let gone = false;
    const read = async (): Promise<void> => {
      const at = serverTime(state.peek(), Date.now());
      const outcome = await loadLinkHistory(server, from, to, range, at);
      if (gone) return;
      const refused = isRefused(outcome);
      setRefusal(refused ? outcome : null);
      if (!refused) setLoaded({ key, series: outcome, to: at });
    };
    void read();
    const timer = setInterval(() => void read(), 60_000);
    return () => {
      gone = true;
      clearInterval(timer);
    };
  }, [key, live]);
  const shown = loaded?.key === key ? loaded : null;
  const empty = useMemo<Series>(() => ({ times: [], columns: {} }), []);
  const end = (shown?.to ?? serverTime(state.value, Date.now())) / 1000;
  return (
    <div class="link-history">
      <div class="sub panel-body">
        <h3>{t`Minute averages`}</h3>
        {pair.b !== SERVER && (
          <select
            aria-label={t`Direction`}
            value={back ? "back" : "there"}
            onChange={(event) => setBack(event.currentTarget.value === "back")}
          >
            <option value="there">{t`sent by ${name(pair.a)}`}</option>
            <option value="back">{t`sent by ${name(pair.b)}`}</option>
          </select>
        )}
        <span class="seg" role="group" aria-label={t`Span`}>
          {(["1h", "24h", "30d"] as const).map((one) => (
            <button key={one} type="button" aria-pressed={range === one} onClick={() => setRange(one)}>
              {spans[one].name}
            </button>
          ))}
        </span>
      </div>
      {refusal && (
        <div class="panel-body">
          <RefusalNote refusal={refusal} />
        </div>
      )}
      <div class="link-charts">
        {specs.map((spec) => (
          <Chart
            key={spec.title}
            spec={spec}
            series={shown?.series ?? empty}
            loading={!shown && !refusal}
            reported
            from={end - spans[range].ms / 1000}
            to={end}
            range={range}
            hover={hover}
          />
        ))}
      </div>
    </div>
  );
}
