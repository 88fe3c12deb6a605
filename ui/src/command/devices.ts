/* Commands for devices. Each returns null, or the error in words. */
import type { Server } from "../net/socket";
import { type Refusal, tried } from "./tried";

/** Check the device again; the outcome comes as an event. */
export const verifyDevice = (server: Server, deviceId: string): Promise<Refusal | null> =>
  tried(() => server.call("device.verify", { device_id: deviceId }));

/** Give it no new work, or take it back into service. */
export const drainDevice = (server: Server, deviceId: string, drain: boolean): Promise<Refusal | null> =>
  tried(() => server.call("device.drain", { device_id: deviceId, drain }));
