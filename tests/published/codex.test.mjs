// Codex itself (npm's @openai/codex, at the version that docs/clients.md names) with an empty home, against /v1/responses.
// What the model says is written here; all else is real. It writes a file, calls twice in one answer, and ends. Skipped,
// with the reason, where the package cannot be fetched.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { eventually, patience, temporary, within } from "../api/server.mjs";
import { Stage, call } from "./agents.mjs";
import { fetchNode } from "./packages.mjs";

const version = "0.169.0";
const text = (name) => readFileSync(new URL(name, import.meta.url), "utf8");
const codex = fetchNode("@openai/codex", version);

describe(`Codex ${version}`, { skip: codex.why ?? false }, () => {
	const run = (cmd) => call("exec_command", { cmd });
	// What the model says, by how many tools have stage.asked so far.
	const script = { 0: ["<think>A file first.</think>", run("printf 'one\\ntwo\\n' > made.txt")], 1: ["Now both.\n", run("sha256sum made.txt"), "\n", run("wc -l made.txt")], 3: ["All ", "done."] };
	let stage;
	before(async () => {
		stage = await Stage.start((params, results) => script[results.length] ?? ["I am lost."]);
	});
	after(() => stage?.finish());

	test("writes a file, calls two tools at once, and ends", async () => {
		const home = temporary(), work = join(home, "work");
		mkdirSync(join(home, ".codex"));
		mkdirSync(work);
		const settings = /## Codex[^]*?```toml\n([^]*?)```/.exec(text("../../docs/clients.md"))[1];
		writeFileSync(join(home, ".codex/config.toml"), settings.replace("MODEL", "words").replace("http://127.0.0.1:52415/", stage.server.url.href));
		const child = spawn(codex.program("codex"), ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "make a file"], { cwd: work,
			env: { PATH: process.env.PATH, HOME: home, EXOGPU_TOKEN: stage.token }, stdio: ["ignore", "pipe", "pipe"] });
		let said = "", stderr = "";
		child.stdout.on("data", (piece) => (said += piece));
		child.stderr.on("data", (piece) => (stderr += piece));
		const code = await within(new Promise((resolve) => child.on("close", resolve)), () => `Codex ends; it said ${said} ${stderr}`, 6 * patience).finally(() => child.kill("SIGKILL"));
		assert.equal(code, 0, said + stderr);
		assert.equal(readFileSync(join(work, "made.txt"), "utf8"), "one\ntwo\n");
		assert.deepEqual(stage.asked.map(({ results }) => results.length), [0, 1, 3], said + stderr);
		const [, sum, lines] = stage.asked.at(-1).results;
		assert.match(sum, new RegExp(`${createHash("sha256").update("one\ntwo\n").digest("hex")}  made`));
		assert.match(lines, /2 made\.txt/);
		const events = said.trim().split("\n").map((line) => JSON.parse(line));
		assert.ok(events.some(({ item }) => item?.type === "agent_message" && item.text === "All done."), said);
		assert.equal(events.at(-1).type, "turn.completed", said);

		// What became of what it asked: its tools, and its conversation.
		const { tools, prompt: { messages }, max_tokens } = stage.asked.at(-1).params;
		const names = tools.map((one) => one.function.name);
		assert.ok(names.includes("exec_command") && !names.includes("web_search") && !names.includes("view_image"), names.join());
		assert.equal(max_tokens, 32768);
		assert.deepEqual(messages.map(({ role }) => role), ["system", "user", "assistant", "tool", "assistant", "tool", "tool"]);
		assert.equal(messages[2].thoughts, "A file first.");
		assert.deepEqual([messages[4].text.trim(), messages[4].calls.length], ["Now both.", 2]);
		await eventually(() => /the type web_search is left out/.test(stage.server.output.stderr) && /the type namespace is left out/.test(stage.server.output.stderr), "the log says what is left out");
	});
});
