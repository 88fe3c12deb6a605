/* The audit log: who did what to which device, from where, with what result; whether it is whole; a copy of it. */
import { useEffect, useState } from "preact/hooks";
import { type AuditFilter, isListed, listAudit } from "../../command/audit";
import type { Refusal } from "../../command/tried";
import type { AuditEntry } from "../../lib/api.gen";
import { count } from "../../lib/format";
import { matches } from "../../state/audit";
import { isLive } from "../../state/select";
import { useApp } from "../app-context";
import { Command } from "../command-line";
import { RefusalNote } from "../parts";
import { Page } from "../shell";
import { ChainPanel } from "./chain";
import { EntryTable } from "./entries";
import { FilterBar } from "./filter";

const PAGE = 100;
const TYPED_MS = 250;
/** So many lines are drawn; older ones are asked for again. */
const DRAWN = 1000;

interface Listed {
  readonly entries: readonly AuditEntry[];
  readonly more: boolean;
}

/** The entries that match: asked for when the filter changes, and those that come by event while it follows. */
function useEntries(filter: AuditFilter, follow: boolean) {
  const { state, server } = useApp();
  const [listed, setListed] = useState<Listed | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const live = isLive(state.value);
  const key = JSON.stringify(filter);
  const ask = async (before: number | null): Promise<void> => {
    const outcome = await listAudit(server, { ...filter, limit: PAGE, ...(before === null ? {} : { before }) });
    if (!isListed(outcome)) return setRefusal(outcome);
    setRefusal(null);
    setListed((old) => ({ more: outcome.more, entries: before === null || !old ? outcome.entries : [...old.entries, ...outcome.entries] }));
  };
  useEffect(() => {
    if (!live) return;
    const timer = setTimeout(() => void ask(null), listed ? TYPED_MS : 0);
    return () => clearTimeout(timer);
  }, [key, live]);
  const told = state.value.audit;
  useEffect(() => {
    if (!follow) return;
    setListed((old) => {
      if (!old) return old;
      const newest = old.entries[0]?.seq ?? -1;
      const fresh = told.filter((one) => one.seq > newest && matches(one, filter));
      if (fresh.length === 0) return old;
      const entries = [...fresh, ...old.entries];
      return { entries: entries.slice(0, DRAWN), more: old.more || entries.length > DRAWN };
    });
  }, [told, follow, listed === null]);
  const older = (): void => void ask(listed?.entries.at(-1)?.seq ?? null);
  return { listed, refusal, older };
}

export function AuditPage() {
  const { state } = useApp();
  const [filter, setFilter] = useState<AuditFilter>({});
  const [follow, setFollow] = useState(true);
  if (!state.value.login?.scopes.includes("admin")) return <NotAdmin />;
  return (
    <Page title="Audit">
      <div class="stack">
        <ChainPanel filter={filter} />
        <section class="panel" aria-label="Entries">
          <FilterBar filter={filter} change={setFilter} follow={follow} setFollow={setFollow} />
          <Entries filter={filter} follow={follow} />
        </section>
      </div>
    </Page>
  );
}

function Entries({ filter, follow }: { filter: AuditFilter; follow: boolean }) {
  const { state } = useApp();
  const { listed, refusal, older } = useEntries(filter, follow);
  if (!listed)
    return refusal ? (
      <div class="panel-body">
        <RefusalNote refusal={refusal} />
      </div>
    ) : (
      <p class="skeleton" />
    );
  const behind = follow ? 0 : state.value.audit.filter((one) => one.seq > (listed.entries[0]?.seq ?? -1) && matches(one, filter)).length;
  return (
    <>
      {behind > 0 && <p class="more small quiet">{count(behind, "newer entry", "newer entries")}; follow to see {behind === 1 ? "it" : "them"}.</p>}
      {listed.entries.length === 0 ? (
        <div class="empty">
          <h3>Nothing matches</h3>
          <p>{Object.keys(filter).length > 0 ? "No entry of the log fits this filter." : "What is done from now on shows here."}</p>
        </div>
      ) : (
        <EntryTable entries={listed.entries} />
      )}
      <RefusalNote refusal={refusal} />
      {listed.more && (
        <p class="more">
          <button class="text-btn" type="button" disabled={!isLive(state.value)} onClick={older}>
            Show older ones
          </button>
        </p>
      )}
    </>
  );
}

function NotAdmin() {
  const { state } = useApp();
  const { login } = state.value;
  return (
    <Page title="Audit">
      <section class="panel empty">
        <h2>The audit log is for admins</h2>
        <p>
          The token {login?.name} has the scopes {login?.scopes.join(", ")}. On the server's machine the log can be read and
          checked without a token:
        </p>
        <Command text="exogpu audit verify" />
      </section>
    </Page>
  );
}
