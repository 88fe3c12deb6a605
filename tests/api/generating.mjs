// A model's worker as the server sees it: it loads at once, and generates the words of its prompt, or what a test says.
import { FakeWorker } from "./workers.mjs";

export const memory = { weights_bytes: 1000000, kv_bytes: 200000, workspace_bytes: 30000, host_bytes: 0 };

export class ModelWorker extends FakeWorker {
	static times; // of each stage, as workers measure them; undefined: not told

	constructor(server, opened) {
		super(server, opened);
		Object.assign(this, { opened, requests: new Map(), embeds: new Map(), manual: false, prompt_ms: 0 });
	}

	tell(method, params) {
		this.send({ jsonrpc: "2.0", method, params });
	}

	/** Answers the next requests with these texts, in this syntax of calls and thoughts, until answers["generate.start"] is deleted. */
	says(texts, syntax, end = {}) {
		this.answers["generate.start"] = (params) => {
			const { request } = params;
			this.requests.set(request, { params, tokens: 0 });
			setImmediate(() => {
				texts.forEach((text, at) => {
					this.requests.get(request).tokens++;
					this.tell("generate.delta", { request, tokens: [1], text, ...at ? {} : { syntax } });
				});
				this.finish(request, end.reason ?? "stop", end);
			});
			return { result: { prompt_tokens: 7 } };
		};
	}

	run(method, params, body, id) {
		switch (method) {
		case "instance.load":
			this.tell("instance.progress", { loaded_bytes: 500000, total_bytes: 1000000 });
			return { result: { memory: params.stages.map(() => memory), load_ms: 12.5,
				...(ModelWorker.times && { times: params.stages.map(() => ModelWorker.times) }), loaded_bytes: 1000000, chat_template: "chatml",
				vocabulary: 300, embedding: 4 } };
		case "generate.start":
			if (params.counts) return { result: { prompt_tokens: JSON.stringify(params.prompt).length } };
			this.requests.set(params.request, { params, tokens: 0 });
			setImmediate(() => this.manual || this.requests.has(params.request) && this.babble(params));
			return { result: { prompt_tokens: 7 } };
		case "generate.cancel":
			if (this.requests.has(params.request)) this.finish(params.request, "cancelled");
			if (this.embeds.has(params.request))
				this.send({ jsonrpc: "2.0", id: this.embeds.get(params.request),
					error: { code: -32053, message: "the request was cancelled", data: { reason: "unavailable", hint: null } } });
			this.embeds.delete(params.request);
			return { result: {} };
		case "generate.embed":
			if (this.manual) {
				this.embeds.set(params.request, id);
				return null;
			}
			return { result: { embedding: [0.5, -0.25, 0.125, 0], prompt_tokens: 3 } };
		default: return super.run(method, params, body);
		}
	}

	// The prompt's words come back, one token each; of one that goes on those that have not been said.
	babble({ request, prompt, max_tokens, sampling, stop, echo, generated = [] }) {
		const text = prompt.text ?? prompt.messages?.at(-1).text ?? prompt.tokens.join(" ");
		const words = text.split(" ").map((word, i) => (i ? " " : "") + word);
		if (echo) this.say(request, text, { tokens: [] });
		const at = words.findIndex((word) => stop?.some((one) => word.includes(one)));
		const said = words.slice(0, Math.min(at < 0 ? words.length : at, max_tokens ?? words.length));
		for (const word of said.slice(generated.length)) this.say(request, word, { logprobs: sampling?.logprobs, top: sampling?.top_logprobs ?? 0 });
		this.finish(request, said.length < words.length && at < 0 ? "length" : "stop");
	}

	say(request, text, { tokens = [text.length], logprobs = false, top = 0 } = {}) {
		const bytes = Buffer.from(text).toString("base64");
		const likely = Array.from({ length: top }, (_, i) => ({ token: i, bytes: i ? "/w==" : bytes, logprob: -0.5 - i }));
		const asked = this.requests.get(request), offset = asked.characters ?? 0;
		asked.tokens += tokens.length;
		asked.characters = offset + [...text].length;
		this.tell("generate.delta", { request, tokens, text,
			...(logprobs ? { choices: [{ token: tokens[0], bytes, logprob: -0.5, offset, top: likely }] } : {}) });
	}

	finish(request, reason, more = {}) {
		const { tokens } = this.requests.get(request);
		this.requests.delete(request);
		this.tell("generate.end", { request, reason, prompt_tokens: 7, cached_tokens: 2, generated_tokens: tokens, queued_ms: 0, prompt_ms: 1,
			generate_ms: 2, stop: null, ...more });
	}
}
