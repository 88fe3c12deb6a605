/* Commands for alerts: the list with past ones, the rules, and what an admin does with either. */
import type { Alert, AlertRule, Methods } from "../lib/api.gen";
import type { Server } from "../net/socket";
import { type Refusal, tried } from "./tried";

export interface Alerts {
  /** Newest first. */
  readonly alerts: readonly Alert[];
  readonly rules: readonly AlertRule[];
}

export async function readAlerts(server: Server): Promise<Alerts | Refusal> {
  let read: Alerts | null = null;
  const refusal = await tried(async () => {
    const [{ alerts }, { rules }] = await Promise.all([
      server.call("alert.list", { state: "all", limit: 1000 }),
      server.call("alert.rules", {}),
    ]);
    read = { alerts, rules };
  });
  return refusal ?? read!;
}

export const acknowledge = (server: Server, alert_id: string) => tried(() => server.call("alert.acknowledge", { alert_id }));
export const setRule = (server: Server, change: Methods["alert.rule_set"]["params"]) =>
  tried(() => server.call("alert.rule_set", change));
