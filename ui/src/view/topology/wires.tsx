/* The drawing: machines in two columns, their links as wires in the gutter between. A wire is as wide as its throughput
 * (by the logarithm), dashed by its class, and moves only while it carries something. */
import type { ComponentChildren } from "preact";
import { count, memory } from "../../lib/format";
import { deviceHref, nodeHref } from "../../lib/route";
import { deviceName, isStale, memoryTotal, sortedDevices, sortedNodes } from "../../state/select";
import type { DeviceEntry, NodeEntry, State } from "../../state/state";
import {
  type Pair,
  type Sizes,
  ROWS_MAX,
  SERVER,
  bitRate,
  classWord,
  draw,
  latency,
  lineSizes,
  linkKey,
  linkText,
  pairClass,
  pairRtt,
  pairState,
  pairThroughput,
  pairTraffic,
  wireWidth,
  wireless,
} from "../../state/topology";
import { now } from "../../lib/clock";
import { t } from "../../text/text";
import { word } from "../../text/words";
import { useApp } from "../app-context";
import { DeviceMark, Figure, Icon, MarkIcon, Named } from "../parts";

const dashOf = (pair: Pair): string =>
  pairClass(pair) === "relay" || pair.b === "server" ? "relay" : wireless(pairClass(pair)) ? "wireless" : "wired";

export function Wires({
  pairs,
  chosen,
  choose,
  sizes = lineSizes,
  content,
}: {
  pairs: readonly Pair[];
  chosen: string | null;
  choose: (key: string) => void;
  sizes?: Sizes;
  /** The content of a machine's box; without it, one line for each device. */
  content?: (node: NodeEntry, devices: readonly DeviceEntry[]) => ComponentChildren;
}) {
  const { state } = useApp();
  const all = state.value;
  const { gutter } = sizes;
  const nodes = sortedNodes(all);
  const byNode = new Map<string, DeviceEntry[]>(nodes.map((node) => [node.record.node_id, []]));
  for (const one of sortedDevices(all)) byNode.get(one.record.node_id)?.push(one);
  const drawing = draw(
    nodes.map(({ record }) => ({
      id: record.node_id,
      devices: byNode.get(record.node_id)!.length,
      local: record.local,
    })),
    pairs,
    sizes,
  );
  return (
    <div class={`wires ${["", "one", "two"][drawing.boxes.length] ?? ""}`} style={{ "--height": `${drawing.height}px`, "--gutter": `${gutter}px` }}>
      <svg
        class="wires-gutter"
        viewBox={`0 0 ${gutter} ${drawing.height}`}
        width={gutter}
        height={drawing.height}
        aria-hidden="true"
      >
        {drawing.wires.map(({ pair, path }) => (
          <g
            key={pair.key}
            class={`wire ${pairState(pair)} ${chosen === pair.key ? "chosen" : ""} ${pairTraffic(pair) > 0 ? "busy" : ""}`}
            data-class={dashOf(pair)}
            onClick={() => choose(pair.key)}
          >
            <path class="wire-grip" d={path} />
            <path d={path} style={{ "--w": `${wireWidth(pairThroughput(pair))}px` }} />
          </g>
        ))}
      </svg>
      {drawing.wires.map(({ pair, label }) => (
        <button
          key={pair.key}
          type="button"
          data-class={dashOf(pair)}
          class={`wire-label ${pairState(pair)} ${pairTraffic(pair) > 0 ? "busy" : ""} ${label.end ? "end" : ""} ${chosen === pair.key ? "chosen" : ""}`}
          style={{ "--x": `${label.x}px`, "--y": `${label.y}px`, "--w": `${label.width}px` }}
          aria-pressed={chosen === pair.key}
          aria-label={linkText(pair, (id) => endName(all, id))}
          onClick={() => choose(pair.key)}
        >
          <WireLabel pair={pair} />
        </button>
      ))}
      {drawing.boxes.map((box) => (
        <div
          key={box.id}
          class={`machine ${box.left ? "left" : "right"}`}
          style={{ "--y": `${box.y}px`, "--h": `${box.height}px` }}
        >
          {(content ?? lines)(all.nodes[box.id]!, byNode.get(box.id)!)}
        </div>
      ))}
    </div>
  );
}

const endName = (state: State, id: string): string => (id === SERVER ? t`the server` : (state.nodes[id]?.record.name ?? id));

function WireLabel({ pair }: { pair: Pair }) {
  const all = useApp().state.value;
  const state = pairState(pair);
  const rtt = pairRtt(pair);
  const throughput = pairThroughput(pair);
  return (
    <>
      <span class="wire-ends">
        <span class="clip">{endName(all, pair.a)}</span>
        <span class="faint">{" "}{t`to`}{" "}</span>
        <span class="clip">{endName(all, pair.b)}</span>
      </span>
      <span class="wire-class clip">
        {state !== "up" && <MarkIcon mark={state === "degraded" ? "throttled" : state === "down" ? "offline" : "stale"} class="mini" />}
        {state === "down" ? t`no link` : pair.b === "server" ? t`to the server, ${classWord(pairClass(pair))}` : classWord(pairClass(pair))}
      </span>
      <span class="wire-figures clip">
        {rtt === null ? <span class="faint">{t`measuring`}</span> : <b>{latency(rtt).value} ms</b>}
        {rtt !== null && throughput !== null && ` ${bitRate(throughput).value} ${bitRate(throughput).unit}`}
      </span>
    </>
  );
}

const lines = (node: NodeEntry, devices: readonly DeviceEntry[]) => <Machine node={node} devices={devices} />;

function Machine({ node, devices }: { node: NodeEntry; devices: readonly DeviceEntry[] }) {
  const { state } = useApp();
  const { record } = node;
  return (
    <section
      class={`node ${record.state === "offline" ? "offline" : ""}`}
      aria-label={record.name}
    >
      <a class="node-head" href={nodeHref(record.node_id)}>
        <Icon name={record.local ? "server" : "desktop"} />
        <b class="clip">{record.name}</b>
        <span class="label clip">
          {record.state === "online" ? (record.local ? t`this host` : record.os) : word(record.state)}
        </span>
      </a>
      <div class="node-devices">
        {devices.length > ROWS_MAX ? (
          <p class="machine-row">
            <span class="clip">{count(devices.length, "device")}</span>
          </p>
        ) : (
          devices.map((entry) => {
            const stale = isStale(state.value, entry, now.peek());
            const total = memoryTotal(entry);
            return (
              <a
                class={`machine-row ${stale ? "stale" : ""}`}
                key={entry.record.device_id}
                href={deviceHref(entry.record.device_id)}
              >
                <DeviceMark record={entry.record} stale={stale} bare />
                <span class="clip" title={deviceName(state.value, entry.record.device_id)}>
                  <Named text={deviceName(state.value, entry.record.device_id)} />
                </span>
                <span class="num">{total !== null && <Figure {...memory(total)} />}</span>
              </a>
            );
          })
        )}
        {devices.length === 0 && (
          <p class="machine-row quiet">
            {record.state === "pending" ? <a href="#/access">{t`Compare its code, and let it in`}</a> : t`No devices found yet.`}
          </p>
        )}
      </div>
    </section>
  );
}

/** More machines than this are a table: wires would hide each other. */
export const WIRES_MAX = 4;

/** From whom (rows) to whom (columns): as the sender measures it. */
export function Matrix({
  pairs,
  chosen,
  choose,
}: {
  pairs: readonly Pair[];
  chosen: string | null;
  choose: (key: string) => void;
}) {
  const { state } = useApp();
  const nodes = sortedNodes(state.value);
  const of = new Map(pairs.flatMap((pair) => [[linkKey(pair.a, pair.b), pair] as const, [linkKey(pair.b, pair.a), pair] as const]));
  const head = ({ record }: NodeEntry) => (
    <a class="clip" href={nodeHref(record.node_id)}>
      {record.name}
    </a>
  );
  return (
    <div class="table-wrap">
      <table class="matrix">
        <thead>
          <tr>
            <td class="self" />
            {nodes.map((node) => (
              <th scope="col" key={node.record.node_id}>
                {head(node)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {nodes.map((from) => (
            <tr key={from.record.node_id}>
              <th scope="row">{head(from)}</th>
              {nodes.map((to) => {
                const pair = of.get(linkKey(from.record.node_id, to.record.node_id));
                const link = pair?.a === from.record.node_id ? pair.there : pair?.back;
                const key = `${from.record.node_id} ${to.record.node_id}`;
                if (!pair || !link) return <td key={key} class="self" />;
                const how = link.state === "up" && link.degraded ? "degraded" : link.state;
                return (
                  <td key={key} class={how}>
                    <button type="button" aria-pressed={chosen === pair.key} onClick={() => choose(pair.key)}>
                      <span>
                        {how !== "up" && <MarkIcon mark={how === "degraded" ? "throttled" : how === "down" ? "offline" : "stale"} class="mini" />}
                        {how !== "up" && <span class="sr">{how}</span>}
                        {link.rtt_ms === null ? t`measuring` : `${latency(link.rtt_ms).value} ms`}
                      </span>
                      <span class="quiet">
                        {link.throughput_bytes_per_s === null
                          ? classWord(link.class)
                          : `${bitRate(link.throughput_bytes_per_s).value} ${bitRate(link.throughput_bytes_per_s).unit}`}
                      </span>
                    </button>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export const WiresKey = () => (
  <div class="key wires-key">
    <span>
      <svg viewBox="0 0 24 6" aria-hidden="true">
        <path d="M0 3h24" stroke-width="3" />
      </svg>
      {t`wired`}
    </span>
    <span>
      <svg viewBox="0 0 24 6" aria-hidden="true">
        <path d="M0 3h24" stroke-width="2" stroke-dasharray="6 4" />
      </svg>
      {t`wireless`}
    </span>
    <span>
      <svg viewBox="0 0 24 6" aria-hidden="true">
        <path d="M0 3h24" stroke-width="2" stroke-dasharray="1.5 4" />
      </svg>
      {t`through the server`}
    </span>
    <span>
      <svg class="gone" viewBox="0 0 24 6" aria-hidden="true">
        <path d="M0 3h24" stroke-width="2" stroke-dasharray="3 3" />
      </svg>
      {t`no link, or not reachable now`}
    </span>
    <span>
      <svg class="busy" viewBox="0 0 24 6" aria-hidden="true">
        <path d="M0 3h24" stroke-width="3" stroke-dasharray="10 4" />
      </svg>
      {t`carries activations now`}
    </span>
    <span>{t`width by throughput, on a logarithmic scale`}</span>
  </div>
);
