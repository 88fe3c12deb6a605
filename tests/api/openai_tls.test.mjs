// /v1 and `exogpu run` from elsewhere: over TLS by the cluster's own authority, which the client has been told to trust.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import https from "node:https";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeCertificate } from "./certificates.mjs";
import { Client, assertContractKept } from "./client.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { eventually, patience, run, startServer, temporary, within } from "./server.mjs";
import { WorkerNode } from "./workers.mjs";

// What a user writes: the package, with its own way of reaching the server.
const program = `
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.argv[1] + "v1", apiKey: process.argv[2], maxRetries: 0 });
const ask = { model: "words", messages: [{ role: "user", content: "one two three" }] };
const words = [(await client.chat.completions.create(ask)).choices[0].message.content];
for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) words.push(chunk.choices[0]?.delta.content ?? "");
console.log(words.join("|"));
`;

describe("/v1 over TLS", () => {
	let server, admin, node, token, url, ca;
	const prompt = { model: "words", prompt: "one two", max_tokens: 9 };
	// The program above as a process of its own, since what node trusts is said when it starts.
	const client = (env) => within(new Promise((resolve) => execFile(process.execPath, ["--input-type=module", "-e", program, url, token],
		{ cwd: fileURLToPath(new URL(".", import.meta.url)), env: { ...process.env, ...env } },
		(error, stdout, stderr) => resolve({ code: error?.code ?? 0, stdout, stderr }))), "the openai package ends", 4 * patience);
	const exogpu = (...words) => run(["run", "words", "four five", "--url", url, ...words], { EXOGPU_TOKEN: token, EXOGPU_CA: "" });

	before(async () => {
		server = await startServer({ listen: "0.0.0.0:0" });
		url = `https://127.0.0.1:${server.port}/`;
		ca = join(server.data, "tls", "authority.pem");
		admin = await Client.login(server);
		node = await WorkerNode.start(server, { Worker: ModelWorker });
		const path = join(temporary(), "words.gguf");
		writeFileSync(path, modelFile());
		const { model_id } = await admin.call("model.add", { source: path });
		await eventually(async () => (await admin.call("model.list")).models[0].state === "ready", "the model is ready");
		await admin.call("instance.create", { model_id });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		({ token } = await admin.call("token.create", { name: "far", scopes: ["infer", "observe"], expires_in_s: 3600 }));
	});
	after(async () => {
		node?.socket.close();
		await server?.finish();
		assertContractKept();
	});

	test("the openai package, whole and as it comes", async () => {
		const { code, stdout, stderr } = await client({ NODE_EXTRA_CA_CERTS: ca });
		assert.deepEqual([code, stdout.trim()], [0, "one two three||one| two| three|"], stderr);
	});
	test("without the authority it refuses the server", async () => {
		const { code, stdout, stderr } = await client({ NODE_EXTRA_CA_CERTS: "" });
		assert.notEqual(code, 0, stdout);
		assert.match(stderr, /[Cc]ertificate|CERT|Connection error/);
	});
	test("`exogpu run`, as it comes and as JSON", async () => {
		const { code, stdout, stderr } = await exogpu("--ca", ca);
		assert.deepEqual([code, stdout], [0, "four five\n"], stderr);
		const json = await exogpu("--ca", ca, "--json");
		assert.equal(json.code, 0, json.stderr);
		assert.equal(JSON.parse(json.stdout).choices[0].message.content, "four five");
	});
	test("`exogpu run` asks no server that another authority vouches for, and sends it no token", async () => {
		const other = join(temporary(), "other.pem");
		writeFileSync(other, makeCertificate({ name: "another", authority: true }).pem);
		for (const words of [["--ca", other], ["--ca", "system"]]) {
			const { code, stderr } = await exogpu(...words);
			assert.equal(code, 1);
			assert.match(stderr, /--ca|authority|certificate/);
		}
		assert.equal(node.worker().requests.size, 0);
	});
	test("chunks, and a client that waits to be told to go on", async () => {
		const body = JSON.stringify(prompt);
		for (const headers of [{ "transfer-encoding": "chunked" }, { expect: "100-continue", "content-length": body.length },
			{ expect: "100-continue", "transfer-encoding": "chunked" }]) {
			const answer = await within(new Promise((resolve, reject) => {
				const request = https.request({ host: "127.0.0.1", port: server.port, ca: server.ca, path: "/v1/completions", method: "POST",
					headers: { authorization: `Bearer ${token}`, ...headers } }, (response) => {
					let text = "";
					response.setEncoding("utf8").on("data", (piece) => (text += piece)).on("end", () => resolve([response.statusCode, JSON.parse(text).choices[0].text]));
				});
				request.on("error", reject);
				const send = () => { request.write(body.slice(0, 5)); request.end(body.slice(5)); };
				if (headers.expect) request.on("continue", send).flushHeaders();
				else send();
			}), "an answer");
			assert.deepEqual(answer, [200, "one two"]);
		}
	});
});
