/* Take memory back from whoever holds it, after asking. */
import { freeAllocations } from "../../command/memory";
import type { Allocation } from "../../lib/api.gen";
import { count, memory } from "../../lib/format";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { AskButton } from "../ask";

export function FreeButton({
  allocations,
  word,
  why,
}: {
  allocations: readonly Allocation[];
  word: string;
  /** Why it cannot be done now, or null. */
  why: string | null;
}) {
  const { server } = useApp();
  const first = allocations[0];
  if (!first) return null;
  const size = memory(allocations.reduce((sum, one) => sum + one.bytes, 0));
  const what = allocations.length > 1 ? `${count(allocations.length, "allocation")}, ${size.value} ${size.unit}` : `${size.value} ${size.unit}`;
  return (
    <AskButton
      word={word}
      busyWord={t`Freeing`}
      label={t`${word}: ${what} of ${first.holder}`}
      title={t`Free ${what} of ${first.holder}?`}
      confirm={t`Free`}
      why={why}
      run={() => freeAllocations(server, allocations.map((one) => one.allocation_id))}
    >
      <p>{t`Its content is lost, and its holder is told so. The token stays valid: it may allocate again at once.`}</p>
    </AskButton>
  );
}
