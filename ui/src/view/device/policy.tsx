/* What keeps the device from its limit: its policy, for all to read, and a dialog that changes it, for admins. */
import { useEffect, useRef, useState } from "preact/hooks";
import { readPolicy, setPolicy } from "../../command/policy";
import { offer } from "../../command/toasts";
import type { Refusal } from "../../command/tried";
import type { ThermalPolicy } from "../../lib/api.gen";
import { sentence } from "../../lib/format";
import { bounds, heatActions, policyFault, resumeText, targetText } from "../../state/policy";
import { deviceName, isLive, obstacle } from "../../state/select";
import type { DeviceEntry } from "../../state/state";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Fact, MarkIcon, Panel, RefusalNote } from "../parts";

export function PolicyPanel({ entry }: { entry: DeviceEntry }) {
  const { state, server } = useApp();
  const id = entry.record.device_id;
  const [policy, setShown] = useState<ThermalPolicy | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [asked, setAsked] = useState(0);
  const live = isLive(state.value);
  useEffect(() => setShown(null), [id]);
  useEffect(() => {
    let wanted = live;
    if (live)
      void readPolicy(server, id).then((answer) => {
        if (!wanted) return;
        if ("what" in answer) return setRefusal(answer);
        setRefusal(null);
        setShown(answer);
      });
    return () => {
      wanted = false;
    };
  }, [id, live, asked]);
  const limit = entry.reading?.slowdown_celsius ?? null;
  const may = state.value.login?.scopes.includes("admin") ?? false;
  const again = (): void => setAsked((count) => count + 1);
  if (!policy)
    return (
      <Panel title={t`Before the limit`} class={refusal ? "" : "policy-wait"}>
        {refusal && (
          <div class="panel-body">
            <RefusalNote refusal={refusal} />
            <button class="btn small-btn" type="button" onClick={again}>
              {t`Ask again`}
            </button>
          </div>
        )}
      </Panel>
    );
  return (
    <Panel title={t`Before the limit`} aside={may && <Change policy={policy} limit={limit} changed={again} />}>
      <dl class="facts panel-body">
        <Fact name={t`Stays below`}>{targetText(policy, limit)}</Fact>
        <Fact name={t`Free again at`}>{resumeText(policy, limit)}</Fact>
      </dl>
      <ul class="heat-steps" aria-label={t`What the server does, in this order`}>
        {heatActions.map(({ action, name, what }) => {
          const on = policy.actions.includes(action);
          return (
            <li key={action} class={on ? undefined : "over"}>
              <MarkIcon mark={on ? "ok" : "idle"} class="mini" />
              <span>
                <b>{name}</b> <span class="small faint">{on ? what : t`Off.`}</span>
              </span>
            </li>
          );
        })}
      </ul>
      {policy.actions.length === 0 ? (
        <p class="panel-body quiet">{t`The server does nothing: the device slows itself down at its limit.`}</p>
      ) : (
        limit === null && <p class="panel-body quiet">{t`Nothing is done while the device does not report its limit.`}</p>
      )}
      {refusal && (
        <div class="panel-body">
          <RefusalNote refusal={refusal} />
        </div>
      )}
    </Panel>
  );
}

function Change({ policy, limit, changed }: { policy: ThermalPolicy; limit: number | null; changed: () => void }) {
  const { state, server } = useApp();
  const dialog = useRef<HTMLDialogElement>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [fault, setFault] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const name = deviceName(state.value, policy.device_id);
  const apply = async (next: ThermalPolicy): Promise<Refusal | null> => {
    const refused = await setPolicy(server, next);
    if (!refused) changed();
    return refused;
  };
  const save = async (form: HTMLFormElement): Promise<void> => {
    const given = new FormData(form);
    const next: ThermalPolicy = {
      device_id: policy.device_id,
      margin_celsius: Number(given.get("margin")),
      resume_celsius: Number(given.get("resume")),
      actions: heatActions.map(({ action }) => action).filter((action) => given.get(action) !== null),
    };
    const wrong = policyFault(next.margin_celsius, next.resume_celsius, next.actions);
    setFault(wrong);
    setRefusal(null);
    if (wrong) return;
    setBusy(true);
    const refused = await apply(next);
    setBusy(false);
    setRefusal(refused);
    if (refused) return;
    dialog.current?.close();
    offer({
      key: `policy ${policy.device_id}`,
      text: t`${name} has another heat policy`,
      note: t`It stays below ${targetText(next, limit)}.`,
      busy: t`Returning ${name} to its policy of before`,
      undo: () => apply(policy),
    });
  };
  const why = obstacle(state.value);
  const open = (): void => {
    setFault(null);
    setRefusal(null);
    dialog.current?.querySelector("form")?.reset();
    dialog.current?.showModal();
  };
  return (
    <>
      <button class="btn small-btn" type="button" disabled={why !== null} title={why ?? undefined} onClick={open}>
        {t`Change`}
      </button>
      <dialog ref={dialog} aria-labelledby="policy-title">
        <form
          class="dialog-body stack"
          noValidate
          onSubmit={(event) => {
            event.preventDefault();
            void save(event.currentTarget);
          }}
        >
          <h2 id="policy-title">{t`Heat policy of ${name}`}</h2>
          <p class="small">
            {limit === null
              ? t`The device does not report the temperature at which it slows itself down. Until it does, nothing is done.`
              : t`At ${limit} °C the device slows itself down. Before that, the server acts on the models on it, by forecast.`}
          </p>
          <Degrees name="margin" title={t`Margin under the limit (°C)`} value={policy.margin_celsius} />
          <Degrees name="resume" title={t`How much cooler before models work freely again (°C)`} value={policy.resume_celsius} />
          <fieldset class="heat-choices">
            <legend class="small">{t`What the server does, in this order`}</legend>
            {heatActions.map(({ action, name: title, what }) => (
              <label key={action} class="check">
                <input type="checkbox" name={action} defaultChecked={policy.actions.includes(action)} />
                <span>
                  <b>{title}</b> <span class="small faint">{what}</span>
                </span>
              </label>
            ))}
          </fieldset>
          {fault && (
            <p class="small" role="alert">
              <MarkIcon mark="offline" class="mini" /> {sentence(fault)}
            </p>
          )}
          <RefusalNote refusal={refusal} />
          <div class="dialog-acts">
            <button class="btn" type="button" onClick={() => dialog.current?.close()}>
              {t`Cancel`}
            </button>
            <button class="btn primary" type="submit" disabled={busy}>
              {t`Save`}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}

function Degrees({ name, title, value }: { name: string; title: string; value: number }) {
  return (
    <label class="in small">
      {title}
      <input
        type="number"
        name={name}
        min={bounds.least}
        max={bounds.most}
        step="any"
        required
        defaultValue={String(value)}
      />
    </label>
  );
}
