/* The audit log: who did what to which device, from where, with what result; whether it is whole; a copy of it. */
import { useEffect, useRef, useState } from "preact/hooks";
import { type AuditFilter, isListed, listOlder } from "../../command/audit";
import type { Refusal } from "../../command/tried";
import type { AuditEntry, AuditGap } from "../../lib/api.gen";
import { count, figure } from "../../lib/format";
import { gapText, joinGaps, matches } from "../../state/audit";
import { isLive } from "../../state/select";
import { plural, t } from "../../text/text";
import { useApp } from "../app-context";
import { Command } from "../command-line";
import { RefusalNote } from "../parts";
import { Page } from "../shell";
import { ChainPanel } from "./chain";
import { EntryTable } from "./entries";
import { FilterBar } from "./filter";

const PAGE = 100;
const TYPED_MS = 250;
/** Maximum number of lines drawn; older ones are requested again. */
const DRAWN = 1000;

interface Listed {
  readonly entries: readonly AuditEntry[];
  /** Where older entries continue; null: there are none. */
  readonly next: number | null;
  /** Gaps: requested entries that cannot be shown. */
  readonly gaps: readonly AuditGap[];
}

/** The entries that match: asked for when the filter changes, and those that come by event while it follows. */
function useEntries(filter: AuditFilter, follow: boolean) {
  const { state, server } = useApp();
  const [listed, setListed] = useState<Listed | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const live = isLive(state.value);
  const key = JSON.stringify(filter);
  const [searching, setSearching] = useState<number | null>(null);
  const asked = useRef("");
  const ask = async (before: number | null): Promise<void> => {
    asked.current = key;
    if (before !== null) setSearching(before);
    const params = { ...filter, limit: PAGE, ...(before === null ? {} : { before }) };
    const outcome = await listOlder(server, params, (so) => {
      if (asked.current !== key) return false;
      setSearching(so);
      return true;
    });
    if (asked.current !== key) return; // another filter has been asked for since
    setSearching(null);
    if (!isListed(outcome)) return setRefusal(outcome);
    setRefusal(null);
    const { entries, next, gaps } = outcome;
    setListed((old) =>
      before === null || !old ? { entries, next, gaps } : { entries: [...old.entries, ...entries], next, gaps: [...old.gaps, ...gaps] },
    );
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
      if (entries.length <= DRAWN) return { ...old, entries };
      const drawn = entries.slice(0, DRAWN);
      const last = drawn.at(-1)!.seq;
      return { entries: drawn, next: last, gaps: old.gaps.filter((one) => one.first > last) };
    });
  }, [told, follow, listed === null]);
  const older = (): void => void ask(listed?.next ?? null);
  return { listed, refusal, older, searching };
}

export function AuditPage() {
  const { state } = useApp();
  const [filter, setFilter] = useState<AuditFilter>({});
  const [follow, setFollow] = useState(true);
  if (!state.value.login?.scopes.includes("admin")) return <NotAdmin />;
  return (
    <Page title={t`Audit`}>
      <div class="stack">
        <ChainPanel filter={filter} />
        <section class="panel" aria-label={t`Entries`}>
          <FilterBar filter={filter} change={setFilter} follow={follow} setFollow={setFollow} />
          <Entries filter={filter} follow={follow} />
        </section>
      </div>
    </Page>
  );
}

function Entries({ filter, follow }: { filter: AuditFilter; follow: boolean }) {
  const { state } = useApp();
  const { listed, refusal, older, searching } = useEntries(filter, follow);
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
      {behind > 0 && <p class="more small quiet">{plural(behind, t`${count(behind, "newer entry", "newer entries")}; follow to see it.`, t`${count(behind, "newer entry", "newer entries")}; follow to see them.`)}</p>}
      {listed.entries.length === 0 ? (
        <div class="empty">
          <h3>{t`Nothing matches`}</h3>
          <p>{Object.keys(filter).length > 0 ? t`No entry of the log fits this filter.` : t`New entries appear here.`}</p>
        </div>
      ) : (
        <EntryTable entries={listed.entries} />
      )}
      <RefusalNote refusal={refusal} />
      {listed.gaps.length > 0 && (
        <ul class="findings gaps" aria-label={t`Entries that cannot be shown`}>
          {joinGaps(listed.gaps).map((one) => (
            <li key={one.first} class={one.reason === "pruned" ? "small quiet" : "small warm"}>
              {gapText(one)}
            </li>
          ))}
        </ul>
      )}
      {listed.next !== null && (
        <p class="more">
          <button class="text-btn" type="button" disabled={!isLive(state.value) || searching !== null} onClick={older}>
            {searching === null ? t`Load older` : t`Looking through entries before ${figure(searching)}`}
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
    <Page title={t`Audit`}>
      <section class="panel empty">
        <h2>{t`The audit log is for admins`}</h2>
        <p>
          {t`The token ${login?.name ?? ""} has the scopes ${login?.scopes.join(", ") ?? ""}. On the server's machine the log can be read and checked without a token:`}
        </p>
        <Command text="exogpu audit verify" />
      </section>
    </Page>
  );
}
