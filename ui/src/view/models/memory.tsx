/* Memory of a stage on one axis with the others, the layers it has, and the words for them. */
import type { Stage } from "../../lib/api.gen";
import { memory } from "../../lib/format";
import { deviceHref } from "../../lib/route";
import { deviceName } from "../../state/select";
import { type Segment, segments, stageBytes, stageParts } from "../../state/models";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { MarkIcon } from "../parts";

const words: Record<Segment["kind"], string> = {
  other: t`other use`,
  weights: t`weights`,
  kv: t`KV cache`,
  work: t`workspace`,
  free: t`free`,
};

/** In a preview: what is free is told less what is kept free. */
export const NOT_FREE = t`other use and reserve`;

export const MemoryLegend = () => (
  <p class="legend">
    {(Object.keys(words) as Segment["kind"][]).map((kind) => (
      <span key={kind}>
        <i class={`seg-${kind}`} />
        {kind === "other" ? NOT_FREE : words[kind]}
      </span>
    ))}
  </p>
);

/** One tooth per layer of the model, this stage's lit. */
export function Comb({ stage, layers }: { stage: Stage; layers: number }) {
  const pitch = layers > 64 ? 2 : 4;
  const to = stage.first_layer + stage.layer_count;
  return (
    <span
      class={`comb ${stage.layer_count === 0 ? "none" : ""}`}
      role="img"
      aria-label={stageParts(stage)}
      style={{ "--n": layers, "--from": stage.first_layer, "--to": to, "--pitch": `${pitch}px` }}
    />
  );
}

export function StageMemory({
  stage,
  layers,
  total,
  free,
  given = 0,
  lacks,
  axis,
  slice = null,
  notFree = words.other,
}: {
  stage: Stage;
  /** Its number among slices with the same layers; null: it has them alone. */
  slice?: string | null;
  layers: number;
  /** The device's memory. */
  total: number;
  /** The free part of it, without this stage; null if not reported. */
  free: number | null;
  /** The part of it that evictable idle models hold. */
  given?: number;
  /** Bytes missing on the device for everything that should go there; without it, for this stage alone. */
  lacks?: number;
  axis: number;
  /** The holders of memory that is neither free nor this stage's. */
  notFree?: string;
}) {
  const { state } = useApp();
  const { devices, nodes } = state.value;
  const entry = devices[stage.device_id];
  const room = free === null ? null : free + given;
  const parts = segments(stage, total, room);
  const over = lacks ?? Math.max(0, stageBytes(stage) - (room ?? total));
  const text = (bytes: number): string => {
    const { value, unit } = memory(bytes);
    return `${value} ${unit}`;
  };
  return (
    <li class="stage-row">
      <span class="stage-who">
        <b>
          <a href={deviceHref(stage.device_id)}>{deviceName(state.value, stage.device_id)}</a>
        </b>
        <span class="small faint">{entry ? nodes[entry.record.node_id]?.record.name : t`no longer here`}</span>
      </span>
      <span class="stage-mem">
        <span class={`mem ${over > 0 ? "over" : ""}`} style={{ "--cap": (total / axis) * 100 }}>
          {parts.map(({ kind, bytes }) => (
            <i key={kind} class={`seg-${kind}`} style={{ "--v": (bytes / Math.max(1, total)) * 100 }} />
          ))}
        </span>
        <span class="figs small">
          {parts
            .filter((one) => one.bytes > 0)
            .map(({ kind, bytes }) => (
              <span key={kind}>
                {kind === "other" ? notFree : words[kind]} <b>{text(bytes)}</b>
              </span>
            ))}
          <span>
            {t`of`}{" "}<b>{text(total)}</b>
          </span>
          {stage.host_bytes > 0 && stage.host_layers === 0 && (
            <span>
              {t`the embedding's table in host memory`}{" "}<b>{text(stage.host_bytes)}</b>
            </span>
          )}
          {stage.host_layers > 0 && (
            <span class="warm">
              <MarkIcon mark="throttled" class="mini" /> {t`${stage.host_layers} layers, ${text(stage.host_bytes)} in host memory`}
            </span>
          )}
          {given > 0 && (
            <span class="warm">
              <MarkIcon mark="throttled" class="mini" /> {t`${text(given)} of it once idle models are evicted`}
            </span>
          )}
          {over > 0 && (
            <span class="crit">
              <MarkIcon mark="offline" class="mini" /> {t`${text(over)} more than is free`}
            </span>
          )}
        </span>
        <span class="stage-layers small">
          <Comb stage={stage} layers={layers} />
          <span class="faint">
            {stageParts(stage)}
            {slice && `; ${slice}`}
          </span>
        </span>
      </span>
    </li>
  );
}
