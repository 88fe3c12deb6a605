/* One model: its file, its instances, and a preview of its placement. */
import type { Model } from "../../lib/api.gen";
import { figure, fullTime, memory } from "../../lib/format";
import { formatText, instancesOf, mayManage, parameters, purpose } from "../../state/models";
import { useApp } from "../app-context";
import { Copied } from "../command-line";
import { Fact, Figure, Panel } from "../parts";
import { Page } from "../shell";
import { InstancePanel } from "./instance";
import { Preview } from "./preview";
import { ModelTrouble, Progress, RemoveModel } from "./row";
import { GoOn, progressOf } from "./upload";

const parent = { name: "Models", href: "#/models" };

export function ModelPage({ id }: { id: string }) {
  const { state } = useApp();
  const all = state.value;
  const model = all.models[id];
  if (!model)
    return (
      <Page title="No such model" parent={parent}>
        <section class="panel empty">
          <h2>This model is not here</h2>
          <p>It was removed, or the link is old.</p>
          <a class="btn" href="#/models">
            All models
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
    <Panel title="The file" aside={mayManage(state.value.login) && <RemoveModel model={model} />}>
      <dl class="facts panel-body">
        <Fact name="Source">
          <Copied text={model.source} />
        </Fact>
        <Fact name="Size">{model.file_bytes !== null && <Figure {...memory(model.file_bytes)} />}</Fact>
        <Fact name="SHA-256">{model.sha256 && <Copied text={model.sha256} />}</Fact>
        <Fact name="Added">{fullTime(Date.parse(model.added_at))}</Fact>
        {of && (
          <>
            <Fact name="Family">{of.family}</Fact>
            <Fact name="Parameters">
              {parameters(of.parameters)}, {formatText(of)}
            </Fact>
            <Fact name="Layers">
              {of.layers}, each <Figure {...memory(of.layer_bytes)} />
            </Fact>
            <Fact name="Shape">
              embedding {figure(of.embedding)}, {of.feed_forward > 0 && `feed-forward ${figure(of.feed_forward)}, `}
              {of.heads} heads of {of.head_size}
              {of.kv_heads !== of.heads && `, ${of.kv_heads} of keys and values`}
            </Fact>
            {of.experts > 0 && (
              <Fact name="Experts">
                {figure(of.experts)} in each layer, each {figure(of.expert_width)} wide; a token goes through {of.experts_used}
              </Fact>
            )}
            <Fact name="Vocabulary">{figure(of.vocabulary)} tokens</Fact>
            <Fact name="Context">
              {figure(of.context_tokens)} tokens; each takes <Figure {...memory(of.kv_bytes_per_token)} />
            </Fact>
            {purpose(of) ? (
              <Fact name="Purpose">{purpose(of)}</Fact>
            ) : (
              <Fact name="Chat template">
                {of.chat_template ?? <span class="quiet">not known: the model completes text but cannot chat</span>}
              </Fact>
            )}
          </>
        )}
      </dl>
    </Panel>
  );
}
