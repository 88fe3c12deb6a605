/* Loaded models: place, speed, and, on several devices, the time of a token by stage and hop. */
import type { Instance, InstanceTiming } from "../../lib/api.gen";
import { count, figure, sentence } from "../../lib/format";
import { modelHref } from "../../lib/route";
import { offerText, sortedInstances } from "../../state/models";
import { deviceLabel, deviceName } from "../../state/select";
import { holdsUp } from "../../state/timing";
import { t, tx } from "../../text/text";
import { useApp } from "../app-context";
import { InstanceState } from "../models/state";
import { Age, Figure, MarkIcon, Panel } from "../parts";

const SHOWN = 4;

export function RunningModels() {
  const { state } = useApp();
  const all = sortedInstances(state.value.instances);
  const running = all.filter((one) => one.state === "running").length;
  if (all.length === 0) return null;
  const aside = running === all.length ? t`${running} running` : t`${running} of ${all.length} running`;
  return (
    <Panel title={<a href="#/models">{t`Models`}</a>} label={t`Loaded models`} class="run-panel" aside={aside}>
      <ul class="rows">
        {all.slice(0, SHOWN).map((one) => (
          <Row key={one.instance_id} instance={one} />
        ))}
      </ul>
      {all.length > SHOWN && (
        <p class="more small">
          <a class="link" href="#/models">
            {t`${all.length - SHOWN} more on the page Models`}
          </a>
        </p>
      )}
    </Panel>
  );
}

function Row({ instance }: { instance: Instance }) {
  const { state } = useApp();
  const { devices, nodes } = state.value;
  const { timing } = instance;
  const stages = instance.stages.filter((one) => devices[one.device_id]); // its place of before may be gone
  const first = stages[0]?.device_id;
  const machines = [...new Set(stages.map((one) => nodes[devices[one.device_id]?.record.node_id ?? ""]?.record.name ?? ""))].filter(Boolean);
  return (
    <li class="run-row">
      <span class="run-what">
        <b class="clip">
          <a href={modelHref(instance.model_id)}>{instance.model_name}</a>
        </b>
        <span class="small quiet">
          {instance.format}
          {stages.length === 1 && first && t` on ${deviceLabel(state.value, first)}`}
          {stages.length > 1 && t` on ${count(stages.length, "device")} of ${machines.join(", ")}`}
        </span>
      </span>
      <span class="run-speed">
        {instance.tokens_per_s !== null && instance.tokens_per_s > 0 && (
          <span class="num">
            <Figure value={figure(instance.tokens_per_s, instance.tokens_per_s < 100 ? 1 : 0)} unit={t`tokens per s`} />
          </span>
        )}
        <InstanceState instance={instance} />
      </span>
      {instance.state === "running" && timing && timing.hops.length > 0 && <Time instance={instance} timing={timing} />}
    </li>
  );
}

/** One step from its beginning to its end; what holds it up apart, and the words for it. */
function Time({ instance, timing }: { instance: Instance; timing: InstanceTiming }) {
  const { state } = useApp();
  const idle = instance.running === 0;
  const stages = timing.parts.flatMap((part) =>
    part.stages.map((one) => ({
      ...one,
      name: part.stages.length > 1 ? deviceName(state.value, one.device_id) : (state.value.nodes[part.node_id]?.record.name ?? one.device_id),
    })),
  );
  const share = (ms: number) => ({ "--v": (ms / Math.max(timing.step_ms, 1e-6)) * 100 });
  const mark = <MarkIcon mark="throttled" class="mini" />;
  const hops = holdsUp(instance, "hops");
  return (
    <div class={`run-time ${idle ? "idle" : ""}`}>
      <span class="time-bar" aria-hidden="true">
        {timing.parts.map((part, i) => [
          <i key={`wait ${i}`} class="rest" style={share(part.waited_ms)} />,
          ...part.stages.map((one) => (
            <i key={`${one.device_id} ${one.first_layer}`} class={holdsUp(instance, one) ? "slowest" : "stage"} style={share(one.compute_ms)} />
          )),
          <i key={`hop ${i}`} class={hops ? "hop slowest" : "hop"} style={share(timing.hops[i]?.ms ?? 0)} />,
        ])}
      </span>
      <span class="figs small">
        {stages.map((one) => (
          <span key={`${one.device_id} ${one.first_layer}`} class={holdsUp(instance, one) ? "warm" : ""}>
            {holdsUp(instance, one) && mark} {one.name} <b>{figure(one.compute_ms, 1)}</b> ms
          </span>
        ))}
        <span class={hops ? "warm" : ""}>
          {hops && mark}{" "}{tx`links ${<b>{figure(timing.hops_ms, 1)}</b>} ms`}
        </span>
        <span>
          {tx`total ${<b>{figure(timing.step_ms, 1)}</b>} ms`}
        </span>
      </span>
      {idle ? (
        <p class="small quiet">
          {instance.idle_since
            ? tx`Idle. This is how it was when it last worked, ${<Age at={instance.idle_since} />}.`
            : t`Idle. This is how it was when it last worked.`}
        </p>
      ) : (
        <p class="small quiet">{sentence(timing.bottleneck)}</p>
      )}
      {instance.offer && (
        <p class="small">
          <a class="btn small-btn" href={modelHref(instance.model_id)}>
            {offerText(state.value, instance.offer)}
          </a>
        </p>
      )}
    </div>
  );
}
