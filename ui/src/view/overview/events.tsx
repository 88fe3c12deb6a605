/* The last changes of nodes, devices and models, newest first. */
import type { Change } from "../../lib/api.gen";
import { now } from "../../lib/clock";
import { fullTime, shortTime } from "../../lib/format";
import { changeHref, happenings } from "../../state/recent";
import { deviceLabel } from "../../state/select";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { type Mark, MarkIcon, Panel } from "../parts";

function markOf(change: Change): { mark: Mark; tone: string } {
  if (change.level === "error") return { mark: "offline", tone: "crit" };
  if (change.level === "attention") return { mark: "throttled", tone: "warm" };
  switch (change.kind) {
    case "device.verified":
    case "model.loaded":
    case "node.online":
    case "node.joined":
    case "link.up":
    case "link.recovered":
      return { mark: "ok", tone: "accent" };
    case "node.offline":
    case "node.refused":
    case "node.removed":
    case "device.failed":
    case "link.down":
    case "model.failed":
      return { mark: "offline", tone: "" };
    case "device.state":
      return { mark: "idle", tone: "" };
    case "node.added":
    case "node.waiting":
    case "node.changed":
    case "link.degraded":
    case "model.paused":
    case "model.unloaded":
    case "device.added":
    case "device.changed":
    case "device.heat":
      return { mark: "info", tone: "" };
  }
}

export function EventList({ changes, most }: { changes: readonly Change[]; most: number }) {
  const { state } = useApp();
  const all = state.value;
  const name = ({ device_id: id, name: told }: Change): string => (id && all.devices[id] ? deviceLabel(all, id) : told);
  return (
    <ul class="events">
      {happenings(changes)
        .slice(0, most)
        .map(({ change, more }) => {
          const { mark, tone } = markOf(change);
          const ms = Date.parse(change.at);
          return (
            <li key={`${change.at} ${change.kind} ${change.device_id ?? change.node_id} ${change.name}`}>
              <time dateTime={change.at} title={fullTime(ms)}>
                {shortTime(ms, now.peek())}
              </time>
              <MarkIcon mark={mark} class={tone} />
              <span>
                <a href={changeHref(all, change)}>
                  <b>{name(change)}</b>
                </a>{" "}
                {word(change.summary)}
                {more > 0 && t`, and ${more} more`}
              </span>
            </li>
          );
        })}
    </ul>
  );
}

const SHOWN = 12;

export function EventsPanel() {
  const { state } = useApp();
  const { recent } = state.value;
  return (
    <Panel title={t`Last events`} class="ev-panel">
      {recent.length === 0 ? (
        <p class="panel-body quiet">{t`Nothing yet. Devices that come, go, are checked or change their state show here, and models that are loaded, paused or unloaded.`}</p>
      ) : (
        <EventList changes={recent} most={SHOWN} />
      )}
    </Panel>
  );
}
