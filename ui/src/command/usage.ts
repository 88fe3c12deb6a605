/* What requests to models used, by token, model or device. */
import type { Methods, UsageRow } from "../lib/api.gen";
import type { Server } from "../net/socket";
import { type Refusal, tried } from "./tried";

export type By = Methods["usage.list"]["params"]["by"];

/** One row for each, over the milliseconds before `nowMs`. */
export async function readUsage(server: Server, by: By, spanMs: number, nowMs: number): Promise<readonly UsageRow[] | Refusal> {
  let rows: readonly UsageRow[] = [];
  const from = new Date(nowMs - spanMs).toISOString();
  const refusal = await tried(async () => void ({ rows } = await server.call("usage.list", { by, from })));
  return refusal ?? rows;
}
