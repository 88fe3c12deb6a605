// Codex and Claude Code themselves (npm, at the versions that docs/clients.md names), each with an empty home and environment, in a loop of
// fifty turns: files written, tools called two and three at a time, tools that fail, long contents, and at the end the files on disk, by
// hash. What the model says is written here; all else is real. A control with one wrong byte in a path has to fail.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { patience, temporary, within } from "../api/server.mjs";
import { Stage, call } from "./agents.mjs";
import { fetchNode } from "./packages.mjs";

const pages = readFileSync(new URL("../../docs/clients.md", import.meta.url), "utf8");
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const TURNS = 50;

// The turns, each a list of {write, content}, {run} and {read}, and {name: hash} of the files that are there in the end.
function script(turns) {
	const files = {}, all = [];
	for (let i = 0; i < turns; i++) {
		const name = `größe-${i - i % 5}.txt`, long = Array.from({ length: 400 }, (_, line) => `${i}.${line}: "quoted" \\ and </tool_call> {"a": [${line}]}`).join("\n") + "\n";
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

const agents = [{
	name: "Codex", program: fetchNode("@openai/codex", "0.169.0"), version: "0.169.0", tool: "exec_command",
	start(stage, home, work, { program }) {
		mkdirSync(join(home, ".codex"));
		const settings = /## Codex[^]*?```toml\n([^]*?)```/.exec(pages)[1];
		writeFileSync(join(home, ".codex/config.toml"), settings.replace("MODEL", "words").replace("http://127.0.0.1:52415/", stage.server.url.href));
		return spawn(program("codex"), ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "make files"], { cwd: work,
			env: { PATH: process.env.PATH, HOME: home, EXOGPU_TOKEN: stage.token }, stdio: ["ignore", "pipe", "pipe"] });
	},
	say: ({ write, content, run, read }) => call("exec_command", { cmd: write ? `printf %s ${Buffer.from(content).toString("base64")} | base64 -d > '${write}'` : run ?? `cat '${read}'` }),
}, {
	name: "Claude Code", program: fetchNode("@anthropic-ai/claude-code", "2.1.197"), version: "2.1.197", tool: "Bash",
	start(stage, home, work, { folder }) {
		const url = stage.server.url.origin;
		return spawn(process.execPath, [join(folder, "cli-wrapper.cjs"), "-p", "make files", "--allowedTools", "Bash,Read,Write", "--output-format", "json"], { cwd: work, stdio: ["ignore", "pipe", "pipe"],
			env: { PATH: process.env.PATH, HOME: home, ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: stage.token, ANTHROPIC_MODEL: "words", ANTHROPIC_DEFAULT_HAIKU_MODEL: "words",
				CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1" } });
	},
	say: ({ write, content, run, read }, work) => write ? call("Write", { file_path: join(work, write), content }) :
		run ? call("Bash", { command: run, description: "A step" }) : call("Read", { file_path: join(work, read) }),
}];

for (const agent of agents)
	describe(`${agent.name} ${agent.version}`, { skip: agent.program.why ?? false }, () => {
		let stage;
		before(async () => {
			stage = await Stage.start(() => []);
		});
		after(() => stage?.finish());

		// The agent at its end: {work, asked, steps, hashes}. `change` is given each thing that the model says.
		async function loop(turns, change = (text) => text) {
			const home = temporary(), work = join(home, "work"), { all, hashes } = script(turns), steps = all.flat();
			mkdirSync(work);
			const starts = all.map((_, at) => all.slice(0, at).flat().length);
			stage.asked.length = 0;
			stage.says = (params, results) => {
				if (!params.tools?.some((one) => one.function.name === agent.tool)) return ["A title"];
				const turn = starts.indexOf(results.length);
				if (turn < 0) return [results.length === steps.length ? "All done." : `I am lost after ${results.length}.`];
				return [`Turn ${turn}.\n`, ...all[turn].flatMap((step) => [change(agent.say(step, work), turn), "\n"])];
			};
			const child = agent.start(stage, home, work, agent.program);
			let said = "";
			for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (piece) => (said += piece));
			const code = await within(new Promise((resolve) => child.on("close", resolve)), () => `it ends after ${stage.asked.length} requests; it said ${said.slice(-4000)}`, 12 * patience).finally(() => child.kill("SIGKILL"));
			assert.equal(code, 0, said.slice(-4000));
			assert.match(said, /All done\./);
			return { work, asked: stage.asked.filter(({ params }) => params.tools?.length), steps, hashes };
		}

		test(`${TURNS} turns, and the files are right`, async () => {
			const { work, asked, steps, hashes } = await loop(TURNS);
			assert.equal(asked.length, TURNS + 1, "no turn was asked for twice");
			assert.deepEqual(found(work), hashes);
			// Each result answers its own call, in whatever order the agent tells them.
			const { messages } = asked.at(-1).params.prompt, calls = messages.flatMap((one) => one.calls ?? []), results = messages.filter(({ role }) => role === "tool");
			assert.deepEqual([calls.length, new Set(results.map((one) => one.call_id)).size, results.length], [steps.length, steps.length, steps.length]);
			steps.forEach(({ finds = "" }, at) => {
				const { text } = results.find((one) => one.call_id === calls[at].id);
				assert.ok(text.includes(finds), `${at}: ${text.slice(0, 300)} has ${finds}`);
			});
			// What was asked stays as it was, so that a prefix cache finds it: all turns but those at which the agent itself changed it.
			const kept = asked.slice(1).filter(({ params: { prompt } }, at) => asked[at].params.prompt.messages.every((one, i) => JSON.stringify(one) === JSON.stringify(prompt.messages[i]))).length;
			console.log(`# the conversation only grew in ${kept} of ${TURNS} turns`);
			assert.ok(kept >= TURNS - 2, `${kept}`);
		});

		test("one wrong byte in a path is found", async () => {
			const { work, hashes } = await loop(5, (text, turn) => turn === 3 ? text.replace("long-3", "lomg-3") : text);
			assert.throws(() => assert.deepEqual(found(work), hashes));
		});

		test("is the version that docs/clients.md names", () => assert.ok(pages.includes(agent.version)));
	});
