/* The server's own log, and what its nodes warn of, as it is written: what the server remembers, and what is said since. */
import { useEffect, useState } from "preact/hooks";
import { readLog } from "../../command/log";
import { isRefused } from "../../command/models";
import type { Refusal } from "../../command/tried";
import { now } from "../../lib/clock";
import { count, fullTime, shortTime } from "../../lib/format";
import { type LogFilter, LEVELS, levelWord, logLines, shownLog, withOlder } from "../../state/log";
import { isLive } from "../../state/select";
import type { LogLine } from "../../state/state";
import { plural, t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { Command } from "../command-line";
import { type Mark, MarkIcon, RefusalNote } from "../parts";
import { Page } from "../shell";

const marks: Record<LogLine["level"], Mark | null> = { error: "offline", warning: "throttled", info: null, debug: null };

export function LogsPage() {
  return useApp().state.value.login?.scopes.includes("admin") ? <Log /> : <NotAdmin />;
}

/** The server's stored lines; null until they arrive. Requested again with each connection. */
function useKept(): { kept: readonly LogLine[] | null; refusal: Refusal | null } {
  const { state, server } = useApp();
  const [kept, setKept] = useState<readonly LogLine[] | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const live = isLive(state.value);
  useEffect(() => {
    if (!live) return;
    let current = true;
    void readLog(server).then((outcome) => {
      if (!current) return;
      const refused = isRefused(outcome);
      setRefusal(refused ? outcome : null);
      if (!refused) setKept(outcome);
    });
    return () => void (current = false);
  }, [live]);
  return { kept, refusal };
}

function Log() {
  const { state } = useApp();
  const { kept, refusal } = useKept();
  const log = withOlder(state.value.log, kept ?? []);
  const [filter, setFilter] = useState<LogFilter>({ level: "info", text: "" });
  const [held, setHeld] = useState<readonly LogLine[] | null>(null);
  const lines = shownLog(held ?? log, filter);
  const newest = held?.[0]?.seq ?? -1;
  const behind = held ? shownLog(log, filter).filter((one) => one.seq > newest).length : 0;
  return (
    <Page title={t`Logs`}>
      <section class="panel" aria-label={t`The server's log`}>
        <form class="log-filter" role="search" onSubmit={(event) => event.preventDefault()}>
          <input
            type="search"
            data-filter
            placeholder={t`Words, a node, or a part of the program`}
            aria-label={t`Filter lines`}
            aria-keyshortcuts="/"
            maxLength={128}
            value={filter.text}
            onInput={(event) => setFilter({ ...filter, text: event.currentTarget.value })}
          />
          <select
            aria-label={t`Level`}
            value={filter.level}
            onChange={(event) => setFilter({ ...filter, level: event.currentTarget.value as LogFilter["level"] })}
          >
            {LEVELS.map((level) => (
              <option key={level} value={level}>
                {levelWord(level)}
              </option>
            ))}
          </select>
          <label class="check small">
            <input type="checkbox" checked={held === null} onChange={(event) => setHeld(event.currentTarget.checked ? null : log)} />
            {t`Follow`}
          </label>
        </form>
        {behind > 0 && (
          <p class="more small quiet">
            {plural(behind, t`${count(behind, "newer line")}; follow to see it.`, t`${count(behind, "newer line")}; follow to see them.`)}
          </p>
        )}
        {refusal && (
          <div class="panel-body">
            <RefusalNote refusal={refusal} />
          </div>
        )}
        {lines.length > 0 ? (
          <Lines lines={lines} />
        ) : log.length > 0 ? (
          <Nothing filtered />
        ) : kept ? (
          <Nothing filtered={false} />
        ) : (
          !refusal && <p class="panel-body quiet skeleton">{t`Reading the log.`}</p>
        )}
      </section>
    </Page>
  );
}

function Lines({ lines }: { lines: readonly LogLine[] }) {
  return (
    <ol class="log-lines" aria-label={t`Lines, newest first`}>
      {lines.map((one) => {
        const at = Date.parse(one.at);
        const mark = marks[one.level];
        return (
          <li key={one.seq} class={one.level}>
            <time class="small faint" dateTime={one.at} title={fullTime(at)}>
              {shortTime(at, now.peek())}
            </time>
            <span class="level small">
              {mark && <MarkIcon mark={mark} class="mini" />}
              {word(one.level)}
            </span>
            <span class="area small faint" translate={false}>{one.area}</span>
            <span class="text" translate={false} lang="en">
              {one.node_name !== null && (
                <b class="node" title={one.said_at ? t`logged at ${fullTime(Date.parse(one.said_at))}, by its clock` : undefined}>
                  {one.node_name}
                </b>
              )}
              {one.text}
            </span>
            {one.dropped > 0 && <span class="small warm lost">{t`${count(one.dropped, "line")} before it could not be sent`}</span>}
          </li>
        );
      })}
    </ol>
  );
}

function Nothing({ filtered }: { filtered: boolean }) {
  return (
    <div class="empty">
      <h3>{filtered ? t`Nothing matches` : t`Nothing was logged yet`}</h3>
      <p>
        {filtered
          ? t`No line of the last ${logLines} fits this filter.`
          : t`Lines of the server's log show here as they are written. With --log-level debug there are more.`}
      </p>
    </div>
  );
}

function NotAdmin() {
  const { login } = useApp().state.value;
  return (
    <Page title={t`Logs`}>
      <section class="panel empty">
        <h2>{t`The log is for admins`}</h2>
        <p>
          {t`The token ${login?.name ?? ""} has the scopes ${login?.scopes.join(", ") ?? ""}. On the server's machine the log is in the terminal that it was started in, or in the system's journal:`}
        </p>
        <Command text="journalctl -u exogpu" />
      </section>
    </Page>
  );
}
