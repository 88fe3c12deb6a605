/* The four figures of the wall view: devices, memory, what is being generated, power. */
import type { ComponentChildren } from "preact";
import { count, figure, memoryOf } from "../../lib/format";
import { readyInstances, tokensPerSecond } from "../../state/models";
import { machinesText, vitals } from "../../state/select";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { Figure, MemoryBar, NotReported } from "../parts";

function One({ label, sub, children }: { label: string; sub: string; children: ComponentChildren }) {
  return (
    <div class="wall-vital">
      <p class="wall-label">{label}</p>
      <p class="wall-figure">{children}</p>
      <p class="wall-sub">{sub}</p>
    </div>
  );
}

export function WallVitals() {
  const { state } = useApp();
  const all = state.value;
  const { devices, online, states, memory, power, cpu, heat } = vitals(all);
  const of = memory.used !== null && memory.total !== null ? memoryOf(memory.used, memory.total) : null;
  const ready = readyInstances(all.instances);
  const asked = ready.reduce((sum, one) => sum + one.running + one.waiting, 0);
  const rate = tokensPerSecond(all.instances) ?? 0;
  return (
    <section class="panel wall-vitals" aria-label={t`Cluster`}>
      <One label={machinesText(all)} sub={states.map(([state, n]) => `${n} ${word(state)}`).join(", ") || t`no device found yet`}>
        <Figure value={figure(online)} unit={t`of ${count(devices, "device")}`} />
      </One>
      <One
        label={memory.kind === "gpu" ? t`GPU memory` : t`Host memory`}
        sub={memory.reporting < memory.pools ? t`${memory.reporting} of ${memory.pools} report` : t`in use`}
      >
        {of ? <Figure value={of.used} unit={t`of ${of.total} ${of.unit}`} /> : <NotReported />}
        {of && <MemoryBar used={memory.used} total={memory.total} />}
      </One>
      {ready.length > 0 ? (
        <One label={t`${count(ready.length, "model")} running`} sub={asked > 0 ? count(asked, "request") : t`no request`}>
          <Figure value={figure(rate, rate < 100 ? 1 : 0)} unit={t`tokens per s`} />
        </One>
      ) : (
        <One label={t`CPU`} sub={t`no model is loaded`}>
          {cpu.percent === null ? <NotReported /> : <Figure value={figure(cpu.percent)} unit="%" />}
        </One>
      )}
      <One
        label={t`Power`}
        sub={[
          power.reporting === 0 ? t`no device reports it` : t`${power.reporting} of ${count(devices, "device")} report`,
          heat ? t`hottest ${figure(heat.hottest.celsius)} °C` : "",
        ]
          .filter(Boolean)
          .join(", ")}
      >
        {power.watts === null ? <NotReported /> : <Figure value={figure(power.watts)} unit="W" />}
      </One>
    </section>
  );
}
