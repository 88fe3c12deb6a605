/* Selectors for audit entries: which match a filter, and their texts. Pure. */
import type { AuditFilter } from "../command/audit";
import type { AuditEntry, AuditGap, AuditReport } from "../lib/api.gen";
import { quoted } from "../lib/csv";
import { figure, fullTime, memory } from "../lib/format";
import { t } from "../text/text";

const texts = (entry: AuditEntry): string =>
  `${entry.actor} ${entry.actor_name} ${entry.target} ${entry.peer} ${JSON.stringify(entry.detail)}`.toLowerCase();

/** How much of the log witnesses have confirmed in a check, in words. */
export function confirmedText({ witnesses, witnessed, entries }: AuditReport): string {
  if (witnesses.length === 0) return t`no witness was asked`;
  if (!witnesses.some((one) => one.state === "agrees")) return t`no witness has confirmed any of them in this check`;
  return witnessed >= entries ? t`all confirmed by witnesses` : t`the first ${figure(witnessed)} confirmed by witnesses`;
}

/** Filters entries like the server does, for entries that arrive as events. */
export function matches(entry: AuditEntry, filter: AuditFilter): boolean {
  const { actor, action, device_id, outcome, text, from, to } = filter;
  if (actor && entry.actor !== actor) return false;
  if (action && !(action.endsWith(".") ? entry.action.startsWith(action) : entry.action === action)) return false;
  if (device_id && entry.device_id !== device_id) return false;
  if (outcome === "failed" ? entry.outcome === "ok" : outcome && entry.outcome !== outcome) return false;
  if (text && !texts(entry).includes(text.toLowerCase())) return false;
  if (from && Date.parse(entry.at) < Date.parse(from)) return false;
  return !(to && Date.parse(entry.at) >= Date.parse(to));
}

/** The actor: a name, which may be empty, and its id or its kind. copies: `id` is one that others know it by. */
export function actorOf(entry: AuditEntry): { name: string; id: string; copies?: true } {
  const [kind = "", id = ""] = entry.actor.split(":");
  switch (kind) {
    case "token":
    case "node":
      return { name: entry.actor_name, id, copies: true };
    case "owner":
      return { name: t`the machine's owner`, id: id ? t`user ${id}` : "" };
    case "server":
      return { name: t`the server`, id: "" };
    default:
      return { name: entry.actor_name || t`nobody`, id: t`not logged in` };
  }
}

/** Entries that say that the page of access shows something else now. */
export const touchesAccess = (entry: AuditEntry): boolean => /^(token|ticket|lend|node|join|certificate|auth|session)\./.test(entry.action);

function said(name: string, value: string | number | boolean): string {
  if (name.endsWith("bytes") && typeof value === "number") {
    const size = memory(value);
    const of = name.replace(/_?bytes$/, "").replaceAll("_", " ");
    return `${of}${of && " "}${size.value} ${size.unit}`;
  }
  const text = String(value);
  const at = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text) ? fullTime(Date.parse(text)) : text;
  return `${name.replaceAll("_", " ")} ${/^[0-9a-f]{40,}$/.test(at) ? `${at.slice(0, 16)}…` : at}`;
}

/** `detail` in a line: "384 MiB, kernel saxpy_f32". */
export const detailOf = (entry: AuditEntry): string =>
  Object.entries(entry.detail)
    .flatMap(([name, value]) => (value === null || value === "" ? [] : [said(name, value)]))
    .join(", ");

/** CSV in the form of `exogpu audit export --format csv`. */
export const CSV_HEAD =
  "seq,at,duration_ms,count,actor,actor_name,session_id,peer,action,target,node_id,device_id,outcome,detail,bound\n";

export function csvLine(entry: AuditEntry): string {
  const { seq, at, duration_ms, count, actor, actor_name, session_id, peer, action, target, node_id, device_id, outcome } = entry;
  const texts = [actor, actor_name, session_id, peer, action, target, node_id, device_id, outcome, JSON.stringify(entry.detail)];
  const bound = entry.bound.map((one) => `${one.kind} ${one.id} ${one.sha256 ?? "-"}`).join("; ");
  return `${seq},${at},${(duration_ms ?? 0).toFixed(3)},${count},${[...texts, bound].map((text) => quoted(text ?? "")).join(",")}\n`;
}

/** What became of one entry, and of several. */
const GAP_TEXT: Record<AuditGap["reason"], readonly [string, string]> = {
  pruned: [t`was pruned`, t`were pruned`],
  removed: [
    t`is only the hash is kept, and no entry was found that says why. Check all of it`,
    t`are only the hash is kept, and no entry was found that says why. Check all of it`,
  ],
  missing: [t`is in an archive that is not there. Check all of it`, t`are in an archive that is not there. Check all of it`],
  damaged: [t`is not in the archive as the log has it. Check all of it`, t`are not in the archive as the log has it. Check all of it`],
};

/** "Entries 0 to 39 were pruned, as entry 57 tells." */
export function gapText(gap: AuditGap): string {
  const one = gap.first === gap.last;
  const which = one ? t`Entry ${gap.first}` : t`Entries ${gap.first} to ${gap.last}`;
  return `${which} ${GAP_TEXT[gap.reason][one ? 0 : 1]}${gap.told_by === null ? "" : t`, as entry ${gap.told_by} tells`}.`;
}

/** Newest first; what adjoins and has the same reason is one. */
export function joinGaps(gaps: readonly AuditGap[]): AuditGap[] {
  const joined: AuditGap[] = [];
  for (const gap of gaps) {
    const last = joined.at(-1);
    if (last && last.first === gap.last + 1 && last.reason === gap.reason && last.told_by === gap.told_by)
      joined[joined.length - 1] = { ...last, first: gap.first };
    else joined.push(gap);
  }
  return joined;
}
