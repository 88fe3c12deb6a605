// A local server that behaves as Hugging Face, the Ollama registry and the store behind both do: files by range, behind
// redirects whose URLs run out, tokens, rate limits, broken connections. What it does wrong is said by `plan`.
import { createHash } from "node:crypto";
import { once } from "node:events";
import http from "node:http";

export const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

// A file that the repository itself has; others are in the store, by their SHA-256.
const isText = (path) => /\.(json|jinja)$/.test(path);

export class Hub {
	constructor() {
		this.files = new Map();    // "owner/repo/path": bytes
		this.blobs = new Map();    // digest: bytes
		this.library = new Map();  // "library/name:tag": digest
		this.token = undefined;    // that files need
		this.parameters = new Map(); // "library/name:tag": digest of what Ollama says of drawing tokens
		this.asked = [];           // {method, url, headers, server}
		this.plan = {};            // what goes wrong, see serve() and api()
		this.tag = '"one"';        // the store's ETag
		this.sockets = new Set();
		this.sent = 0;             // bytes of files, slowly
		this.due = 0;              // when the next piece may go, with plan.pace
	}

	static async start() {
		const hub = new Hub();
		for (const name of ["front", "store"]) {
			const server = hub[name] = http.createServer((request, response) => {
				hub.asked.push({ server: name, method: request.method, url: request.url, headers: request.headers });
				hub[`answer_${name}`](request, response, new URL(request.url, "http://host"));
			});
			server.on("connection", (socket) => {
				hub.sockets.add(socket);
				socket.on("close", () => hub.sockets.delete(socket));
			});
			server.listen(0, "127.0.0.1");
			await once(server, "listening");
		}
		hub.url = `http://127.0.0.1:${hub.front.address().port}`;
		hub.storeUrl = `http://127.0.0.1:${hub.store.address().port}`;
		return hub;
	}

	stop() {
		this.front.close();
		this.store.close();
		for (const socket of this.sockets) socket.destroy();
	}

	ranges() {
		return this.asked.filter((one) => one.server === "store").map((one) => one.headers.range);
	}

	json(response, value, status = 200) {
		response.writeHead(status, { "content-type": "application/json" });
		response.end(JSON.stringify(value));
	}

	refuse(response, status, headers = {}) {
		response.writeHead(status, headers);
		response.end("no");
	}

	answer_front(request, response, url) {
		if (this.plan.front?.(request, response, url)) return;
		const path = decodeURIComponent(url.pathname);
		const [, repository, tree] = /^\/api\/models\/([^/]+\/[^/]+)\/tree\/([^/]+)$/.exec(path) ?? [];
		const [, owner, revision, file] = /^\/([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/.exec(path) ?? [];
		const [, model, tag] = /^\/v2\/(.+)\/manifests\/([^/]+)$/.exec(path) ?? [];
		const [, digest] = /^\/v2\/.+\/blobs\/sha256:([0-9a-f]{64})$/.exec(path) ?? [];
		if (path === "/api/models") return this.json(response, this.search(url.searchParams.get("search"), url.searchParams.get("filter")));
		if (path === "/search") return this.page(response, url.searchParams.get("q"));
		const at = (name, commit) => (commit === "main" ? name : `${name}@${commit}`); // as `files` has them
		if (repository) return this.tree(response, at(repository, tree));
		if (model) return this.manifest(response, `${model}:${tag}`);
		if (owner) return this.resolve(request, response, `${at(owner, revision)}/${file}`);
		if (digest) return this.redirect(response, `/blob/${digest}`, {});
		this.refuse(response, 404);
	}

	search(text, filter) {
		const names = new Set([...this.files.keys()].filter((name) => name.endsWith(`.${filter}`)).map((name) => name.split("/").slice(0, 2).join("/")));
		return [...names].filter((name) => name.toLowerCase().includes(text.toLowerCase()))
			.map((id) => ({ id, modelId: id, downloads: 1234, tags: ["gguf"] }));
	}

	page(response, text) {
		response.writeHead(200, { "content-type": "text/html" });
		response.end(`<html><ul>${[...this.library.keys()].map((name) => name.replace(/^library\//, "").replace(/:.*/, ""))
			.filter((name) => name.includes(text)).map((name) => `<li><a href="/library/${name}" class="x">${name}</a></li>`).join("")}</ul>`);
	}

	tree(response, repository) {
		if (![...this.files.keys()].some((name) => name.startsWith(`${repository}/`))) return this.refuse(response, 404);
		this.json(response, [{ type: "directory", path: "more" }, { type: "file", path: "README.md", size: 10 },
			...[...this.files].filter(([name]) => name.startsWith(`${repository}/`)).map(([name, bytes]) => {
				const path = name.slice(repository.length + 1), size = this.plan.sizes?.[path] ?? bytes.length;
				return { type: "file", path, size: isText(path) ? size : 133, oid: "0".repeat(40), ...(isText(path) ? {} :
					{ lfs: { oid: this.promise(path, bytes), size, pointerSize: 133 } }) };
			})]);
	}

	// plan.lie: what every file is said to have; plan.lies: {path: digest}.
	promise(path, bytes) {
		return this.plan.lies?.[path] ?? this.plan.lie ?? sha256(bytes);
	}

	manifest(response, name) {
		const digest = this.library.get(name);
		if (!digest) return this.refuse(response, 404);
		this.json(response, { schemaVersion: 2, layers: [
			{ mediaType: "application/vnd.ollama.image.license", digest: `sha256:${"1".repeat(64)}`, size: 12 },
			{ mediaType: "application/vnd.ollama.image.model", digest: `sha256:${digest}`, size: this.blobs.get(digest).length },
			...(this.parameters.has(name) ? [{ mediaType: "application/vnd.ollama.image.params", digest: `sha256:${this.parameters.get(name)}`, size: 5 }] : [])] });
	}

	resolve(request, response, name) {
		const bytes = this.files.get(name);
		if (!bytes) return this.refuse(response, 404);
		if (this.token && request.headers.authorization !== `Bearer ${this.token}`) return this.refuse(response, 401);
		const path = name.split("/").slice(2).join("/");
		this.redirect(response, `/file/${encodeURIComponent(name)}`, isText(path) ? {} : {
			"x-linked-size": bytes.length, "x-linked-etag": `"${this.promise(path, bytes)}"` });
	}

	redirect(response, path, headers) {
		this.refuse(response, 302, { ...headers, location: `${this.plan.elsewhere ?? this.storeUrl}${path}?signature=${this.plan.signature ?? 1}` });
	}

	answer_store(request, response, url) {
		const [, kind, name] = url.pathname.split("/").map(decodeURIComponent);
		this.serve(request, response, kind === "blob" ? this.blobs.get(name) : this.files.get(name));
	}

	// plan.store(request, response): true if it has answered. plan.cut: bytes after which a connection breaks, once for each
	// number. plan.plain: no ranges. plan.slow: ms between pieces of 64 KiB. plan.pace: bytes a second of
	// all connections together.
	serve(request, response, bytes) {
		if (this.plan.store?.(request, response)) return;
		if (!bytes) return this.refuse(response, 404);
		const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "") ?? [];
		const whole = this.plan.plain || first === undefined ||
			(request.headers["if-range"] && request.headers["if-range"] !== this.tag);
		if (!whole && Number(first) >= bytes.length)
			return this.refuse(response, 416, { "content-range": `bytes */${bytes.length}` });
		const from = whole ? 0 : Number(first), to = whole ? bytes.length : Math.min(bytes.length, Number(last || bytes.length - 1) + 1);
		response.writeHead(whole ? 200 : 206, {
			etag: this.tag, ...(this.plan.chunked ? {} : { "content-length": to - from }),
			...(whole ? {} : { "content-range": `bytes ${from}-${to - 1}/${bytes.length}` }) });
		const cut = this.plan.cut?.shift();
		if (cut !== undefined) {
			// Not before the system has them: what this process still holds would be lost, and the other end be a piece behind.
			response.write(bytes.subarray(from, Math.min(to, from + cut)), () => setTimeout(() => response.destroy(), 20));
		} else if (this.plan.slow || this.plan.pace) this.trickle(response, bytes, from, to);
		else response.end(bytes.subarray(from, to));
	}

	trickle(response, bytes, from, to) {
		if (from >= to || response.destroyed) return response.end();
		response.write(bytes.subarray(from, Math.min(to, from + 65536)));
		this.sent += Math.min(to, from + 65536) - from;
		const now = performance.now();
		if (this.plan.pace) this.due = Math.max(this.due, now) + 65536000 / this.plan.pace;
		setTimeout(() => this.trickle(response, bytes, from + 65536, to), this.plan.pace ? this.due - now : this.plan.slow);
	}
}
