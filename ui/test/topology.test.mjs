// Links: what comes over the wire, pairs of machines, and where boxes and wires of the drawing lie.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";
import { device, link, node, snapshot } from "./records.mjs";

const { reduce } = await load("state/reduce.ts");
const { initialState } = await load("state/state.ts");
const topology = await load("state/topology.ts");
const { moveBoundary } = await load("view/models/editor.tsx");

const three = [node("n1", { name: "rack", local: true }), node("n2", { name: "atelier", local: false }), node("n3", { name: "phone", local: false })];
const stateWith = (links) => reduce(initialState, { type: "snapshot", snapshot: snapshot({ nodes: three, links }) });
const event = (data) => ({
  type: "event", now: 1,
  event: { topic: "topology", epoch: "e1", seq: 11, at: "2026-11-20T14:31:52.000Z", data: { links: [], removed: [], heard: null, servers: null, ...data } },
});

test("devices of one machine that copy directly are pairs of it, and copies that are refused that way are named", () => {
  const at = "2026-11-20T14:31:52.000Z";
  const peer = (device_id, bytes_per_s, changes = {}) => ({ device_id, class: "peer", bytes_per_s, measured_at: at, reason: null, ...changes });
  const peers = (...ids) => ids.map((device_id) => peer(device_id, null, { measured_at: null, reason: "it is not measured yet" }));
  const devices = [
    device("a", { peers: [peer("b", 1.6e10, { class: "staged" }), ...peers("c")] }),
    device("b", { name: "a", peers: [peer("a", 3.9e11), ...peers("c").map((one) => ({ ...one, class: "staged" }))] }),
    device("c", { peers: peers("a", "b") }),
    device("d", { node_id: "n2" }),
  ];
  const state = reduce(initialState, { type: "snapshot", snapshot: snapshot({ nodes: three, devices }) });
  const [{ pairs, ...rest }, ...more] = topology.peersOf(state);
  assert.deepEqual([rest, more], [{ node: "n1", staged: [["a · 0", "a · 1"], ["a · 1", "c"]] }, []]);
  assert.deepEqual(pairs.map((one) => [one.a, one.b, one.there.bytes_per_s, one.back.bytes_per_s]),
    [["a · 0", "a · 1", 1.6e10, 3.9e11], ["a · 0", "c", null, null], ["a · 1", "c", null, null]]);
  assert.equal(pairs[1].there.reason, "it is not measured yet");
  assert.deepEqual(topology.peersOf(stateWith([])), []);
});

test("many pairs are summed up, with those that are not like the others", () => {
  const way = (bytes_per_s, changes = {}) => ({ class: "peer", bytes_per_s, measured_at: null, reason: null, ...changes });
  const pair = (a, b, there, back = there) => ({ key: `${a} ${b}`, a, b, there, back });
  const alike = [pair("a", "b", way(3.9e11)), pair("a", "c", way(3.8e11)), pair("b", "c", way(3.9e11), way(3.7e11))];
  assert.deepEqual(topology.sumOfPeers(alike), { devices: 3, least: 3.7e11, most: 3.9e11, unmeasured: 0, odd: [] });
  const odd = [pair("a", "d", way(9e10)), pair("b", "d", way(3.9e11, { class: "staged" })), pair("c", "d", way(3.9e11), way(null, { reason: "it broke" }))];
  const sum = topology.sumOfPeers([...alike, ...odd]);
  assert.deepEqual([sum.devices, sum.least, sum.unmeasured, sum.odd], [4, 9e10, 1, odd]);
  assert.deepEqual(topology.sumOfPeers([pair("a", "b", way(null))]), { devices: 2, least: null, most: null, unmeasured: 2, odd: [] });
});

test("links come with the snapshot, change and go with events; both directions are one pair", () => {
  let state = stateWith([link("n1", "n2", { rtt_ms: 1 }), link("n2", "n1", { rtt_ms: 3, throughput_bytes_per_s: 1e6 }), link("n3", "server")]);
  let [pair, relay, ...more] = topology.pairsOf(state);
  assert.deepEqual([pair.a, pair.b, relay.a, relay.b, more.length], ["n1", "n2", "n3", "server", 0]);
  assert.deepEqual([topology.pairRtt(pair), topology.pairThroughput(pair), topology.pairState(pair)], [2, 1e6, "up"]);
  state = reduce(state, event({ links: [link("n2", "n1", { degraded: true, degraded_reason: "slow" })], removed: [{ from_node_id: "n3", to_node_id: "server" }] }));
  [pair, relay] = topology.pairsOf(state);
  assert.deepEqual([topology.pairState(pair), topology.pairTrouble(pair), relay], ["degraded", "slow", undefined]);
});

test("what is not measured is null, and a link of a machine that is not there is left out", () => {
  const bare = { rtt_ms: null, throughput_bytes_per_s: null };
  const [pair, ...more] = topology.pairsOf(stateWith([link("n2", "n3", bare), link("n2", "gone")]));
  assert.deepEqual([topology.pairRtt(pair), topology.pairThroughput(pair), more.length], [null, null, 0]);
  for (const [state, word] of [["down", "down"], ["stale", "stale"]])
    assert.equal(topology.pairState(topology.pairsOf(stateWith([link("n2", "n3", { state })]))[0]), word);
});

test("the drawing: the server's machine at the right, wires from edge to edge, none of its link to itself", () => {
  const machines = [{ id: "n1", devices: 2, local: true }, { id: "n2", devices: 1, local: false }, { id: "n3", devices: 0, local: false }];
  const state = stateWith([link("n1", "n2"), link("n1", "server"), link("n2", "server"), link("n3", "server"), link("n2", "n3")]);
  const drawing = topology.draw(machines, topology.pairsOf(state), topology.lineSizes);
  const side = Object.fromEntries(drawing.boxes.map((box) => [box.id, box.left]));
  assert.deepEqual(side, { n1: false, n2: true, n3: true });
  // n2 has a link of its own to the server's machine; n3 has not
  assert.deepEqual(drawing.wires.map(({ pair }) => `${pair.a} ${pair.b}`).sort(), ["n1 n2", "n2 n3", "n3 server"]);
  for (const { path } of drawing.wires) {
    const ends = [/^M(\d+) /, /H(\d+)$/].map((pattern) => Number(pattern.exec(path)[1]));
    assert.ok(ends.every((x) => x === 0 || x === topology.lineSizes.gutter), path);
  }
  for (const left of [true, false]) {
    const column = drawing.boxes.filter((box) => box.left === left).sort((a, b) => a.y - b.y);
    column.slice(1).forEach((box, i) => assert.ok(box.y >= column[i].y + column[i].height, "boxes lie one below the other"));
  }
  const alone = topology.draw([machines[0]], [], topology.chipSizes);
  assert.deepEqual([alone.wires.length, alone.boxes.length, alone.height > 0], [0, 1, true]);
});

test("the drawing: labels of three machines that are all linked lie apart", () => {
  const state = stateWith([link("n1", "n2"), link("n1", "n3"), link("n2", "n3")]);
  for (const local of [[true, false, false], [true, true, true], [false, false, false]])
    for (const devices of [0, 1, 3])
      for (const sizes of [topology.lineSizes, topology.chipSizes]) {
        const machines = ["n1", "n2", "n3"].map((id, i) => ({ id, devices, local: local[i] }));
        const { wires } = topology.draw(machines, topology.pairsOf(state), sizes);
        const labels = wires.map(({ label }) => label).sort((a, b) => a.y - b.y);
        assert.equal(labels.length, 3);
        for (const [i, a] of labels.entries())
          for (const b of labels.slice(i + 1))
            assert.ok(b.y - a.y >= 44 || a.x + a.width <= b.x || b.x + b.width <= a.x, JSON.stringify(labels));
      }
});

test("figures: bits for networks, two digits where it is short, width by the logarithm", () => {
  assert.deepEqual(topology.latency(0.412), { value: "0.41", unit: "ms" });
  assert.deepEqual(topology.bitRate(1.176e9), { value: "9.41", unit: "Gbit/s" });
  assert.deepEqual(topology.bitRate(2.34e7), { value: "187", unit: "Mbit/s" });
  assert.deepEqual([0, null, 1e6 / 8, 1e9 / 8, 1e15].map(topology.wireWidth), [1.5, 1.5, 1, 4, 6]);
});

test("a boundary moves between its neighbours, and every layer stays with somebody", () => {
  const pins = [{ device_id: "a", first_layer: 0, layer_count: 10 }, { device_id: "b", first_layer: 10, layer_count: 5 }, { device_id: "c", first_layer: 15, layer_count: 7 }];
  const layout = (list) => list.map((pin) => [pin.first_layer, pin.layer_count]);
  assert.deepEqual(layout(moveBoundary(pins, 1, 3)), [[0, 3], [3, 12], [15, 7]]);
  assert.deepEqual(layout(moveBoundary(pins, 1, -5)), [[0, 1], [1, 14], [15, 7]]);
  assert.deepEqual(layout(moveBoundary(pins, 2, 99)), [[0, 10], [10, 11], [21, 1]]);
  assert.deepEqual(layout(pins), [[0, 10], [10, 5], [15, 7]], "what was given stays as it was");
});

test("a wire is told with its ends", () => {
  const pair = topology.pairsOf(stateWith([link("n1", "n2", { rtt_ms: 0.4, throughput_bytes_per_s: 1e8, sent_bytes_per_s: 0 }), link("n2", "n1", { rtt_ms: 0.4, throughput_bytes_per_s: 1e8, sent_bytes_per_s: 0 })]))[0];
  const name = (id) => ({ n1: "rack", n2: "atelier" })[id];
  assert.equal(topology.linkText(pair, name), "rack to atelier: Ethernet, 0.40 ms, 800 Mbit/s");
  const down = { ...pair, there: { ...pair.there, state: "down", rtt_ms: null }, back: null };
  assert.match(topology.linkText(down, name), /^rack to atelier: no link, round trip not measured yet/);
});

// The straight pieces of a path of M, H and V: [horizontal, where, from, to].
function pieces(path) {
  let [x, y] = [0, 0];
  const found = [];
  for (const [, what, a, b] of path.matchAll(/([MHV])([\d.]+)(?: ([\d.]+))?/g)) {
    if (what === "H") found.push([true, y, Math.min(x, +a), Math.max(x, +a)]);
    if (what === "V") found.push([false, x, Math.min(y, +a), Math.max(y, +a)]);
    [x, y] = what === "M" ? [+a, +b] : what === "H" ? [+a, y] : [x, +a];
  }
  return found;
}

test("no two wires of up to four machines lie on each other", () => {
  for (const devices of [[1, 1, 1, 1], [4, 1, 1, 1], [1, 4, 2, 1], [2, 2, 2, 2], [1, 3, 1, 3]]) {
    const nodes = devices.map((_, i) => node(`n${i}`, { name: `m${i}`, local: i === 0 }));
    const links = nodes.flatMap((a) => nodes.filter((b) => a !== b).map((b) => link(a.node_id, b.node_id)));
    const pairs = topology.pairsOf(reduce(initialState, { type: "snapshot", snapshot: snapshot({ nodes, links }) }));
    const machines = nodes.map(({ node_id: id, local }, i) => ({ id, local, devices: devices[i] }));
    for (const sizes of [topology.lineSizes, topology.chipSizes]) {
      const { wires } = topology.draw(machines, pairs, sizes);
      assert.equal(wires.length, 6);
      wires.forEach((a, i) => wires.slice(i + 1).forEach((b) => {
        for (const p of pieces(a.path)) for (const q of pieces(b.path))
          assert.ok(p[0] !== q[0] || Math.abs(p[1] - q[1]) >= 4 || p[3] <= q[2] || q[3] <= p[2], `${devices}: ${a.path} on ${b.path}`);
      }));
    }
  }
});
