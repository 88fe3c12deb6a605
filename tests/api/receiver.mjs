// A receiver of alerts, as somebody would write one: it verifies the signature by itself, and knows a second delivery by
// its id. What it does wrong is said by `plan`.
import { createHmac, timingSafeEqual } from "node:crypto";
import { once } from "node:events";
import http from "node:http";

export class Receiver {
	constructor(secret) {
		this.secret = secret;
		this.got = [];       // {url, headers, text, json, valid, duplicate}, each request that came
		this.plan = [];      // how the next ones are answered: a status, {status, headers}, "hang" or "drop"; then 204
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
		this.port = this.server.address().port;
		this.url = `http://127.0.0.1:${this.port}`;
		return this;
	}

	async stop() {
		const closed = once(this.server, "close");
		this.server.close();
		for (const socket of this.sockets) socket.destroy();
		await closed;
	}

	// Standard Webhooks: HMAC-SHA256 of "id.timestamp.body", by the secret's bytes.
	valid(headers, text) {
		const given = Buffer.from(headers["webhook-signature"] ?? "");
		const key = this.secret?.startsWith("whsec_") ? Buffer.from(this.secret.slice(6), "base64") : this.secret ?? "";
		const mac = createHmac("sha256", key).update(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${text}`);
		const expected = Buffer.from(`v1,${mac.digest("base64")}`);
		return given.length === expected.length && timingSafeEqual(given, expected);
	}

	take(request, response, text) {
		const id = request.headers["webhook-id"], next = this.plan.shift() ?? 204;
		this.got.push({ url: request.url, method: request.method, headers: request.headers, text, json: JSON.parse(text), id, answer: next,
			valid: this.valid(request.headers, text), duplicate: this.got.some((one) => one.id === id) });
		if (next === "hang") return;
		if (next === "drop") return request.socket.destroy();
		const { status, headers } = typeof next === "number" ? { status: next } : next;
		response.writeHead(status, headers);
		response.end(status === 204 ? undefined : "x".repeat(100000));
	}

	// What a program of its owner has done with it: each delivery once.
	get taken() {
		return this.got.filter((one) => !this.got.slice(0, this.got.indexOf(one)).some((other) => other.id === one.id));
	}
}
