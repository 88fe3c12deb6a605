// A browser's tab as the server sees it, played by a test: it joins by the token of an address, registers, and opens
// workers and the ends of hops, each with a WebSocket of its own.
import WebSocket from "ws";
import { FakeNode } from "./client.mjs";
import { node as contract } from "./contract.mjs";
import { deviceRecord, nodeRecord, passed } from "./records.mjs";
import { RelayedWorker } from "./workers.mjs";

export const tabProtocol = "exogpu.tab.v1";
const webgpu = [{ backend: "webgpu", api_version: null, driver_version: null, verification: passed }];
export const tabDevice = (node_id, changes = {}) => deviceRecord({
	device_id: `dev${node_id.slice(3)}_0`, hardware_key: "webgpu:0", name: "A phone's GPU", backend: "webgpu", apis: webgpu,
	memory_pool: "webgpu:0", memory_bytes: 1 << 30, pci_address: null, uuid: null, support: "experimental", ...changes });
export const tabRecord = (node_id, changes = {}) => nodeRecord({
	node_id, name: "phone", host_name: "phone", os: "Android", kernel: null, cpu_model: null, addresses: [], libraries: [],
	backends: [{ backend: "webgpu", enabled: true, reason: null }], capabilities: [], ...changes });

// A tab's worker: as one that its node relays, but by a page's WebSocket.
export class TabWorker extends RelayedWorker {
	connect(server) {
		const socket = new WebSocket(`ws://127.0.0.1:${server.port}/node`, ["exogpu.worker.v1"], { headers: { Origin: server.url.origin } });
		return socket.on("message", (message) => this.serve(message));
	}
}

// A tab: it has joined or is back, and has registered.
export class Tab extends FakeNode {
	static async connect(server, first, params, options = {}) {
		const tab = await this.open(server, { path: "/node", protocol: tabProtocol, document: contract,
			headers: { Origin: server.url.origin }, ...options });
		tab.own = await tab.call(first, { protocol: 1, ...params });
		return tab;
	}

	static join(server, token) {
		return this.connect(server, "tab.join", { token });
	}

	static back(server, { node_id, secret }) {
		return this.connect(server, "tab.hello", { node_id, secret });
	}

	register(node_id, changes) {
		return this.call("node.register", { protocol: 1, node: tabRecord(node_id, changes) });
	}
}
