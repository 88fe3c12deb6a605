// How long several servers on one PostgreSQL are without a leader: `node tests/bench/leaders.mjs [CHANGES]`. Three servers;
// in turn the one that leads is killed, frozen (and woken afterwards) and stopped. Counted is from the signal to the first
// change that the next one has stored. After each, what was acknowledged is looked for, and the audit log verified.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Postgres, skip } from "../api/postgres.mjs";
import { Servers } from "../api/servers.mjs";

const changes = Number(process.argv[2] ?? 30), ways = { killed: "SIGKILL", frozen: "SIGSTOP", stopped: "SIGTERM" };
process.setMaxListeners(0);

test("changes of the leader", { skip }, async () => {
	const postgres = await Postgres.start(), servers = new Servers(postgres.make("leaders")), took = {}, made = [];
	let leader = await servers.start();
	await servers.role(leader, "leader");
	let all = [leader, await servers.start(), await servers.start()];
	const make = async (name) => {
		await (await servers.login(leader)).call("token.create", { name, scopes: ["observe"] });
		made.push(name);
	};
	for (let i = 0; i < changes; i++) {
		for (const one of all) if (one !== leader) await servers.role(one, "follower");
		await make(`before ${i}`);
		await new Promise((resolve) => setTimeout(resolve, (i * 137) % 1000)); // anywhere between two stamps
		const [how, signal] = Object.entries(ways)[i % 3], before = leader, begun = performance.now();
		if (how === "frozen") before.child.kill(signal);
		else await servers.stop(before, signal);
		leader = await servers.leader(all.filter((one) => one !== before));
		await make(`after ${i}`);
		(took[how] ??= []).push(Math.round(performance.now() - begun));
		before.child.kill("SIGCONT");
		await before.exited;
		const admin = await servers.login(leader), known = new Set((await admin.call("token.list", {})).tokens.map(({ name }) => name));
		assert.deepEqual(made.filter((name) => !known.has(name)), [], "acknowledged, and not there");
		assert.equal((await admin.call("audit.verify", {})).verdict, "holds");
		all = [...all.filter((one) => one !== before), await servers.start({ data: before.data, port: before.port })];
	}
	for (const [how, list] of Object.entries(took)) {
		list.sort((a, b) => a - b);
		console.log(`# ${how}: ${list.length} changes, median ${list[list.length >> 1]} ms, worst ${list.at(-1)} ms`);
	}
	await servers.end();
	await postgres.stop();
});
