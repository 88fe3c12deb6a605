/* The rules that raise alerts, and a dialog that changes one. For all to read, for admins to change. */
import { useRef, useState } from "preact/hooks";
import { setRule } from "../../command/alerts";
import type { Refusal } from "../../command/tried";
import type { AlertRule } from "../../lib/api.gen";
import { figure } from "../../lib/format";
import { obstacle } from "../../state/select";
import { useApp } from "../app-context";
import { Panel, RefusalNote } from "../parts";

const units: Record<NonNullable<AlertRule["unit"]>, string> = { percent: "%", days: "days", errors: "errors", ends: "ends" };

/** What a rule is about, and for one without a figure what raises and what clears its alert. */
const words: Record<string, { title: string; raised?: string; cleared?: string }> = {
  node_offline: { title: "A machine is away", raised: "not connected", cleared: "connected again" },
  version_differs: { title: "A machine has another version", raised: "another than the server's", cleared: "the server's" },
  driver_unusable: { title: "A driver cannot be used", raised: "its devices are not usable", cleared: "they are" },
  "memory_full.node": { title: "A machine's memory is nearly full" },
  link_degraded: { title: "A link is worse than its kind", raised: "too slow for its kind", cleared: "as it should be" },
  device_lost: { title: "A device is lost", raised: "it does not answer", cleared: "it answers again" },
  "memory_full.device": { title: "A device's memory is nearly full" },
  throttled: { title: "A device is slowed down by heat", raised: "throttled or critical", cleared: "neither" },
  throttles_soon: {
    title: "A device will be slowed down by heat",
    raised: "within a minute, by forecast",
    cleared: "not within a minute",
  },
  ecc_errors: { title: "Memory errors that cannot be corrected" },
  computes_wrong: { title: "A browser computes wrong", raised: "a spot check failed", cleared: "verified again" },
  worker_failing: { title: "Workers end again and again" },
  shards_unbalanced: { title: "A part of a model slows the others down" },
  disk_full: { title: "The server's disk is nearly full" },
  history_unwritten: { title: "The history cannot be written", raised: "writing fails", cleared: "writing works again" },
  audit_failed: { title: "The audit log does not verify", raised: "a check failed", cleared: "a check passed" },
  certificate_expiring: { title: "A certificate ends soon" },
  token_expiring: { title: "A token ends soon" },
};

/** "99 % or more", "7 days or less". */
function threshold(rule: AlertRule, value: number, less: boolean): string {
  if (rule.unit === null) return (value >= 1 ? words[rule.rule_id]?.raised : words[rule.rule_id]?.cleared) ?? figure(value, 0);
  const unit = value === 1 ? units[rule.unit].replace(/s$/, "") : units[rule.unit];
  return `${figure(value, Number.isInteger(value) ? 0 : 1)} ${unit} or ${less ? "less" : "more"}`;
}

export function RulePanel({ rules, changed }: { rules: readonly AlertRule[]; changed: () => void }) {
  const { state } = useApp();
  const may = state.value.login?.scopes.includes("admin") ?? false;
  return (
    <Panel title="Rules">
      <div class="table-wrap">
        <table class="list cert-list rule-list">
          <caption class="sr">Rules</caption>
          <thead>
            <tr>
              <th scope="col">Rule</th>
              <th scope="col">Raised when</th>
              <th scope="col">For</th>
              <th scope="col">Cleared when</th>
              <th scope="col" class="w-act">
                <span class="sr">Change</span>
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
                    <span class="code">{one.rule_id}</span>, {one.severity}
                    {!one.enabled && ", off"}
                  </span>
                </th>
                <td data-name="Raised">{threshold(one, one.threshold, one.below)}</td>
                <td data-name="For">{one.for_s > 0 ? `${one.for_s} s` : "two samples"}</td>
                <td data-name="Cleared">{threshold(one, one.clear_threshold, !one.below)}</td>
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
        aria-label={`Change ${rule.rule_id}`}
        onClick={() => dialog.current?.showModal()}
      >
        Change
      </button>
      <dialog ref={dialog} aria-label={`Change the rule ${rule.rule_id}`}>
        <form
          class="dialog-body stack"
          onSubmit={(event) => {
            event.preventDefault();
            void save(event.currentTarget);
          }}
        >
          <h2>Change {rule.rule_id}</h2>
          <label class="check">
            <input type="checkbox" name="enabled" defaultChecked={rule.enabled} /> Use this rule
          </label>
          {rule.unit !== null && (
            <>
              <label class="in small">
                Raise at ({units[rule.unit]})
                <input type="number" name="threshold" step="any" required defaultValue={String(rule.threshold)} />
              </label>
              <label class="in small">
                Clear at ({units[rule.unit]})
                <input type="number" name="clear_threshold" step="any" required defaultValue={String(rule.clear_threshold)} />
              </label>
            </>
          )}
          <label class="in small">
            Once it has lasted (s)
            <input type="number" name="for_s" min={0} max={86400} step={1} required defaultValue={String(rule.for_s)} />
          </label>
          <RefusalNote refusal={refusal} />
          <div class="dialog-acts">
            <button class="btn" type="button" onClick={() => dialog.current?.close()}>
              Cancel
            </button>
            <button class="btn primary" type="submit">
              Save
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}
