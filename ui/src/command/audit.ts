/* Commands for the audit log: read, check, export; and compare it with the head that this browser remembers. */
import type { AuditEntry, AuditGap, AuditReport, Methods } from "../lib/api.gen";
import { canHash, continues } from "../lib/merkle";
import { readPin, writePin } from "../lib/prefs";
import type { Server } from "../net/socket";
import { CSV_HEAD, csvLine } from "../state/audit";
import { type Refusal, tried } from "./tried";

export type AuditFilter = Omit<Methods["audit.list"]["params"], "limit" | "before" | "after">;
export type AuditPage = Methods["audit.list"]["result"];

export async function listAudit(server: Server, params: Methods["audit.list"]["params"]): Promise<AuditPage | Refusal> {
  let page: AuditPage | null = null;
  const refusal = await tried(async () => (page = await server.call("audit.list", params)));
  return refusal ?? page!;
}

export async function verifyAudit(server: Server): Promise<AuditReport | Refusal> {
  let report: AuditReport | null = null;
  const refusal = await tried(async () => (report = await server.call("audit.verify", {})));
  return refusal ?? report!;
}

export type AuditHead = Methods["audit.head"]["result"];

/** The newest head beside the one that this browser saw last. */
export interface Chain {
  readonly head: AuditHead;
  readonly memory:
    | { kind: "first" } // nothing was remembered
    | { kind: "continues"; size: number; seenAt: number }
    | { kind: "unchecked"; size: number; seenAt: number } // no hashing over plain HTTP
    | { kind: "broken"; size: number; seenAt: number; how: "shorter" | "other" | "key" };
}

/** Compares the log with what this browser remembers of it, and remembers the new head if it continues the old. */
export async function checkChain(server: Server): Promise<Chain | Refusal> {
  let chain: Chain | null = null;
  const refusal = await tried(async () => {
    const first = await server.call("audit.head", {});
    const pin = readPin(first.origin);
    const remember = (head: AuditHead): void =>
      writePin(head.origin, { size: head.size, root: head.root, firstKey: head.first_key, seenAt: Date.now() });
    if (!pin) {
      remember(first);
      chain = { head: first, memory: { kind: "first" } };
      return;
    }
    const { size, seenAt } = pin;
    if (pin.firstKey !== first.first_key) {
      chain = { head: first, memory: { kind: "broken", how: "key", size, seenAt } };
    } else if (first.size < size) {
      chain = { head: first, memory: { kind: "broken", how: "shorter", size, seenAt } };
    } else if (!canHash()) {
      chain = { head: first, memory: { kind: "unchecked", size, seenAt } };
    } else {
      const head = await server.call("audit.head", { since_size: size });
      const { proof } = head;
      const fits = head.size === size || (proof !== null && proof.from === size && proof.to === head.size);
      if (fits && (await continues(pin, head, head.size === size ? [] : proof!.hashes))) {
        remember(head);
        chain = { head, memory: { kind: "continues", size, seenAt } };
      } else chain = { head, memory: { kind: "broken", how: "other", size, seenAt } };
    }
  });
  return refusal ?? chain!;
}

export const isListed = (outcome: AuditPage | Refusal): outcome is AuditPage => "entries" in outcome;
export const isReport = (outcome: AuditReport | Refusal): outcome is AuditReport => "verdict" in outcome;
export const isChain = (outcome: Chain | Refusal): outcome is Chain => "head" in outcome;

/** Asks for pages until one shows something, or nothing is left: archives are looked through for a while at a time.
 * `told` hears how far back it has come, and answers whether to go on. */
export async function listOlder(
  server: Server,
  params: Methods["audit.list"]["params"],
  told: (before: number) => boolean = () => true,
): Promise<AuditPage | Refusal> {
  const gaps: AuditGap[] = [];
  for (let asked = params; ; ) {
    const page = await listAudit(server, asked);
    if (!isListed(page)) return page;
    gaps.push(...page.gaps);
    if (page.entries.length > 0 || page.next === null || !told(page.next)) return { ...page, gaps };
    asked = { ...asked, before: page.next };
  }
}

const EXPORT_PAGE = 1000;

export type ExportForm = "jsonl" | "csv";

/** All entries that match, archived ones too, oldest first, as lines of JSON or CSV. `told` hears how many there are so
 * far, and answers whether to go on. What cannot be shown is counted in `gaps`. */
export async function exportAudit(
  server: Server,
  filter: AuditFilter,
  form: ExportForm,
  told: (entries: number) => boolean,
): Promise<{ blob: Blob; gaps: AuditGap[] } | Refusal | null> {
  const parts: string[] = [];
  const gaps: AuditGap[] = [];
  let next: number | null = null;
  let entries = 0;
  let stopped = false;
  const line = form === "csv" ? csvLine : (one: AuditEntry): string => `${JSON.stringify(one)}\n`;
  const refusal = await tried(async () => {
    do {
      const page: AuditPage = await server.call("audit.list", {
        ...filter,
        limit: EXPORT_PAGE,
        ...(next === null ? {} : { before: next }),
      });
      parts.push(page.entries.map(line).reverse().join(""));
      gaps.push(...page.gaps);
      entries += page.entries.length;
      next = page.next;
      stopped = !told(entries);
      if (stopped) return;
    } while (next !== null);
  });
  if (refusal) return refusal;
  if (form === "csv") parts.push(CSV_HEAD);
  const type = form === "csv" ? "text/csv" : "application/jsonl";
  return stopped ? null : { blob: new Blob(parts.reverse(), { type }), gaps };
}
