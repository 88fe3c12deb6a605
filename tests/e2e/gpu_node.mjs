// A browser tab as a node, for tests of its GPU part alone: the page has no more than ui/src/lend/gpu, and this process
// speaks for the node. Server, client, contract and the tab's workers are the real ones; the sockets of the workers pass
// through here unread, since the page comes from here.
import { once } from "node:events";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { build } from "../../ui/node_modules/esbuild/lib/main.js";
import { WebSocket, WebSocketServer } from "ws";
import { deviceRecord, nodeRecord, passed } from "../api/records.mjs";
import { WorkerNode } from "../api/workers.mjs";

export const MIB = 2 ** 20;
const source = (name) => fileURLToPath(new URL(`../../ui/src/lend/gpu/${name}`, import.meta.url));

async function bundle(name, define = {}) {
	const { outputFiles } = await build({ entryPoints: [source(name)], bundle: true, write: false, format: "esm", define,
		target: "es2022", logLevel: "error", ...(name === "index.ts" && { format: "iife", globalName: "gpu" }) });
	return outputFiles[0].contents;
}

// The page and its worker's program, and a way for its sockets to `target`, a WebSocket address. While `greet` is set, a
// socket goes no further than to that function.
export async function servePage(target) {
	const files = {
		"/": ["text/html", '<!doctype html><title>GPU</title><link rel="icon" href="data:,"><script src="/page.js"></script>'],
		"/page.js": ["text/javascript", await bundle("index.ts", { GPU_WORKER_URL: '"/worker.js"' })],
		"/worker.js": ["text/javascript", await bundle("worker.ts")],
	};
	const server = createServer((request, response) => {
		const [type, bytes] = files[request.url] ?? ["text/plain", ""];
		response.writeHead(files[request.url] ? 200 : 404, { "content-type": type }).end(bytes);
	});
	const sockets = new WebSocketServer({ server, path: "/node", perMessageDeflate: false });
	const served = {};
	sockets.on("connection", (near, request) => {
		if (served.greet) return void served.greet(near);
		const far = new WebSocket(target, request.headers["sec-websocket-protocol"], { perMessageDeflate: false });
		const early = [];
		const close = (other) => (code, reason) => {
			try { other.close(code, reason); } catch { other.terminate(); } // a code that may not be sent
		};
		near.on("message", (bytes, binary) => (far.readyState === WebSocket.OPEN ? far.send(bytes, { binary }) : early.push([bytes, binary])));
		far.on("open", () => early.forEach(([bytes, binary]) => far.send(bytes, { binary })));
		far.on("message", (bytes, binary) => near.send(bytes, { binary }));
		near.on("close", close(far)).on("error", () => far.terminate());
		far.on("close", close(near)).on("error", () => near.terminate());
	});
	server.listen(0, "127.0.0.1");
	await once(server, "listening");
	const { port } = server.address();
	return Object.assign(served, { origin: `http://127.0.0.1:${port}`, sockets: `ws://127.0.0.1:${port}/node`, close: () => { sockets.clients.forEach((one) => one.terminate()); server.close(); } });
}

export const browserDevice = (changes = {}) => deviceRecord({ device_id: "dev_tab", hardware_key: "webgpu", name: "A browser's GPU",
	backend: "webgpu", apis: [{ backend: "webgpu", api_version: null, driver_version: null, verification: passed }],
	kind: "integrated", memory_pool: "tab", memory_bytes: 256 * MIB, memory_budget_bytes: null, formats: ["f32"], ...changes });

// A node whose one device is the GPU of `page`, which has been opened at `served.origin`. `more`: params of each worker.
export async function startTabNode(server, page, served, { limit = 256 * MIB, more = {} } = {}) {
	const node = await WorkerNode.start(server, { devices: [browserDevice({ memory_bytes: limit })], record: nodeRecord(), prepare: (made) => {
		made.reasons = []; // why workers ended by themselves
		made.more = more;
		made.open = async (message) => {
			const { worker_id, key, memory_limit_bytes } = message.params;
			made.workers.push({ worker_id, kill: () => page.evaluate((id) => workers[id]?.close(), worker_id).catch(() => {}) });
			const params = { worker_id, key, url: served.sockets, ...(memory_limit_bytes && { memory_limit_bytes }), ...made.more };
			page.evaluate((given) => {
				workers[given.worker_id] = gpu.openWorker(given, { ended: (reason) => workerEnded(given.worker_id, reason) });
				return workers[given.worker_id].ready;
			}, params).then(({ started_ms }) => made.reply(message, { started_ms, sandbox: { applied: [], missing: [] } }),
				(error) => made.fail(message, -32053, "unavailable", String(error.message).slice(0, 300)));
		};
		made.device = (message) => page.evaluate(([id, number]) => workers[id].device(number), [message.params.worker_id, message.params.device])
			.then((opened) => made.reply(message, opened), (error) => made.fail(message, -32053, "unavailable", String(error.message).slice(0, 300)));
	} });
	await page.exposeFunction("workerEnded", (worker_id, reason) => {
		node.reasons.push(reason);
		node.notify("tenant.ended", { worker_id, message: reason.slice(0, 512) || "it ended" });
	});
	await lendAgain(page, limit);
	return node;
}

// What a page does before it lends, after it was loaded again too.
export const lendAgain = (page, limit) =>
	page.evaluate((bytes) => { globalThis.workers = {}; gpu.setMemoryLimit(bytes); }, limit);
