/* One connection: calls and their answers, and what the server says by itself. It does not come back after a loss. */
import { decodeFrame, decodeText, encodeFrame } from "../../../ui/src/net/codec.js";
import type { Methods } from "./api.gen.js";
import { ApiError, CallTimeoutError, ConnectionLostError } from "./errors.js";
import type { Socket } from "./socket.js";

export type Method = keyof Methods;
/** The result; where the answer has a body, with it. */
export type Result<M extends Method> = Methods[M]["answerBody"] extends true
  ? Methods[M]["result"] & { body: Uint8Array }
  : Methods[M]["result"];

export interface Message {
  method: string;
  params: unknown;
}

interface Answer {
  id?: number | string | null;
  method?: string;
  params?: unknown;
  result?: object;
  error?: ConstructorParameters<typeof ApiError>[1];
}

interface Pending {
  method: string;
  /** At once with the result, before anything that follows it is heard. */
  answered: ((result: object) => void) | undefined;
  resolve(result: object): void;
  reject(error: Error): void;
}

export class Connection {
  readonly #socket: Socket;
  readonly #pending = new Map<number, Pending>();
  readonly #ended: (error: ConnectionLostError) => void;
  #lastId = 0;
  /** Why it is over; null while it is open. */
  error: Error | null = null;

  /** Resolves when the socket is open. `heard`: what the server says by itself; `ended`: once. */
  static open(socket: Socket, ms: number, heard: (message: Message) => void, ended: (error: ConnectionLostError) => void) {
    return new Promise<Connection>((resolve, reject) => {
      const made = new Connection(socket, heard, (error) => {
        clearTimeout(slow);
        reject(error);
        ended(error);
      });
      const slow = setTimeout(() => made.#fail(new ConnectionLostError(null, `no answer within ${ms} ms`)), ms);
      socket.onopen = () => {
        clearTimeout(slow);
        resolve(made);
      };
    });
  }

  private constructor(socket: Socket, heard: (message: Message) => void, ended: (error: ConnectionLostError) => void) {
    this.#socket = socket;
    this.#ended = ended;
    let trouble: string | undefined; // comes before the close, which alone would not say why
    socket.binaryType = "arraybuffer";
    socket.onerror = (event) => {
      trouble = event.message || undefined;
    };
    socket.onclose = ({ code }) => this.#fail(new ConnectionLostError(code, trouble && `no connection: ${trouble}`));
    socket.onmessage = ({ data }) => {
      try {
        const { head, body } =
          typeof data === "string" ? { head: decodeText(data), body: undefined } : decodeFrame(new Uint8Array(data as ArrayBuffer));
        const message = head as unknown as Answer;
        if (message.method !== undefined) heard({ method: message.method, params: message.params });
        else this.#take(message, body);
      } catch (error) {
        this.#fail(new ConnectionLostError(null, `the server sent what the contract does not know: ${String(error)}`));
      }
    };
  }

  /** `signal` gives the call up: its answer, when it comes, is dropped. */
  call(method: string, params: object, ms: number, more: { body?: Uint8Array | undefined; signal?: AbortSignal | undefined;
    answered?: (result: object) => void } = {}): Promise<object> {
    if (this.error) return Promise.reject(this.error);
    if (more.signal?.aborted) return Promise.reject(more.signal.reason);
    const id = ++this.#lastId;
    return new Promise<object>((resolve, reject) => {
      const over = () => {
        clearTimeout(timer);
        more.signal?.removeEventListener("abort", given);
        this.#pending.delete(id);
      };
      const fail = (error: Error) => {
        over();
        reject(error);
      };
      const timer = setTimeout(() => fail(new CallTimeoutError(method, ms)), ms);
      const given = () => fail(more.signal?.reason);
      more.signal?.addEventListener("abort", given);
      const resolved = (result: object) => {
        over();
        resolve(result);
      };
      this.#pending.set(id, { method, answered: more.answered, resolve: resolved, reject: fail });
      const text = JSON.stringify({ jsonrpc: "2.0", id, method, params });
      this.#socket.send(more.body ? encodeFrame(text, more.body) : text);
    });
  }

  close(): void {
    this.#socket.close(1000);
  }

  #take(answer: Answer, body: Uint8Array | undefined): void {
    const call = this.#pending.get(Number(answer.id));
    if (!call) return;
    if (answer.error || !answer.result) {
      call.reject(new ApiError(call.method, answer.error ?? { code: 0, message: "an answer without a result" }));
      return;
    }
    call.answered?.(answer.result);
    call.resolve(body ? Object.assign(answer.result, { body }) : answer.result);
  }

  #fail(error: ConnectionLostError): void {
    if (this.error) return;
    this.error = error;
    for (const call of [...this.#pending.values()]) call.reject(error);
    this.#socket.close();
    this.#ended(error);
  }
}
