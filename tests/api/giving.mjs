// A server, a device with room for little more than a model, and models that are evicted for each other there.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { deviceRecord } from "./records.mjs";
import { eventually, patience, startServer, temporary, within } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const names = ["first", "second", "third"];
let stage; // what a whole model takes of a device
export const folder = temporary(), long = 12 * patience;
export const tight = (memory_bytes) => deviceRecord({ device_id: "dev_tight", hardware_key: "uuid:tight", name: "Tight", memory_pool: "uuid:tight", memory_bytes });
export const pin = (device_id) => ({ pins: [{ device_id, first_layer: 0, layer_count: 0 }] });

// Takes what was estimated for it, so that as much is held when it is loaded as before.
export class Holding extends ModelWorker {
	run(method, params, body, id) {
		const told = super.run(method, params, body, id);
		if (method === "instance.load")
			told.result.memory = params.stages.map(({ host_layers, layer_count }) => {
				const host_bytes = Math.floor(stage.weights_bytes * host_layers / layer_count);
				return { weights_bytes: stage.weights_bytes - host_bytes, kv_bytes: stage.kv_bytes, workspace_bytes: stage.workspace_bytes, host_bytes };
			});
		return told;
	}
}

// A server with a device that has room for `models` of them; with `data`, the next one after another that knows them.
// `stuck`: a model that loads for ever on the first node.
export async function start({ models = 1.5, args = [], beside = [], data, stuck } = {}) {
	const server = await startServer({ data, args: ["--headroom", "0", "--load-on-demand", ...args] }), admin = await Client.login(server);
	const bytes = stage ? stage.weights_bytes + stage.kv_bytes + stage.workspace_bytes : 1 << 30, memory = Math.floor(models * bytes);
	const ready = async () => (await admin.call("model.list")).models.every((one) => one.state === "ready");
	const it = {
		server, admin, memory, beats: [],
		// A node with that device, or with others, that is not taken for gone.
		async join(devices = [tight(memory), ...beside], more = {}) {
			const node = await WorkerNode.start(server, { Worker: Holding, devices, ...more }), beat = setInterval(() => node.telemetry([]), 1000);
			it.beats.push(beat);
			node.closed.then(() => clearInterval(beat));
			return node;
		},
		async add(path) {
			const { model_id } = await admin.call("model.add", { source: path });
			await eventually(ready, "the models are ready", long);
			return model_id;
		},
		instances: async () => (await admin.call("instance.list")).instances,
		entries: async (action) => (await admin.call("audit.list", { action, limit: 50 })).entries,
		has: async () => (await it.instances()).map((one) => one.model_name).sort().join(" "),
		is: (id, what, matches) => {
			let last;
			return eventually(async () => {
				last = (await it.instances()).find((one) => one.instance_id === id);
				return last && matches(last) && last;
			}, what, long).catch((error) => {
				throw new Error(`${error.message}; it is ${JSON.stringify(last)}; the server said: ${server.output.stderr.slice(-3000)}`);
			});
		},
		async ask(name, text = "one two") {
			const answer = await within(fetch(`${server.url.origin}/v1/completions`, { method: "POST", body: JSON.stringify({ model: name, prompt: text }),
				headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" } }), `an answer of ${name}`, long);
			const json = await answer.json();
			return { status: answer.status, said: json.choices?.[0].text ?? json.error.message };
		},
		create: async (name, more = {}) => (await admin.call("instance.create", { model_id: it.ids[name], ...more })).instance_id,
		place: async (name, more) => it.is(await it.create(name, more), `${name} is ready`, (one) => one.state === "running"),
		preview: (name) => admin.call("placement.preview", { model_id: it.ids[name], sequences: 8 }),
		workerOf: (name) => it.node.workers.findLast((one) => one.opened.model_path?.endsWith(`${name}.gguf`) ?? one.opened.model_id === it.ids[name]),
		// The next worker answers instance.load with this; null: it loads for ever.
		opens(load, node = it.node) {
			node.open = (message) => {
				node.open = undefined;
				node.receiveRequest(message);
				node.worker().answers["instance.load"] = load;
			};
		},
		log: (pattern) => eventually(() => pattern.test(server.output.stderr), `the log says ${pattern}`, long),
		stored: () => admin.call("node.ticket", {}), // changes are stored in the order in which they came
		async finish() {
			for (const worker of it.node.workers) assert.deepEqual(worker.faults, [], "what the server asks of a worker keeps to the contract");
			it.beats.forEach(clearInterval);
			it.node.socket.close();
			await server.finish();
			assertContractKept();
		},
	};
	const prepare = (node) => {
		const open = node.open = (message) => {
			node.open = undefined;
			node.receiveRequest(message);
			node.open = open;
			if (node.worker().opened.model_path?.endsWith(`${stuck}.gguf`)) node.worker().answers["instance.load"] = () => null;
		};
	};
	it.node = await it.join(undefined, stuck ? { prepare } : {});
	if (!data)
		for (const name of names) await admin.call("model.add", { source: join(folder, `${name}.gguf`) });
	await eventually(ready, "the models are ready", long);
	it.ids = Object.fromEntries((await admin.call("model.list")).models.map((one) => [one.name, one.model_id]));
	return it;
}

// The files of the models, and what one takes.
export async function prepare() {
	for (const [i, name] of names.entries()) writeFileSync(join(folder, `${name}.gguf`), modelFile({ seed: i + 1, megabytes: 8 }));
	const scout = await start();
	[stage] = (await scout.preview("first")).stages;
	await scout.finish();
}
