/* The browser's own notifications for alerts, if the person wants them and the browser allows them. */
import { readNotify } from "../../lib/prefs";
import { sentence } from "../../lib/format";
import { raisedBy } from "../../state/news";
import type { Action } from "../../state/reduce";
import type { Store } from "../../state/store";

/** Browsers have notifications only where the page came by https or from this machine. */
export const canNotify = (): boolean => "Notification" in window && window.isSecureContext;

/** The store, whose dispatch also shows a notification for each alert that is raised, also while the tab is hidden. */
export const notifying = (store: Store): Store => ({
  ...store,
  dispatch(action: Action) {
    const alert = raisedBy(store.current(), action);
    store.dispatch(action);
    if (!alert || !canNotify() || !readNotify() || Notification.permission !== "granted") return;
    try {
      new Notification(sentence(alert.message), { body: sentence(alert.hint), tag: alert.alert_id });
    } catch {
      // phones show them through service workers alone, of which this page has none
    }
  },
});
