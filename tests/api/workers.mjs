// Workers as the server sees them, made from schema/node.json: a node that starts them as it is asked, and a worker whose
// memory is a Map. What one does wrong on purpose, a test puts in `answers` or sends itself.
import { createCipheriv } from "node:crypto";
import net from "node:net";
import { join } from "node:path";
import WebSocket from "ws";
import { node as contract, paramsFault } from "./contract.mjs";
import { FakeNode, noMask, unframe } from "./client.mjs";
import { deviceRecord, nodeRecord, passed } from "./records.mjs";
import { within } from "./server.mjs";

export const limits = { capabilities: ["zeroed"], memory_bytes: 1 << 30, free_bytes: 1 << 30, buffer_bytes: 1 << 30 };

// Two devices of one memory, each by a back end of its own, one that has little, and a pair that shares a memory
// and copies directly.
export const cpu = deviceRecord({ device_id: "dev_cpu", hardware_key: "cpu", name: "CPU", backend: "cpu", kind: "cpu",
	memory_pool: "host", memory_bytes: 1 << 30,
	apis: [{ backend: "cpu", api_version: null, driver_version: null, verification: passed }] });
export const gpu = deviceRecord({ device_id: "dev_gpu", name: "GPU", memory_pool: "host", memory_bytes: 1 << 30 });
export const small = deviceRecord({ device_id: "dev_small", hardware_key: "uuid:small", name: "Small", memory_pool: "uuid:small",
	memory_bytes: 1 << 20 });

const twin = (n) => deviceRecord({ device_id: `dev_twin${n}`, hardware_key: `uuid:twin${n}`, name: `Twin ${n}`, memory_pool: "twins",
	memory_bytes: 1 << 30, peers: [`uuid:twin${3 - n}`] });
export const twins = [twin(1), twin(2)];
export const devices = [cpu, gpu, small, ...twins];

export class FakeWorker {
	constructor(server, { worker_id, key, backend }) {
		Object.assign(this, { worker_id, backend, memory: new Map(), answers: {}, calls: [], faults: [], held: [] });
		Object.assign(this, { pieces: [], pending: 0, due: undefined }); // of what came over the stream
		this.socket = this.connect(server);
		this.closed = new Promise((resolve) => this.socket.on("close", resolve));
		this.socket.on("error", () => {}); // shows as its end
		this.greeting = { jsonrpc: "2.0", method: "link.hello", params: { worker_id, key } };
		this.greet();
	}

	connect(server) {
		return net.connect(join(server.data, "workers.sock")).on("data", (bytes) => this.take(bytes));
	}

	greet() {
		this.send(this.greeting);
	}

	send(head, body = Buffer.alloc(0)) {
		const text = Buffer.from(JSON.stringify(head)), lengths = Buffer.alloc(8);
		lengths.writeUInt32LE(4 + text.length + body.length);
		lengths.writeUInt32LE(text.length, 4);
		this.write(Buffer.concat([lengths, text, body]));
	}

	write(bytes) {
		this.socket.write(bytes);
	}

	// Pieces are put together once they are enough: a large message comes in hundreds.
	take(bytes) {
		this.pieces.push(bytes);
		this.pending += bytes.length;
		while (this.pending >= (this.due ?? 4)) {
			const all = Buffer.concat(this.pieces);
			this.due = this.due ?? 4 + all.readUInt32LE(0);
			if (all.length >= this.due) {
				this.serve(all.subarray(4, this.due));
				this.pieces = [all.subarray(this.due)];
				this.pending -= this.due;
				this.due = undefined;
			} else {
				this.pieces = [all];
			}
		}
	}

	serve(message) {
		let { head, body } = unframe(message);
		if (head.method?.startsWith("generate.") && body.length) { // params that the head had no room for
			if (Object.keys(head.params).length) this.faults.push(`${head.method}: params in head and body`);
			head.params = JSON.parse(body);
			body = body.subarray(0, 0);
		}
		const fault = paramsFault(contract, head.method, head.params);
		if (fault) this.faults.push(`${head.method}: ${fault}`);
		this.calls.push({ ...head, bytes: body.length });
		this.answer(head, Buffer.from(body));
	}

	// `answers[method]` may give {result, body} or {error}, or null for none at all.
	answer({ id, method, params }, body) {
		const told = this.answers[method] ? this.answers[method](params, body, id) : this.run(method, params, body, id);
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
		case "memory.share": return { result: { shared: false } };
		case "compute.launch": return { result: { device_us: 1.5 } };
		case "compute.run": return { result: { f32s: [1.5], device_us: 1.5 } };
		default: return { result: {} };
		}
	}

	kill() {
		this.socket.destroy();
	}
}

// One that its node relays: the same messages, as the frames of a WebSocket.
export class RelayedWorker extends FakeWorker {
	connect(server) {
		const socket = new WebSocket(`ws+unix:${server.socket}:/node`, ["exogpu.worker.v1"], { perMessageDeflate: false, generateMask: noMask });
		return socket.on("message", (message) => this.serve(message));
	}

	greet() {
		this.socket.on("open", () => this.send(this.greeting));
	}

	// What is put together for a stream goes without its total. In fragments, since any may come.
	write(bytes) {
		const message = bytes.subarray(4), half = message.length >> 1;
		this.socket.send(message.subarray(0, half), { binary: true, fin: false });
		this.socket.send(message.subarray(half), { binary: true, fin: true });
	}

	kill() {
		this.socket.terminate();
	}
}

// A registered node with these devices. `open` and `close`, where given, take the place of what it does with tenant.open
// and tenant.close.
export class WorkerNode extends FakeNode {
	// `prepare`: done with the node before the server knows of its devices, and may ask for workers on them.
	static async start(server, { devices: has = devices, record = nodeRecord(), Worker = FakeWorker, prepare = () => {} } = {}) {
		const node = await this.connect(server, record);
		Object.assign(node, { server, Worker, workers: [], ended: [], connects: [] });
		prepare(node);
		await node.devices(has);
		return node;
	}

	receiveRequest(message) {
		super.receiveRequest(message);
		const { method, params } = message;
		if (method === "tenant.open") {
			if (this.open) return void this.open(message);
			this.workers.push(new this.Worker(this.server, params));
			this.reply(message, { started_ms: 1, sandbox: { applied: [], missing: [] } });
		} else if (method === "tenant.device") {
			if (this.device) return void this.device(message);
			this.reply(message, { opened_ms: 1, limits });
		} else if (method === "copy.connect") {
			this.connects.push(params);
			if (this.connect) return void this.connect(message);
			this.fail(message, -32011, "unavailable", "nothing is connected here");
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

// Bytes that tell where they belong: the same each time, others for each seed.
export const pattern = (bytes, seed = 1) => {
	const key = Buffer.alloc(16);
	key.writeUInt32LE(seed);
	return createCipheriv("aes-128-ctr", key, Buffer.alloc(16)).update(Buffer.alloc(bytes));
};
