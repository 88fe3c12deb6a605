/* Letting machines join: a ticket, as a line to type there; and the tickets that are out. */
import { useState } from "preact/hooks";
import { type MadeTicket, isRefusal, makeTicket, revokeTicket } from "../../command/access";
import type { Refusal } from "../../command/tried";
import type { Ticket, Token } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { fits } from "../../lib/fits";
import { count, fullTime, shortTime } from "../../lib/format";
import { makerText } from "../../state/access";
import { joinedSince, joiningText, memberIds } from "../../state/joining";
import { obstacle, serverTime } from "../../state/select";
import { plural, t, tx } from "../../text/text";
import { useApp } from "../app-context";
import { AskButton } from "../ask";
import { Command, Copied, CopyId } from "../command-line";
import { MarkIcon, NothingFits, Panel, RefusalNote } from "../parts";
import { useAddress } from "./address";

const HOUR_S = 3600;

interface Known {
  readonly tickets: readonly Ticket[];
  readonly tokens: readonly Token[];
  readonly changed: () => void;
}

export function TicketPanel({ tickets, tokens, changed, filter }: Known & { filter: string }) {
  const { state } = useApp();
  const at = serverTime(state.value, now.value);
  const good = tickets.filter((one) => !one.revoked_at && one.used < one.uses && Date.parse(one.expires_at) > at);
  const shown = good.filter((one) => fits(filter, [one.ticket_id, makerText(tokens, one.made_by)]));
  return (
    <Panel title={t`Join another machine`}>
      <div class="panel-body join">
        <JoinLine changed={changed} />
      </div>
      {shown.length > 0 && (
        <ul class="rows tickets">
          {shown.map((one) => (
            <TicketRow key={one.ticket_id} ticket={one} tokens={tokens} changed={changed} />
          ))}
        </ul>
      )}
      {good.length > 0 && shown.length === 0 && <NothingFits />}
    </Panel>
  );
}

/** Makes a ticket, and shows the line that is typed on the other machine. */
export function JoinLine({ changed }: { changed: () => void }) {
  const { state } = useApp();
  return state.value.server?.tls ? <Make changed={changed} /> : <LoopbackOnly />;
}

function LoopbackOnly() {
  return (
    <>
      <p class="quiet">{t`This server listens on its own machine only. To let others join, start it for the network; it then speaks TLS:`}</p>
      <Command text="exogpu serve --lan" />
    </>
  );
}

function Make({ changed }: { changed: () => void }) {
  const { state, server } = useApp();
  const address = useAddress();
  const [made, setMade] = useState<MadeTicket | null>(null);
  const [before, setBefore] = useState<ReadonlySet<string>>(new Set());
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [uses, setUses] = useState(1);
  const [hours, setHours] = useState(1);
  const why = obstacle(state.value);
  const joined = joinedSince(state.value, before);
  const make = async (): Promise<void> => {
    setBefore(memberIds(state.value));
    const outcome = await makeTicket(server, { expires_in_s: hours * HOUR_S, uses });
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
        {tx`A ticket lets a machine in without asking, and tells it which server to trust. Without one, type ${<Copied text={`exogpu node --join ${address}`} />} there and compare the code that both show.`}
      </p>
      <div class="ticket-form">
        <label class="small">
          {t`for`}{" "}
          <select value={uses} onChange={(event) => setUses(Number(event.currentTarget.value))}>
            {[1, 2, 5, 10, 50, 100].map((n) => (
              <option key={n} value={n}>
                {count(n, "machine")}
              </option>
            ))}
          </select>
        </label>
        <label class="small">
          {t`good for`}{" "}
          <select value={hours} onChange={(event) => setHours(Number(event.currentTarget.value))}>
            {[1, 24, 168, 720].map((n) => (
              <option key={n} value={n}>
                {n === 1 ? t`an hour` : n === 24 ? t`a day` : n === 168 ? t`a week` : t`30 days`}
              </option>
            ))}
          </select>
        </label>
        <button class="btn" type="button" disabled={why !== null} title={why ?? undefined} onClick={() => void make()}>
          {t`Make a ticket`}
        </button>
      </div>
      <RefusalNote refusal={refusal} />
      {made && (
        <div class="made-ticket" role="status">
          <p class="small">
            {plural(
              made.uses,
              t`Type this on the machine, until ${fullTime(Date.parse(made.expires_at))}. It is shown only here and only now.`,
              t`Type this on each of up to ${made.uses} machines, until ${fullTime(Date.parse(made.expires_at))}. It is shown only here and only now.`,
            )}
          </p>
          <Command text={`exogpu node --join ${address} --ticket ${made.ticket}`} />
          <p class="small quiet">
            <MarkIcon mark={joined.length > 0 ? "ok" : "stale"} class="mini" /> {joiningText(joined, made.uses)}
          </p>
        </div>
      )}
    </>
  );
}

function TicketRow({ ticket, tokens, changed }: Omit<Known, "tickets"> & { ticket: Ticket }) {
  const { state, server } = useApp();
  return (
    <li>
      <span class="small"><CopyId text={ticket.ticket_id} /></span>
      <span class="small quiet">
        {t`${ticket.used} of ${count(ticket.uses, "use")}, until ${shortTime(Date.parse(ticket.expires_at), now.value)}, made by ${makerText(tokens, ticket.made_by)}`}
      </span>
      <AskButton
        word={t`Revoke`}
        busyWord={t`Revoking`}
        label={t`Revoke the ticket ${ticket.ticket_id}`}
        title={t`Revoke the ticket ${ticket.ticket_id}?`}
        confirm={t`Revoke`}
        why={obstacle(state.value)}
        run={async () => {
          const refusal = await revokeTicket(server, ticket.ticket_id);
          changed();
          return refusal;
        }}
      >
        <p>{t`No machine can join with it any more. Machines that joined with it stay.`}</p>
      </AskButton>
    </li>
  );
}
