/* The one message, as bytes: a JSON-RPC 2.0 object with an optional binary body.
 *
 *     0        4                    4 + head             end
 *     +--------+--------------------+--------------------+
 *     | head   | JSON-RPC object    | body               |     length u32 little-endian
 *     +--------+--------------------+--------------------+
 *
 * A text frame is the head alone. The same limits and verdicts as common/wire/message.c; both are held to
 * tests/vectors/wire.json. Pure functions, no state. */

export const HEAD_BYTES_MAX = 1024 * 1024;
export const BODY_BYTES_MAX = 16 * 1024 * 1024;
export const NESTING_MAX = 32;

/** Reasons for refusing a frame. */
export type FrameFault = "short" | "head_too_big" | "body_too_big" | "not_utf8" | "not_json";

export class FrameError extends Error {
  readonly fault: FrameFault;
  constructor(fault: FrameFault, message: string) {
    super(message);
    this.name = "FrameError";
    this.fault = fault;
  }
}

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface Frame {
  head: Json;
  /** Points into the decoded bytes. Empty where there is none. */
  body: Uint8Array;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const toUtf8 = new TextEncoder();

/** One frame's bytes. `head` is the printed JSON-RPC object. Throws FrameError when over a limit. */
export function encodeFrame(head: string, body: Uint8Array = new Uint8Array(0)): Uint8Array<ArrayBuffer> {
  const headBytes = toUtf8.encode(head);
  if (headBytes.length > HEAD_BYTES_MAX)
    throw new FrameError("head_too_big", `the head has ${headBytes.length} bytes, at most ${HEAD_BYTES_MAX} are taken`);
  if (body.length > BODY_BYTES_MAX)
    throw new FrameError("body_too_big", `the body has ${body.length} bytes, at most ${BODY_BYTES_MAX} are taken`);
  const frame = new Uint8Array(4 + headBytes.length + body.length);
  new DataView(frame.buffer).setUint32(0, headBytes.length, true);
  frame.set(headBytes, 4);
  frame.set(body, 4 + headBytes.length);
  return frame;
}

/** A binary frame. Throws FrameError. */
export function decodeFrame(frame: Uint8Array): Frame {
  if (frame.length < 4) throw new FrameError("short", "a binary frame begins with the length of its header, 4 bytes");
  const headBytes = new DataView(frame.buffer, frame.byteOffset, 4).getUint32(0, true);
  if (headBytes > HEAD_BYTES_MAX)
    throw new FrameError("head_too_big", `the head has ${headBytes} bytes, at most ${HEAD_BYTES_MAX} are taken`);
  if (headBytes > frame.length - 4)
    throw new FrameError("short", `the head is said to have ${headBytes} bytes, only ${frame.length - 4} came`);
  const body = frame.subarray(4 + headBytes);
  if (body.length > BODY_BYTES_MAX)
    throw new FrameError("body_too_big", `the body has ${body.length} bytes, at most ${BODY_BYTES_MAX} are taken`);
  let text: string;
  try {
    text = utf8.decode(frame.subarray(4, 4 + headBytes));
  } catch {
    throw new FrameError("not_utf8", "the head is not UTF-8");
  }
  return { head: decodeText(text), body };
}

/** A text frame, or the head of a binary one. Throws FrameError. What we are sent may be as long as a body: the
 * snapshot of a thousand devices has more than the 1 MiB that a server takes. */
export function decodeText(text: string): Json {
  if (text.length > BODY_BYTES_MAX)
    throw new FrameError(
      "head_too_big",
      `the message has ${text.length} characters, at most ${BODY_BYTES_MAX} bytes are taken`,
    );
  checkText(text);
  try {
    return JSON.parse(text) as Json;
  } catch {
    throw new FrameError("not_json", "the head is not JSON");
  }
}

/** Nesting and NUL, which JSON.parse lets pass. */
function checkText(text: string): void {
  let depth = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (inString) {
      if (c === 0x5c) {
        if (text.startsWith("u0000", i + 1)) throw new FrameError("not_json", "a NUL in a string");
        i++;
      } else if (c === 0x22) inString = false;
    } else if (c === 0x22) inString = true;
    else if (c === 0x7b || c === 0x5b) {
      if (++depth > NESTING_MAX) throw new FrameError("not_json", `nested deeper than ${NESTING_MAX}`);
    } else if (c === 0x7d || c === 0x5d) depth--;
  }
}
