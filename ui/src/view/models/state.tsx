/* The state of a loaded model: its mark and its word. */
import type { Instance } from "../../lib/api.gen";
import { count } from "../../lib/format";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { type Mark, MarkIcon } from "../parts";

const marks: Record<Instance["state"], Mark> = {
  starting: "stale",
  running: "idle",
  paused: "throttled",
  stopping: "draining",
  failed: "offline",
};

export function InstanceState({ instance }: { instance: Instance }) {
  const busy = instance.state === "running" && instance.running > 0;
  const mark = busy ? "computing" : marks[instance.state];
  return (
    <span class="state" data-state={mark}>
      <MarkIcon mark={mark} />
      {busy ? count(instance.running, "request") : word(instance.state)}
      {instance.waiting > 0 && t`, ${instance.waiting} waiting`}
    </span>
  );
}
