// Every method of schema/api.json, walked with valid and with generated invalid parameters, as each kind of caller.
// A method that the document gains and this file does not know is a failure.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { api, apiText, invalidParams, isTime, method, paramsFault } from "./contract.mjs";
import { ModelWorker } from "./generating.mjs";
import { modelFile } from "./gguf.mjs";
import { deviceRecord } from "./records.mjs";
import { binary, eventually, startServer, temporary } from "./server.mjs";
import { Stranger } from "./stranger.mjs";
import { WorkerNode } from "./workers.mjs";

const now = Date.now();
const nowhere = "http://127.0.0.1:9/hook"; // where nobody answers
// Parameters that fit, for each method; made anew for each call.
const fitting = {
	"server.info": () => ({}),
	"auth.login": () => ({ token: context.server.token }),
	"auth.login_code": () => ({}),
	"auth.redeem": () => ({ code: context.loginCode ?? "exocode_" }),
	"cluster.snapshot": () => ({}),
	"events.subscribe": () => ({ topics: ["inventory"], since: { epoch: "none", seq: 0 } }),
	"telemetry.history": () => ({ device_id: "dev_gpu", from: new Date(now - 60000).toISOString(), to: new Date(now).toISOString(),
		step_s: 1 }),
	"thermal.forecast": () => ({ device_id: "dev_gpu", sensor: "core", horizon_s: 300, power_watts: 250.5 }),
	"thermal.policy": () => ({ device_id: "dev_gpu" }),
	"thermal.policy_set": () => ({ device_id: "dev_gpu", margin_celsius: 6, resume_celsius: 9, actions: ["limit"] }),
	"device.verify": () => ({ device_id: "dev_gpu" }),
	"device.drain": () => ({ device_id: "dev_gpu", drain: false }),
	"token.create": () => ({ name: "made", scopes: ["observe"], expires_in_s: 3600, calls_per_s: 100, max_sessions: 10 }),
	"token.list": () => ({}),
	"token.revoke": () => ({ token_id: context.spare }),
	"memory.allocate": () => ({ device_id: "dev_gpu", bytes: 100, label: "mine" }),
	"memory.write": () => ({ allocation_id: context.allocation, offset: 1 }),
	"memory.read": () => ({ allocation_id: context.allocation, offset: 1, bytes: 10 }),
	"memory.copy": () => ({ from: context.allocation, from_offset: 0, to: context.allocation, to_offset: 10, bytes: 10 }),
	"memory.fill": () => ({ allocation_id: context.allocation, offset: 1, bytes: 10, value: 255 }),
	"memory.free": () => ({ allocation_id: context.spareAllocation }),
	"memory.list": () => ({}),
	"compute.load": () => ({ device_id: "dev_gpu", format: "builtin" }),
	"compute.launch": () => ({ module_id: context.module, kernel: "k", grid: [1, 1, 1], block: [1, 1, 1],
		args: [{ allocation_id: context.allocation }, { f32: 1 }], timeout_ms: 1000 }),
	"compute.run": () => ({ device_id: "dev_gpu", kernel: "k", timeout_ms: 1000, args: [{ zeros: 2 }, { f32s: [1, 2.5] }, { f32: 1 }, { u32: 2 }] }),
	"compute.unload": () => ({ module_id: context.spareModule }),
	"audit.list": () => ({ after: 0, before: 1000, limit: 10, actor: "owner:0", action: "token.", device_id: "dev_gpu",
		outcome: "ok", text: "x", from: new Date(now - 60000).toISOString(), to: new Date(now).toISOString() }),
	"audit.head": () => ({ since_size: 0 }),
	"log.list": () => ({ limit: 5 }),
	"audit.verify": () => ({}),
	"certificate.list": () => ({}),
	"usage.list": () => ({ by: "model", from: new Date(now - 86400000).toISOString(), to: new Date(now + 1000).toISOString(), step_s: 3600 }),
	"alert.list": () => ({ state: "all", limit: 5, before: "alert_0000000000000000" }),
	"alert.acknowledge": () => ({ alert_id: context.alert }),
	"alert.rules": () => ({}),
	"alert.rule_set": () => ({ rule_id: "disk_full", enabled: true, threshold: 99, clear_threshold: 98, for_s: 60 }),
	"alert.channel_add": () => ({ kind: "webhook", url: nowhere, secret: "sixteen-letters1", severities: ["info"], quiet_hours: { from: "22:00", to: "07:00" } }),
	"alert.channel_list": () => ({}),
	"alert.channel_test": () => ({ channel_id: context.channel }),
	"alert.channel_remove": () => ({ channel_id: context.spareChannel }),
	"node.waiting": () => ({}),
	"node.approve": () => ({ node_id: context.waiting, code: context.code }),
	"node.refuse": () => ({ node_id: context.unwanted }),
	"node.remove": () => ({ node_id: context.leaving }),
	"node.ticket": () => ({ expires_in_s: 60, uses: 2 }),
	"lend.create": () => ({ name: "phones", expires_in_s: 60, uses: 2 }),
	"lend.list": () => ({}),
	"lend.policy": () => ({}),
	"lend.policy_set": () => ({ check_percent: 5 }),
	"lend.revoke": () => ({ lend_id: context.lend }),
	"ticket.list": () => ({}),
	"ticket.revoke": () => ({ ticket_id: context.ticket }),
	"model.add": () => ({ source: "/nonexistent/model.gguf", name: "made" }),
	"model.upload_begin": () => ({ file: "begun.gguf", bytes: 1000, modified_at: new Date(now).toISOString(), name: "begun" }),
	"model.upload_write": () => ({ model_id: context.upload, offset: 10, sha256: createHash("sha256").update("bytes").digest("hex") }),
	"model.upload_end": () => ({ model_id: context.uploaded, sha256: createHash("sha256").update(modelFile()).digest("hex") }),
	"model.browse": () => ({ dir: context.folder }),
	"model.list": () => ({}),
	"chat.models": () => ({ watch: false }),
	"conversation.list": () => ({}),
	"conversation.read": () => ({ conversation_id: "kept" }),
	"conversation.write": () => ({ conversation_id: "kept", version: 1 }),
	"conversation.delete": () => ({ conversation_id: "spare" }),
	"model.remove": () => ({ model_id: context.model }),
	"model.search": () => ({ text: "llama" }),
	"model.catalog": () => ({}),
	"model.reach": () => ({}),
	"placement.preview": () => ({ model_id: context.placed, strategy: "auto", pins: [{ device_id: "dev_gpu", first_layer: 0, layer_count: 1 }],
		context_tokens: 1024, sequences: 4, format: "Q8_0" }),
	"topology.summary": () => ({}),
	"link.history": () => ({ from_node_id: "nod_test", to_node_id: "server", from: new Date(now - 60000).toISOString(),
		to: new Date(now).toISOString(), step_s: 60 }),
	"discovery.list": () => ({}),
	"instance.create": () => ({ model_id: context.placed }),
	"instance.list": () => ({}),
	"instance.move": () => ({ instance_id: context.instance }),
	"instance.delete": () => ({ instance_id: context.instance }),
};
const context = { folder: temporary() };

// Everything that a call could have changed.
async function stateOf(admin) {
	const { epoch, nodes, devices, recent, allocations } = await admin.call("cluster.snapshot");
	const { tokens } = await admin.call("token.list");
	const news = recent.filter(({ kind }) => !kind.startsWith("model.")); // an earlier call's model may load meanwhile
	return { epoch, nodes, devices, news, allocations, tokens: tokens.map(({ last_used_at, sessions, ...token }) => token) };
}

describe("every method of the contract", () => {
	let server, admin, observer, stranger, node;

	before(async () => {
		server = context.server = await startServer({ // where nodes can ask to join, and without the hubs of the world
			listen: "0.0.0.0:0", args: ["--model-dir", context.folder, "--alert-host", "127.0.0.1", "--hub-url", "http://127.0.0.1:9", "--ollama-url", "http://127.0.0.1:9"] });
		admin = await Client.login(server);
		observer = await Client.login(server, (await admin.call("token.create", { name: "observer", scopes: ["observe"] })).token);
		context.spare = (await admin.call("token.create", { name: "spare", scopes: ["join"] })).token_id;
		node = await WorkerNode.start(server, { devices: [deviceRecord()], Worker: ModelWorker });
		await admin.call("events.subscribe", { topics: ["inventory"] });
		await admin.until(async () => true, "ready");
		for (;;) if ((await admin.call("cluster.snapshot")).devices.length) break;
		for (const name of ["allocation", "spareAllocation"])
			context[name] = (await admin.call("memory.allocate", { device_id: "dev_gpu", bytes: 100 })).allocation_id;
		for (const name of ["module", "spareModule"])
			context[name] = (await admin.call("compute.load", { device_id: "dev_gpu", format: "builtin" })).module_id;
		const { ticket, ticket_id } = await admin.call("node.ticket", { uses: 2 });
		const { authority_sha256 } = await admin.call("server.info");
		for (const name of ["waiting", "unwanted"]) {
			context[name] = `nod_${name}`;
			const { code } = await (await Stranger.connect(server)).meet(context[name], authority_sha256);
			context.code ??= code; // of the first
		}
		await (await Stranger.connect(server)).joinByTicket((context.leaving = "nod_leaving"), ticket);
		context.ticket = ticket_id;
		for (const name of ["channel", "spareChannel"])
			context[name] = (await admin.call("alert.channel_add", { kind: "webhook", url: nowhere, severities: ["info"] })).channel_id;
		context.lend = (await admin.call("lend.create", { name: "spare" })).lend_id;
		await admin.call("alert.rule_set", { rule_id: "node_offline", for_s: 0 });
		context.alert = (await eventually(async () => (await admin.call("alert.list")).alerts[0], "an alert: the node that was let in does not come")).alert_id;
		const source = join(temporary(), "placed.gguf");
		writeFileSync(source, modelFile());
		context.placed = (await admin.call("model.add", { source })).model_id;
		await eventually(async () => (await admin.call("model.list")).models[0].state === "ready", "the model is ready");
		context.instance = (await admin.call("instance.create", { model_id: context.placed })).instance_id;
		context.model = (await admin.call("model.add", { source: "/nonexistent/other.gguf" })).model_id;
		const bytes = modelFile();
		for (const name of ["upload", "uploaded"])
			context[name] = (await admin.call("model.upload_begin", { file: `${name}.gguf`, bytes: bytes.length })).model.model_id;
		await admin.callWith("model.upload_write", { model_id: context.uploaded, offset: 0 }, bytes);
		for (const conversation_id of ["kept", "spare"]) await admin.callWith("conversation.write", { conversation_id }, Buffer.from("bytes"));
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("has parameters in this file", () => {
		assert.deepEqual(Object.keys(fitting).sort(), api.methods.map((one) => one.name).sort());
		for (const [name, make] of Object.entries(fitting)) {
			for (const thing of ["waiting", "unwanted", "leaving", "ticket", "spare", "allocation", "spareAllocation", "module", "spareModule", "model", "placed", "instance", "alert", "upload", "uploaded", "loginCode"]) context[thing] ??= "x";
			context.code ??= "000000";
			assert.equal(paramsFault(api, name, make()), undefined, name);
		}
	});

	for (const { name, "x-scope": scope } of api.methods) {
		const needsLogin = scope !== "none";

		test(`${name}: valid parameters`, async () => {
			const client = needsLogin ? admin : await Client.open(server);
			if (name === "auth.redeem") context.loginCode = (await admin.call("auth.login_code")).code; // it lasts a minute
			const body = method(api, name)["x-body"]?.startsWith("required") ? Buffer.from("bytes") : undefined;
			await (body ? client.callWith(name, fitting[name](), body) : client.call(name, fitting[name]())); // it checks the result
			if (!needsLogin) await client.close();
		});

		test(`${name}: parameters that do not fit are refused and change nothing`, async () => {
			const client = name === "auth.login" ? await Client.login(server) : admin;
			const earlier = await stateOf(admin);
			let count = 0;
			for (const params of invalidParams(api, name, fitting[name]())) {
				const error = await client.refused(name, params, "invalid_params");
				assert.equal(error.code, -32602);
				assert.ok(error.said, "a message");
				count++;
			}
			assert.ok(count >= 1 + 5 * method(api, name).params.length, `${count} ways of being wrong were tried`);
			for (const params of [[], [1], "text", 3, true, null]) {
				const error = await client.refused(name, params);
				assert.equal(error.reason, "invalid_request", JSON.stringify(params));
			}
			assert.deepEqual(await stateOf(admin), earlier);
		});

		test(`${name}: without a login`, async () => {
			const client = await Client.open(server);
			if (needsLogin) {
				for (const params of [fitting[name](), { foreign: 1 }]) await client.refused(name, params, "unauthenticated");
			} else {
				await client.refused(name, { ...fitting[name](), foreign: 1 }, "invalid_params");
			}
			await client.close();
		});

		if (needsLogin && scope !== "observe")
			test(`${name}: with a token that may only observe`, async () => {
				const earlier = await stateOf(admin);
				for (const params of [fitting[name](), { foreign: 1 }]) {
					const error = await observer.refused(name, params, "forbidden");
					assert.match(error.hint ?? "", new RegExp(scope), "the hint names the scope");
				}
				assert.deepEqual(await stateOf(admin), earlier);
			});
		if (scope === "observe")
			test(`${name}: with a token that may only observe`, () => observer.call(name, fitting[name]()));
	}

	test("a token without the scope observe reads nothing", async () => {
		const { token } = await admin.call("token.create", { name: "joiner", scopes: ["join", "infer", "compute", "allocate"] });
		const client = await Client.login(server, token);
		for (const { name } of api.methods.filter((one) => ["observe", "admin"].includes(one["x-scope"])))
			await client.refused(name, fitting[name](), "forbidden");
		await client.close();
	});

	test("a method that the document does not name", async () => {
		for (const name of ["server.stop", "rpc.discover", "event", "SERVER.INFO", "server.info ", "", "x".repeat(5000), "ß"]) {
			const error = await admin.refused(name, {}, "method_not_found");
			assert.equal(error.code, -32601);
		}
		stranger = await Client.open(server);
		await stranger.refused("server.stop", {}, "unauthenticated"); // nobody learns which methods there are
		await stranger.close();
	});

	test("things that do not exist", async () => {
		await admin.refused("device.verify", { device_id: "dev_none" }, "not_found");
		await admin.refused("device.drain", { device_id: "dev_none", drain: true }, "not_found");
		await admin.refused("telemetry.history", { ...fitting["telemetry.history"](), device_id: "dev_none" }, "not_found");
		await admin.refused("token.revoke", { token_id: "none" }, "not_found");
	});

	test("values that fit the document and still make no sense", async () => {
		const history = fitting["telemetry.history"]();
		await admin.refused("telemetry.history", { ...history, from: history.to, to: history.from }, "invalid_params");
		await admin.refused("telemetry.history", { ...history, from: "yesterday at half past ten" }, "invalid_params");
		await admin.refused("telemetry.history", { ...history, to: "2026-13-01T00:00:00.000Z" }, "invalid_params");
		await admin.refused("telemetry.history", { ...history, to: "2026-11-20T14:31:52.000Z!" }, "invalid_params");
	});

	test("server.info describes this server and this document", async () => {
		const info = await admin.call("server.info");
		const [served, health] = await Promise.all([server.http("/schema/api.json"), server.http("/healthz")]);
		assert.equal(served.text, apiText, "/schema/api.json is the file");
		assert.equal(info.schema_sha256, createHash("sha256").update(apiText).digest("hex"));
		assert.equal(info.version, health.json().version);
		const { stdout } = spawnSync(binary, ["version"], { encoding: "utf8" });
		assert.equal(stdout, `exogpu ${info.version}\nCUDA kernels: ${health.json().cuda_kernels}\n`);
		assert.ok(isTime(info.started_at), info.started_at);
		assert.ok(Math.abs(Date.parse(info.started_at) - now) < 600000, info.started_at);
		assert.equal(info.limits.head_bytes, 1048576);
		assert.equal(info.limits.login_bytes, 4096);
		assert.equal(info.limits.nesting, 32);
	});
});
