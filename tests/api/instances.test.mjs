// Models that are placed, loaded, watched, and stopped or lost: the server against a node and workers made here. What is
// predicted by what they take: instances_timed.test.mjs.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { ModelWorker, memory } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { deviceReadings, deviceRecord } from "./records.mjs";
import { eventually, run, slow, startServer, temporary, within } from "./server.mjs";
import { FakeWorker, WorkerNode, cpu, gpu, twins } from "./workers.mjs";

describe("instances", () => {
	let server, admin, node, model;

	const list = async () => (await admin.call("instance.list")).instances;
	const find = async (id) => (await list()).find((one) => one.instance_id === id);
	const state = (id, wanted) => eventually(async () => {
		const one = await find(id);
		return one?.state === wanted && one;
	}, `instance ${id} is ${wanted}`);
	const create = async (more = {}) => (await admin.call("instance.create", { model_id: model.model_id, ...more })).instance_id;
	const loaded = async (more) => state(await create(more), "running");
	const preview = (more = {}) => admin.call("placement.preview", { model_id: model.model_id, ...more });
	const pin = (device_id, first_layer = 0, layer_count = 0) => ({ device_id, first_layer, layer_count });

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.8 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => {
			const [one] = (await admin.call("model.list")).models;
			return one?.state === "ready" && one;
		}, "the model is ready");
		await admin.call("events.subscribe", { topics: ["placement"] });
	});
	afterEach(async () => {
		for (const { instance_id } of await list()) await admin.call("instance.delete", { instance_id });
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("a preview changes nothing and says why", async () => {
		const placement = await preview();
		assert.equal(placement.feasible, true);
		assert.equal(placement.proof, "optimal");
		assert.deepEqual(placement.stages.map((one) => [one.device_id, one.layer_count, one.embeds, one.predicts]),
			[["dev_gpu", model.architecture.layers, true, true]]);
		assert.ok(placement.predicted.tokens_per_s > 0);
		assert.ok(placement.why.length > 0);
		const { score } = placement.devices.find((one) => one.device_id === "dev_gpu");
		assert.ok(score.total > 0 && score.total <= 1 && score.memory === 1 && score.network === 1, JSON.stringify(score));
		assert.deepEqual([placement.hops, placement.gap, await list()], [[], null, []]);
	});

	test("many streams count where they are asked for, and several searches wait for each other", async () => {
		const placements = await Promise.all([1, 2, 3, 4].map((sequences) => preview({ sequences, objective: "throughput", timeout_s: 0.1 })));
		assert.deepEqual(placements.map((one) => [one.sequences, one.feasible]), [1, 2, 3, 4].map((sequences) => [sequences, true]));
		const { tokens_per_s, together_tokens_per_s } = placements[3].predicted;
		const [, told] = /4 streams together get about ([\d.]+) tokens a second/.exec(placements[3].why.map((one) => one.text).join("\n"));
		assert.ok(Math.abs(together_tokens_per_s - told) < 0.1, `${together_tokens_per_s}, ${told}`);
		assert.ok(together_tokens_per_s > 1.5 * tokens_per_s, `${together_tokens_per_s} of four, ${tokens_per_s} of one`);
		assert.equal(placements[0].predicted.together_tokens_per_s, placements[0].predicted.tokens_per_s);
	});

	test("it is loaded where the preview says, tells its progress, and holds memory", async () => {
		const placement = await preview();
		const instance = await loaded();
		const worker = node.worker();
		assert.equal(worker.opened.model_path, model.source);
		const load = worker.calls.find((one) => one.method === "instance.load").params;
		assert.deepEqual(load.stages, [{ hardware_key: "uuid:0f", first_layer: 0, layer_count: model.architecture.layers, host_layers: 0 }]);
		assert.equal(load.context_tokens, placement.context_tokens);
		assert.deepEqual([instance.load_ms, instance.chat, instance.stages[0].weights_bytes], [12.5, true, memory.weights_bytes]);
		const states = admin.events.flatMap((one) => one.data.instances).filter((one) => one.instance_id === instance.instance_id)
			.map((one) => one.state);
		assert.deepEqual([...new Set(states)], ["starting", "running"]);
		const { instances: [now, ...none] } = await admin.call("cluster.snapshot");
		assert.ok(Math.abs(Date.parse(now.idle_since) - Date.parse(instance.idle_since)) < 1000, now.idle_since); // it is reckoned each time
		assert.deepEqual([{ ...now, idle_since: instance.idle_since }, none], [instance, []]);
		assert.equal((await admin.call("model.list")).models[0].instances, 1);
		// What it holds, no allocation gets; the CPU's device is of the same memory.
		await admin.refused("memory.allocate", { device_id: "dev_cpu", bytes: 2 ** 30 - 1000000 }, "limit_exceeded");
		await admin.refused("model.remove", { model_id: model.model_id }, "conflict");
	});

	test("pins are obeyed, and what is none is refused", async () => {
		const half = model.architecture.layers >> 1;
		const split = await preview({ pins: [pin("dev_twin1", 0, half), pin("dev_gpu", half, 0)] });
		assert.deepEqual(split.stages.map((one) => [one.device_id, one.first_layer, one.layer_count]),
			[["dev_twin1", 0, half], ["dev_gpu", half, model.architecture.layers - half]]);
		const small = await preview({ pins: [pin("dev_small")] });
		assert.deepEqual([small.feasible, small.proof, small.stages.map((one) => [one.device_id, one.layer_count])],
			[false, "infeasible", [["dev_small", model.architecture.layers]]]);
		const there = small.devices.find((one) => one.device_id === "dev_small"); // what it takes is told beside what there is
		assert.ok(there.needed_bytes > there.memory_bytes, JSON.stringify(there));
		assert.match(small.remedies.map((one) => one.text).join("\n"), /with \d+ MiB more on Small they would fit there/);
		const uneven = await preview({ pins: [pin("dev_small", 0, half), pin("dev_gpu", half, 0)] });
		assert.deepEqual([uneven.feasible, ...uneven.stages.map((one) => one.layer_count)], [false, half, model.architecture.layers - half]);
		assert.ok(uneven.devices.filter((one) => ["dev_small", "dev_gpu"].includes(one.device_id)).every((one) => one.needed_bytes > 0));
		assert.match(small.why.map((one) => one.text).join("\n"), /missing/);
		await admin.refused("placement.preview", { model_id: model.model_id, pins: [pin("dev_gpu", 1, 1)] }, "invalid_params");
		const mixed = await preview({ pins: [pin("dev_gpu", 0, 1), pin("dev_cpu", 1, 0)] });
		assert.deepEqual(mixed.stages.map((one) => one.device_id), ["dev_gpu", "dev_cpu"]);
		await admin.refused("placement.preview", { model_id: model.model_id, pins: [pin("dev_none")] }, "not_found");
		await admin.refused("placement.preview", { model_id: model.model_id, strategy: "tensor" }, "unavailable");
		await admin.refused("instance.create", { model_id: model.model_id, pins: [pin("dev_small")] }, "out_of_memory");
		await admin.refused("instance.create", { model_id: "mod_none" }, "not_found");
	});

	test("its figures are told", async () => {
		const { instance_id } = await loaded();
		const figures = { running: 2, waiting: 1, pages_used: 5, pages_cached: 3, page_count: 30, prompt_tokens: 100, generated_tokens: 50, preemptions: 0 };
		node.worker().tell("instance.state", figures);
		const told = await eventually(async () => {
			const one = await find(instance_id);
			return one.running === 2 && one;
		}, "the figures are told");
		assert.deepEqual([told.waiting, told.pages_used, told.pages_cached, told.prompt_tokens, told.generated_tokens], [1, 5, 3, 100, 50]);
	});

	test("one that is stopped frees what it held", async () => {
		const { instance_id } = await loaded();
		const worker = node.worker();
		await admin.call("instance.delete", { instance_id });
		await node.endOf(worker);
		assert.deepEqual(await list(), []);
		const { recent } = await admin.call("cluster.snapshot"); // people read of both among the last events, newest first
		assert.deepEqual(recent.slice(0, 2).map((one) => [one.kind, one.level, one.name, one.summary, one.node_id, one.device_id]),
			[["model.unloaded", "info", model.name, "is unloaded"], ["model.loaded", "info", model.name, "is loaded"]]
				.map((one) => [...one, "nod_test", null]));
		await admin.event((one) => one.data.removed_instances?.includes(instance_id));
		await admin.refused("instance.delete", { instance_id }, "not_found");
		const { allocation_id } = await admin.call("memory.allocate", { device_id: "dev_gpu", bytes: 2 ** 30 / 16 * 15 }); // the rest is the machine's own
		await admin.call("memory.free", { allocation_id });
		assert.equal((await admin.call("model.list")).models[0].instances, 0);
	});

	// Once its worker has died by itself, for the nth time, and the next one has loaded.
	const anew = (id, n, of = "recoveries") => eventually(async () => {
		const one = await find(id);
		return one?.state === "running" && one[of] === n && one;
	}, `instance ${id} goes on for the ${n}th time`);
	const ended = (worker, message) => node.socket.send(JSON.stringify({ jsonrpc: "2.0", method: "tenant.ended",
		params: { worker_id: worker.worker_id, message } }));

	test("a worker that ends is replaced; one that ends again and again makes it failed, with the reason", async () => {
		const { instance_id, epoch } = await loaded();
		assert.equal(epoch, 1);
		for (const n of [1, 2]) {
			ended(node.worker(), "it was killed by SIGSEGV");
			const instance = await anew(instance_id, n);
			assert.deepEqual([instance.epoch, instance.state_reason, instance.missing], [n + 1, null, []]);
		}
		ended(node.worker(), "it was killed by SIGSEGV");
		const failed = await state(instance_id, "failed");
		assert.match(failed.state_reason, /SIGSEGV/);
		assert.equal((await admin.call("model.list")).models[0].instances, 0);
		const again = await loaded(); // takes its place
		assert.deepEqual((await list()).map((one) => one.instance_id), [again.instance_id]);
		const entries = await eventually(async () => {
			const all = (await admin.call("audit.list", { limit: 100 })).entries;
			return all.some((one) => one.action === "instance.failed") && all;
		}, "the end of it is on record", 15000 * slow);
		assert.ok(entries.some((one) => one.action === "instance.create"), entries.map((one) => one.action).join(" "));
		const told = entries.find((one) => one.action === "instance.placed_anew");
		assert.deepEqual([told.actor, told.target], ["server", instance_id]);
		assert.match(told.detail.reason, /SIGSEGV/);
	});

	test("the log says how long each load took, from its beginning on", async () => {
		const hold = (ms) => {
			node.open = (message) => {
				node.open = undefined;
				node.receiveRequest(message);
				const worker = node.worker();
				worker.answers["instance.load"] = (params, body, id) => {
					setTimeout(() => worker.send({ jsonrpc: "2.0", id, ...worker.run("instance.load", params, body, id) }), ms);
					return null;
				};
			};
		};
		const said = async (instance_id) => (await admin.call("log.list", { limit: 500 })).lines
			.filter((one) => one.text.startsWith(`instance ${instance_id} of `)).map((one) => / is ready after (\d+) ms$/.exec(one.text)?.[1]).filter(Boolean);
		hold(300);
		const { instance_id } = await loaded();
		hold(600);
		ended(node.worker(), "it was killed by SIGSEGV");
		await anew(instance_id, 1);
		const took = await eventually(async () => {
			const all = await said(instance_id);
			return all.length === 2 && all;
		}, "both loads are in the log");
		assert.ok(took[0] >= 290 && took[1] >= 590, took.join(", "));
	});

	test("a load that is refused says so", async () => {
		node.open = (message) => {
			node.open = undefined;
			node.receiveRequest(message);
			node.worker().answers["instance.load"] = () => ({ error: { code: -32005, message: "3 GiB are missing",
				data: { reason: "out_of_memory", hint: null } } });
		};
		assert.match((await state(await create(), "failed")).state_reason, /3 GiB are missing/);
	});

	for (const [name, hostile] of [
		["a call that is none of its", (worker) => worker.tell("node.telemetry", { node: null, devices: [] })],
		["what breaks the contract", (worker) => worker.tell("instance.state", { running: -1 })],
		["a request that nobody made", (worker) => worker.tell("generate.delta", { request: 12345, tokens: [], text: "x" })],
		["no message at all", (worker) => worker.write(Buffer.from([4, 0, 0, 0, 1, 2, 3, 4]))],
	])
		test(`a worker that says ${name} is ended, and no other`, async () => {
			const other = await loaded(), instance = await loaded();
			for (const n of [1, 2]) {
				hostile(node.worker());
				await anew(instance.instance_id, n);
			}
			hostile(node.worker());
			assert.match((await state(instance.instance_id, "failed")).state_reason, /protocol|ended/);
			assert.equal((await find(other.instance_id)).state, "running");
		});

	test("the answer to a check that a broken hop has made an old one says nothing of the next", async () => {
		const answer = node.receiveRequest, asked = [], checks = [], half = model.architecture.layers >> 1;
		node.receiveRequest = function receive(message) {
			answer.call(this, message);
			if (message.method !== "hop.connect") return;
			asked.push(message.params);
			this.reply(message);
		};
		const tell = (worker, error) => {
			const { id } = checks.shift();
			worker.send({ jsonrpc: "2.0", id, ...(error ? { error } : { result: { parts: [], round_ms: 1, logit: 1, token: 2 } }) });
		};
		class Checked extends ModelWorker {
			answer(head, body) {
				if (head.method === "instance.check") checks.push(head);
				else super.answer(head, body);
			}

			run(method, params, body, id) {
				const { result, ...more } = super.run(method, params, body, id);
				return { result: { ...result, ...(method === "instance.load" && took.length && { row_s: took[params.part.index] }) }, ...more };
			}
		}
		let took = [];
		const stale = { code: -32009, message: "another check has begun", data: { reason: "conflict", hint: null } };
		node.Worker = Checked;
		try {
			for (const error of [stale, undefined]) { // an answer that is good says no more than one that is not
				const at = checks.length;
				const id = await create({ pins: [pin("dev_gpu", 0, half), pin("dev_cpu", half)] });
				await eventually(() => checks.length === at + 1, "the parts are checked");
				assert.deepEqual(checks.at(-1).params.row_s, took.length ? [0.75, 1.5] : undefined, "what steps take of all parts, as far as all have told");
				took = [[0.25, 0.5, 1], [0.5, 1]];
				const last = node.workers.findLast((one) => one.calls.some((call) => call.id === checks.at(-1).id && call.method === "instance.check"));
				const { worker_id, end, hop_id } = asked.at(-1);
				node.notify("hop.ended", { worker_id, end, hop_id, message: "it broke" });
				await eventually(() => checks.length === at + 2, "they are checked again");
				tell(last, error);
				last.tell("instance.state", { running: 0, waiting: 0, pages_used: 0, pages_cached: 0, page_count: 30, prompt_tokens: 0,
					generated_tokens: 0, preemptions: 0, ties: 3 });
				assert.equal((await eventually(async () => { // so that one is heard, too
					const one = await find(id);
					return one.ties === 3 && one;
				}, "ties are told")).state, "starting");
				tell(last);
				await state(id, "running");
				await admin.call("instance.delete", { instance_id: id });
			}
		} finally {
			node.Worker = ModelWorker;
			node.receiveRequest = answer;
		}
	});

	test("weights are held in a smaller format, and as the file has them again, while a stream goes on", async () => {
		const { instance_id } = await loaded(), { token } = await admin.call("token.create", { name: "step", scopes: ["infer"], expires_in_s: 600 });
		const stepped = async (format, n) => {
			const one = await anew(instance_id, n, "moves");
			const load = node.worker().calls.find((call) => call.method === "instance.load");
			assert.deepEqual([one.format, load.params.format], [format ?? "F32", format], JSON.stringify(one));
		};
		node.worker().manual = true;
		const said = { model: model.name, prompt: "one two three" }, chat = { model: model.name, messages: [{ role: "user", content: "one two three" }] };
		const asks = [["/v1/completions", said], ["/v1/completions", { ...said, stream: true }], ["/v1/completions", { ...said, n: 2 }],
			["/v1/chat/completions", chat], ["/v1/responses", { model: model.name, input: "one two three" }],
			["/v1/messages", { ...chat, max_tokens: 100 }], ["/v1/messages", { ...chat, max_tokens: 100, stream: true }],
			["/api/generate", { ...said, stream: false }], ["/v1/completions", { ...said, prompt: "none yet" }]];
		const answers = asks.map(([path, body]) => server.http(path, { method: "POST", headers: { authorization: `Bearer ${token}` }, body: JSON.stringify(body) }));
		await eventually(() => node.worker().requests.size === asks.length + 1, "it is asked");
		for (const [request, { params }] of node.worker().requests) if (params.prompt.text !== "none yet") node.worker().say(request, "one");
		await admin.call("instance.move", { instance_id, format: "Q8_0" });
		await stepped("Q8_0", 1);
		const [{ status, json }, ...others] = await Promise.all(answers);
		assert.deepEqual([status, json().choices?.[0].text], [200, "one two three"], "nothing twice, nothing lost");
		const told = others.map(({ text }) => [...text.matchAll(/"format_changes":(\[.*?\])/g)].map(([, list]) => JSON.parse(list)));
		const change = [{ position: 1, from: "F32", format: "Q8_0" }];
		assert.deepEqual([json().choices[0].format_changes, ...told], [change, [change], [change, change], [change], [change], [change], [change], [change], []]);
		const { code, stdout, stderr } = await run(["move", instance_id, "--format", "Q4_0", "--data", server.data]);
		assert.equal(code, 0, stderr);
		assert.match(stdout, /if there is room/);
		await stepped("Q4_0", 2);
		await admin.call("instance.move", { instance_id, format: "file" });
		await stepped(undefined, 3);
		const { entries } = await admin.call("audit.list", { action: "instance.move", limit: 3 });
		assert.deepEqual(entries.map((one) => one.detail.format), ["file", "Q4_0", "Q8_0"]);
		await admin.refused("instance.move", { instance_id, format: "Q5_K" }, "invalid_params");
		await admin.call("instance.delete", { instance_id });
	});

	test("one that fits nowhere waits with its requests, goes on when a device comes, and is deleted while it waits", async () => {
		const drain = (drain, ...ids) => Promise.all(ids.map((device_id) => admin.call("device.drain", { device_id, drain })));
		const all = ["dev_cpu", "dev_gpu", "dev_small", "dev_twin1", "dev_twin2"];
		const { instance_id } = await loaded();
		const lost = async () => {
			await drain(true, ...all);
			ended(node.worker(), "it was killed by SIGKILL");
			const paused = await eventually(async () => {
				const one = await find(instance_id);
				return one.state === "paused" && /^it waits for a place/.test(one.state_reason) && one;
			}, "it waits for a place", 60000 * slow);
			assert.deepEqual(paused.missing, [{ first_layer: 0, layer_count: model.architecture.layers, device_id: paused.stages[0].device_id,
				to_device_id: null }]);
			const { stdout } = await run(["instances", "--data", server.data]); // devices by their names, and no progress: nothing is loaded
			assert.match(stdout, /words +paused +\w[^]*\nwords: it waits for a place: [^]*\nwords: missing: layers 0 to \d+, which (CPU|GPU|Small|Twin \d) held\n/);
		};
		const ask = () => fetch(new URL("/v1/completions", server.url).href, { method: "POST", headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model: "words", prompt: "one two", max_tokens: 9 }) });
		await lost();
		const waits = ask();
		node.open = (message) => {
			node.open = undefined;
			node.receiveRequest(message);
			node.worker().answers["instance.load"] = () => null; // until it is told to be ready
		};
		await drain(false, "dev_twin1");
		const loading = await eventually(async () => {
			const one = await find(instance_id);
			return one.progress && one;
		}, "it has a place", 60000 * slow);
		assert.deepEqual([loading.state, loading.missing.map((one) => one.to_device_id)], ["paused", ["dev_twin1"]]);
		assert.match(loading.state_reason, /it was killed by SIGKILL$/, "what was lost, as it waits for a place no more");
		const load = await eventually(() => !node.open && node.worker().calls.find(({ method }) => method === "instance.load"), "it is to load");
		delete node.worker().answers["instance.load"];
		node.worker().answer(load);
		assert.equal((await anew(instance_id, 1)).stages[0].device_id, "dev_twin1");
		assert.equal((await (await waits).json()).choices[0].text, "one two");
		await lost();
		const other = ask();
		await admin.call("instance.delete", { instance_id });
		const refused = await other;
		assert.equal(refused.status, 503);
		assert.match((await refused.json()).error.message, /the model was stopped|is not loaded|could not be loaded/);
		assert.deepEqual(await list(), []);
		await drain(false, ...all);
		assert.equal((await loaded()).state, "running"); // nothing is held by what is gone
	});

	test("one that waits for a place says in which format it would have one, and takes that when it is told to", async () => {
		const other = await startServer(), owner = await Client.login(other);
		// Room for it in Q8_0 and not in F32, once the other device is gone.
		const tight = deviceRecord({ device_id: "dev_tight", hardware_key: "uuid:tight", name: "Tight", memory_pool: "uuid:tight",
			memory_bytes: 1 << 30 });
		const own = await WorkerNode.start(other, { Worker: ModelWorker, devices: [gpu, tight] });
		const path = join(temporary(), "wide.gguf");
		writeFileSync(path, modelFile({ megabytes: 8 }));
		await owner.call("model.add", { source: path });
		const added = await eventually(async () => (await owner.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		const params = { model_id: added.model_id, context_tokens: 64, sequences: 1 };
		const first = async () => (await owner.call("instance.list")).instances[0];
		const needs = async (format) => (await owner.call("placement.preview", { ...params, ...format, pins: [pin("dev_tight")] }))
			.devices.find((one) => one.device_id === "dev_tight");
		const used = (memory_used_bytes) => own.telemetry([deviceReadings({ device_id: "dev_tight", memory_total_bytes: tight.memory_bytes,
			memory_used_bytes })]);
		const told = (matches) => eventually(async () => {
			const one = await needs({});
			return one.free_bytes !== null && matches(one) && one;
		}, "its memory is told");
		used(0);
		const whole = await told(() => true), held = await needs({ format: "Q8_0" });
		const { instance_id } = await owner.call("instance.create", { ...params, pins: [pin("dev_gpu")] });
		await eventually(async () => (await first()).state === "running", "it is ready");
		used(Math.round(whole.free_bytes - (whole.needed_bytes + held.needed_bytes) / 2));
		await told((one) => one.free_bytes < whole.needed_bytes);
		await owner.call("device.drain", { device_id: "dev_gpu", drain: true });
		own.worker().kill();
		const waits = await eventually(async () => {
			const one = await first();
			return one.state === "paused" && one.remedies.length > 2 && one;
		}, "it says what would help", 60000 * slow).catch(async (error) => { throw new Error(`${error.message}; it is ${JSON.stringify(await first())}`); });
		assert.match(waits.remedies[0], /in the format Q8_0 it would fit/);
		assert.equal(waits.remedies[1], "with GPU back in service it would fit: exogpu devices return dev_gpu");
		assert.match(waits.remedies[2], /with \d+ GiB more on Tight it would fit/);
		const [, command] = /it waits for a place: .*; with its weights in Q8_0 it would fit: exogpu (.*)$/.exec(waits.state_reason) ?? [];
		assert.equal(command, `move ${instance_id} --format Q8_0`, waits.state_reason);
		const moved = await run([...command.split(" "), "--data", other.data]);
		assert.equal(moved.code, 0, moved.stderr);
		const there = await eventually(async () => {
			const one = await first();
			return one.state === "running" && one;
		}, "it goes on", 60000 * slow);
		assert.deepEqual([there.instance_id, there.format, there.stages[0].device_id, there.remedies, there.recoveries, there.moves],
			[instance_id, "Q8_0", "dev_tight", [], 1, 0]);
		own.socket.close();
		await other.finish();
	});

	test("what is begun right after another has ended waits until readings show its memory as free", async () => {
		const other = await startServer(), owner = await Client.login(other);
		const tight = deviceRecord({ device_id: "dev_tight", hardware_key: "uuid:tight", name: "Tight", memory_pool: "uuid:tight", memory_bytes: 1 << 30 });
		const own = await WorkerNode.start(other, { Worker: ModelWorker, devices: [tight] });
		const path = join(temporary(), "large.gguf");
		writeFileSync(path, modelFile({ megabytes: 40 }));
		await owner.call("model.add", { source: path });
		const added = await eventually(async () => (await owner.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		const params = { model_id: added.model_id, context_tokens: 64, sequences: 1, pins: [pin("dev_tight")] };
		const room = async () => (await owner.call("placement.preview", params)).devices.find((one) => one.device_id === "dev_tight");
		const used = async (memory_used_bytes, matches) => {
			own.telemetry([deviceReadings({ device_id: "dev_tight", memory_total_bytes: tight.memory_bytes, memory_used_bytes: Math.round(memory_used_bytes) })]);
			await eventually(async () => matches(await room()), "its memory is told");
		};
		const ready = ({ instance_id }) => eventually(async () => (await owner.call("instance.list")).instances
			.find((one) => one.instance_id === instance_id && one.state === "running"), "it is ready", 60000 * slow);
		await used(0, (one) => one.free_bytes !== null);
		const { free_bytes, needed_bytes } = await room(), others = free_bytes - 1.3 * needed_bytes;
		await used(others, (one) => one.free_bytes < 1.4 * needed_bytes);
		const first = await ready(await owner.call("instance.create", params));
		await used(others + needed_bytes, (one) => one.free_bytes < needed_bytes);
		await owner.call("instance.delete", { instance_id: first.instance_id });
		const begun = owner.call("instance.create", params);
		assert.ok((await room()).free_bytes < needed_bytes, "by the last reading there was no room");
		await used(others, (one) => one.free_bytes > needed_bytes);
		const second = await ready(await begun);
		await used(others + needed_bytes, (one) => one.free_bytes < needed_bytes);
		await owner.call("instance.delete", { instance_id: second.instance_id });
		const left = assert.rejects(owner.call("instance.create", params)); // and a server that ends keeps nobody waiting
		await room();
		own.socket.close();
		await other.finish();
		await left;
	});

	test("requests of one that fits nowhere end when they have waited long enough; it goes on without them", async () => {
		const short = await startServer({ args: ["--limit", "pause_ms=4000"] }), owner = await Client.login(short);
		const own = await WorkerNode.start(short, { Worker: ModelWorker, devices: [cpu] });
		await owner.call("model.add", { source: model.source });
		const added = await eventually(async () => {
			const [one] = (await owner.call("model.list")).models;
			return one?.state === "ready" && one;
		}, "the model is ready");
		const first = async () => (await owner.call("instance.list")).instances[0];
		await owner.call("instance.create", { model_id: added.model_id });
		await eventually(async () => (await first()).state === "running", "it is ready");
		const worker = own.worker();
		worker.manual = true;
		const ask = () => fetch(new URL("/v1/completions", short.url).href, { method: "POST", headers: { authorization: `Bearer ${short.token}` },
			body: JSON.stringify({ model: "words", prompt: "one two" }) });
		const waits = ask();
		await eventually(() => worker.requests.size === 1, "it has begun");
		await owner.call("device.drain", { device_id: "dev_cpu", drain: true });
		worker.kill();
		const answer = await within(waits, "it is given up", 60000 * slow);
		assert.equal(answer.status, 503);
		assert.match((await answer.json()).error.message, /is paused for 4 s: it waits for a place/);
		assert.equal((await first()).state, "paused");
		assert.equal((await ask()).status, 503); // at once: nobody waits for it any longer
		await owner.call("device.drain", { device_id: "dev_cpu", drain: false });
		await eventually(async () => (await first()).state === "running", "it goes on", 60000 * slow);
		assert.equal((await (await ask()).json()).choices[0].text, "one two");
		own.socket.close();
		await short.finish();
	});

	test("requests wait on while their model is loaded anew, however long that takes, but not while that fails", async () => {
		const scale = slow / 2;
		class SlowWorker extends ModelWorker {
			static steps = 0;
			static fails = false;

			answer(call, body) {
				if (call.method !== "instance.load") return super.answer(call, body);
				if (SlowWorker.fails) return this.send({ jsonrpc: "2.0", id: call.id, error: { code: -32005, message: "3 GiB are missing",
					data: { reason: "out_of_memory", hint: "use less" } } });
				for (let i = 0; i < SlowWorker.steps; i++)
					setTimeout(() => this.tell("instance.progress", { loaded_bytes: (i + 1) * 1000, total_bytes: 1000000 }), i * 500 * scale);
				setTimeout(() => super.answer(call, body), SlowWorker.steps * 500 * scale);
			}
		}
		const short = await startServer({ args: ["--limit", `pause_ms=${5000 * scale}`] }), owner = await Client.login(short);
		const own = await WorkerNode.start(short, { Worker: SlowWorker, devices: [cpu] });
		await owner.call("model.add", { source: model.source });
		const added = await eventually(async () => (await owner.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await owner.call("instance.create", { model_id: added.model_id });
		await eventually(async () => (await owner.call("instance.list")).instances[0].state === "running", "it is ready");
		const killed = async () => { // what a request gets whose worker is killed
			const worker = own.worker();
			worker.manual = true;
			const waits = fetch(new URL("/v1/completions", short.url).href, { method: "POST", headers: { authorization: `Bearer ${short.token}` },
				body: JSON.stringify({ model: "words", prompt: "one two" }) });
			await eventually(() => worker.requests.size === 1, "it has begun");
			worker.kill();
			const answer = await within(waits, "it is answered", 60000 * slow);
			return [answer.status, await answer.json()];
		};
		SlowWorker.steps = 16;
		const [status, { choices }] = await killed();
		assert.deepEqual([status, choices?.[0].text], [200, "one two"]);
		SlowWorker.fails = true;
		assert.equal((await killed())[0], 503);
		own.socket.close();
		await short.finish();
	});

	test("with keys that nobody gave out no file is read and no hop carried", async () => {
		const reader = await FakeNode.connect(server, null, { protocol: "exogpu.model.v1" });
		const { instance_id } = await loaded();
		for (const key of ["x", "0".repeat(64)]) {
			const error = await reader.refused("model.read", { model_id: model.model_id, key, offset: 0, bytes: 16 }, "forbidden");
			assert.match(error.said, /nothing of the model .* is to be read with this key/);
		}
		await reader.refused("model.read", { model_id: model.model_id, key: "x", offset: 0, bytes: 8388608 }, "invalid_params");
		await reader.close();
		for (const end of ["in", "out"]) {
			const stranger = new class extends FakeWorker {
				greet() {
					this.send({ jsonrpc: "2.0", method: "hop.hello", params: { hop_id: "hop_none", key: "0".repeat(64), end } });
				}
			}(server, { worker_id: "wrk_none", key: "0".repeat(64), backend: "cpu" });
			await within(stranger.closed, "a stream that names no hop is closed", 30000 * slow);
			assert.deepEqual(stranger.calls, []);
		}
		assert.equal((await find(instance_id)).state, "running");
	});

	test("memory is counted once: as held, and by readings once they are newer than the load; and no more than there is now", async () => {
		const other = await startServer(), owner = await Client.login(other), mib = 1 << 20;
		const own = await WorkerNode.start(other, { Worker: ModelWorker, devices: [twins[0]] });
		await owner.call("model.add", { source: model.source });
		const { model_id } = await eventually(async () => (await owner.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		const used = (memory_used_bytes, memory_total_bytes = 1 << 30) => own.telemetry([deviceReadings({ device_id: "dev_twin1", memory_used_bytes, memory_total_bytes })]);
		const free = async () => (await owner.call("placement.preview", { model_id })).devices.find((one) => one.device_id === "dev_twin1").free_bytes;
		used(256 * mib);
		const before = await eventually(free, "its memory is told");
		await owner.call("instance.create", { model_id });
		await eventually(async () => (await owner.call("instance.list")).instances[0].state === "running", "it is ready");
		const beside = await free(), held = before - beside;
		assert.ok(held > 0, `${beside} B are free beside it, ${before} before`);
		const readings = async (bytes, total, wanted) => {
			let last;
			await eventually(async () => {
				used(bytes, total);
				return (last = await free()) === wanted;
			}, `${wanted} B are free`).catch((error) => { throw new Error(`${error.message}; it says ${last}`); });
		};
		await readings(300 * mib + held, 1 << 30, beside - 44 * mib);
		await readings(100 * mib, 1 << 29, (512 - 64 - 100) * mib); // a limit that was set since
		own.socket.close();
		await other.finish();
	});

	test("as much memory stays free as is configured", async () => {
		const free = async (args) => {
			const one = await startServer({ args }), owner = await Client.login(one);
			const own = await WorkerNode.start(one, { Worker: ModelWorker, devices: [twins[0]] });
			await owner.call("model.add", { source: model.source });
			const { model_id } = await eventually(async () => (await owner.call("model.list")).models.find((each) => each.state === "ready"), "the model is ready");
			own.telemetry([deviceReadings({ device_id: "dev_twin1", memory_used_bytes: 1 << 28, memory_total_bytes: 1 << 30 })]);
			const { free_bytes } = await eventually(async () => (await owner.call("placement.preview", { model_id })).devices.find((each) => each.free_bytes !== null), "its memory is told");
			own.socket.close();
			await one.finish();
			return free_bytes / (1 << 28);
		};
		assert.deepEqual(await Promise.all([[], ["--headroom", "50"], ["--headroom", "0"]].map(free)), [2.75, 1, 3]);
		const refused = await run(["serve", "--headroom", "91", "--data", temporary()]);
		assert.notEqual(refused.code, 0);
		assert.match(refused.stderr, /--headroom takes 0 to 90 per cent/);
	});

	test("the command line: place, instances, run, stop", async () => {
		const data = ["--data", server.data];
		const shown = await run(["place", "words", "--preview", ...data]);
		assert.equal(shown.code, 0, shown.stderr);
		assert.match(shown.stdout, /layers 0 to \d+ on (GPU|Twin 1)\b[^]*\nfor \d+ requests at once, \d+ tokens each\n[^]*proven to be the best[^]*\nGPU +\S+ +[\d.]+/);
		const none = await run(["place", "nothing", ...data]);
		assert.deepEqual([none.code, /there are: words/.test(none.stderr)], [1, true]);
		const said = await run(["run", "words", "one two three", "--max-tokens", "2", ...data]);
		assert.deepEqual([said.code, said.stdout], [0, "one two\n"], said.stderr);
		assert.match(said.stderr, /not loaded yet, starting words/);
		const request = node.worker().calls.find((one) => one.method === "generate.start").params;
		assert.deepEqual(request.prompt, { messages: [{ role: "user", text: "one two three" }] });
		const again = await run(["run", "words", "four", "--system", "be brief", "--json", ...data]);
		assert.equal(JSON.parse(again.stdout).choices[0].message.content, "four");
		const table = await run(["instances", "--json", ...data]);
		const [{ instance_id }] = JSON.parse(table.stdout).instances;
		assert.deepEqual((await run(["stop", instance_id, ...data])).stdout, `stopped ${instance_id}\n`);
		assert.deepEqual(await list(), []);
	});
});
