// model.catalog: the models that are offered, whether each fits the devices that there are, and how far each has come.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { catalogueEntry, catalogueFile } from "./catalogue.mjs";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { Hub } from "./hub.mjs";
import { deviceRecord, nodeRecord } from "./records.mjs";
import { eventually, patience, run, startServer, temporary } from "./server.mjs";

const own = JSON.parse(readFileSync(new URL("../../catalog/models.json", import.meta.url), "utf8")).models;
const byId = ({ models }) => Object.fromEntries(models.map((one) => [one.id, one]));

describe("the catalogue in the binary", () => {
	let server, admin;

	before(async () => {
		server = await startServer({ args: ["--hub-url", "http://127.0.0.1:9", "--ollama-url", "http://127.0.0.1:9"] });
		admin = await Client.login(server);
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("without a device nothing is known of what fits, and the entries are those of the file", async () => {
		const { models } = await admin.call("model.catalog");
		assert.deepEqual(models.map((one) => one.id), own.map((one) => one.id));
		for (const [i, one] of models.entries()) {
			assert.deepEqual([one.fits, one.predicted_tokens_per_s, one.missing_bytes, one.state, one.model_id], ["unknown", null, null, "absent", null]);
			assert.match(one.why, /no device/);
			for (const name of ["name", "licence", "languages", "bytes", "sha256", "revision", "read"]) assert.deepEqual(one[name], own[i][name], name);
			assert.equal(one.source, `hf:${own[i].repository}${own[i].revision ? `@${own[i].revision}` : ""}/${own[i].file}`);
			assert.deepEqual(one.unverified, ["licence", "languages", "revision", "bytes", "sha256", "geometry"].filter((name) => own[i][name] === null));
		}
	});

	test("with a device: what fits, how fast, and how much memory is missing, as a placement would have it", async () => {
		const node = await FakeNode.connect(server, nodeRecord());
		const gib = 2 ** 30;
		await node.devices([deviceRecord({ memory_bytes: 8 * gib, memory_bandwidth_bytes_per_s: 200e9, largest_buffer_bytes: null })]);
		const models = await eventually(async () => {
			const answer = byId(await admin.call("model.catalog"));
			return answer["smollm2-135m-instruct"].fits === "device" && answer;
		}, "the device counts");
		const rates = ["smollm2-135m-instruct", "qwen3-0.6b", "llama-3.2-3b-instruct", "qwen3-8b"].map((id) => {
			assert.equal(models[id].fits, "device", `${id}: ${models[id].why}`);
			return models[id].predicted_tokens_per_s;
		});
		assert.deepEqual(rates, [...rates].sort((a, b) => b - a), "the larger, the slower");
		// a token reads all weights once: no faster than the memory is, and no slower than a quarter of that
		const most = 200e9 / models["qwen3-8b"].bytes;
		assert.ok(rates[3] < most && rates[3] > most / 4, `${rates[3]} of ${most} at most`);
		const large = models["qwen3-30b-a3b-instruct-2507"];
		assert.deepEqual([large.fits, large.predicted_tokens_per_s], ["no", null]);
		assert.ok(large.missing_bytes > large.bytes - 8 * gib && large.missing_bytes < large.bytes, `${large.missing_bytes} are missing`);
		assert.ok(large.why.length > 0);
		node.socket.close();
	});

	test("who may only observe sees it; who may only infer does not", async () => {
		const tokenOf = async (scopes) => (await admin.call("token.create", { name: scopes.join(" "), scopes })).token;
		const observer = await Client.login(server, await tokenOf(["observe"]));
		assert.equal((await observer.call("model.catalog")).models.length, own.length);
		const asker = await Client.login(server, await tokenOf(["infer"]));
		await asker.refused("model.catalog", {}, "forbidden");
	});

	test("the command line shows the same", async () => {
		const table = await run(["model", "catalog", "--data", server.data]);
		assert.equal(table.code, 0, table.stderr);
		for (const { name } of own) assert.ok(table.stdout.includes(name), `${name} in ${table.stdout}`);
		const json = await run(["model", "catalog", "--json", "--data", server.data]);
		assert.deepEqual(JSON.parse(json.stdout).models.map((one) => one.id), own.map((one) => one.id));
		const nothing = await run(["model", "search", "llama", "--data", server.data]);
		assert.equal(nothing.code, 1, "what could not be searched is no empty result");
		assert.match(nothing.stderr, /nothing was found.*copy a \.gguf file/s);
	});
});

describe("a catalogue of one's own", () => {
	let server, admin, hub;
	const file = modelFile({ megabytes: 1 }), commit = "89abcdef0123456789abcdef0123456789abcdef";

	before(async () => {
		hub = await Hub.start();
		hub.files.set("maker/small/model-Q8_0.gguf", file);
		hub.files.set(`maker/pinned@${commit}/model-Q8_0.gguf`, file).set("maker/pinned/model-Q8_0.gguf", modelFile({ megabytes: 0.8 }));
		const pinned = catalogueEntry("pinned", { repository: "maker/pinned", bytes: file, revision: commit });
		pinned.read[0].what.push("revision");
		const catalog = catalogueFile([pinned, catalogueEntry("small", { bytes: file }), catalogueEntry("unknown", { file: "gone.gguf", geometry: null })]);
		server = await startServer({ args: ["--hub-url", hub.url, "--ollama-url", hub.url, "--catalog", catalog] });
		admin = await Client.login(server);
	});
	after(async () => {
		hub?.stop();
		await server?.finish();
		assertContractKept();
	});

	test("an entry's state is that of the model of its source", async () => {
		const entry = async (id) => byId(await admin.call("model.catalog"))[id];
		let go;
		const held = new Promise((done) => (go = done));
		hub.plan.store = (request, response) => { // until it is let go
			held.then(() => { hub.plan.store = undefined; hub.serve(request, response, file); });
			return true;
		};
		const { source, state } = await entry("small");
		assert.equal(state, "absent");
		const { model_id } = await admin.call("model.add", { source });
		assert.deepEqual([(await entry("small")).state, (await entry("small")).model_id], ["downloading", model_id]);
		go();
		await eventually(async () => (await entry("small")).state === "ready", "it is here", 6 * patience);
		await admin.call("model.remove", { model_id });
		assert.deepEqual([(await entry("small")).state, (await entry("small")).model_id], ["absent", null]);
	});

	test("a download is of the commit that the entry names; a file that was added by its name alone counts, too", async () => {
		const entry = async () => byId(await admin.call("model.catalog")).pinned;
		const add = async (source) => {
			const { model_id } = await admin.call("model.add", { source });
			await eventually(async () => (await entry()).state === "ready", "it is here", 6 * patience);
			return (await admin.call("model.list")).models.find((one) => one.model_id === model_id);
		};
		const { source } = await entry(), unpinned = "hf:maker/pinned/model-Q8_0.gguf";
		assert.equal(source, `hf:maker/pinned@${commit}/model-Q8_0.gguf`);
		const model = await add(source);
		assert.deepEqual([model.sha256, (await entry()).source], [(await entry()).sha256, source]);
		await admin.call("model.remove", { model_id: model.model_id });
		const other = await add(unpinned);
		assert.notEqual(other.sha256, (await entry()).sha256, "the branch main has another file");
		assert.equal((await entry()).source, unpinned);
		assert.equal((await admin.call("model.add", { source: (await entry()).source })).model_id, other.model_id, "and is not fetched again");
		await admin.call("model.remove", { model_id: other.model_id });
	});

	test("one that the hub does not have fails, and says so", async () => {
		const { source, fits, unverified } = byId(await admin.call("model.catalog")).unknown;
		assert.deepEqual([fits, unverified], ["unknown", ["revision", "bytes", "sha256", "geometry"]]);
		await admin.call("model.add", { source });
		await eventually(async () => byId(await admin.call("model.catalog")).unknown.state === "failed", "it has failed", 6 * patience);
	});

	test("a file that says what cannot be is refused at the start, with the entry and the reason", async () => {
		const refused = async (entry, pattern) => {
			const { code, stderr } = await run(["serve", "--data", temporary(), "--listen", "127.0.0.1:0", "--no-local-node", "--catalog", catalogueFile([entry])]);
			assert.equal(code, 1);
			assert.match(stderr, pattern);
		};
		await refused(catalogueEntry("odd", { bytes: file, geometry: { ...catalogueEntry("x").geometry, architecture: "mamba" } }), /odd of the catalogue: this architecture is not computed/);
		await refused(catalogueEntry("bare", { bytes: file, read: [] }), /bare of the catalogue: where licence was read is not said/);
		await refused(catalogueEntry("far", { bytes: file, repository: "../.." }), /far of the catalogue/);
	});
});
