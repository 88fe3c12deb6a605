/* A model that is loaded: how far, where, how fast, and its end. */
import { moveInstance, stopInstance } from "../../command/models";
import { isAsked, later } from "../../command/toasts";
import type { Instance, Stage } from "../../lib/api.gen";
import { count, figure, memory, sentence, took } from "../../lib/format";
import { modelHref, playgroundHref } from "../../lib/route";
import { draftText, foreseenText } from "../../state/chat";
import { mayAsk, mayManage, purpose, shareDone, shortOfMemory, sliceWord, stageBytes, talks } from "../../state/models";
import { deviceLabel, memoryTotal, obstacle } from "../../state/select";
import { plural, t, tx } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { AskButton } from "../ask";
import { Age, Figure, MarkIcon, Panel } from "../parts";
import { MeasuredFall } from "./breakdown";
import { StageMemory } from "./memory";
import { InstanceState } from "./state";

export function InstancePanel({ instance }: { instance: Instance }) {
  const { state } = useApp();
  const all = state.value;
  const model = all.models[instance.model_id];
  const layers = model?.architecture?.layers;
  const stages = instance.stages.filter((stage) => !isGone(instance, stage));
  const totals = stages.map((stage) => {
    const entry = all.devices[stage.device_id];
    return entry ? memoryTotal(entry) : null;
  });
  const axis = Math.max(1, ...totals.map((total) => total ?? 0));
  const short = shortOfMemory(instance);
  return (
    <Panel
      class="instance"
      label={`${instance.model_name}, ${word(instance.state)}`}
      title={<a href={modelHref(instance.model_id)}>{instance.model_name}</a>}
      aside={
        <span class="acts">
          <InstanceState instance={instance} />
          {instance.state === "running" && talks(model) && mayAsk(all.login) && (
            <a class="btn small-btn primary" href={playgroundHref(instance.instance_id)}>
              {t`Chat`}
            </a>
          )}
          {mayManage(all.login) && <StopInstance instance={instance} />}
        </span>
      }
    >
      {instance.state === "failed" && (
        <p class="panel-body crit trouble">
          <MarkIcon mark="offline" class="mini" /> {sentence(instance.state_reason ?? t`it has failed`)}
        </p>
      )}
      {instance.state === "paused" && <Paused instance={instance} />}
      {instance.state === "running" && instance.offer && <Offer instance={instance} offer={instance.offer} />}
      {instance.progress && <Loading progress={instance.progress} />}
      {short && (
        <p class="panel-body small warm trouble">
          <MarkIcon mark="throttled" class="mini" /> {sentence(short)}
        </p>
      )}
      {instance.state === "running" && !short && instance.state_reason && (
        <p class="panel-body small quiet trouble">
          <MarkIcon mark="info" class="mini" /> {sentence(instance.state_reason)}
        </p>
      )}
      {instance.state === "running" && <Figures instance={instance} use={model?.architecture ? purpose(model.architecture) : null} />}
      {instance.state === "running" && <MeasuredFall instance={instance} />}
      {layers !== undefined && instance.state !== "failed" && stages.length > 0 && (
        <ul class="rows stages">
          {stages.map((stage, i) => {
            const total = totals[i] ?? stageBytes(stage);
            const used = all.devices[stage.device_id]?.reading?.memory_used_bytes ?? null;
            const own = holds(instance, stage);
            const others = used === null || own === null ? null : Math.max(0, used - own);
            return (
              <StageMemory
                key={`${stage.device_id} ${stage.first_layer}`}
                stage={stage}
                layers={layers}
                total={total}
                free={others === null ? null : Math.max(0, total - others)}
                axis={axis}
                slice={sliceWord(instance.stages, stage)}
              />
            );
          })}
        </ul>
      )}
    </Panel>
  );
}

/** Has its worker been lost, and the memory with it? */
const isGone = (instance: Instance, stage: Stage): boolean =>
  instance.state === "paused" &&
  instance.missing.some((one) => one.device_id === stage.device_id && one.first_layer === stage.first_layer);

/** Its memory already in use on its device; null: unknown, because it waits with or without its loaded layers. */
const holds = (instance: Instance, stage: Stage): number | null => {
  if (instance.state === "running") return stageBytes(stage);
  const devices = instance.progress?.parts.flatMap((part) => part.devices);
  return devices ? devices.reduce((sum, one) => sum + (one.device_id === stage.device_id ? one.loaded_bytes : 0), 0) : null;
};

/** It goes on by itself: what is gone, and where it goes. */
function Paused({ instance }: { instance: Instance }) {
  const { state } = useApp();
  const name = (id: string): string => deviceLabel(state.value, id);
  const waiting = instance.generated_tokens > 0 ? t` No text is lost; answers in progress continue where they stopped.` : "";
  return (
    <div class="panel-body trouble-list">
      <p class="warm">
        <MarkIcon mark="throttled" class="mini" /> {sentence(instance.state_reason ?? t`it waits`)}
        <span class="quiet">{waiting}</span>
      </p>
      {instance.missing.length > 0 && (
        <ul class="small">
          {instance.missing.map((one) => (
            <li key={one.first_layer}>
              {one.layer_count === 1
                ? t`Layer ${one.first_layer} was on `
                : t`Layers ${one.first_layer} to ${one.first_layer + one.layer_count - 1} were on `}
              <b>{name(one.device_id)}</b>
              {one.to_device_id === null ? (
                <span class="quiet">{t`; no device has room for them yet`}</span>
              ) : (
                <>
                  {t`; they move to`}{" "}<b>{name(one.to_device_id)}</b>
                </>
              )}
            </li>
          ))}
        </ul>
      )}
      {instance.remedies.length > 0 && (
        <>
          <p class="small">{t`What would make room for it:`}</p>
          <ul class="small">
            {instance.remedies.map((text) => (
              <li key={text}>{sentence(text)}</li>
            ))}
          </ul>
          <p class="small">
            {t`Weight format:`}{" "}<Held instance={instance} />
          </p>
        </>
      )}
    </div>
  );
}

const speed = (tokens_per_s: number): string => figure(tokens_per_s, tokens_per_s < 100 ? 1 : 0);

/** A device came, with which it would be faster. */
function Offer({ instance, offer }: { instance: Instance; offer: NonNullable<Instance["offer"]> }) {
  const { state, server } = useApp();
  const { login } = state.value;
  const names = offer.device_ids.map((id) => deviceLabel(state.value, id)).join("; ");
  return (
    <div class="panel-body offer">
      <p>
        {tx`On ${<b>{names}</b>} it would generate ${speed(offer.tokens_per_s)} tokens per s`}
        <span class="quiet">{t`; here it generates ${speed(offer.now_tokens_per_s)} (both predicted)`}</span>
      </p>
      {mayManage(login) && (
        <AskButton
          word={t`Move it`}
          busyWord={t`Moving`}
          label={t`Move ${instance.model_name} to ${names}`}
          title={t`Move ${instance.model_name}?`}
          confirm={t`Move it`}
          why={obstacle(state.value)}
          run={() => moveInstance(server, instance.instance_id)}
        >
          <p>{t`The model is loaded again there, which takes as long as the first load. Answers in progress pause, then continue where they stopped.`}</p>
        </AskButton>
      )}
    </div>
  );
}

/** Loading progress. */
export function Loading({ progress }: { progress: NonNullable<Instance["progress"]> }) {
  const { state } = useApp();
  const each = progress.parts.flatMap((part) => part.devices);
  const share = shareDone(progress.loaded_bytes, progress.total_bytes);
  const done = memory(progress.loaded_bytes);
  const total = memory(progress.total_bytes);
  return (
    <div class="panel-body progress">
      <span
        class="bar"
        role="progressbar"
        aria-label={t`loading`}
        aria-valuenow={Math.round(share ?? 0)}
        aria-valuemin={0}
        aria-valuemax={100}
      >
        <i style={{ "--v": share ?? 0 }} />
      </span>
      <span class="small quiet">
        {plural(
          each.length,
          t`onto the device: ${done.value} ${done.unit} of ${total.value} ${total.unit}`,
          t`onto the devices: ${done.value} ${done.unit} of ${total.value} ${total.unit}`,
        )}
      </span>
      {each.length > 1 && (
        <ul class="small quiet parts-loading">
          {each.map((one, i) => (
            <li key={i}>
              {deviceLabel(state.value, one.device_id)}: {figure(shareDone(one.loaded_bytes, one.total_bytes) ?? 0)} %
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** `use`: of a model that generates no text, for which half of the figures say nothing. */
function Figures({ instance, use }: { instance: Instance; use: string | null }) {
  const foreseen = foreseenText({ proposed: instance.proposed_tokens, accepted: instance.accepted_tokens });
  const kept = instance.page_count > 0 ? (instance.pages_used / instance.page_count) * 100 : 0;
  return (
    <dl class="instance-figures">
      {use === null ? (
        <>
          <div>
            <dt>{t`tokens per second`}</dt>
            <dd class="value">{!instance.tokens_per_s ? <span class="faint">{instance.running > 0 ? t`reading` : t`idle`}</span> : speed(instance.tokens_per_s)}</dd>
          </div>
          <div>
            <dt>{t`generated tokens`}</dt>
            <dd>{figure(instance.generated_tokens)}</dd>
          </div>
          {foreseen !== null && (
            <div>
              <dt>{t`foreseen tokens`}</dt>
              <dd>{foreseen}</dd>
            </div>
          )}
          {instance.draft && (
            <div>
              <dt>{t`draft model`}</dt>
              <dd>
                {draftText({
                  name: instance.draft.name,
                  proposed: instance.draft.drafted_tokens,
                  accepted: instance.draft.draft_accepted_tokens,
                })}
              </dd>
            </div>
          )}
        </>
      ) : (
        <div>
          <dt>{t`use`}</dt>
          <dd>{use}</dd>
        </div>
      )}
      <div>
        <dt>{t`prompt tokens`}</dt>
        <dd>{figure(instance.prompt_tokens)}</dd>
      </div>
      <div>
        <dt>{t`context`}</dt>
        <dd>
          {figure(instance.context_tokens)} <span class="unit">{t`tokens, ${instance.sequences} at once`}</span>
        </dd>
      </div>
      {use === null && (
        <div>
          <dt>{t`KV cache in use`}</dt>
          <dd>
            <Figure value={figure(kept)} unit="%" />
          </dd>
        </div>
      )}
      <div>
        <dt>{t`format`}</dt>
        <dd>
          <Held instance={instance} />
          {instance.stepped_from !== null ? (
            <span class="unit">{t`instead of ${instance.stepped_from}, for heat`}</span>
          ) : (
            instance.least_format !== null && <span class="unit">{t`heat may take it down to ${instance.least_format}`}</span>
          )}
        </dd>
      </div>
      {use === null && (
        <div>
          <dt>{t`chat template`}</dt>
          <dd>{instance.chat_template ?? <span class="quiet">{t`none: it only completes text`}</span>}</dd>
        </div>
      )}
      {instance.recoveries > 0 && (
        <div>
          <dt>{t`recovered`}</dt>
          <dd>
            {count(instance.recoveries, "time")}
            {instance.ties > 0 && (
              <span class="unit" title={t`At these tokens two choices were equally likely within rounding, so the answer may differ from one that was not interrupted.`}>
                , {count(instance.ties, "near-tie")}
              </span>
            )}
          </dd>
        </div>
      )}
      {instance.moves > 0 && (
        <div>
          <dt>{t`moved`}</dt>
          <dd>{count(instance.moves, "time")}</dd>
        </div>
      )}
      <div>
        <dt>{t`loaded`}</dt>
        <dd>
          {instance.ready_at && <Age at={instance.ready_at} />}
          {instance.load_ms !== null && <span class="unit">{t`, in ${took(instance.load_ms)}`}</span>}
        </dd>
      </div>
    </dl>
  );
}

/** Its format; where the file has wider weights, it can be held in fewer bits while it runs, and back. */
function Held({ instance }: { instance: Instance }) {
  const { state, server } = useApp();
  const { login, models } = state.value;
  const file = models[instance.model_id]?.architecture?.format;
  const wide = file === "F32" || file === "F16" || file === "BF16";
  if (!wide || !mayManage(login)) return <>{instance.format}</>;
  const others = ([["file", file], ["Q8_0", "Q8_0"], ["Q4_0", "Q4_0"]] as const).filter(([, format]) => format !== instance.format);
  return (
    <>
      {instance.format}{" "}
      <span class="acts">
        {others.map(([held, format]) => (
          <AskButton
            key={held}
            class="small-btn"
            word={held === "file" ? t`Back to ${format}` : t`Convert to ${format}`}
            busyWord={t`Changing`}
            label={t`Convert ${instance.model_name} to ${format}`}
            title={t`Convert ${instance.model_name} to ${format}?`}
            confirm={t`Convert to ${format}`}
            why={obstacle(state.value)}
            run={() => moveInstance(server, instance.instance_id, held)}
          >
            <p>
              {t`The model is loaded again where there is room for it; otherwise it stays as it is. Answers in progress pause, then continue where they stopped; from there on their text may differ.`}
            </p>
          </AskButton>
        ))}
      </span>
    </>
  );
}

/** Without a question first: it waits for a few seconds, in which it can be undone. */
function StopInstance({ instance }: { instance: Instance }) {
  const { state, server, current } = useApp();
  const { instance_id: id, model_name: name } = instance;
  const failed = instance.state === "failed";
  const under = instance.running + instance.waiting;
  const why = obstacle(state.value);
  const asked = isAsked(id);
  const ends = under > 0 ? plural(under, t`${count(under, "request")} in progress ends with an error`, t`${count(under, "request")} in progress end with an error`) : t`Nobody is using it now`;
  const stop = (): void =>
    later({
      key: id,
      text: failed ? t`${name} is dismissed` : t`${name} stops`,
      note: failed ? t`It uses no memory. The audit log keeps the error.` : t`Its memory is freed then. ${ends}.`,
      act: failed ? t`Dismiss` : t`Stop`,
      busy: failed ? t`Dismissing ${name}` : t`Stopping ${name}`,
      run: async () => (current().instances[id] ? stopInstance(server, id) : null), // it may have ended by itself
    });
  return (
    <button
      class="btn small-btn"
      type="button"
      disabled={why !== null || asked}
      title={why ?? undefined}
      aria-label={failed ? t`Dismiss ${name}` : t`Stop ${name}`}
      onClick={stop}
    >
      {asked ? (failed ? t`Dismissing` : t`Stopping`) : failed ? t`Dismiss` : t`Stop`}
    </button>
  );
}
