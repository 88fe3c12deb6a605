/* Calls that wait for their answer: ids, time limits, errors. Independent of sockets. */
import type { ErrorData, Methods } from "../lib/api.gen";
import type { Json } from "./codec";

export type Reason = ErrorData["reason"] | "disconnected";

/** Error of a call: the server's message and its hint. */
export class CallError extends Error {
  readonly reason: Reason;
  readonly hint: string | null;
  constructor(reason: Reason, message: string, hint: string | null = null) {
    super(message);
    this.name = "CallError";
    this.reason = reason;
    this.hint = hint;
  }
}

interface Waiting {
  resolve(result: Json): void;
  reject(error: CallError): void;
  timer: ReturnType<typeof setTimeout>;
}

type JsonObject = { [key: string]: Json };

export class Calls {
  #next = 1;
  #waiting = new Map<number, Waiting>();

  /** Prints a call with `print` and waits for its answer; rejects with a CallError, `timeout` after timeoutMs. */
  make<M extends keyof Methods>(
    method: M,
    params: Methods[M]["params"],
    timeoutMs: number,
    print: (head: string) => void,
  ): Promise<Methods[M]["result"]> {
    const id = this.#next++;
    return new Promise<Json>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        reject(
          new CallError("timeout", `The server did not answer ${method} within ${Math.round(timeoutMs / 1000)} s`),
        );
      }, timeoutMs);
      this.#waiting.set(id, { resolve, reject, timer });
      print(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    }) as Promise<unknown> as Promise<Methods[M]["result"]>;
  }

  /** An answer came. False if nobody waits for it. */
  settle(head: JsonObject): boolean {
    const waiting = typeof head["id"] === "number" ? this.#waiting.get(head["id"]) : undefined;
    if (!waiting) return false;
    this.#waiting.delete(head["id"] as number);
    clearTimeout(waiting.timer);
    const error = head["error"];
    if (error && typeof error === "object" && !Array.isArray(error)) waiting.reject(readError(error));
    else waiting.resolve(head["result"] ?? null);
    return true;
  }

  /** The connection is gone: nothing that waits will be answered. */
  fail(): void {
    for (const { reject, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      reject(new CallError("disconnected", "The connection to the server was lost", "Try again when it is back."));
    }
    this.#waiting.clear();
  }
}

function readError(error: JsonObject): CallError {
  const data = error["data"];
  const fields = data && typeof data === "object" && !Array.isArray(data) ? data : {};
  const text = (value: Json | undefined): string | null => (typeof value === "string" && value !== "" ? value : null);
  return new CallError(
    (text(fields["reason"]) ?? "internal") as Reason,
    text(error["message"]) ?? "The server refused",
    text(fields["hint"]),
  );
}
