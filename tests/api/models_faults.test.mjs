// Downloads that something goes wrong with in the middle: a disk that fills up, and sources that lie about lengths.
import assert from "node:assert/strict";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { smallDisk } from "./disk.mjs";
import { modelFile } from "./gguf.mjs";
import { Hub, sha256 } from "./hub.mjs";
import { eventually, patience, startServer } from "./server.mjs";

const small = modelFile(), large = modelFile({ megabytes: 9 });
const reserve = 256; // MiB, LIMIT_FETCH_RESERVE_MIB

async function begin(data) {
	const hub = await Hub.start();
	hub.files = new Map([["maker/small/model-Q8_0.gguf", small], ["maker/large/model-F16.gguf", large]]);
	const server = await startServer({ ...(data ? { data } : {}), args: ["--hub-url", hub.url, "--ollama-url", hub.url] }), admin = await Client.login(server);
	const look = async (model_id) => (await admin.call("model.list")).models.find((one) => one.model_id === model_id);
	const until = (model_id, fits) => eventually(async () => { const one = await look(model_id); return fits(one) && one; }, `${model_id} is as wanted`, 6 * patience);
	const ended = async (source) => until((await admin.call("model.add", { source })).model_id, (one) => one.state !== "downloading");
	const url = (name) => `${hub.storeUrl}/file/${encodeURIComponent(name)}`;
	return { hub, server, admin, until, ended, url, finish: async () => { hub.stop(); await server.finish(); } };
}

test("a disk that fills up while a file comes", async (context) => {
	const disk = smallDisk((reserve + 48) * 1024);
	if (!disk) return context.skip("no file system can be mounted here");
	const { hub, server, admin, until, ended, url, finish } = await begin(disk.data);
	const filler = join(disk.data, "other");
	const halfway = async (source) => {
		const { model_id } = await admin.call("model.add", { source });
		await until(model_id, (one) => one.state === "failed" || one.progress?.done_bytes > 1e6);
		writeFileSync(filler, Buffer.alloc(47 << 20));
		return until(model_id, (one) => one.state !== "downloading");
	};
	hub.plan = { slow: 40 };
	const whole = await halfway(url("maker/large/model-F16.gguf")); // its room was taken when it began
	assert.equal(whole.state, "ready", whole.state_reason);
	rmSync(filler);
	await admin.call("model.remove", { model_id: whole.model_id });
	hub.plan = { slow: 60, plain: true, chunked: true };
	const cut = await halfway(url("maker/large/model-F16.gguf")); // nobody knew how long it is
	assert.equal(cut.state, "failed");
	assert.match(cut.state_reason, /no room|No space.*free space/s);
	const [entry] = (await admin.call("audit.list", { action: "model.failed", limit: 1 })).entries;
	assert.deepEqual([entry.target, entry.outcome], [cut.model_id, "limit_exceeded"]);
	rmSync(filler);
	hub.plan = {};
	const again = await ended(url("maker/large/model-F16.gguf"));
	assert.deepEqual([again.model_id, again.state, again.sha256], [cut.model_id, "ready", sha256(large)]);
	assert.ok(readFileSync(join(server.data, "models", `${again.model_id}.gguf`)).equals(large));
	await finish();
});

describe("a source that lies about a length", () => {
	let it;
	before(async () => (it = await begin()));
	beforeEach(async () => {
		for (const { model_id } of (await it.admin.call("model.list")).models) await it.admin.call("model.remove", { model_id });
		it.hub.plan = {};
		it.hub.library = new Map();
		it.hub.blobs = new Map([[sha256(small), small]]);
	});
	after(async () => {
		await it?.finish();
		assertContractKept();
	});
	const failed = async (source, why) => {
		const model = await it.ended(source);
		assert.deepEqual([model.state, why.test(model.state_reason)], ["failed", true], model.state_reason);
		await eventually(() => !readdirSync(join(it.server.data, "models")).some((name) => name.endsWith(".gguf")), "no file is left that could be taken for whole");
	};
	const answer = (status, headers, body) => (it.hub.plan.store = (request, response) => { response.writeHead(status, headers); response.end(body); return true; });

	for (const more of [1000, -1000])
		test(`the hub, by ${more} bytes`, async () => {
			it.hub.plan.front = (request, response) => {
				if (!request.url.includes("/resolve/")) return false;
				it.hub.redirect(response, `/file/${encodeURIComponent("maker/small/model-Q8_0.gguf")}`,
					{ "x-linked-size": small.length + more, "x-linked-etag": `"${sha256(small)}"` });
				return true;
			};
			await failed("hf:maker/small/model-Q8_0.gguf", /another length than the hub says/);
		});
	for (const more of [1000, -1000])
		test(`Ollama's manifest, by ${more} bytes`, async () => {
			it.hub.plan.front = (request, response) => {
				if (!request.url.includes("/manifests/")) return false;
				it.hub.json(response, { layers: [{ mediaType: "application/vnd.ollama.image.model", digest: `sha256:${sha256(small)}`, size: small.length + more }] });
				return true;
			};
			await failed("ollama:tiny:latest", /another length than the hub says/);
		});
	test("the store: more is announced than there is", async () => {
		const total = small.length + 100000;
		it.hub.plan.store = (request, response) => {
			const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range).map(Number), end = Math.min(last, small.length - 1);
			if (first >= small.length) { it.hub.refuse(response, 416, { "content-range": `bytes */${small.length}` }); return true; }
			response.writeHead(206, { etag: '"one"', "content-length": end - first + 1, "content-range": `bytes ${first}-${end}/${total}` });
			response.end(small.subarray(first, end + 1));
			return true;
		};
		await failed(it.url("a.gguf"), /changed during the download/);
	});
	test("the store: less is announced than there is", async () => {
		answer(200, { "content-length": 5000 }, small.subarray(0, 5000));
		await failed(it.url("b.gguf"), /beyond its end.*incomplete/s);
	});
	test("the store: more comes than was announced", async () => {
		it.hub.plan.store = (request, response) => {
			response.socket.end(Buffer.concat([Buffer.from(`HTTP/1.1 200 OK\r\nContent-Length: ${small.length - 5000}\r\n\r\n`), small]));
			return true;
		};
		await failed(it.url("c.gguf"), /does not lie within.*incomplete|more than it announced/s);
	});
});
