/* When to try again: full jitter, doubling from half a second to half a minute. Pure. */

export const FIRST_MS = 500;
export const MOST_MS = 30_000;

/** The wait before attempt `attempt` (0 is the first after a loss), for a `random` in 0..1. At least 100 ms. */
export function backoff(attempt: number, random: number): number {
  const ceiling = Math.min(MOST_MS, FIRST_MS * 2 ** Math.min(attempt, 10));
  return Math.max(100, Math.round(ceiling * random));
}
