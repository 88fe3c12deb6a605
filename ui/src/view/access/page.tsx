/* Access: nodes that wait, tokens, tickets, addresses for browsers, certificates. For admins. */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Access, isRefusal, readAccess } from "../../command/access";
import type { Refusal } from "../../command/tried";
import { touchesAccess } from "../../state/audit";
import { isLive } from "../../state/select";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { Command } from "../command-line";
import { RefusalNote } from "../parts";
import { FilterField, Page } from "../shell";
import { CertificatePanel } from "./certificates";
import { LendPanel } from "./lending";
import { TicketPanel } from "./tickets";
import { TokenPanel } from "./tokens";
import { WaitingPanel } from "./waiting";

const SETTLE_MS = 400;

/** Kept while the page is away. */
const filter = signal("");

/** Everything that this page shows: read when it opens, on every reconnect, and after whatever changes it. */
function useAccess(): { access: Access | null; refusal: Refusal | null; read: () => void } {
  const { state, server } = useApp();
  const [access, setAccess] = useState<Access | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const shown = useRef(true);
  const all = state.value;
  const told = all.audit.find(touchesAccess)?.seq ?? -1;
  const read = (): void => {
    void readAccess(server).then((outcome) => {
      if (!shown.current) return;
      if (isRefusal(outcome)) setRefusal(outcome);
      else {
        setAccess(outcome);
        setRefusal(null);
      }
    });
  };
  useEffect(() => {
    shown.current = true;
    return () => {
      shown.current = false;
    };
  }, []);
  const live = isLive(all);
  const pending = Object.values(all.nodes).filter((one) => one.record.state === "pending").length;
  useEffect(() => {
    if (!live) return;
    const timer = setTimeout(read, access ? SETTLE_MS : 0);
    return () => clearTimeout(timer);
  }, [live, told, pending]);
  return { access, refusal, read };
}

export function AccessPage() {
  const { state } = useApp();
  if (!state.value.login?.scopes.includes("admin")) return <NotAdmin />;
  return <Everything />;
}

function Everything() {
  const { access, refusal, read } = useAccess();
  const field = { text: filter, label: t`Filter access` };
  return (
    <Page title={t`Access`} filter={field}>
      <div class="stack">
        <div class="filter-row">
          <FilterField {...field} />
        </div>
        <RefusalNote refusal={refusal} />
        {access ? (
          <>
            <WaitingPanel waiting={access.waiting} changed={read} />
            <TokenPanel filter={filter.value} tokens={access.tokens} lends={access.lends} changed={read} />
            <TicketPanel filter={filter.value} tickets={access.tickets} tokens={access.tokens} changed={read} />
            <LendPanel filter={filter.value} lends={access.lends} tokens={access.tokens} changed={read} />
            <CertificatePanel filter={filter.value} certificates={access.certificates} />
          </>
        ) : (
          !refusal && (
            <section class="panel empty">
              <p class="skeleton" />
            </section>
          )
        )}
      </div>
    </Page>
  );
}

function NotAdmin() {
  const { state } = useApp();
  const { login } = state.value;
  return (
    <Page title={t`Access`}>
      <section class="panel empty">
        <h2>{t`This page is for admins`}</h2>
        <p>
          {t`The token ${login?.name ?? ""} has the scopes ${login?.scopes.join(", ") ?? ""}. Tokens, waiting nodes and certificates need the scope admin.`}
        </p>
        <p>{t`On the server's machine an admin makes such a token with:`}</p>
        <Command text="exogpu token create --name NAME --scopes admin" />
      </section>
    </Page>
  );
}
