/* Spot checks of a browser's results, in words. Pure. */
import type { SpotChecks } from "../lib/api.gen";

/** What came of the last one. */
export function checksText(checks: SpotChecks): string {
  switch (checks.last) {
    case "passed":
      return "The last one passed.";
    case "failed":
      return "The last one failed: the device gets no more layers until it is verified again.";
    case "given_up":
      return "The last one could not be finished.";
    case "not_begun":
      return "Not checked.";
    default:
      return "None of its results was compared yet, since the server was started.";
  }
}

/** The largest error of a row; null: none is known. */
export const errorText = (checks: SpotChecks): string | null =>
  checks.largest_error === null
    ? null
    : checks.largest_error === 0
      ? "0"
      : checks.largest_error < 0.0001
        ? "under 0.0001"
        : checks.largest_error.toPrecision(2);

/** The shares of requests that are offered, with the one that is set. */
export const checkShares = (now: number): readonly number[] =>
  [...new Set([0, 1, 5, 10, 25, 100, now])].sort((one, other) => one - other);
export const shareText = (percent: number): string =>
  percent === 0 ? "none" : percent === 100 ? "all requests" : `${percent} % of requests`;
