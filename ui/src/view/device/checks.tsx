/* Of a browser's device: how often what it computed was compared with what a trusted device makes of the same. */
import { count, sentence } from "../../lib/format";
import type { DeviceEntry } from "../../state/state";
import { checksText, errorText } from "../../state/checks";
import { t } from "../../text/text";
import { Age, Fact, Panel } from "../parts";

export function ChecksPanel({ entry }: { entry: DeviceEntry }) {
  const checks = entry.record.spot_checks;
  if (!checks) return null;
  return (
    <Panel title={t`Spot checks`}>
      <dl class="facts panel-body">
        <Fact name={t`Passed`}>{count(checks.passed, "request")}</Fact>
        <Fact name={t`Failed`}>{checks.failed > 0 ? <span class="crit">{count(checks.failed, "request")}</span> : t`none`}</Fact>
        {checks.given_up > 0 && <Fact name={t`Given up`}>{count(checks.given_up, "request")}</Fact>}
        {checks.not_begun > 0 && <Fact name={t`Not checked`}>{count(checks.not_begun, "request")}</Fact>}
        <Fact name={t`Largest error`}>{errorText(checks)}</Fact>
        {checks.at && (
          <Fact name={t`Last one`}>
            <Age at={checks.at} />
          </Fact>
        )}
      </dl>
      <p class="panel-body small quiet">
        {checksText(checks)}
        {checks.reason && ` ${sentence(checks.reason)}`}
      </p>
    </Panel>
  );
}
