/* The rules that raise alerts, and a dialog that changes one. For all to read, for admins to change. */
import { useRef, useState } from "preact/hooks";
import { setRule } from "../../command/alerts";
import type { Refusal } from "../../command/tried";
import type { AlertRule } from "../../lib/api.gen";
import { figure } from "../../lib/format";
import { obstacle } from "../../state/select";
import { noun, t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { CopyId } from "../command-line";
import { Panel, RefusalNote } from "../parts";

function unitOf(unit: NonNullable<AlertRule["unit"]>, value: number): string {
  switch (unit) {
    case "percent":
      return "%";
    case "days":
      return noun(value, "day", "days");
    case "errors":
      return noun(value, "error", "errors");
    case "ends":
      return noun(value, "end", "ends");
    case "seconds":
      return "s";
  }
}

/** What a rule is about, and for one without a figure what raises and what clears its alert. */
const words: Record<string, { title: string; raised?: string; cleared?: string }> = {
  node_offline: { title: t`A machine is away`, raised: t`not connected`, cleared: t`connected again` },
  version_differs: { title: t`A machine has another version`, raised: t`another than the server's`, cleared: t`the server's` },
  driver_unusable: { title: t`A driver cannot be used`, raised: t`its devices are not usable`, cleared: t`they are` },
  "memory_full.node": { title: t`A machine's memory is nearly full` },
  link_degraded: { title: t`A link is worse than its kind`, raised: t`too slow for its kind`, cleared: t`as it should be` },
  device_lost: { title: t`A device is lost`, raised: t`it does not answer`, cleared: t`it answers again` },
  "memory_full.device": { title: t`A device's memory is nearly full` },
  throttled: { title: t`A device is slowed down by heat`, raised: t`throttled or critical`, cleared: t`neither` },
  throttles_soon: {
    title: t`A device will be slowed down by heat`,
    raised: t`within a minute, by forecast`,
    cleared: t`not within a minute`,
  },
  ecc_errors: { title: t`Memory errors that cannot be corrected` },
  computes_wrong: { title: t`A browser computes wrong`, raised: t`a spot check failed`, cleared: t`verified again` },
  worker_failing: { title: t`Workers end again and again` },
  shards_unbalanced: { title: t`A part of a model slows the others down` },
  disk_full: { title: t`The server's disk is nearly full` },
  history_unwritten: { title: t`The history cannot be written`, raised: t`writing fails`, cleared: t`writing works again` },
  audit_failed: { title: t`The audit log does not verify`, raised: t`a check failed`, cleared: t`a check passed` },
  server_lost: { title: t`A server is lost`, raised: t`it does not answer`, cleared: t`it answers again` },
  server_lags: { title: t`A server lags behind the others` },
  certificate_expiring: { title: t`A certificate ends soon` },
  token_expiring: { title: t`A token ends soon` },
};

/** "99 % or more", "7 days or less". */
function threshold(rule: AlertRule, value: number, less: boolean): string {
  if (rule.unit === null) return (value >= 1 ? words[rule.rule_id]?.raised : words[rule.rule_id]?.cleared) ?? figure(value, 0);
  const amount = `${figure(value, Number.isInteger(value) ? 0 : 1)} ${unitOf(rule.unit, value)}`;
  return less ? t`${amount} or less` : t`${amount} or more`;
}

export function RulePanel({ rules, changed }: { rules: readonly AlertRule[]; changed: () => void }) {
  const { state } = useApp();
  const may = state.value.login?.scopes.includes("admin") ?? false;
  return (
    <Panel title={t`Rules`}>
      <div class="table-wrap">
        <table class="list cert-list rule-list">
          <caption class="sr">{t`Rules`}</caption>
          <thead>
            <tr>
              <th scope="col">{t`Rule`}</th>
              <th scope="col">{t`Raised when`}</th>
              <th scope="col">{t`For`}</th>
              <th scope="col">{t`Cleared when`}</th>
              <th scope="col" class="w-act">
                <span class="sr">{t`Change`}</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {rules.map((one) => (
              <tr key={one.rule_id} class={one.enabled ? undefined : "over"}>
                <th scope="row">
                  <b>{words[one.rule_id]?.title ?? one.rule_id}</b>
                  <br />
                  <span class="small faint">
                    <CopyId text={one.rule_id} />, {word(one.severity)}
                    {!one.enabled && t`, off`}
                  </span>
                </th>
                <td data-name={t`Raised`}>{threshold(one, one.threshold, one.below)}</td>
                <td data-name={t`For`}>{one.for_s > 0 ? `${one.for_s} s` : t`two samples`}</td>
                <td data-name={t`Cleared`}>{threshold(one, one.clear_threshold, !one.below)}</td>
                <td class="list-act">{may && <Change rule={one} changed={changed} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Change({ rule, changed }: { rule: AlertRule; changed: () => void }) {
  const { state, server } = useApp();
  const dialog = useRef<HTMLDialogElement>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const save = async (form: HTMLFormElement): Promise<void> => {
    const given = new FormData(form);
    const outcome = await setRule(server, {
      rule_id: rule.rule_id,
      enabled: given.get("enabled") !== null,
      for_s: Number(given.get("for_s")),
      ...(rule.unit !== null && { threshold: Number(given.get("threshold")), clear_threshold: Number(given.get("clear_threshold")) }),
    });
    setRefusal(outcome);
    if (outcome) return;
    dialog.current?.close();
    changed();
  };
  const why = obstacle(state.value);
  return (
    <>
      <button
        class="btn small-btn"
        type="button"
        disabled={why !== null}
        title={why ?? undefined}
        aria-label={t`Change ${rule.rule_id}`}
        onClick={() => dialog.current?.showModal()}
      >
        {t`Change`}
      </button>
      <dialog ref={dialog} aria-label={t`Change the rule ${rule.rule_id}`}>
        <form
          class="dialog-body stack"
          onSubmit={(event) => {
            event.preventDefault();
            void save(event.currentTarget);
          }}
        >
          <h2>{t`Change ${rule.rule_id}`}</h2>
          <label class="check">
            <input type="checkbox" name="enabled" defaultChecked={rule.enabled} />{" "}{t`Use this rule`}
          </label>
          {rule.unit !== null && (
            <>
              <label class="in small">
                {t`Raise at (${unitOf(rule.unit, 2)})`}
                <input type="number" name="threshold" step="any" required defaultValue={String(rule.threshold)} />
              </label>
              <label class="in small">
                {t`Clear at (${unitOf(rule.unit, 2)})`}
                <input type="number" name="clear_threshold" step="any" required defaultValue={String(rule.clear_threshold)} />
              </label>
            </>
          )}
          <label class="in small">
            {t`Once it has lasted (s)`}
            <input type="number" name="for_s" min={0} max={86400} step={1} required defaultValue={String(rule.for_s)} />
          </label>
          <RefusalNote refusal={refusal} />
          <div class="dialog-acts">
            <button class="btn" type="button" onClick={() => dialog.current?.close()}>
              {t`Cancel`}
            </button>
            <button class="btn primary" type="submit">
              {t`Save`}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}
