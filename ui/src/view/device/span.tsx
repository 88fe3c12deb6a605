/* Which time the charts show, and the button that saves it as CSV. */
import { useRef, useState } from "preact/hooks";
import { type Between, readBetween } from "../../command/history";
import { ROWS_MOST, exportHistory, fileName, historyCommand } from "../../command/export";
import type { Refusal } from "../../command/tried";
import { figure, fullTime } from "../../lib/format";
import { saveFile } from "../../lib/save";
import { isLive, serverTime } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Command } from "../command-line";
import { MarkIcon } from "../parts";

/** Two moments of the person's own clock. */
export function AnyTime({ chosen }: { chosen: (between: Between) => void }) {
  const { state } = useApp();
  const dialog = useRef<HTMLDialogElement>(null);
  const [wrong, setWrong] = useState<string | null>(null);
  const choose = (form: HTMLFormElement): void => {
    const given = new FormData(form);
    const text = (name: string): string => String(given.get(name) ?? "");
    const read = readBetween(text("from"), text("to"), serverTime(state.peek(), Date.now()));
    setWrong(typeof read === "string" ? read : null);
    if (typeof read === "string") return;
    chosen(read);
    dialog.current?.close();
  };
  return (
    <>
      <button class="btn small-btn" type="button" onClick={() => dialog.current?.showModal()}>
        {t`From, to`}
      </button>
      <dialog ref={dialog} aria-label={t`Readings of any time`} onClose={() => setWrong(null)}>
        <form
          class="dialog-body stack"
          noValidate
          onSubmit={(event) => {
            event.preventDefault();
            choose(event.currentTarget);
          }}
        >
          <h2>{t`Readings of any time`}</h2>
          <label class="in small">
            {t`From`}
            <input type="datetime-local" name="from" />
          </label>
          <label class="in small">
            {t`To`}
            <input type="datetime-local" name="to" />
          </label>
          <p class="small quiet">{t`Minutes are kept for 30 days.`}</p>
          {wrong !== null && (
            <p class="small warm-note" role="alert">
              <MarkIcon mark="throttled" class="warm" /> {wrong}
            </p>
          )}
          <div class="dialog-acts">
            <button class="btn" type="button" onClick={() => dialog.current?.close()}>
              {t`Cancel`}
            </button>
            <button class="btn primary" type="submit">
              {t`Show`}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}

/** A time that a file had no room for. */
export interface Cut {
  readonly rest: Between;
  readonly command: string;
}

export const CutNote = ({ cut }: { cut: Cut }) => (
  <div class="panel-body small" role="status">
    <p>{t`The file ends at ${fullTime(cut.rest.from)}: a page saves ${figure(ROWS_MOST)} lines at most. This prints the rest:`}</p>
    <Command text={cut.command} />
  </div>
);

/** Saves what `span` gives when it is pressed. */
export function SaveCsv({ id, span, saved }: { id: string; span: () => Between; saved: (outcome: Refusal | Cut | null) => void }) {
  const { state, server } = useApp();
  const [busy, setBusy] = useState(false);
  const save = async (): Promise<void> => {
    setBusy(true);
    const between = span();
    const outcome = await exportHistory(server, id, between).finally(() => setBusy(false));
    if ("what" in outcome) return saved(outcome);
    saveFile(fileName(id, between), new Blob([outcome.csv], { type: "text/csv" }));
    saved(outcome.rest && { rest: outcome.rest, command: historyCommand(id, outcome.rest) });
  };
  return (
    <button class="btn small-btn" type="button" disabled={busy || !isLive(state.value)} onClick={() => void save()}>
      {busy ? t`Saving` : t`CSV`}
    </button>
  );
}
