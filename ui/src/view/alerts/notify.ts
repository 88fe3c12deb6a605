/* The browser's own notifications for alerts, if the person wants them and the browser allows them. */
import { announced } from "../../command/toasts";
import { readNotify, writeNotify } from "../../lib/prefs";
import { sentence } from "../../lib/format";
import { raisedBy } from "../../state/news";
import type { Action } from "../../state/reduce";
import type { Store } from "../../state/store";
import { t } from "../../text/text";

/** Browsers have notifications only where the page came by https or from this machine. */
export const canNotify = (): boolean => "Notification" in window && window.isSecureContext;

/** Whether the person wants them, and the browser has not been told otherwise since. */
export const notifies = (): boolean => canNotify() && readNotify() && Notification.permission === "granted";

/** Shows one. False where the browser has the interface and refuses: on phones only service workers may, and this page has none. */
function show(title: string, options: NotificationOptions): boolean {
  try {
    new Notification(title, options);
    return true;
  } catch {
    return false;
  }
}

/** Asks the browser, which asks the person once, and shows the first. Null, or why there will be none. */
export async function turnOn(): Promise<string | null> {
  let why: string | null = t`This browser does not allow notifications of this page.`;
  try {
    if ((await Notification.requestPermission()) === "granted")
      why = show(t`Notifications are on`, { body: t`Alerts of exogpu come like this one.`, tag: "exogpu" })
        ? null
        : t`This browser shows no notifications of a page, as most on phones. A channel of ntfy brings alerts to a phone.`;
  } catch {
    // it cannot even be asked
  }
  writeNotify(why === null);
  return why;
}

export const turnOff = (): void => writeNotify(false);

/** The store, whose dispatch also tells a screen reader of each alert that is raised, and shows a notification, also while the tab is hidden. */
export const notifying = (store: Store): Store => ({
  ...store,
  dispatch(action: Action) {
    const alert = raisedBy(store.current(), action);
    store.dispatch(action);
    if (alert) announced.value = `${alert.severity === "critical" ? t`Critical alert` : t`Alert`}: ${sentence(alert.message)}`;
    if (alert && notifies()) show(sentence(alert.message), { body: sentence(alert.hint), tag: alert.alert_id });
  },
});
