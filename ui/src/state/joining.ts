/* A machine that is expected: what a page that shows a ticket's line tells while it waits. Pure. */
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

/** "garage has joined. Waiting for 2 more …"; of `uses` machines that may. */
export function joiningText(names: readonly string[], uses: number): string {
  const left = uses - names.length;
  const joined = names.length === 0 ? "" : `${names.join(", ")} ${names.length === 1 ? "has" : "have"} joined. `;
  if (left <= 0) return joined.trim();
  if (uses === 1) return "Waiting for it …";
  return names.length === 0 ? `Waiting for up to ${uses} machines …` : `${joined}Waiting for up to ${left} more …`;
}
