/* Spot checks of a browser's results, in words. Pure. */
import type { SpotChecks } from "../lib/api.gen";
import { t } from "../text/text";

/** What came of the last one. */
export function checksText(checks: SpotChecks): string {
  switch (checks.last) {
    case "passed":
      return t`The last one passed.`;
    case "failed":
      return t`The last one failed: the device gets no more layers until it is verified again.`;
    case "given_up":
      return t`The last one could not be finished.`;
    case "not_begun":
      return t`Not checked.`;
    default:
      return t`None of its results was compared yet, since the server was started.`;
  }
}

/** The largest error of a row; null: none is known. */
export const errorText = (checks: SpotChecks): string | null =>
  checks.largest_error === null
    ? null
    : checks.largest_error === 0
      ? "0"
      : checks.largest_error < 0.0001
        ? t`under 0.0001`
        : checks.largest_error.toPrecision(2);

/** The shares of requests that are offered, with the one that is set. */
export const checkShares = (now: number): readonly number[] =>
  [...new Set([0, 1, 5, 10, 25, 100, now])].sort((one, other) => one - other);
export const shareText = (percent: number): string =>
  percent === 0 ? t`none` : percent === 100 ? t`all requests` : t`${percent} % of requests`;
