// Forecasts over the whole: an hour of readings of a simulated card goes through a node to the server within a moment, by
// the clock that a debug build takes from readings; what the server then foresees is compared with what that card does.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "./records.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, run, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const air = 25, resistance = 0.1, tau = 60, slowdown = 90; // the card: °C, °C/W, s, °C

describe("forecasts", () => {
	let server, admin, node, at = Date.now() - 3600e3, rise = 5, memoryLimit;
	const data = temporary();
	const ask = (more = {}) => admin.call("thermal.forecast", { device_id: "dev_gpu", ...more });
	// Seconds of the card at a power, thirty readings to a message. Resolves once the server has taken the last.
	const flow = async (seconds, watts) => {
		let readings = [];
		for (let i = 0; i < seconds; i++, at += 1000) {
			rise += (resistance * watts - rise) * (1 - Math.exp(-1 / tau));
			readings.push(deviceReadings({ at: new Date(at).toISOString(), power_watts: watts,
				temperature_celsius: Math.round((air + rise) * 10) / 10, slowdown_celsius: slowdown,
				...(memoryLimit && { memory_temperature_celsius: Math.round((air + rise / 2) * 10) / 10, memory_slowdown_celsius: memoryLimit }) }));
			if (readings.length < 30 && i < seconds - 1) continue;
			node.telemetry(readings, nodeReadings());
			readings = [];
		}
		const shown = Math.round((air + rise) * 10) / 10;
		await eventually(async () => (await ask()).temperature_celsius === shown, "the newest reading is taken");
	};

	before(async () => {
		server = await startServer({ data, env: { EXOGPU_THERMAL_CLOCK: "readings" } });
		admin = await Client.login(server);
		node = await FakeNode.connect(server, nodeRecord());
		await node.devices([deviceRecord(), deviceRecord({ device_id: "dev_cpu", hardware_key: "cpu", kind: "cpu", backend: "cpu", name: "A CPU" })]);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("before any reading, and of a device that there is not", async () => {
		const first = await ask();
		assert.deepEqual([first.state, first.state_reason, first.points], ["learning", "no readings have come yet", []]);
		await admin.refused("thermal.forecast", { device_id: "dev_none" }, "not_found");
		await admin.refused("thermal.forecast", { device_id: "dev_gpu", horizon_s: 3601 }, "invalid_params");
	});

	test("a load that never changes teaches nothing", async () => {
		await flow(120, 50);
		const idle = await ask();
		assert.equal(idle.state, "learning");
		assert.match(idle.state_reason, /has not changed enough/);
		assert.deepEqual([idle.limit_celsius, idle.throttles_in_s, idle.sustainable_watts], [slowdown, null, null]);
		assert.equal(idle.margin_celsius, slowdown - idle.temperature_celsius);
	});

	test("steps teach it: what is foreseen is what the card then does", async () => {
		for (const watts of [300, 50, 400, 120, 350]) await flow(180, watts);
		const known = await ask({ power_watts: 350, horizon_s: 60 });
		assert.equal(known.state, "ready", known.state_reason);
		assert.deepEqual([known.state_reason, known.sensor, known.power_watts, known.points.length], [null, "core", 350, 61]);
		assert.ok(Math.abs(known.ambient_celsius - air) < 3, `${known.ambient_celsius}`);
		assert.ok(Math.abs(known.sustainable_watts - (slowdown - 5 - air) / resistance) < 60, `${known.sustainable_watts}`);
		assert.equal(known.throttles_in_s, null, "60 °C is all that 350 W make");
		assert.ok(known.error_celsius < 1.5, `${known.error_celsius}`);
		const hot = await ask({ power_watts: 900 }), would = air + resistance * 900;
		const due = tau * Math.log((would - hot.temperature_celsius) / (would - slowdown));
		assert.ok(Math.abs(hot.throttles_in_s - due) < 0.25 * due + 2, `${hot.throttles_in_s} of ${due}`);
		await flow(60, 350);
		const then = (await ask()).temperature_celsius, last = known.points.at(-1);
		assert.equal(last.in_s, 60);
		assert.ok(last.low_celsius <= then && then <= last.high_celsius, `${then} in ${JSON.stringify(last)}`);
		assert.ok(Math.abs(last.celsius - then) < 1.5, `${then} in ${JSON.stringify(last)}`);
	});

	test("it warns before the limit is reached", async () => {
		assert.equal((await ask()).warns, false);
		await flow(5, 900);
		const { warns, throttles_in_s, temperature_celsius } = await ask();
		assert.ok(warns && throttles_in_s > 0 && temperature_celsius < slowdown, `${warns} ${throttles_in_s} ${temperature_celsius}`);
		const standing = async () => (await admin.call("alert.list")).alerts.filter((one) => one.kind === "throttles_soon");
		const [alert] = await eventually(async () => {
			const found = await standing();
			await flow(1, 900); // two looks of the rules at two readings raise it
			return found.length && found;
		}, "the alert stands");
		assert.deepEqual([alert.severity, alert.subject.id], ["warning", "dev_gpu"]);
		assert.match(alert.message, /GPU One on bench will be throttled within a minute/);
		await flow(120, 50);
		assert.equal((await ask()).warns, false);
		await eventually(async () => {
			await flow(1, 50);
			return (await standing()).length === 0;
		}, "it is cleared");
	});

	test("memory and processors that do not tell are unsuitable, with the reason", async () => {
		const memory = await ask({ sensor: "memory" });
		assert.deepEqual([memory.state, memory.state_reason, memory.limit_celsius],
			["unsuitable", "it does not report the temperature of its memory", null]);
		node.telemetry(Array.from({ length: 60 }, (_, i) => deviceReadings({ device_id: "dev_cpu", at: new Date(at + i * 1000).toISOString(),
			power_watts: null, temperature_celsius: null, slowdown_celsius: null })));
		await eventually(async () => {
			const { state, state_reason } = await admin.call("thermal.forecast", { device_id: "dev_cpu" });
			return state === "unsuitable" && state_reason === "it does not report its temperature";
		}, "a processor without a sensor is unsuitable");
	});

	test("it warns of the memory's limit, too", async () => {
		memoryLimit = 48;
		for (const watts of [50, 300, 50, 400, 120, 50]) await flow(180, watts);
		const standing = async () => (await admin.call("alert.list")).alerts.filter((one) => one.kind === "throttles_soon");
		assert.deepEqual(await standing(), []);
		await flow(5, 800);
		const core = await ask(), memory = await ask({ sensor: "memory" });
		assert.deepEqual([core.warns, memory.warns, memory.state, memory.limit_celsius], [false, true, "ready", 48], JSON.stringify([core.throttles_in_s, memory.throttles_in_s]));
		const [alert] = await eventually(async () => {
			const found = await standing();
			await flow(1, 500); // 50 °C of the memory, 75 of the core
			return found.length && found;
		}, "the alert stands");
		assert.match(alert.message, /^the memory of GPU One on bench reaches its limit within a minute/);
		await flow(120, 50);
		await eventually(async () => {
			await flow(1, 50);
			return (await standing()).length === 0;
		}, "it is cleared");
	});

	test("metrics and the command line", async () => {
		const metrics = (await server.http("/metrics", { headers: { authorization: `Bearer ${server.token}` } })).text;
		assert.match(metrics, /^exogpu_device_forecast_seconds_to_limit\{device="dev_gpu",.*\} \+Inf$/m);
		assert.match(metrics, /^exogpu_device_sustainable_watts\{device="dev_gpu",.*\} \d/m);
		assert.doesNotMatch(metrics, /^exogpu_device_sustainable_watts\{device="dev_cpu"/m);
		const all = await run(["forecast", "--data", data]);
		assert.equal(all.code, 0, all.stderr);
		assert.match(all.stdout, /GPU One +.*ready/);
		assert.match(all.stderr, /A CPU.* is unsuitable: it does not report its temperature/);
		const one = await run(["forecast", "dev_gpu", "--watts", "900", "--for", "2m", "--json", "--data", data]);
		assert.equal(one.code, 0, one.stderr);
		const told = JSON.parse(one.stdout);
		assert.deepEqual([told.device_id, told.power_watts, told.points.at(-1).in_s], ["dev_gpu", 900, 120]);
		for (const words of [["--watts", "much"], ["--for", "2h"], ["--for", "x"]])
			assert.equal((await run(["forecast", ...words, "--data", data])).code, 2, words.join(" "));
		assert.equal((await run(["forecast", "none", "--data", data])).code, 1);
	});

	test("the command line shows a policy and changes it", async () => {
		const ask = (...words) => run(["forecast", "policy", ...words, "--data", data]);
		const before = await ask("dev_gpu");
		assert.equal(before.code, 0, before.stderr);
		assert.match(before.stdout, /GPU One.*: limit, step_down, move, pause\nThe target is 5 °C under the limit; models work freely again 10 °C under the target\.\n$/);
		const changed = await ask("dev_gpu", "--margin", "7.5", "--actions", "pause,limit", "--json");
		assert.equal(changed.code, 0, changed.stderr);
		assert.deepEqual(JSON.parse(changed.stdout), await admin.call("thermal.policy", { device_id: "dev_gpu" }));
		assert.deepEqual([JSON.parse(changed.stdout).margin_celsius, JSON.parse(changed.stdout).actions.toSorted()], [7.5, ["limit", "pause"]]);
		assert.match((await ask("dev_gpu", "--actions", "none")).stdout, /: nothing is done before the limit\n/);
		for (const words of [["--margin", "0.5"], ["--resume", "41"], ["--margin", "x"], ["--actions", "limit,,pause"], ["--actions", ","]])
			assert.equal((await ask("dev_gpu", ...words)).code, 2, words.join(" "));
		for (const words of [["none"], ["dev_gpu", "--actions", "fan"], ["dev_gpu", "--actions", "move"]])
			assert.equal((await ask(...words)).code, 1, words.join(" "));
		await admin.call("thermal.policy_set", { device_id: "dev_gpu", margin_celsius: 5, actions: ["limit", "step_down", "move", "pause"] });
	});
});

// A model on a card that gets too hot: its worker is told to rest, and set free when the card is cool again.
describe("acting", () => {
	let server, admin, node, model, at = Date.now() - 3600e3, rise = 5, memoryLimit;
	const data = temporary();
	const entries = async (action) => (await admin.call("audit.list", { action })).entries;
	const forecast = () => admin.call("thermal.forecast", { device_id: "dev_gpu" });
	const paces = () => node.workers.flatMap((worker) => worker.paces ?? []);
	const flow = (seconds, watts) => {
		const readings = Array.from({ length: seconds }, () => {
			rise += (resistance * watts - rise) * (1 - Math.exp(-1 / tau));
			return deviceReadings({ at: new Date(at += 1000).toISOString(), power_watts: watts, temperature_celsius: air + rise, slowdown_celsius: slowdown,
				memory_temperature_celsius: air + rise / 2, ...(memoryLimit && { memory_slowdown_celsius: memoryLimit }) });
		});
		for (let i = 0; i < seconds; i += 30) node.telemetry(readings.slice(i, i + 30), nodeReadings());
	};
	class Paced extends ModelWorker {
		run(method, params, body, id) {
			if (method !== "instance.pace") return super.run(method, params, body, id);
			(this.paces ??= []).push(params.percent);
			return { result: {} };
		}
	}

	before(async () => {
		server = await startServer({ data, env: { EXOGPU_THERMAL_CLOCK: "readings" } });
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: Paced });
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.8 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await admin.call("instance.create", { model_id: model.model_id, pins: [{ device_id: "dev_gpu", first_layer: 0, layer_count: 0 }] });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "it runs");
		for (const watts of [300, 50, 400, 120, 350]) flow(180, watts);
		await eventually(async () => (await forecast()).state === "ready", "a forecast is made");
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("the policy of a device", async () => {
		const usual = { device_id: "dev_gpu", margin_celsius: 5, resume_celsius: 10, actions: ["limit", "step_down", "move", "pause"] };
		assert.deepEqual(await admin.call("thermal.policy", { device_id: "dev_gpu" }), usual);
		await admin.refused("thermal.policy", { device_id: "dev_none" }, "not_found");
		await admin.refused("thermal.policy_set", { device_id: "dev_none" }, "not_found");
		await admin.refused("thermal.policy_set", { device_id: "dev_gpu", margin_celsius: 0 }, "invalid_params");
		await admin.refused("thermal.policy_set", { device_id: "dev_gpu", actions: ["melt"] }, "invalid_params");
		for (const action of ["move", "step_down"]) // only what is held back is left
			await admin.refused("thermal.policy_set", { device_id: "dev_gpu", actions: [action] }, "invalid_params");
		const wider = await admin.call("thermal.policy_set", { device_id: "dev_gpu", margin_celsius: 8 });
		assert.deepEqual(wider, { ...usual, margin_celsius: 8 });
		assert.equal((await forecast()).target_celsius, slowdown - 8);
		const [entry] = await entries("thermal.policy_set");
		assert.deepEqual([entry.target, entry.detail.margin_celsius, entry.detail.actions], ["dev_gpu", 8, "limit, step_down, move, pause"]);
	});

	test("a load that is too hot is held back, then free again", async () => {
		assert.deepEqual(paces(), []);
		assert.equal((await forecast()).acts, "nothing");
		flow(10, 900);
		const held = await eventually(() => paces().at(-1), "the worker is told to rest");
		assert.ok(held > 0 && held < 100, `${held}`);
		const told = await forecast();
		assert.deepEqual([told.acts, told.work_percent], ["limit", held]);
		assert.ok(told.temperature_celsius < slowdown, `${told.temperature_celsius}`);
		assert.equal((await admin.call("instance.list")).instances[0].state, "running", "it goes on, more slowly");
		flow(400, 50);
		await eventually(() => paces().at(-1) === 100, "it is set free");
		assert.equal((await forecast()).acts, "nothing");
		const steps = (await entries("device.heat")).map((one) => [one.actor, one.target, one.detail.step]).reverse();
		assert.deepEqual(steps, [["server", "dev_gpu", "limited"], ["server", "dev_gpu", "free"]]);
		assert.match((await entries("device.heat"))[1].detail.reason, /^models on it get less time, at \d+ °C: it would reach 82 °C within a minute/);
		const changes = (await admin.call("cluster.snapshot")).recent.filter((one) => one.kind === "device.heat");
		assert.deepEqual(changes.map((one) => one.level), ["info", "attention"]);
		assert.match(changes[1].summary, /models on it get less time, at \d+ °C: it would reach 82 °C within a minute/);
	});

	test("readings that come all at once are one", async () => {
		const celsius = Math.round(air + rise + 1);
		node.telemetry(Array.from({ length: 20 }, (_, i) => deviceReadings({ at: new Date(at + 10 * (i + 1)).toISOString(), power_watts: 1500,
			temperature_celsius: i < 19 ? air + rise : celsius, slowdown_celsius: slowdown })), nodeReadings());
		await eventually(async () => (await forecast()).temperature_celsius === celsius, "they are taken");
		assert.equal((await forecast()).acts, "nothing");
	});

	test("memory has a limit of its own, where it is told: the stricter one counts", async () => {
		flow(200, 300);
		const memory = () => admin.call("thermal.forecast", { device_id: "dev_gpu", sensor: "memory" });
		await eventually(async () => (await memory()).temperature_celsius > 39, "it is warm");
		assert.deepEqual([(await forecast()).acts, (await memory()).limit_celsius], ["nothing", null]);
		memoryLimit = 46; // its target is 38 °C
		flow(10, 300);
		await eventually(async () => (await forecast()).acts !== "nothing", "the device is held back for its memory");
		const told = await memory();
		assert.deepEqual([told.state, told.limit_celsius, told.target_celsius], ["ready", 46, 38]);
		await eventually(() => paces().at(-1) < 100, "its model rests");
		const [change] = (await admin.call("cluster.snapshot")).recent.filter((one) => one.kind === "device.heat");
		assert.match(change.summary, /^models on it (get less time|pause), at (39|40) °C of its memory: .* 46 °C$/);
		memoryLimit = undefined;
		flow(10, 50);
		await eventually(async () => (await forecast()).acts === "nothing" && paces().at(-1) === 100, "no limit is told any more");
	});

	test("a policy without actions does nothing, and is kept over a restart", async () => {
		await admin.call("thermal.policy_set", { device_id: "dev_gpu", actions: [] });
		const before = paces().length;
		flow(60, 900);
		await eventually(async () => (await forecast()).temperature_celsius > 80, "it is hot");
		assert.equal((await forecast()).acts, "nothing");
		assert.equal(paces().length, before);
		node.socket.close();
		await server.finish();
		server = await startServer({ data });
		admin = await Client.login(server);
		assert.deepEqual(await admin.call("thermal.policy", { device_id: "dev_gpu" }),
			{ device_id: "dev_gpu", margin_celsius: 8, resume_celsius: 10, actions: [] });
	});
});

// A model that has a request, on a card whose own limit falls for a while, as where a fan fails: it gets less time, moves
// to the slower card, and goes back later. Time is that of the readings.
describe("moving", () => {
	let server, admin, node, model, instance_id, said, at = Date.now() - 14400e3, rise = 5, limit = slowdown;
	const data = temporary(), words = Array.from({ length: 60 }, (_, i) => `w${i}`).join(" ");
	const card = deviceRecord({ memory_bandwidth_bytes_per_s: 4.5e8 }); // so slow that a small model shows it
	const slower = deviceRecord({ device_id: "dev_slower", hardware_key: "uuid:2", name: "GPU Two", memory_pool: "uuid:2",
		memory_bandwidth_bytes_per_s: 3.2e8 });
	const flow = async (seconds, watts) => {
		const readings = Array.from({ length: seconds }, () => {
			rise += (resistance * watts - rise) * (1 - Math.exp(-1 / tau));
			return deviceReadings({ at: new Date(at += 1000).toISOString(), power_watts: watts, slowdown_celsius: limit,
				temperature_celsius: Math.round((air + rise) * 100) / 100 });
		});
		const cool = (at_ms) => deviceReadings({ device_id: "dev_slower", at: at_ms, power_watts: 50, temperature_celsius: 30, slowdown_celsius: slowdown });
		for (let i = 0; i < seconds; i += 30) node.telemetry([...readings.slice(i, i + 30), cool(readings.at(-1).at)], nodeReadings());
		await eventually(async () => (await forecast()).temperature_celsius === readings.at(-1).temperature_celsius, "they are taken");
	};
	const forecast = () => admin.call("thermal.forecast", { device_id: "dev_gpu" });
	const instance = async () => (await admin.call("instance.list")).instances[0];
	const on = (device_id, moves) => eventually(async () => {
		const one = await instance();
		return one.state === "running" && one.stages[0].device_id === device_id && one.moves === moves && one;
	}, `it runs on ${device_id}`);
	const moves = async () => (await admin.call("audit.list", { action: "instance.moved" })).entries;
	const all = words.split(" ").map((word, i) => (i ? " " : "") + word);
	// Tokens come when the test says so.
	class Told extends ModelWorker {
		constructor(...args) {
			super(...args);
			this.manual = true;
		}

		get request() {
			return [...this.requests.keys()].at(-1);
		}
	}

	const ask = () => {
		said = 0;
		return fetch(new URL("/v1/completions", server.url).href, { method: "POST", headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model: "words", prompt: words, max_tokens: 100 }) });
	};
	// The next words, by the worker that has the request now; it was given what had been said.
	const say = async (count) => {
		const worker = await eventually(() => node.worker().request !== undefined && node.worker(), "the worker has the request");
		assert.equal((worker.requests.get(worker.request).params.generated ?? []).length, said - (worker.told ?? 0));
		for (const word of all.slice(said, said + count)) worker.say(worker.request, word);
		said += count;
		worker.told = (worker.told ?? 0) + count;
		return worker;
	};

	before(async () => {
		server = await startServer({ data, env: { EXOGPU_THERMAL_CLOCK: "readings" } });
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: Told, devices: [card, slower] });
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.8 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		for (const watts of [300, 50, 400, 120, 350]) await flow(180, watts);
		await eventually(async () => (await forecast()).state === "ready", "a forecast is made");
		({ instance_id } = await admin.call("instance.create", { model_id: model.model_id }));
		await on("dev_gpu", 0);
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("it gets less time, moves away and goes back, and its stream is that of one that stays", async () => {
		const answer = ask();
		await say(20);
		await flow(200, 100);
		limit = 50;
		await flow(60, 240); // its target is 45 °C now, which 200 W hold
		const left = await on("dev_slower", 1);
		assert.match(left.state_reason, /^it has left GPU One, which got too hot for its work; it goes back once/);
		await say(20);
		const [away] = await moves();
		assert.equal(away.target, instance_id);
		assert.match(away.detail.reason, /^it leaves GPU One, which gets too hot for its work, for GPU Two$/);
		limit = slowdown;
		await flow(500, 50);
		assert.equal((await forecast()).acts, "nothing");
		await flow(60, 50);
		assert.equal((await instance()).stages[0].device_id, "dev_slower", "it has just moved");
		await flow(120, 50);
		const back = await on("dev_gpu", 2);
		assert.equal(back.state_reason, null);
		const last = await say(20);
		last.finish(last.request, "stop");
		assert.equal((await (await answer).json()).choices[0].text, words);
		assert.match((await moves())[0].detail.reason, /^GPU One, which it had left for its heat, is cool again: it goes to GPU One$/);
		assert.equal((await moves()).length, 2);
		const steps = (await admin.call("audit.list", { action: "device.heat" })).entries.map((one) => one.detail.step).reverse();
		assert.deepEqual([steps[0], steps.at(-1)], ["limited", "free"]);
		await admin.call("instance.delete", { instance_id });
	});

	// Less time, a smaller format, another device; the device, the format of before: one stream lives through all of it.
	test("where it may it takes a smaller format first, then moves, and comes back from both; the answer tells where", async () => {
		({ instance_id } = await admin.call("instance.create", { model_id: model.model_id, least_format: "Q8_0" }));
		const placed = await on("dev_gpu", 0);
		assert.deepEqual([placed.format, placed.least_format, placed.stepped_from], ["F32", "Q8_0", null]);
		const answer = ask(), before = (await moves()).length;
		await say(20);
		await flow(200, 100);
		limit = 50;
		await flow(60, 240);
		const stepped = await on("dev_gpu", 1), load = () => node.worker().calls.find((call) => call.method === "instance.load").params;
		assert.deepEqual([stepped.format, stepped.stepped_from, load().format], ["Q8_0", "F32", "Q8_0"]);
		assert.match(stepped.state_reason, /^its weights are held in Q8_0, since a device got too hot for its work; they go back to F32 once/);
		await say(10);
		await flow(570, 240);
		assert.equal((await instance()).moves, 1, "two changes are ten minutes apart, and Q8_0 is the least");
		await flow(60, 240);
		const left = await on("dev_slower", 2);
		assert.deepEqual([left.format, left.stepped_from, load().format], ["Q8_0", "F32", "Q8_0"]);
		assert.match(left.state_reason, /^it has left GPU One.*; its weights are held in Q8_0/);
		await say(10);
		limit = slowdown;
		await flow(700, 50);
		await on("dev_gpu", 3);
		await say(10);
		await flow(630, 50);
		const back = await on("dev_gpu", 4);
		assert.deepEqual([back.format, back.stepped_from, load().format, back.state_reason], ["F32", null, undefined, null]);
		const last = await say(10);
		last.finish(last.request, "stop");
		const [choice] = (await (await answer).json()).choices;
		assert.equal(choice.text, words);
		assert.deepEqual(choice.format_changes, [{ position: 20, from: "F32", format: "Q8_0" }, { position: 50, from: "Q8_0", format: "F32" }]);
		assert.deepEqual((await moves()).slice(0, -before).map((one) => one.detail.reason).reverse(), [
			"GPU One gets too hot for its work: its weights go from F32 to Q8_0",
			"it leaves GPU One, which gets too hot for its work, for GPU Two",
			"GPU One, which it had left for its heat, is cool again: it goes to GPU One",
			"its devices are cool again: its weights go back from Q8_0 to F32"]);
		await admin.call("instance.delete", { instance_id });
	});

	test("a server that starts anew knows what it left, and its format of before", async () => {
		({ instance_id } = await admin.call("instance.create", { model_id: model.model_id, least_format: "Q4_0" }));
		await on("dev_gpu", 0);
		const answer = ask();
		await say(20);
		await flow(200, 100);
		limit = 50;
		await flow(60, 240);
		assert.equal((await on("dev_gpu", 1)).format, "Q8_0");
		await say(20);
		await flow(630, 240);
		assert.equal((await on("dev_gpu", 2)).format, "Q4_0");
		await say(10);
		await flow(630, 240);
		assert.deepEqual([(await on("dev_slower", 3)).stepped_from], ["F32"]);
		const last = await say(10);
		last.finish(last.request, "stop");
		const [{ format_changes }] = (await (await answer).json()).choices;
		assert.deepEqual(format_changes, [{ position: 20, from: "F32", format: "Q8_0" }, { position: 40, from: "Q8_0", format: "Q4_0" }]);
		const was = await instance();
		node.socket.close();
		await server.finish();
		server = await startServer({ data, env: { EXOGPU_THERMAL_CLOCK: "readings" } });
		admin = await Client.login(server);
		const paused = await instance();
		assert.deepEqual([paused.state, paused.format, paused.stepped_from, paused.least_format], ["paused", "Q4_0", "F32", "Q4_0"]);
		node = await WorkerNode.start(server, { Worker: Told, devices: [slower] }); // the card comes later
		assert.equal((await on("dev_slower", 3)).state_reason, was.state_reason);
		limit = slowdown;
		await node.devices([card, slower]);
		await flow(30, 50);
		await flow(630, 50);
		await on("dev_gpu", 4);
		await flow(630, 50);
		assert.deepEqual([(await on("dev_gpu", 5)).format, (await instance()).stepped_from], ["F32", null]);
	});
});
