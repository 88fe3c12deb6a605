/* Where alerts are sent to: the channels, what became of their last message, and a dialog that adds one. Admins only. */
import { useEffect, useRef, useState } from "preact/hooks";
import { addChannel, readChannels, removeChannel, testChannel } from "../../command/alerts";
import { isRefusal } from "../../command/access";
import type { Refusal } from "../../command/tried";
import type { AlertChannel, Methods } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { fullTime, shortTime } from "../../lib/format";
import { isLive, obstacle } from "../../state/select";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { CopyButton, CopyId } from "../command-line";
import { Panel, RefusalNote } from "../parts";

type Added = Methods["alert.channel_add"]["params"];
const EVERY_MS = 5000; // deliveries tell nobody: while the page is open they are asked for

export function ChannelPanel() {
  const { state, server } = useApp();
  const [channels, setChannels] = useState<readonly AlertChannel[] | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [made, setMade] = useState<AlertChannel | null>(null);
  const shown = useRef(true);
  const all = state.value;
  const live = isLive(all);
  const may = all.login?.scopes.includes("admin") ?? false;
  const again = (): void => {
    void readChannels(server).then((outcome) => {
      if (!shown.current) return;
      setRefusal(isRefusal(outcome) ? outcome : null);
      if (!isRefusal(outcome)) setChannels(outcome);
    });
  };
  useEffect(() => {
    if (!live || !may) return undefined;
    shown.current = true;
    again();
    const timer = setInterval(again, EVERY_MS);
    return () => {
      shown.current = false;
      clearInterval(timer);
    };
  }, [live, may]);
  if (!may) return null;
  return (
    <Panel title={t`Channels`} aside={<Add unseen={made !== null} added={(one) => (setMade(one.secret === null ? null : one), again())} />}>
      <RefusalNote refusal={refusal} />
      {made && (
        <div class="panel-body" role="status">
          <p>
            {t`The secret that signs messages to ${made.url} is shown this once:`}{" "}<code class="code">{made.secret}</code>{" "}
            <CopyButton text={made.secret ?? ""} label={t`Copy the secret`} class="text-btn small" />
          </p>
          <button class="btn small-btn" type="button" onClick={() => setMade(null)}>
            {t`I have kept it`}
          </button>
        </div>
      )}
      {channels && channels.length > 0 ? (
        <div class="table-wrap">
          <table class="list cert-list channel-list">
            <caption class="sr">{t`Channels`}</caption>
            <thead>
              <tr>
                <th scope="col">{t`Where`}</th>
                <th scope="col">{t`Severities`}</th>
                <th scope="col">{t`Last message`}</th>
                <th scope="col" class="w-act">
                  <span class="sr">{t`Change`}</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {channels.map((one) => (
                <ChannelRow key={one.channel_id} channel={one} changed={again} />
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        channels && (
          <div class="empty">
            <h3>{t`Alerts reach no other program`}</h3>
            <p>{t`Add a webhook or a topic of ntfy, and alerts come to you.`}</p>
          </div>
        )
      )}
    </Panel>
  );
}

function Last({ channel }: { channel: AlertChannel }) {
  const { last, waiting } = channel;
  const at = last ? Date.parse(last.at) : 0;
  return (
    <>
      {last ? (
        <span class={last.delivered ? "quiet" : "crit"}>
          {last.delivered ? t`delivered` : t`failed`} <time title={fullTime(at)}>{shortTime(at, now.peek())}</time>
          {!last.delivered && last.message !== null && `: ${last.message}`}
        </span>
      ) : (
        <span class="faint">{t`nothing yet`}</span>
      )}
      {waiting > 0 && <span class="small warm">, {waiting === 1 ? t`1 message waits` : t`${waiting} messages wait`}</span>}
    </>
  );
}

function ChannelRow({ channel, changed }: { channel: AlertChannel; changed: () => void }) {
  const { state, server } = useApp();
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [said, setSaid] = useState<string | null>(null);
  const why = obstacle(state.value);
  const test = async (): Promise<void> => {
    setSaid(t`Sending.`);
    const outcome = await testChannel(server, channel.channel_id);
    setRefusal(isRefusal(outcome) ? outcome : null);
    setSaid(isRefusal(outcome) ? null : outcome.delivered ? t`The receiver has it.` : t`Not delivered: ${outcome.message ?? t`no answer`}`);
    changed();
  };
  return (
    <tr>
      <th scope="row">
        <b>{channel.url}</b>
        <br />
        <span class="small faint">
          {channel.kind}, <CopyId text={channel.channel_id} />
          {channel.quiet_hours && t`, quiet ${channel.quiet_hours.from} to ${channel.quiet_hours.to}`}
        </span>
      </th>
      <td data-name={t`Severities`}>{channel.severities.map(word).join(", ")}</td>
      <td data-name={t`Last message`}>
        <Last channel={channel} />
      </td>
      <td class="list-act">
        <button class="btn small-btn" type="button" disabled={why !== null} title={why ?? undefined} aria-label={t`Test ${channel.url}`} onClick={() => void test()}>
          {t`Test`}
        </button>{" "}
        <button
          class="btn small-btn"
          type="button"
          disabled={why !== null}
          title={why ?? undefined}
          aria-label={t`Remove ${channel.url}`}
          onClick={() =>
            void removeChannel(server, channel.channel_id).then((outcome) => {
              setRefusal(outcome);
              changed();
            })
          }
        >
          {t`Remove`}
        </button>
        {said !== null && (
          <p class="small quiet" role="status">
            {said}
          </p>
        )}
        <RefusalNote refusal={refusal} />
      </td>
    </tr>
  );
}

/** What the form says, as the API takes it. */
function paramsOf(given: FormData): Added {
  const text = (name: string): string => String(given.get(name) ?? "").trim();
  const severities = (["info", "warning", "critical"] as const).filter((one) => given.get(one) !== null);
  return {
    kind: text("kind") === "ntfy" ? "ntfy" : "webhook",
    url: text("url"),
    ...(text("secret") !== "" && { secret: text("secret") }),
    ...(severities.length > 0 && { severities }),
    ...(text("from") !== "" && text("to") !== "" && { quiet_hours: { from: text("from"), to: text("to") } }),
  };
}

/** `unseen`: a secret that was made is still shown; another would take its place. */
function Add({ unseen, added }: { unseen: boolean; added: (channel: AlertChannel) => void }) {
  const { state } = useApp();
  const dialog = useRef<HTMLDialogElement>(null);
  const [open, setOpen] = useState(false); // closed, nothing of it is left: the page may not hold on to a secret
  const why = obstacle(state.value) ?? (unseen ? t`Keep the secret that is shown first.` : null);
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
        {t`Add a channel`}
      </button>
      <dialog ref={dialog} aria-label={t`Add a channel`} onClose={() => setOpen(false)}>
        {open && <AddForm added={added} close={() => dialog.current?.close()} />}
      </dialog>
    </>
  );
}

function AddForm({ added, close }: { added: (channel: AlertChannel) => void; close: () => void }) {
  const { server } = useApp();
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const save = async (form: HTMLFormElement): Promise<void> => {
    setBusy(true);
    const outcome = await addChannel(server, paramsOf(new FormData(form))).finally(() => setBusy(false));
    if (isRefusal(outcome)) return setRefusal(outcome);
    form.reset();
    close();
    added(outcome);
  };
  return (
    <form
      class="dialog-body stack"
      autocomplete="off"
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy) void save(event.currentTarget);
      }}
    >
      <h2>{t`Add a channel`}</h2>
      <label class="in small">
        {t`Kind`}
        <select name="kind">
          <option value="webhook">{t`Webhook, signed`}</option>
          <option value="ntfy">ntfy</option>
        </select>
      </label>
      <label class="in small">
        URL
        <input type="url" name="url" required maxLength={2048} placeholder="https://hooks.example.com/exogpu" autocomplete="off" />
      </label>
      <label class="in small">
        {t`Secret of the webhook, or access token of ntfy; empty: one is made for a webhook`}
        <input type="password" name="secret" maxLength={256} autocomplete="off" spellcheck={false} />
      </label>
      <fieldset class="row">
        <legend>{t`Severities`}</legend>
        {["critical", "warning", "info"].map((one) => (
          <label class="check" key={one}>
            <input type="checkbox" name={one} defaultChecked={one !== "info"} /> {word(one)}
          </label>
        ))}
      </fieldset>
      <label class="in small">
        {t`Quiet from (the server's local time; critical alerts come anyway)`}
        <input type="time" name="from" />
      </label>
      <label class="in small">
        {t`Quiet to`}
        <input type="time" name="to" />
      </label>
      <RefusalNote refusal={refusal} />
      <div class="dialog-acts">
        <button class="btn" type="button" onClick={close}>
          {t`Cancel`}
        </button>
        <button class="btn primary" type="submit" disabled={busy}>
          {busy ? t`Adding` : t`Add`}
        </button>
      </div>
    </form>
  );
}
