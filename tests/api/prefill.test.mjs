// A prompt that one device computes for another, with real processes: two nodes whose steps are paced (EXOGPU_TEST_PACE),
// the one quick with prompts, the other with single tokens. The answer is that of one device alone.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { smallDisk } from "./disk.mjs";
import { modelFile } from "./gguf.mjs";
import { Proxy, RemoteNode } from "./remote.mjs";
import { holding } from "./restarted.mjs";
import { eventually, slow, startServer, temporary, within } from "./server.mjs";

const LONG = 60000 * slow;
// Rows and milliseconds of a step: a prompt of 512 takes 0.4 s on the one and 6 s on the other, a token 300 and 10 ms. On a
// busy machine the differences are smaller.
const PROMPTS = "1:300,64:320,512:400", TOKENS = "1:10,64:1000,512:6000";
const words = (count, first = "a") => Array.from({ length: count }, (_, i) => (i ? "abcdefghij"[(i * 7 + (i >> 3)) % 10] : first)).join(" ");

describe("a prompt computed elsewhere", { timeout: 600000 * slow }, () => {
	let disk, server, admin, proxies, quick, steady, model;

	const running = (id) => eventually(async () => {
		const { instances } = await admin.call("instance.list");
		const one = instances.find((each) => each.instance_id === id);
		if (one?.state === "failed") throw new Error(one.state_reason);
		return one?.state === "running" && one;
	}, "the model runs", LONG);
	const place = async (node) => {
		const pins = [{ device_id: node.device.device_id, first_layer: 0, layer_count: 0 }];
		const created = await eventually(() => // a node that was started again shows for a moment what it said before
			admin.call("instance.create", { model_id: model.model_id, context_tokens: 2048, sequences: 4, pins }).catch((error) => {
				if (error.reason !== "unavailable") throw error;
			}), "it is placed", LONG);
		return running(created.instance_id);
	};
	const ask = async (prompt, more = {}, { token = server.token, signal } = {}) => {
		const response = await fetch(new URL("/v1/completions", server.url).href, { method: "POST", headers: { authorization: `Bearer ${token}` }, signal,
			body: JSON.stringify({ model: "words", prompt, max_tokens: 12, temperature: 0, ...more }) });
		const text = await response.text();
		assert.equal(response.status, 200, text);
		const { choices: [choice], usage } = JSON.parse(text);
		return { ...choice, usage };
	};

	before(async () => {
		disk = smallDisk(32768);
		server = await startServer({ listen: "0.0.0.0:0", localNode: true, data: disk?.data, env: { EXOGPU_TEST_ASK_MS: "120000" }, args: ["--log-level", "debug"] });
		process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
		admin = await Client.login(server);
		proxies = await Promise.all([1, 2].map(() => Proxy.start(server.port)));
		quick = new RemoteNode({ server, admin, proxy: proxies[0] }, { name: "quick", env: { EXOGPU_TEST_PACE: PROMPTS } });
		steady = new RemoteNode({ server, admin, proxy: proxies[1] }, { name: "steady", env: { EXOGPU_TEST_PACE: TOKENS } });
		for (const node of [quick, steady]) await node.start((await admin.call("node.ticket", {})).ticket);
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile({ architecture: "llama", megabytes: 2, context: 4096 }));
		await admin.call("model.add", { source: path });
		model = await eventually(async () => {
			const [one] = (await admin.call("model.list")).models;
			return one?.state === "ready" && one;
		}, "the model is ready");
		await eventually(async () => (await admin.call("cluster.snapshot")).links.some(({ from_node_id, to_node_id, throughput_bytes_per_s }) =>
			from_node_id === quick.node_id && to_node_id === steady.node_id && throughput_bytes_per_s > 0), "their link is measured", LONG);
	});
	after(async () => {
		for (const node of [quick, steady]) if (node?.child && node.child.exitCode === null && node.child.signalCode === null) await node.finish();
		proxies?.forEach((one) => one.close());
		await server?.finish();
		assertContractKept();
	});

	const long = words(900);
	let wanted;

	test("the answer is the one of the device alone, and tells who did what", async () => {
		const alone = await place(steady);
		wanted = await ask(long);
		assert.equal(wanted.prefill, undefined);
		await admin.call("instance.delete", { instance_id: alone.instance_id });
		await place(quick); // the older one: but single tokens are quicker on the other
		for (const first of ["y", "z"]) await ask(words(900, first)); // its speed, if the measurement at the start was disturbed
		await place(steady);
		const { text, prefill, usage } = await ask(long);
		assert.equal(text, wanted.text);
		assert.ok(prefill, server.output.stderr.slice(-3000));
		assert.deepEqual([prefill.prompt_device_id, prefill.answer_device_id], [quick.device.device_id, steady.device.device_id]);
		assert.equal(prefill.tokens, Math.floor((usage.prompt_tokens - 1) / 32) * 32);
		assert.ok(prefill.bytes > prefill.tokens * 100 && prefill.instead_seconds > prefill.predicted_seconds, JSON.stringify(prefill));
		assert.equal(usage.prompt_tokens_details?.cached_tokens ?? 0, 0); // they were computed for this request
		const given = await eventually(async () => (await admin.call("audit.list", { limit: 20 })).entries
			.find(({ action, detail }) => action === "infer.completions" && detail.given_tokens), "who gave it is in the audit log");
		assert.equal(given.detail.given_tokens, prefill.tokens);
	});

	test("what the answering device has, or hardly lacks, is not asked for elsewhere", async () => {
		const again = await ask(long);
		assert.deepEqual([again.text, again.prefill], [wanted.text, undefined]);
		assert.ok(again.usage.prompt_tokens_details.cached_tokens >= 896 - 32, JSON.stringify(again.usage));
		assert.equal((await ask(words(20, "b"))).prefill, undefined);
	});

	test("of a conversation that goes on only the new pages travel", async () => {
		const all = words(900, "g"), first = await ask(words(300, "g"));
		assert.equal(first.prefill?.tokens, 288);
		const { prefill, usage } = await ask(all);
		assert.equal(prefill?.tokens, Math.floor((usage.prompt_tokens - 1) / 32) * 32 - 288);
		assert.equal(usage.prompt_tokens_details.cached_tokens, 288);
		const page = first.prefill.bytes / (first.prefill.tokens / 32); // nearly: with heads and tokens
		assert.ok(prefill.bytes < (prefill.tokens / 32 + 1) * page, JSON.stringify([prefill, first.prefill]));
	});

	test("several choices of one prompt: it moves once", async () => {
		const prompt = words(900, "h"), from = server.output.stderr.length;
		const response = await fetch(new URL("/v1/completions", server.url).href, { method: "POST", headers: { authorization: `Bearer ${server.token}` },
			body: JSON.stringify({ model: "words", prompt, max_tokens: 12, temperature: 0, n: 3 }) });
		const { choices, usage } = await response.json();
		assert.equal(new Set(choices.map(({ text }) => text)).size, 1);
		assert.deepEqual(choices.map(({ prefill }) => Boolean(prefill)), [true, false, false]);
		assert.equal(usage.prompt_tokens_details?.cached_tokens ?? 0, 0);
		assert.equal(server.output.stderr.slice(from).match(/prompt on .*; answer on /g).length, 1);
		assert.deepEqual([choices[0].text, undefined], (({ text, prefill }) => [text, prefill])(await ask(prompt)));
	});

	test("who may use models and nothing else is told no device", async () => {
		const { token } = await admin.call("token.create", { name: "app", scopes: ["infer"] });
		const answer = await ask(words(900, "c"), {}, { token });
		assert.equal(answer.prefill, undefined);
		assert.match(server.output.stderr, /prompt on .*; answer on /);
	});

	// Until a prompt is under way at the device that computes it.
	const moving = (from) => eventually(() => /prompt on .*; answer on /.test(server.output.stderr.slice(from)), "the prompt is computed elsewhere", LONG);
	const alone = async (prompt) => {
		const { instances } = await admin.call("instance.list");
		for (const { instance_id } of instances) await admin.call("instance.delete", { instance_id });
		await place(quick);
		return (await ask(prompt)).text;
	};

	const idle = () => eventually(async () => (await admin.call("instance.list")).instances
		.every(({ state, running, waiting, pages_used }) => state === "running" && !running && !waiting && !pages_used), "nothing goes on, and no page is held", LONG);

	// Until prompts are computed elsewhere again, each of these a new one: a link that was lost counts once it is measured. A
	// device that a busy machine has disturbed while its speed was measured is measured when it loads the model anew.
	let asked = 0;
	const helped = async () => {
		for (let turn = 0;; turn++) {
			const again = eventually(async () => (await ask(words(150, "n ".repeat(++asked)))).prefill, "prompts are computed elsewhere again", LONG / 4);
			if (await again.catch((error) => { if (turn === 3) throw error; })) return;
			const { instances } = await admin.call("instance.list");
			for (const { instance_id, stages } of instances)
				if (stages[0].device_id === quick.device.device_id) await admin.call("instance.delete", { instance_id });
			await place(quick);
		}
	};

	test("a token that is revoked while its prompt moves: the request ends, and no page stays held", async () => {
		const { token, token_id } = await admin.call("token.create", { name: "gone", scopes: ["infer"] });
		const from = server.output.stderr.length;
		const asked = ask(words(900, "i"), {}, { token }).catch((error) => error);
		await moving(from);
		await admin.call("token.revoke", { token_id });
		assert.match(String(await within(asked, "it ends", LONG)), /revoked/);
		await idle();
	});

	test("a client that leaves while its prompt moves: who waits for the same one has it, and no page stays held", async () => {
		const prompt = words(1800, "j"), from = server.output.stderr.length, leaves = new AbortController();
		proxies[0].cut("up"); // what this device has of the prompt is not heard until both wait: it moves after that
		const first = ask(prompt, {}, { signal: leaves.signal }).catch((error) => error);
		await eventually(async () => (await admin.call("instance.list")).instances.some((one) => one.idle_since === null), "the first is asked", LONG);
		const second = ask(prompt);
		await eventually(() => /under way for another request/.test(server.output.stderr.slice(from)), "the second waits for it", LONG);
		proxies[0].mend();
		await moving(from);
		leaves.abort();
		assert.equal((await first).name, "AbortError");
		assert.ok((await within(second, "it is answered", LONG)).prefill, server.output.stderr.slice(from));
		assert.equal(server.output.stderr.slice(from).match(/prompt on .*; answer on /g).length, 1);
		await idle();
		const alone = new AbortController(), again = server.output.stderr.length;
		const third = ask(words(900, "k"), {}, { signal: alone.signal }).catch((error) => error);
		await moving(again);
		alone.abort();
		await third;
		await idle();
	});

	test("a disk that is full while a prompt moves: the answer is the same, and is recorded once there is room", async (context) => {
		if (!disk) return context.skip("no file system can be mounted here");
		const [{ seq }] = (await admin.call("audit.list", { limit: 1 })).entries;
		const prompt = words(900, "l"), from = server.output.stderr.length, asked = ask(prompt);
		await moving(from);
		disk.fill();
		const { text, prefill } = await within(asked, "it is answered", LONG);
		disk.empty();
		assert.ok(prefill);
		assert.equal(text, (await eventually(() => ask(prompt).catch(() => null), "others are answered", LONG)).text);
		await eventually(async () => (await admin.call("audit.list", { limit: 20 })).entries.filter((one) =>
			one.seq > seq && one.action === "infer.completions" && one.detail.generated_tokens).length === 2, "both are in the audit log", LONG);
		await idle();
	});

	// The pages that still come then are of no use, and do not start the request again.
	test("a worker that stands still while it computes a prompt is not waited for, and may go on later", async () => {
		const prompt = words(900, "f"), from = server.output.stderr.length, asked = ask(prompt);
		await moving(from);
		const [worker] = holding(quick); // others answer questions of the node
		process.kill(worker, "SIGSTOP");
		const { text, prefill } = await within(asked, "it is answered", LONG);
		try { process.kill(worker, "SIGCONT"); } catch { /* its node has ended it */ }
		assert.equal(prefill, undefined);
		assert.equal(text, (await ask(prompt)).text); // its pages are cached, or it is computed again
		await idle();
		await helped();
	});

	test("a node that falls silent while its pages travel is not waited for, and no token is lost", async () => {
		const prompt = words(900, "m"), from = server.output.stderr.length, asked = ask(prompt);
		await moving(from);
		quick.child.kill("SIGSTOP");
		const { text, prefill } = await within(asked, "it is answered", LONG);
		quick.child.kill("SIGCONT");
		assert.equal(prefill, undefined);
		await idle();
		assert.equal(text, (await ask(prompt)).text);
		await helped();
	});

	for (const [who, first] of [["the one that computes the prompt", "d"], ["the one that answers", "e"]])
		test(`${who} leaves in the middle: no token is lost`, async () => {
			const prompt = words(900, first), from = server.output.stderr.length, leaves = first === "d" ? quick : steady;
			const asked = ask(prompt);
			await moving(from);
			leaves.child.kill("SIGKILL");
			const { text } = await within(asked, "it is answered", LONG);
			await within(leaves.exited, "it has ended");
			await leaves.start();
			await eventually(async () => (await admin.call("instance.list")).instances.every(({ state }) => state === "running"), "all run", LONG);
			assert.equal(text, await alone(prompt));
			if (first !== "d") return;
			await place(steady);
			await helped();
		});
});
