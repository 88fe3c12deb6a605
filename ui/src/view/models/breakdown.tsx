/* Where a token's time goes: what each stage computes and what the ways between them take, one after the other. */
import type { Instance, Placement, PlacementHop, Stage } from "../../lib/api.gen";
import { figure, sentence } from "../../lib/format";
import { inTurn } from "../../state/models";
import { classWord } from "../../state/topology";
import { useApp } from "../app-context";
import { MarkIcon } from "../parts";

interface Row {
  readonly key: string;
  readonly kind: "stage" | "hop" | "rest";
  readonly name: string;
  readonly ms: number | null;
  /** What was predicted for it, where this is measured. */
  readonly predicted?: number | null;
}

const decimals = (ms: number): number => (ms < 0.1 ? 2 : ms < 100 ? 1 : 0);
const text = (ms: number | null | undefined): string => (ms == null ? "not known" : figure(ms, decimals(ms)));

/** Of slices side by side. */
const longest = (slices: readonly Stage[]): number | null =>
  slices.reduce<number | null>((most, { seconds_per_token: s }) => (most === null || s === null ? null : Math.max(most, s)), 0);

function Waterfall({ rows, total, aside }: { rows: readonly Row[]; total: number; aside?: string }) {
  const slowest = rows.reduce<Row | null>((most, row) => ((row.ms ?? 0) > (most?.ms ?? 0) ? row : most), null);
  const compare = rows.some((row) => row.predicted != null);
  let at = 0;
  return (
    <section class="waterfall" aria-label="Time of a token">
      <div class="sub">
        <h3>{compare ? "Time of a token, measured" : "Predicted time per token"}</h3>
        {aside && <p class="small faint">{aside}</p>}
      </div>
      <dl>
        {rows.map((row) => {
          const from = at;
          at += row.ms ?? 0;
          return (
            <div key={row.key} class={`fall ${row.kind} ${row === slowest && rows.length > 1 ? "slowest" : ""}`}>
              <dt class="clip">
                {row === slowest && rows.length > 1 && <MarkIcon mark="throttled" class="mini" />}
                {row.name}
              </dt>
              <dd class="fall-bar">
                <i style={{ "--from": (from / total) * 100, "--v": ((row.ms ?? 0) / total) * 100 }} />
                {row.predicted != null && (
                  <i class="was" style={{ "--from": (from / total) * 100, "--v": Math.min(100, (row.predicted / total) * 100) }} />
                )}
              </dd>
              <dd class="num">
                {text(row.ms)}
                <span class="unit"> ms</span>
              </dd>
              {compare && <dd class="num faint">{row.predicted == null ? "" : `predicted ${text(row.predicted)}`}</dd>}
            </div>
          );
        })}
        <div class="fall together">
          <dt>Together</dt>
          <dd class="fall-bar">
            <i style={{ "--from": 0, "--v": 100 }} />
          </dd>
          <dd class="num">
            <b>{text(total)}</b>
            <span class="unit"> ms</span>
          </dd>
          {compare && <dd />}
        </div>
      </dl>
    </section>
  );
}

/** Of what a placement predicts; nothing where a part of it is not known. */
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
    const name = devices[slices[0]!.device_id]?.record.name ?? slices[0]!.device_id;
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
      name: `${back ? "back to" : "to"} ${nodes[hop.to_node_id]?.record.name ?? hop.to_node_id}, ${classWord(hop.class)}`,
      ms: hop.seconds_per_token === null ? null : hop.seconds_per_token * 1000,
    });
  }
  const known = rows.reduce((sum, row) => sum + (row.ms ?? 0), 0);
  return <Waterfall rows={rows} total={Math.max(known, placement.predicted.seconds_per_token * 1000, 1e-6)} />;
}

/** Of an instance in several parts, as it was in the last second; and which part holds up the others, in words. */
export function MeasuredFall({ instance }: { instance: Instance }) {
  const { state } = useApp();
  const { devices, nodes } = state.value;
  const { timing } = instance;
  if (!timing || timing.parts.length < 2) return null;
  const predictedOf = (node: string): number | null => {
    const mine = instance.stages.filter((one) => devices[one.device_id]?.record.node_id === node);
    const known = mine.every((one) => one.seconds_per_token !== null);
    return mine.length > 0 && known ? inTurn(mine).reduce((sum, one) => sum + longest(one)! * 1000, 0) : null;
  };
  const apart = new Set(timing.parts.map((one) => one.node_id)).size === timing.parts.length;
  const rows: Row[] = timing.parts.map((part, i) => ({
    key: `part ${i}`,
    kind: "stage",
    name: `${i + 1}  ${nodes[part.node_id]?.record.name ?? part.node_id}`,
    ms: part.compute_ms,
    predicted: apart ? predictedOf(part.node_id) : null,
  }));
  const hops = instance.hops.every((one) => one.seconds_per_token !== null)
    ? instance.hops.reduce((sum, one) => sum + one.seconds_per_token! * 1000, 0)
    : null;
  rows.push({ key: "hops", kind: "rest", name: "links and waiting", ms: timing.hops_ms, predicted: hops });
  return (
    <div class="panel-body measured-fall">
      <p class="bottleneck-text">
        <MarkIcon mark="throttled" class="mini" />
        <b>{sentence(timing.bottleneck)}</b>
      </p>
      <Waterfall rows={rows} total={Math.max(timing.step_ms, 1e-6)} aside="in the last second; outlined: as predicted" />
    </div>
  );
}
