/* Chooses a draft model: a smaller one with as many tokens, if there is one. */
import type { Model } from "../../lib/api.gen";
import { useApp } from "../app-context";

export function DraftKnob({ model, value, change }: { model: Model; value: string; change: (value: string) => void }) {
  const { state } = useApp();
  const of = model.architecture!;
  const drafts = Object.values(state.value.models).filter(
    (one) =>
      one.state === "ready" &&
      one.architecture?.task === "text" &&
      one.architecture.vocabulary === of.vocabulary &&
      one.architecture.parameters < of.parameters,
  );
  if (drafts.length === 0) return null;
  return (
    <label class="knob">
      <span class="label">Draft model</span>
      <select value={value} onChange={(event) => change(event.currentTarget.value)}>
        <option value="">none</option>
        {drafts.map((one) => (
          <option key={one.model_id} value={one.model_id}>
            {one.name}
          </option>
        ))}
      </select>
    </label>
  );
}
