/* A model that is chosen and not loaded: the button that loads it, how far it is, and why it was not. */
import { useState } from "preact/hooks";
import { loadModel } from "../../command/models";
import type { Refusal } from "../../command/tried";
import type { Model } from "../../lib/api.gen";
import { sentence } from "../../lib/format";
import { modelHref } from "../../lib/route";
import { instancesOf, mayManage } from "../../state/models";
import { obstacle } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Loading } from "../models/instance";
import { Icon, MarkIcon, RefusalNote } from "../parts";

export function LoadModel({ model }: { model: Model }) {
  const { state, server } = useApp();
  const [asking, setAsking] = useState(false);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const all = instancesOf(state.value, model.model_id);
  const coming = all.find((one) => one.state === "starting");
  const held = all.find((one) => one.state === "failed");
  const why = obstacle(state.value);
  const load = async (): Promise<void> => {
    setAsking(true);
    setRefusal(await loadModel(server, { model_id: model.model_id }));
    setAsking(false);
  };
  if (coming)
    return (
      <div class="begin" role="status">
        <Icon name="playground" />
        <p>{t`${model.name} is being loaded.`}</p>
        {coming.progress && <Loading progress={coming.progress} />}
      </div>
    );
  return (
    <div class="begin">
      <Icon name="playground" />
      <p>
        {t`${model.name} is not loaded.`}
      </p>
      {held && (
        <p class="small trouble">
          <MarkIcon mark="offline" class="mini" /> {sentence(held.state_reason ?? t`it has failed`)}
        </p>
      )}
      {!mayManage(state.value.login) && <p class="small">{t`Only an admin can load models.`}</p>}
      {mayManage(state.value.login) && (
        <button class="btn primary" type="button" disabled={why !== null || asking} title={why ?? undefined} onClick={() => void load()}>
          {asking ? t`Loading` : t`Load`}
        </button>
      )}
      <RefusalNote refusal={refusal} />
      <a class="small" href={modelHref(model.model_id)}>
        {t`Preview its placement`}
      </a>
    </div>
  );
}
