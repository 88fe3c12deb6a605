/* What keeps a device from its limit. */
import type { Methods, ThermalPolicy } from "../lib/api.gen";
import type { Server } from "../net/socket";
import { type Refusal, tried } from "./tried";

export async function readPolicy(server: Server, device_id: string): Promise<ThermalPolicy | Refusal> {
  let policy: ThermalPolicy | null = null;
  const refusal = await tried(async () => (policy = await server.call("thermal.policy", { device_id })));
  return refusal ?? policy!;
}

export const setPolicy = (server: Server, policy: Methods["thermal.policy_set"]["params"]): Promise<Refusal | null> =>
  tried(() => server.call("thermal.policy_set", policy));
