/* Which alert an action brings that a person should hear of at once. Pure. */
import type { Alert } from "../lib/api.gen";
import type { Action } from "./reduce";
import type { State } from "./state";

/** The alert that was raised just now, if it is a warning or worse; not one that was known before. */
export function raisedBy(before: State, action: Action): Alert | null {
  if (action.type !== "event" || action.event.topic !== "alerts") return null;
  const { alert } = action.event.data;
  const fresh = alert.cleared_at === null && alert.acknowledged_at === null && !(alert.alert_id in before.alerts);
  return fresh && alert.severity !== "info" ? alert : null;
}
