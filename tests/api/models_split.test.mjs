// Models in several files: any of them stands for all, from a folder, a hub and a URL; what was split comes out byte by
// byte as it was before, goes on after a break, and a part that is missing or another one's is named.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile, splitFile } from "./gguf.mjs";
import { Hub, sha256 } from "./hub.mjs";
import { eventually, patience, startServer, temporary } from "./server.mjs";

const whole = modelFile({ megabytes: 6 }), parts = splitFile(3, { megabytes: 6 });
const named = (number, count = 3, name = "big-Q8_0") => `${name}-${String(number).padStart(5, "0")}-of-${String(count).padStart(5, "0")}.gguf`;

describe("models in several files", () => {
	let server, admin, hub, folder;

	const start = async (data) => {
		server = await startServer({ data, args: ["--hub-url", hub.url] });
		admin = await Client.login(server);
	};
	const until = (model_id, fits, what) => eventually(async () => {
		const one = (await admin.call("model.list")).models.find((model) => model.model_id === model_id);
		return one && fits(one) && one;
	}, what, 6 * patience);
	const ended = async (source, more) => until((await admin.call("model.add", { source, ...more })).model_id,
		({ state }) => state === "ready" || state === "failed", `${source} is ready or failed`);
	const ready = async (source, more) => {
		const model = await ended(source, more);
		assert.equal(model.state, "ready", model.state_reason);
		return until(model.model_id, (one) => one.sha256, "its digest is known");
	};
	const failed = async (source, more) => {
		const model = await ended(source, more);
		assert.equal(model.state, "failed");
		return model.state_reason;
	};
	const files = () => readdirSync(join(server.data, "models")).sort();
	const isWhole = (model) => {
		assert.ok(readFileSync(join(server.data, "models", `${model.model_id}.gguf`)).equals(whole), "it is what was split");
		assert.deepEqual([model.sha256, model.file_bytes], [sha256(whole), whole.length]);
	};
	const alone = (model) => eventually(() => files().length === 1 && files()[0] === `${model.model_id}.gguf`, "nothing else of it is left", patience);
	const write = (where, given = parts) => {
		const path = join(folder, where);
		mkdirSync(path, { recursive: true });
		given.forEach((bytes, i) => bytes && writeFileSync(join(path, named(i + 1)), bytes));
		return path;
	};
	const offer = (repository, given = parts, name) => given.forEach((bytes, i) => bytes && hub.files.set(`maker/${repository}/${named(i + 1, 3, name)}`, bytes));

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
		for (const { model_id } of (await admin.call("model.list")).models) await admin.call("model.remove", { model_id });
		hub.files = new Map();
	});

	describe("in a folder", () => {
		test("any of them adds all as one model, once; the files stay", async () => {
			const path = write("good"), model = await ready(join(path, named(2)));
			assert.deepEqual([model.name, model.source], ["big-Q8_0", join(path, named(1))]);
			isWhole(model);
			for (const number of [1, 2, 3])
				assert.equal((await admin.call("model.add", { source: join(path, named(number)) })).model_id, model.model_id);
			await server.finish();
			await start(server.data);
			assert.equal((await admin.call("model.list")).models[0].state, "ready");
			const { freed_bytes } = await admin.call("model.remove", { model_id: model.model_id });
			assert.ok(freed_bytes >= whole.length, `${freed_bytes}`);
			assert.ok([1, 2, 3].every((number) => existsSync(join(path, named(number)))));
			await eventually(() => !files().length, "the file that was made is gone", patience);
		});
		test("one that is missing is named, and taken when it is there", async () => {
			const path = write("lacking", [parts[0], null, parts[2]]);
			assert.match(await failed(join(path, named(1))), /part 2 of 3: .*big-Q8_0-00002-of-00003\.gguf cannot be opened/);
			writeFileSync(join(path, named(2)), parts[1]);
			isWhole(await ready(join(path, named(1))));
		});
		test("one that is another's is named", async () => {
			assert.match(await failed(join(write("swapped", [parts[0], parts[0], parts[2]]), named(1))), /part 2 of 3: .*says that it is part 1 of 3/);
			assert.match(await failed(join(write("foreign", [parts[0], splitFile(2, { megabytes: 6 })[1], parts[2]]), named(1))), /part 2 of 3: .*says that it is part 2 of 2/);
			assert.match(await failed(join(write("none", [parts[0], parts[1], whole]), named(1))), /part 3 of 3: .*does not say which part/);
			assert.match(await failed(join(write("short", [parts[0], parts[1].subarray(0, parts[1].length - 4096), parts[2]]), named(1))), /part 2 of 3: .*does not lie within/);
			assert.match(await failed(join(write("smaller", [parts[0], splitFile(3, { megabytes: 3 })[1], parts[2]]), named(1))), /tensors/);
			assert.deepEqual(files(), []);
		});
		test("what is no number of a part is a file like any other", async () => {
			for (const name of ["a-00004-of-00003.gguf", "a-00000-of-00003.gguf", "a-00001-of-00999.gguf", "a-1-of-3.gguf"]) {
				writeFileSync(join(folder, name), whole);
				assert.equal((await ready(join(folder, name))).source, join(folder, name));
			}
			writeFileSync(join(folder, "renamed.gguf"), parts[0]);
			assert.match(await failed(join(folder, "renamed.gguf")), /part 1 of 3/);
		});
	});

	describe("of a hub", () => {
		test("any of them fetches all, each checked", async () => {
			offer("split");
			hub.files.set("maker/split/generation_config.json", Buffer.from('{"temperature":0.4}'));
			const model = await ready(`hf:maker/split/${named(3)}`);
			assert.deepEqual([model.name, model.source, model.architecture.sampling.temperature], ["big-Q8_0", `hf:maker/split/${named(1)}`, 0.4]);
			isWhole(model);
			await alone(model);
			assert.equal((await admin.call("model.add", { source: `hf:maker/split/${named(2)}` })).model_id, model.model_id);
		});
		test("a repository that is named alone has it as one of its models", async () => {
			offer("several");
			offer("several", [parts[0], parts[1]], "lacking-Q4_K_M");
			const model = await ready("hf:maker/several");
			assert.equal(model.source, `hf:maker/several/${named(1)}`);
			isWhole(model);
			offer("lacking", [parts[0], null, parts[2]]);
			assert.match(await failed("hf:maker/lacking"), /has 2 of 3/);
		});
		test("a part that the hub does not have, or that is not what it promises, is named", async () => {
			offer("lacking", [parts[0], parts[1]]);
			assert.match(await failed(`hf:maker/lacking/${named(1)}`), /part 3 of 3: .*404/);
			offer("lie");
			hub.plan.lie = "a".repeat(64);
			assert.match(await failed(`hf:maker/lie/${named(1)}`), /part 1 of 3: .*SHA-256/);
			hub.plan = {};
			hub.token = "secret-of-the-hub";
			offer("closed");
			assert.match(await failed(`hf:maker/closed/${named(1)}`), /part 1 of 3: .*access token/);
			isWhole(await ready(`hf:maker/closed/${named(1)}`, { access_token: hub.token }));
		});
		test("connections that break are taken up where they were", async () => {
			offer("split");
			hub.plan.cut = [700000, 300000, 5];
			isWhole(await ready(`hf:maker/split/${named(1)}`));
		});
		for (const signal of ["SIGTERM", "SIGKILL"])
			test(`it goes on after ${signal}, with the parts that are there`, async () => {
				offer("split");
				hub.plan.slow = 60;
				const { model_id } = await admin.call("model.add", { source: `hf:maker/split/${named(1)}` });
				await until(model_id, ({ progress }) => progress?.done_bytes > parts[0].length, "the first part is there");
				await server.stop(signal);
				const before = hub.asked.length;
				hub.plan = {};
				await start(server.data);
				const model = await until(model_id, ({ state, sha256: digest }) => state === "failed" || (state === "ready" && digest), "it is ready");
				isWhole(model);
				assert.ok(!hub.asked.slice(before).some(({ server: which, url }) => which === "store" && decodeURIComponent(url).includes(named(1))), "the first is not asked for again");
				await alone(model);
			});
		test("one that is removed while it is fetched leaves nothing", async () => {
			offer("split");
			hub.plan.slow = 60;
			const { model_id } = await admin.call("model.add", { source: `hf:maker/split/${named(1)}` });
			await until(model_id, ({ progress }) => progress?.done_bytes > parts[0].length, "the first part is there");
			const { freed_bytes } = await admin.call("model.remove", { model_id });
			assert.ok(freed_bytes >= parts[0].length, `${freed_bytes}`);
			await eventually(() => !files().length, "nothing is left", patience);
		});
	});

	test("by URL, with a query", async () => {
		hub.plan.store = undefined;
		parts.forEach((bytes, i) => hub.files.set(named(i + 1), bytes));
		const model = await ready(`${hub.storeUrl}/file/${named(2)}?key=hidden-secret`);
		isWhole(model);
		assert.ok(!JSON.stringify(model).includes("hidden-secret"));
		assert.ok(hub.asked.filter(({ server: which }) => which === "store").every(({ url }) => url.includes("hidden-secret")));
		rmSync(folder, { recursive: true, force: true });
	});
});
