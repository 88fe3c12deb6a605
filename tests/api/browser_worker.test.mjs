// What the server sends to a session's worker in a browser, which has to take all that comes: it is held back by what the
// worker has not answered.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { deviceRecord, passed } from "./records.mjs";
import { slow, startServer } from "./server.mjs";
import { RelayedWorker, WorkerNode } from "./workers.mjs";

const MIB = 2 ** 20, PAUSE_MS = 100 * slow;

describe("a worker in a browser", () => {
	let server, node, client;
	before(async () => {
		server = await startServer();
		node = await WorkerNode.start(server, { Worker: RelayedWorker, devices: [deviceRecord({ device_id: "dev_tab", hardware_key: "webgpu", backend: "webgpu",
			apis: [{ backend: "webgpu", api_version: null, driver_version: null, verification: passed }] })] });
		client = await Client.login(server);
	});
	after(async () => {
		await server?.stop();
		assertContractKept();
	});

	test("is sent little that it has not answered, and all in the end", async () => {
		const { allocation_id } = await client.call("memory.allocate", { device_id: "dev_tab", bytes: 16 * MIB }), worker = node.worker();
		const waiting = [];
		let most = 0, timer;
		const answerAll = () => {
			for (const id of waiting.splice(0)) worker.send({ jsonrpc: "2.0", id, result: { bytes: MIB } });
		};
		worker.answers["memory.write"] = (params, body, id) => {
			waiting.push(id);
			most = Math.max(most, waiting.length);
			clearTimeout(timer);
			timer = setTimeout(answerAll, PAUSE_MS); // once nothing more comes
		};
		const writes = Array.from({ length: 12 }, (_, i) => client.callWith("memory.write", { allocation_id, offset: i * MIB }, Buffer.alloc(MIB)));
		assert.ok((await Promise.all(writes)).every(({ bytes }) => bytes === MIB));
		assert.ok(most <= 4, `${most} writes of 1 MiB were not answered at once`);
		assert.deepEqual(worker.faults, []);
	});
});
