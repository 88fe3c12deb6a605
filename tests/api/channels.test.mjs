// Alerts reach a receiver outside: once when one is raised and once when it is cleared, whatever the receiver does and
// wherever the server is killed.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, FakeNode, assertContractKept } from "./client.mjs";
import { Receiver } from "./receiver.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "./records.mjs";
import { eventually, freePort, run, startServer, temporary } from "./server.mjs";

const full = { memory_used_bytes: 17100000000 }, free = { memory_used_bytes: 1000000000 };

describe("channels of alerts", () => {
	let server, admin, node, feed, receiver, channel, readings = free;
	const data = temporary();
	const list = async () => (await admin.call("alert.channel_list")).channels;
	const start = async () => {
		server = await startServer({ data, args: ["--alert-host", "127.0.0.1"] });
		admin = await Client.login(server);
		node = await FakeNode.connect(server, nodeRecord());
		await node.devices([deviceRecord()]);
		feed = setInterval(() => node.telemetry([deviceReadings(readings)], nodeReadings()), 200);
	};
	const kill = async () => {
		clearInterval(feed);
		await server.stop("SIGKILL");
	};
	// Raise or clear the alert of the device's memory, and wait until it is so.
	const raise = async (is = true) => {
		readings = is ? full : free;
		await eventually(async () => (await admin.call("alert.list")).alerts.length === (is ? 1 : 0), is ? "it is raised" : "it is cleared");
		return (await admin.call("alert.list", { state: "all", limit: 1 })).alerts[0];
	};
	const taken = (count) => eventually(() => receiver.taken.length >= count && receiver.taken, () => `${count} deliveries; there were ${receiver.got.length}`);
	const delivered = () => eventually(async () => (await list()).every((one) => one.waiting === 0), "nothing waits");

	before(async () => {
		await start();
		receiver = await new Receiver().start(await freePort()); // it goes away and comes back
		await admin.call("alert.rule_set", { rule_id: "memory_full.device", for_s: 0 });
	});
	after(async () => {
		clearInterval(feed);
		await server?.finish();
		await receiver?.stop();
		assertContractKept();
	});

	test("who may add one, and where it may lead", async () => {
		const token = (await admin.call("token.create", { name: "looks", scopes: ["observe"] })).token;
		const observer = await Client.login(server, token);
		await observer.refused("alert.channel_add", { kind: "webhook", url: receiver.url }, "forbidden");
		await observer.refused("alert.channel_list", {}, "forbidden");
		for (const url of ["http://127.0.0.2/x", "https://127.0.0.2/x", "https://10.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.2]/", "https://169.254.169.254/latest",
			"https://localhost/", "https://0x7f000002/", "https://2130706434/", "http://example.com/"]) {
			const error = await admin.refused("alert.channel_add", { kind: "webhook", url }, "forbidden");
			assert.match(error.hint, /--alert-host/, url);
		}
		for (const url of ["example.com/x", "file:///etc/passwd", "gopher://127.0.0.1/", "https://user:word@example.com/", "https://", "https://example.com/ x"])
			await admin.refused("alert.channel_add", { kind: "webhook", url }, "invalid_params");
		await admin.refused("alert.channel_add", { kind: "ntfy", url: "https://ntfy.sh/" }, "invalid_params");
		await admin.refused("alert.channel_add", { kind: "webhook", url: receiver.url, secret: "short" }, "invalid_params");
		await admin.refused("alert.channel_add", { kind: "webhook", url: receiver.url, quiet_hours: { from: "25:00", to: "07:00" } }, "invalid_params");
		assert.deepEqual(await list(), []);
	});

	test("one is added; its secret is shown this once and its path never", async () => {
		const added = await admin.call("alert.channel_add", { kind: "webhook", url: `${receiver.url}/hidden-path` });
		assert.match(added.secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
		receiver.secret = added.secret;
		const { secret, ...rest } = added;
		channel = { ...rest, secret: null };
		assert.deepEqual([rest.url, rest.has_secret, rest.severities, rest.quiet_hours, rest.last, rest.waiting],
			[`${receiver.url}/…`, true, ["warning", "critical"], null, null, 0]);
		assert.deepEqual(await list(), [channel]);
		const { entries } = await admin.call("audit.list", { action: "alert.channel_add" });
		assert.equal(entries.filter((one) => one.outcome === "ok").length, 1);
		assert.doesNotMatch(JSON.stringify(entries) + server.output.stderr, new RegExp(`hidden-path|${secret.slice(6, 20).replace(/[+/]/g, ".")}`));
	});

	test("the test button", async () => {
		assert.deepEqual(await admin.call("alert.channel_test", { channel_id: channel.channel_id }), { delivered: true, status: 204, message: null });
		const [one] = receiver.got;
		assert.deepEqual([one.method, one.url, one.valid, one.json.type, one.json.data.alert], ["POST", "/hidden-path", true, "alert.test", null]);
		receiver.plan = [{ status: 302, headers: { location: "http://127.0.0.2/elsewhere" } }];
		const moved = await admin.call("alert.channel_test", { channel_id: channel.channel_id });
		assert.deepEqual([moved.delivered, moved.status], [false, 302]);
		assert.match(moved.message, /redirects are not followed/);
		receiver.plan = ["drop"];
		const dropped = await admin.call("alert.channel_test", { channel_id: channel.channel_id });
		assert.deepEqual([dropped.delivered, dropped.status], [false, null]);
		await admin.refused("alert.channel_test", { channel_id: "chn_nothing" }, "not_found");
		receiver.got.length = 0;
	});

	test("an alert comes once, and once more when it clears, past failures of every kind", async () => {
		receiver.plan = [500, "drop"];
		const raised = await raise();
		await taken(1);
		await delivered();
		const first = receiver.got.slice();
		assert.deepEqual(first.map((one) => one.answer), [500, "drop", 204]);
		assert.ok(first.every((one) => one.valid && one.id === first[0].id && one.text === first[0].text), "the same delivery, signed each time");
		assert.deepEqual([first[0].json.type, first[0].json.id, first[0].json.data.alert], ["alert.raised", first[0].id, raised]);
		assert.equal(first[0].headers["content-type"], "application/json");
		const cleared = await raise(false);
		await taken(2);
		await delivered();
		const [, second] = receiver.taken;
		assert.deepEqual([second.json.type, second.json.data.alert, second.valid], ["alert.cleared", cleared, true]);
		assert.notEqual(second.id, first[0].id);
		assert.equal(receiver.got.length, 4);
		assert.equal((await list())[0].last.delivered, true);
		receiver.got.length = 0;
	});

	test("killed between the raise and the delivery, and before it knows of a delivery, the server delivers in order, under the same ids", async () => {
		const { port } = receiver;
		await receiver.stop();
		const raised = await raise();
		await eventually(async () => (await list())[0].last?.delivered === false, "the first attempt fails");
		const cleared = await raise(false);
		assert.equal((await list())[0].waiting, 2);
		await kill();
		receiver.plan = ["hang"];
		await receiver.start(port);
		await start();
		await taken(1);
		await kill();
		await start();
		await taken(2);
		await delivered();
		assert.ok(receiver.got.every((one) => one.valid));
		const [first, second] = receiver.got;
		assert.deepEqual([second.duplicate, second.text], [true, first.text], "the receiver can tell that it has it");
		assert.deepEqual(receiver.taken.map((one) => one.json.type), ["alert.raised", "alert.cleared"]);
		assert.deepEqual(receiver.taken.map((one) => one.json.data.alert), [raised, cleared]);
		receiver.got.length = 0;
	});

	let silent, hung;
	test("a receiver that never answers is waited for, for ten seconds", async () => {
		silent = await new Receiver().start();
		silent.plan = ["hang"];
		const { channel_id } = await admin.call("alert.channel_add", { kind: "webhook", url: silent.url, severities: ["critical"] });
		hung = admin.call("alert.channel_test", { channel_id }); // awaited by the last test
		await eventually(() => silent.got.length === 1, "it has the message");
		await admin.refused("alert.channel_test", { channel_id }, "conflict");
		await admin.call("alert.channel_remove", { channel_id });
	});

	test("what a receiver refuses is not sent again; ntfy, severities and quiet hours", async () => {
		const now = new Date(), minute = (offset) => new Date(now.getTime() + offset * 60000).toTimeString().slice(0, 5);
		const ntfy = await new Receiver().start(), topic = { kind: "ntfy", url: `${ntfy.url}/my-topic` };
		await admin.call("alert.channel_add", { ...topic, secret: "tk_1234567890", severities: ["warning"] });
		await admin.call("alert.channel_add", { ...topic, severities: ["critical"] });
		await admin.call("alert.channel_add", { ...topic, severities: ["warning"], quiet_hours: { from: minute(-60), to: minute(600) } });
		receiver.plan = [400];
		const waiting = (numbers) => eventually(async () => (await list()).map((one) => one.waiting).join() === numbers, `${numbers} wait`);
		await raise();
		await taken(1);
		await waiting("0,0,0,1");
		await raise(false);
		await taken(2);
		await waiting("0,0,0,2");
		assert.deepEqual(receiver.got.map((one) => [one.json.type, one.answer]), [["alert.raised", 400], ["alert.cleared", 204]]);
		assert.deepEqual(ntfy.got.map((one) => [one.url, one.headers.authorization, one.json.topic, one.json.priority]),
			[["/", "Bearer tk_1234567890", "my-topic", 4], ["/", "Bearer tk_1234567890", "my-topic", 3]]);
		assert.match(ntfy.got[0].json.message, /nearly full/);
		assert.match(ntfy.got[1].json.title, /resolved/);
		const metrics = (await server.http("/metrics", { headers: { authorization: `Bearer ${server.token}` } })).text;
		assert.match(metrics, new RegExp(`^exogpu_alert_deliveries_dropped_total\\{channel_id="${channel.channel_id}",kind="webhook"\\} 1$`, "m"));
		assert.match(metrics, new RegExp(`^exogpu_alert_outbox\\{channel_id="${channel.channel_id}",kind="webhook"\\} 0$`, "m"));
		for (const one of await list()) await admin.call("alert.channel_remove", { channel_id: one.channel_id });
		await admin.refused("alert.channel_remove", { channel_id: channel.channel_id }, "not_found");
		assert.deepEqual(await list(), []);
		receiver.got.length = 0;
		await ntfy.stop();
	});

	test("the command line", async () => {
		const cli = (...words) => run(["alerts", "channels", ...words, "--data", data]);
		assert.match((await cli()).stderr, /No channels/);
		const secret = join(temporary(), "secret");
		writeFileSync(secret, "sixteen-letters1\n", { mode: 0o600 });
		const added = await cli("add", "webhook", `${receiver.url}/x`, "--secret-file", secret, "--severities", "info,critical", "--quiet", "22:00-07:00");
		assert.equal(added.code, 0, added.stderr);
		const [one] = await list();
		assert.equal(added.stdout.trim(), one.channel_id, "its secret is not repeated");
		assert.deepEqual([one.severities, one.quiet_hours], [["info", "critical"], { from: "22:00", to: "07:00" }]);
		receiver.secret = "sixteen-letters1";
		const tested = await cli("test", one.channel_id);
		assert.deepEqual([tested.code, receiver.got.map((got) => got.valid)], [0, [true]], tested.stderr);
		receiver.plan = [500];
		const failed = await cli("test", one.channel_id);
		assert.equal(failed.code, 1);
		assert.match(failed.stderr, /the receiver answered 500/);
		assert.match((await cli()).stdout, /22:00-07:00/);
		assert.equal((await cli("add", "webhook", receiver.url, "--quiet", "night")).code, 2);
		assert.equal((await cli("remove", one.channel_id)).code, 0);
		assert.deepEqual(await list(), []);
		const made = await cli("add", "webhook", receiver.url);
		assert.match(made.stdout, /secret, shown this once: whsec_/);
		await cli("remove", (await list())[0].channel_id);
	});

	test("and what became of the one that never answered", async () => {
		const outcome = await hung;
		assert.deepEqual([outcome.delivered, outcome.status], [false, null]);
		assert.match(outcome.message, /^127\.0\.0\.1: Timeout/);
		await silent.stop();
	});
});
