/* Making a token: what it is for, for how long, with which limits. */
import { useRef, useState } from "preact/hooks";
import { type MadeToken, type NewToken, createToken, isRefusal } from "../../command/access";
import type { Refusal } from "../../command/tried";
import type { Lend, Scope, Token } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { fullTime } from "../../lib/format";
import { tokenEnd } from "../../state/access";
import { type Kind, kinds } from "../../state/kinds";
import { obstacle, serverTime } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { MarkIcon, RefusalNote } from "../parts";
import { Made } from "./made";
import { LendDevice } from "./lending";

const GIB = 2 ** 30;
const DAY_S = 24 * 3600;

const scopes: [Scope, string][] = [
  ["observe", t`see devices, readings and history`],
  ["allocate", t`hold and move memory of devices`],
  ["compute", t`run kernels on it`],
  ["infer", t`use models`],
  ["join", t`lend a device`],
  ["admin", t`everything, this page included`],
];
const lasts: [string, number][] = [
  [t`an hour`, 3600],
  [t`a day`, DAY_S],
  [t`a week`, 7 * DAY_S],
  [t`30 days`, 30 * DAY_S],
  [t`90 days`, 90 * DAY_S],
  [t`a year`, 365 * DAY_S],
];

interface Known {
  readonly tokens: readonly Token[];
  readonly lends: readonly Lend[];
  /** What is known may be old now. */
  readonly changed: () => void;
}

export function CreateToken({ tokens, lends, changed }: Known) {
  const { state } = useApp();
  const dialog = useRef<HTMLDialogElement>(null);
  const [open, setOpen] = useState(false); // closed, nothing of it is left: the page may not hold on to a secret
  const why = obstacle(state.value);
  return (
    <>
      <button
        class="btn small-btn"
        type="button"
        disabled={why !== null}
        title={why ?? undefined}
        onClick={() => {
          setOpen(true);
          dialog.current?.showModal();
        }}
      >
        {t`Make a token`}
      </button>
      <dialog ref={dialog} aria-label={t`Make a token`} class="wide" onClose={() => (setOpen(false), changed())}>
        {open && <Form names={tokens.map((one) => one.name)} lends={lends} changed={changed} close={() => dialog.current?.close()} />}
      </dialog>
    </>
  );
}

interface FormProps extends Pick<Known, "lends" | "changed"> {
  readonly names: readonly string[];
  readonly close: () => void;
}

function Form({ names, lends, changed, close }: FormProps) {
  const { server, state } = useApp();
  const [lasting, setLasting] = useState(30 * DAY_S);
  const { end, cut } = tokenEnd(serverTime(state.value, now.value), lasting, state.value.login?.expires_at ?? null);
  const [made, setMade] = useState<MadeToken | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const [kind, setKind] = useState<Kind>("chat");
  const [picked, setPicked] = useState<readonly Scope[]>(["observe"]);
  const chosen = kinds.find((one) => one.kind === kind)?.scopes ?? picked;
  const form = useRef<HTMLFormElement>(null);

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const fields = new FormData(form.current!);
    const number = (name: string): number | null => {
      const text = String(fields.get(name) ?? "").trim();
      return text === "" ? null : Number(text);
    };
    const [gib, calls, sessions] = [number("memory"), number("calls"), number("sessions")];
    const params: NewToken = {
      name: String(fields.get("name")).trim(),
      scopes: [...chosen],
      expires_in_s: Number(fields.get("lasts")),
      ...(gib === null ? {} : { memory_limit_bytes: Math.round(gib * GIB) }),
      ...(calls === null ? {} : { calls_per_s: calls }),
      ...(sessions === null ? {} : { max_sessions: sessions }),
    };
    setBusy(true);
    const outcome = await createToken(server, params);
    setBusy(false);
    if (isRefusal(outcome)) setRefusal(outcome);
    else setMade(outcome);
  };

  if (made) return <Made made={made} scopes={chosen} close={close} />;
  if (kind === "lend")
    return (
      <LendDevice lends={lends} changed={changed} close={close}>
        <Kinds kind={kind} setKind={setKind} />
      </LendDevice>
    );
  return (
    <form ref={form} class="dialog-body" onSubmit={(event) => void submit(event)}>
      <h2>{t`Make a token`}</h2>
      <Kinds kind={kind} setKind={setKind} />
      <div class="in">
        <label for="token-name">{t`Name`}</label>
        <input id="token-name" name="name" required maxLength={64} autocomplete="off" placeholder={t`who or what it is for`} list="token-names" />
        <datalist id="token-names">
          {[...new Set(names)].slice(0, 20).map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
      </div>
      {kind === "other" && (
        <fieldset class="scopes">
          <legend class="label">{t`It may`}</legend>
          {scopes.map(([scope, what]) => (
            <label class="check" key={scope}>
              <input
                type="checkbox"
                checked={picked.includes(scope)}
                onChange={(event) =>
                  setPicked(event.currentTarget.checked ? [...picked, scope] : picked.filter((one) => one !== scope))
                }
              />
              <span>
                <b>{scope}</b> <span class="quiet">{what}</span>
              </span>
            </label>
          ))}
        </fieldset>
      )}
      <div class="fields">
        <div class="in">
          <label for="token-lasts">{t`Lasts`}</label>
          <select id="token-lasts" name="lasts" onChange={(event) => setLasting(Number(event.currentTarget.value))}>
            {lasts.map(([word, seconds]) => (
              <option key={seconds} value={seconds} selected={seconds === lasting}>
                {word}
              </option>
            ))}
          </select>
        </div>
        <div class="in">
          <label for="token-memory">{t`Memory at most, GiB`}</label>
          <input id="token-memory" name="memory" type="number" min="0.001" step="any" placeholder={t`no limit`} />
        </div>
        <div class="in">
          <label for="token-calls">{t`Calls a second`}</label>
          <input id="token-calls" name="calls" type="number" min="0.1" max="100000" step="any" placeholder={t`no limit`} />
        </div>
        <div class="in">
          <label for="token-sessions">{t`Sessions at once`}</label>
          <input id="token-sessions" name="sessions" type="number" min="1" max="10000" step="1" placeholder={t`no limit`} />
        </div>
      </div>
      {cut && (
        <p class="small warm-note" role="status">
          <MarkIcon mark="throttled" class="warm" />{" "}{t`It ends on ${fullTime(end)}, with the token that you are logged in with: no token outlasts the one that made it.`}
        </p>
      )}
      {chosen.includes("admin") && (
        <p class="small warm-note">
          <MarkIcon mark="throttled" class="warm" />{" "}{t`Whoever has this token may do everything: also make tokens and let machines in.`}
        </p>
      )}
      <RefusalNote refusal={refusal} />
      <div class="dialog-acts">
        <button class="btn" type="button" onClick={close}>
          {t`Cancel`}
        </button>
        <button class="btn primary" type="submit" disabled={busy || chosen.length === 0}>
          {busy ? t`Making` : t`Make`}
        </button>
      </div>
    </form>
  );
}

/** What the token is for: the first thing that is chosen. */
function Kinds({ kind, setKind }: { kind: Kind; setKind: (kind: Kind) => void }) {
  return (
    <fieldset class="scopes kinds">
      <legend class="label">{t`It is for`}</legend>
      {kinds.map(({ kind: one, name, what }) => (
        <label class="check" key={one}>
          <input type="radio" name="kind" checked={one === kind} onChange={() => setKind(one)} />
          <span>
            <b>{name}</b> <span class="quiet">{what}</span>
          </span>
        </label>
      ))}
    </fieldset>
  );
}
