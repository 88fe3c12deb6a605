/* Lending a device: a machine by a ticket, a phone or a browser by an address; and the addresses that are out. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type MadeLend, isRefusal, makeLend, revokeLend } from "../../command/access";
import type { Refusal } from "../../command/tried";
import type { Lend, Token } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { fits } from "../../lib/fits";
import { count, fullTime, shortTime } from "../../lib/format";
import { nodeHref } from "../../lib/route";
import { isLoopback, makerText } from "../../state/access";
import { admits, joiningText, leavingText, lendLink, shownLends, tabNames, usesText } from "../../state/joining";
import { obstacle, serverTime } from "../../state/select";
import { plural, t, tx } from "../../text/text";
import { useApp } from "../app-context";
import { AskButton } from "../ask";
import { Command, Copied } from "../command-line";
import { MarkIcon, NothingFits, Panel, RefusalNote } from "../parts";
import { useAddress } from "./address";
import { Code } from "./made";
import { CheckShare } from "./share";
import { JoinLine } from "./tickets";

const HOUR_S = 3600;
const lasts: [string, number][] = [
  [t`an hour`, HOUR_S],
  [t`a day`, 24 * HOUR_S],
  [t`a week`, 168 * HOUR_S],
  [t`30 days`, 720 * HOUR_S],
];

interface Known {
  readonly lends: readonly Lend[];
  /** What is known may be old now. */
  readonly changed: () => void;
}

/** A device joins by a ticket or an address: no token is made. `children`: the choice of what a token is for. */
export function LendDevice({ lends, changed, close, children }: Known & { close: () => void; children: ComponentChildren }) {
  const [browser, setBrowser] = useState(false);
  return (
    <div class="dialog-body">
      <h2>{t`Make a token`}</h2>
      {children}
      <fieldset class="scopes">
        <legend class="label">{t`What is lent`}</legend>
        <label class="check">
          <input type="radio" name="lent" checked={!browser} onChange={() => setBrowser(false)} />
          <span>
            <b>{t`A machine`}</b> <span class="quiet">{t`where exogpu can be installed; it joins by a ticket`}</span>
          </span>
        </label>
        <label class="check">
          <input type="radio" name="lent" checked={browser} onChange={() => setBrowser(true)} />
          <span>
            <b>{t`A phone or a browser`}</b> <span class="quiet">{t`nothing is installed; it joins by a link`}</span>
          </span>
        </label>
      </fieldset>
      {browser ? <LendForm lends={lends} changed={changed} /> : <JoinLine changed={changed} />}
      <div class="dialog-acts">
        <button class="btn" type="button" onClick={close}>
          {t`Close`}
        </button>
      </div>
    </div>
  );
}

export function LendPanel({ lends, tokens, changed, filter }: Known & { tokens: readonly Token[]; filter: string }) {
  const { state } = useApp();
  const at = serverTime(state.value, now.value);
  const all = shownLends(lends, at);
  const shown = all.filter((one) => fits(filter, [one.name, makerText(tokens, one.made_by), ...tabNames(state.value, one)]));
  return (
    <Panel title={t`Phones and browsers`}>
      <div class="panel-body join">
        <LendForm lends={lends} changed={changed} />
        {all.length === 0 && <p class="small quiet">{t`No link is out, and no browser has joined.`}</p>}
        <CheckShare />
      </div>
      {shown.length > 0 && (
        <ul class="rows tickets" aria-label={t`Links for browsers`}>
          {shown.map((one) => (
            <LendRow key={one.lend_id} lend={one} tokens={tokens} at={at} changed={changed} />
          ))}
        </ul>
      )}
      {all.length > 0 && shown.length === 0 && <NothingFits />}
    </Panel>
  );
}

/** Makes an address, and shows it while it waits for those who join with it. */
function LendForm({ lends, changed }: Known) {
  const { state, server } = useApp();
  const here = !state.value.server?.tls && isLoopback(new URL(useAddress()).hostname);
  const [made, setMade] = useState<MadeLend | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const why = obstacle(state.value);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    setBusy(true);
    const outcome = await makeLend(server, {
      name: String(fields.get("name")).trim() || "a browser",
      uses: Number(fields.get("uses")),
      expires_in_s: Number(fields.get("lasts")),
    });
    setBusy(false);
    if (isRefusal(outcome)) setRefusal(outcome);
    else {
      setRefusal(null);
      setMade(outcome);
      changed();
    }
  };
  return (
    <>
      <p class="quiet">
        {t`Somebody opens the link on a phone or a laptop and agrees there. As long as the page stays open, the cluster can compute on that device's GPU.`}
      </p>
      {here && <LoopbackNote />}
      <form class="ticket-form" onSubmit={(event) => void submit(event)}>
        <label class="small">
          {t`name`}{" "}<input class="lend-name" name="name" maxLength={64} autocomplete="off" placeholder={t`phone of alice`} />
        </label>
        <label class="small">
          {t`for`}{" "}
          <select name="uses" aria-label={t`for how many devices`}>
            {[1, 2, 5, 10, 50, 100].map((n) => (
              <option key={n} value={n}>
                {count(n, "device")}
              </option>
            ))}
          </select>
        </label>
        <label class="small">
          {t`good for`}{" "}
          <select name="lasts" aria-label={t`good for how long`}>
            {lasts.map(([word, seconds]) => (
              <option key={seconds} value={seconds}>
                {word}
              </option>
            ))}
          </select>
        </label>
        <button class="btn" type="submit" disabled={busy || why !== null} title={why ?? undefined}>
          {busy ? t`Making` : t`Make a link`}
        </button>
      </form>
      <RefusalNote refusal={refusal} />
      {made && <MadeLink key={made.lend_id} made={made} lend={lends.find((one) => one.lend_id === made.lend_id)} />}
    </>
  );
}

/** The address that was made. `lend`: what the server's list says of it; undefined until it was read. */
function MadeLink({ made, lend }: { made: MadeLend; lend: Lend | undefined }) {
  const { state } = useApp();
  const { link, reach } = lendLink(made, useAddress());
  const at = serverTime(state.value, now.value);
  const names = tabNames(state.value, lend);
  const over = lend !== undefined && !admits(lend, at) && lend.used < lend.uses;
  return (
    <div class="made-ticket">
      <p class="small">
        {plural(
          made.uses,
          t`Open this on the device, until ${fullTime(Date.parse(made.expires_at))}. It is shown only here and only now.`,
          t`Open this on each of up to ${made.uses} devices, until ${fullTime(Date.parse(made.expires_at))}. It is shown only here and only now.`,
        )}
      </p>
      {reach === "others" && <Code text={link} label={t`QR code of the link that lends a device`} />}
      <Command text={link} />
      <ReachNote reach={reach} authority={made.fingerprint} />
      <p class="small quiet" role="status">
        <MarkIcon mark={names.length > 0 ? "ok" : "stale"} class="mini" />{" "}
        {over ? `${names.length > 0 ? `${t`${names.join(", ")} joined.`} ` : ""}${t`Nobody else can join with it any more.`}` : joiningText(names, made.uses, "device")}
      </p>
    </div>
  );
}

function LoopbackNote() {
  return (
    <>
      <p class="small quiet">
        {t`This server listens on its own machine only, so a link works only in a browser there. For other devices start the server for the network; it then speaks TLS:`}
      </p>
      <Command text="exogpu serve --lan" />
    </>
  );
}

/** What a device needs before it can use the link; without TLS on loopback the form says it. */
function ReachNote({ reach, authority }: { reach: ReturnType<typeof lendLink>["reach"]; authority: string | null }) {
  if (reach === "here" && authority === null) return null;
  if (reach === "here")
    return (
      <p class="small warm-note">
        <MarkIcon mark="throttled" class="warm" />{" "}{t`This link works on the server's own machine only. Open this dashboard by the address at which other devices reach the server, and make another link there.`}
      </p>
    );
  if (reach === "insecure")
    return (
      <p class="small warm-note">
        <MarkIcon mark="throttled" class="warm" />{" "}{t`Browsers give a page the GPU only by https. Open this dashboard by https, and make another link.`}
      </p>
    );
  if (authority === null) return null;
  return (
    <p class="small quiet lend-trust">
      {tx`A device that does not know this cluster warns of its certificate. Install the cluster's authority there first: ${<a href="/ca.pem" download="exogpu-authority.pem">
        exogpu-authority.pem
      </a>}, which is ${<code>/ca.pem</code>} at the same address. Compare its SHA-256: ${<Copied text={authority.replace(/^SHA256:/, "")} />}. With a certificate of your own that browsers trust, this is not needed.`}
    </p>
  );
}

interface Row {
  readonly lend: Lend;
  readonly tokens: readonly Token[];
  readonly at: number;
  readonly changed: () => void;
}

function LendRow({ lend, tokens, at, changed }: Row) {
  const { state, server } = useApp();
  const { lend_id, node_ids, expires_at } = lend;
  const names = tabNames(state.value, lend);
  return (
    <li>
      <b class="small">{lend.name}</b>
      <span class="small quiet">
        {tx`${usesText(lend, at)}${admits(lend, at) && t`, until ${shortTime(Date.parse(expires_at), now.value)}`}, made by ${makerText(tokens, lend.made_by)}; ${node_ids.length === 0 ? t`nobody has joined` : t`${count(node_ids.length, "device")} joined: `}`}
        {node_ids.map((id, i) => (
          <span key={id}>
            {i > 0 && ", "}
            <a href={nodeHref(id)}>{state.value.nodes[id]?.record.name ?? id}</a>
          </span>
        ))}
      </span>
      <AskButton
        word={t`Revoke`}
        busyWord={t`Revoking`}
        label={t`Revoke the link ${lend.name}`}
        title={t`Revoke the link ${lend.name}?`}
        confirm={t`Revoke`}
        why={obstacle(state.value)}
        run={async () => {
          const refusal = await revokeLend(server, lend_id);
          changed();
          return refusal;
        }}
      >
        <p>{t`Nobody can join with it any more. ${leavingText(names, node_ids.length)}`}</p>
      </AskButton>
    </li>
  );
}
