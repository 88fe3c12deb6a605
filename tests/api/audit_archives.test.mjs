// The list of the audit log goes on into archives, by the API and by the command line; what an archive does not hold any
// more is told.
import assert from "node:assert/strict";
import { copyFileSync, readFileSync, readdirSync, renameSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { eventually, run, startServer, temporary } from "./server.mjs";

const MADE = 520;

describe("archived entries", () => {
	let server, admin, archive, last;
	const state = temporary();
	const exogpu = (...words) => run([...words, "--data", server.data], { XDG_STATE_HOME: state });
	const list = async (filter, key = "before") => {
		const entries = [], gaps = [];
		let pages = 0;
		for (let params = filter; ; pages++) {
			const page = await admin.call("audit.list", params);
			entries.push(...page.entries);
			gaps.push(...page.gaps);
			assert.equal(page.more, page.next !== null);
			if (page.next === null) return { entries, gaps, pages: pages + 1 };
			params = { ...filter, [key]: page.next };
		}
	};
	const seqs = ({ entries }) => entries.map((one) => one.seq);
	const without = async (change, back, look) => {
		await change();
		try {
			await look();
		} finally {
			await back();
		}
	};

	before(async () => {
		server = await startServer({ args: ["--limit", "audit_segment_entries=1000"] });
		admin = await Client.login(server);
		for (let made = 0; made < MADE; made += 40)
			await Promise.all(Array.from({ length: 40 }, async (_, i) => {
				const { token_id } = await admin.call("token.create", { name: `made ${made + i}`, scopes: ["observe"] });
				await admin.call("token.revoke", { token_id });
			}));
		const folder = join(server.data, "audit");
		const found = () => readdirSync(folder).find((name) => name.endsWith(".exoaudit"));
		await eventually(found, "an archive");
		archive = join(folder, found());
		last = Number(/-(\d+)\.exoaudit$/.exec(archive)[1]);
		copyFileSync(archive, join(state, "kept"));
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("are listed as if they were still here, from both ends", async () => {
		const { size } = await admin.call("audit.head");
		const all = await list({ limit: 90, before: size });
		assert.deepEqual(seqs(all), Array.from({ length: size }, (_, i) => size - 1 - i));
		assert.deepEqual(all.gaps, []);
		assert.equal(all.pages, Math.ceil(size / 90), "`more` is true only where more is");
		const upwards = await list({ limit: 333, after: 0, before: size }, "after");
		assert.deepEqual(seqs(upwards), Array.from({ length: size - 1 }, (_, i) => i + 1));
		const made = await list({ action: "token.create", limit: 1000 });
		assert.ok(made.entries.length > MADE && made.entries.every((one) => one.action === "token.create"));
		assert.ok(made.entries.every((one) => one.bound.some((row) => row.kind === "token" && row.id === one.target)));
		const found = await list({ text: "MADE 7", action: "token.create", limit: 1000 });
		assert.deepEqual(seqs(found),
			seqs({ entries: made.entries.filter((one) => `${one.target} ${JSON.stringify(one.detail)}`.toLowerCase().includes("made 7")) }));
		assert.equal(found.entries.length, 11, "made 7, and 70 to 79");
	});

	test("the command line says why it cannot list", async () => {
		const { token } = await admin.call("token.create", { name: "looks", scopes: ["observe"] });
		for (const more of [[], ["--json"], ["--limit", "100000"]]) {
			const { code, stdout, stderr } = await run(["audit", "list", "--url", server.url.origin, ...more],
				{ EXOGPU_TOKEN: token, XDG_STATE_HOME: state });
			assert.equal(code, 1, stderr);
			assert.equal(stdout, "");
			assert.match(stderr, /scope/);
		}
	});

	test("the command line pages through them", async () => {
		const { code, stdout, stderr } = await exogpu("audit", "list", "--limit", "100000", "--json");
		assert.equal(code, 0, stderr);
		const answer = JSON.parse(stdout);
		assert.deepEqual([answer.more, answer.next, answer.gaps], [false, null, []]);
		assert.deepEqual(answer.entries.map((one) => one.seq), Array.from(answer.entries, (_, i) => answer.entries.length - 1 - i));
		const few = await exogpu("audit", "list", "--limit", "3", "--before", "5");
		assert.equal(few.code, 0, few.stderr);
		assert.equal(few.stdout.trim().split("\n").length, 4);
		assert.match(few.stderr, /There are older ones: --before 2/);
		assert.equal((await exogpu("audit", "list", "--before", "x")).code, 2);
	});

	test("an export has them, with what they bind", async () => {
		const csv = await exogpu("audit", "export", "--format", "csv");
		assert.equal(csv.code, 0, csv.stderr);
		const lines = csv.stdout.trim().split("\n");
		assert.match(lines[0], /,detail,bound$/);
		const [{ target, bound }] = (await admin.call("audit.list", { action: "token.create", before: 200, limit: 1 })).entries;
		const line = lines.find((one) => one.includes(`"token.create","${target}"`));
		assert.ok(line.endsWith(`,"token ${target} ${bound[0].sha256}"`), line);
	});

	test("an archive that is missing, or damaged, is a gap, and what it still holds is listed", async () => {
		const put = () => copyFileSync(join(state, "kept"), archive);
		await without(() => renameSync(archive, `${archive}.away`), () => renameSync(`${archive}.away`, archive), async () => {
			const all = await list({ limit: 1000 });
			assert.deepEqual(all.gaps, [{ first: 0, last, reason: "missing", told_by: null }]);
			assert.equal(all.entries.at(-1).seq, last + 1);
			const told = await exogpu("audit", "list", "--limit", "100000");
			assert.equal(told.code, 0, told.stderr);
			assert.match(told.stderr, new RegExp(`Entries 0 to ${last} are in an archive that is not there`));
			assert.equal((await admin.call("audit.verify")).code, 15);
		});
		const half = Math.floor(readFileSync(archive).length / 2);
		await without(() => truncateSync(archive, half), put, async () => {
			const { entries, gaps } = await list({ limit: 1000 });
			assert.equal(gaps.length, 1);
			assert.deepEqual([gaps[0].reason, gaps[0].last], ["damaged", last]);
			assert.ok(gaps[0].first > 100 && gaps[0].first < last);
			assert.equal(entries.filter((one) => one.seq <= last).length, gaps[0].first, "what stands before it is whole");
		});
		assert.deepEqual((await list({ limit: 1000 })).gaps, []);
	});
});
