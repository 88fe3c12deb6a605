/* Selectors for links: pairs of machines, words for them, and the layout of the drawing. Pure. */
import type { DevicePeer, Link, LinkClass } from "../lib/api.gen";
import { type Quantity, figure } from "../lib/format";
import { t } from "../text/text";
import { word } from "../text/words";
import { byName, deviceName, sortedNodes } from "./select";
import type { State } from "./state";

export const SERVER = "server";

/** One direction, as a key. */
export const linkKey = (from: string, to: string): string => `${from}\n${to}`;

/** Two machines, or a machine and the server, with what each end measures of what it sends. */
export interface Pair {
  readonly key: string;
  readonly a: string;
  /** A node, or SERVER. */
  readonly b: string;
  readonly there: Link | null;
  readonly back: Link | null;
}

/** Every pair that a link is known of; direct ones first, then by name. */
export function pairsOf(state: State): Pair[] {
  const place = new Map(sortedNodes(state).map((node, i) => [node.record.node_id, i]));
  const at = (id: string): number => place.get(id) ?? place.size;
  const pairs = new Map<string, Pair>();
  for (const link of Object.values(state.links)) {
    const { from_node_id: from, to_node_id: to } = link;
    if (!place.has(from) || (to !== SERVER && !place.has(to))) continue;
    if (to === SERVER && state.nodes[from]?.record.local) continue; // it is the same machine
    const turned = to !== SERVER && (at(from) > at(to) || (at(from) === at(to) && from > to));
    const [a, b] = turned ? [to, from] : [from, to];
    const key = linkKey(a, b);
    const known = pairs.get(key) ?? { key, a, b, there: null, back: null };
    pairs.set(key, turned ? { ...known, back: link } : { ...known, there: link });
  }
  const name = (id: string): string => state.nodes[id]?.record.name ?? "";
  return [...pairs.values()].sort(
    (x, y) => Number(x.b === SERVER) - Number(y.b === SERVER) || byName(name(x.a), name(y.a)) || byName(name(x.b), name(y.b)),
  );
}

/** Two devices of one machine that could copy to each other directly, by name, and what their node says of each way. */
export interface PeerPair {
  readonly key: string;
  readonly a: string;
  readonly b: string;
  readonly there: DevicePeer | null;
  readonly back: DevicePeer | null;
}

/** The device pairs of one machine, and which copies are not direct. */
export interface Peers {
  readonly node: string;
  readonly pairs: readonly PeerPair[];
  /** Names of devices, from and to. */
  readonly staged: readonly (readonly [string, string])[];
}

const inOrder = (a: string, b: string): [string, string] => (a < b ? [a, b] : [b, a]);

export function peersOf(state: State): Peers[] {
  return sortedNodes(state)
    .map(({ record: { node_id } }) => {
      const here = Object.values(state.devices)
        .map(({ record }) => record)
        .filter((one) => one.node_id === node_id);
      const name = (id: string): string => deviceName(state, id);
      const ways = here.flatMap((one) => one.peers.map((peer) => ({ ...peer, from: one.device_id })));
      const way = (from: string, to: string): DevicePeer | null =>
        here.find((one) => one.device_id === from)?.peers.find((one) => one.device_id === to) ?? null;
      const keys = new Set(ways.map((one) => linkKey(...inOrder(one.from, one.device_id))));
      const pairs = [...keys].map((key) => {
        const [a = "", b = ""] = key.split("\n");
        return { key, a: name(a), b: name(b), there: way(a, b), back: way(b, a) };
      });
      const staged = ways.filter((one) => one.class === "staged");
      return { node: node_id, pairs, staged: staged.map((one) => [name(one.from), name(one.device_id)] as const) };
    })
    .filter((one) => one.pairs.length > 0);
}

/** Up to this many pairs are all shown at once. */
export const PAIRS_SHOWN = 6;

/** Pairs summed up: how fast their copies are, and which are not like the others. */
export interface PeersSum {
  readonly devices: number;
  /** Of all measured directions, bytes/s; null: none is measured. */
  readonly least: number | null;
  readonly most: number | null;
  /** Ways that are not measured. */
  readonly unmeasured: number;
  /** Pairs that use host memory, lack a measurement that others have, or are a quarter slower than most. */
  readonly odd: readonly PeerPair[];
}

export function sumOfPeers(pairs: readonly PeerPair[]): PeersSum {
  const ways = pairs.flatMap(({ there, back }) => [there, back]);
  const rates = known(ways.map((one) => one?.bytes_per_s)).sort((x, y) => x - y);
  const usual = rates[Math.floor(rates.length / 2)] ?? 0;
  const isOdd = (one: DevicePeer | null): boolean =>
    one?.class === "staged" || (rates.length > 0 && (one?.bytes_per_s ?? 0) < 0.75 * usual);
  return {
    devices: new Set(pairs.flatMap(({ a, b }) => [a, b])).size,
    least: rates[0] ?? null,
    most: rates.at(-1) ?? null,
    unmeasured: ways.length - rates.length,
    odd: pairs.filter(({ there, back }) => isOdd(there) || isOdd(back)),
  };
}

export type PairState = "up" | "degraded" | "down" | "stale";

export function pairState({ there, back }: Pair): PairState {
  const both = [there, back].filter((one) => one !== null);
  if (both.every((one) => one.state === "stale")) return "stale";
  if (!both.some((one) => one.state === "up")) return "down";
  return both.some((one) => one.state === "up" && one.degraded) ? "degraded" : "up";
}

/** Number of pairs of machines with a direct link now. */
export const linkedPairs = (pairs: readonly Pair[]): number =>
  pairs.filter((one) => one.b !== SERVER && ["up", "degraded"].includes(pairState(one))).length;

/** Why it is not as it should be, in words of the server. */
export const pairTrouble = ({ there, back }: Pair): string | null =>
  there?.degraded_reason ?? back?.degraded_reason ?? there?.state_reason ?? back?.state_reason ?? null;

const known = (values: (number | null | undefined)[]): number[] => values.filter((one) => one != null);

/** The mean of both directions; null where nothing is measured. */
export function pairRtt({ there, back }: Pair): number | null {
  const values = known([there?.rtt_ms, back?.rtt_ms]);
  return values.length ? values.reduce((sum, one) => sum + one, 0) / values.length : null;
}

/** The slower direction's. */
export function pairThroughput({ there, back }: Pair): number | null {
  const values = known([there?.throughput_bytes_per_s, back?.throughput_bytes_per_s]);
  return values.length ? Math.min(...values) : null;
}

export const pairTraffic = ({ there, back }: Pair): number =>
  (there?.sent_bytes_per_s ?? 0) + (back?.sent_bytes_per_s ?? 0);

export const pairClass = ({ there, back }: Pair): LinkClass => there?.class ?? back?.class ?? "unknown";

const classWords: Record<LinkClass, string> = {
  process: t`same process`,
  peer: t`peer-to-peer`,
  rdma: "InfiniBand",
  thunderbolt: "Thunderbolt",
  ethernet: "Ethernet",
  wifi: t`Wi-Fi`,
  cellular: t`cellular`,
  relay: t`through the server`,
  loopback: t`same machine`,
  virtual: t`virtual network`,
  unknown: t`unknown kind`,
};
export const classWord = (of: LinkClass): string => classWords[of];

export const wireless = (of: LinkClass): boolean => of === "wifi" || of === "cellular";

/** A link in one sentence, for whoever does not see the drawing: "atelier to den: Ethernet, 0.40 ms, 940 Mbit/s". */
export function linkText(pair: Pair, name: (id: string) => string): string {
  const state = pairState(pair);
  const rtt = pairRtt(pair);
  const throughput = pairThroughput(pair);
  const said = [
    state === "down" ? t`no link` : classWord(pairClass(pair)),
    state === "degraded" || state === "stale" ? word(state) : null,
    rtt === null ? t`round trip not measured yet` : `${latency(rtt).value} ms`,
    throughput === null ? null : `${bitRate(throughput).value} ${bitRate(throughput).unit}`,
    pairTraffic(pair) > 0 ? t`carries activations now` : null,
  ];
  return t`${name(pair.a)} to ${name(pair.b)}: ${said.filter(Boolean).join(", ")}`;
}

/** 0.412 → 0.41 ms, 12.63 → 12.6 ms, 181 → 181 ms */
export const latency = (ms: number): Quantity => ({
  value: figure(ms, ms < 1 ? 2 : ms < 100 ? 1 : 0),
  unit: "ms",
});

const bits: [number, string, number][] = [
  [1e9, "Gbit/s", 2],
  [1e6, "Mbit/s", 0],
  [1e3, "kbit/s", 0],
];

/** Throughput of networks in bits, as their makers tell it. */
export function bitRate(bytesPerSecond: number): Quantity {
  const rate = bytesPerSecond * 8;
  const [size, unit, decimals] = bits.find(([size]) => rate >= size) ?? [1, "bit/s", 0];
  return { value: figure(rate / size, decimals), unit };
}

// ---- the drawing: machines in two columns, wires in the gutter between them ----

/** Sizes in px: `edge` is a box without its devices. */
export interface Sizes {
  readonly gutter: number;
  readonly edge: number;
  readonly row: number;
}
export const lineSizes: Sizes = { gutter: 320, edge: 50, row: 26 };
export const chipSizes: Sizes = { gutter: 260, edge: 66, row: 75 };
const PORT = 44;
const GAP = 20;
const LABEL = 44;
/** Ends that are this near lie on one line, which is still inside both boxes. */
const STRAIGHT = 12;
/** Wires that are not at least this far from each other look like one. */
const APART = 8;
/** More devices than this are one line. */
export const ROWS_MAX = 8;

export interface Box {
  readonly id: string;
  readonly left: boolean;
  readonly y: number;
  readonly height: number;
}

export interface Wire {
  readonly pair: Pair;
  /** In the gutter: 0 is the right edge of the left boxes, its width the left edge of the right ones. */
  readonly path: string;
  readonly label: { readonly x: number; readonly y: number; readonly width: number; readonly end: boolean };
}

export interface Drawing {
  readonly height: number;
  readonly boxes: readonly Box[];
  readonly wires: readonly Wire[];
}

export interface Machine {
  readonly id: string;
  readonly devices: number;
  /** The server's own: it stands at the right, and links to the server end there. */
  readonly local: boolean;
}

interface Port {
  pair: Pair;
  other: string;
  y: number;
}

/** The pairs to draw; a machine's link to the server only if it has none to the server's own machine. */
export function drawnPairs(pairs: readonly Pair[], local: string | null): Pair[] {
  const direct = new Set(
    pairs.filter((one) => one.b !== SERVER && pairState(one) !== "down").flatMap((one) => (one.a === local ? [one.b] : one.b === local ? [one.a] : [])),
  );
  return pairs.filter((one) => one.b !== SERVER || (local !== null && !direct.has(one.a)));
}

export function draw(machines: readonly Machine[], pairs: readonly Pair[], sizes: Sizes): Drawing {
  const { gutter } = sizes;
  const local = machines.find((one) => one.local)?.id ?? null;
  const wired = drawnPairs(pairs, local);
  const ends = (pair: Pair): [string, string] => [pair.a, pair.b === SERVER ? local! : pair.b];
  const ports = new Map<string, Port[]>(machines.map((one) => [one.id, []]));
  for (const pair of wired) {
    const [a, b] = ends(pair);
    ports.get(a)?.push({ pair, other: b, y: 0 });
    ports.get(b)?.push({ pair, other: a, y: 0 });
  }
  const boxes = placeBoxes(machines, sizes, (id) => ports.get(id)!.length);
  const boxOf = new Map(boxes.map((box) => [box.id, box]));
  for (const box of boxes) spreadPorts(box, ports.get(box.id)!, boxOf);
  keepApart(boxes.filter((one) => one.left).flatMap((one) => ports.get(one.id)!), boxes.filter((one) => !one.left).flatMap((one) => ports.get(one.id)!));
  const portY = (id: string, pair: Pair): number => ports.get(id)!.find((one) => one.pair === pair)!.y;
  const across = wired.filter((pair) => boxOf.get(ends(pair)[0])!.left !== boxOf.get(ends(pair)[1])!.left);
  const sameSide = (pair: Pair): boolean => !across.includes(pair);
  const bracketed = wired.some((pair) => sameSide(pair) && boxOf.get(pair.a)!.left);
  const nearest = gutter / 2 + (gutter / 2 - 12) / (across.length + 1); // the lane that is next to the labels
  const wires = wired.map((pair): Wire => {
    const [a, b] = ends(pair);
    const from = boxOf.get(a)!;
    if (sameSide(pair)) return bracket(pair, from.left, portY(a, pair), portY(b, pair), gutter);
    const [leftY, rightY] = from.left ? [portY(a, pair), portY(b, pair)] : [portY(b, pair), portY(a, pair)];
    const lane = gutter / 2 + ((across.indexOf(pair) + 1) / (across.length + 1)) * (gutter / 2 - 12);
    const path = Math.abs(leftY - rightY) < STRAIGHT ? `M0 ${leftY}H${gutter}` : `M0 ${leftY}H${Math.round(lane)}V${rightY}H${gutter}`;
    const x = bracketed ? 32 : 12; // clear of the brackets
    return { pair, path, label: { x, y: leftY, width: nearest - x - 8, end: false } };
  });
  return { height: Math.max(0, ...boxes.map((box) => box.y + box.height)), boxes, wires: apart(wires) };
}

/** No label lies on another: from the top down, each as far down as those above it need. */
function apart(wires: readonly Wire[]): Wire[] {
  const placed: Wire["label"][] = [];
  const of = new Map<Wire, Wire>();
  for (const wire of [...wires].sort((a, b) => a.label.y - b.label.y)) {
    const { x, width } = wire.label;
    let { y } = wire.label;
    for (const one of placed) if (x < one.x + one.width && one.x < x + width) y = Math.max(y, one.y + LABEL);
    const label = { ...wire.label, y };
    placed.push(label);
    of.set(wire, { ...wire, label });
  }
  return wires.map((wire) => of.get(wire)!);
}

/** The server's own machine at the right, each other one where there is more room, the left first. */
function placeBoxes(machines: readonly Machine[], { edge, row }: Sizes, wires: (id: string) => number): Box[] {
  let left = 0;
  let right = 0;
  return [...machines]
    .sort((a, b) => Number(b.local) - Number(a.local))
    .map((one, i) => {
      const rows = one.devices === 0 || one.devices > ROWS_MAX ? 1 : one.devices;
      const height = Math.max(edge + rows * row, (wires(one.id) + 1) * PORT);
      const onLeft = machines.length > 1 && (i > 0 || !one.local) && left <= right;
      const box = { id: one.id, left: onLeft, y: onLeft ? left : right, height };
      if (onLeft) left += height + GAP;
      else right += height + GAP;
      return box;
    });
}

/** Wires leave a box in the order in which their other ends lie, so that fewer cross: to boxes above it first, to those
 * below it last, and between them to those of the other side. */
function spreadPorts(box: Box, ports: Port[], boxOf: Map<string, Box>): void {
  const middle = (id: string): number => boxOf.get(id)!.y + boxOf.get(id)!.height / 2;
  const side = (id: string): number => (boxOf.get(id)!.left === box.left ? Math.sign(middle(id) - middle(box.id)) : 0);
  ports.sort((x, y) => side(x.other) - side(y.other) || middle(x.other) - middle(y.other) || x.pair.key.localeCompare(y.pair.key));
  ports.forEach((port, i) => (port.y = Math.round(box.y + (box.height * (i + 1)) / (ports.length + 1))));
}

/** Two wires whose ends lie at one height on opposite sides would run into each other: the right one's end is moved. */
function keepApart(left: readonly Port[], right: readonly Port[]): void {
  for (const port of right) {
    const meets = (y: number): boolean => left.some((one) => one.pair !== port.pair && Math.abs(one.y - y) < APART);
    const free = [0, APART, -APART, 2 * APART, -2 * APART].find((by) => !meets(port.y + by));
    port.y += free ?? 0;
  }
}

function bracket(pair: Pair, left: boolean, y1: number, y2: number, gutter: number): Wire {
  const edge = left ? 0 : gutter;
  const lane = left ? 20 : gutter - 20;
  const width = gutter / 2;
  return {
    pair,
    path: `M${edge} ${y1}H${lane}V${y2}H${edge}`,
    label: { x: left ? lane + 8 : gutter - 28 - width, y: Math.round((y1 + y2) / 2), width, end: !left },
  };
}

/** Stroke of a wire, px: by the logarithm of its throughput, so that 1 Mbit/s is 1 and 10 Gbit/s 5. */
export function wireWidth(bytesPerSecond: number | null): number {
  if (bytesPerSecond === null || bytesPerSecond <= 0) return 1.5;
  return Math.min(6, Math.max(1, 1 + Math.log10((bytesPerSecond * 8) / 1e6)));
}
