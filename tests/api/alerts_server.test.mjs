// Alerts about the server's own files: a history that cannot be written, and an audit log that was altered. Each is raised
// once and cleared once, with what really causes it.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "./records.mjs";
import { eventually, run, slow, startServer, temporary } from "./server.mjs";

describe("alerts about the server's files", () => {
	let server, admin, node, feed;
	const data = temporary(), minutes = 150000 * slow; // a minute that begins now ends within two
	const of = async (kind) => (await admin.call("alert.list", { state: "all" })).alerts.filter((one) => one.kind === kind);
	const stands = (kind, ms) => eventually(async () => (await of(kind)).find((one) => !one.cleared_at), `${kind} is raised`, ms);
	const isCleared = (kind, ms) => eventually(async () => (await of(kind)).every((one) => one.cleared_at), `${kind} is cleared`, ms);

	before(async () => {
		server = await startServer({ data });
		admin = await Client.login(server);
		node = await FakeNode.connect(server, nodeRecord());
		await node.devices([deviceRecord()]);
		feed = setInterval(() => node.telemetry([deviceReadings()], nodeReadings()), 500);
	});
	after(async () => {
		clearInterval(feed);
		await server?.finish();
		assertContractKept();
	});

	test("another program holds the history: its minutes are not written, until that program lets go", async () => {
		await admin.call("alert.rule_set", { rule_id: "history_unwritten", for_s: 0 });
		const holder = spawn("python3", ["-c", "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)\n" +
			"db.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\nsys.stdin.read()", join(data, "history.db")], { stdio: ["pipe", "pipe", "inherit"] });
		await once(holder.stdout, "data");
		const alert = await stands("history_unwritten", minutes);
		assert.deepEqual([alert.severity, alert.subject.type, alert.message], ["warning", "server", "the history of readings cannot be written"]);
		await eventually(() => /minute averages were dropped: .*history\.db is in use by another program/.test(server.output.stderr), "the log says why");
		holder.stdin.end();
		await isCleared("history_unwritten", minutes);
		assert.deepEqual((await of("history_unwritten")).map((one) => one.alert_id), [alert.alert_id]);
	});

	test("an entry of the audit log that was altered: a verification finds it, and one that does not clears it", async () => {
		// As whoever can write to the file would: the trigger that refuses it is put away for that moment.
		const alter = (from, to) => execFileSync("python3", ["-c", `import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute("BEGIN IMMEDIATE")
triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit'").fetchall()
for name, sql in triggers: db.execute("DROP TRIGGER " + name)
print(db.execute("UPDATE audit SET detail = replace(detail, ?1, ?2) WHERE instr(detail, ?1)", sys.argv[2:]).rowcount)
for name, sql in triggers: db.execute(sql)
db.execute("COMMIT")`, join(data, "state.db"), from, to], { encoding: "utf8" }).trim();
		await admin.call("token.create", { name: "innocent", scopes: ["observe"] });
		const intact = await admin.call("audit.verify");
		assert.equal(intact.ok, true, JSON.stringify(intact));
		assert.equal(alter("innocent", "harmless"), "1");
		const found = await admin.call("audit.verify");
		assert.equal(found.ok, false);
		const alert = await stands("audit_failed");
		assert.deepEqual([alert.severity, alert.subject.type], ["critical", "server"]);
		assert.ok(alert.message.startsWith("the audit log did not pass its verification: ") && alert.message.endsWith(found.verdict), alert.message);
		assert.equal((await run(["audit", "verify", "--data", data])).code, 10, "the hint's command finds it, too");
		assert.equal(alter("harmless", "innocent"), "1");
		const again = await admin.call("audit.verify");
		assert.equal(again.ok, true, JSON.stringify(again));
		await isCleared("audit_failed");
		assert.deepEqual((await of("audit_failed")).map((one) => one.alert_id), [alert.alert_id]);
	});
});
