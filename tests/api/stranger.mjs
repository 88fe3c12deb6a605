// A node that nobody has vouched for, made from schema/node.json: it asks to join by ticket or by the six digits, as it
// should or in ways of its own.
import { createHash, randomBytes } from "node:crypto";
import { makeRequest } from "./certificates.mjs";
import { FakeNode } from "./client.mjs";
import { node as contract } from "./contract.mjs";
import { nodeRecord } from "./records.mjs";

const sha256 = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();

export const smallRecord = (node_id, changes = {}) =>
	nodeRecord({ node_id, name: node_id, addresses: [], backends: [], libraries: [], capabilities: [], ...changes });

export class Stranger extends FakeNode {
	static async connect(server, request = makeRequest(), options = {}) {
		const one = await super.connect(server, undefined, { unix: false, ...options });
		return Object.assign(one, { request, nonce: randomBytes(32) });
	}

	ask(node_id, how, changes = {}) {
		return this.call("join.request", { protocol: contract["x-protocol"], node: smallRecord(node_id, changes), request: this.request.pem, ...how });
	}

	// {certificate, authority, server_uri}
	async joinByTicket(node_id, ticket) {
		return (await this.ask(node_id, { ticket })).grant;
	}

	// Waits for a person; `code` is what this side shows.
	async meet(node_id, authoritySha256) {
		const { nonce } = await this.ask(node_id, { commitment: sha256(this.nonce).toString("hex") });
		await this.call("join.reveal", { nonce: this.nonce.toString("hex") });
		const digest = sha256(Buffer.from("exogpu join"), Buffer.from(authoritySha256, "hex"), this.request.spki, this.nonce, Buffer.from(nonce, "hex"));
		this.code = String(digest.readBigUInt64BE(0) % 1000000n).padStart(6, "0");
		return this;
	}

	// What a person, or time, has decided: the parameters of join.decided.
	async decided() {
		const call = await this.until(() => this.requests.find((one) => one.method === "join.decided"), "join.decided");
		return call.params;
	}
}
