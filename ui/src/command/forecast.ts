/* How hot a device will be. */
import type { ThermalForecast } from "../lib/api.gen";
import { CallError } from "../net/calls";
import type { Server } from "../net/socket";

/** The forecast of a device's core as it draws now; null while the server cannot be asked. */
export async function readForecast(server: Server, deviceId: string, horizonS: number): Promise<ThermalForecast | null> {
  try {
    return await server.call("thermal.forecast", { device_id: deviceId, horizon_s: horizonS });
  } catch (error) {
    if (error instanceof CallError) return null;
    throw error;
  }
}
