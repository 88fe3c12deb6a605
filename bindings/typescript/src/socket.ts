/* A WebSocket, the browser's own or that of the package ws, which in Node can be told whose certificates to trust. */
import { subprotocol } from "./api.gen.js";

/** What both have in common. */
export interface Socket {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  send(data: string | Uint8Array): void;
  close(code?: number): void;
  onopen: ((event: unknown) => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number }) => void) | null;
  onerror: ((event: { message?: string }) => void) | null;
}

type Ws = new (url: string, protocol: string, options: { ca?: string | undefined; perMessageDeflate: boolean }) => Socket;

const PORT = 52415;
const LONGEST_MS = 2 ** 31 - 1; // 24 days; a timer of more ends at once

/** As setTimeout, for any time. */
export const wait = (ms: number, over: () => void) => setTimeout(over, Math.min(ms, LONGEST_MS));

/** "http://HOST:PORT", "https://…", "ws://…" or "HOST:PORT" as the address of the server's WebSocket. Without a port: that of
 * the scheme, 443 or 80; 52415 where there is no scheme either. */
export function socketUrl(url: string): string {
  if (!url.includes("://")) {
    const { host, port } = new URL(`bare://${url}`); // unlike http it has no port that URL leaves out
    if (!host) throw new TypeError(`no address of a server: ${url}`);
    return `ws://${port ? host : `${host}:${PORT}`}/ws`;
  }
  const whole = new URL(url);
  if (!/^(https?|wss?):$/.test(whole.protocol)) throw new TypeError(`no address of a server: ${url}`);
  const secure = whole.protocol === "https:" || whole.protocol === "wss:";
  return `${secure ? "wss" : "ws"}://${whole.host}/ws`;
}

export async function openSocket(url: string, ca: string | undefined): Promise<Socket> {
  const inNode = typeof process === "object" && Boolean(process.versions?.node);
  if (!inNode) return new WebSocket(url, subprotocol) as unknown as Socket;
  const { WebSocket: Made } = (await import("ws")) as unknown as { WebSocket: Ws };
  return new Made(url, subprotocol, { ca, perMessageDeflate: false });
}
