/* The servers: which leads, since when, how far behind each is, and whether it answers. */
import type { ServerSeen } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { age, count, figure } from "../../lib/format";
import { ageOf } from "../../state/select";
import { inOrder } from "../../state/servers";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { CopyId } from "../command-line";
import { MarkIcon, Panel } from "../parts";

export function ServersPanel() {
  const { servers } = useApp().state.value;
  const answering = servers.filter((one) => one.answers).length;
  return (
    <Panel title={t`Servers`} class="servers-panel" aside={servers.length > 0 ? count(servers.length, "server") : undefined}>
      {servers.length === 0 && <p class="skeleton" />}
      {answering === 1 && <p class="panel-body warm">{t`No other server answers: nobody takes over if this one is lost.`}</p>}
      <ul class="rows">
        {inOrder(servers).map((one) => (
          <ServerRow key={one.address} one={one} />
        ))}
      </ul>
    </Panel>
  );
}

function ServerRow({ one }: { one: ServerSeen }) {
  const { state } = useApp();
  const since = ageOf(state.value, one.since, now.value);
  const mark = !one.answers ? "offline" : one.role === "leader" ? "ok" : "idle";
  const here = one.address === `${location.origin}/`;
  return (
    <li class="heard-row">
      <span class="heard-who">
        <b class="clip" translate={false}>{one.host || one.address}</b>
        <span class="small faint clip">{here ? t`this page comes from here` : ""}</span>
      </span>
      <span class="heard-where small">
        <span class="clip"><CopyId text={one.address} title={one.address} /></span>
      </span>
      <span class="heard-what small">
        <span class="state" data-state={mark}>
          <MarkIcon mark={mark} />
          {!one.answers ? t`does not answer` : one.role === "leader" ? t`leads` : t`follows`}
        </span>
        <span class="quiet">
          {!one.answers ? t`for ${age(one.silent_ms)}` : since !== null && t`for ${age(Math.max(0, since))}`}
        </span>
      </span>
      <span class="small faint heard-age" title={t`How old its knowledge of who leads had become at most`}>
        {one.answers && one.role === "follower" && t`${figure(one.behind_ms / 1000, 1)} s behind`}
      </span>
    </li>
  );
}
