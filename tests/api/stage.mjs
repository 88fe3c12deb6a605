// A server, a node and workers that the test plays, and what tests of them do again and again. One for each test file.
import assert from "node:assert/strict";
import { Client, assertContractKept } from "./client.mjs";
import { startServer } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

export const MiB = 1024 * 1024;
const scopes = ["observe", "allocate", "compute"];
export let server, node, admin;
let made, kind;

// With FakeWorker, or another kind of worker.
export const startWith = (Worker, options) => async () => {
	server = await startServer(options);
	admin = await Client.login(server);
	made = 0;
	kind = Worker;
	await startNode();
};

export const start = startWith();

export async function startNode() {
	node = await WorkerNode.start(server, { Worker: kind });
}

export async function stop() {
	for (const worker of node.workers) assert.deepEqual(worker.faults, [], "what the server asks of a worker keeps to the contract");
	await server.finish();
	assertContractKept();
}

export const token = (params = {}) => admin.call("token.create", { name: `t${++made}`, scopes, ...params });
export const tenant = async (params) => Client.login(server, (await token(params)).token, { zeroMask: true });
export const allocate = async (client, bytes = 4096, device_id = "dev_cpu", more = {}) =>
	(await client.call("memory.allocate", { device_id, bytes, ...more })).allocation_id;
export const write = (client, allocation_id, offset, body) => client.callWith("memory.write", { allocation_id, offset }, body);
export const read = async (client, allocation_id, offset, bytes) =>
	(await client.call("memory.read", { allocation_id, offset, bytes })).body;
export const held = async (id) => (await admin.call("token.list")).tokens.find((one) => one.token_id === id).memory_bytes;
export const allocations = async () => (await admin.call("cluster.snapshot")).allocations;
