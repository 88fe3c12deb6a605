/* One line, five answers: devices, memory, power, CPU, attention. */
import type { ComponentChildren } from "preact";
import { count, figure, memory, memoryOf } from "../../lib/format";
import { readPriceText } from "../../lib/prefs";
import { attention, worstLevel } from "../../state/attention";
import { readyInstances, tokensPerSecond } from "../../state/models";
import { type Vitals as Figures, deviceName, isLive, isSystem, sortedNodes, sumTrails, vitals } from "../../state/select";
import type { State } from "../../state/state";
import { STEPS } from "../../state/trail";
import { costPerHour, readPrice } from "../../state/usage";
import { plural, t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { LostAge, MarkIcon, MemoryBar, NotReported } from "../parts";
import { Spark, ceilingOf } from "../spark";

export function Vitals() {
  const { state } = useApp();
  const all = state.value;
  const sums = vitals(all);
  const live = isLive(all);
  return (
    <section class={`panel vitals ${live ? "" : "stale"}`} aria-label={t`Cluster`}>
      <Vital class="p-dev" label={t`Devices`} sub={live ? statesOf(sums) : <LostAge />}>
        <span class="value">
          {sums.online}
          <span class="unit">{" "}{t`of ${sums.devices} online`}</span>
        </span>
      </Vital>
      <MemoryVital sums={sums} live={live} />
      <PowerVital sums={sums} state={all} live={live} />
      {readyInstances(all.instances).length > 0 ? (
        <TokensVital state={all} live={live} />
      ) : (
        <CpuVital sums={sums} state={all} live={live} />
      )}
      <AttentionVital state={all} live={live} />
    </section>
  );
}

function Vital({
  class: name,
  label,
  sub,
  children,
}: {
  class: string;
  label: string;
  sub: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <div class={`vital ${name}`}>
      <p class="label">{label}</p>
      <div class="row">{children}</div>
      <p class="small quiet two">{sub}</p>
    </div>
  );
}

const statesOf = (sums: Figures): string =>
  sums.states.map(([state, n]) => `${n} ${word(state)}`).join(", ") || t`none found yet`;

function MemoryVital({ sums, live }: { sums: Figures; live: boolean }) {
  const { kind, used, total, pools, reporting } = sums.memory;
  const free = used !== null && total !== null ? memory(total - used) : null;
  const some = reporting < pools ? t`, ${reporting} of ${pools} report` : "";
  const of = used !== null && total !== null ? memoryOf(used, total) : null;
  return (
    <Vital
      class="p-mem"
      label={kind === "gpu" ? t`GPU memory` : t`Host memory`}
      sub={
        !live ? (
          <LostAge />
        ) : free ? (
          t`${free.value} ${free.unit} free${some}`
        ) : total !== null ? (
          t`use not reported`
        ) : sums.devices > 0 && sums.online === 0 ? (
          t`no device is online`
        ) : (
          t`nothing to measure yet`
        )
      }
    >
      {of ? (
        <span class="value">
          {of.used}
          <span class="unit">
            {" "}
            {t`of ${of.total} ${of.unit}`}
          </span>
        </span>
      ) : total !== null ? (
        <span class="value">
          {memory(total).value}
          <span class="unit"> {memory(total).unit}</span>
        </span>
      ) : (
        <NotReported />
      )}
      {of && <MemoryBar used={used} total={total} />}
    </Vital>
  );
}

/** "hottest 71 °C (A), 9 °C to slowdown": the hottest device, and the one that is nearest to slowing down for heat. */
function heatOf({ heat }: Figures, state: State): string {
  if (!heat) return "";
  const { hottest, nearest } = heat;
  const first = t`hottest ${figure(hottest.celsius)} °C (${deviceName(state, hottest.id)})`;
  if (!nearest) return first;
  const left = t`${figure(nearest.margin)} °C to slowdown`;
  return nearest.id === hottest.id ? `${first}, ${left}` : `${first}; ${deviceName(state, nearest.id)} ${left}`;
}

function PowerVital({ sums, state, live }: { sums: Figures; state: State; live: boolean }) {
  const { watts, reporting } = sums.power;
  const reports = plural(sums.devices, t`${reporting} of ${count(sums.devices, "device")} reports`, t`${reporting} of ${count(sums.devices, "device")} report`);
  const values = sumTrails(
    Object.values(state.devices).map((one) => one.trail),
    "power",
  );
  const price = costPerHour(watts, readPrice(readPriceText()));
  return (
    <Vital
      class="p-pow"
      label={price ? t`Power, ${price} per hour` : t`Power`}
      sub={
        !live ? (
          <LostAge />
        ) : reporting === 0 ? (
          t`no device reports it`
        ) : (
          [reporting < sums.devices || !sums.heat ? reports : "", heatOf(sums, state)].filter(Boolean).join("; ")
        )
      }
    >
      {watts === null ? (
        <>
          <NotReported />
          <i class="dots grow" />
        </>
      ) : (
        <>
          <span class="value">
            {figure(watts)}
            <span class="unit"> W</span>
          </span>
          <Spark values={values} max={ceilingOf(values, 10)} tone="grey" />
        </>
      )}
    </Vital>
  );
}

function CpuVital({ sums, state, live }: { sums: Figures; state: State; live: boolean }) {
  const { percent, reporting, nodes } = sums.cpu;
  const cpus = Object.values(state.devices).filter((one) => isSystem(one.record));
  const values = cpus.length
    ? sumTrails(
        cpus.map((one) => one.trail),
        "use",
        true,
      )
    : new Array<null>(STEPS).fill(null);
  const first = sortedNodes(state)[0];
  const threads = first?.record.cpu_threads;
  const load = first?.reading?.load_1m;
  const one = [threads ? count(threads, "thread") : null, load != null ? t`load ${figure(load, 1)}` : null]
    .filter(Boolean)
    .join(", ");
  return (
    <Vital
      class="p-cpu"
      label={t`CPU`}
      sub={
        !live ? (
          <LostAge />
        ) : nodes === 1 && percent !== null ? (
          one || t`one node`
        ) : (
          t`${reporting} of ${nodes} nodes report`
        )
      }
    >
      {percent === null ? (
        <>
          <NotReported />
          <i class="dots grow" />
        </>
      ) : (
        <>
          <span class="value">
            {figure(percent)}
            <span class="unit"> %</span>
          </span>
          <Spark values={values} max={100} tone="grey" />
        </>
      )}
    </Vital>
  );
}

/** In place of the CPU's, once a model is loaded. */
function TokensVital({ state, live }: { state: State; live: boolean }) {
  const ready = readyInstances(state.instances);
  const rate = tokensPerSecond(state.instances);
  const running = ready.reduce((sum, one) => sum + one.running, 0);
  const waiting = ready.reduce((sum, one) => sum + one.waiting, 0);
  const under = running === 0 ? t`no request` : `${count(running, "request")}${waiting ? t`, ${waiting} waiting` : ""}`;
  return (
    <Vital class="p-cpu" label={t`Tokens`} sub={!live ? <LostAge /> : t`${count(ready.length, "model")} running, ${under}`}>
      <span class="value">
        {figure(rate ?? 0, rate !== null && rate < 100 ? 1 : 0)}
        <span class="unit">{" "}{t`per s`}</span>
      </span>
    </Vital>
  );
}

function AttentionVital({ state, live }: { state: State; live: boolean }) {
  const found = attention(state);
  const errors = worstLevel(found) === "error";
  const first = found[0];
  return (
    <Vital class="p-att" label={t`Attention`} sub={!live ? <LostAge /> : first ? first.title : t`nothing to do`}>
      {found.length === 0 ? (
        <span class="value">0</span>
      ) : (
        <span class={`value ${errors ? "crit" : "warm"}`}>
          <MarkIcon mark={errors ? "offline" : "throttled"} class="vital-mark" /> {found.length}
        </span>
      )}
    </Vital>
  );
}
