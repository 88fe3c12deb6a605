/* What draining a device brings about, for whoever is about to do it. Pure. */
import { count, memory } from "../lib/format";
import { plural, t } from "../text/text";
import { lentMemory } from "./allocations";
import { sortedInstances } from "./models";
import type { State } from "./state";

/** In paragraphs. Models leave a draining device; what sessions hold stays. */
export function drainText(state: State, id: string): string[] {
  const models = sortedInstances(state.instances)
    .filter((one) => one.state !== "failed" && one.stages.some((stage) => stage.device_id === id))
    .map((one) => one.model_name);
  const names = [...new Set(models)].join(", ");
  const lent = lentMemory(state.allocations).get(id);
  const held = lent && memory(lent.bytes);
  const allocations = lent?.holdings.reduce((sum, one) => sum + one.allocations.length, 0) ?? 0;
  const texts = [t`It gets no new work.`];
  if (models.length === 1)
    texts.push(
      t`${names} moves to other devices, if they have room. Its answers wait meanwhile and continue there. If there is no room, it stays here, finishes the answers that have begun, and takes no new requests.`,
    );
  else if (models.length > 1)
    texts.push(
      t`${names} move to other devices, if they have room. Their answers wait meanwhile and continue there. A model for which there is no room stays here, finishes the answers that have begun, and takes no new requests.`,
    );
  if (held)
    texts.push(
      plural(
        allocations,
        t`${count(allocations, "allocation")} of sessions, ${held.value} ${held.unit}, stays here until it is freed.`,
        t`${count(allocations, "allocation")} of sessions, ${held.value} ${held.unit}, stay here until they are freed.`,
      ),
    );
  texts.push(t`The device stays drained, also after a restart, until you return it to service.`);
  return texts;
}
