// A WebSocket client written from the documents alone. Every message that comes is checked against them, whoever waits
// for it; the first that breaks them fails the file's tests (assertContractKept).
import assert from "node:assert/strict";
import { once } from "node:events";
import WebSocket from "ws";
import { api, errorFault, eventFault, method, node, notificationFault, paramsFault, resultFault } from "./contract.mjs";
import { saidFault } from "./said.mjs";
import { patience, within } from "./server.mjs";

const violations = [];

export function assertContractKept() {
	assert.deepEqual(violations, [], "what the server sent keeps to schema/*.json");
}

export class RpcError extends Error {
	constructor(error) {
		super(`${error.code} ${error.data?.reason}: ${error.message}`);
		Object.assign(this, { code: error.code, reason: error.data?.reason, hint: error.data?.hint, said: error.message, data: error.data });
	}
}

// The bytes of a binary message, and what they say.
export function frame(head, body = Buffer.alloc(0)) {
	const text = Buffer.from(JSON.stringify(head)), length = Buffer.alloc(4);
	length.writeUInt32LE(text.length);
	return Buffer.concat([length, text, body]);
}

export function unframe(bytes) {
	const end = 4 + bytes.readUInt32LE(0);
	return { head: JSON.parse(bytes.subarray(4, end).toString("utf8")), body: bytes.subarray(end) };
}

// Masks a frame with zeros, which `ws` does in no time: other masks take it seconds for 100 MiB, in which the nodes and
// workers that the same process plays say nothing and are given up.
export const noMask = () => {};

export class Client {
	constructor(socket, document) {
		this.socket = socket;
		this.document = document;
		this.nextId = 1;
		this.calls = new Map(); // id: {name, resolve, reject}
		this.events = [];       // all, in the order of arrival
		this.requests = [];     // calls and notifications of the other side, but for events
		this.notices = [];      // session.* and chat.* notifications
		this.answers = [];      // to what was sent raw
		this.waiting = new Set();
		this.lastSeq = -1;
		this.closed = new Promise((resolve) => socket.on("close", (code, reason) => {
			this.end = { code, reason: reason.toString() };
			for (const { name, reject } of this.calls.values()) reject(new Error(`closed with ${code} before ${name} was answered`));
			this.calls.clear();
			for (const look of this.waiting) look();
			resolve(this.end);
		}));
		socket.on("error", () => {}); // shows as its close
		socket.on("message", (data, binary) => this.receive(data, binary));
	}

	// A connection, `from` an address of this machine; `bearer` goes with the upgrade. `zeroMask`: for who sends much. Refusals
	// reject with {status, body, headers}.
	static async open(server, { path = "/ws", protocol = api["x-subprotocol"], bearer, headers = {}, unix = false,
		document = api, from, cert, key, zeroMask = false } = {}) {
		const url = unix ? `ws+unix:${server.socket}:${path}` : `${server.ca ? "wss" : "ws"}://127.0.0.1:${server.port}${path}`;
		const all = { ...(bearer ? { Authorization: `Bearer ${bearer}` } : {}), ...headers };
		const socket = new WebSocket(url, protocol ? [protocol] : [], { headers: all, perMessageDeflate: false, ca: server.ca,
			localAddress: from, cert, key, generateMask: zeroMask ? noMask : undefined });
		const client = new this(socket, document);
		const refused = new Promise((_, reject) => {
			socket.once("unexpected-response", (_request, response) => {
				let body = "";
				response.setEncoding("utf8").on("data", (text) => (body += text));
				response.on("close", () => {
					socket.terminate();
					reject(Object.assign(new Error(`refused with ${response.statusCode}: ${body}`),
						{ status: response.statusCode, body, headers: response.headers }));
				});
			});
			socket.once("error", (error) => setImmediate(reject, error));
		});
		await within(Promise.race([once(socket, "open"), refused]), `${path} opens`);
		return client;
	}

	// Logged in with the first admin's token, or another.
	static async login(server, token = server.token, options = {}) {
		const client = await this.open(server, options);
		client.session = await client.call("auth.login", { token });
		return client;
	}

	violated(what, message) {
		violations.push(`${what} ← ${JSON.stringify(message).slice(0, 600)}`);
	}

	receive(data, binary) {
		let message, body;
		try {
			if (binary) ({ head: message, body } = unframe(data));
			else message = JSON.parse(data.toString("utf8"));
		} catch (error) {
			return this.violated(`not JSON: ${error.message}`, data.toString("latin1"));
		}
		if (message.jsonrpc !== "2.0") this.violated("jsonrpc is not 2.0", message);
		const untrue = saidFault(message);
		if (untrue) this.violated(untrue, message);
		const due = "result" in message && method(this.document, this.calls.get(message.id)?.name ?? "")?.["x-result-body"];
		if (binary !== Boolean(due)) this.violated("a binary frame where none is due, or none where one is", message);
		if (message.method === "event") this.receiveEvent(message);
		else if (/^(session|chat|conversation)\./.test(message.method)) this.receiveNotice(message);
		else if (message.method !== undefined) this.receiveRequest(message);
		else this.receiveAnswer(message, body);
		for (const look of this.waiting) look();
	}

	receiveEvent(message) {
		const fault = "id" in message ? "an event with an id" : eventFault(message.params);
		if (fault) this.violated(fault, message);
		const { seq, topic } = message.params;
		// The newest readings are sent again after a replay, under the number where the stream stands.
		if (seq < this.lastSeq || (seq === this.lastSeq && topic !== "telemetry" && topic !== "topology"))
			this.violated(`seq ${seq} after ${this.lastSeq}`, message);
		this.lastSeq = seq;
		this.events.push(message.params);
	}

	receiveRequest(message) {
		const known = method(this.document, message.method);
		if (known?.["x-direction"] !== "server-to-node") this.violated(`the server may not call ${message.method}`, message);
		else {
			const fault = paramsFault(this.document, message.method, message.params);
			if (fault) this.violated(fault, message);
			if (Boolean(known["x-notification"]) === "id" in message) this.violated("a notification or not", message);
		}
		this.requests.push(message);
	}

	receiveNotice(message) {
		const fault = "id" in message ? "a notification with an id" : notificationFault(message.method, message.params);
		if (fault) this.violated(fault, message);
		this.notices.push(message);
	}

	receiveAnswer(message, body) {
		if (("result" in message) === ("error" in message) || !("id" in message)) this.violated("neither answer nor call", message);
		const fault = "error" in message ? errorFault(message.error) : undefined;
		if (fault) this.violated(fault, message);
		const call = this.calls.get(message.id);
		if (!call) {
			this.answers.push(message);
			return;
		}
		this.calls.delete(message.id);
		if (message.error) return call.reject(new RpcError(message.error));
		const broken = method(this.document, call.name) ? resultFault(this.document, call.name, message.result)
			: "a result of a method that is not in the document";
		if (broken) this.violated(`${call.name}: ${broken}`, message);
		// Not part of the result, so it does not count as a member of it.
		if (body) Object.defineProperty(message.result, "body", { value: body });
		call.resolve(message.result);
	}

	// The result; an error rejects with an RpcError. `send` may be changed to send the head in another form.
	call(name, params, send = (text) => this.socket.send(text)) {
		const id = this.nextId++;
		const answer = new Promise((resolve, reject) => this.calls.set(id, { name, resolve, reject }));
		send(JSON.stringify({ jsonrpc: "2.0", id, method: name, ...(params === undefined ? {} : { params }) }));
		return within(answer, `${name} is answered`);
	}

	// The same with a body.
	callWith(name, params, body) {
		return this.call(name, params, (text) => this.socket.send(frame(JSON.parse(text), body)));
	}

	// What a session was told, once `matches` gives true for its params.
	notice(name, matches = () => true, from = 0) {
		return this.until(() => this.notices.slice(from).find((one) => one.method === `session.${name}` && matches(one.params)),
			`session.${name}`).then((one) => one.params);
	}

	// The error that a call must end with.
	async refused(name, params, reason, body) {
		const outcome = await (body ? this.callWith(name, params, body) : this.call(name, params)).then(
			(result) => assert.fail(`${name} ${JSON.stringify(params)} was answered with ${JSON.stringify(result).slice(0, 300)}`),
			(error) => {
				if (error instanceof RpcError) return error;
				throw error;
			});
		if (reason) assert.equal(outcome.reason, reason, `${name} ${JSON.stringify(params)?.slice(0, 200)}: ${outcome.message}`);
		return outcome;
	}

	// Send bytes as they are; the next answer that belongs to no call of ours.
	async raw(bytes, { binary = false, fin = true } = {}) {
		const before = this.answers.length;
		this.socket.send(bytes, { binary, fin });
		await this.until(() => this.answers.length > before, `an answer to ${String(bytes).slice(0, 80)}`);
		return this.answers[before];
	}

	// When `condition` gives something true; looked at after each message.
	until(condition, what, ms = patience) {
		let look;
		const met = new Promise((resolve, reject) => {
			look = () => {
				const value = condition();
				if (value) resolve(value);
				else if (this.end) reject(new Error(`closed with ${this.end.code} ${this.end.reason} before ${what}`));
			};
			this.waiting.add(look);
			look();
		});
		return within(met, what, ms).finally(() => this.waiting.delete(look));
	}

	// The first event from place `from` on that `matches`.
	event(matches, what = "an event", from = 0) {
		return this.until(() => this.events.slice(from).find(matches), what);
	}

	async close() {
		this.socket.close(1000);
		return within(this.closed, "the connection closes");
	}
}

// A node as the server sees one, made from schema/node.json: it says what the test tells it to say.
export class FakeNode extends Client {
	static async connect(server, record, options = {}) {
		const fake = await this.open(server, {
			path: "/node", protocol: node["x-subprotocol"], unix: true, document: node, ...options });
		if (record) await fake.call("node.register", { protocol: node["x-protocol"], node: record });
		return fake;
	}

	devices(list) {
		return this.call("node.devices", { devices: list });
	}

	telemetry(readings, own = null) {
		this.notify("node.telemetry", { node: own, devices: readings });
	}

	notify(name, params) {
		this.socket.send(JSON.stringify({ jsonrpc: "2.0", method: name, params }));
	}

	reply(request, result = {}) {
		this.socket.send(JSON.stringify({ jsonrpc: "2.0", id: request.id, result }));
	}
}
