/* A command's outcome as a view shows it: null, or what went wrong in words. */
import { CallError } from "../net/calls";

export interface Refusal {
  readonly what: string;
  readonly hint: string | null;
}

export async function tried(call: () => Promise<unknown>): Promise<Refusal | null> {
  try {
    await call();
    return null;
  } catch (error) {
    if (error instanceof CallError) return { what: error.message, hint: error.hint };
    throw error;
  }
}
