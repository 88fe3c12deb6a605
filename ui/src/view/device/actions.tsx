/* Check the device again, drain it, take it back. Each says why it cannot be done when it cannot. */
import { useRef, useState } from "preact/hooks";
import { drainDevice, verifyDevice } from "../../command/devices";
import { dismiss, offer } from "../../command/toasts";
import type { Refusal } from "../../command/tried";
import { drainText } from "../../state/drain";
import { isLive } from "../../state/select";
import type { DeviceEntry, State } from "../../state/state";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { RefusalNote } from "../parts";

/** Why nothing can be changed now, or null. */
function obstacle(state: State, entry: DeviceEntry): string | null {
  if (!isLive(state)) return t`Nothing can be changed while the connection is lost.`;
  if (!state.login?.scopes.includes("admin")) return t`Checking and draining need a token with the scope admin.`;
  if (entry.record.state === "offline") return t`The device is offline.`;
  return null;
}

export function Actions({ entry }: { entry: DeviceEntry }) {
  const { state, server } = useApp();
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  const { device_id: id, name, draining, verification } = entry.record;
  const why = obstacle(state.value, entry);
  const checking = verification.state === "pending";

  const run = async (command: Promise<Refusal | null>): Promise<void> => {
    setBusy(true);
    setRefusal(await command);
    setBusy(false);
  };
  const drain = async (): Promise<Refusal | null> => {
    const refused = await drainDevice(server, id, true);
    if (!refused)
      offer({
        key: id,
        text: t`${name} is draining`,
        note: t`It gets no new work.`,
        busy: t`Returning ${name} to service`,
        undo: () => drainDevice(server, id, false),
      });
    return refused;
  };
  const giveBack = (): Promise<Refusal | null> => {
    dismiss(id);
    return drainDevice(server, id, false);
  };
  const reason = why ? { "aria-describedby": "why-not" } : {};
  return (
    <div class="dev-acts">
      <div class="acts">
        <button
          class="btn"
          type="button"
          disabled={why !== null || busy || checking}
          {...reason}
          onClick={() => void run(verifyDevice(server, id))}
        >
          {checking ? t`Checking` : t`Verify again`}
        </button>
        {draining ? (
          <button
            class="btn"
            type="button"
            disabled={why !== null || busy}
            {...reason}
            onClick={() => void run(giveBack())}
          >
            {t`Return to service`}
          </button>
        ) : (
          <button
            class="btn"
            type="button"
            disabled={why !== null || busy}
            {...reason}
            onClick={() => dialog.current?.showModal()}
          >
            {t`Drain`}
          </button>
        )}
      </div>
      {why && (
        <p class="small faint" id="why-not">
          {why}
        </p>
      )}
      <RefusalNote refusal={refusal} />
      <dialog ref={dialog} aria-labelledby="drain-title">
        <div class="dialog-body">
          <h2 id="drain-title">{t`Drain ${name}?`}</h2>
          {drainText(state.value, id).map((text) => (
            <p key={text}>{text}</p>
          ))}
          <div class="dialog-acts">
            <button class="btn" type="button" onClick={() => dialog.current?.close()}>
              {t`Cancel`}
            </button>
            <button
              class="btn primary"
              type="button"
              onClick={() => {
                dialog.current?.close();
                void run(drain());
              }}
            >
              {t`Drain`}
            </button>
          </div>
        </div>
      </dialog>
    </div>
  );
}
