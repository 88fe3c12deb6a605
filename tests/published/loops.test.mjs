// Codex and Claude Code themselves (npm, at the versions that docs/clients.md names), each with an empty home and environment, in a loop of
// fifteen turns, or fifty: files written, tools called two and three at a time, tools that fail, long contents, and at the end the files on disk, by
// hash. What the model says is written here, and put into the mouth of a small model; server, node, worker, mask and parser are real. What
// each turn has to read anew is measured. A control with one wrong byte in a path has to fail, and a call that the mask forbids.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { mute } from "../api/says.mjs";
import { eventually, patience, temporary, within } from "../api/server.mjs";
import { LiveStage, call } from "./agents.mjs";
import { fetchNode } from "./packages.mjs";

const pages = readFileSync(new URL("../../docs/clients.md", import.meta.url), "utf8");
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
// Each kind of turn three times, or ten times by published/loops-all. PAGE: tokens of a page of the prefix cache.
const TURNS = process.env.EXOGPU_TEST_ALL ? 50 : 15, PAGE = 32;

// The turns, each a list of {write, content}, {run} and {read}, and {name: hash} of the files that are there in the end. One of the files has
// so many lines, 25 KB in 400.
function script(turns, lines) {
	const files = {}, all = [];
	for (let i = 0; i < turns; i++) {
		const name = `größe-${i - i % 5}.txt`, long = Array.from({ length: i === 3 ? lines : 20 }, (_, line) => `${i}.${line}: "quoted" \\ and </tool_call> {"a": [${line}]}`).join("\n") + "\n";
		const steps = [
			() => [{ write: name, content: files[name] = `${i}: a line with 'quotes', "more", \\n and ünïcode\n` }],
			() => [{ run: `sha256sum '${name}'`, finds: sha256(files[name]) }, { run: `wc -l < '${name}'`, finds: "1" }, { run: "echo three", finds: "three" }].slice(0, i % 2 ? 3 : 2),
			() => [{ run: `cat missing-${i}`, finds: "No such file" }],
			() => [{ write: `long-${i}.txt`, content: files[`long-${i}.txt`] = long }, { run: "true" }],
			() => [{ read: `long-${i - 1}.txt`, finds: `${i - 1}.5: "quoted"` }, { run: `printf 'more\\n' >> '${name}'` }],
		];
		all.push(steps[i % 5]());
		if (i % 5 === 4) files[name] += "more\n";
	}
	return { all, hashes: Object.fromEntries(Object.entries(files).map(([name, text]) => [name, sha256(text)])) };
}
const found = (folder) => Object.fromEntries(readdirSync(folder).map((name) => [name.normalize(), sha256(readFileSync(join(folder, name)))]));

// start(stage, home, work, program, {again, compactsAt}): `again` is said to the conversation that there was. A conversation is made shorter by
// itself once it has `compactsAt` tokens, or by the words `compacts`.
const agents = [{
	name: "Codex", program: fetchNode("@openai/codex", "0.169.0"), version: "0.169.0", tool: "exec_command", least: 10000, compactsAt: 16000,
	start(stage, home, work, { program }, { again, compactsAt }) {
		mkdirSync(join(home, ".codex"), { recursive: true });
		const settings = /## Codex[^]*?```toml\n([^]*?)```/.exec(pages)[1];
		writeFileSync(join(home, ".codex/config.toml"), (compactsAt ? `model_auto_compact_token_limit = ${compactsAt}\n` : "") +
			settings.replace("MODEL", "words").replace("http://127.0.0.1:52415/", stage.server.url.href));
		return spawn(program("codex"), ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", ...again ? ["resume", "--last", again] : ["make files"]], { cwd: work, detached: true,
			env: { PATH: process.env.PATH, HOME: home, EXOGPU_TOKEN: stage.token }, stdio: ["ignore", "pipe", "pipe"] });
	},
	say: ({ write, content, run, read }) => call("exec_command", { cmd: write ? `cat > '${write}' <<'END'\n${content}END\n` : run ?? `cat '${read}'` }),
}, {
	name: "Claude Code", program: fetchNode("@anthropic-ai/claude-code", "2.1.197"), version: "2.1.197", tool: "Bash", least: 20000, compacts: "/compact",
	start(stage, home, work, { folder }, { again }) {
		const url = stage.server.url.origin;
		return spawn(process.execPath, [join(folder, "cli-wrapper.cjs"), "-p", again ?? "make files", ...again ? ["--continue"] : [], "--allowedTools", "Bash,Read,Write", "--output-format", "json"], { cwd: work, detached: true, stdio: ["ignore", "pipe", "pipe"],
			env: { PATH: process.env.PATH, HOME: home, ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: stage.token, ANTHROPIC_MODEL: "words", ANTHROPIC_DEFAULT_HAIKU_MODEL: "words",
				CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1" } });
	},
	say: ({ write, content, run, read }, work) => write ? call("Write", { file_path: join(work, write), content }) :
		run ? call("Bash", { command: run, description: "A step" }) : call("Read", { file_path: join(work, read) }),
}];

for (const agent of agents)
	describe(`${agent.name} ${agent.version}`, { skip: agent.program.why ?? (mute || false) }, () => {
		let stage;
		before(async () => {
			stage = await LiveStage.start(() => []);
		});
		after(() => stage?.finish());

		// A conversation of so many turns. `change` is given each thing that the model says; in the turn `endless` it says more than
		// anybody waits for, the first time, and before the turn `rests` it ends once. run() has the agent work until its end, or until `stops` has settled.
		async function converse(turns, { lines = 20, change = (text) => text, endless, rests, compactsAt } = {}) {
			const home = temporary(), work = join(home, "work"), { all, hashes } = script(turns, lines), one = { work, hashes, steps: all.flat(), turn: 0, summaries: 0 };
			mkdirSync(work);
			await stage.begin();
			stage.says = (params) => {
				const last = params.prompt.messages.at(-1), tooled = params.tools?.some((each) => each.function.name === agent.tool);
				if (one.turn && last.role === "user" && /CHECKPOINT COMPACTION|TEXT ONLY/.test(last.text)) return [`Summary ${++one.summaries}: files are made as they were asked for.`];
				if (!tooled) return ["A title"];
				if (one.turn === endless && !one.spoke) return { pieces: ["Let me think about that. ".repeat((one.spoke = 6000))], end: null };
				if (one.turn === rests && !one.rested) return one.rested = ["All done."];
				const turn = one.turn++;
				if (turn >= all.length) return [turn === all.length ? "All done." : "I am lost."];
				return [`Turn ${turn}.`, ...all[turn].flatMap((step) => ["\n", change(agent.say(step, work), turn)])]; // as the template writes it
			};
			one.run = async ({ again, stops, says = /All done\./ } = {}) => {
				const child = agent.start(stage, home, work, agent.program, { again, compactsAt });
				const end = (signal) => { // of its whole group, as a terminal does it
					try {
						process.kill(-child.pid, signal);
					} catch {} // it has ended
				};
				let said = "";
				for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (piece) => (said += piece));
				stops?.().then(() => end("SIGINT"), () => end("SIGKILL"));
				const code = await within(new Promise((resolve) => child.on("close", resolve)), () => `it ends after ${stage.asked.length} requests; it said ${said.slice(-4000)}`, 12 * patience).finally(() => end("SIGKILL"));
				if (stops) return said;
				assert.equal(code, 0, said.slice(-4000));
				assert.match(said, says);
				one.asked = stage.asked.filter(({ params }) => params.tools?.length);
			};
			return one;
		}
		const instance = async () => (await stage.admin.call("instance.list")).instances[0];

		test(`${TURNS} turns, and the files are right`, async () => {
			const one = await converse(TURNS, { lines: 400 });
			await one.run();
			const { asked, steps } = one;
			assert.equal(asked.length, TURNS + 1, "no turn was asked for twice");
			assert.deepEqual(found(one.work), one.hashes);
			// Each result answers its own call, in whatever order the agent tells them.
			const { messages } = asked.at(-1).params.prompt, calls = messages.flatMap((each) => each.calls ?? []), results = messages.filter(({ role }) => role === "tool");
			assert.deepEqual([calls.length, new Set(results.map((each) => each.call_id)).size, results.length], [steps.length, steps.length, steps.length]);
			steps.forEach(({ finds = "" }, at) => {
				const { text } = results.find((each) => each.call_id === calls[at].id);
				assert.ok(text.includes(finds), `${at}: ${text.slice(0, 300)} has ${finds}`);
			});
			// What was asked stays as it was, so that a prefix cache finds it: all turns but those at which the agent itself changed it.
			const kept = asked.slice(1).filter(({ params: { prompt } }, at) => asked[at].params.prompt.messages.every((each, i) => JSON.stringify(each) === JSON.stringify(prompt.messages[i]))).length;
			console.log(`# the conversation only grew in ${kept} of ${TURNS} turns`);
			assert.ok(kept >= TURNS - 2, `${kept}`);

			// And it was found there: a turn reads what is new in it, and what the last page of the one before has no room for.
			const read = await stage.read(), [first, ...later] = read;
			const anew = later.map((each, at) => ({ read: each.input - each.cached, fresh: each.input - read[at].input - read[at].output }));
			const sum = (list) => list.reduce((a, b) => a + b, 0), inputs = sum(read.map((each) => each.input)), computed = first.input - first.cached + sum(anew.map((each) => each.read));
			console.log(`# the first prompt has ${first.input} tokens, all of them ${inputs}, of which ${computed} were read; a turn has ${sum(anew.map((each) => each.fresh)) / TURNS} new ones and read ${sum(anew.map((each) => each.read)) / TURNS}`);
			assert.ok(first.input >= agent.least, `instructions and tools of ${agent.least} tokens`);
			assert.ok(anew.filter((each) => each.read <= each.fresh + 2 * PAGE).length >= TURNS - 2, JSON.stringify(anew));
		});

		test("one wrong byte in a path is found", async () => {
			const one = await converse(5, { change: (text, turn) => turn === 3 ? text.replace("long-3", "lomg-3") : text });
			await one.run();
			assert.throws(() => assert.deepEqual(found(one.work), one.hashes));
		});

		test("stopped in the middle of an answer, and taken up again, it ends right", async () => {
			const one = await converse(5, { endless: 2 });
			await one.run({ stops: async () => {
				await eventually(() => one.spoke, "the long answer begins", 6 * patience);
				const { generated_tokens: before } = await instance();
				await eventually(async () => (await instance()).generated_tokens > before + 100, "the model speaks", 6 * patience);
			} });
			await eventually(async () => (await instance()).running === 0, "nothing is computed for a client that has gone");
			const { generated_tokens } = await instance();
			assert.equal(one.turn, 2);
			await one.run({ again: "go on" });
			assert.deepEqual(found(one.work), one.hashes);
			console.log(`# it was stopped after ${generated_tokens} tokens of all`);
		});

		test("a conversation that has become too long is made shorter, and goes on", async () => {
			const one = await converse(10, { lines: 200, compactsAt: agent.compactsAt, rests: agent.compacts && 5 });
			await one.run();
			if (agent.compacts) {
				await one.run({ again: agent.compacts, says: /./ });
				await one.run({ again: "go on" });
			}
			assert.ok(one.summaries >= 1, "it asked for a summary");
			assert.deepEqual(found(one.work), one.hashes);
			const last = one.asked.at(-1).params.prompt.messages;
			assert.ok(last.some(({ text = "" }) => text.includes(`Summary ${one.summaries}`)), "which stands for what was before");
			assert.ok(last.filter(({ role }) => role === "tool").length < one.steps.length);
			console.log(`# ${one.summaries} summaries`);
		});

		test("is the version that docs/clients.md names", () => assert.ok(pages.includes(agent.version)));
	});
