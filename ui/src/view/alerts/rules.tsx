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

/** "99 % or more", "7 days or less", "yes". */
function threshold(rule: AlertRule, value: number, less: boolean): string {
  if (rule.unit === null) return value >= 1 ? "yes" : "no";
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
              <th scope="col">Raised at</th>
              <th scope="col">After</th>
              <th scope="col">Cleared at</th>
              <th scope="col" class="w-act">
                <span class="sr">Change</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {rules.map((one) => (
              <tr key={one.rule_id} class={one.enabled ? undefined : "over"}>
                <th scope="row">
                  <b class="code">{one.rule_id}</b>
                  <span class="small faint">
                    {" "}
                    {one.subject_type}, {one.severity}
                    {!one.enabled && ", off"}
                  </span>
                </th>
                <td data-name="Raised at">{threshold(one, one.threshold, one.below)}</td>
                <td data-name="After">{one.for_s > 0 ? `${one.for_s} s` : "two samples"}</td>
                <td data-name="Cleared at">{threshold(one, one.clear_threshold, !one.below)}</td>
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
              <label>
                Raise at ({units[rule.unit]})
                <input type="number" name="threshold" step="any" required defaultValue={String(rule.threshold)} />
              </label>
              <label>
                Clear at ({units[rule.unit]})
                <input type="number" name="clear_threshold" step="any" required defaultValue={String(rule.clear_threshold)} />
              </label>
            </>
          )}
          <label>
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
