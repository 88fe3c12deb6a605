/* Alerts as a table: what, since when, until when, and who has seen it. */
import { useState } from "preact/hooks";
import { acknowledge } from "../../command/alerts";
import type { Refusal } from "../../command/tried";
import type { Alert } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { fullTime, sentence, shortTime } from "../../lib/format";
import { subjectHref } from "../../state/attention";
import { obstacle } from "../../state/select";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { type Mark, MarkIcon, RefusalNote } from "../parts";

const marks: Record<Alert["severity"], { mark: Mark; tone: string }> = {
  critical: { mark: "offline", tone: "crit" },
  warning: { mark: "throttled", tone: "warm" },
  info: { mark: "idle", tone: "" },
};

export function AlertList({ alerts, name, changed }: { alerts: readonly Alert[]; name: string; changed: () => void }) {
  return (
    <div class="table-wrap">
      <table class="list cert-list alert-list">
        <caption class="sr">{name}</caption>
        <thead>
          <tr>
            <th scope="col">{t`What`}</th>
            <th scope="col" class="w-time">
              {t`Raised`}
            </th>
            <th scope="col" class="w-time">
              {t`Cleared`}
            </th>
            <th scope="col" class="w-act">
              {t`Seen`}
            </th>
          </tr>
        </thead>
        <tbody>
          {alerts.map((one) => (
            <AlertRow key={one.alert_id} alert={one} changed={changed} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Time({ at }: { at: string }) {
  const ms = Date.parse(at);
  return (
    <time dateTime={at} title={fullTime(ms)}>
      {shortTime(ms, now.peek())}
    </time>
  );
}

function AlertRow({ alert, changed }: { alert: Alert; changed: () => void }) {
  const { mark, tone } = marks[alert.severity];
  const stands = alert.cleared_at === null;
  return (
    <tr class={stands ? undefined : "over"}>
      <th scope="row">
        <b>{sentence(alert.message)}</b>
        {stands && <p class="quiet small">{sentence(alert.hint)}</p>}
        <span class={`small token-state ${stands ? tone : ""}`}>
          <MarkIcon mark={mark} /> {word(alert.severity)}
          {stands && (
            <>
              ,{" "}
              <a class="link" href={subjectHref(alert)}>
                {alert.subject.type === "instance" ? t`open the model` : alert.subject.type === "node" ? t`open the node` : t`open the device`}
              </a>
            </>
          )}
        </span>
      </th>
      <td data-name={t`Raised`} class="quiet">
        <Time at={alert.raised_at} />
      </td>
      <td data-name={t`Cleared`} class="quiet">
        {alert.cleared_at ? <Time at={alert.cleared_at} /> : t`not yet`}
      </td>
      <td class="list-act">
        {alert.acknowledged_by !== null ? (
          <span class="quiet small" title={alert.acknowledged_at ? fullTime(Date.parse(alert.acknowledged_at)) : undefined}>
            {t`by ${alert.acknowledged_by}`}
          </span>
        ) : stands ? (
          <Seen alert={alert} changed={changed} />
        ) : (
          <span class="faint small">{t`by nobody`}</span>
        )}
      </td>
    </tr>
  );
}

function Seen({ alert, changed }: { alert: Alert; changed: () => void }) {
  const { state, server } = useApp();
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  if (!state.value.login?.scopes.includes("admin")) return <span class="faint small">{t`not yet`}</span>;
  return (
    <>
      <button
        class="btn small-btn"
        type="button"
        disabled={obstacle(state.value) !== null}
        title={obstacle(state.value) ?? undefined}
        aria-label={t`I have seen: ${alert.message}`}
        onClick={() =>
          void acknowledge(server, alert.alert_id).then((outcome) => {
            setRefusal(outcome);
            changed();
          })
        }
      >
        {t`I have seen it`}
      </button>
      <RefusalNote refusal={refusal} />
    </>
  );
}
