// Traces of requests, as a collector of OpenTelemetry gets them. The worker is made here, so that its times are known.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { Collector } from "./collector.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, run, slow, startServer, temporary } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

const syntax = { calls: "hermes", thoughts: "think", opened: false };
const times = { queued_ms: 0.001, prompt_ms: 0.002, generate_ms: 0.004 }; // less than any request takes
const secret = "s3cret-of-the-collector", prompt = "text-of-the-prompt";
const none = { OTEL_EXPORTER_OTLP_ENDPOINT: "", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "", OTEL_EXPORTER_OTLP_HEADERS: "", OTEL_SERVICE_NAME: "" };
const parent = (flags, version = "00") => `${version}-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-${flags}`;

describe("traces", () => {
	let server, node, token, collector;

	async function start({ args, env }) {
		server = await startServer({ args, env: { ...none, ...env } });
		const admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		const source = join(temporary(), "words.gguf");
		writeFileSync(source, modelFile({ context: 65536 }));
		await admin.call("model.add", { source });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await admin.call("instance.create", { model_id: model.model_id, context_tokens: 65536 });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		({ token } = await admin.call("token.create", { name: "infer", scopes: ["infer", "observe"], expires_in_s: 3600 }));
	}
	const post = (path, body, headers = {}) => server.http(path, { method: "POST", body: JSON.stringify(body),
		headers: { "content-type": "application/json", authorization: `Bearer ${token}`, ...headers } });
	const ask = (more = {}, headers) => post("/v1/chat/completions", { model: "words", messages: [{ role: "user", content: prompt }], ...more }, headers);
	const says = (end = times) => node.worker().says(["one", " two"], syntax, end);
	// Both, of a request that was answered.
	const traced = async (answer) => eventually(() => collector.of(answer.headers["x-request-id"]), () => `its trace comes; there were ${collector.spans.length} spans`);
	const metric = async (name) => Number(new RegExp(`^exogpu_trace_${name} (\\d+)$`, "m").exec((await server.http("/metrics", { headers: { authorization: `Bearer ${token}` } })).text)?.[1]);

	async function finish() {
		node?.socket.close();
		await server?.finish();
		await collector?.stop();
		assertContractKept();
		assert.deepEqual(collector.faults, []);
		assert.doesNotMatch(server.output.stderr, new RegExp(secret));
		// What is nobody's business but the client's is in no message.
		for (const { text } of collector.got) assert.doesNotMatch(text, new RegExp(`${prompt}|${token}|${secret}|127\\.0\\.0\\.1`));
	}

	describe("by the environment", () => {
		before(async () => {
			collector = await new Collector().start();
			await start({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/${secret}/`, OTEL_SERVICE_NAME: "my-gpus",
				OTEL_EXPORTER_OTLP_HEADERS: `authorization=Bearer%20${secret}, x-tenant = 7` } });
		});
		afterEach(() => {
			collector.plan.length = 0;
			node.worker().manual = false;
			delete node.worker().answers["generate.start"];
		});
		after(finish);

		test("a request that continues a trace", async () => {
			says();
			const answer = await ask({ stream: true }, { traceparent: parent("01") });
			const { root, children } = await traced(answer);
			assert.deepEqual([root.trace, root.parent, root.kind, root.failed], ["4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", 2, false]);
			assert.equal(root.name, "POST /v1/chat/completions");
			assert.deepEqual(root.attributes, { "http.request.method": "POST", "http.route": "/v1/chat/completions", "url.path": "/v1/chat/completions",
				"url.scheme": "http", "http.response.status_code": 200, "exogpu.request_id": answer.headers["x-request-id"], "gen_ai.operation.name": "chat",
				"gen_ai.provider.name": "exogpu", "gen_ai.request.model": "words", "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 2 });
			assert.deepEqual(children.map((one) => [one.name, one.parent, one.kind]), ["queue", "prompt", "decode"].map((name) => [name, root.id, 1]));
			const [queue, before, decode] = children;
			assert.ok(root.begin <= queue.begin && queue.end === before.begin && before.end === decode.begin && decode.end <= root.end, "one follows the other");
			assert.deepEqual([Number(before.end - before.begin), Number(decode.end - decode.begin)], [2000, 4000]);
			assert.equal(before.attributes["exogpu.cached_tokens"], 2);
			assert.equal(decode.attributes["exogpu.device_ids"].length, 1);
			assert.deepEqual(decode.attributes["exogpu.compute_ms"], [0]); // this worker tells none
			assert.doesNotMatch(server.environment(), new RegExp(`Bearer.*${secret}`));
			const [message] = collector.got;
			assert.deepEqual([message.url, message.headers.authorization, message.headers["x-tenant"]], [`/${secret}/v1/traces`, `Bearer ${secret}`, "7"]);
			assert.deepEqual([message.resource["service.name"], message.resource["service.instance.id"].slice(0, 4)], ["my-gpus", "clu_"]);
		});

		test("a traceparent that is none begins a new trace; one that is not sampled is not recorded", async () => {
			says();
			const unsampled = [await ask({}, { traceparent: parent("00") }), await ask({}, { traceparent: parent("fe") })];
			const bad = [undefined, "", "nonsense", parent("01", "ff"), parent("01").toUpperCase(), `${parent("01")}-more`, parent("1"), `${parent("01")}0`, parent("0g"),
				`00-${"0".repeat(32)}-00f067aa0ba902b7-01`, `00-4bf92f3577b34da6a3ce929d0e0e4736-${"0".repeat(16)}-01`, `${parent("01", "01")}-${"x".repeat(500)}`];
			const newer = await ask({}, { traceparent: `${parent("09", "01")}-more` });
			const answers = await Promise.all(bad.map((traceparent) => ask({}, traceparent === undefined ? {} : { traceparent })));
			const roots = (await Promise.all(answers.map(traced))).map(({ root }) => root);
			assert.deepEqual(roots.map((one) => one.parent), bad.map(() => undefined));
			assert.equal(new Set([...roots.map((one) => one.trace), "4bf92f3577b34da6a3ce929d0e0e4736"]).size, bad.length + 1, "each has an id of its own");
			const { root } = await traced(newer);
			assert.deepEqual([root.parent, root.trace.slice(0, 4)], ["00f067aa0ba902b7", "4bf9"]);
			for (const one of unsampled) {
				assert.equal(one.status, 200);
				assert.equal(collector.of(one.headers["x-request-id"]), undefined);
			}
		});

		test("several choices, embeddings, and what fails", async () => {
			says();
			const answers = [await ask({ n: 2 }), await post("/v1/embeddings", { model: "words", input: ["a", "b"] }), await ask({ model: "absent" })];
			says({ ...times, reason: "failed", error: "a fault" });
			answers.push(await ask(), await ask({ stream: true }));
			const [two, embedded, absent, failed, midway] = await Promise.all(answers.map(traced));
			assert.deepEqual(two.children.map((one) => [one.name, one.attributes["exogpu.choice"]]).sort(),
				["decode", "prompt", "queue"].flatMap((name) => [[name, 0], [name, 1]]));
			assert.deepEqual([two.root.attributes["gen_ai.usage.input_tokens"], two.root.attributes["gen_ai.usage.output_tokens"]], [7, 4]);
			assert.deepEqual([embedded.children, embedded.root.attributes["gen_ai.operation.name"], embedded.root.attributes["gen_ai.usage.input_tokens"],
				embedded.root.attributes["gen_ai.usage.output_tokens"]], [[], "embeddings", 6, undefined]);
			assert.deepEqual([absent.children, absent.root.failed, absent.root.attributes["http.response.status_code"], absent.root.attributes["error.type"],
				absent.root.attributes["gen_ai.request.model"]], [[], false, 404, "not_found", undefined]);
			assert.deepEqual([failed.root.failed, failed.root.attributes["http.response.status_code"], failed.root.attributes["error.type"]], [true, 500, "internal"]);
			assert.deepEqual([midway.root.failed, midway.root.attributes["http.response.status_code"], midway.root.attributes["error.type"]], [true, 200, "internal"]);
		});

		test("times that a worker cannot have measured are not told", async () => {
			says({ ...times, generate_ms: 3600000 });
			const { root, children } = await traced(await ask());
			assert.deepEqual([children, root.attributes["gen_ai.usage.output_tokens"]], [[], 2]);
		});

		test("of a request that goes on with another worker, the times of that one", async () => {
			const { babble } = ModelWorker.prototype, first = node.worker();
			first.manual = true;
			const asked = ask();
			await eventually(() => first.requests.size, "the worker is asked");
			first.say([...first.requests.keys()][0], "one");
			ModelWorker.prototype.babble = function end({ request }) {
				this.finish(request, "stop", times);
			};
			first.kill();
			const { root, children: [queue, , decode] } = await traced(await asked);
			ModelWorker.prototype.babble = babble;
			assert.equal(queue.attributes["exogpu.restarts"], 1);
			assert.ok(root.begin < queue.begin && Number(decode.end - decode.begin) === 4000);
		});

		test("a request whose client leaves", async () => {
			node.worker().manual = true;
			const aborter = new AbortController(), before = node.worker().requests.size;
			const left = fetch(`${server.url}v1/chat/completions`, { method: "POST", signal: aborter.signal, headers: { authorization: `Bearer ${token}`, traceparent: parent("01").replace("4bf9", "1eff") },
				body: JSON.stringify({ model: "words", messages: [{ role: "user", content: prompt }] }) }).catch((error) => error.name);
			await eventually(() => node.worker().requests.size > before, "the worker is asked");
			aborter.abort();
			assert.equal(await left, "AbortError");
			const root = await eventually(() => collector.spans.find((one) => one.trace.startsWith("1eff")), "its trace comes");
			assert.deepEqual([root.failed, root.attributes["error.type"], root.attributes["http.response.status_code"]], [false, "cancelled", undefined]);
		});

		test("a collector that takes them only later gets each once, and one that refuses them is told of", async () => {
			says();
			await eventually(async () => await metric("spans_waiting") === 0, "nothing waits");
			const [failures, exported] = [await metric("exports_failed_total"), await metric("spans_exported_total")];
			collector.plan.push(503, { status: 429, headers: { "retry-after": "1" } });
			const answer = await ask(), { root } = await traced(answer);
			assert.equal(collector.got.filter((one) => one.spans.some(({ id }) => id === root.id)).length, 3);
			await eventually(async () => await metric("spans_exported_total") === exported + 4, "they are counted");
			assert.deepEqual([await metric("exports_failed_total"), await metric("spans_dropped_total")], [failures + 2, 0]);
			await eventually(() => /takes traces again/.test(server.output.stderr), "the log says so");
			assert.match(server.output.stderr, /the collector does not take traces, which are sent again: the receiver answered 429/);
			collector.plan.push(400);
			await ask();
			await eventually(async () => await metric("spans_dropped_total") === 4, "those that are refused are left out");
			await eventually(() => /the collector does not take traces: the receiver answered 400/.test(server.output.stderr), "the log says so");
		});

		test("spans that it rejects of a batch that it takes are counted, and told of once", async () => {
			says();
			await eventually(async () => await metric("spans_waiting") === 0, "nothing waits");
			const [exported, dropped] = [await metric("spans_exported_total"), await metric("spans_dropped_total")], told = () => server.output.stderr.match(/the collector rejects/g)?.length;
			const partial = (rejectedSpans) => ({ status: 200, body: JSON.stringify({ partialSuccess: { rejectedSpans, errorMessage: "too\nold" } }) });
			for (const [answer, rejected] of [[partial("3"), 3], [partial(99), 7], [{ status: 200, body: "x".repeat(10000) }, 7], [200, 7]]) {
				collector.plan.push(answer);
				await ask();
				await eventually(async () => await metric("spans_rejected_total") === rejected && await metric("spans_waiting") === 0, `${rejected} are rejected`);
			}
			assert.deepEqual([await metric("spans_exported_total") - exported, await metric("spans_dropped_total")], [1 + 0 + 4 + 4, dropped]);
			assert.equal(told(), 1);
			assert.match(server.output.stderr, /the collector rejects 3 of 4 spans: too old/);
			collector.plan.push(partial("1"));
			await ask();
			await eventually(() => told() === 2, "and once more after it took all");
		});

		test("what waits when the server stops is sent", async () => {
			says();
			const { headers } = await ask();
			await server.finish();
			assert.ok(collector.of(headers["x-request-id"]), "the trace came");
			server = { ...server, finish: async () => {} };
		});
	});

	describe("a collector that never answers", () => {
		before(async () => {
			collector = await new Collector().start();
			collector.usual = "hang";
			await start({ args: ["--otlp", collector.url], env: { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:9", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://127.0.0.1:9/other" } });
		});
		after(finish);

		test("costs requests nothing, and what it does not take is bounded, counted and told once", async () => {
			says();
			for (let i = 0; i < 40 && !(await metric("spans_dropped_total") > 100); i++) assert.equal((await ask({ n: 20 })).status, 200);
			assert.ok(await metric("spans_dropped_total") > 100);
			assert.equal(await metric("spans_exported_total"), 0);
			assert.ok(await metric("spans_waiting") <= 2048);
			assert.equal(server.output.stderr.match(/spans are left out/g).length, 1);
			assert.deepEqual([collector.got[0].url, collector.got[0].resource["service.name"]], ["/v1/traces", "exogpu"]);
		});

		test("one that is too slow for all spans is told of once, until it has caught up", async () => {
			const told = () => server.output.stderr.match(/spans are left out/g).length, dropped = await metric("spans_dropped_total");
			await eventually(async () => collector.release(collector.got[0].text) ?? await metric("spans_exported_total") > 0, "the first batch is taken");
			for (let i = 0; i < 40 && await metric("spans_dropped_total") === dropped; i++) assert.equal((await ask({ n: 20 })).status, 200);
			assert.ok(await metric("spans_dropped_total") > dropped);
			assert.equal(told(), 1);
			await eventually(async () => collector.release() ?? await metric("spans_waiting") === 0, "it has all");
			await eventually(() => /takes traces again; \d+ spans were left out/.test(server.output.stderr), "the log says so");
		});

		test("holds up no stop", async () => {
			await ask();
			node.socket.close();
			const { code, ms, stderr } = await server.stop();
			assert.equal(code, 0, stderr);
			assert.ok(ms < 4000 * slow, `${ms} ms`);
			assert.match(stderr, /\d+ spans were not delivered before the server stopped/);
			server = { ...server, finish: async () => {} };
		});
	});

	test("what no collector's address or headers can be", async () => {
		const data = temporary(), serve = (args, env) => run(["serve", "--data", data, ...args], { ...none, ...env });
		for (const url of ["collector:4318", "ftp://host", "http://", "http:///path", "https://user:word@host", "http://host/?key=1", "http://host/ x"]) {
			for (const [name, end] of [["--otlp", serve(["--otlp", url])], ["OTEL_EXPORTER_OTLP_ENDPOINT", serve([], { OTEL_EXPORTER_OTLP_ENDPOINT: url })]]) {
				const { code, stderr } = await end;
				assert.equal(code, 2, stderr);
				assert.ok(stderr.startsWith(`exogpu: ${name} takes http://`), stderr);
			}
		}
		for (const headers of [`authorization ${secret}`, `=${secret}`, `a b=${secret}`, `a=${secret}%0d%0ab:c`, `a=${secret}%`, `a=${secret}%zz`, `a=${secret}\u00e9`,
			Array.from({ length: 9 }, (_, at) => `h${at}=${secret}`).join()]) {
			const { code, stderr } = await serve([], { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://127.0.0.1:9/x", OTEL_EXPORTER_OTLP_HEADERS: headers });
			assert.equal(code, 2, stderr);
			assert.match(stderr, /OTEL_EXPORTER_OTLP_HEADERS/);
			assert.doesNotMatch(stderr, new RegExp(secret));
		}
		const { code, stderr } = await serve(["--otlp", "http://127.0.0.1:9"], { OTEL_SERVICE_NAME: "x".repeat(128) });
		assert.deepEqual([code, /OTEL_SERVICE_NAME/.test(stderr)], [2, true]);
	});
});
