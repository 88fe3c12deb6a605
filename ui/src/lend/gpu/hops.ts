/* The hops of a worker with layers of a model: one connection to the server for each direction of its ring. Each says
 * which hop it is (hop.hello), and hears the same when the other end is there, too. A new hop of a direction takes the
 * place of the one before. */
import { printNotice } from "./contract";
import type { HopParams } from "./messages";

export const SUBPROTOCOL = "exogpu.worker.v1";
/** Until both ends are there. */
const CONNECT_MS = 30_000;
/** Of what the next part does not take. */
const UNSENT_MOST = 64 * 1024 * 1024;

export interface HopsParams {
  url: string;
  /** Both ends are there. */
  connected(hop: HopParams): void;
  ended(hop: HopParams, reason: string): void;
  /** A message of the part before. */
  take(message: unknown): void;
}

export class Hops {
  private readonly params: HopsParams;
  private readonly sockets: Partial<Record<HopParams["end"], WebSocket>> = {};
  private there = false; // the one to the next part

  constructor(params: HopsParams) {
    this.params = params;
  }

  connect(hop: HopParams): void {
    this.drop(hop.end);
    const socket = new WebSocket(this.params.url, SUBPROTOCOL);
    const late = setTimeout(() => socket.close(), CONNECT_MS);
    let greeted = false;
    this.sockets[hop.end] = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send(printNotice("hop.hello", { ...hop }) as Uint8Array<ArrayBuffer>);
    socket.onmessage = ({ data }) => {
      if (greeted && hop.end === "in") return this.params.take(data);
      if (greeted) return socket.close(); // nobody has anything to say there
      greeted = true;
      clearTimeout(late);
      this.there ||= hop.end === "out";
      this.params.connected(hop);
    };
    socket.onclose = () => {
      clearTimeout(late);
      this.drop(hop.end);
      this.params.ended(hop, greeted ? "its connection ended" : "the other end did not come");
    };
  }

  private drop(end: HopParams["end"]): void {
    const socket = this.sockets[end];
    if (!socket) return;
    delete this.sockets[end];
    if (end === "out") this.there = false;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  /** To the next part, if it is there. */
  pass(message: Uint8Array<ArrayBuffer>): void {
    const socket = this.sockets.out;
    if (!socket || !this.there || socket.readyState !== WebSocket.OPEN) return;
    if (socket.bufferedAmount > UNSENT_MOST) socket.close();
    else socket.send(message);
  }

  close(): void {
    this.drop("in");
    this.drop("out");
  }
}
