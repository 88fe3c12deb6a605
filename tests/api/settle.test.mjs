// The way out for rows of state.db that are refused: `exogpu state settle`, with the server stopped.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { Client } from "./client.mjs";
import { smallDisk } from "./disk.mjs";
import { eventually, run, startServer, temporary } from "./server.mjs";

// What an attacker writes, by another program.
function write(data, sql) {
	execFileSync("python3", ["-c", "import sqlite3,sys; db=sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit(); db.close()",
		join(data, "state.db"), sql]);
}

test("a token that somebody wrote into state.db: refused, named, settled, and never good", async () => {
	const state = temporary();
	const first = await startServer();
	const { data } = first;
	const exogpu = (...words) => run([...words, "--data", data], { XDG_STATE_HOME: state });
	const admin = await Client.login(first);
	const { token, token_id } = await admin.call("token.create", { name: "small", scopes: ["observe"] });
	const busy = await exogpu("state", "settle", "--all");
	assert.equal(busy.code, 1);
	assert.match(busy.stderr, /another server runs/);
	await first.finish();
	assert.match((await exogpu("state", "settle")).stdout, /^Every row of state\.db matches the audit log/);
	write(data, `UPDATE tokens SET scopes = 63 WHERE token_id = '${token_id}'`);

	const second = await startServer({ data });
	await eventually(() => second.output.stderr.includes("exogpu state settle"), "the refusal names the way out");
	const refused = (server) => assert.rejects(Client.login(server, token), "a token that is refused");
	await refused(second);
	await second.finish();

	const listed = await exogpu("state", "settle", "--json");
	assert.equal(listed.code, 0, listed.stderr);
	assert.deepEqual(JSON.parse(listed.stdout).rows.map((one) => [one.row, one.settled]), [[`token:${token_id}`, false]]);
	assert.equal((await exogpu("audit", "verify")).code, 10, "nothing was changed");
	assert.equal((await exogpu("state", "settle", "--row", "token:nosuch")).code, 2);
	assert.equal((await exogpu("state", "settle", "--row", `token:${token_id}`, "--all")).code, 2);
	const settled = await exogpu("state", "settle", "--row", `token:${token_id}`);
	assert.equal(settled.code, 0, settled.stderr);
	assert.match(settled.stdout, new RegExp(`^token:${token_id}  .*: gone$`, "m"));
	assert.equal((await exogpu("audit", "verify")).code, 0);

	const third = await startServer({ data });
	await refused(third);
	const again = await Client.login(third);
	const { entries } = await again.call("audit.list", { action: "state." });
	const entry = entries.find((one) => one.action === "state.settle");
	assert.deepEqual([entry.actor, entry.target, entry.outcome, entry.detail.was], [`owner:${process.getuid()}`, `token ${token_id}`, "ok", "changed"]);
	assert.ok(entry.bound.some((row) => row.kind === "token" && row.id === token_id && row.sha256 === null), "it is gone for good");
	assert.equal((await again.call("audit.verify")).code, 0);
	await third.finish();
});

test("on a full disk nothing is settled, the error says so, and it is once there is room", async (t) => {
	const disk = smallDisk(16 * 1024);
	if (!disk) {
		t.skip("no file system may be mounted here");
		return;
	}
	const { data } = disk;
	const exogpu = (...words) => run([...words, "--data", data], { XDG_STATE_HOME: temporary() });
	const server = await startServer({ data });
	const { token_id } = await (await Client.login(server)).call("token.create", { name: "small", scopes: ["observe"] });
	await server.finish();
	write(data, `UPDATE tokens SET scopes = 63 WHERE token_id = '${token_id}'`);
	disk.fill();
	const full = await exogpu("state", "settle", "--all");
	assert.equal(full.code, 1, full.stdout);
	assert.match(full.stderr, /full|space/);
	disk.empty();
	assert.equal((await exogpu("audit", "verify")).code, 10, "nothing was changed");
	const settled = await exogpu("state", "settle", "--all");
	assert.equal(settled.code, 0, settled.stderr);
	assert.equal((await exogpu("audit", "verify")).code, 0);
});
