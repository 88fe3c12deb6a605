/* A machine or a browser that is expected: what a page tells while it waits; addresses for browsers. Pure. */
import type { Lend } from "../lib/api.gen";
import { count } from "../lib/format";
import { plural, t } from "../text/text";
import { isLoopback } from "./access";
import { byName, members } from "./select";
import type { State } from "./state";

/** The machines that the cluster has, by id. */
export const memberIds = (state: State): ReadonlySet<string> => new Set(members(state).map((one) => one.record.node_id));

/** Names of the machines that have joined since these were all. */
export const joinedSince = (state: State, before: ReadonlySet<string>): string[] =>
  members(state)
    .filter((one) => !before.has(one.record.node_id))
    .map((one) => one.record.name)
    .sort(byName);

/** "garage has joined. Waiting for 2 more …"; of `uses` machines, or what `one` names, that may. */
export function joiningText(names: readonly string[], uses: number, one: "machine" | "device" = "machine"): string {
  const left = uses - names.length;
  const all = names.join(", ");
  const joined = names.length === 0 ? "" : plural(names.length, t`${all} has joined.`, t`${all} have joined.`);
  if (left <= 0) return joined;
  if (uses === 1) return t`Waiting for it …`;
  if (names.length > 0) return `${joined} ${t`Waiting for up to ${left} more …`}`;
  return t`Waiting for up to ${one === "device" ? count(uses, "device") : count(uses, "machine")} …`;
}

/** Who can open an address for browsers: any device, only the server's own machine, or none that could lend (no TLS). */
export type Reach = "others" | "here" | "insecure";

/** The address to open, and who can. `page`: where others reach this dashboard, which a name or a proxy of the operator's may be. */
export function lendLink(made: { readonly url: string; readonly token: string }, page: string): { readonly link: string; readonly reach: Reach } {
  const link = isLoopback(new URL(page).hostname) ? made.url : `${page}/lend#token=${made.token}`;
  const { hostname, protocol } = new URL(link);
  return { link, reach: isLoopback(hostname) ? "here" : protocol === "https:" ? "others" : "insecure" };
}

/** Whether a browser may still join with it. */
export const admits = (lend: Lend, at: number): boolean =>
  !lend.revoked_at && lend.used < lend.uses && Date.parse(lend.expires_at) > at;

/** Those that matter: that admit somebody, or that somebody has joined with. */
export const shownLends = (lends: readonly Lend[], at: number): Lend[] =>
  lends.filter((one) => admits(one, at) || (!one.revoked_at && one.node_ids.length > 0));

/** "2 of 3 uses left", "used up", "expired" */
export function usesText(lend: Lend, at: number): string {
  if (lend.used >= lend.uses) return t`used up`;
  return Date.parse(lend.expires_at) <= at ? t`expired` : t`${lend.uses - lend.used} of ${count(lend.uses, "use")} left`;
}

/** Names of the browsers that have joined with an address; one that is not in the cluster's state yet is not named. */
export const tabNames = (state: State, lend: Lend | undefined): string[] =>
  (lend?.node_ids ?? []).flatMap((id) => state.nodes[id]?.record.name ?? []).sort(byName);

/** What revoking an address does to those who joined with it. */
export function leavingText(names: readonly string[], joined: number): string {
  if (joined === 0) return t`No browser has joined with it.`;
  const who = names.length === joined && joined <= 5 ? `: ${names.join(", ")}` : "";
  return plural(
    joined,
    t`${count(joined, "device")} leaves at once${who}. What sessions hold there is lost.`,
    t`${count(joined, "device")} leave at once${who}. What sessions hold there is lost.`,
  );
}
