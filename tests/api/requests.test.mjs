// The damage that one request or one token can do to others: a crashed worker, a full queue, and cached prefixes.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, patience, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

describe("requests of many", () => {
	let server, admin, node;

	const make = (name, more = {}) => admin.call("token.create", { name, scopes: ["infer"], expires_in_s: 3600, ...more });
	const ask = (content, token) => server.http("/v1/chat/completions", { method: "POST",
		headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
		body: JSON.stringify({ model: "words", messages: [{ role: "user", content }] }) });
	const has = (worker) => [...worker.requests.values()].map(({ params }) => params.prompt.messages.at(-1).text);

	before(async () => {
		// Of 400 connections at once some say nothing for longer than 5 s where the machine is busy.
		server = await startServer({ env: { EXOGPU_TEST_ARRIVAL_MS: "60000" } });
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile());
		await admin.call("model.add", { source: path });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await admin.call("instance.create", { model_id: model.model_id });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
	});
	after(async () => {
		for (const worker of node.workers) assert.deepEqual(worker.faults, [], "what the server asks of a worker keeps to the contract");
		node.socket.close();
		await server.finish();
		assertContractKept();
	});

	test("of a line that one token fills there is something left for another", async () => {
		const { token } = await make("much"), { token: other } = await make("little");
		const worker = node.worker();
		worker.manual = true;
		let taken = 0;
		const many = Array.from({ length: 400 }, () => ask("x", token).then((one) => { if (one.status === 200) taken++; return one; }));
		await eventually(() => worker.requests.size >= 288, "the line is as full as one token may make it", 4 * patience);
		const some = Array.from({ length: 20 }, () => ask("y", other));
		await eventually(() => has(worker).filter((one) => one === "y").length === 20, "the other's are taken", 4 * patience);
		assert.ok(has(worker).filter((one) => one === "x").length <= 288);
		const finish = setInterval(() => { for (const request of [...worker.requests.keys()]) worker.finish(request, "stop"); }, 10);
		const answers = await Promise.all([...many, ...some]);
		clearInterval(finish);
		worker.manual = false;
		assert.deepEqual([...new Set(answers.slice(400).map((one) => one.status))], [200]);
		const refused = answers.filter((one) => one.status === 429);
		assert.ok(refused.length > 0 && taken + refused.length === 420 - 20, `${taken} were taken, ${refused.length} refused`);
		assert.match(refused[0].json().error.message, /288 requests of this token wait/);
	});

	test("what a token left is forgotten when it is revoked, and when it expires", async () => {
		const forgotten = () => node.worker().calls.filter((one) => one.method === "generate.forget").map((one) => one.params.owner);
		const owner = () => node.worker().calls.filter((one) => one.method === "generate.start").at(-1).params.owner;
		const made = await make("short");
		assert.equal((await ask("a", made.token)).status, 200);
		const first = owner(), expires = await make("shorter", { expires_in_s: 10 });
		assert.equal((await ask("b", expires.token)).status, 200);
		const second = owner();
		assert.deepEqual([forgotten().includes(first), first === second], [false, false]);
		await admin.call("token.revoke", { token_id: made.token_id });
		await eventually(() => forgotten().includes(first), "what it left is forgotten");
		await eventually(() => forgotten().includes(second), "what the other left is, too", 4 * patience);
		assert.deepEqual(forgotten(), [first, second], "once");
	});

	test("a request that its worker dies of twice ends, and the others go on", async () => {
		const { token } = await make("deadly");
		node.worker().manual = true;
		const answers = [];
		for (const [i, content] of ["good one", "deadly", "good two", "good three"].entries()) {
			answers.push(ask(content, token));
			await eventually(() => node.worker().requests.size > i, "it is there");
		}
		const first = node.worker();
		const [{ params }] = first.requests.values();
		first.say(params.request, "good"); // a token of it has come: it is nobody's death
		const run = ModelWorker.prototype.babble;
		let deaths = 0;
		ModelWorker.prototype.babble = function babble(asked) {
			if (asked.prompt.messages.at(-1).text !== "deadly") return run.call(this, asked);
			deaths++;
			this.kill();
		};
		await eventually(async () => (await admin.call("instance.list")).instances[0].state === "running", "it is ready");
		first.kill();
		const [one, deadly, two, three] = await Promise.all(answers);
		ModelWorker.prototype.babble = run;
		assert.deepEqual([one, two, three].map((answer) => [answer.status, answer.json().choices?.[0].message.content]),
			[[200, "good one"], [200, "good two"], [200, "good three"]]);
		assert.deepEqual([deadly.status, deadly.json().error.code], [503, "device_lost"]);
		assert.match(deadly.json().error.message, /lost 2 times/);
		assert.equal(deaths, 1);
		await eventually(async () => (await admin.call("instance.list")).instances[0].state === "running", "it is told once that is on disk");
	});
});
