// What the holder of a token for models sees (chat.models, chat.status): the models, and whether they answer. Every
// method and every topic is tried, and nothing that comes names a device, a machine, an address or another token.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { api } from "./contract.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, run, slow, startServer, temporary } from "./server.mjs";
import { WorkerNode, devices } from "./workers.mjs";

describe("a token that may only use models", { timeout: 300000 * slow }, () => {
	let server, admin, node, guest, folder, model, token;
	const heard = []; // everything that came to it, as text
	const all = devices.map((one) => one.device_id).sort((a, b) => (a === "dev_gpu") - (b === "dev_gpu"));

	const listen = (client) => client.socket.on("message", (data) => heard.push(data.toString("utf8")));
	const told = (fits) => guest.until(() => guest.notices.findLast((one) => one.method === "chat.status" && fits(one.params.models[0])), "chat.status")
		.then(({ params }) => params.models[0]);
	// The model's own device last, so that there is no other place for it.
	const drain = async (drain) => {
		for (const device_id of all) await admin.call("device.drain", { device_id, drain });
	};
	const load = async () => {
		const { instance_id } = await admin.call("instance.create", { model_id: model.model_id });
		return instance_id;
	};

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		folder = temporary();
		const path = join(folder, "words.gguf");
		writeFileSync(path, modelFile({ megabytes: 0.8 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		({ token } = await admin.call("token.create", { name: "guest", scopes: ["infer"] }));
		guest = await Client.open(server);
		listen(guest);
		await guest.call("auth.login", { token });
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("may log in, ask for models and its usage, keep conversations, and subscribe to no topic", async () => {
		const may = [];
		for (const { name } of api.methods) {
			if (name === "auth.login" || name === "auth.redeem") continue; // whoever has a token, or a code
			const error = await guest.call(name, name === "usage.list" ? { by: "model" } : {}).then(() => null, (refused) => refused);
			if (error?.reason === "forbidden") continue;
			if (error) assert.equal(error.reason, "invalid_params", `${name}: ${error.message}`); // it would do it, had it been told what
			may.push(name);
		}
		assert.deepEqual(may, ["server.info", "usage.list", "chat.models", "conversation.list", "conversation.read", "conversation.write", "conversation.delete"]);
		for (const topic of Object.keys(api["x-events"].topics)) await guest.refused("events.subscribe", { topics: [topic] }, "forbidden");
		await guest.refused("events.subscribe", { topics: [] }, "forbidden");
		assert.equal(guest.events.length, 0);
	});

	test("is told what becomes of a model: loaded, about to leave, paused, ready again, unloaded", async () => {
		const { models: [first, ...more], load_on_demand } = await guest.call("chat.models", { watch: true });
		assert.deepEqual([load_on_demand, first, more], [false, { name: "words", task: "text", state: "not_loaded", since: null, until: null, chat: null, progress: null,
			sampling: null }, []]);
		const instance_id = await load();
		const ready = await told((one) => one.state === "ready");
		assert.ok(Date.parse(ready.since) > 0 && ready.until === null && ready.chat === true && ready.sampling.temperature.value >= 0, JSON.stringify(ready));
		const { stdout, stderr } = await run(["model", "list", "--url", server.url.origin], { EXOGPU_TOKEN: token });
		assert.match(stdout, /NAME +STATE +KIND +SINCE\nwords +ready +text /, stderr);
		await drain(true);
		assert.equal((await told((one) => one.state === "leaving")).until, null);
		node.socket.send(JSON.stringify({ jsonrpc: "2.0", method: "tenant.ended",
			params: { worker_id: node.worker().worker_id, message: "it was killed by SIGKILL" } }));
		const paused = await told((one) => one.state === "paused" || one.state === "moving");
		assert.ok(Date.parse(paused.until) > Date.parse(paused.since), JSON.stringify(paused));
		await drain(false);
		await told((one) => one.state === "ready" && one.since !== ready.since);
		await admin.call("instance.delete", { instance_id });
		await told((one) => one.state === "not_loaded");
	});

	test("is told nothing twice, and nothing once it watches no more or another has logged in", async () => {
		const notices = guest.notices.filter((one) => one.method === "chat.status").map((one) => JSON.stringify(one.params));
		notices.forEach((one, i) => assert.notEqual(one, notices[i - 1]));
		const other = await Client.open(server), third = await Client.login(server, token);
		await other.call("auth.login", { token });
		for (const client of [guest, other, third]) await client.call("chat.models", { watch: true });
		await guest.call("chat.models", { watch: false });
		const observer = await admin.call("token.create", { name: "observer", scopes: ["observe"] });
		await other.call("auth.login", { token: observer.token });
		const before = guest.notices.length;
		const instance_id = await load();
		await third.until(() => third.notices.some((one) => one.params.models[0].state === "ready"), "one that watches is told");
		assert.deepEqual([guest.notices.length, other.notices.length], [before, 0]);
		await admin.call("instance.delete", { instance_id });
		await third.until(() => third.notices.at(-1).params.models[0].state === "not_loaded", "it is gone");
		await other.close();
		await third.close();
	});

	test("a request that waits for a model that is then deleted is refused without the reason; an observer's with it", async () => {
		const observer = await admin.call("token.create", { name: "sees why", scopes: ["observe", "infer"] });
		const ask = async (bearer) => {
			const answer = await fetch(new URL("/v1/completions", server.url).href, { method: "POST", headers: { authorization: `Bearer ${bearer}` },
				body: JSON.stringify({ model: "words", prompt: "one two", max_tokens: 9 }) });
			return { status: answer.status, ...(await answer.json()).error };
		};
		const instance_id = await load();
		await guest.call("chat.models", { watch: true });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "it runs");
		node.worker().manual = true;
		const asked = [ask(token), ask(observer.token)];
		await eventually(() => node.worker().calls.filter((one) => one.method === "generate.start").length === 2, "both wait");
		await admin.call("instance.delete", { instance_id });
		const [guests, observers] = await Promise.all(asked);
		assert.deepEqual([guests.status, observers.status].map((status) => status >= 400), [true, true]);
		assert.match(guests.message, /^the model words cannot answer: an admin can see why/);
		assert.doesNotMatch(observers.message, /an admin can see why/);
		await guest.call("chat.models", { watch: false });
	});

	test("a token that ends hears nothing more", async () => {
		const made = await admin.call("token.create", { name: "short", scopes: ["infer"] });
		const client = await Client.login(server, made.token);
		await client.call("chat.models", { watch: true });
		await admin.call("token.revoke", { token_id: made.token_id });
		assert.equal((await client.closed).code, 4410);
	});

	test("and nothing of it names a device, a machine, an address or another token", async () => {
		const { nodes, devices: known } = await admin.call("cluster.snapshot");
		const { tokens } = await admin.call("token.list");
		const ids = [...nodes.flatMap((one) => [one.node_id, one.name, one.host_name]), ...known.flatMap((one) => [one.device_id, one.name, one.hardware_key]),
			...tokens.filter((one) => one.name !== "guest").flatMap((one) => [one.token_id, one.name]), model.model_id, folder];
		const names = ids.filter((one) => one && one.length > 2 && one !== hostname());
		assert.ok(names.length >= 15, names.join());
		const own = heard.filter((one) => !one.includes("schema_sha256")); // server.info, which is told before a login as well
		assert.ok(own.length > 50);
		for (const name of names)
			for (const text of own) assert.ok(!text.includes(`"${name}"`) && !text.includes(` ${name} `), `${name} is in ${text.slice(0, 400)}`);
	});
});
