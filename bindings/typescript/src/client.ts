/* A session with the server that outlives its connections: it dials again, joins the session that it had, and asks for
 * the events that were missed. A call that is under way when a connection ends fails, since nobody knows whether it was
 * done; one that is made meanwhile waits, as long as its time lets it. */
import type { Login, Methods, Notifications, Snapshot, Topics } from "./api.gen.js";
import { Connection, type Message, type Method, type Result } from "./connection.js";
import { ApiError, CallTimeoutError, ConnectionLostError } from "./errors.js";
import { openSocket, socketUrl, wait } from "./socket.js";

const CALL_MS = 90_000; // longer than a kernel may take unless it is told otherwise
const DIAL_MS = 10_000;
const SILENCE_MS = 60_000; // the server pings every 20 s, which a page does not see
const LAST_WAIT_MS = 5_000;
const WAITING_EVENTS = 10_000;
const FINAL_CODES = [4403, 4410]; // after these the server would only refuse again
const PIECE = 1 << 20; // as memory.write advises: some pieces under way at a time
const WINDOW = 8;

export interface Options {
  token: string;
  /** PEM of the authority that signs the server's certificate. In Node only. */
  ca?: string;
  /** How long a call may take, 90 s unless said. */
  timeoutMs?: number;
  /** How long a lost connection is tried again, 60 s unless said. The server keeps a session for 10 s. */
  reconnectMs?: number;
  /** When nothing has been heard for so long, not even what was asked for, the connection is lost; 60 s unless said. */
  silenceMs?: number;
  /** What the server says to this session, such as session.device_lost. What this throws is told by console.error. */
  onNotification?: (notification: Notification) => void;
}

export type Notification = { [N in keyof Notifications]: { method: N; params: Notifications[N] } }[keyof Notifications];
/** What comes by `events`: the whole state first, and again only where events were missed for good. */
export type Event =
  | { [T in keyof Topics]: { topic: T; epoch: string; seq: number; at: string; data: Topics[T] } }[keyof Topics]
  | { topic: "snapshot"; epoch: string; seq: number; data: Snapshot };

export interface CallOptions {
  timeoutMs?: number;
  /** Gives the call up. What the server does meanwhile is not undone. */
  signal?: AbortSignal;
}
type Body<M extends Method> = Methods[M]["body"] extends "required"
  ? { body: Uint8Array }
  : Methods[M]["body"] extends "optional"
    ? { body?: Uint8Array }
    : unknown;
/** Parameters may be left out where there are none, options where no body is due. */
type Rest<M extends Method> = Methods[M]["body"] extends "required"
  ? [params: Methods[M]["params"], options: CallOptions & Body<M>]
  : Record<string, never> extends Methods[M]["params"]
    ? [params?: Methods[M]["params"], options?: CallOptions & Body<M>]
    : [params: Methods[M]["params"], options?: CallOptions & Body<M>];

const pause = (ms: number) => new Promise<void>((resolve) => wait(ms, resolve));

export class Client {
  readonly #url: string;
  readonly #options: Options;
  #connection: Connection | null = null;
  #over: Error | null = null;
  #events: Events | null = null;
  #comingBack = false;
  #waiting = new Set<() => void>();
  /** The token's name, scopes and this session. */
  login!: Login;

  /** Rejects with an ApiError (`unauthenticated`) or a ConnectionLostError. */
  static async connect(url: string, options: Options): Promise<Client> {
    const client = new Client(socketUrl(url), options);
    await client.#dial();
    return client;
  }

  private constructor(url: string, options: Options) {
    this.#url = url;
    this.#options = options;
  }

  /** One method of the server. Rejects with an ApiError by its reason, a CallTimeoutError, a ConnectionLostError. */
  async call<M extends Method>(method: M, ...rest: Rest<M>): Promise<Result<M>> {
    const [params = {}, options = {}] = rest as [object?, (CallOptions & { body?: Uint8Array })?];
    const own = "timeout_ms" in params ? Number(params.timeout_ms) : 0; // on the server, beside the way there
    const ms = options.timeoutMs ?? (this.#options.timeoutMs ?? CALL_MS) + own;
    const until = Date.now() + ms;
    while (!this.#connection) {
      if (this.#over) throw this.#over;
      options.signal?.throwIfAborted();
      if (Date.now() >= until) throw new CallTimeoutError(method, ms);
      await this.#changed(until - Date.now(), options.signal);
    }
    return (await this.#connection.call(method, params, until - Date.now(), options)) as Result<M>;
  }

  /** Writes memory of any size, in pieces. `offset` in bytes. */
  async write(allocation_id: string, data: ArrayBufferView, offset = 0, options: CallOptions = {}): Promise<void> {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    await inPieces(bytes.length, (at, count) =>
      this.call("memory.write", { allocation_id, offset: offset + at }, { ...options, body: bytes.subarray(at, at + count) }));
  }

  /** Reads `bytes` bytes of memory, in pieces. */
  async read(allocation_id: string, bytes: number, offset = 0, options: CallOptions = {}): Promise<Uint8Array> {
    const whole = new Uint8Array(bytes);
    await inPieces(bytes, async (at, count) => {
      const { body } = await this.call("memory.read", { allocation_id, offset: offset + at, bytes: count }, options);
      whole.set(body, at);
    });
    return whole;
  }

  /** Events of these topics, in order, over lost connections too: `for await (const event of client.events([…]))`.
   * Leaving the loop ends the subscription. A client has one at a time. */
  async *events(topics: (keyof Topics)[]): AsyncGenerator<Event, void, undefined> {
    if (this.#events) throw new Error("a client has one stream of events: leave the other, or connect once more");
    const events = new Events(topics);
    this.#events = events;
    try {
      if (this.#connection) await events.resume(this.#connection);
      for (;;) {
        const event = events.take();
        if (event) yield event;
        else if (this.#over) throw this.#over;
        else if (events.late && this.#connection) await events.resume(this.#connection).catch(lost);
        else await events.more();
      }
    } finally {
      this.#events = null;
      await this.#connection?.call("events.subscribe", { topics: [] }, DIAL_MS).catch(lost);
    }
  }

  /** Ends the session: what it has allocated is freed. */
  close(): void {
    this.#finish(new ConnectionLostError(null, "this client was closed"));
    this.#connection?.close();
  }

  async #dial(): Promise<void> {
    const made: { connection?: Connection } = {};
    const connection = await Connection.open(
      await openSocket(this.#url, this.#options.ca), DIAL_MS, this.#options.silenceMs ?? SILENCE_MS, (message) => this.#heard(message), (error) => this.#lost(made.connection, error));
    made.connection = connection;
    try {
      this.login = await this.#logIn(connection);
      if (this.#over) throw this.#over;
      this.#connection = connection;
      if (this.#events) await this.#events.resume(connection);
    } catch (error) {
      if (this.#connection === connection) this.#connection = null;
      connection.close();
      throw error;
    }
    this.#wake();
  }

  async #logIn(connection: Connection): Promise<Login> {
    const { token } = this.#options;
    if (this.login)
      try {
        return (await connection.call("auth.login", { token, session_id: this.login.session_id }, DIAL_MS)) as Login;
      } catch (error) {
        if (!(error instanceof ApiError && error.reason === "not_found")) throw error; // it has ended, with what it owned
      }
    return (await connection.call("auth.login", { token }, DIAL_MS)) as Login;
  }

  #lost(connection: Connection | undefined, error: ConnectionLostError): void {
    if (!connection || this.#connection !== connection) return;
    this.#connection = null;
    if (error.code !== null && FINAL_CODES.includes(error.code)) this.#finish(error);
    if (!this.#over && !this.#comingBack) void this.#comeBack();
  }

  async #comeBack(): Promise<void> {
    this.#comingBack = true;
    const until = Date.now() + (this.#options.reconnectMs ?? 60_000);
    for (let wait = 50; !this.#over && !this.#connection; wait = Math.min(2 * wait, LAST_WAIT_MS))
      try {
        await this.#dial();
      } catch (error) {
        const refused = error instanceof ApiError && (error.reason === "unauthenticated" || error.reason === "forbidden");
        if (refused || Date.now() + wait > until) this.#finish(error as Error);
        else await pause(wait * (0.5 + Math.random() / 2));
      }
    this.#comingBack = false;
  }

  #finish(error: Error): void {
    this.#over ??= error;
    this.#wake();
  }

  #wake(): void {
    for (const look of [...this.#waiting]) look();
    this.#events?.wake();
  }

  /** Until something about the connection has changed, or the time is over. */
  #changed(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const look = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", look);
        this.#waiting.delete(look);
        resolve();
      };
      const timer = wait(ms, look);
      signal?.addEventListener("abort", look);
      this.#waiting.add(look);
    });
  }

  #heard({ method, params }: Message): void {
    if (method === "event") this.#events?.add(params as Event);
    else void this.#tell({ method, params } as Notification);
  }

  /** An error of the program's own is told, and the connection goes on. */
  async #tell(notification: Notification): Promise<void> {
    try {
      await this.#options.onNotification?.(notification);
    } catch (error) {
      console.error(`exogpu: onNotification failed at ${notification.method}:`, error);
    }
  }
}

function lost(error: unknown): void {
  if (!(error instanceof ConnectionLostError)) throw error;
}

/** After a piece that fails no other is begun. */
async function inPieces(total: number, move: (at: number, count: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const some = async () => {
    while (next < total) {
      const at = next;
      next += PIECE;
      await move(at, Math.min(PIECE, total - at)).catch((error: unknown) => {
        next = total;
        throw error;
      });
    }
  };
  await Promise.all(Array.from({ length: Math.min(WINDOW, Math.ceil(total / PIECE)) }, some));
}

/** The events that wait to be taken. Of a reader who is 10,000 behind they are asked for again. */
class Events {
  readonly #topics: (keyof Topics)[];
  #waiting: Event[] = [];
  #seen: { epoch: string; seq: number } | null = null;
  #look: (() => void) | null = null;
  /** What comes is not kept: the server has to be asked again from what was taken last. */
  late = true;

  constructor(topics: (keyof Topics)[]) {
    this.#topics = topics;
  }

  async resume(connection: Connection): Promise<void> {
    this.#waiting = [];
    this.late = true;
    const since = this.#seen ? { since: this.#seen } : {};
    await connection.call("events.subscribe", { topics: this.#topics, ...since }, CALL_MS, {
      answered: (result) => {
        const { epoch, seq, snapshot } = result as Methods["events.subscribe"]["result"];
        this.late = false;
        if (snapshot) this.#waiting.push({ topic: "snapshot", epoch, seq, data: snapshot });
        this.wake();
      },
    });
  }

  add(event: Event): void {
    if (this.#waiting.length >= WAITING_EVENTS) {
      this.#waiting = [];
      this.late = true;
    }
    if (!this.late) this.#waiting.push(event);
    this.wake();
  }

  take(): Event | undefined {
    const event = this.#waiting.shift();
    if (event) this.#seen = { epoch: event.epoch, seq: event.seq };
    return event;
  }

  more(): Promise<void> {
    return new Promise((resolve) => {
      this.#look = resolve;
    });
  }

  wake(): void {
    this.#look?.();
    this.#look = null;
  }
}
