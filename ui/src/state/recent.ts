/* The latest changes for people: several devices of a machine that changed together are one line. Pure. */
import type { Change } from "../lib/api.gen";
import { deviceHref, modelHref, nodeHref } from "../lib/route";
import type { State } from "./state";

/** The page about it: its device's, its model's, else its machine's. */
export function changeHref({ models }: State, change: Change): string {
  if (change.device_id) return deviceHref(change.device_id);
  const model = change.kind.startsWith("model.") ? Object.values(models).find((one) => one.name === change.name) : undefined;
  return model ? modelHref(model.model_id) : nodeHref(change.node_id);
}

/** A change, and how many more there were of the same kind at the same time. */
export interface Happening {
  readonly change: Change;
  readonly more: number;
}

const TOGETHER_MS = 3000;

function together(a: Change, b: Change): boolean {
  return (
    a.kind === b.kind &&
    a.summary === b.summary &&
    a.node_id === b.node_id &&
    a.device_id !== b.device_id &&
    Math.abs(Date.parse(a.at) - Date.parse(b.at)) <= TOGETHER_MS
  );
}

/** Newest first, as they come. */
export function happenings(changes: readonly Change[]): Happening[] {
  const found: Happening[] = [];
  for (const change of changes) {
    const last = found[found.length - 1];
    if (last && together(last.change, change)) found[found.length - 1] = { change: last.change, more: last.more + 1 };
    else found.push({ change, more: 0 });
  }
  return found;
}
