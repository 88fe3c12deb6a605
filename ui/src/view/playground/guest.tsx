/* The Playground of somebody who may only use models: the conversation, and nothing of machines or devices. */
import { useRef, useState } from "preact/hooks";
import { whereItStays } from "../../command/keep";
import { memory } from "../../lib/format";
import type { ChatModel, ChatStatus } from "../../lib/api.gen";
import { guestModel, guestModels, guestText, guestWord, takesMessages } from "../../state/guest";
import { shareDone } from "../../state/models";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Icon, MarkIcon } from "../parts";
import { Page } from "../shell";
import { Talk } from "./talk";

export function GuestPage() {
  const { state } = useApp();
  const { chat } = state.value;
  return <Page title={t`Playground`}>{chat && <Guest status={chat} />}</Page>;
}

function Guest({ status }: { status: ChatStatus }) {
  const [chosen, setChosen] = useState<string | null>(null);
  // Whoever is shown first is held on to as well: another one that is loaded meanwhile does not take its place.
  const held = useRef<string | null>(null);
  const model = guestModel(status, chosen ?? held.current);
  held.current = model?.name ?? null;
  const all = guestModels(status);
  const text = model && guestText(model, status.load_on_demand);
  const asks = model && takesMessages(model, status.load_on_demand);
  return (
    <Talk
      partner={
        asks
          ? { name: model.name, chat: model.chat ?? true, sampling: model.sampling, waits: model.state !== "ready", context: null, energy: false }
          : null
      }
      closed={t`No model answers now`}
      choose={<Choose all={all} model={model} choose={setChosen} />}
      begin={!text && <Begin model={model} />}
      moves={model && text && <Moves model={model} text={text} />}
    />
  );
}

function Choose({ all, model, choose }: { all: readonly ChatModel[]; model: ChatModel | null; choose: (name: string) => void }) {
  if (!model) return <h2>{t`No model yet`}</h2>;
  if (all.length === 1) return <h2 class="clip">{guestWord(model)}</h2>;
  return (
    <select aria-label={t`Model`} value={model.name} onChange={(event) => choose(event.currentTarget.value)}>
      {all.map((one) => (
        <option key={one.name} value={one.name}>
          {guestWord(one)}
        </option>
      ))}
    </select>
  );
}

function Begin({ model }: { model: ChatModel | null }) {
  return (
    <div class="begin">
      <Icon name="playground" />
      <p>
        {!model
          ? t`There is no model to talk to yet. An admin adds one; it appears here by itself.`
          : model.chat === false
            ? t`This model has no known chat template: it continues the text that you write.`
            : t`Ask something. ${whereItStays()}`}
      </p>
    </div>
  );
}

function Moves({ model, text }: { model: ChatModel; text: string }) {
  const { progress } = model;
  const share = progress && shareDone(progress.loaded_bytes, progress.total_bytes);
  const [done, total] = [memory(progress?.loaded_bytes ?? 0), memory(progress?.total_bytes ?? 0)];
  return (
    <div class="moves" role="status">
      <MarkIcon mark={model.state === "moving" || model.state === "starting" ? "draining" : "throttled"} class="mini" />
      <p class="small">{text}</p>
      {progress && progress.total_bytes > 0 && (
        <div class="panel-body progress">
          <span class="bar" role="progressbar" aria-label={t`loading`} aria-valuenow={Math.round(share ?? 0)} aria-valuemin={0} aria-valuemax={100}>
            <i style={{ "--v": share ?? 0 }} />
          </span>
          <span class="small quiet">
            {t`${done.value} ${done.unit} of ${total.value} ${total.unit}`}
          </span>
        </div>
      )}
    </div>
  );
}
