// Models that are loaded because somebody asks for them: who may, that one is loaded for all who ask, and what is told
// where it cannot be.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, patience, startServer, temporary, within } from "./server.mjs";
import { WorkerNode, cpu, small } from "./workers.mjs";

async function ask(server, path, body, token) {
	const answer = await within(fetch(`${server.url.origin}${path}`, { method: "POST", body: JSON.stringify(body),
		headers: { authorization: `Bearer ${token}`, "content-type": "application/json" } }), "an answer", 12 * patience), text = await answer.text();
	return { status: answer.status, headers: Object.fromEntries(answer.headers), text, json: () => JSON.parse(text) };
}

async function start(params, names, devices) {
	const server = await startServer(params), admin = await Client.login(server);
	const node = await WorkerNode.start(server, { Worker: ModelWorker, ...(devices && { devices }) });
	const folder = temporary();
	for (const [i, name] of names.entries()) {
		writeFileSync(join(folder, `${name}.gguf`), modelFile({ seed: i + 1 }));
		await admin.call("model.add", { source: join(folder, `${name}.gguf`) });
	}
	await eventually(async () => {
		const { models } = await admin.call("model.list");
		return models.length === names.length && models.every((one) => one.state === "ready");
	}, "the models are ready", 4 * patience);
	const make = async (scopes) => (await admin.call("token.create", { name: scopes.join("-"), scopes, expires_in_s: 3600 }));
	return { server, admin, node, made: { admin: await make(["admin"]), infer: await make(["infer"]) } };
}

describe("a model that is asked for", () => {
	let server, admin, node, made;

	const post = (path, body, { token }) => ask(server, path, body, token);
	const chat = (model, content, by = made.admin, more = {}) => post("/v1/chat/completions", { model, messages: [{ role: "user", content }], ...more }, by);
	const said = (answer) => answer.json().choices?.[0].message.content ?? answer.json().error.message;
	const instances = async (name) => (await admin.call("instance.list")).instances.filter((one) => !name || one.model_name === name);
	const created = async () => (await admin.call("audit.list", { action: "instance.create", limit: 50 })).entries;
	const unload = async () => {
		for (const { instance_id } of await instances()) await admin.call("instance.delete", { instance_id });
	};
	// What the node is asked to open waits until `let` is called.
	const hold = () => {
		const held = [];
		node.open = (message) => held.push(message);
		return { held, let: () => {
			node.open = undefined;
			held.splice(0).forEach((message) => node.receiveRequest(message));
		} };
	};

	before(async () => {
		({ server, admin, node, made } = await start({}, ["words", "other"]));
	});
	afterEach(async () => {
		node.open = undefined;
		await unload();
	});
	after(async () => {
		for (const worker of node.workers) assert.deepEqual(worker.faults, [], "what the server asks of a worker keeps to the contract");
		node.socket.close();
		await server.finish();
		assertContractKept();
	});

	test("the first question loads it and is answered, and it is on record who did", async () => {
		assert.deepEqual(await instances(), []);
		assert.equal(said(await chat("words", "one two")), "one two");
		const [instance, ...others] = await instances();
		assert.deepEqual([instance.state, instance.model_name, others], ["running", "words", []]);
		const [entry] = await created();
		assert.deepEqual([entry.actor, entry.target, entry.outcome, entry.detail.asked_by],
			[`token:${made.admin.token_id}`, instance.model_id, "ok", "infer.chat"]);
		assert.equal(said(await chat("words", "three", made.infer)), "three", "whoever may ask has it from then on");
		assert.equal((await instances()).length, 1);
	});
	test("many at once load one, and each has its answer: whole, as it comes, and embeddings", async () => {
		const before = (await created()).length, { held, let: go } = hold();
		const many = Array.from({ length: 5 }, (_, i) => chat("words", `number ${i}`));
		const stream = chat("words", "as it comes", made.admin, { stream: true });
		const embeddings = post("/v1/embeddings", { model: "words", input: ["one", "two"] }, made.admin);
		await eventually(() => held.length, "its worker is asked for", 4 * patience);
		const late = chat("words", "late");
		const refused = await chat("words", "x", made.infer);
		assert.deepEqual([refused.status, refused.headers["retry-after"] > 0], [503, true]);
		assert.match(refused.json().error.message, /is being loaded/);
		assert.equal(held.length, 1);
		go();
		assert.deepEqual((await Promise.all(many)).map(said), many.map((_, i) => `number ${i}`));
		assert.match((await stream).text, /"content":"as".*\[DONE\]/s);
		assert.equal((await embeddings).json().data.length, 2);
		assert.equal(said(await late), "late");
		assert.equal((await instances()).length, 1);
		assert.equal((await created()).length, before + 1);
	});
	test("two models at once are two instances", async () => {
		const { held, let: go } = hold();
		const both = [chat("words", "a"), chat("other", "b")];
		await eventually(() => held.length === 2, "both are asked for", 4 * patience);
		go();
		assert.deepEqual((await Promise.all(both)).map(said), ["a", "b"]);
		assert.deepEqual((await instances()).map((one) => one.model_name).sort(), ["other", "words"]);
	});
	test("who may not load is told who may, and nothing is loaded", async () => {
		const { status, headers, json } = await chat("words", "x", made.infer);
		assert.deepEqual([status, json().error.code, headers["retry-after"] > 0], [503, "unavailable", true]);
		assert.match(json().error.message, /is not loaded; .*exogpu place words; .*--load-on-demand/);
		assert.deepEqual(await instances(), []);
	});
	test("who goes or is revoked while it is loaded is gone, and it is loaded all the same", async () => {
		const short = await admin.call("token.create", { name: "short", scopes: ["admin"], expires_in_s: 3600 });
		for (const how of ["revoked", "goes"]) {
			const { held, let: go } = hold(), control = new AbortController();
			const { token, token_id } = how === "revoked" ? short : made.admin;
			const asked = fetch(`${server.url}v1/chat/completions`, { method: "POST", signal: control.signal,
				headers: { authorization: `Bearer ${token}` }, body: JSON.stringify({ model: "words", messages: [{ role: "user", content: how }] }) });
			await eventually(() => held.length, "its worker is asked for", 4 * patience);
			const [{ instance_id }] = await instances();
			if (how === "revoked") {
				await admin.call("token.revoke", { token_id });
				assert.equal((await asked).status, 401);
			} else {
				control.abort();
				await assert.rejects(asked);
			}
			await eventually(async () => (await admin.call("audit.list", { action: "infer.chat", limit: 100 })).entries
				.some((one) => one.actor === `token:${token_id}` && [instance_id, ""].includes(one.detail.instance_id)), "its end is on record, also if it was in no instance's line yet", 4 * patience);
			go();
			await eventually(async () => (await instances())[0]?.state === "running", "it is ready", 4 * patience);
			assert.equal(said(await chat("words", "here")), "here");
			assert.deepEqual(node.worker().calls.filter((one) => one.method === "generate.start").map((one) => one.params.prompt.messages[0].text),
				["here"], "it was never sent");
			await unload();
		}
	});
	test("a load that fails ends the questions that wait with the reason; the next one tries again", async () => {
		node.open = (message) => node.fail(message, -32053, "unavailable", "this node has no worker to give");
		const both = await Promise.all([chat("words", "a"), chat("words", "b", made.admin, { stream: true })]);
		for (const { status, json } of both) {
			assert.deepEqual([status, json().error.code], [503, "unavailable"]);
			assert.match(json().error.message, /the model words could not be loaded: .*no worker to give/);
		}
		node.open = undefined;
		assert.equal(said(await chat("words", "again")), "again");
		const { recent } = await admin.call("cluster.snapshot");
		assert.deepEqual(recent.filter((one) => one.kind.startsWith("model.")).slice(0, 2).map((one) => one.kind), ["model.loaded", "model.failed"],
			"what had failed was not loaded, and is not told to be unloaded");
	});
	test("what an admin placed in a way of its own, and has failed, is not replaced by what a question would load", async () => {
		const { models } = await admin.call("model.list"), { model_id } = models.find((one) => one.name === "words");
		node.open = (message) => node.fail(message, -32053, "unavailable", "this node has no worker to give");
		const { instance_id } = await admin.call("instance.create", { model_id, context_tokens: 64 });
		await eventually(async () => (await instances())[0]?.state === "failed", "it has failed", 4 * patience);
		node.open = undefined;
		const { status, json } = await chat("words", "x");
		assert.deepEqual([status, json().error.code], [503, "unavailable"]);
		assert.match(json().error.message, /could not be loaded: .*no worker to give; .*exogpu instances, exogpu place words/);
		assert.deepEqual((await instances()).map((one) => [one.instance_id, one.state]), [[instance_id, "failed"]]);
		await unload();
		assert.equal(said(await chat("words", "y")), "y", "once it is gone questions load the model");
	});
	test("one that an admin has begun a moment before is the one that answers, and no other is loaded", async () => {
		const { models } = await admin.call("model.list"), { model_id } = models.find((one) => one.name === "words");
		for (const round of [1, 2, 3]) {
			const begun = admin.call("instance.create", { model_id });
			await admin.call("model.list"); // the server has read the call before: what it begins is in no list yet
			const answers = await Promise.all([chat("words", "a"), chat("words", "b")]), { instance_id } = await begun;
			assert.deepEqual(answers.map(said), ["a", "b"], `round ${round}`);
			assert.deepEqual((await instances()).map((one) => one.instance_id), [instance_id]);
			await unload();
		}
	});
	test("an instance that an admin has begun is waited for, too, and one that is stopped ends who waits", async () => {
		const { held, let: go } = hold(), { models } = await admin.call("model.list");
		const { instance_id } = await admin.call("instance.create", { model_id: models.find((one) => one.name === "words").model_id });
		await eventually(() => held.length, "its worker is asked for", 4 * patience);
		const waiting = chat("words", "a"), entries = (await created()).length;
		go();
		assert.equal(said(await waiting), "a");
		assert.equal((await created()).length, entries, "no other was begun");
		assert.equal((await instances())[0].instance_id, instance_id);
		await unload();
		const again = hold(), stopped = chat("words", "b");
		await eventually(() => again.held.length, "its worker is asked for", 4 * patience);
		await unload();
		const { status, json } = await within(stopped, "it is answered", 4 * patience);
		assert.equal(status, 503);
		assert.match(json().error.message, /stopped/);
	});
});

describe("serve --load-on-demand", () => {
	let server, admin, node, made;

	const chat = (model, content, by = made.infer) => ask(server, "/v1/chat/completions", { model, messages: [{ role: "user", content }] }, by.token);

	before(async () => {
		({ server, admin, node, made } = await start({ args: ["--load-on-demand"] }, ["words"]));
	});
	after(async () => {
		node.socket.close();
		await server.finish();
		assertContractKept();
	});

	test("any token that may ask loads, under its name", async () => {
		const answers = await Promise.all([chat("words", "one two"), chat("words", "three")]);
		assert.deepEqual(answers.map((one) => one.json().choices?.[0].message.content), ["one two", "three"]);
		assert.equal((await admin.call("instance.list")).instances.length, 1);
		const { entries: [entry] } = await admin.call("audit.list", { action: "instance.create", limit: 5 });
		assert.equal(entry.actor, `token:${made.infer.token_id}`);
		assert.equal((await chat("nothing", "x")).status, 404);
	});
	test("a load that has just failed is not begun by every question: an admin's may", async () => {
		for (const { instance_id } of (await admin.call("instance.list")).instances) await admin.call("instance.delete", { instance_id });
		let opened = 0;
		node.open = (message) => {
			opened++;
			node.fail(message, -32053, "unavailable", "this node has no worker to give");
		};
		assert.match((await chat("words", "a")).json().error.message, /cannot answer: an admin can see why/); // which may name a device
		const tried = opened, { status, json } = await chat("words", "b");
		assert.deepEqual([status, tried > 0, opened], [503, true, tried]);
		assert.match(json().error.message, /could not be loaded: an admin can see why; requests load it again after 60 s; .*exogpu place words/);
		node.open = undefined;
		assert.equal((await chat("words", "c", made.admin)).json().choices?.[0].message.content, "c");
		assert.equal((await chat("words", "d")).json().choices?.[0].message.content, "d");
	});
});

describe("a model that fits nowhere", () => {
	let server, admin, node, made;

	before(async () => {
		const tiny = [{ ...cpu, memory_bytes: 1 << 17 }, { ...small, memory_bytes: 1 << 17 }];
		({ server, admin, node, made } = await start({}, ["words"], tiny));
	});
	after(async () => {
		node.socket.close();
		await server.finish();
		assertContractKept();
	});

	test("the question is told why, and what could be done", async () => {
		const { status, json } = await ask(server, "/v1/completions", { model: "words", prompt: "x" }, made.admin.token);
		assert.deepEqual([status, json().error.code], [503, "unavailable"], json().error.message);
		assert.match(json().error.message, /could not be loaded: words fits nowhere: .*; free memory/);
		assert.deepEqual((await admin.call("instance.list")).instances, []);
		const outcomes = async () => (await admin.call("audit.list", { action: "instance.create", limit: 5 })).entries.map((one) => one.outcome).sort();
		await eventually(async () => String(await outcomes()) === "ok,out_of_memory", "that it was asked for is on record, and what came of it", 6 * patience);
	});
});
