/* Playground: a conversation with a model that is loaded, or that can be. */
import { useRef } from "preact/hooks";
import { whereItStays } from "../../command/keep";
import type { Instance } from "../../lib/api.gen";
import { modelHref, playgroundHref } from "../../lib/route";
import { mayAsk, mayManage } from "../../state/models";
import { type Choice, type Held, choiceOf, choiceWord, hold, isMoving, moveText } from "../../state/talk";
import type { State } from "../../state/state";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Command } from "../command-line";
import { Loading } from "../models/instance";
import { Icon, MarkIcon } from "../parts";
import { Page } from "../shell";
import { LoadModel } from "./load";
import { type Partner, Talk } from "./talk";

export function PlaygroundPage({ id }: { id: string }) {
  const { state } = useApp();
  const all = state.value;
  const held = useRef<Held | null>(null);
  held.current = hold(all, id, held.current);
  const choice = choiceOf(all, held.current);
  // What is shown first is held on to as well: it may move while one talks to it.
  if (!held.current && choice.instance) held.current = hold(all, choice.instance.instance_id, null);
  if (!mayAsk(all.login)) return <NotAllowed />;
  const { instance, model } = choice;
  const moves = instance && moveText(all, instance);
  return (
    <Page title={t`Playground`}>
      <Talk
        partner={instance && partnerOf(all, instance)}
        closed={mayManage(all.login) ? t`Load a model first` : t`No model is loaded`}
        choose={<Choose {...choice} />}
        begin={!model && !moves && <Begin instance={instance} />}
        moves={instance && moves && <Moves instance={instance} text={moves} />}
        offer={model && <LoadModel key={model.model_id} model={model} />}
      />
    </Page>
  );
}

const partnerOf = ({ devices }: State, instance: Instance): Partner => ({
  name: instance.model_name,
  chat: instance.chat,
  sampling: instance.sampling,
  waits: instance.state === "paused",
  context: instance.context_tokens,
  energy: instance.stages.every((stage) => typeof devices[stage.device_id]?.reading?.power_watts === "number"),
});

function NotAllowed() {
  return (
    <Page title={t`Playground`}>
      <section class="panel empty">
        <h2>{t`This token cannot use models`}</h2>
        <p>{t`Using models needs the scope infer. An admin makes such a token on the page Access, or with:`}</p>
        <Command text="exogpu token create --name NAME --scopes observe,infer" />
      </section>
    </Page>
  );
}

/** Its model moves, or waits for a place: what happens, in the place where the answer comes. */
function Moves({ instance, text }: { instance: Instance; text: string }) {
  return (
    <div class="moves" role="status">
      <MarkIcon mark={isMoving(instance) ? "draining" : "throttled"} class="mini" />
      <p class="small">
        {text}
        {instance.remedies.length > 0 && (
          <>
            {" "}
            <a class="link" href={modelHref(instance.model_id)}>{t`What would make room for it`}</a>
          </>
        )}
      </p>
      {instance.progress && <Loading progress={instance.progress} />}
    </div>
  );
}

function Choose({ instances, instance, models, model }: Choice) {
  if (!instance && !model) return <h2>{t`No model is loaded`}</h2>;
  if (instances.length + models.length === 1)
    return (
      <h2 class="clip">
        <MarkIcon mark={!instance ? "stale" : instance.state === "paused" ? "throttled" : instance.running > 0 ? "computing" : "idle"} class="mini" />{" "}
        {instance ? choiceWord(instance) : model?.name}
      </h2>
    );
  return (
    <select
      aria-label={t`Model`}
      value={instance?.instance_id ?? model?.model_id}
      onChange={(event) => (location.hash = playgroundHref(event.currentTarget.value))}
    >
      {instances.map((one) => (
        <option key={one.instance_id} value={one.instance_id}>
          {choiceWord(one)}
        </option>
      ))}
      {models.map((one) => (
        <option key={one.model_id} value={one.model_id}>
          {t`${one.name} (not loaded)`}
        </option>
      ))}
    </select>
  );
}

function Begin({ instance }: { instance: Instance | null }) {
  return (
    <div class="begin">
      <Icon name="playground" />
      {instance ? (
        <p>
          {instance.chat
            ? t`Ask something. ${whereItStays()}`
            : t`This model has no known chat template: it continues the text that you write.`}
        </p>
      ) : (
        <>
          <p>{t`A model answers here once it is loaded.`}</p>
          <a class="btn primary" href="#/models">
            {t`Models`}
          </a>
        </>
      )}
    </div>
  );
}
