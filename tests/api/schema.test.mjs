// The server's own validator against ajv: both must give the same verdict on every parameter list that is made here from
// the documents, and on the corpus of the fuzz target. EXOGPU_VERDICT is the program that asks the former (verdict.c);
// EXOGPU_CORPUS may name a further folder of the corpus' form.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { api, node, paramsFault, variants } from "./contract.mjs";
import { deviceReadings, deviceRecord, nodeReadings, nodeRecord } from "./records.mjs";

const program = process.env.EXOGPU_VERDICT;
const documents = { api, node };
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Lists that fit, to start from.
const bases = {
	api: { "auth.login": { token: "x", session_id: "s" }, "events.subscribe": { topics: ["log"], since: { epoch: "e", seq: 1 } },
		"telemetry.history": { device_id: "d", from: "2026-11-20T14:31:52Z", to: "2026-11-20T14:31:53Z", step_s: 1 },
		"thermal.forecast": { device_id: "d", sensor: "core", horizon_s: 60, power_watts: 100 },
		"thermal.policy": { device_id: "d" }, "thermal.policy_set": { device_id: "d", margin_celsius: 5, resume_celsius: 10, actions: ["pause"] },
		"device.verify": { device_id: "d" }, "device.drain": { device_id: "d", drain: true }, "token.revoke": { token_id: "t" },
		"token.create": { name: "n", scopes: ["observe"], expires_in_s: 1, calls_per_s: 1, max_sessions: 1,
			memory_limit_bytes: 1 },
		"memory.allocate": { device_id: "d", bytes: 1, label: "l" }, "memory.write": { allocation_id: "a", offset: 0 },
		"memory.read": { allocation_id: "a", offset: 0, bytes: 1 },
		"memory.copy": { from: "a", from_offset: 0, to: "b", to_offset: 0, bytes: 1 },
		"memory.fill": { allocation_id: "a", offset: 0, bytes: 1, value: 0 }, "memory.free": { allocation_id: "a" },
		"compute.load": { device_id: "d", format: "ptx" }, "compute.unload": { module_id: "m" },
		"compute.launch": { module_id: "m", kernel: "k", grid: [1, 1, 1], block: [1, 1, 1], timeout_ms: 1,
			args: [{ allocation_id: "a" }, { f32: 0.5 }, { i32: -1 }, { u32: 1 }, { u64: "1" }] },
		"compute.run": { device_id: "d", kernel: "k", timeout_ms: 1, args: [{ zeros: 1 }, { f32s: [0.5] }, { i32: -1 }, { u64: "1" }] } },
	node: { "node.register": { protocol: 1, node: nodeRecord() }, "node.devices": { devices: [deviceRecord()] },
		"node.telemetry": { node: nodeReadings(), devices: [deviceReadings({ processes: [{ pid: 1, name: null, memory_bytes: 2 }] })] },
		"node.watch": { watched: true }, "node.servers": { servers: ["https://10.0.0.1:52415/"] }, "device.verify": { device_id: "d" }, "worker.enumerate": { backend: "cpu" },
		"tab.join": { protocol: 1, token: "t" }, "tab.hello": { protocol: 1, node_id: "n", secret: "s".repeat(43) },
		"tenant.open": { worker_id: "w", key: "k", backend: "cpu", memory_limit_bytes: 1 },
		"tenant.device": { worker_id: "w", device_id: "d", device: 0 }, "tenant.close": { worker_id: "w" },
		"tenant.ended": { worker_id: "w", message: "m" }, "worker.open": { backend: "cpu", memory_limit_bytes: 1, cache_directory: null },
		"worker.device": { device: 0, hardware_key: "k" }, "link.hello": { worker_id: "w", key: "k" },
		"memory.allocate": { device: 0, handle: 1, bytes: 1 }, "memory.write": { handle: 1, offset: 0 },
		"memory.read": { handle: 1, offset: 0, bytes: 1 },
		"memory.copy": { from: 1, from_offset: 0, to: 2, to_offset: 0, bytes: 1 },
		"memory.fill": { handle: 1, offset: 0, bytes: 1, value: 0 }, "memory.free": { handle: 1 },
		"compute.load": { device: 0, module: 1, format: "ptx" }, "compute.unload": { module: 1 },
		"compute.launch": { module: 1, kernel: "k", grid: [1, 1, 1], block: [1, 1, 1], args: [{ handle: 1 }, { u64: "1" }], timeout_ms: 1 },
		"worker.verify": { backend: "cuda", hardware_key: "uuid:1", measure: false } },
};

function* made() {
	for (const [document, { methods }] of Object.entries(documents))
		for (const { name } of methods) {
			const base = bases[document][name] ?? {};
			yield { document, method: name, params: base };
			for (const params of variants(documents[document], name, base)) yield { document, method: name, params };
		}
}

// As fuzz_contract.c reads its input: one byte for document and method, the rest is the text of the parameters.
function* corpus(folder) {
	for (const file of readdirSync(folder)) {
		const bytes = readFileSync(join(folder, file));
		if (!bytes.length) continue;
		const document = bytes[0] & 1 ? "node" : "api", name = documents[document].methods[bytes[0] >> 1]?.name;
		let params;
		try {
			params = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(1)));
		} catch {
			continue; // no JSON, so nothing to compare
		}
		if (name) yield { document, method: name, params };
	}
}

function compare(list) {
	const { status, stdout, stderr } = spawnSync(program, { input: list.map((one) => JSON.stringify(one) + "\n").join(""),
		encoding: "utf8", maxBuffer: 1 << 28 });
	assert.equal(status, 0, stderr);
	const verdicts = stdout.trimEnd().split("\n");
	assert.equal(verdicts.length, list.length);
	const counts = { fits: 0, "fits not": 0, unread: 0 }, unlike = [];
	for (const [i, { document, method, params }] of list.entries()) {
		counts[verdicts[i]]++;
		const theirs = isObject(params) && !paramsFault(documents[document], method, params) ? "fits" : "fits not";
		if (verdicts[i] !== "unread" && verdicts[i] !== theirs)
			unlike.push(`${document} ${method} ${JSON.stringify(params).slice(0, 300)}: ours ${verdicts[i]}, ajv ${theirs}`);
	}
	assert.deepEqual(unlike.slice(0, 10), [], `${unlike.length} of ${list.length} verdicts differ`);
	return counts;
}

describe("the validator", { skip: program ? false : "EXOGPU_VERDICT is not set" }, () => {
	test("agrees with ajv on lists made from the documents", (t) => {
		const counts = compare([...made()]);
		t.diagnostic(JSON.stringify(counts));
		assert.ok(counts.fits > 100 && counts["fits not"] > 1000, JSON.stringify(counts));
	});

	const folders = [fileURLToPath(new URL("../fuzz/known/contract", import.meta.url)), process.env.EXOGPU_CORPUS].filter(Boolean);
	for (const folder of folders)
		test(`agrees with ajv on the corpus ${folders.indexOf(folder) ? "given" : "of the fuzz target"}`, (t) => {
			const counts = compare([...corpus(folder)]);
			t.diagnostic(JSON.stringify(counts));
			assert.ok(counts.fits > 0, JSON.stringify(counts));
		});
});
