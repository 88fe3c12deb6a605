// A thousand kills of server, node and worker under load (tests/api/kills.mjs), counted by commit: each cycle is a line of
// build/reliability/kills-COMMIT.jsonl, so that a run that was interrupted goes on and none is mixed with another commit's.
//   node tests/bench/kills.mjs [CYCLES]
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { appendFileSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { Kills } from "../api/kills.mjs";

const wanted = Number(process.argv[2] ?? 1000);
const perDirectory = 60; // then another: a start also reads what all cycles before it have left
const git = (...args) => execFileSync("git", args, { encoding: "utf8", maxBuffer: 1 << 28 }).trim();
const sources = ["server", "engine", "common", "schema", "migrations", "tests/api/kills.mjs"]; // what the result is of
const changed = git("diff", "HEAD", "--", ...sources);
const commit = git("rev-parse", "--short=12", "HEAD") + (changed ? `-${createHash("sha256").update(changed).digest("hex").slice(0, 8)}` : "");
const file = `build/reliability/kills-${commit}.jsonl`;

const lines = () => (existsSync(file) ? readFileSync(file, "utf8").trim().split("\n").filter(Boolean).map((line) => JSON.parse(line)) : []);
const at = (values, share) => values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))];
const row = (name, values) => console.log(`| ${name} | ${values.length} | ${[0.5, 0.9, 0.99, 1].map((share) =>
	(at(values, share) / 1000).toFixed(2)).join(" | ")} |`);

mkdirSync("build/reliability", { recursive: true });
for (let done = lines().length; done < wanted;) {
	const kills = new Kills();
	await kills.start();
	for (let turn = 0; turn < perDirectory && done < wanted; turn++, done++) {
		const begun = performance.now(), before = kills.acknowledged;
		const cycle = await kills.cycle(done);
		appendFileSync(file, JSON.stringify({ ...cycle, acknowledged: kills.acknowledged - before, tookMs: performance.now() - begun,
			load: loadavg()[0], at: new Date().toISOString() }) + "\n");
	}
	await kills.finish();
}

const all = lines(), sum = (key) => all.reduce((total, one) => total + one[key], 0);
console.log(`\n### ${all.length} kills under load: commit ${commit}, ${cpus()[0].model}, ${cpus().length} CPUs, ` +
	`${(sum("tookMs") / 60000).toFixed(0)} minutes until ${all.at(-1).at}, load ${at(all.map((one) => one.load), 0.5).toFixed(1)} in the median\n`);
console.log(`${sum("acknowledged")} acknowledged changes, none lost; the audit log verified after each stop.\n`);
console.log("| s | kills | p50 | p90 | p99 | longest |");
console.log("|---|---|---|---|---|---|");
row("the server killed: until /healthz is 200 again, from its new start", all.filter((one) => one.readyMs).map((one) => one.readyMs));
for (const victim of ["server", "node", "worker"])
	row(`the ${victim} killed: until an allocation works again`, all.filter((one) => one.victim === victim).map((one) => one.servedMs));
process.exit(0);
