// Workers as the server sees them, made from schema/node.json: a node that starts them as it is asked, and a worker whose
// memory is a Map. What one does wrong on purpose, a test puts in `answers` or sends itself.
import net from "node:net";
import { join } from "node:path";
import { node as contract, paramsFault } from "./contract.mjs";
import { FakeNode, frame, unframe } from "./client.mjs";
import { deviceRecord, nodeRecord, passed } from "./records.mjs";
import { within } from "./server.mjs";

export const limits = { capabilities: ["zeroed"], memory_bytes: 1 << 30, free_bytes: 1 << 30, buffer_bytes: 1 << 30 };

// Two devices of one memory, each by a back end of its own, one that has little, and a pair that shares a memory.
export const cpu = deviceRecord({ device_id: "dev_cpu", hardware_key: "cpu", name: "CPU", backend: "cpu", kind: "cpu",
	memory_pool: "host", memory_bytes: 1 << 30,
	apis: [{ backend: "cpu", api_version: null, driver_version: null, verification: passed }] });
export const gpu = deviceRecord({ device_id: "dev_gpu", name: "GPU", memory_pool: "host", memory_bytes: 1 << 30 });
export const small = deviceRecord({ device_id: "dev_small", hardware_key: "uuid:small", name: "Small", memory_pool: "uuid:small",
	memory_bytes: 1 << 20 });

const twin = (n) => deviceRecord({ device_id: `dev_twin${n}`, hardware_key: `uuid:twin${n}`, name: `Twin ${n}`, memory_pool: "twins",
	memory_bytes: 1 << 30 });
export const twins = [twin(1), twin(2)];

export class FakeWorker {
	constructor(server, { worker_id, key, backend }) {
		Object.assign(this, { worker_id, backend, memory: new Map(), answers: {}, calls: [], faults: [], held: [] });
		this.received = Buffer.alloc(0);
		this.socket = net.connect(join(server.data, "workers.sock"));
		this.closed = new Promise((resolve) => this.socket.on("close", resolve));
		this.socket.on("error", () => {}); // shows as its end
		this.socket.on("data", (bytes) => this.take(bytes));
		this.send({ jsonrpc: "2.0", method: "link.hello", params: { worker_id, key } });
	}

	send(head, body) {
		const message = frame(head, body), total = Buffer.alloc(4);
		total.writeUInt32LE(message.length);
		this.socket.write(Buffer.concat([total, message]));
	}

	take(bytes) {
		this.received = this.received.length ? Buffer.concat([this.received, bytes]) : bytes;
		while (this.received.length >= 4) {
			const end = 4 + this.received.readUInt32LE(0);
			if (this.received.length < end) break;
			const { head, body } = unframe(this.received.subarray(4, end));
			this.received = this.received.subarray(end);
			const fault = paramsFault(contract, head.method, head.params);
			if (fault) this.faults.push(`${head.method}: ${fault}`);
			this.calls.push({ ...head, bytes: body.length });
			this.answer(head, Buffer.from(body));
		}
	}

	// `answers[method]` may give {result, body} or {error}, or null for none at all.
	answer({ id, method, params }, body) {
		const told = this.answers[method] ? this.answers[method](params, body, id) : this.run(method, params, body);
		if (told) this.send({ jsonrpc: "2.0", id, ...(told.error ? { error: told.error } : { result: told.result }) }, told.body);
	}

	run(method, p, body) {
		const memory = this.memory.get(p.handle);
		switch (method) {
		case "memory.allocate": this.memory.set(p.handle, Buffer.alloc(p.bytes)); return { result: {} };
		case "memory.free": this.memory.delete(p.handle); return { result: {} };
		case "memory.write": body.copy(memory, p.offset); return { result: { bytes: body.length } };
		case "memory.read":
			return { result: { bytes: p.bytes }, body: Buffer.from(memory.subarray(p.offset, p.offset + p.bytes)) };
		case "memory.fill": memory.fill(p.value, p.offset, p.offset + p.bytes); return { result: { bytes: p.bytes } };
		case "memory.copy":
			this.memory.get(p.from).copy(this.memory.get(p.to), p.to_offset, p.from_offset, p.from_offset + p.bytes);
			return { result: { bytes: p.bytes, path: "device" } };
		case "compute.load": return { result: { signatures: [{ kernel: "k", block: null, parameters: [] }] } };
		case "compute.launch": return { result: { device_us: 1.5 } };
		default: return { result: {} };
		}
	}

	kill() {
		this.socket.destroy();
	}
}

// A registered node with these devices. `open` and `close`, where given, take the place of what it does with tenant.open
// and tenant.close.
export class WorkerNode extends FakeNode {
	static async start(server, devices = [cpu, gpu, small, ...twins], record = nodeRecord()) {
		const node = await this.connect(server, record);
		Object.assign(node, { server, workers: [], ended: [] });
		await node.devices(devices);
		return node;
	}

	receiveRequest(message) {
		super.receiveRequest(message);
		const { method, params } = message;
		if (method === "tenant.open") {
			if (this.open) return void this.open(message);
			this.workers.push(new FakeWorker(this.server, params));
			this.reply(message, { started_ms: 1, sandbox: { applied: [], missing: [] } });
		} else if (method === "tenant.device") {
			if (this.device) return void this.device(message);
			this.reply(message, { opened_ms: 1, limits });
		} else if (method === "tenant.close") {
			this.ended.push({ worker_id: params.worker_id, at: performance.now() });
			this.workers.find((one) => one.worker_id === params.worker_id)?.kill();
			this.reply(message, { ended_ms: 0 });
		}
	}

	fail(request, code, reason, message) {
		this.socket.send(JSON.stringify({ jsonrpc: "2.0", id: request.id, error: { code, message, data: { reason, hint: null } } }));
	}

	worker(index = this.workers.length - 1) {
		return this.workers[index];
	}

	// When the server has asked for the end of this worker.
	endOf(worker) {
		return this.until(() => this.ended.find((one) => one.worker_id === worker.worker_id), `tenant.close ${worker.worker_id}`);
	}

	gone(worker) {
		return within(worker.closed, "the worker's stream is closed");
	}
}

export const pattern = (bytes, seed = 1) => {
	const out = Buffer.allocUnsafe(bytes);
	let state = seed >>> 0 || 1;
	for (let i = 0; i < bytes; i++) {
		state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
		out[i] = state >>> 24;
	}
	return out;
};
