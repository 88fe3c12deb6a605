/* exogpu for browsers and Node: a typed client of the server.
 *
 *     const client = await Client.connect("http://127.0.0.1:52415", { token });
 *     const { devices } = await client.call("cluster.snapshot"); */
export * from "./api.gen.js";
export { Client, type CallOptions, type Event, type Notification, type Options } from "./client.js";
export type { Method, Result } from "./connection.js";
export { ApiError, CallTimeoutError, ConnectionLostError } from "./errors.js";
