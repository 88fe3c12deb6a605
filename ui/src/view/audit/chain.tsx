/* Whether the log is complete: the signed head, the head that this browser remembers, the witnesses, a check of
 * everything, and an export. */
import { useEffect, useRef, useState } from "preact/hooks";
import {
  type AuditFilter,
  type Chain,
  checkChain,
  type ExportForm,
  exportAudit,
  isChain,
  isReport,
  verifyAudit,
} from "../../command/audit";
import type { Refusal } from "../../command/tried";
import type { AuditGap, AuditReport, AuditWitness } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { age, count, figure, fullTime, sentence, took } from "../../lib/format";
import { nodeHref } from "../../lib/route";
import { saveFile } from "../../lib/save";
import { confirmedText, gapText, joinGaps } from "../../state/audit";
import { isLive } from "../../state/select";
import { t, tx } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { Copied } from "../command-line";
import { Age, Fact, MarkIcon, RefusalNote } from "../parts";

const EVERY_MS = 30_000;

function useChain(): { chain: Chain | null; refusal: Refusal | null } {
  const { state, server } = useApp();
  const [chain, setChain] = useState<Chain | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const live = isLive(state.value);
  // events tell that it grew; the head is compared at most every 30 s
  const askedAt = useRef(-EVERY_MS);
  const newest = state.value.audit[0]?.seq ?? -1;
  const due = live && (chain === null || chain.head.size <= newest) && now.value - askedAt.current >= EVERY_MS;
  useEffect(() => {
    if (!due) return;
    askedAt.current = Date.now();
    void checkChain(server).then((outcome) => {
      if (isChain(outcome)) {
        setChain(outcome);
        setRefusal(null);
      } else setRefusal(outcome);
    });
  }, [due]);
  return { chain, refusal };
}

export function ChainPanel({ filter }: { filter: AuditFilter }) {
  const { state, server } = useApp();
  const { chain, refusal } = useChain();
  const newest = state.value.audit[0]?.seq ?? -1;
  const [report, setReport] = useState<AuditReport | null>(null);
  const [fault, setFault] = useState<Refusal | null>(null);
  const [checking, setChecking] = useState(false);
  const why = isLive(state.value) ? null : t`Not while the connection is lost.`;
  const verify = async (): Promise<void> => {
    setChecking(true);
    const outcome = await verifyAudit(server);
    setChecking(false);
    if (isReport(outcome)) {
      setReport(outcome);
      setFault(null);
    } else setFault(outcome);
  };
  return (
    <section class="panel" aria-label={t`The log as a whole`}>
      <div class="panel-head chain-head">
        <h2>{chain ? count(Math.max(chain.head.size, newest + 1), "entry", "entries") : t`The log`}</h2>
        <span class="acts">
          <Export filter={filter} why={why} />
          <button class="btn small-btn" type="button" disabled={why !== null || checking} title={why ?? undefined} onClick={() => void verify()}>
            {checking ? t`Checking` : t`Check all of it`}
          </button>
        </span>
      </div>
      <Conflicts />
      {chain && <Memory chain={chain} />}
      {chain && <Facts chain={chain} />}
      <RefusalNote refusal={refusal ?? fault} />
      {report && <Report report={report} />}
    </section>
  );
}

/** Witnesses that hold another log than this one: what stands until it is settled, whoever has seen it before. */
function Conflicts() {
  const { state } = useApp();
  const standing = Object.values(state.value.alerts).filter((one) => one.kind === "audit_forked");
  return (
    <>
      {standing.map((one) => (
        <div key={one.alert_id} class="chain-broken" role="alert">
          <MarkIcon mark="offline" />
          <div>
            <b>{sentence(one.message)}</b>
            <p>{sentence(one.hint)}</p>
            <p>
              <a href={nodeHref(one.subject.id)}>{one.subject.name}</a> <span class="faint small">{t`since`}{" "}<Age at={one.raised_at} /></span>
            </p>
          </div>
        </div>
      ))}
    </>
  );
}

/** The head that the browser remembers: shown first if the log does not continue it. */
function Memory({ chain }: { chain: Chain }) {
  const { memory, head } = chain;
  const ago = memory.kind === "first" ? "" : t`${age(now.value - memory.seenAt)} ago`;
  switch (memory.kind) {
    case "first":
      return (
        <p class="chain-memory">
          <MarkIcon mark="info" /> <span>{t`This browser sees this log for the first time and compares it from now on.`}</span>
        </p>
      );
    case "continues":
      return (
        <p class="chain-memory">
          <MarkIcon mark="ok" class="accent" />{" "}
          <span>
            {t`It continues the log of ${count(memory.size, "entry", "entries")} that this browser saw ${ago}, verified by a proof.`}
          </span>
        </p>
      );
    case "unchecked":
      return (
        <p class="chain-memory">
          <MarkIcon mark="throttled" class="warm" />{" "}
          <span>
            {t`This browser cannot compare it with what it saw ${ago}: a page loaded from another machine over plain HTTP cannot compute hashes. Use https.`}
          </span>
        </p>
      );
    case "broken":
      return (
        <div class="chain-broken" role="alert">
          <MarkIcon mark="offline" />
          <div>
            <b>
              {memory.how === "shorter"
                ? t`The log is shorter than it was: ${figure(head.size)} entries now, ${figure(memory.size)} ${ago}.`
                : memory.how === "key"
                  ? t`The log begins with another key than the one that this browser knows.`
                  : t`The log does not continue the one that this browser saw ${ago}.`}
            </b>
            <p>
              {tx`Somebody has truncated it, restored an older copy or rewritten it. Keep the data directory as it is, and compare with what nodes have signed: ${<Copied text="exogpu audit verify --witness FILE" />}.`}
            </p>
          </div>
        </div>
      );
  }
}

function Facts({ chain }: { chain: Chain }) {
  const { state } = useApp();
  const { head } = chain;
  return (
    <dl class="facts chain-facts">
      <Fact name={t`Signed head`}>
        <span title={head.checkpoint} translate={false}>
          <Copied text={head.root} />
        </span>{" "}
        <span class="faint small">{t`at ${count(head.size, "entry", "entries")}, segment ${figure(head.segment)}`}</span>
      </Fact>
      <Fact name={t`First key`}>
        <Copied text={head.first_key} /> <span class="faint small">{t`keep a copy elsewhere: every check starts from this key`}</span>
      </Fact>
      <Fact name={t`Witnesses`}>
        {head.witnesses.length > 0 ? (
          <ul class="witnesses">
            {head.witnesses.map((one) => (
              <li key={one.name}>
                {one.node_id ? <a href={nodeHref(one.node_id)}>{state.value.nodes[one.node_id]?.record.name ?? one.name}</a> : one.name}{" "}
                <span class="faint small">
                  {t`signed ${count(one.size, "entry", "entries")}`} <Age at={one.at} />
                </span>
              </li>
            ))}
          </ul>
        ) : (
          <span class="quiet">{t`none yet; every node that joins keeps and signs the head`}</span>
        )}
      </Fact>
    </dl>
  );
}

function Report({ report }: { report: AuditReport }) {
  return (
    <div class="audit-report" role="status" aria-label={t`Result of the check`}>
      <p class={`verdict ${report.ok ? "ok" : "no"}`}>
        <MarkIcon mark={report.ok ? "ok" : "offline"} />
        {report.ok ? t`All ${figure(report.entries)} entries verified` : t`The log failed verification: ${word(report.verdict)}`}
        <span class="faint small">{" "}{t`checked in ${took(report.took_ms)}`}</span>
      </p>
      <ul class="findings">
        {report.findings.map((one) => (
          <li key={`${one.seq} ${one.text}`}>
            <b>{t`from entry ${figure(one.seq)}`}</b> {sentence(one.text)}
          </li>
        ))}
      </ul>
      {report.finding_count > report.findings.length && (
        <p class="small quiet">{t`and ${figure(report.finding_count - report.findings.length)} more.`}</p>
      )}
      <Asked witnesses={report.witnesses} />
      <p class="small quiet">
        {tx`${count(report.segments, "segment")}, ${figure(report.signed_entries)} of ${figure(report.entries)} entries signed, ${confirmedText(report)}${report.pruned > 0 && t`, of ${figure(report.pruned)} only the hash is kept`}. ${sentence(report.limits)}`}
      </p>
    </div>
  );
}

const WITNESS_TEXT: Record<AuditWitness["state"], string> = {
  agrees: t`agrees`,
  conflicts: t`holds another log`,
  ahead: t`holds more than this log, which was cut or restored from an older copy`,
  none: t`holds no head yet`,
  silent: t`did not answer in time`,
  offline: t`is offline`,
  unusable: t`gave no usable answer`,
  unreached: t`could not be compared`,
};

/** The answers of the witnesses, each with its name. */
function Asked({ witnesses }: { witnesses: readonly AuditWitness[] }) {
  if (witnesses.length === 0)
    return <p class="small quiet">{t`No witness was asked: no node has signed this log since the server started.`}</p>;
  return (
    <ul class="witnesses" aria-label={t`What witnesses hold`}>
      {witnesses.map((one) => (
        <li key={one.node_id} title={one.reason ?? undefined}>
          <span class={`verdict ${one.state === "agrees" ? "ok" : one.state === "conflicts" || one.state === "ahead" ? "no" : "wait"}`}>
            <MarkIcon mark={one.state === "agrees" ? "ok" : one.state === "conflicts" || one.state === "ahead" ? "offline" : "throttled"} />
            <a href={nodeHref(one.node_id)}>{one.name}</a>
          </span>
          <span>{WITNESS_TEXT[one.state]}</span>
          {one.size !== null && (
            <span class="faint small">
              {one.state === "agrees" ? t`on the first ${count(one.size, "entry", "entries")}` : t`of ${count(one.size, "entry", "entries")}`}
            </span>
          )}
          {one.reason && <span class="faint small">{one.reason}</span>}
        </li>
      ))}
    </ul>
  );
}

/** A copy of what the filter shows, archived entries too, put together here. */
function Export({ filter, why }: { filter: AuditFilter; why: string | null }) {
  const { server } = useApp();
  const [entries, setEntries] = useState<number | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [lacks, setLacks] = useState<readonly AuditGap[]>([]);
  const [stop] = useState({ asked: false });
  const start = async (form: ExportForm): Promise<void> => {
    stop.asked = false;
    setEntries(0);
    const outcome = await exportAudit(server, filter, form, (so) => {
      setEntries(so);
      return !stop.asked;
    });
    setEntries(null);
    if (outcome === null || !("blob" in outcome)) return setRefusal(outcome);
    saveFile(`exogpu-audit-${new Date().toISOString().slice(0, 10)}.${form}`, outcome.blob);
    setRefusal(null);
    setLacks(joinGaps(outcome.gaps));
  };
  if (entries !== null)
    return (
      <button class="btn small-btn" type="button" onClick={() => (stop.asked = true)}>
        {t`${count(entries, "entry", "entries")} … stop`}
      </button>
    );
  const button = (form: ExportForm, name: string, lines: string) => (
    <button
      class="btn small-btn"
      type="button"
      disabled={why !== null}
      title={why ?? t`What the filter shows, archived entries too, as lines of ${lines}, ${fullTime(now.peek())}`}
      onClick={() => void start(form)}
    >
      {name}
    </button>
  );
  return (
    <>
      <RefusalNote refusal={refusal} />
      {lacks.length > 0 && (
        <span class="small warm" title={lacks.map(gapText).join("\n")}>
          {t`The copy lacks what cannot be shown: ${count(lacks.length, "gap")}`}
        </span>
      )}
      {button("jsonl", t`Export`, "JSON")}
      {button("csv", "CSV", "CSV")}
    </>
  );
}
