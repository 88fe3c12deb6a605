// The bench of endurance (tests/bench/soak.mjs), for half a minute: everything goes on beside each other, every answer is
// whole, and no descriptor or thread is left over. And its verdict finds what grows.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { judge, table } from "../bench/soak_figures.mjs";
import { slow } from "./server.mjs";

const samples = (more = () => ({}), count = 60) => Array.from({ length: count }, (_, i) => ({ s: 60 * i,
	processes: { server: { pid: 1, rss: 50e6, fds: 40 + (i % 2), threads: 9, ...more(i) }, alpha: { pid: 2, rss: 30e6, fds: 20, threads: 4 } } }));

test("the verdict: what grows is named, what only moves is not", () => {
	assert.deepEqual(judge(samples(), 600), []);
	assert.deepEqual(judge(samples((i) => ({ rss: 50e6 * (1 + 0.0009 * i) })), 600), []);
	assert.deepEqual(judge(samples((i) => ({ rss: 50e6 * (1 + 0.002 * i) })), 600), ["server: 9.4 % more memory than after 600 s"]);
	assert.deepEqual(judge(samples((i) => ({ fds: 40 + Math.floor(i / 10) })), 600), ["server: 45 descriptors, 41 after 600 s"]);
	assert.deepEqual(judge(samples((i) => ({ threads: i === 59 ? 10 : 9 })), 600), [], "one sample is not enough");
	assert.deepEqual(judge(samples((i) => ({ threads: i > 50 ? 10 : 9 })), 600), ["server: 10 threads, 9 after 600 s"]);
	assert.deepEqual(judge(samples((i) => ({ pid: i > 30 ? 3 : 1 })), 600), ["server: it was started again"]);
	assert.match(judge(samples(undefined, 12), 600)[0], /too short/);
	assert.match(table(samples((i) => ({ rss: (50 + i) * 1048576 })), 600), /\| server \| 60\.0 \| 109\.0 \(\+81\.7 %\) \| 109\.0 \| 40 \| 41 \| 9 \| 9 \|/);
});

test("half a minute of it", { timeout: 600000 * slow }, async (context) => {
	const child = spawn(process.execPath, [fileURLToPath(new URL("../bench/soak.mjs", import.meta.url)), "--seconds", "30", "--sample", "4"],
		{ stdio: ["ignore", "pipe", "pipe"], // what silence does is others' to show: on a busy machine nodes are silent for longer
			env: { ...process.env, EXOGPU_SLOW: String(slow), EXOGPU_TEST_NODE_SILENCE_S: "300" } });
	let said = "";
	for (const name of ["stdout", "stderr"]) child[name].setEncoding("utf8").on("data", (text) => (said += text));
	const [code] = await once(child, "close");
	context.diagnostic(said.split("\n").find((line) => line.startsWith("answers: ")) ?? said);
	assert.equal(code, 0, said);
	for (const text of ["| server | ", "| worker of alpha | ", "it holds", "Nothing is wrong."]) assert.ok(said.includes(text), `${text} in: ${said}`);
	for (const what of ["answers", "tokens", "allocations"]) assert.match(said, new RegExp(`${what}: [1-9]`));
});
