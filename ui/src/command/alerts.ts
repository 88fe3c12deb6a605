/* Commands for alerts: the list with past ones, the rules, and what an admin does with either. */
import type { Alert, AlertChannel, AlertRule, Methods } from "../lib/api.gen";
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

export async function readChannels(server: Server): Promise<readonly AlertChannel[] | Refusal> {
  let read: readonly AlertChannel[] | null = null;
  const refusal = await tried(async () => (read = (await server.call("alert.channel_list", {})).channels));
  return refusal ?? read!;
}

export async function addChannel(server: Server, params: Methods["alert.channel_add"]["params"]): Promise<AlertChannel | Refusal> {
  let added: AlertChannel | null = null;
  const refusal = await tried(async () => (added = await server.call("alert.channel_add", params)));
  return refusal ?? added!;
}

/** What became of a test message, within ten seconds. */
export async function testChannel(server: Server, channel_id: string): Promise<Methods["alert.channel_test"]["result"] | Refusal> {
  let outcome: Methods["alert.channel_test"]["result"] | null = null;
  const refusal = await tried(async () => (outcome = await server.call("alert.channel_test", { channel_id })));
  return refusal ?? outcome!;
}

export const removeChannel = (server: Server, channel_id: string) => tried(() => server.call("alert.channel_remove", { channel_id }));
