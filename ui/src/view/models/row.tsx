/* A model in the list: what it is, how far it has come, and what can be done with it. */
import { removeModel } from "../../command/models";
import { begun, isBegun, start } from "../../command/start";
import { isAsked, later } from "../../command/toasts";
import type { Model, ModelArchitecture, ModelProgress } from "../../lib/api.gen";
import { age, count, figure, memory, rate, sentence } from "../../lib/format";
import { modelHref, playgroundHref } from "../../lib/route";
import { describeModel, instancesOf, mayAsk, mayManage, purpose, secondsLeft, shareDone, talks, uploadOf } from "../../state/models";
import { obstacle } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { AskButton } from "../ask";
import { Figure, MarkIcon, RefusalNote } from "../parts";
import { GoOn, progressOf } from "./upload";

/** What it cannot do, or does instead of talking. */
function also(of: ModelArchitecture): string {
  const what = purpose(of) ?? (of.chat_template ? null : t`completes only: no known chat template`);
  return what ? `, ${what}` : "";
}

export function ModelRow({ model }: { model: Model }) {
  const { state } = useApp();
  const admin = mayManage(state.value.login);
  const { architecture: of } = model;
  return (
    <li class="model-row">
      <span class="model-what">
        <b class="clip">
          <a href={modelHref(model.model_id)}>{model.name}</a>
        </b>
        <span class="small quiet">
          {of
            ? t`${describeModel(of)}, ${count(of.layers, "layer")}, context ${figure(of.context_tokens)}${also(of)}`
            : model.source}
        </span>
        <ModelTrouble model={model} />
        <Progress of={progressOf(model)} />
        {admin && <GoOn model={model} />}
      </span>
      <span class="num">{model.file_bytes !== null && <Figure {...memory(model.file_bytes)} />}</span>
      <span class="acts">
        <LoadOrChat model={model} />
        {model.state === "ready" && (
          <a class="btn small-btn" href={modelHref(model.model_id)} aria-label={t`Preview ${model.name}`}>
            {t`Preview`}
          </a>
        )}
        {admin && <RemoveModel model={model} />}
      </span>
    </li>
  );
}

/** The one primary button of a model that is here: Load, which leads to the conversation; then Chat. */
function LoadOrChat({ model }: { model: Model }) {
  const app = useApp();
  const { state } = app;
  const { login } = state.value;
  const all = instancesOf(state.value, model.model_id);
  const loaded = all.find((one) => one.state === "running" || one.state === "paused");
  const why = obstacle(state.value);
  if (loaded)
    return talks(model) && mayAsk(login) ? (
      <a class="btn small-btn primary" href={playgroundHref(loaded.instance_id)} aria-label={t`Chat with ${model.name}`}>
        {t`Chat`}
      </a>
    ) : null;
  if (model.state !== "ready" || !mayManage(login)) return null;
  const busy = isBegun(model.source) || all.some((one) => one.state === "starting");
  return (
    <>
      <button
        class="btn small-btn primary"
        type="button"
        disabled={busy || why !== null}
        title={why ?? undefined}
        aria-label={t`Load ${model.name}`}
        onClick={() => void start(app, model.source)}
      >
        {busy ? t`Loading` : t`Load`}
      </button>
      <RefusalNote refusal={begun.value[model.source]?.refusal ?? null} />
    </>
  );
}

export const ModelTrouble = ({ model }: { model: Model }) =>
  model.state === "failed" || model.state === "missing" ? (
    <span class="small crit trouble">
      <MarkIcon mark="offline" class="mini" /> {sentence(model.state_reason ?? t`it cannot be used`)}
    </span>
  ) : null;

const stepWords: Record<ModelProgress["step"], string> = {
  waiting: t`waits for its turn`,
  finding: t`asking where it is`,
  downloading: t`downloading`,
  uploading: t`uploading`,
  verifying: t`checking`,
  converting: t`converting on this server`,
};

export function Progress({ of }: { of: ModelProgress | null }) {
  if (!of) return null;
  const share = shareDone(of.done_bytes, of.total_bytes);
  const moves = of.step === "downloading" || of.step === "uploading";
  const left = moves ? secondsLeft(of.done_bytes, of.total_bytes, of.bytes_per_s) : null;
  const done = memory(of.done_bytes);
  const total = of.total_bytes === null ? null : memory(of.total_bytes);
  const speed = of.bytes_per_s === null ? null : rate(of.bytes_per_s);
  return (
    <span class="progress">
      <span
        class={`bar ${share === null ? "unknown" : ""}`}
        role="progressbar"
        aria-label={stepWords[of.step]}
        aria-valuenow={share === null ? undefined : Math.round(share)}
        aria-valuemin={0}
        aria-valuemax={100}
      >
        <i style={{ "--v": share ?? 0 }} />
      </span>
      <span class="small quiet">
        {of.step === "waiting" && of.retries > 0 ? t`waits before it is tried again` : stepWords[of.step]}
        {of.done_bytes > 0 && ` ${done.value} ${done.unit}`}
        {total && t` of ${total.value} ${total.unit}`}
        {speed && moves && `, ${speed.value} ${speed.unit}`}
        {left !== null && t`, ${age(left * 1000)} left`}
        {of.retries > 0 && t`, tried ${count(of.retries, "time")}`}
      </span>
    </span>
  );
}

/** Asks first, because the file may not come back, and then waits for a few seconds, in which it can be undone. */
export function RemoveModel({ model, class: name, word, busyWord }: { model: Model; class?: string; word?: string; busyWord?: string }) {
  const { state, server, current } = useApp();
  const { model_id: id } = model;
  const coming = model.state === "downloading";
  const runs = Object.values(state.value.instances).filter((one) => one.model_id === id).length;
  const asked = isAsked(id);
  const act = word ?? (coming ? t`Cancel` : t`Remove`);
  const busy = busyWord ?? (coming ? t`Cancelling` : t`Removing`);
  const why = obstacle(state.value) ?? (asked ? t`${busy} it.` : null) ?? (runs > 0 ? t`Stop it first: it is loaded.` : null);
  const local = /^(\/|file:)/.test(model.source);
  const note = local
    ? t`This cluster forgets it. The file stays where it is.`
    : coming
      ? t`What has come of its file is deleted.`
      : uploadOf(model) !== null
        ? t`Its file is deleted on the server. To use it again, upload the file again.`
        : t`Its file is deleted on the server. It can be added again from where it came.`;
  const remove = async (): Promise<null> => {
    later({
      key: id,
      text: coming ? t`Adding ${model.name} is cancelled` : t`${model.name} is removed`,
      note,
      act,
      busy: `${busy} ${model.name}`,
      run: async () => (current().models[id] ? removeModel(server, id) : null), // somebody else may have removed it
    });
    return null;
  };
  return (
    <AskButton
      word={asked ? busy : act}
      busyWord={busy}
      label={`${word ?? (coming ? t`Cancel adding` : t`Remove`)} ${model.name}`}
      title={`${word ?? (coming ? t`Cancel adding` : t`Remove`)} ${model.name}?`}
      confirm={word ?? (coming ? t`Cancel it` : t`Remove`)}
      class={name ?? "small-btn"}
      why={why}
      run={remove}
    >
      <p>{note}</p>
    </AskButton>
  );
}
