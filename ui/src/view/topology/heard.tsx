/* Everything that announces itself as exogpu on the server's networks, and what became of it. None of it is proven. */
import { useEffect, useState } from "preact/hooks";
import { isRefused } from "../../command/models";
import { type Discovery, readDiscovery } from "../../command/topology";
import type { Refusal } from "../../command/tried";
import type { Heard } from "../../lib/api.gen";
import { count, sentence } from "../../lib/format";
import { isLive } from "../../state/select";
import { t, tx } from "../../text/text";
import { useApp } from "../app-context";
import { CopyId } from "../command-line";
import { Age, type Mark, MarkIcon, Panel, RefusalNote } from "../parts";

const verdicts: Record<Heard["verdict"], { mark: Mark; word: string }> = {
  self: { mark: "ok", word: t`this server` },
  member: { mark: "ok", word: t`joined` },
  waiting: { mark: "throttled", word: t`asks to join` },
  other_cluster: { mark: "info", word: t`another cluster` },
  not_joined: { mark: "idle", word: t`not joined` },
  damaged: { mark: "offline", word: t`unreadable` },
};

export function HeardPanel() {
  const { state, server } = useApp();
  const [asked, setAsked] = useState<Discovery | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const live = isLive(state.value);
  const heard = state.value.heard ?? asked?.heard ?? null;
  useEffect(() => {
    if (!live) return;
    void readDiscovery(server).then((outcome) => {
      const refused = isRefused(outcome);
      setRefusal(refused ? outcome : null);
      if (!refused) setAsked(outcome);
    });
  }, [live]);
  return (
    <Panel
      title={t`Found on the network`}
      class="heard-panel"
      aside={asked?.listening ? (heard ? count(heard.length, "announcement") : t`listening`) : undefined}
    >
      {refusal && (
        <div class="panel-body">
          <RefusalNote refusal={refusal} />
        </div>
      )}
      {asked && !asked.listening && (
        <p class="panel-body quiet">
          {t`Discovery is off: ${sentence(asked.reason ?? t`multicast is not available here`).replace(/^./, (first) => first.toLowerCase())}`}
          {state.value.server?.tls && (
            <>
              {" "}
              {tx`A machine can still join with ${<b>exogpu node --join</b>} and this server's address.`}
            </>
          )}
        </p>
      )}
      {asked?.listening && asked.reason && (
        <p class="panel-body quiet">{t`The server cannot send discovery queries on one of its networks: ${asked.reason}.`}</p>
      )}
      {asked?.listening && heard?.length === 0 && (
        <p class="panel-body quiet">
          {tx`Nothing was found. A server announces itself when it is started with ${<b>--lan</b>}; multicast does not pass a router, and some wireless networks isolate their clients.`}
        </p>
      )}
      {heard && heard.length > 0 && (
        <ul class="rows">
          {heard.map((one) => (
            <HeardRow key={`${one.name} ${one.host} ${one.port}`} one={one} />
          ))}
        </ul>
      )}
      {!asked && !refusal && <p class="skeleton" />}
    </Panel>
  );
}

function HeardRow({ one }: { one: Heard }) {
  const { mark, word } = verdicts[one.verdict];
  const first = one.addresses[0];
  const address = first ? `${first.includes(":") ? `[${first}]` : first}${one.port > 0 ? `:${one.port}` : ""}` : one.host;
  return (
    <li class="heard-row">
      <span class="heard-who">
        <b class="clip">{one.name || t`unnamed`}</b>
        <span class="small faint clip">
          {[one.role, one.version && `exogpu ${one.version}`, one.gpus !== null && count(one.gpus, "GPU")].filter(Boolean).join(", ")}
        </span>
      </span>
      <span class="heard-where small">
        <span class="clip">
          {address && <CopyId text={address} title={one.addresses.join("\n")} />}
          {one.addresses.length > 1 && t` and ${one.addresses.length - 1} more`}
        </span>
        <span class="faint clip">{t`on ${one.interfaces.join(", ") || t`no interface`}`}</span>
      </span>
      <span class="heard-what small">
        <span class="state" data-state={mark}>
          <MarkIcon mark={mark} />
          {word}
        </span>
        <span class="quiet">{sentence(one.why)}</span>
      </span>
      <span class="small faint heard-age">
        <Age at={one.last_heard_at} />
      </span>
    </li>
  );
}
