// The programs of docs/clients.md under Frameworks, as they stand there, with the packages of npm and PyPI at the versions that the page names.
// Server, node, worker, mask and parser are real; what the model says is put into its mouth. Packages that cannot be fetched are skipped,
// with the reason.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { mute } from "../api/says.mjs";
import { patience, temporary } from "../api/server.mjs";
import { LiveStage, call } from "../published/agents.mjs";
import { fetchNode, fetchPython, kept, patient } from "../published/packages.mjs";

const page = readFileSync(new URL("../../docs/clients.md", import.meta.url), "utf8");
const version = (name) => new RegExp("`" + name + "` (\\d[\\d.]*\\d)").exec(page)[1];
const node = mute ? { why: mute } : fetchNode("langchain", version("langchain"), ["@langchain/openai", "ai", "@ai-sdk/openai-compatible"].map((name) => `${name}@${version(name)}`));
const python = mute ? { why: mute } : patient || existsSync(join(kept, `langchain-openai-${version("langchain-openai")}`))
	? fetchPython("langchain-openai", version("langchain-openai"), ["litellm", "instructor"].map((name) => `${name}==${version(name)}`))
	: { why: "skipped: 410 MB that take more than a minute to install: ./dev test clients" };
const programs = [...page.matchAll(/```(mjs|py)\n([^]*?)```/g)].map(([, language, program]) => ({ language, program }));

const sky = "Blue light is scattered most.", oslo = "There is snow in Oslo.";
// What each prints, by a word that it has.
const prints = { generateText: sky, createAgent: oslo, langchain_openai: sky, litellm: sky, instructor: "scattering 1871" };

describe("the programs with frameworks in docs/clients.md", { skip: (mute || node.why && python.why && `${node.why}; ${python.why}`) || false }, () => {
	let stage;
	before(async () => {
		stage = await LiveStage.start(({ tools, tool_choice }, results) => {
			if (tool_choice?.mode === "required") return [call("Reason", { cause: "scattering", year: 1871 })];
			if (results.length) return [/snow/.test(results[0]) ? oslo : "I do not know."];
			return [tools?.length ? call("weather", { city: "Oslo" }) : sky];
		}, { context: 4096 });
	});
	after(() => stage?.finish());

	test("there is one for each package", () => assert.equal(programs.length, Object.keys(prints).length));
	for (const [word, said] of Object.entries(prints)) {
		const { language, program } = programs.find((one) => one.program.includes(word)), packages = language === "mjs" ? node : python;
		test(`with ${word}`, { skip: packages.why ?? false }, async () => {
			const folder = temporary(), file = join(folder, `program.${language}`);
			const there = program.replaceAll("127.0.0.1:52415", `127.0.0.1:${stage.server.port}`).replaceAll("MODEL", "words");
			assert.ok(there.includes(`:${stage.server.port}`) && there.includes("words"), "it names the address and a model");
			writeFileSync(file, there);
			if (language === "mjs") symlinkSync(join(packages.folder, ".."), join(folder, "node_modules"));
			const { error, stdout, stderr } = await new Promise((resolve) => execFile(language === "mjs" ? process.execPath : "python3", [...language === "py" ? ["-B"] : [], file],
				{ timeout: 6 * patience, env: { PATH: process.env.PATH, HOME: folder, EXOGPU_TOKEN: stage.token, PYTHONPATH: python.folder ?? "" } }, (error, stdout, stderr) => resolve({ error, stdout, stderr })));
			assert.equal(error, null, stderr);
			assert.equal(stdout, `${said}\n`, stderr);
		});
	}
});
