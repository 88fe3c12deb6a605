// The forty tasks of tasks.json by the real clients of OpenAI, Anthropic and Ollama from npm and from PyPI, against a server with a model whose
// worker says what the task has it say: each API in its own words, to the same end. What a package has not is said, and why. Packages of
// PyPI that cannot be fetched are skipped, with the reason.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import net from "node:net";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client } from "../api/client.mjs";
import { eventually, patience, within } from "../api/server.mjs";
import { Stage, call } from "../published/agents.mjs";
import { fetchPython } from "../published/packages.mjs";
import * as npm from "./npm.mjs";

const { tools, results, tasks } = JSON.parse(readFileSync(new URL("tasks.json", import.meta.url), "utf8"));
const apis = ["chat", "responses", "messages", "ollama"];
const python = Object.entries({ openai: "2.54.0", anthropic: "2.14.0", ollama: "0.6.3" }).map(([name, version]) => fetchPython(name, version));

// A process that answers each line with a line: the clients of PyPI.
class Python {
	constructor() {
		this.child = spawn("python3", ["-B", fileURLToPath(new URL("pypi.py", import.meta.url))], { stdio: ["pipe", "pipe", "inherit"],
			env: { ...process.env, PYTHONPATH: python.map(({ folder }) => folder).join(":") } });
		this.lines = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
	}

	async run(api, task, more) {
		this.child.stdin.write(`${JSON.stringify({ api, task, ...more })}\n`);
		return JSON.parse((await within(this.lines.next(), "Python answers", 2 * patience)).value);
	}
}

describe("the forty tasks", () => {
	let stage, slow, proxy, sockets = [];
	before(async () => {
		stage = await Stage.start(() => []);
		const admin = await Client.login(stage.server);
		slow = (name) => admin.call("token.create", { name, scopes: ["infer"], calls_per_s: 0.1 });
		// On the way to the server, so that it can be gone in the middle of an answer.
		proxy = net.createServer((socket) => {
			const there = net.connect(stage.server.port, "127.0.0.1");
			sockets.push(socket, there);
			for (const one of [socket, there]) one.on("error", () => {}).on("close", () => [socket, there].forEach((each) => each.destroy()));
			socket.pipe(there).pipe(socket);
		}).listen(0, "127.0.0.1");
		await once(proxy, "listening");
	});
	after(async () => {
		proxy?.close();
		sockets.forEach((one) => one.destroy());
		await stage?.finish();
	});

	const said = (pieces) => pieces.map((one) => Array.isArray(one) ? call(...one) : one);
	async function perform(run, api, task) {
		const worker = stage.node.worker();
		stage.asked.length = 0;
		stage.says = (params, given) => {
			if (task.drop) setTimeout(() => sockets.forEach((one) => one.destroy()), 300);
			const answers = given.length ? task.says.slice(1 + task.says.slice(1).findIndex((_, at) => task.says.slice(0, at + 1).flat().filter(Array.isArray).length >= given.length)) : task.says, now = answers[0];
			return Array.isArray(now) ? { pieces: said(now), end: "stop" } : { ...now, pieces: said(now.pieces) };
		};
		const url = task.drop ? `http://127.0.0.1:${proxy.address().port}` : stage.server.url.origin, more = { url, token: task.token ?? stage.token, tools, results };
		if (task.token === "slow") {
			({ token: more.token } = await slow(`slow-${Math.random()}`));
			for (let i = 0; i < 20; i++) { // as many as it may at once
				const { status } = await run(api, { ...task, status: undefined }, more);
				if (status) return { status };
			}
			return {};
		}
		const done = await run(api, task, more);
		if (task.cancel || task.drop) await eventually(() => worker.requests.size === 0, "the worker was told to stop");
		return done;
	}

	function right(task, done) {
		if (task.status) return assert.deepEqual(done.status, task.status, JSON.stringify(done));
		if (task.vectors) return assert.deepEqual(done, { vectors: task.vectors });
		if (task.cancel) return assert.ok(done.error && done.got.startsWith(task.got ?? ""), JSON.stringify(done));
		assert.equal(done.rounds?.length, task.rounds.length, JSON.stringify(done));
		task.rounds.forEach(({ text = "", calls = [], thoughts, finish = calls.length ? "tools" : "stop" }, at) => {
			const one = done.rounds[at];
			assert.deepEqual([one.text.trim(), one.calls, one.finish], [text, calls, finish]);
			if (thoughts !== undefined) assert.equal(one.thoughts, thoughts);
		});
		const { params: { prompt, form, tool_choice, parallel_tool_calls, reasoning_effort, max_tokens }, results: told } = stage.asked.at(-1);
		const seen = { roles: prompt.messages.map(({ role }) => role), form: form?.kind, choice: tool_choice?.name ?? tool_choice?.mode, parallel: parallel_tool_calls, effort: reasoning_effort, max_tokens, results: told };
		for (const [key, value] of Object.entries(task.worker ?? {})) assert.deepEqual(seen[key], value, key);
	}

	function suite(from, run) {
		for (const api of apis)
			describe(`${from}, ${api}`, () => {
				for (const task of tasks) {
					const own = task.apis?.[api] ?? {}, why = typeof own === "string" ? own : own[from];
					test(`${task.group}: ${task.task}${why ? ` (${why})` : ""}`, async () => {
						if (why) return assert.match(why, /^not in this (API|package)/);
						const now = { ...task, ...own };
						right(now, await perform(run, api, now));
					});
				}
			});
	}

	suite("npm", npm.run);
	describe("from PyPI", { skip: python.find(({ why }) => why)?.why ?? false }, () => {
		let process_of;
		before(() => {
			process_of = new Python();
		});
		after(() => process_of.child.stdin.end());
		suite("pypi", (...asked) => process_of.run(...asked));
	});

	test("are forty", () => {
		const count = (group) => tasks.filter((one) => one.group === group).length;
		assert.deepEqual(["chat", "tools", "forms", "reasoning", "embeddings", "cancellations", "errors"].map(count), [8, 8, 6, 4, 4, 4, 6]);
	});
});
