/* One connection of the node to the server: JSON-RPC as text, calls both ways. Knows no method. */

type JsonObject = Record<string, unknown>;
export type Served = (params: JsonObject) => unknown;

/** As the server's refusals: a word, a sentence, and what to do. */
export class LineError extends Error {
  readonly reason: string;
  readonly hint: string | null;
  private readonly data: JsonObject;
  constructor(reason: string, message: string, hint: string | null = null, data: JsonObject = {}) {
    super(message);
    this.name = "LineError";
    this.reason = reason;
    this.hint = hint;
    this.data = data;
  }

  /** Its sentences, and what the server sent beside them for other languages. */
  told(): { message: string; hint: string | null; message_said: unknown; hint_said: unknown } {
    return { message: this.message, hint: this.hint, message_said: this.data["message_said"], hint_said: this.data["hint_said"] };
  }
}

const CODES: Record<string, number> = { method_not_found: -32601, invalid_params: -32602, unavailable: -32011, internal: -32603 };
/** What a server sends a tab is short. */
const MESSAGE_MOST = 64 * 1024;

const isObject = (value: unknown): value is JsonObject => typeof value === "object" && value !== null && !Array.isArray(value);

export class Line {
  private readonly send: (text: string) => void;
  private readonly methods: Record<string, Served>;
  private readonly waiting = new Map<number, { resolve(result: JsonObject): void; reject(error: LineError): void }>();
  private lastId = 0;

  constructor(send: (text: string) => void, methods: Record<string, Served>) {
    this.send = send;
    this.methods = methods;
  }

  call(method: string, params: object): Promise<JsonObject> {
    const id = ++this.lastId;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  notify(method: string, params: object): void {
    this.send(JSON.stringify({ jsonrpc: "2.0", method, params }));
  }

  /** Nothing that waits will be answered. */
  close(message: string): void {
    for (const { reject } of this.waiting.values()) reject(new LineError("unavailable", message));
    this.waiting.clear();
  }

  /** A message that came. Throws LineError if it is none. */
  receive(data: unknown): void {
    if (typeof data !== "string" || data.length > MESSAGE_MOST) throw new LineError("internal", "the server sent what is no message");
    let head: unknown;
    try {
      head = JSON.parse(data);
    } catch {
      throw new LineError("internal", "the server sent what is no JSON");
    }
    if (!isObject(head) || head["jsonrpc"] !== "2.0") throw new LineError("internal", "the server sent what is no message");
    if (typeof head["method"] === "string") void this.serve(head["method"], head["params"], head["id"]);
    else this.settle(head);
  }

  private settle(head: JsonObject): void {
    const waiting = typeof head["id"] === "number" ? this.waiting.get(head["id"]) : undefined;
    if (!waiting) return;
    this.waiting.delete(head["id"] as number);
    const { error, result } = head;
    if (!isObject(error)) return waiting.resolve(isObject(result) ? result : {});
    const data = isObject(error["data"]) ? error["data"] : {};
    const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);
    waiting.reject(
      new LineError(text(data["reason"]) ?? "internal", text(error["message"]) ?? "the server refused", text(data["hint"]), data),
    );
  }

  private async serve(method: string, params: unknown, id: unknown): Promise<void> {
    const served = Object.hasOwn(this.methods, method) ? this.methods[method] : undefined;
    let answer: object;
    try {
      if (!served) throw new LineError("method_not_found", `a browser tab does not know ${method}`);
      if (!isObject(params)) throw new LineError("invalid_params", `${method} takes an object`);
      answer = { result: (await served(params)) ?? {} };
    } catch (fault) {
      const { reason, message } = fault instanceof LineError ? fault : new LineError("internal", String(fault));
      answer = { error: { code: CODES[reason] ?? -32603, message, data: { reason } } };
    }
    if (typeof id === "number" || typeof id === "string") this.send(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
  }
}
