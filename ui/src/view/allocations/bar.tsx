/* A device's memory in parts: lent, of models, other use, free; each with its texture, and its figure below. */
import { memory, memoryOf } from "../../lib/format";
import type { Parts } from "../../state/allocations";
import { t } from "../../text/text";
import { Figure } from "../parts";

const share = (part: number | null, total: number): number => (part === null ? 0 : Math.min(100, (part / total) * 100));

/** `axis`: how many bytes the whole width stands for, so that a small card looks small. */
export function PartsBar({ parts, axis }: { parts: Parts; axis: number }) {
  const { lent, models, other, total } = parts;
  if (total === null || total <= 0) return <div class="partbar unknown" />;
  return (
    <div class="partbar" style={{ "--cap": Math.max(2, (total / axis) * 100) }} aria-hidden="true">
      <i class="p-lent" style={{ "--v": share(lent, total) }} />
      <i class="p-models" style={{ "--v": share(models, total) }} />
      <i class="p-other" style={{ "--v": share(other, total) }} />
    </div>
  );
}

export function PartsFigures({ parts }: { parts: Parts }) {
  const { lent, models, other, free, total } = parts;
  const unit = total === null ? memory(lent).unit : memoryOf(lent, total).unit;
  const value = (bytes: number): string => (total === null ? memory(bytes).value : memoryOf(bytes, total).used);
  return (
    <dl class="part-figures">
      <Part name={t`lent`} class="p-lent" {...memory(lent)} />
      {models > 0 && <Part name={t`models`} class="p-models" value={value(models)} unit={unit} />}
      <Part name={t`other use`} class="p-other" value={other === null ? null : value(other)} unit={unit} />
      <Part name={t`free`} class="p-free" value={free === null ? null : value(free)} unit={unit} />
      <Part name={t`in all`} value={total === null ? null : value(total)} unit={unit} />
    </dl>
  );
}

function Part({ name, class: tint, value, unit }: { name: string; class?: string; value: string | null; unit: string }) {
  return (
    <div>
      <dt>
        {tint && <i class={tint} aria-hidden="true" />}
        {name}
      </dt>
      <dd>{value === null ? <span class="not-reported">{t`not reported`}</span> : <Figure value={value} unit={unit} />}</dd>
    </div>
  );
}
