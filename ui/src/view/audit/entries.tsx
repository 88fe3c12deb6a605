/* Entries of the audit log as a list, newest first. */
import type { AuditEntry } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { figure, fullTime, shortTime, took } from "../../lib/format";
import { memo } from "../../lib/memo";
import { deviceHref, nodeHref } from "../../lib/route";
import { actorOf, detailOf } from "../../state/audit";
import { deviceLabel } from "../../state/select";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { CopyId } from "../command-line";
import { MarkIcon } from "../parts";

export function EntryTable({ entries }: { entries: readonly AuditEntry[] }) {
  return (
    <div class="table-wrap">
      <table class="list audit-list">
        <caption class="sr">{t`Entries of the audit log, newest first`}</caption>
        <thead>
          <tr>
            <th scope="col" class="w-seq num">
              {t`No.`}
            </th>
            <th scope="col" class="w-at">
              {t`Time`}
            </th>
            <th scope="col" class="w-who">
              {t`Who, from where`}
            </th>
            <th scope="col" class="w-what">
              {t`What`}
            </th>
            <th scope="col">{t`On what`}</th>
            <th scope="col" class="w-result">
              {t`Result`}
            </th>
          </tr>
        </thead>
        <tbody>
          {entries.map((one) => (
            <Entry key={one.seq} entry={one} time={shortTime(Date.parse(one.at), now.peek())} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

const Entry = memo(({ entry, time }: { entry: AuditEntry; time: string }) => {
  const who = actorOf(entry);
  const ok = entry.outcome === "ok";
  const detail = detailOf(entry);
  return (
    <tr>
      <td class="num faint seq">{figure(entry.seq)}</td>
      <td class="at">
        <time dateTime={entry.at} title={fullTime(Date.parse(entry.at))}>
          {time}
        </time>
      </td>
      <td class="who-cell">
        {who.name && <b title={entry.actor} translate={false}>{who.name}</b>}{" "}
        <span class="small faint">{who.copies ? <CopyId text={who.id} /> : who.id}</span>
        {entry.peer && <span class="small faint peer">{entry.peer === "unix" ? t`on this machine` : <CopyId text={entry.peer} />}</span>}
      </td>
      <td class="what">
        <span class="code">{entry.action}</span>
        {entry.count > 1 && <span class="small faint"> {t`${figure(entry.count)} times`}</span>}
      </td>
      <td class="on">
        <OnWhat entry={entry} />
        {detail && <span class="small faint detail" translate={false}>{detail}</span>}
      </td>
      <td class={`result ${ok ? "quiet" : "warm"}`}>
        <span>
          <MarkIcon mark={ok ? "ok" : "throttled"} />
          {ok ? t`done` : word(entry.outcome)}
        </span>
        {entry.duration_ms !== null && <span class="small faint"> {took(entry.duration_ms)}</span>}
      </td>
    </tr>
  );
});

function OnWhat({ entry }: { entry: AuditEntry }) {
  const { state } = useApp();
  const { device_id, node_id, target } = entry;
  const device = device_id ? state.value.devices[device_id]?.record : undefined;
  const node = node_id ? state.value.nodes[node_id]?.record : undefined;
  return (
    <>
      {target && target !== device_id && target !== node_id && <span class="target"><CopyId text={target} /></span>}
      {device_id ? (
        <a href={deviceHref(device_id)}>{device ? deviceLabel(state.value, device_id) : device_id}</a>
      ) : (
        node_id && <a href={nodeHref(node_id)}>{node?.name ?? node_id}</a>
      )}
    </>
  );
}
