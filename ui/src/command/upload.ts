/* Uploads: files of this machine, sent to the server in pieces. An upload goes on while other pages are looked at, and
 * after the connection was lost; after the page was loaded again it goes on with the same file, once that is chosen. How
 * far it is, the server tells with its model. */
import { signal } from "@preact/signals";
import { CallError } from "../net/calls";
import { isLive } from "../state/select";
import { t } from "../text/text";
import type { Starter } from "./start";
import type { Refusal } from "./tried";

const PIECE_LEAST = 256 * 1024;
const IN_FLIGHT = 3; // of the server's four
/** A piece that took longer is followed by smaller ones, so that other calls do not wait behind them. */
const SLOW_MS = 1000;
const FAST_MS = 250;
const LOOK_MS = 500;

export interface Sending {
  readonly file: string;
  /** null until the server has answered */
  readonly modelId: string | null;
  /** It has ended with this. */
  readonly refusal: Refusal | null;
  /** The connection is lost: it goes on when that is back. */
  readonly waits: boolean;
}
/** What this page sends, by the names of the files. */
export const sending = signal<Readonly<Record<string, Sending>>>({});

export const isSending = (file: string): boolean => sending.value[file]?.refusal === null;

function keep(file: string, one: Partial<Sending> | null): void {
  const { [file]: before, ...others } = sending.value;
  const blank: Sending = { file, modelId: null, refusal: null, waits: false };
  sending.value = one ? { ...others, [file]: { ...blank, ...before, ...one } } : others;
}

export const dismiss = (file: string): void => keep(file, null);

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string | null> {
  if (!globalThis.crypto?.subtle) return null; // only where the page came by TLS or from this machine
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** How long the next piece is, after one of `length` bytes took so long. */
export function nextLength(length: number, tookMs: number, most: number): number {
  const next = tookMs > SLOW_MS ? length / 2 : tookMs < FAST_MS ? length * 2 : length;
  return Math.max(Math.min(PIECE_LEAST, most), Math.min(most, Math.floor(next)));
}

async function sendPieces(server: Starter["server"], file: File, model_id: string, from: number, most: number): Promise<void> {
  const flights = new Set<Promise<void>>();
  let failed: { error: unknown } | null = null;
  let length = Math.min(PIECE_LEAST, most);
  const send = async (offset: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> => {
    const digest = await sha256(bytes);
    const began = performance.now();
    await server.callWith("model.upload_write", { model_id, offset, ...(digest ? { sha256: digest } : {}) }, bytes);
    length = nextLength(length, performance.now() - began, most);
  };
  for (let offset = from; offset < file.size && !failed; ) {
    const bytes = new Uint8Array(await file.slice(offset, offset + length).arrayBuffer());
    const flight: Promise<void> = send(offset, bytes)
      .catch((error: unknown) => void (failed ??= { error }))
      .finally(() => flights.delete(flight));
    flights.add(flight);
    offset += bytes.length;
    if (flights.size >= IN_FLIGHT) await Promise.race(flights);
  }
  await Promise.all(flights);
  if (failed) throw (failed as { error: unknown }).error;
}

async function sendAll({ server }: Starter, file: File): Promise<void> {
  const begun = await server.call("model.upload_begin", {
    file: file.name,
    bytes: file.size,
    modified_at: new Date(file.lastModified).toISOString(),
  });
  const { model_id } = begun.model;
  keep(file.name, { modelId: model_id, waits: false });
  await sendPieces(server, file, model_id, begun.next_offset, begun.piece_bytes);
  await server.call("model.upload_end", { model_id });
}

const pause = (): Promise<void> => new Promise((done) => setTimeout(done, LOOK_MS));

/** What is told of a fault; null: the connection is to blame, and it is tried again. */
function refusalOf(error: unknown): Refusal | null {
  if (error instanceof CallError) {
    if (error.reason === "disconnected" || error.reason === "timeout" || error.reason === "unavailable") return null;
    return { what: error.message, hint: error.hint };
  }
  if (error instanceof DOMException)
    return { what: t`the browser cannot read the file any more`, hint: t`It was moved or changed meanwhile. Choose it again.` };
  throw error;
}

/** Sends a file, or goes on with it, to its end. */
export async function upload(starter: Starter, file: File): Promise<void> {
  if (isSending(file.name)) return;
  keep(file.name, { modelId: null, refusal: null, waits: false });
  if (file.size === 0)
    return keep(file.name, { refusal: { what: t`${file.name} is empty`, hint: t`Choose the whole file.` } });
  for (;;) {
    try {
      await sendAll(starter, file);
      return keep(file.name, null);
    } catch (error) {
      const refusal = refusalOf(error);
      const { modelId } = sending.value[file.name] ?? { modelId: null };
      if (refusal && modelId && !starter.current().models[modelId]) return keep(file.name, null); // it was cancelled
      if (refusal) return keep(file.name, { refusal });
    }
    keep(file.name, { waits: true });
    do await pause();
    while (!isLive(starter.current()));
  }
}
