/* One connection: calls and their answers, and what the server says by itself. It does not come back after a loss. */
import { decodeFrame, decodeText, encodeFrame } from "../../../ui/src/net/codec.js";
import type { Methods } from "./api.gen.js";
import { ApiError, CallTimeoutError, ConnectionLostError } from "./errors.js";
import { wait, type Socket } from "./socket.js";

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
  readonly #silenceMs: number;
  #signAt = Date.now(); // when the server was heard last, or took what was sent
  #askedAt: number | null = null; // since then nothing
  #unsent = 0;
  #watching: ReturnType<typeof setTimeout> | undefined;
  /** Why it is over; null while it is open. */
  error: Error | null = null;

  /** Resolves when the socket is open. `heard`: what the server says by itself; `ended`: once. After a third of `silenceMs`
   * without a sign of the server it is asked for one; if none comes in the rest, the connection is lost. */
  static open(socket: Socket, ms: number, silenceMs: number, heard: (message: Message) => void, ended: (error: ConnectionLostError) => void) {
    return new Promise<Connection>((resolve, reject) => {
      const made = new Connection(socket, silenceMs, heard, (error) => {
        clearTimeout(slow);
        reject(error);
        ended(error);
      });
      const slow = wait(ms, () => made.#fail(new ConnectionLostError(null, `no answer within ${ms} ms`)));
      socket.onopen = () => {
        clearTimeout(slow);
        made.#sign();
        made.#watch();
        resolve(made);
      };
    });
  }

  private constructor(socket: Socket, silenceMs: number, heard: (message: Message) => void, ended: (error: ConnectionLostError) => void) {
    this.#socket = socket;
    this.#silenceMs = silenceMs;
    this.#ended = ended;
    let trouble: string | undefined; // comes before the close, which alone would not say why
    socket.binaryType = "arraybuffer";
    socket.onerror = (event) => {
      trouble = event.message || undefined;
    };
    socket.onclose = ({ code }) => this.#fail(new ConnectionLostError(code, trouble && `no connection: ${trouble}`));
    socket.onmessage = ({ data }) => {
      this.#sign();
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
      const timer = wait(ms, () => fail(new CallTimeoutError(method, ms)));
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

  #sign(): void {
    this.#signAt = Date.now();
    this.#askedAt = null;
  }

  /** Looks whether the server is still there; again in a sixth of the time. A page that was asleep asks once more. */
  #watch(looked = Date.now()): void {
    const now = Date.now();
    if (this.error) return;
    if (this.#socket.bufferedAmount < this.#unsent || now - looked > this.#silenceMs / 2) this.#sign();
    this.#unsent = this.#socket.bufferedAmount;
    if (this.#askedAt !== null && now - this.#askedAt >= (this.#silenceMs * 2) / 3) {
      this.#fail(new ConnectionLostError(null, `the connection ended: nothing was heard for ${this.#silenceMs} ms`));
      return;
    }
    if (this.#askedAt === null && now - this.#signAt >= this.#silenceMs / 3) {
      this.#askedAt = now;
      this.call("server.info", {}, this.#silenceMs).catch(() => {}); // any answer is a sign, and none ends the connection
    }
    this.#watching = wait(this.#silenceMs / 6, () => this.#watch(now));
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
    clearTimeout(this.#watching);
    for (const call of [...this.#pending.values()]) call.reject(error);
    this.#socket.close();
    this.#ended(error);
  }
}
