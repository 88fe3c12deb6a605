/* What a call on this device's worker is refused with. The words and codes are those of common/base/status.h, as the
 * server takes them from a worker. */

const codes = {
  invalid_request: -32600,
  method_not_found: -32601,
  invalid_params: -32602,
  internal: -32603,
  not_found: -32004,
  out_of_memory: -32005,
  limit_exceeded: -32006,
  timeout: -32008,
  conflict: -32009,
  device_lost: -32010,
  unavailable: -32053,
} as const;

export type Reason = keyof typeof codes;

/** What the server keeps of a message and a hint; a compiler's text may be longer. */
const TEXT_MAX = 380;

/** One call failed; the worker goes on, except after `timeout` and `device_lost`. */
export class Fault extends Error {
  readonly reason: Reason;
  readonly hint: string | null;
  constructor(reason: Reason, message: string, hint: string | null = null) {
    super(message);
    this.name = "Fault";
    this.reason = reason;
    this.hint = hint;
  }
}

/** The server broke the protocol: the worker ends. */
export class Breach extends Error {
  constructor(message: string) {
    super(message);
    this.name = "Breach";
  }
}

const shortened = (text: string): string => (text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX - 1)}…` : text);

/** The `error` member of an answer. Anything that is no Fault is `internal`. */
export function errorOf(fault: unknown): { code: number; message: string; data: { reason: string; hint: string | null } } {
  const known = fault instanceof Fault ? fault : new Fault("internal", fault instanceof Error ? fault.message : String(fault));
  const hint = known.hint === null ? null : shortened(known.hint);
  return { code: codes[known.reason], message: shortened(known.message), data: { reason: known.reason, hint } };
}
