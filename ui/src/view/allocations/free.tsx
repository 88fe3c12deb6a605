/* Take memory back from whoever holds it, after asking. */
import { useRef, useState } from "preact/hooks";
import { freeAllocations } from "../../command/memory";
import type { Refusal } from "../../command/tried";
import type { Allocation } from "../../lib/api.gen";
import { count, memory } from "../../lib/format";
import { useApp } from "../app-context";
import { RefusalNote } from "../parts";

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
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  const first = allocations[0];
  if (!first) return null;
  const size = memory(allocations.reduce((sum, one) => sum + one.bytes, 0));
  const what = allocations.length > 1 ? `${count(allocations.length, "allocation")}, ${size.value} ${size.unit}` : `${size.value} ${size.unit}`;
  const free = async (): Promise<void> => {
    dialog.current?.close();
    setBusy(true);
    setRefusal(await freeAllocations(server, allocations.map((one) => one.allocation_id)));
    setBusy(false);
  };
  return (
    <>
      <button
        class="btn small-btn"
        type="button"
        disabled={why !== null || busy}
        title={why ?? undefined}
        aria-label={`${word}: ${what} of ${first.holder}`}
        onClick={() => dialog.current?.showModal()}
      >
        {busy ? "Freeing" : word}
      </button>
      <RefusalNote refusal={refusal} />
      <dialog ref={dialog} aria-label={`Free ${what}`}>
        <div class="dialog-body">
          <h2>
            Free {what} of {first.holder}?
          </h2>
          <p>
            What is in it is lost, and whoever holds it is told so. The token stays valid: it may allocate again at once.
          </p>
          <div class="dialog-acts">
            <button class="btn" type="button" onClick={() => dialog.current?.close()}>
              Cancel
            </button>
            <button class="btn primary" type="button" onClick={() => void free()}>
              Free
            </button>
          </div>
        </div>
      </dialog>
    </>
  );
}
