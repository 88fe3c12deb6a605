// What a token of the scope observe sees: of others' allocations size and device, but no holder or name; everything
// about its own. An admin sees all. In the snapshot, in events and in their replay.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { startMachine, tenant } from "./machine.mjs";
import { eventually, slow } from "./server.mjs";

describe("what an observer sees", { timeout: 300000 * slow }, () => {
	let machine, admin, made, observer, other, mine, theirs;
	const MiB = 1 << 20, events = (client) => client.events.filter((one) => one.topic === "inventory" && !one.data.change);
	const allocate = async (client, bytes) =>
		(await client.call("memory.allocate", { device_id: machine.cpu.device_id, bytes, label: "a secret label" })).allocation_id;
	const names = (other_, id) => [other_.session.session_id, other_.session.token_id, id, "tenant-of-theirs", "a secret label"];
	const free = (text, secrets, what) => {
		for (const secret of secrets) assert.ok(!text.includes(secret), `${what} has ${secret}`);
	};

	before(async () => {
		machine = await startMachine();
		admin = await Client.login(machine.server);
		other = await tenant(machine, { name: "tenant-of-theirs" });
		made = await admin.call("token.create", { name: "mine", scopes: ["observe", "allocate"] });
		observer = await Client.login(machine.server, made.token);
		for (const client of [admin, observer]) await client.call("events.subscribe", { topics: ["inventory", "placement", "telemetry", "topology"] });
		theirs = await allocate(other, 3 * MiB);
		mine = await allocate(observer, MiB);
	});
	after(async () => {
		await machine?.server.finish();
		assertContractKept();
	});

	test("a snapshot: device and bytes of others, all of one's own; an admin everything", async () => {
		const seen = await observer.call("cluster.snapshot"), whole = await admin.call("cluster.snapshot");
		free(JSON.stringify(seen), names(other, theirs), "the observer's snapshot");
		const [own, others] = [seen.allocations.find((one) => one.allocation_id === mine), seen.allocations.find((one) => one.bytes === 3 * MiB)];
		assert.deepEqual([own.session_id, own.token_id, own.holder], [observer.session.session_id, observer.session.token_id, "mine"]);
		assert.deepEqual([others.device_id, others.token_id, others.holder], [machine.cpu.device_id, null, "another token"]);
		const known = whole.allocations.find((one) => one.allocation_id === theirs);
		assert.deepEqual([known.session_id, known.token_id, known.holder], [other.session.session_id, other.session.token_id, "tenant-of-theirs"]);
		assert.deepEqual((await observer.call("memory.list")).allocations.map((one) => one.allocation_id), [mine]);
		await observer.refused("memory.free", { allocation_id: others.allocation_id }, "not_found");
		await observer.refused("memory.free", { allocation_id: theirs }, "not_found");
	});

	test("events name what the snapshot named, come and gone; one's own by its true name; an admin is told all", async () => {
		const told = await eventually(() => {
			const all = events(observer).flatMap((one) => one.data.allocations);
			return all.length >= 2 && all;
		}, "both are told");
		const shown = (await observer.call("cluster.snapshot")).allocations;
		assert.deepEqual(told.map((one) => [one.allocation_id, one.session_id]).sort(), shown.map((one) => [one.allocation_id, one.session_id]).sort());
		const masked = shown.find((one) => one.bytes === 3 * MiB).allocation_id;
		const { epoch, seq } = await observer.call("cluster.snapshot");
		await other.call("memory.free", { allocation_id: theirs });
		await observer.call("memory.free", { allocation_id: mine });
		const freed = (client) => events(client).flatMap((one) => one.data.freed);
		await eventually(() => freed(observer).length === 2 && freed(admin).length === 2, "both are gone");
		assert.deepEqual(freed(observer).sort(), [masked, mine].sort());
		assert.deepEqual(freed(admin).sort(), [theirs, mine].sort());
		free(JSON.stringify(observer.events), names(other, theirs), "an event of the observer's");

		const again = await Client.login(machine.server, made.token), stranger = await tenant(machine, { name: "a third", scopes: ["observe"] });
		for (const client of [again, stranger]) {
			assert.equal((await client.call("events.subscribe", { topics: ["inventory"], since: { epoch, seq } })).resumed, true);
			await eventually(() => freed(client).length === 2, "it is replayed");
		}
		assert.deepEqual(freed(again).sort(), [masked, mine].sort(), "a replay is as it was");
		assert.ok(freed(stranger).includes(masked) && !freed(stranger).includes(mine), "to another this one's is another's");
		await again.close();
		await stranger.close();
	});

	test("paths and hosts of models: the same answer whatever is there", async () => {
		const folder = join(machine.server.data, "secret-folder");
		mkdirSync(folder);
		writeFileSync(join(folder, "no-model.gguf"), "this is no model");
		writeFileSync(join(folder, "empty.gguf"), "");
		const sources = [join(folder, "absent.gguf"), join(folder, "no-model.gguf"), join(folder, "empty.gguf"), "http://127.0.0.1:9/closed.gguf",
			`http://127.0.0.1:${machine.server.port}/no-such-file.gguf`];
		for (const source of sources) await admin.call("model.add", { source });
		const all = await eventually(async () => {
			const { models } = await admin.call("model.list");
			return models.length === sources.length && models.slice(-1) && models.every((one) => one.state !== "downloading" || one.state_reason) && models;
		}, "none of them is a model", 60000 * slow);
		assert.ok(new Set(all.map((one) => one.state_reason)).size >= 3, "an admin is told what is wrong");
		for (const text of [JSON.stringify((await observer.call("model.list")).models), JSON.stringify((await observer.call("cluster.snapshot")).models),
			JSON.stringify(observer.events.filter((one) => one.topic === "placement"))]) {
			free(text, ["secret-folder", "127.0.0.1", "cannot be opened", "No such file", "is empty", "refused", "HTTP 4"], "what the observer reads");
			assert.match(text, /file:no-model\.gguf/);
		}
		const seen = (await observer.call("model.list")).models.filter((one) => one.source.startsWith("file:"));
		assert.deepEqual([...new Set(seen.map((one) => `${one.state} ${one.state_reason}`))], ["failed its file cannot be used; an admin can see why"]);
		const refusals = await Promise.all(seen.map(async ({ model_id, name }) =>
			(await observer.call("placement.preview", { model_id }).catch((error) => error)).message.replace(name, "MODEL")));
		assert.equal(new Set(refusals).size, 1, refusals.join("; "));
	});
});
