/* Alerts: those that stand, those that were, and the rules that raise them. */
import { useEffect, useRef, useState } from "preact/hooks";
import { type Alerts, readAlerts } from "../../command/alerts";
import { isRefusal } from "../../command/access";
import type { Refusal } from "../../command/tried";
import { isLive } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Panel, RefusalNote } from "../parts";
import { Page } from "../shell";
import { ChannelPanel } from "./channels";
import { AlertList } from "./list";
import { canNotify, notifies, turnOff, turnOn } from "./notify";
import { RulePanel } from "./rules";

/** Read when the page opens, on every reconnect, and after each event of an alert. */
function useAlerts(): { read: Alerts | null; refusal: Refusal | null; again: () => void } {
  const { state, server } = useApp();
  const [read, setRead] = useState<Alerts | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const shown = useRef(true);
  const all = state.value;
  const again = (): void => {
    void readAlerts(server).then((outcome) => {
      if (!shown.current) return;
      if (isRefusal(outcome)) setRefusal(outcome);
      else {
        setRead(outcome);
        setRefusal(null);
      }
    });
  };
  useEffect(() => {
    shown.current = true;
    return () => {
      shown.current = false;
    };
  }, []);
  const live = isLive(all);
  useEffect(() => {
    if (live) again();
  }, [live, all.alerts]);
  return { read, refusal, again };
}

/** Turns the browser's own notifications on and off. */
function NotifyMe({ said }: { said: (why: string | null) => void }) {
  const [wanted, setWanted] = useState(notifies());
  if (!canNotify()) return null;
  const set = async (box: HTMLInputElement): Promise<void> => {
    const on = box.checked;
    if (!on) turnOff();
    const why = on ? await turnOn() : null;
    said(why);
    setWanted(on && why === null);
    box.checked = on && why === null; // where the state is as before, nothing is drawn
  };
  return (
    <label class="check small" title={t`For warnings and critical alerts, while this page is open`}>
      <input type="checkbox" checked={wanted} onChange={(event) => void set(event.currentTarget)} />{" "}{t`Notify me in this browser`}
    </label>
  );
}

export function AlertsPage() {
  const { read, refusal, again } = useAlerts();
  const [unnotified, setUnnotified] = useState<string | null>(null); // why there are no notifications
  const standing = read?.alerts.filter((one) => one.cleared_at === null) ?? [];
  const past = read?.alerts.filter((one) => one.cleared_at !== null) ?? [];
  return (
    <Page title={t`Alerts`}>
      <div class="stack">
        <RefusalNote refusal={refusal} />
        {read ? (
          <>
            <Panel title={t`Now`} aside={<NotifyMe said={setUnnotified} />}>
              {unnotified !== null && (
                <p class="panel-body small" role="alert">
                  {unnotified}
                </p>
              )}
              {standing.length > 0 ? (
                <AlertList alerts={standing} name={t`Alerts that stand`} changed={again} />
              ) : (
                <div class="empty">
                  <h3>{t`Nothing needs attention`}</h3>
                  <p>{t`No rule below finds anything now.`}</p>
                </div>
              )}
            </Panel>
            <ChannelPanel />
            <RulePanel rules={read.rules} changed={again} />
            <Panel title={t`Before`}>
              {past.length > 0 ? (
                <AlertList alerts={past} name={t`Alerts that were cleared`} changed={again} />
              ) : (
                <div class="empty">
                  <h3>{t`No alert was cleared yet`}</h3>
                  <p>{t`The newest 1,000 alerts are kept.`}</p>
                </div>
              )}
            </Panel>
          </>
        ) : (
          !refusal && <p class="panel-body quiet skeleton">{t`Reading the alerts.`}</p>
        )}
      </div>
    </Page>
  );
}
