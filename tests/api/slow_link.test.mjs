// The alert about a link that is worse than its class tells what that costs the models on it: by the figures of the link
// and what the parts take for a token, as it is measured. Of a node with several such links the one by which a model
// loses is named.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { deviceRecord, linkReading, nodeRecord } from "./records.mjs";
import { LONG, Restarted, wordsFile } from "./restarted.mjs";
import { eventually } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

after(assertContractKept);

class Part extends ModelWorker {
	run(method, params, body, id) {
		if (method === "instance.check") return { result: { parts: [], round_ms: 1, logit: 1, token: 2 } };
		return super.run(method, params, body, id);
	}
}

class PartNode extends WorkerNode {
	receiveRequest(message) {
		super.receiveRequest(message);
		if (message.method === "hop.connect") this.reply(message);
	}
}

const near = (text, wanted, what) => assert.ok(Math.abs(Number(text) / wanted - 1) < 0.01, `${what}: ${text}, not ${wanted}`);

test("a link that is worse than its class tells what a model over two nodes loses by it", async () => {
	const it = new Restarted({ args: ["--headroom", "0"] });
	await it.start();
	const { admin } = it;
	const nodes = [];
	for (const name of ["a", "b", "c"])
		nodes.push(await PartNode.start(it.server, { Worker: Part, record: nodeRecord({ node_id: `nod_${name}`, name }),
			devices: [deviceRecord({ device_id: `dev_${name}`, hardware_key: `uuid:${name}`, memory_pool: `uuid:${name}` })] }));
	const [a, b] = nodes;
	const links = (rtt_ms, rate) => {
		a.notify("node.links", { links: [linkReading({ peer_id: "nod_b", rtt_ms, throughput_bytes_per_s: rate }), linkReading({ peer_id: "nod_c", rtt_ms, throughput_bytes_per_s: rate })] });
		b.notify("node.links", { links: [linkReading({ peer_id: "nod_a", rtt_ms, throughput_bytes_per_s: rate })] });
	};
	let told = [0.4, 1.1e9];
	const feed = setInterval(() => links(...told), 300);
	try {
		await admin.call("alert.rule_set", { rule_id: "link_degraded", for_s: 0 });
		await eventually(async () => (await admin.call("cluster.snapshot")).links.filter((one) => one.state === "up").length === 3, "the links are told", LONG);
		ModelWorker.times = { layers_s: 0.003, output_s: 0.0001, batch_s: [], prompt_row_s: 0.003 };
		const model = await it.add(wordsFile({ megabytes: 1 })), half = model.architecture.layers >> 1;
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id,
			pins: [{ device_id: "dev_a", first_layer: 0, layer_count: half }, { device_id: "dev_b", first_layer: half, layer_count: 0 }] });
		const placed = await it.ready(instance_id);
		assert.equal(placed.hops.length, 2, JSON.stringify(placed.hops));

		told = [80, 1e5];
		const alert = await eventually(async () => (await admin.call("alert.list")).alerts.find((one) => one.kind === "link_degraded" && one.subject.id === "nod_a"), "it is raised", LONG);
		const said = /^the link between a and b is degraded: a round trip takes 80 ms; over Ethernet it should take less than 10; a token of words takes about (\S+) ms longer by that: (\S+) tokens a second for one request in place of (\S+)$/.exec(alert.message);
		assert.ok(said, alert.message);
		const bytes = 4 * model.architecture.embedding, compute_ms = 1000 * placed.stages.reduce((sum, one) => sum + one.seconds_per_token, 0);
		const late_ms = 2 * (80 - 10) / 2 + 1000 * (bytes / 1e5 - bytes / 1e8);
		const all_ms = compute_ms + 2 * (80 / 2 + 0.2) + 1000 * bytes / 1e5; // 0.2: the ends of a hop
		near(said[1], late_ms, "what it loses");
		near(said[2], 1000 / all_ms, "its rate");
		near(said[3], 1000 / (all_ms - late_ms), "its rate by a good link");
		const keys = JSON.stringify(alert.message_said);
		for (const key of ["the link between %.64s and %.64s is degraded: %.140s", "a token of %.64s takes about %.3g ms longer by that: "])
			assert.ok(keys.includes(key), keys);
	} finally {
		clearInterval(feed);
	}
	for (const node of nodes) node.socket.close();
	await it.server.finish();
});
