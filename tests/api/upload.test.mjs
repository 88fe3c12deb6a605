// Models whose files a client sends: in pieces, gone on with after a kill of the server, checked, refused as early as can
// be; and by the command line.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, readdirSync, statSync, statfsSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { modelFile } from "./gguf.mjs";
import { sha256 } from "./hub.mjs";
import { eventually, patience, run, startServer, temporary } from "./server.mjs";

const small = modelFile(), large = modelFile({ megabytes: 9 });
const piece = 1024 * 1024;

describe("uploads", () => {
	let server, admin;
	const data = temporary();

	const start = async () => {
		server = await startServer({ data });
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["placement"] });
	};
	const begin = (file, bytes, more = {}) => admin.call("model.upload_begin", { file, bytes, modified_at: "2026-11-20T14:31:52.000Z", ...more });
	const write = (model_id, offset, body, more = {}) => admin.callWith("model.upload_write", { model_id, offset, ...more }, body);
	// The rest of `bytes`, in pieces, several at a time as clients do.
	const send = async (model_id, bytes, from = 0) => {
		const under = new Set();
		for (let at = from; at < bytes.length; at += piece) {
			const one = write(model_id, at, bytes.subarray(at, at + piece)).finally(() => under.delete(one));
			under.add(one);
			if (under.size === 4) await Promise.race(under);
		}
		await Promise.all(under);
	};
	const now = async (model_id) => (await admin.call("model.list")).models.find((one) => one.model_id === model_id);
	const settled = (model_id) => eventually(async () => {
		const model = await now(model_id);
		return model?.state !== "downloading" && model;
	}, "it is ready or failed", 6 * patience);
	const uploaded = async (file, bytes, end = {}) => {
		const { model } = await begin(file, bytes.length);
		await send(model.model_id, bytes);
		await admin.call("model.upload_end", { model_id: model.model_id, ...end });
		return settled(model.model_id);
	};
	const files = () => readdirSync(join(data, "models")).sort();
	const remove = (model_id) => admin.call("model.remove", { model_id });

	before(start);
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("a file that is sent in pieces becomes a model", async () => {
		const { model, received_bytes, next_offset, piece_bytes } = await begin("large file.gguf", large.length, { name: "mine" });
		assert.deepEqual([model.name, model.source, model.state, model.progress.step], ["mine", "upload:large file.gguf", "downloading", "uploading"]);
		assert.deepEqual([received_bytes, next_offset, model.file_bytes], [0, 0, large.length]);
		assert.ok(piece_bytes >= piece);
		await send(model.model_id, large.subarray(0, 3 * piece));
		const half = await now(model.model_id);
		assert.deepEqual([half.progress.done_bytes, half.progress.total_bytes], [3 * piece, large.length]);
		assert.deepEqual(await begin("large file.gguf", large.length).then(({ model: { model_id }, next_offset: at }) => [model_id, at]), [model.model_id, 3 * piece]);
		assert.ok(statSync(join(data, "models", `${model.model_id}.gguf.part`)).mode.toString(8).endsWith("600"));
		assert.match((await admin.refused("model.upload_end", { model_id: model.model_id }, "conflict")).said, /bytes 3145728 to \d+ of the file are missing/);
		await send(model.model_id, large, 3 * piece);
		const last = await write(model.model_id, 0, large.subarray(0, 100)); // sent again, it does nothing
		assert.deepEqual(last, { received_bytes: large.length, next_offset: large.length });
		const end = await admin.call("model.upload_end", { model_id: model.model_id, sha256: sha256(large).toUpperCase() });
		assert.equal(end.model_id, model.model_id);
		const ready = await settled(model.model_id);
		assert.deepEqual([ready.state, ready.sha256, ready.architecture.family], ["ready", sha256(large), "llama"], ready.state_reason);
		assert.deepEqual(readFileSync(join(data, "models", `${model.model_id}.gguf`)), large);
		await eventually(() => files().length === 1, () => `what it came in is deleted: ${files()}`);
		const { entries } = await admin.call("audit.list", { action: "model.", limit: 100 });
		assert.deepEqual(entries.filter((one) => one.target === model.model_id).map((one) => one.action).sort(), ["model.add", "model.ready"]);
		await remove(model.model_id);
		await eventually(() => files().length === 0, () => `its file is deleted: ${files()}`);
	});

	test("after a kill of the server it goes on where it was", async () => {
		const { model } = await begin("killed.gguf", large.length);
		const { model_id } = model, journal = join(data, "models", `${model_id}.gguf.journal`);
		await send(model_id, large.subarray(0, 4 * piece));
		// What is on disk for good the journal tells; it is written now and then, with a piece that comes.
		await eventually(async () => {
			await write(model_id, 3 * piece, large.subarray(3 * piece, 4 * piece));
			return readFileSync(journal, "utf8").includes(`\n0 ${4 * piece}\n`);
		}, () => `the journal has it: ${readFileSync(journal, "utf8")}`);
		await server.stop("SIGKILL");
		await start();
		const there = await eventually(async () => (await now(model_id))?.progress?.done_bytes && now(model_id), "it is taken up");
		assert.deepEqual([there.progress.step, there.progress.done_bytes], ["uploading", 4 * piece]);
		const other = await admin.refused("model.upload_begin", { file: "killed.gguf", bytes: large.length, modified_at: "2026-11-21T00:00:00.000Z" }, "conflict");
		assert.match(other.hint, /rename the file/);
		await admin.refused("model.upload_begin", { file: "killed.gguf", bytes: large.length - 1, modified_at: "2026-11-20T14:31:52.000Z" }, "conflict");
		const again = await begin("killed.gguf", large.length);
		assert.deepEqual([again.model.model_id, again.next_offset], [model_id, 4 * piece]);
		await send(model_id, large, again.next_offset);
		await admin.call("model.upload_end", { model_id });
		const ready = await settled(model_id);
		assert.deepEqual([ready.state, ready.sha256], ["ready", sha256(large)], ready.state_reason);
		assert.match((await admin.refused("model.upload_begin", { file: "killed.gguf", bytes: large.length }, "conflict")).said, /is here already: the model killed/);
		await remove(model_id);
	});

	test("all of it came, and the server was killed before the end: it becomes a model by itself", async () => {
		const { model: { model_id } } = await begin("whole.gguf", small.length);
		const journal = join(data, "models", `${model_id}.gguf.journal`);
		await eventually(async () => {
			await write(model_id, 0, small);
			return readFileSync(journal, "utf8").includes(`\n0 ${small.length}\n`);
		}, "the journal has it");
		await server.stop("SIGKILL");
		await start();
		assert.deepEqual(await settled(model_id).then(({ state, sha256: digest }) => [state, digest]), ["ready", sha256(small)]);
		await remove(model_id);
	});

	test("an upload that nobody goes on with is deleted", async () => {
		const { model: { model_id } } = await begin("old.gguf", large.length);
		await write(model_id, 0, large.subarray(0, piece));
		await server.finish();
		const kept = (text) => utimesSync(join(data, "models", `${model_id}.gguf.journal`), text, text);
		kept(Date.now() / 1000 - 6 * 86400);
		await start(); // which is no sign that somebody goes on with it
		assert.equal((await begin("old.gguf", large.length)).next_offset, piece);
		await server.finish();
		assert.ok(statSync(join(data, "models", `${model_id}.gguf.journal`)).mtimeMs < Date.now() - 5 * 86400000);
		const journal = join(data, "models", `${model_id}.gguf.journal`), long = Date.now() / 1000 - 8 * 86400;
		utimesSync(journal, long, long);
		await start();
		const failed = await settled(model_id);
		assert.equal(failed.state, "failed");
		assert.match(failed.state_reason, /nothing came for 7 days; upload the file again/);
		await eventually(() => files().length === 0, () => `its files are deleted: ${files()}`);
		const again = await begin("old.gguf", small.length); // it begins anew, under the same name, with any file
		assert.deepEqual([again.model.model_id, again.next_offset, again.model.state], [model_id, 0, "downloading"]);
		await remove(model_id);
	});

	test("what is no model, or another file than promised, is refused", async () => {
		const { model: { model_id } } = await begin("page.gguf", large.length);
		assert.match((await admin.refused("model.upload_write", { model_id, offset: 0 }, "invalid_params", Buffer.from("<html>"))).said, /does not begin with GGUF/);
		const failed = await settled(model_id);
		assert.match(failed.state_reason, /does not begin with GGUF/);
		await admin.refused("model.upload_write", { model_id, offset: 0 }, "not_found", large.subarray(0, 10));
		await remove(model_id);

		const mamba = modelFile({ architecture: "mamba", megabytes: 9 }), other = await begin("mamba.gguf", mamba.length);
		await write(other.model.model_id, 0, mamba.subarray(0, piece / 2));
		const error = await admin.refused("model.upload_write", { model_id: other.model.model_id, offset: piece / 2 }, undefined, mamba.subarray(piece / 2, 2 * piece));
		assert.match(error.said, /mamba/); // its header is known with the first MiB
		await settled(other.model.model_id);
		await remove(other.model.model_id);

		const wrong = await uploaded("wrong.gguf", small, { sha256: "0".repeat(64) });
		assert.equal(wrong.state, "failed");
		assert.match(wrong.state_reason, new RegExp(`its SHA-256 is ${sha256(small).slice(0, 16)}..., not 0000`));
		const cut = await uploaded("cut.gguf", small.subarray(0, small.length - 5000));
		assert.equal(cut.state, "failed");
		await eventually(() => files().length === 0, () => `nothing is left of them: ${files()}`);
		for (const one of [wrong, cut]) await remove(one.model_id);
	});

	test("a piece that is not what was sent is not written", async () => {
		const { model: { model_id } } = await begin("piece.gguf", small.length);
		const half = small.subarray(0, 1000);
		assert.match((await admin.refused("model.upload_write", { model_id, offset: 0, sha256: sha256(small) }, "invalid_params", half)).hint, /again/);
		assert.deepEqual(await write(model_id, 0, half, { sha256: sha256(half) }), { received_bytes: 1000, next_offset: 1000 });
		await admin.refused("model.upload_write", { model_id, offset: 0, sha256: "x".repeat(64) }, "invalid_params", half);
		await admin.refused("model.upload_end", { model_id, sha256: "x".repeat(64) }, "invalid_params");
		for (const [offset, body] of [[small.length - 10, Buffer.alloc(11)], [small.length + 1, Buffer.alloc(1)], [Number.MAX_SAFE_INTEGER, Buffer.alloc(1)],
			[0, Buffer.alloc(0)], [0, Buffer.alloc(4 * piece + 1)]])
			await admin.refused("model.upload_write", { model_id, offset }, "invalid_params", body);
		await admin.refused("model.upload_write", { model_id, offset: 0 }, "invalid_params"); // without a body
		await admin.refused("model.upload_write", { model_id: "mod_none", offset: 0 }, "not_found", half);
		await remove(model_id);
		await admin.refused("model.upload_write", { model_id, offset: 0 }, "not_found", half);
		await admin.refused("model.upload_end", { model_id }, "not_found");
		await eventually(() => files().length === 0, () => `what was cancelled is deleted: ${files()}`);
	});

	test("names that are none of a model's file are refused", async () => {
		for (const file of ["../up.gguf", "a/b.gguf", "a\\b.gguf", ".hidden.gguf", "..", "model.bin", "model", "a\u0007.gguf", "/etc/passwd.gguf", "x".repeat(251) + ".gguf"])
			await admin.refused("model.upload_begin", { file, bytes: 1000 }, "invalid_params");
		assert.match((await admin.refused("model.upload_begin", { file: "m-00001-of-00003.gguf", bytes: 1000 }, "invalid_params")).hint, /llama-gguf-split --merge/);
		assert.match((await admin.refused("model.upload_begin", { file: "weights.safetensors", bytes: 1000 }, "invalid_params")).hint, /GGUF/);
		assert.match((await admin.refused("model.add", { source: "upload:a.gguf" }, "invalid_params")).hint, /exogpu model upload/);
		const token = (await admin.call("token.create", { name: "viewer", scopes: ["observe", "infer", "compute", "allocate"] })).token;
		const viewer = await Client.login(server, token);
		await viewer.refused("model.upload_begin", { file: "a.gguf", bytes: 1000 }, "forbidden");
		await viewer.close();
	});

	test("more than the disk has, or at once, is refused before it begins", async () => {
		const tooMuch = await admin.refused("model.upload_begin", { file: "huge.gguf", bytes: 2 ** 50 }, "limit_exceeded");
		assert.match(tooMuch.said, /larger than|no room/);
		const { bavail, bsize } = statfsSync(data);
		const bytes = bavail * bsize;
		if (bytes < 2 ** 42) {
			const full = await admin.refused("model.upload_begin", { file: "full.gguf", bytes: bytes + 2 ** 30 }, "limit_exceeded");
			assert.match(full.said, /the disk has no room/);
			assert.match(full.hint, /free space/);
		}
		assert.equal((await admin.call("model.list")).models.length, 0, "nothing is left of it");
		const begun = [];
		for (let i = 0; i < 8; i++) begun.push((await begin(`${i}.gguf`, small.length)).model.model_id);
		assert.match((await admin.refused("model.upload_begin", { file: "ninth.gguf", bytes: 1000 }, "limit_exceeded")).hint, /exogpu model remove/);
		assert.equal((await begin("7.gguf", small.length)).model.model_id, begun[7], "what is under way may be asked for");
		for (const model_id of begun) await remove(model_id);
	});

	test("the server's folders that are allowed can be browsed, and nothing outside them is told apart", async () => {
		const folder = temporary(), allowed = join(folder, "allowed"), hub = join(allowed, "hub");
		for (const dir of [allowed, hub, join(hub, "deep"), join(folder, "outside")]) mkdirSync(dir);
		for (const name of ["b.gguf", "a.GGUF", ".hidden.gguf", "notes.txt", "s-00001-of-00002.gguf", "s-00002-of-00002.gguf"]) writeFileSync(join(hub, name), small);
		writeFileSync(join(folder, "outside", "secret.gguf"), small);
		writeFileSync(join(folder, "allowed-not.gguf"), small);
		for (const [name, to] of [["out.gguf", join(folder, "outside", "secret.gguf")], ["up", ".."], ["away", "../../outside"], ["whole", "/"], ["in.gguf", "b.gguf"],
			["gone.gguf", "nothing"], ["proc", "/proc/self/fd"]]) symlinkSync(to, join(hub, name));
		const other = await startServer({ args: ["--model-dir", allowed, "--model-dir", join(folder, "missing")] });
		const client = await Client.login(other);
		const names = async (dir) => {
			const found = await client.call("model.browse", dir === undefined ? {} : { dir });
			return [found.dirs.map((one) => one.name), found.files.map((one) => one.name), found.more];
		};
		assert.deepEqual(await names(), [[allowed, join(folder, "missing")], [], false]);
		assert.deepEqual(await names(allowed), [["hub"], [], false]);
		assert.deepEqual(await names(`${hub}/deep`), [[], [], false]);
		assert.deepEqual(await names(hub), [["deep", "up"], ["a.GGUF", "b.gguf", "in.gguf", "s-00001-of-00002.gguf"], false]);
		const { files } = await client.call("model.browse", { dir: hub });
		assert.deepEqual(files.at(-1), { name: "s-00001-of-00002.gguf", path: join(hub, "s-00001-of-00002.gguf"), bytes: 2 * small.length, parts: 2, model_id: null });
		const { model_id } = await client.call("model.add", { source: files[1].path });
		assert.equal((await client.call("model.browse", { dir: hub })).files[1].model_id, model_id);
		const browse = (...args) => run(["model", "browse", ...args, "--data", other.data]);
		const table = await browse(`${hub}/`); // the end of a path that a shell completes
		assert.equal(table.code, 0, table.stderr);
		assert.deepEqual(table.stdout.trimEnd().split("\n").map((line) => line.trim().replace(/ \d+ KiB /, " KiB ").split(/  +/)), [
			["PATH", "SIZE", "FILES", "MODEL"], [`${hub}/deep/`, "folder", "-", "-"], [`${hub}/up/`, "folder", "-", "-"],
			[`${hub}/a.GGUF`, "KiB", "1", "not added"], [`${hub}/b.gguf`, "KiB", "1", model_id], [`${hub}/in.gguf`, "KiB", "1", "not added"],
			[`${hub}/s-00001-of-00002.gguf`, "KiB", "2", "not added"]]);
		assert.match((await browse()).stdout, new RegExp(`${allowed}/ +folder +-`));
		assert.deepEqual(JSON.parse((await browse(hub, "--json")).stdout), await client.call("model.browse", { dir: hub }));
		const empty = await browse(join(hub, "deep"));
		assert.deepEqual([empty.code, empty.stdout, empty.stderr], [0, "", "There are neither folders nor .gguf files here.\n"]);
		const outside = await browse("/etc");
		assert.equal(outside.code, 1);
		assert.match(outside.stderr, /there is no such folder among those that may be browsed\n +exogpu serve --model-dir DIR allows a folder/);
		const elsewhere = await run(["model", "browse", "hub", "--url", other.url.origin], { EXOGPU_TOKEN: other.token });
		assert.match(elsewhere.stderr, /hub is not a path on another machine/);
		assert.match((await run(["model", "browse", "--data", data])).stderr, /No folder may be browsed/);
		const told = new Set();
		for (const dir of ["/", "/etc", "/nonexistent", folder, join(folder, "outside"), join(folder, "missing"), `${allowed}-not.gguf`, `${allowed}/../outside`, `${allowed}/..`,
			`${hub}/away`, `${hub}/whole`, `${hub}/whole/etc`, `${hub}/up/../../outside`, `${hub}/proc`, `${hub}/./deep`, `${hub}//deep`, `${hub}/b.gguf`, `${hub}/nothing`, "hub", "../hub"]) {
			const { said, hint } = await client.refused("model.browse", { dir }, "not_found");
			told.add(`${said} ${hint}`);
		}
		assert.equal(told.size, 1, "all are refused with the same words");
		assert.match([...told][0], /--model-dir DIR allows a folder/);
		const many = join(allowed, "many");
		mkdirSync(many);
		for (let i = 0; i < 1005; i++) writeFileSync(join(many, `${i}.gguf`), "");
		const { files: some, more } = await client.call("model.browse", { dir: many });
		assert.deepEqual([some.length, more], [1000, true]);
		assert.match((await browse(many)).stderr, /The folder has more than is listed here/);
		const viewer = await Client.login(other, (await client.call("token.create", { name: "viewer", scopes: ["observe"] })).token);
		await viewer.refused("model.browse", {}, "forbidden");
		await other.finish();
		assert.deepEqual(await admin.call("model.browse"), { dir: null, dirs: [], files: [], more: false });
		assert.match((await run(["serve", "--data", temporary(), "--model-dir", "relative"])).stderr, /--model-dir takes an absolute path/);
	});

	test("exogpu model upload sends a file, goes on where it ended, and compares all of it", async () => {
		const folder = temporary(), path = join(folder, "sent.gguf"), changed = new Date("2026-11-20T14:31:52.250Z");
		const command = (...args) => run(["model", "upload", path, "--data", data, ...args]);
		writeFileSync(path, large);
		utimesSync(path, changed, changed);
		const { model: { model_id } } = await begin("sent.gguf", large.length, { modified_at: changed.toISOString() });
		await send(model_id, large.subarray(0, 2 * piece));
		const wrong = await command("--sha256", "0".repeat(64));
		assert.equal(wrong.code, 1);
		assert.match(wrong.stderr, new RegExp(`the SHA-256 of .*sent.gguf is ${sha256(large)}`));
		assert.match(wrong.stderr, new RegExp(`exogpu model remove ${model_id}`));
		const { code, stdout, stderr } = await command("--sha256", sha256(large));
		assert.equal(code, 0, stderr);
		assert.match(stdout, new RegExp(`^sent is ready: llama, .* \\(${model_id}\\)`));
		assert.equal((await now(model_id)).sha256, sha256(large));
		const again = await command();
		assert.equal(again.code, 1);
		assert.match(again.stderr, /is here already: the model sent/);
		await remove(model_id);
		const whole = await command("--name", "named", "--json");
		assert.equal(whole.code, 0, whole.stderr);
		assert.deepEqual((({ name, state }) => [name, state])(JSON.parse(whole.stdout)), ["named", "ready"]);
		assert.match(whole.stderr, /uploading .* of|uploading .* \/ /);
		await remove(JSON.parse(whole.stdout).model_id);
		writeFileSync(path, "<html>".repeat(100));
		const page = await command();
		assert.equal(page.code, 1);
		assert.match(page.stderr, /does not begin with GGUF/);
		assert.match((await run(["model", "upload", join(folder, "none.gguf"), "--data", data])).stderr, /cannot be read/);
		assert.match((await run(["model", "upload", folder, "--data", data])).stderr, /is not a file/);
	});
});
