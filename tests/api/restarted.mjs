// A server that is ended and started again on its data directory, at the same address, with what one asks of it.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { workers } from "./machine.mjs";
import { Proxy, RemoteNode } from "./remote.mjs";
import { eventually, freePort, slow, startServer, streamedData, temporary, within } from "./server.mjs";

export const LONG = 60000 * slow;

// The processes of a node that hold a model, or a part of one: they have its file as descriptor 5.
export const holding = (node) => workers(node.child.pid).filter((pid) => {
	try {
		return readlinkSync(`/proc/${pid}/fd/5`).includes("/models/");
	} catch {
		return false; // no such descriptor, or it has ended meanwhile
	}
});

export class Restarted {
	constructor(options) {
		Object.assign(this, { options, data: temporary() });
	}

	async start() {
		const listen = `${this.options.host ?? "127.0.0.1"}:${this.server?.port ?? (await freePort())}`;
		this.server = await startServer({ ...this.options, data: this.data, listen });
		this.admin = await Client.login(this.server);
	}

	async again(signal) {
		await this.server.stop(signal);
		await this.start();
	}

	// With the server's own node, which outlives it for a while and keeps its output open.
	async killed() {
		this.server.child.kill("SIGKILL");
		await within(once(this.server.child, "exit"), "the server is killed");
		for (const name of ["stdout", "stderr"]) this.server.child[name].unref?.();
	}

	async list() {
		return (await this.admin.call("instance.list")).instances;
	}

	is(id, what, matches) {
		let last;
		return eventually(async () => {
			last = (await this.list()).find((one) => one.instance_id === id);
			return last && matches(last) && last;
		}, `instance ${id} is ${what}`, LONG).catch((error) => {
			throw new Error(`${error.message}; it is ${JSON.stringify(last)}; the server said: ${this.server.output.stderr.slice(-2000)}`);
		});
	}

	ready(id) {
		return this.is(id, "running", (one) => one.state === "running");
	}

	// What was to be stored by now is on disk: changes are in the order in which they came.
	async stored() {
		await this.admin.call("node.ticket", {});
	}

	async add(path) {
		const { model_id } = await this.admin.call("model.add", { source: path });
		return eventually(async () => (await this.admin.call("model.list")).models.find((one) =>
			one.model_id === model_id && one.state === "ready"), "the model is ready", LONG);
	}

	// {status, retry, json} of an answer, or {failed} where the connection broke.
	async ask(prompt, more = {}) {
		try {
			const { status, headers, text } = await this.server.http("/v1/completions", { method: "POST", ms: LONG,
				headers: { authorization: `Bearer ${this.server.token}` },
				body: JSON.stringify({ model: "words", prompt, temperature: 0, ...more }) });
			return { status, retry: headers["retry-after"], json: JSON.parse(text) };
		} catch (error) {
			return { failed: error.message };
		}
	}

	async says(prompt, more) {
		const { status, json, failed } = await this.ask(prompt, more);
		assert.equal(status, 200, failed ?? JSON.stringify(json));
		return json.choices[0].text;
	}

	// A stream under way: its text so far, the error at its end, whether it came to one.
	stream(prompt, more = {}) {
		const one = { text: "", error: undefined, whole: false };
		const { port, token, ca } = this.server;
		one.done = fetch(`${ca ? "https" : "http"}://127.0.0.1:${port}/v1/completions`, { method: "POST",
			headers: { authorization: `Bearer ${token}` },
			body: JSON.stringify({ model: "words", prompt, temperature: 0, stream: true, ...more }) }).then(async (response) => {
			one.status = response.status;
			for await (const data of streamedData(response)) {
				const json = data === "[DONE]" ? {} : JSON.parse(data);
				one.whole ||= data === "[DONE]";
				one.error ??= json.error;
				one.text += json.choices?.[0]?.text ?? "";
			}
		}).catch((error) => { one.broken = error; });
		one.begun = () => eventually(() => one.text || one.broken, "something has come", LONG);
		return one;
	}
}

export const wordsFile = (more) => {
	const path = join(temporary(), "words.gguf");
	writeFileSync(path, modelFile(more));
	return path;
};

// Such a server, real nodes that joined it by TLS, each behind a proxy that can be cut, and a model.
export class RestartedWithNodes {
	async start(names = ["alpha", "beta"], file = { megabytes: 1.6, context: 4096 }, env = {}) {
		process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
		this.cluster = new Restarted({ host: "0.0.0.0", env });
		await this.cluster.start();
		this.proxies = await Promise.all(names.map(() => Proxy.start(this.cluster.server.port)));
		const { server, admin } = this.cluster;
		this.nodes = names.map((name, i) => new RemoteNode({ server, admin, proxy: this.proxies[i] }, { name, env }));
		for (const node of this.nodes) await node.start((await admin.call("node.ticket", {})).ticket);
		({ model_id: this.model_id } = await this.cluster.add(wordsFile(file)));
		return this;
	}

	async finish() {
		for (const node of this.nodes ?? []) if (node.child?.exitCode === null) await node.finish();
		this.proxies?.forEach((one) => one.close());
		await this.cluster?.server?.finish();
		assertContractKept();
	}
}
