// Open WebUI from its own package, in a virtual environment of its own, driven in Chromium against a real server and worker: it lists the
// models, chats, shows the answer while it comes, names the chat, and uses one of its tools. What the model says is put into its mouth.
// Installing it takes minutes and some 7 GB, so ./dev test clients runs this, and nothing else does.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { mute } from "../api/says.mjs";
import { eventually, freePort, patience, temporary } from "../api/server.mjs";
import { executable, flags, pictures, suite } from "../e2e/browser.mjs";
import { LiveStage, call } from "../published/agents.mjs";
import { fetchVenv } from "../published/packages.mjs";

const version = "0.12.4";
const { why, program } = mute ? { why: mute } : fetchVenv("open-webui", version, "open-webui", { pythons: ["python3.11", "python3.12"] });

const answer = "Blue light is scattered most by the air, and so it comes from all sides. ".repeat(12).trim();

suite(`Open WebUI ${version}`, () => {
	if (why) return void test("runs", { skip: why }, () => {});
	let stage, browser, page, child, url, output = "", tooled = "";
	before(async () => {
		stage = await LiveStage.start(({ prompt, tools }, results) => {
			const last = prompt.messages.at(-1), text = last.text ?? "";
			if (/"title"/.test(text)) return ['{"title": "The colour of the sky"}'];
			if (/"tags"/.test(text)) return ['{"tags": ["sky"]}'];
			if (/"follow_ups"/.test(text)) return ['{"follow_ups": []}'];
			if (last.role === "tool") return [`The tool said: ${(tooled = results.at(-1)).slice(0, 20)}`];
			if (/what time/i.test(text)) return [call(tools.find((one) => /timestamp/.test(one.function.name)).function.name, {})];
			return [answer];
		}, { context: 32768 });
		const port = await freePort(), data = temporary();
		url = `http://127.0.0.1:${port}`;
		child = spawn(program, ["serve", "--host", "127.0.0.1", "--port", String(port)], { cwd: data, stdio: ["ignore", "pipe", "pipe"], env: { PATH: process.env.PATH, HOME: data, DATA_DIR: data,
			OPENAI_API_BASE_URL: `${stage.server.url}v1`, OPENAI_API_KEY: stage.token, WEBUI_AUTH: "False", WEBUI_SECRET_KEY: "of this test", ENABLE_OLLAMA_API: "False",
			ENABLE_PERSISTENT_CONFIG: "False", ENABLE_EVALUATION_ARENA_MODELS: "False", ENABLE_VERSION_UPDATE_CHECK: "False", OFFLINE_MODE: "True", HF_HUB_OFFLINE: "1", RAG_EMBEDDING_ENGINE: "openai", ANONYMIZED_TELEMETRY: "False" } });
		for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (piece) => (output += piece));
		await eventually(async () => { // a look each second: it takes a minute of a processor
			const there = (await fetch(`${url}/health`).catch(() => null))?.ok;
			return there || new Promise((resolve) => setTimeout(resolve, 1000));
		}, () => `it is ready; it said ${output.slice(-2000)}`, 12 * patience);
		browser = await chromium.launch({ executablePath: executable, args: flags, timeout: 4 * patience });
		page = await browser.newPage({ viewport: { width: 1280, height: 900 }, locale: "en-US" });
		page.setDefaultTimeout(4 * patience);
		await page.goto(url); // which logs in by itself, and says what is new
		await page.getByRole("button", { name: /Okay/ }).click();
	});
	after(async () => {
		await browser?.close();
		child?.kill("SIGKILL");
		await stage?.finish();
	});
	const show = async (name) => {
		mkdirSync(pictures, { recursive: true });
		await page.screenshot({ path: join(pictures, `openwebui-${name}.png`) }).catch(() => {});
	};
	const say = async (words) => {
		const box = page.locator("#chat-input");
		await box.click();
		await page.keyboard.type(words);
		await page.keyboard.press("Enter");
	};

	test("lists the models", async () => {
		await page.locator("#model-selector-model-button").waitFor().finally(() => show("models"));
		const { data } = await (await fetch(`${url}/api/models`, { headers: { authorization: `Bearer ${await page.evaluate(() => localStorage.token)}` } })).json();
		assert.deepEqual(data.map(({ id }) => id), ["words"]);
		assert.match(await page.locator("#model-selector-model-button").innerText(), /words/);
	});

	test("chats, and shows the answer while it comes", async () => {
		await say("Why is the sky blue?");
		const lengths = new Set();
		await eventually(async () => {
			const text = await page.locator("#chat-container").innerText();
			const at = text.indexOf("Blue light");
			if (at >= 0) lengths.add(text.slice(at).split("scattered").length);
			return text.split("scattered").length > 12;
		}, "the answer is there", 6 * patience).finally(() => show("chat"));
		assert.ok(lengths.size > 1, `it was seen at ${[...lengths]} of 13`);
	});

	test("names the chat", () => page.getByText("The colour of the sky").first().waitFor().finally(() => show("named")));

	test("uses a tool", async () => {
		await say("What time is it?");
		await page.getByText("The tool said:").first().waitFor().finally(() => show("tool"));
		assert.match(tooled, /\d/, tooled);
	});
});
