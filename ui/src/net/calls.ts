/* Calls that wait for their answer: ids, time limits, errors. Independent of sockets. */
import type { ErrorData, Methods } from "../lib/api.gen";
import { said } from "../text/said";
import { t } from "../text/text";
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

export interface Answer<M extends keyof Methods> {
  readonly result: Methods[M]["result"];
  readonly body: Uint8Array;
}

interface Waiting {
  resolve(result: Json, body: Uint8Array | null): void;
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
    return this.makeFor(method, params, timeoutMs, print).then(({ result }) => result);
  }

  /** The same, with the body of the answer; empty where it has none. */
  makeFor<M extends keyof Methods>(
    method: M,
    params: Methods[M]["params"],
    timeoutMs: number,
    print: (head: string) => void,
  ): Promise<Answer<M>> {
    const id = this.#next++;
    return new Promise<Answer<M>>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        reject(
          new CallError("timeout", t`The server did not answer ${method} within ${Math.round(timeoutMs / 1000)} s`),
        );
      }, timeoutMs);
      const answered = (result: Json, body: Uint8Array | null): void =>
        resolve({ result: result as unknown as Methods[M]["result"], body: body ?? new Uint8Array(0) });
      this.#waiting.set(id, { resolve: answered, reject, timer });
      print(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    });
  }

  /** An answer came. False if nobody waits for it. */
  settle(head: JsonObject, body: Uint8Array | null = null): boolean {
    const waiting = typeof head["id"] === "number" ? this.#waiting.get(head["id"]) : undefined;
    if (!waiting) return false;
    this.#waiting.delete(head["id"] as number);
    clearTimeout(waiting.timer);
    const error = head["error"];
    if (error && typeof error === "object" && !Array.isArray(error)) waiting.reject(readError(error));
    else waiting.resolve(head["result"] ?? null, body);
    return true;
  }

  /** The connection is gone: nothing that waits will be answered. */
  fail(): void {
    for (const { reject, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      reject(new CallError("disconnected", t`The connection to the server was lost`, t`Try again when it is back.`));
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
    said(text(error["message"]) ?? t`The server refused`, fields["message_said"]),
    text(fields["hint"]),
  );
}
