// A collector of OpenTelemetry traces: it takes OTLP over HTTP in JSON and checks each message against the form that
// the protocol has. What it does wrong is said by `plan`.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";

const keys = (object, required, optional = []) => {
	for (const name of required) assert.ok(name in object, `${name} is missing in ${JSON.stringify(object)}`);
	for (const name of Object.keys(object)) assert.ok(required.includes(name) || optional.includes(name), `${name} is not of OTLP`);
};

function valueOf(value) {
	assert.equal(Object.keys(value).length, 1);
	if ("stringValue" in value) return assert.equal(typeof value.stringValue, "string") ?? value.stringValue;
	if ("intValue" in value) return assert.match(value.intValue, /^-?\d{1,19}$/) ?? Number(value.intValue);
	if ("doubleValue" in value) return assert.equal(typeof value.doubleValue, "number") ?? value.doubleValue;
	keys(value, ["arrayValue"]);
	return value.arrayValue.values.map(valueOf);
}

function attributesOf(list) {
	const all = {};
	for (const one of list) {
		keys(one, ["key", "value"]);
		assert.ok(!(one.key in all), `${one.key} stands there twice`);
		all[one.key] = valueOf(one.value);
	}
	return all;
}

// A span as tests look at it: ids, name, kind, times as BigInt, attributes as an object.
function spanOf(span) {
	keys(span, ["traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes"], ["parentSpanId", "status"]);
	for (const [id, digits] of [["traceId", 32], ["spanId", 16], ["parentSpanId", 16]]) {
		if (id === "parentSpanId" && !(id in span)) continue;
		assert.match(span[id], new RegExp(`^[0-9a-f]{${digits}}$`));
		assert.doesNotMatch(span[id], /^0+$/);
	}
	for (const time of ["startTimeUnixNano", "endTimeUnixNano"]) assert.match(span[time], /^\d{19}$/, "a time is a decimal string");
	const [begin, end] = [BigInt(span.startTimeUnixNano), BigInt(span.endTimeUnixNano)];
	assert.ok(begin <= end, "it begins before it ends");
	assert.ok(Math.abs(Number(begin / 1000000n) - Date.now()) < 3600000, "of this hour");
	if ("status" in span) assert.deepEqual(span.status, { code: 2 });
	return { trace: span.traceId, id: span.spanId, parent: span.parentSpanId, name: span.name, kind: span.kind, begin, end,
		failed: "status" in span, attributes: attributesOf(span.attributes) };
}

export class Collector {
	constructor() {
		this.got = [];   // {url, headers, text, answer, spans, resource}: each message that came
		this.plan = [];  // how the next ones are answered: a status, {status, headers, body}, or "hang"; then `usual`
		this.usual = 200;
		this.held = [];   // {text, response}: those that hang
		this.faults = []; // messages that are not of the form
		this.sockets = new Set();
	}

	async start(port = 0) {
		this.server = http.createServer((request, response) => {
			const pieces = [];
			request.on("data", (piece) => pieces.push(piece));
			request.on("end", () => this.take(request, response, Buffer.concat(pieces).toString("utf8")));
		});
		this.server.on("connection", (socket) => {
			this.sockets.add(socket);
			socket.on("close", () => this.sockets.delete(socket));
		});
		this.server.listen(port, "127.0.0.1");
		await once(this.server, "listening");
		this.url = `http://127.0.0.1:${this.server.address().port}`;
		return this;
	}

	async stop() {
		const closed = once(this.server, "close");
		this.server.close();
		for (const socket of this.sockets) socket.destroy();
		await closed;
	}

	read(request, text) {
		assert.equal(request.method, "POST");
		assert.equal(request.headers["content-type"], "application/json");
		const json = JSON.parse(text);
		keys(json, ["resourceSpans"]);
		assert.equal(json.resourceSpans.length, 1);
		const [{ resource, scopeSpans }] = json.resourceSpans;
		keys(resource, ["attributes"]);
		assert.equal(scopeSpans.length, 1);
		keys(scopeSpans[0], ["scope", "spans"]);
		assert.equal(scopeSpans[0].scope.name, "exogpu");
		const spans = scopeSpans[0].spans.map(spanOf);
		assert.ok(spans.length > 0);
		return { spans, resource: attributesOf(resource.attributes) };
	}

	take(request, response, text) {
		const answer = this.plan.shift() ?? this.usual;
		let message = { spans: [] };
		try {
			message = this.read(request, text);
		} catch (error) {
			this.faults.push(error);
		}
		this.got.push({ url: request.url, headers: request.headers, text, answer, ...message });
		if (answer === "hang") return this.held.push({ text, response });
		const { status, headers, body = "{}" } = typeof answer === "number" ? { status: answer } : answer;
		response.writeHead(status, { "content-type": "application/json", ...headers });
		response.end(body);
	}

	// Messages that hang are answered after all: all of them, or those of one text.
	release(text) {
		for (const one of this.held) if (text === undefined || one.text === text) one.response.end("{}");
		this.held = this.held.filter((one) => !one.response.writableEnded);
	}

	// The spans that it took.
	get spans() {
		return this.got.filter((one) => one.answer === 200).flatMap((one) => one.spans);
	}

	// Of one request, once its root is there: {root, children}.
	of(requestId) {
		const root = this.spans.find((one) => one.attributes["exogpu.request_id"] === requestId);
		return root && { root, children: this.spans.filter((one) => one.trace === root.trace && one.id !== root.id) };
	}
}
