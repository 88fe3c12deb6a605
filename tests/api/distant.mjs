// Nodes on other machines, made here: they joined by TLS, their workers' streams come with the certificate of their node,
// and what they hold of model files is what they say.
import WebSocket from "ws";
import { makeRequest } from "./certificates.mjs";
import { node as contract } from "./contract.mjs";
import { ModelWorker } from "./generating.mjs";
import { Stranger, smallRecord } from "./stranger.mjs";
import { WorkerNode } from "./workers.mjs";

// Its stream is a WebSocket with the certificate of a node.
export class DistantWorker extends ModelWorker {
	connect({ port, cert, key }) {
		const socket = new WebSocket(`wss://127.0.0.1:${port}/node`, ["exogpu.worker.v1"], { cert, key, rejectUnauthorized: false, perMessageDeflate: false });
		return socket.on("message", (message) => this.serve(message));
	}

	greet() {
		this.socket.on("open", () => this.send(this.greeting));
	}

	write(bytes) {
		this.socket.send(bytes.subarray(4), { binary: true });
	}

	kill() {
		this.socket.terminate();
	}

	// What the server has asked it to take up again.
	adoptions() {
		return this.calls.filter((one) => one.method === "instance.adopt");
	}

	// As it was loaded, with the memory that it told then.
	run(method, params, body, id) {
		if (method === "instance.adopt") return super.run("instance.load", { stages: [0] }, body, id);
		if (method === "instance.check") return { result: { parts: [], round_ms: 1, logit: 1, token: 2, expected_logit: 1, spread: 1 } };
		return super.run(method, params, body, id);
	}

	tell(method, params) {
		if (method !== "instance.progress") super.tell(method, params);
	}
}

export class DistantNode extends WorkerNode {
	static async join(cluster, node_id, ...devices) {
		const request = makeRequest(), { ticket } = await cluster.admin.call("node.ticket", {});
		const stranger = await Stranger.connect(cluster.server, request), { certificate } = await stranger.joinByTicket(node_id, ticket);
		stranger.socket.close();
		return { node_id, devices, cert: certificate, key: request.key };
	}

	// With the workers that it has kept, if any.
	static async come(cluster, { node_id, devices, cert, key }, workers) {
		const node = await this.connect(cluster.server, undefined, { unix: false, cert, key });
		Object.assign(node, { server: { port: cluster.server.port, cert, key }, Worker: DistantWorker, workers: [], ended: [], connects: [] });
		await node.call("node.register", { protocol: contract["x-protocol"], node: smallRecord(node_id), ...(workers && { workers }) });
		await node.devices(devices);
		const beat = setInterval(() => node.telemetry([]), 1000); // or it is taken for gone
		node.socket.once("close", () => clearInterval(beat));
		return node;
	}

	receiveRequest(message) {
		if (message.method === "model.fetch") this.reply(message, { fetched_bytes: 0, reused_bytes: 0 });
		else if (message.method === "hop.connect") this.reply(message);
		else super.receiveRequest(message);
	}
}
