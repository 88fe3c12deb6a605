/* One model: its file, its instances, and a preview of its placement. */
import type { Model } from "../../lib/api.gen";
import { figure, fullTime, memory } from "../../lib/format";
import { formatText, instancesOf, mayManage, parameters, purpose } from "../../state/models";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Copied } from "../command-line";
import { Fact, Figure, Panel } from "../parts";
import { Page } from "../shell";
import { InstancePanel } from "./instance";
import { Preview } from "./preview";
import { ModelTrouble, Progress, RemoveModel } from "./row";
import { GoOn, progressOf } from "./upload";

const parent = { name: t`Models`, href: "#/models" };

export function ModelPage({ id }: { id: string }) {
  const { state } = useApp();
  const all = state.value;
  const model = all.models[id];
  if (!model)
    return (
      <Page title={t`No such model`} parent={parent}>
        <section class="panel empty">
          <h2>{t`This model is not here`}</h2>
          <p>{t`It was removed, or the link is old.`}</p>
          <a class="btn" href="#/models">
            {t`All models`}
          </a>
        </section>
      </Page>
    );
  return (
    <Page title={model.name} parent={parent}>
      <div class="stack">
        {instancesOf(all, id).map((one) => (
          <InstancePanel key={one.instance_id} instance={one} />
        ))}
        {model.state === "ready" ? (
          <Preview model={model} />
        ) : (
          <section class="panel panel-body">
            <ModelTrouble model={model} />
            <Progress of={progressOf(model)} />
            {mayManage(state.value.login) && <GoOn model={model} />}
          </section>
        )}
        <Facts model={model} />
      </div>
    </Page>
  );
}

function Facts({ model }: { model: Model }) {
  const { state } = useApp();
  const of = model.architecture;
  return (
    <Panel title={t`The file`} aside={mayManage(state.value.login) && <RemoveModel model={model} />}>
      <dl class="facts panel-body">
        <Fact name={t`Source`}>
          <Copied text={model.source} />
        </Fact>
        <Fact name={t`Size`}>{model.file_bytes !== null && <Figure {...memory(model.file_bytes)} />}</Fact>
        <Fact name="SHA-256">{model.sha256 && <Copied text={model.sha256} />}</Fact>
        <Fact name={t`Added`}>{fullTime(Date.parse(model.added_at))}</Fact>
        {of && (
          <>
            <Fact name={t`Family`}>{of.family}</Fact>
            <Fact name={t`Parameters`}>
              {parameters(of.parameters)}, {formatText(of)}
            </Fact>
            <Fact name={t`Layers`}>
              {t`${of.layers}, each`}{" "}<Figure {...memory(of.layer_bytes)} />
            </Fact>
            <Fact name={t`Shape`}>
              {of.feed_forward > 0
                ? t`embedding ${figure(of.embedding)}, feed-forward ${figure(of.feed_forward)}, ${of.heads} heads of ${of.head_size}`
                : t`embedding ${figure(of.embedding)}, ${of.heads} heads of ${of.head_size}`}
              {of.kv_heads !== of.heads && t`, ${of.kv_heads} of keys and values`}
            </Fact>
            {of.experts > 0 && (
              <Fact name={t`Experts`}>
                {t`${figure(of.experts)} in each layer, each ${figure(of.expert_width)} wide; a token goes through ${of.experts_used}`}
              </Fact>
            )}
            <Fact name={t`Vocabulary`}>{t`${figure(of.vocabulary)} tokens`}</Fact>
            <Fact name={t`Context`}>
              {t`${figure(of.context_tokens)} tokens; each takes`}{" "}<Figure {...memory(of.kv_bytes_per_token)} />
            </Fact>
            {purpose(of) ? (
              <Fact name={t`Purpose`}>{purpose(of)}</Fact>
            ) : (
              <Fact name={t`Chat template`}>
                {of.chat_template ?? <span class="quiet">{t`not known: the model completes text but cannot chat`}</span>}
              </Fact>
            )}
          </>
        )}
      </dl>
    </Panel>
  );
}
