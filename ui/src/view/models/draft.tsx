/* Chooses a draft model: a smaller one with as many tokens, if there is one. Says what it takes and brings. */
import type { Model, Placement } from "../../lib/api.gen";
import { deviceLabel } from "../../state/select";
import { t } from "../../text/text";
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
      <span class="label">{t`Draft model`}</span>
      <select value={value} onChange={(event) => change(event.currentTarget.value)}>
        <option value="">{t`none`}</option>
        {drafts.map((one) => (
          <option key={one.model_id} value={one.model_id}>
            {one.name}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Its memory is in that of the stage that predicts; how fast it makes the model nobody knows before it answers. */
export function DraftNote({ draft, placement }: { draft: string; placement: Placement }) {
  const { state } = useApp();
  const name = state.value.models[draft]?.name ?? draft;
  const last = placement.stages.at(-1);
  if (!last) return null;
  return (
    <p class="panel-body small quiet" role="note">
      {t`${name} lies on ${deviceLabel(state.value, last.device_id)}, beside the last layers. The memory below includes it. The speed is predicted without it: how much it brings depends on how many of its tokens are right, which each answer tells.`}
    </p>
  );
}
