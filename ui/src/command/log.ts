/* The log's lines from before the page was opened. */
import type { LogLine } from "../lib/api.gen";
import type { Server } from "../net/socket";
import { type Refusal, tried } from "./tried";

/** All that the server remembers, oldest first. */
export async function readLog(server: Server): Promise<readonly LogLine[] | Refusal> {
  let lines: readonly LogLine[] = [];
  const refusal = await tried(async () => void ({ lines } = await server.call("log.list", { limit: 500 })));
  return refusal ?? lines;
}
