// The clients of npm for tests/clients/tasks.json, each in its own words. A conversation is [{role, text, thoughts, calls: [{id, name, args}], id, error}];
// ask() gives {text, thoughts, calls, finish}, and calls `heard` with each text as it comes.
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";

const functions = (task, all) => task.tools?.map((name) => ({ type: "function", function: { name, ...all[name] } }));
const instead = (task, names) => typeof task.choice === "object" ? names.named(task.choice.name) : task.choice && names[task.choice];

class Chat {
	constructor({ url, token, timeout }) {
		this.client = new OpenAI({ baseURL: `${url}/v1`, apiKey: token, maxRetries: 0, ...timeout && { timeout } });
	}

	async ask(task, conversation, { tools, signal, heard }) {
		const messages = conversation.map(({ role, text, calls, id, error }) => role === "tool" ? { role, tool_call_id: id, content: error ? `Error: ${error}` : text } :
			{ role, content: text || null, ...calls?.length && { tool_calls: calls.map((one) => ({ type: "function", id: one.id, function: { name: one.name, arguments: JSON.stringify(one.args) } })) } });
		const asked = { model: task.model ?? "words", messages, tools: functions(task, tools), max_tokens: task.most, temperature: task.temperature,
			tool_choice: instead(task, { required: "required", named: (name) => ({ type: "function", function: { name } }) }), parallel_tool_calls: task.parallel,
			response_format: task.form === "json" ? { type: "json_object" } : task.form && { type: "json_schema", json_schema: { name: "answer", strict: true, schema: task.form } },
			reasoning_effort: typeof task.think === "string" ? task.think : undefined };
		let choice;
		if (task.stream) {
			const runner = this.client.chat.completions.stream(asked, { signal });
			let thoughts = "";
			for await (const { choices: [{ delta } = {}] } of runner) {
				if (delta?.content) heard(delta.content);
				thoughts += delta?.reasoning_content ?? "";
			}
			[choice] = (await runner.finalChatCompletion()).choices;
			choice.message.reasoning_content = thoughts; // which the package does not add up
		} else {
			[choice] = (await this.client.chat.completions.create(asked, { signal })).choices;
		}
		const { content, reasoning_content, tool_calls } = choice.message;
		return { text: content ?? "", thoughts: reasoning_content ?? "", finish: choice.finish_reason.replace("tool_calls", "tools"),
			calls: (tool_calls ?? []).map((one) => ({ id: one.id, name: one.function.name, args: JSON.parse(one.function.arguments) })) };
	}

	async embed({ embed, dimensions }) {
		return (await this.client.embeddings.create({ model: "words", input: embed, dimensions })).data.map((one) => one.embedding.length);
	}

	rerank({ rerank }) {
		return this.client.post("/rerank", { body: { model: "words", query: "q", documents: rerank } });
	}
}

class Responses {
	constructor({ url, token, timeout }) {
		this.client = new OpenAI({ baseURL: `${url}/v1`, apiKey: token, maxRetries: 0, ...timeout && { timeout } });
	}

	async ask(task, conversation, { tools, signal, heard }) {
		const input = conversation.flatMap(({ role, text, items, id, error }) => items ?? (role === "tool" ? [{ type: "function_call_output", call_id: id, output: error ? `Error: ${error}` : text }] : [{ role, content: text }]));
		const asked = { model: task.model ?? "words", input, store: false, tools: task.tools?.map((name) => ({ type: "function", name, strict: false, ...tools[name] })), max_output_tokens: task.most, temperature: task.temperature,
			tool_choice: instead(task, { required: "required", named: (name) => ({ type: "function", name }) }), parallel_tool_calls: task.parallel,
			text: task.form && { format: task.form === "json" ? { type: "json_object" } : { type: "json_schema", name: "answer", strict: true, schema: task.form } },
			reasoning: typeof task.think === "string" ? { effort: task.think } : undefined };
		let response;
		if (task.stream) {
			const stream = this.client.responses.stream(asked, { signal });
			for await (const event of stream) if (event.type === "response.output_text.delta") heard(event.delta);
			response = await stream.finalResponse();
		} else {
			response = await this.client.responses.create(asked, { signal });
		}
		const calls = response.output.filter(({ type }) => type === "function_call").map((one) => ({ id: one.call_id, name: one.name, args: JSON.parse(one.arguments) }));
		return { text: response.output_text, calls, finish: calls.length ? "tools" : response.status === "incomplete" ? "length" : "stop", items: response.output.map(({ parsed_arguments: _, ...one }) => one),
			thoughts: response.output.filter(({ type }) => type === "reasoning").flatMap((one) => one.content.map(({ text }) => text)).join("") };
	}
}

class Messages {
	constructor({ url, token, timeout }) {
		this.client = new Anthropic({ baseURL: url, apiKey: token, maxRetries: 0, ...timeout && { timeout } });
	}

	async ask(task, conversation, { tools, signal, heard }) {
		const messages = [];
		for (const { role, text, blocks, id, error } of conversation.filter((one) => one.role !== "system")) {
			const content = blocks ?? (role === "tool" ? [{ type: "tool_result", tool_use_id: id, content: error ?? text, is_error: error !== undefined }] : text);
			if (role === "tool" && messages.at(-1).results) messages.at(-1).content.push(...content);
			else messages.push({ role: role === "tool" ? "user" : role, content, results: role === "tool" });
		}
		const asked = { model: task.model ?? "words", max_tokens: task.most ?? 2000, temperature: task.temperature, system: conversation.find((one) => one.role === "system")?.text, messages: messages.map(({ role, content }) => ({ role, content })),
			tools: task.tools?.map((name) => ({ name, description: tools[name].description, input_schema: tools[name].parameters })),
			tool_choice: task.choice && { ...instead(task, { required: { type: "any" }, named: (name) => ({ type: "tool", name }) }), ...task.parallel === false && { disable_parallel_tool_use: true } },
			thinking: task.think && { type: "enabled", budget_tokens: 1024 },
			output_config: typeof task.think === "string" ? { effort: task.think } : task.form && { format: { type: "json_schema", schema: task.form } } };
		let message;
		if (task.stream) {
			const stream = this.client.messages.stream(asked, { signal }).on("text", heard);
			message = await stream.finalMessage();
		} else {
			message = await this.client.messages.create(asked, { signal });
		}
		const { content, stop_reason } = message, of = (type, key) => content.filter((one) => one.type === type).map((one) => one[key]).join("");
		return { text: of("text", "text"), thoughts: of("thinking", "thinking"), blocks: content.map(({ parsed_output: _, ...one }) => one), finish: { end_turn: "stop", max_tokens: "length", tool_use: "tools" }[stop_reason],
			calls: content.filter(({ type }) => type === "tool_use").map((one) => ({ id: one.id, name: one.name, args: one.input })) };
	}
}

class Ollamas {
	constructor({ url, token }) {
		this.client = new Ollama({ host: url, headers: { authorization: `Bearer ${token}` } });
	}

	async ask(task, conversation, { tools, signal, heard }) {
		const messages = conversation.map(({ role, text, thoughts, calls, name, error }) => ({ role, content: error ? `Error: ${error}` : text, ...thoughts && { thinking: thoughts },
			...calls?.length && { tool_calls: calls.map((one) => ({ function: { name: one.name, arguments: one.args } })) }, ...role === "tool" && { tool_name: name } }));
		const asked = { model: task.model ?? "words", messages, tools: functions(task, tools), format: task.form, think: task.think, options: { num_predict: task.most, temperature: task.temperature } };
		const stop = () => this.client.abort();
		signal?.addEventListener("abort", stop);
		const whole = { text: "", thoughts: "", calls: [] };
		const take = ({ message, done_reason }) => {
			if (message.content) heard(message.content);
			whole.text += message.content;
			whole.thoughts += message.thinking ?? "";
			whole.calls.push(...(message.tool_calls ?? []).map((one) => ({ name: one.function.name, args: one.function.arguments })));
			whole.finish = done_reason ?? whole.finish;
		};
		if (task.stream) for await (const part of await this.client.chat({ ...asked, stream: true })) take(part);
		else take(await this.client.chat(asked));
		return { ...whole, finish: whole.calls.length ? "tools" : whole.finish };
	}

	async embed({ embed, dimensions }) {
		return (await this.client.embed({ model: "words", input: embed, dimensions })).embeddings.map((one) => one.length);
	}
}

const clients = { chat: Chat, responses: Responses, messages: Messages, ollama: Ollamas };

// What becomes of a task: {rounds}, {vectors}, {got} where it is given up, or {status}: of HTTP, or "broken".
export async function run(api, task, { url, token, tools, results }) {
	const client = new clients[api]({ url, token, timeout: task.cancel === "timeout" ? 500 : 0 }), aborter = new AbortController();
	const conversation = [...task.system ? [{ role: "system", text: task.system }] : [], ...task.messages ?? [{ role: "user", text: "?" }]], rounds = [];
	let got = "";
	const heard = (text) => {
		got += text;
		if (task.cancel === "middle") aborter.abort();
	};
	if (task.cancel === "before") setTimeout(() => aborter.abort(), 500);
	try {
		if (task.embed) return { vectors: await client.embed(task) };
		if (task.rerank) return { answer: await client.rerank(task) };
		for (let round = 0; round < 5; round++) {
			const answer = await client.ask(task, conversation, { tools, signal: aborter.signal, heard });
			rounds.push({ text: answer.text, thoughts: answer.thoughts, finish: answer.finish, calls: answer.calls.map((one) => [one.name, one.args]) });
			conversation.push({ role: "assistant", ...answer });
			if (!answer.calls.length || task.choice) break;
			conversation.push(...answer.calls.map(({ id, name, args }) => ({ role: "tool", id, name, ...typeof results[args.city] === "string" ? { text: results[args.city] } : results[args.city] })));
		}
		return { rounds };
	} catch (error) {
		return task.cancel ? { got, error: error.name } : { status: error.status ?? error.status_code ?? "broken", said: error.message };
	}
}
