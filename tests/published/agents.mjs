// What agents are run against: a server with a model whose worker says what the test wrote. All else is real.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client, assertContractKept } from "../api/client.mjs";
import { ModelWorker } from "../api/generating.mjs";
import { modelFile } from "../api/gguf.mjs";
import { eventually, startServer, temporary } from "../api/server.mjs";
import { WorkerNode } from "../api/workers.mjs";

export const call = (name, args) => `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`;

export class Stage {
	// says(params, results): what the model answers, where `results` are the texts of tools so far: pieces, or {pieces, end}, of which
	// an end null never comes.
	static async start(says) {
		const stage = new Stage(), server = await startServer(), admin = await Client.login(server);
		const node = await WorkerNode.start(server, { Worker: ModelWorker }), source = join(temporary(), "words.gguf");
		Object.assign(stage, { server, node, says, asked: [] });
		writeFileSync(source, modelFile({ context: 65536 }));
		await admin.call("model.add", { source });
		const model = await eventually(async () => (await admin.call("model.list")).models.find((one) => one.state === "ready"), "the model is ready");
		await admin.call("instance.create", { model_id: model.model_id, context_tokens: 65536 });
		await eventually(async () => (await admin.call("instance.list")).instances[0]?.state === "running", "the instance is ready");
		({ token: stage.token } = await admin.call("token.create", { name: "infer", scopes: ["infer"], expires_in_s: 3600 }));
		const worker = node.worker(), syntax = { calls: "hermes", thoughts: "think", opened: false };
		worker.answers["generate.start"] = (params) => {
			if (params.counts) return { result: { prompt_tokens: 7 } };
			const results = params.prompt.messages.filter(({ role }) => role === "tool").map((one) => one.text), answer = stage.says(params, results);
			const { pieces, end } = Array.isArray(answer) ? { pieces: answer, end: "stop" } : answer;
			stage.asked.push({ params, results });
			worker.requests.set(params.request, { params, tokens: 0 });
			setImmediate(() => {
				pieces.forEach((piece, at) => worker.tell("generate.delta", { request: params.request, tokens: [1], text: piece, ...at ? {} : { syntax } }));
				if (end) worker.finish(params.request, end, end === "failed" ? { error: "a fault" } : {});
			});
			return { result: { prompt_tokens: 7 } };
		};
		worker.answers["generate.embed"] = ({ dimensions = 4 }) => ({ result: { embedding: [0.5, -0.25, 0.125, 0].slice(0, dimensions), prompt_tokens: 3 } });
		return stage;
	}

	async finish() {
		this.node?.socket.close();
		await this.server?.finish();
		assertContractKept();
	}
}
