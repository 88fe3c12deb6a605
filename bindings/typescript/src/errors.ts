/* What can go wrong: a refusal of the server by its reason, a call without an answer, a connection that ended. */
import { closeCodes, type Reason } from "./api.gen.js";

/** The server refused a call, or could not do it. `reason` is a stable word; `hint` says what to do about it. */
export class ApiError extends Error {
  readonly reason: Reason;
  readonly code: number;
  readonly hint: string | null;
  readonly method: string;
  constructor(method: string, error: { code: number; message: string; data?: { reason?: Reason; hint?: string | null } }) {
    const hint = error.data?.hint ?? null;
    super(`${method}: ${error.message}${hint ? ` (${hint})` : ""}`);
    this.name = "ApiError";
    this.reason = error.data?.reason ?? "internal";
    this.code = error.code;
    this.hint = hint;
    this.method = method;
  }
}

/** No answer came in the call's own time. The server may still do what was asked. */
export class CallTimeoutError extends Error {
  constructor(method: string, ms: number) {
    super(`${method}: not answered within ${ms} ms`);
    this.name = "CallTimeoutError";
  }
}

/** The connection ended while a call was under way, so whether it was done is not known; or no server is there. */
export class ConnectionLostError extends Error {
  readonly code: number | null;
  constructor(code: number | null, message?: string) {
    super(message ?? `the connection ended: ${(code !== null && closeCodes[code]) || `close code ${code}`}`);
    this.name = "ConnectionLostError";
    this.code = code;
  }
}
