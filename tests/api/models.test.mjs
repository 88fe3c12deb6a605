// Models that are added by every kind of source, from a server that does what the hubs do, and what they do wrong.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { Hub, sha256 } from "./hub.mjs";
import { deviceRecord, nodeRecord } from "./records.mjs";
import { eventually, launch, patience, run, slow, startServer, temporary, within } from "./server.mjs";

const small = modelFile(), large = modelFile({ megabytes: 9 });
const stateIs = (...states) => (model) => states.includes(model.state);

describe("models", () => {
	let server, admin, hub, folder;

	const connect = async () => {
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["placement"] });
	};
	const start = async (data) => {
		server = await startServer({ data, args: ["--hub-url", hub.url, "--ollama-url", hub.url] });
		await connect();
	};
	// The newest that was said of a model, once it is as asked for.
	const until = async (model_id, fits, ms = 6 * patience) => {
		const said = () => admin.events.flatMap((one) => one.data.models ?? []).filter((one) => one.model_id === model_id).at(-1);
		const listed = (await admin.call("model.list")).models.find((one) => one.model_id === model_id);
		if (listed && fits(listed)) return listed;
		return admin.until(() => { const last = said(); return last && fits(last) && last; }, `${model_id} is as wanted`, ms)
			.catch((error) => { throw new Error(`${error.message}; it is ${JSON.stringify(said())}; ${server.output.stderr.slice(-800)}`); });
	};
	const add = (source, more = {}) => admin.call("model.add", { source, ...more });
	const ended = async (source, more) => until((await add(source, more)).model_id, stateIs("ready", "failed"));
	// Once its hash is known, too; of a file by its path it comes later.
	const ready = async (source, more) => {
		const model = await ended(source, more);
		assert.equal(model.state, "ready", model.state_reason);
		return until(model.model_id, (one) => one.sha256);
	};
	const failed = async (source, more) => {
		const model = await ended(source, more);
		assert.equal(model.state, "failed");
		return model.state_reason;
	};
	const local = (name, bytes = small) => {
		const path = join(folder, name);
		writeFileSync(path, bytes);
		return path;
	};
	const stored = (model) => readFileSync(join(server.data, "models", `${model.model_id}.gguf`));
	const entries = async (action) => (await admin.call("audit.list", { action, limit: 100 })).entries;

	before(async () => {
		folder = temporary();
		hub = await Hub.start();
		await start();
	});
	after(async () => {
		hub?.stop();
		await server?.finish();
		assertContractKept();
	});
	beforeEach(async () => {
		hub.plan = {};
		hub.token = undefined;
		hub.asked = [];
		hub.tag = '"one"';
		for (const { model_id } of (await admin.call("model.list")).models) await admin.call("model.remove", { model_id });
		hub.files = new Map([["maker/small/model-Q8_0.gguf", small], ["maker/large/model-F16.gguf", large]]);
		hub.blobs = new Map([[sha256(small), small]]);
		hub.parameters = new Map();
		hub.library = new Map([["library/tiny:latest", sha256(small)], ["library/tiny:1b", sha256(small)]]);
	});

	describe("by path", () => {
		test("what is in the file is told", async () => {
			const model = await ready(local("a.gguf"));
			assert.equal(model.name, "a");
			assert.equal(model.file_bytes, small.length);
			assert.equal(model.sha256, sha256(small));
			const { family, layers, format, file_format: own, vocabulary } = model.architecture;
			assert.deepEqual([family, layers, format, own, vocabulary], ["llama", 1, "F32", "F32", 300]);
			assert.deepEqual((await admin.call("cluster.snapshot")).models, [model]);
			const [entry] = await entries("model.hashed");
			assert.deepEqual([entry.target, entry.outcome, entry.detail], [model.model_id, "ok",
				{ sha256: sha256(small), bytes: small.length, source: model.source }]);
		});
		test("an architecture has its own name", async () => {
			const { architecture } = await ready(new URL("../models/gemma3.gguf", import.meta.url).pathname);
			assert.deepEqual([architecture.family, architecture.layers, architecture.file_format], ["gemma3", 7, "F16"]);
		});
		test("adding it again answers with it, and names are unique", async () => {
			const one = await ready(local("a.gguf"));
			assert.equal((await add(join(folder, "a.gguf"), { name: "other" })).model_id, one.model_id);
			mkdirSync(join(folder, "b"), { recursive: true });
			assert.equal((await ready(`file://${local("b/a.gguf")}`)).name, "a-2");
			assert.equal((await admin.refused("model.add", { source: local("c.gguf"), name: "a" }, "conflict")).reason, "conflict");
			for (const name of ["mod_1", "a/b", ".a", " a", "a\u0007", "a?b"]) await admin.refused("model.add", { source: local("c.gguf"), name }, "invalid_params");
		});
		test("what is no model says why", async () => {
			assert.match(await failed("/nonexistent/model.gguf"), /cannot be opened.*server's machine/s);
			assert.match(await failed(join("/home", "nobody", "model.gguf")), /cannot be opened.*ProtectHome/s);
			assert.match(await failed(folder), /has no config\.json/);
			assert.match(await failed(local("empty.gguf", Buffer.alloc(0))), /empty/);
			assert.match(await failed(local("page.gguf", Buffer.from("<html>".repeat(100)))), /GGUF/);
			assert.match(await failed(local("cut.gguf", small.subarray(0, small.length - 5000))), /./);
			assert.match(await failed(local("other.gguf", modelFile({ architecture: "mamba" }))), /mamba/);
			assert.equal((await entries("model.failed")).length >= 6, true);
		});
		test("sources that are none are refused at once", async () => {
			for (const source of ["relative.gguf", "hf:", "hf:one", "hf:a/b/../c.gguf", "hf:a/b/c.bin", "hf:a/../b.gguf", "ollama:", "ollama:a b",
				"ollama:a/b/c", "https://", "https://user:secret@host/a.gguf", "file:relative", "ftp://host/a.gguf"])
				await admin.refused("model.add", { source }, "invalid_params");
		});
		test("a file that changes or goes is missing, and ready again when it is back", async () => {
			const path = local("a.gguf"), model = await ready(path);
			await server.finish();
			rmSync(path);
			await start(server.data);
			assert.deepEqual((await admin.call("model.list")).models.map((one) => [one.model_id, one.state]), [[model.model_id, "missing"]]);
			local("a.gguf", modelFile({ seed: 2 }));
			await server.finish();
			await start(server.data);
			assert.match((await admin.call("model.list")).models[0].state_reason, /changed/);
			assert.equal((await ready(path)).model_id, model.model_id);
		});
		test("it survives a restart as it was, and its removal leaves the file", async () => {
			const path = local("a.gguf"), model = await ready(path);
			await server.finish();
			await start(server.data);
			assert.deepEqual((await admin.call("model.list")).models, [model]);
			assert.deepEqual(await admin.call("model.remove", { model_id: model.model_id }), { model_id: model.model_id, freed_bytes: 0 });
			assert.ok(existsSync(path));
			await admin.refused("model.remove", { model_id: model.model_id }, "not_found");
			await admin.event((one) => one.data.removed_models?.includes(model.model_id));
		});
	});

	describe("from Hugging Face", () => {
		test("over several connections, checked and audited", async () => {
			const model = await ready("hf:maker/large/model-F16.gguf");
			assert.equal(model.sha256, sha256(large));
			assert.ok(stored(model).equals(large));
			const ranges = hub.ranges();
			assert.ok(ranges.length >= 8, `${ranges.length} ranges`);
			assert.equal(new Set(ranges).size, ranges.length, "each once");
			const [entry] = await entries("model.ready");
			assert.deepEqual([entry.target, entry.detail.sha256, entry.detail.bytes], [model.model_id, sha256(large), large.length]);
			const kept = () => readdirSync(join(server.data, "models"));
			await eventually(() => kept().length === 1, "the journal is removed");
			assert.deepEqual(kept(), [`${model.model_id}.gguf`]);
			const { freed_bytes } = await admin.call("model.remove", { model_id: model.model_id });
			assert.ok(freed_bytes >= large.length, `${freed_bytes}`);
		});
		test("of a commit, whatever is on the branch main; of one that picks a file, too", async () => {
			const commit = "0123456789abcdef0123456789abcdef01234567";
			hub.files.set(`maker/large@${commit}/model-F16.gguf`, small);
			const named = await ready(`hf:maker/large@${commit}/model-F16.gguf`), main = await ready("hf:maker/large/model-F16.gguf");
			assert.deepEqual([named, main].map((one) => one.sha256), [small, large].map(sha256));
			assert.equal(named.source, `hf:maker/large@${commit}/model-F16.gguf`);
			await admin.call("model.remove", { model_id: named.model_id });
			const picked = await ready(`hf:maker/large@${commit}`);
			assert.deepEqual([picked.sha256, picked.source], [sha256(small), `hf:maker/large@${commit}/model-F16.gguf`]);
			for (const { model_id } of [picked, main]) await admin.call("model.remove", { model_id });
			await admin.refused("model.add", { source: "hf:maker/large@main/model-F16.gguf" }, "invalid_params");
		});
		test("progress is told, four times a second at most", async () => {
			hub.plan.slow = 20;
			const from = admin.events.length, begun = performance.now();
			const model = await ready("hf:maker/large/model-F16.gguf");
			const told = admin.events.slice(from).flatMap((one) => one.data.models ?? []).filter((one) => one.model_id === model.model_id && one.progress);
			const seconds = (performance.now() - begun) / 1000;
			assert.ok(told.some((one) => one.progress.step === "downloading" && one.progress.connections > 1), JSON.stringify(told.map((one) => one.progress)));
			assert.ok(told.length <= 4 * seconds + 6, `${told.length} in ${seconds} s`);
			const done = told.map((one) => one.progress.done_bytes);
			assert.ok(done.some((bytes) => bytes > 0 && bytes < large.length), `${done}`);
		});
		test("an access token goes to the hub and to nobody else, and is kept nowhere", async () => {
			for (const access_token of ["a b", "a\r\nx: y", "\u0001", "ü"])
				await admin.refused("model.add", { source: "hf:maker/small/model-Q8_0.gguf", access_token }, "invalid_params");
			hub.token = "secret-of-the-hub";
			assert.match(await failed("hf:maker/small/model-Q8_0.gguf"), /access token/);
			assert.match(await failed("hf:maker/small/model-Q8_0.gguf", { access_token: "wrong-secret" }), /does not open/);
			hub.asked = [];
			await ready("hf:maker/small/model-Q8_0.gguf", { access_token: hub.token });
			assert.ok(hub.asked.filter((one) => one.server === "front").every((one) => one.headers.authorization === `Bearer ${hub.token}`));
			assert.ok(hub.asked.filter((one) => one.server === "store").every((one) => !("authorization" in one.headers)));
			await server.finish();
			for (const name of readdirSync(server.data, { recursive: true })) {
				const path = join(server.data, name);
				if (statSync(path).isFile()) assert.ok(!readFileSync(path).includes("secret-of-the-hub"), name);
			}
			assert.ok(!server.output.stderr.includes("secret-of-the-hub"));
			await start(server.data);
		});
		test("connections that break are taken up where they were", async () => {
			hub.plan.cut = [700000, 300000, 5, 900000, 0];
			const model = await ready("hf:maker/large/model-F16.gguf");
			assert.ok(stored(model).equals(large));
			const first = hub.ranges().map((range) => Number(/bytes=(\d+)/.exec(range)[1]));
			assert.ok(first.includes(700000), `${first}`);
		});
		test("429 is waited out, 5xx tried again", async () => {
			let asked = 0, at;
			hub.plan.store = (request, response) => {
				asked++;
				if (asked === 1) { at = Date.now(); hub.refuse(response, 429, { "retry-after": "2" }); return true; }
				if (asked === 2) assert.ok(Date.now() - at >= 1900, `it came back after ${Date.now() - at} ms`);
				if (asked === 2) hub.refuse(response, 503);
				return asked === 2;
			};
			const model = await add("hf:maker/small/model-Q8_0.gguf");
			const waiting = await until(model.model_id, (one) => one.state_reason?.includes("429") || one.state !== "downloading");
			assert.equal(waiting.progress?.step, "waiting", JSON.stringify(waiting));
			await until(model.model_id, stateIs("ready"));
			assert.ok(asked >= 3);
		});
		test("a way that has run out is asked for again", async () => {
			let served = 0;
			hub.plan.signature = 1;
			hub.plan.store = (request, response) => {
				if (++served === 3) hub.plan.signature = 2;
				const good = request.url.endsWith(`signature=${hub.plan.signature}`);
				if (!good) hub.refuse(response, 403);
				return !good;
			};
			assert.ok(stored(await ready("hf:maker/large/model-F16.gguf")).equals(large));
			assert.ok(hub.asked.filter((one) => one.server === "front").length >= 2);
		});
		test("what is not what was promised is thrown away", async () => {
			hub.plan.lie = "a".repeat(64);
			assert.match(await failed("hf:maker/small/model-Q8_0.gguf"), /SHA-256/);
			const [entry] = await entries("model.failed");
			assert.notEqual(entry.outcome, "ok");
			await until((await admin.call("model.list")).models[0].model_id, () => !readdirSync(join(server.data, "models")).length);
		});
		test("what the hub does not have, or is no model", async () => {
			assert.match(await failed("hf:maker/small/none.gguf"), /404/);
			assert.match(await failed("hf:nobody/none"), /404/);
			hub.files.set("maker/page/model-Q8_0.gguf", Buffer.from("<html>".repeat(1000)));
			assert.match(await failed("hf:maker/page/model-Q8_0.gguf"), /GGUF/);
			hub.files.set("maker/other/model-Q8_0.gguf", modelFile({ architecture: "mamba" }));
			assert.match(await failed("hf:maker/other/model-Q8_0.gguf"), /mamba/);
		});
		test("a format that is not computed here ends it as soon as the header tells, and leaves nothing", async () => {
			for (const [text, name] of [[0, "short"], [2.5e6, "long"]]) { // of the second the first MiB is not all of the header
				const foreign = modelFile({ megabytes: 40, type: 23, text });
				hub.files.set(`maker/foreign/${name}-Q4_K_M.gguf`, foreign);
				hub.plan.slow = 20 * slow; // a busy server takes longer to say that it wants no more
				hub.sent = 0;
				assert.match(await failed(`hf:maker/foreign/${name}-Q4_K_M.gguf`), /tensor blk\.\d+\.ffn_down\.weight in IQ4_XS.*what works/s);
				assert.ok(hub.sent > 1e6 && hub.sent < foreign.length / 2, `${hub.sent} of ${foreign.length} bytes were fetched`);
				await eventually(() => !readdirSync(join(server.data, "models")).length, "its files are gone");
			}
		});
		test("of a repository the file that fits best is picked, and it is said which", async () => {
			for (const [name, seed] of [["model-Q2_K.gguf", 2], ["model-F16.gguf", 3], ["model-Q4_K_M.gguf", 4], ["model-Q8_0-00001-of-00002.gguf", 5]])
				hub.files.set(`maker/many/${name}`, modelFile({ seed }));
			hub.files.set("maker/many/mmproj-Q8_0.gguf", small);
			const model = await ready("hf:maker/many");
			assert.equal(model.source, "hf:maker/many/model-Q4_K_M.gguf");
			assert.ok(stored(model).equals(modelFile({ seed: 4 })));
			assert.match(await failed("hf:maker/many"), /here already/);
		});
	});

	describe("from Ollama", () => {
		test("the model's layer of the manifest", async () => {
			const model = await ready("ollama:tiny");
			assert.deepEqual([model.source, model.name, model.sha256], ["ollama:tiny:latest", "tiny-latest".replace("-", ":"), sha256(small)]);
			assert.ok(stored(model).equals(small));
			assert.match(await failed("ollama:tiny:none"), /404/);
		});
		test("a manifest that is none", async () => {
			for (const text of ["{", "[]", '{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:..","size":1}]}']) {
				hub.plan.front = (request, response) => { response.end(text); return true; };
				assert.match(await failed("ollama:tiny:1b"), /Ollama/);
			}
			hub.plan.front = (request, response) => { response.end(Buffer.alloc(9 * 1024 * 1024, "[")); return true; };
			assert.match(await failed("ollama:tiny:1b"), /too long/);
		});
	});

	describe("what the authors recommend of drawing tokens", () => {
		const nothing = { temperature: null, top_k: null, top_p: null, min_p: null, repetition_penalty: null };
		const beside = (value) => hub.files.set("maker/small/generation_config.json", Buffer.from(typeof value === "string" ? value : JSON.stringify(value)));
		const sampling = async (source) => {
			const model = await ready(source);
			await admin.call("model.remove", { model_id: model.model_id });
			return model.architecture.sampling;
		};

		test("comes from the repository, also of a file that is picked, with the token", async () => {
			beside({ temperature: 0.6, top_k: 20, top_p: 0.95, do_sample: true, eos_token_id: [1, 2] });
			hub.token = "secret-of-the-hub";
			for (const source of ["hf:maker/small/model-Q8_0.gguf", "hf:maker/small"]) {
				const model = await ready(source, { access_token: hub.token });
				assert.deepEqual(model.architecture.sampling, { ...nothing, temperature: 0.6, top_k: 20, top_p: 0.95 });
				await admin.call("model.remove", { model_id: model.model_id });
			}
		});
		test("is less than what the file says itself, value by value", async () => {
			hub.files.set("maker/small/model-Q8_0.gguf", modelFile({ sampling: { temp: 0.3, top_k: 7 } }));
			beside({ temperature: 0.9, top_p: 0.5 });
			assert.deepEqual(await sampling("hf:maker/small/model-Q8_0.gguf"), { ...nothing, temperature: 0.3, top_k: 7, top_p: 0.5 });
		});
		test("is nothing where there is none, or what is there cannot be read", async () => {
			assert.deepEqual(await sampling("hf:maker/small/model-Q8_0.gguf"), nothing);
			for (const text of ["{", "[1]", '{"temperature":"hot","top_k":1.5,"top_p":7}', `{"temperature":0.5,"x":"${"y".repeat(70000)}"}`]) {
				beside(text);
				assert.deepEqual(await sampling("hf:maker/small/model-Q8_0.gguf"), nothing, text.slice(0, 40));
			}
		});
		test("is asked for again where the hub fails for a moment", async () => {
			beside({ min_p: 0.1 });
			let failures = 0;
			hub.plan.front = (request, response, url) => {
				const fails = url.pathname.endsWith("generation_config.json") && failures++ < 1;
				if (fails) hub.refuse(response, 503);
				return fails;
			};
			assert.deepEqual(await sampling("hf:maker/small/model-Q8_0.gguf"), { ...nothing, min_p: 0.1 });
			hub.plan.front = (request, response, url) => {
				const fails = url.pathname.endsWith("generation_config.json");
				if (fails) hub.refuse(response, 503);
				return fails;
			};
			assert.deepEqual(await sampling("hf:maker/small/model-Q8_0.gguf"), nothing, "the model comes all the same");
		});
		test("comes from Ollama's parameters, if they are what the manifest promises", async () => {
			const parameters = Buffer.from(JSON.stringify({ stop: ["<|im_end|>"], temperature: 0.7, repeat_penalty: 1.1 }));
			hub.blobs.set(sha256(parameters), parameters);
			hub.parameters.set("library/tiny:1b", sha256(parameters));
			assert.deepEqual(await sampling("ollama:tiny:1b"), { ...nothing, temperature: 0.7, repetition_penalty: 1.1 });
			hub.blobs.set(sha256(parameters), Buffer.from('{"temperature":0.1}'));
			assert.deepEqual(await sampling("ollama:tiny:1b"), nothing);
		});
	});

	describe("by URL", () => {
		const url = (name) => `${hub.storeUrl}/file/${encodeURIComponent(name)}`;

		test("without ranges, by one connection, also of unknown length", async () => {
			hub.plan.plain = true;
			hub.plan.cut = [500000];
			assert.ok(stored(await ready(url("maker/large/model-F16.gguf"))).equals(large));
			hub.plan = { plain: true, chunked: true };
			assert.ok(stored(await ready(url("maker/small/model-Q8_0.gguf"))).equals(small));
		});
		test("a query is asked for, and shown to nobody", async () => {
			const model = await ready(`${url("maker/small/model-Q8_0.gguf")}?key=hidden-secret`, { name: "q" });
			assert.ok(!JSON.stringify(model).includes("hidden-secret"));
			assert.ok(hub.asked.some((one) => one.url.includes("hidden-secret")));
			assert.ok(!JSON.stringify((await admin.call("audit.list", { limit: 100 })).entries).includes("hidden-secret"));
		});
		test("a redirect to a private address, from https to http, or in circles is not followed", async () => {
			const to = (location) => (hub.plan.store = (request, response) => { hub.refuse(response, 302, { location }); return true; });
			to(`http://localhost:${hub.front.address().port}/x`);
			assert.match(await failed(url("a.gguf")), /private network/);
			to("http://169.254.169.254/latest/meta-data");
			assert.match(await failed(url("b.gguf")), /private network/);
			to("http://[::1]:1/x");
			assert.match(await failed(url("c.gguf")), /private network/);
			to(url("a.gguf"));
			assert.match(await failed(url("d.gguf")), /redirected too often/);
			for (const location of ["file:///etc/passwd", "gopher://x/", "http://", "http://a:b@host/"]) {
				to(location);
				assert.match(await failed(url(`${location.length}.gguf`)), /nowhere/);
			}
		});
		test("a server that lies about ranges, lengths and headers", async () => {
			const answers = [
				[206, { "content-range": "bytes 5-9/100", "content-length": 5 }, "GGUFx", /other bytes/],
				[206, { "content-range": "bytes 0-4/*", "content-length": 5 }, "GGUFx", /other bytes/],
				[206, { "content-length": 5 }, "GGUFx", /other bytes/],
				[200, { "content-encoding": "gzip", "content-length": 5 }, "GGUFx", /compress/],
				[200, { "content-length": 0 }, "", /empty|broke|GGUF|./],
				[206, { "content-range": "bytes 0-999999/99999999999999999", "content-length": 1000000 }, "GGUF", /larger than|room/],
			];
			for (const [index, [status, headers, body, why]] of answers.entries()) {
				hub.plan.store = (request, response) => { response.writeHead(status, headers); response.end(body); return true; };
				if (index === 4) continue;
				assert.match(await failed(url(`${index}.gguf`)), why);
			}
			hub.plan.store = (request, response) => {
				response.socket.end(`HTTP/1.1 200 OK\r\n${"x-much: ".padEnd(2000, "y")}\r\n`.repeat(1) + `x: ${"z".repeat(90000)}\r\n\r\n`);
				return true;
			};
			assert.match(await failed(url("headers.gguf")), /header/i);
		});
	});

	describe("goes on", () => {
		const source = () => `${hub.storeUrl}/file/${encodeURIComponent("maker/large/model-F16.gguf")}`;
		const halfway = (model) => until(model.model_id, (one) => one.progress?.done_bytes > 3e6);

		for (const [how, stop] of [["a stop", () => server.finish()], ["kill -9", async () => { await server.stop("SIGKILL"); }]])
			test(`after ${how}, with what is there`, async () => {
				hub.plan.slow = how === "kill -9" ? 250 : 60; // it lasts for several times that its journal is written
				const model = await add(source());
				await halfway(model);
				// After a kill it goes on with what its journal says is there, which is written every two seconds.
				const journaled = () => {
					const name = readdirSync(join(server.data, "models")).find((one) => one.endsWith(".journal"));
					const spans = name ? readFileSync(join(server.data, "models", name), "utf8").matchAll(/^(\d+) (\d+)$/gm) : [];
					return [...spans].reduce((sum, [, first, end]) => sum + (end - first), 0);
				};
				if (how === "kill -9") await eventually(() => journaled() > 2e6, "its journal has much of it");
				await stop();
				const before = hub.ranges().length;
				hub.plan = {};
				await start(server.data);
				assert.ok(stored(await until(model.model_id, stateIs("ready"))).equals(large));
				const again = hub.ranges().slice(before).map((range) => /bytes=(\d+)-(\d+)/.exec(range).slice(1).map(Number));
				const asked = again.reduce((sum, [first, last]) => sum + Math.min(last, large.length - 1) - first + 1, 0);
				assert.ok(asked < large.length - 1e6, `${asked} of ${large.length} bytes were asked for again`);
			});
		test("from the beginning when the file has changed meanwhile", async () => {
			hub.plan.slow = 250;
			const model = await add(source()), other = modelFile({ megabytes: 9, seed: 7 });
			await halfway(model);
			await server.finish();
			hub.plan = {};
			hub.tag = '"two"';
			hub.files.set("maker/large/model-F16.gguf", other);
			await start(server.data);
			assert.ok(stored(await until(model.model_id, stateIs("ready"))).equals(other));
		});
		test("from the beginning when it changes under way", async () => {
			let served = 0;
			const other = modelFile({ megabytes: 9, seed: 8 });
			hub.plan.store = () => {
				if (++served === 5) { hub.tag = '"three"'; hub.files.set("maker/large/model-F16.gguf", other); }
				return false;
			};
			assert.ok(stored(await ready(source())).equals(other));
		});
		test("not after its removal, which leaves nothing", async () => {
			hub.plan.slow = 250;
			const model = await add(source());
			await halfway(model);
			const { freed_bytes } = await admin.call("model.remove", { model_id: model.model_id });
			assert.ok(freed_bytes > 1e6, `${freed_bytes}`);
			await within((async () => { while (readdirSync(join(server.data, "models")).length) await new Promise((resolve) => setTimeout(resolve, 20)); })(),
				"its files are gone");
			// What was asked before may still arrive; a fetch that went on would ask for all of it.
			await eventually(async () => {
				const asked = hub.asked.length;
				await new Promise((resolve) => setTimeout(resolve, 500));
				return hub.asked.length === asked;
			}, "nothing more is asked for");
			const last = Math.max(...hub.ranges().map((range) => Number(/-(\d+)/.exec(range)?.[1] ?? 0)));
			assert.ok(last < large.length - 1, `up to byte ${last} of ${large.length} was asked for`);
		});
	});

	describe("model.search", () => {
		test("both hubs, with what fits and what is added", async () => {
			await ready("ollama:tiny");
			hub.files.set("maker/tiny-GGUF/tiny-Q4_K_M.gguf", small);
			const { results, unreachable } = await admin.call("model.search", { text: "tiny" });
			assert.deepEqual(unreachable, []);
			assert.deepEqual(results.map((one) => [one.source, one.origin, one.bytes, one.format, one.downloads, one.fits, one.added])
				.sort(), [["hf:maker/tiny-GGUF/tiny-Q4_K_M.gguf", "hf", small.length, "Q4_K", 1234, "unknown", false],
				["ollama:tiny:latest", "ollama", small.length, null, null, "unknown", true]]);
		});
		test("what fits is what a placement would take: over nodes, and memory that is shared counts once", async () => {
			const nodes = [["a", ["dev_a", "dev_a_too"]], ["b", ["dev_b"]]];
			const fakes = await Promise.all(nodes.map(async ([id, devices]) => {
				const fake = await FakeNode.connect(server, nodeRecord({ node_id: `nod_${id}`, name: id }));
				await fake.devices(devices.map((device_id) => deviceRecord({ device_id, hardware_key: `uuid:${device_id}`, memory_pool: `pool ${id}` })));
				return fake;
			}));
			hub.plan.lie = "a".repeat(64);
			for (const [name, gigabytes] of [["Q4_K_M", 12], ["Q6_K", 20], ["Q8_0", 31], ["F16", 60]])
				hub.files.set(`maker/sizes/model-${name}.gguf`, { length: gigabytes * 1e9 });
			const { results } = await admin.call("model.search", { text: "sizes" });
			assert.deepEqual(results.map((one) => [one.format, one.fits]), [["Q4_K", "device"], ["Q6_K", "devices"], ["Q8_0", "no"], ["F16", "no"]]);
			hub.plan.store = (request, response) => { hub.refuse(response, 503); return true; };
			for (const [gone, picked] of [["none", "Q4_K_M"], ["Q4_K_M", "Q6_K"]]) { // on one device before on two, and on two before nowhere
				hub.files.delete(`maker/sizes/model-${gone}.gguf`);
				const { model_id } = await add("hf:maker/sizes");
				const model = await until(model_id, (one) => one.source.endsWith(".gguf"));
				assert.equal(model.source, `hf:maker/sizes/model-${picked}.gguf`);
				await admin.call("model.remove", { model_id });
			}
			hub.files.delete("maker/sizes/model-Q6_K.gguf");
			assert.match(await failed("hf:maker/sizes"), /none of 2 files fits.*room for 30\.50 GiB/);
			for (const [i, fake] of fakes.entries()) {
				fake.socket.close();
				await eventually(async () => (await admin.call("cluster.snapshot")).nodes.find((one) => one.node_id === `nod_${"ab"[i]}`)?.state === "offline", "it is gone");
			}
		});
		test("a hub that does not answer is named, the other's results are there", async () => {
			hub.plan.front = (request, response, url) => {
				if (url.pathname === "/api/models") { hub.refuse(response, 500); return true; }
			};
			const { results, unreachable } = await admin.call("model.search", { text: "tiny" });
			assert.equal(results.length, 1);
			assert.match(unreachable.join(), /Hugging Face.*500/);
		});
		test("whether the hubs answer: nothing is searched for, and one that does not is named", async () => {
			assert.deepEqual(await admin.call("model.reach"), { unreachable: [] });
			assert.deepEqual(hub.asked.map((one) => one.url.split("?")[0]).sort(), ["/api/models", "/search"], "one question each");
			hub.plan.front = (request, response, url) => {
				if (url.pathname === "/api/models") { hub.refuse(response, 503); return true; }
			};
			assert.match((await admin.call("model.reach")).unreachable.join(), /^Hugging Face: .*503/);
		});
		test("all who ask at once whether the hubs answer take one place of a search", async () => {
			const held = [];
			hub.plan.front = (request, response, url) => {
				if (url.pathname === "/api/models") held.push(response);
				return url.pathname === "/api/models";
			};
			const asking = Array.from({ length: 20 }, () => admin.call("model.reach"));
			await eventually(() => held.length === 1, "the hub is asked");
			hub.plan.front = undefined;
			assert.deepEqual((await admin.call("model.search", { text: "tiny" })).unreachable, [], "there is a place for a search");
			held[0].end("[]");
			for (const answer of await Promise.all(asking)) assert.deepEqual(answer, { unreachable: [] });
			assert.equal(held.length, 1);
		});
		test("answers that are no answers", async () => {
			for (const text of ["{", "{}", '[{"id":"../../etc"},{"id":5},{"id":"a/b/c"},null,[]]', `[${"[".repeat(1000)}`]) {
				hub.plan.front = (request, response) => { response.end(text); return true; };
				assert.deepEqual((await admin.call("model.search", { text: "x" })).results, []);
			}
		});
	});

	describe("the command line", () => {
		const exogpu = (...words) => run([...words, "--data", server.data]);

		test("add, list, remove", async () => {
			const path = local("cli.gguf");
			const added = await exogpu("model", "add", path, "--name", "mine");
			assert.equal(added.code, 0, added.stderr);
			assert.match(added.stdout, /^mine is ready: llama/);
			const { stdout } = await exogpu("model", "list");
			assert.match(stdout, /mine\s+ready\s+F32/);
			assert.match((await exogpu("model", "remove", "mine")).stdout, /^removed mod_/);
			assert.match((await exogpu("model", "list")).stderr, /No models/);
			assert.equal((await exogpu("model", "add", "/nonexistent.gguf")).code, 1);
			assert.equal((await exogpu("model", "add")).code, 2);
			const wrong = await exogpu("model", "add", "hf:maker/small/none.gguf");
			assert.equal(wrong.code, 1);
			assert.match(wrong.stderr, /404/);
		});
		test("a download is followed in lines; --json prints the model", async () => {
			hub.plan.slow = 10;
			const { code, stdout, stderr } = await exogpu("model", "add", "hf:maker/large/model-F16.gguf", "--json");
			assert.equal(code, 0, stderr);
			assert.match(stderr, /downloading/);
			assert.equal(JSON.parse(stdout).sha256, sha256(large));
		});
		test("Ctrl-C leaves it going, and says so", async () => {
			hub.plan.slow = 60;
			const one = launch(["model", "add", "hf:maker/large/model-F16.gguf", "--data", server.data]);
			await within(new Promise((resolve) => one.child.stderr.on("data", () => /downloading/.test(one.output.stderr) && resolve())), "it downloads");
			one.child.kill("SIGINT");
			const { code, stdout } = await within(one.exited, "it ends");
			assert.equal(code, 0);
			assert.match(stdout, /still being added/);
			hub.plan = {};
			await until((await admin.call("model.list")).models[0].model_id, stateIs("ready"));
		});
		test("search, and a token from a file", async () => {
			assert.match((await exogpu("model", "search", "tiny")).stdout, /ollama:tiny:latest/);
			hub.token = "from-a-file";
			writeFileSync(join(folder, "token"), "from-a-file\n", { mode: 0o600 });
			const { code, stderr } = await exogpu("model", "add", "hf:maker/small/model-Q8_0.gguf", "--token-file", join(folder, "token"));
			assert.equal(code, 0, stderr);
			assert.equal((await exogpu("model", "add", "hf:maker/small/model-Q8_0.gguf", "--token-file", "/nonexistent")).code, 1);
		});
	});
});
