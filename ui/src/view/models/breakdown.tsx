/* The time of a token: what each stage computes and what each hop takes, one after the other. */
import type { Instance, InstanceTiming, Placement, PlacementHop, Stage } from "../../lib/api.gen";
import { figure, sentence } from "../../lib/format";
import { inTurn } from "../../state/models";
import { deviceLabel } from "../../state/select";
import { holdsUp, isHeldUp } from "../../state/timing";
import type { State } from "../../state/state";
import { classWord } from "../../state/topology";
import { t, tx } from "../../text/text";
import { useApp } from "../app-context";
import { Age, MarkIcon, Named } from "../parts";

interface Row {
  readonly key: string;
  readonly kind: "stage" | "hop" | "rest";
  readonly name: string;
  readonly ms: number | null;
  /** The others wait for it. */
  readonly slow?: boolean;
  /** The prediction, if this one is measured. */
  readonly predicted?: number | null;
}

/** The number of decimals for all rows of a token that takes this long. */
const decimals = (total: number): number => (total < 10 ? 2 : total < 1000 ? 1 : 0);

/** For slices side by side. */
const longest = (slices: readonly Stage[]): number | null =>
  slices.reduce<number | null>((most, { seconds_per_token: s }) => (most === null || s === null ? null : Math.max(most, s)), 0);

function Waterfall({ rows, total, aside }: { rows: readonly Row[]; total: number; aside?: string }) {
  const compare = rows.some((row) => row.predicted != null);
  const text = (ms: number | null): string => (ms === null ? t`not known` : figure(ms, decimals(total)));
  let at = 0;
  const axis = rows.reduce((most, row) => {
    const end = at + Math.max(row.ms ?? 0, row.predicted ?? 0);
    at += row.ms ?? 0;
    return Math.max(most, end);
  }, total);
  at = 0;
  return (
    <section class="waterfall" aria-label={t`Time of a token`}>
      <div class="sub">
        <h3>{compare ? t`Time of a token, measured` : t`Predicted time per token`}</h3>
        {aside && <p class="small faint">{aside}</p>}
      </div>
      <dl>
        {rows.map((row) => {
          const from = at;
          at += row.ms ?? 0;
          return (
            <div key={row.key} class={`fall ${row.kind} ${row.slow ? "slowest" : ""}`}>
              <dt title={row.name}>
                {row.slow && <MarkIcon mark="throttled" class="mini" />}
                <span class="clip">
                  <Named text={row.name} />
                </span>
              </dt>
              <dd class="fall-bar">
                <i style={{ "--from": (from / axis) * 100, "--v": ((row.ms ?? 0) / axis) * 100 }} />
                {row.predicted != null && (
                  <i class="was" style={{ "--from": (from / axis) * 100, "--v": (row.predicted / axis) * 100 }} />
                )}
              </dd>
              <dd class="num">
                {text(row.ms)}
                <span class="unit">{" "}ms</span>
              </dd>
              {compare && <dd class="num faint">{row.predicted == null ? "" : t`predicted ${text(row.predicted)}`}</dd>}
            </div>
          );
        })}
        <div class="fall together">
          <dt>{t`Total`}</dt>
          <dd class="fall-bar">
            <i style={{ "--from": 0, "--v": (total / axis) * 100 }} />
          </dd>
          <dd class="num">
            <b>{text(total)}</b>
            <span class="unit">{" "}ms</span>
          </dd>
          {compare && <dd />}
        </div>
      </dl>
    </section>
  );
}

const hopName = (back: boolean, to: string, way: string): string => (back ? t`back to ${to}, ${way}` : t`to ${to}, ${way}`);

/** The breakdown that a placement predicts; nothing if a part of it is unknown. */
export function PredictedFall({ placement }: { placement: Placement }) {
  const { state } = useApp();
  const { devices, nodes } = state.value;
  if (!placement.predicted || inTurn(placement.stages).length + placement.hops.length < 2) return null;
  const hops = [...placement.hops];
  const rows: Row[] = [];
  const nodeOf = (id: string): string | undefined => devices[id]?.record.node_id;
  const turns = inTurn(placement.stages);
  turns.forEach((slices, i) => {
    const next = turns[i + 1]?.[0];
    const name = deviceLabel(state.value, slices[0]!.device_id);
    const seconds = longest(slices);
    rows.push({
      key: `stage ${i}`,
      kind: "stage",
      name: slices.length > 1 ? `${i + 1}  ${slices.length} × ${name}` : `${i + 1}  ${name}`,
      ms: seconds === null ? null : seconds * 1000,
    });
    if (next && nodeOf(next.device_id) !== nodeOf(slices[0]!.device_id)) push(hops.shift());
  });
  for (const hop of hops) push(hop, true);
  function push(hop: PlacementHop | undefined, back = false): void {
    if (!hop) return;
    rows.push({
      key: `hop ${rows.length}`,
      kind: "hop",
      name: hopName(back, nodes[hop.to_node_id]?.record.name ?? hop.to_node_id, classWord(hop.class)),
      ms: hop.seconds_per_token === null ? null : hop.seconds_per_token * 1000,
    });
  }
  const known = rows.reduce((sum, row) => sum + (row.ms ?? 0), 0);
  const most = rows.reduce((at, row, i) => ((row.ms ?? 0) > (rows[at]?.ms ?? 0) ? i : at), 0);
  const marked = rows.map((row, i) => ({ ...row, slow: i === most && (row.ms ?? 0) > 0 }));
  return <Waterfall rows={marked} total={Math.max(known, placement.predicted.seconds_per_token * 1000, 1e-6)} />;
}

/** The breakdown of an instance with several shards or stages in the last second, and the bottleneck in words. */
export function MeasuredFall({ instance }: { instance: Instance }) {
  const { state } = useApp();
  const { timing } = instance;
  if (!timing) return null;
  const rows = measuredRows(instance, timing, state.value);
  if (rows.length < 2) return null;
  return (
    <div class="panel-body measured-fall">
      {instance.running > 0 ? (
        <p class="bottleneck-text">
          {isHeldUp(instance) && <MarkIcon mark="throttled" class="mini" />}
          <b>{sentence(timing.bottleneck)}</b>
        </p>
      ) : (
        <p class="bottleneck-text quiet">
          {instance.idle_since
            ? tx`Idle. This is how it was when it last worked, ${<Age at={instance.idle_since} />}.`
            : t`Idle. This is how it was when it last worked.`}
        </p>
      )}
      <Waterfall rows={rows} total={Math.max(timing.step_ms, 1e-6)} aside={instance.running > 0 ? t`in the last second; outlined: as predicted` : t`when it last worked; outlined: as predicted`} />
      {timing.hops.length > 0 && (
        <p class="small faint">
          {t`Computing, waiting and the sum of all hops are measured. The time of a single hop is an estimate: its share of that sum, from the round trip and throughput of its path.`}
        </p>
      )}
    </div>
  );
}

const ways = { local: t`on the same machine`, server: t`through the server` } as const;

/** In the order in which a step goes around: to each part, its waiting there, its stages, and on. */
function measuredRows(instance: Instance, timing: InstanceTiming, state: State): Row[] {
  const { nodes } = state;
  const rows: Row[] = [];
  const nameOf = (id: string): string => nodes[id]?.record.name ?? id;
  const predictedStage = (device: string, first: number): number | null => {
    const turn = inTurn(instance.stages).find((one) => one.some((s) => s.device_id === device && s.first_layer === first));
    const seconds = turn ? longest(turn) : null;
    return seconds === null ? null : seconds * 1000;
  };
  const predictedHop = (from: string, to: string): number | null => {
    const seconds = instance.hops.find((one) => one.from_node_id === from && one.to_node_id === to)?.seconds_per_token;
    return seconds == null ? null : seconds * 1000;
  };
  const longWait = 0.02 * timing.step_ms;
  const longestHop = Math.max(...timing.hops.map((one) => one.ms));
  timing.parts.forEach((part, i) => {
    if (part.waited_ms > longWait)
      rows.push({ key: `wait ${i}`, kind: "rest", name: t`waiting for ${nameOf(part.node_id)}`, ms: part.waited_ms });
    for (const stage of part.stages)
      rows.push({
        key: `stage ${stage.device_id} ${stage.first_layer}`,
        kind: "stage",
        name:
          part.stages.length > 1
            ? `${i + 1}  ${deviceLabel(state, stage.device_id)}`
            : `${i + 1}  ${nameOf(part.node_id)}`,
        ms: stage.compute_ms,
        slow: holdsUp(instance, stage),
        predicted: predictedStage(stage.device_id, stage.first_layer),
      });
    const rest = part.compute_ms - part.stages.reduce((sum, one) => sum + one.compute_ms, 0);
    if (part.stages.length > 1 && rest > longWait)
      rows.push({ key: `rest ${i}`, kind: "rest", name: t`choosing tokens on ${nameOf(part.node_id)}`, ms: rest });
    const hop = timing.hops[i];
    if (hop)
      rows.push({
        key: `hop ${i}`,
        kind: "hop",
        name: hopName(i + 1 === timing.parts.length, nameOf(hop.to_node_id), hop.via === "link" ? classWord(hop.class) : ways[hop.via]),
        ms: hop.ms,
        slow: hop.ms === longestHop && holdsUp(instance, "hops"),
        predicted: predictedHop(hop.from_node_id, hop.to_node_id),
      });
  });
  return rows;
}
