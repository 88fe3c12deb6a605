/* What holds a model's tokens up, as it is shown: the server decides (InstanceTiming.slowest), and colours follow its
 * words. Pure. */
import type { Instance, InstanceTiming } from "../lib/api.gen";

export type TimedStage = InstanceTiming["parts"][number]["stages"][number];

/** Is it what the words are about? Never of a model that does nothing now: then the figures are old. */
export function holdsUp({ timing, running }: Instance, what: TimedStage | "hops"): boolean {
  if (!timing || running === 0) return false;
  const { kind, device_id, first_layer } = timing.slowest;
  if (what === "hops") return kind === "hops";
  return (kind === "stage" || kind === "wait") && what.device_id === device_id && what.first_layer === first_layer;
}

/** Does anything hold it up now? */
export const isHeldUp = ({ timing, running }: Instance): boolean => timing !== null && running > 0 && timing.slowest.kind !== "none";
