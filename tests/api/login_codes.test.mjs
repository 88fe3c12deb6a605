// Login codes, which log a browser in without a token in an address; and `exogpu open`, which makes and uses one.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { WebSocketServer } from "ws";
import { Client, assertContractKept } from "./client.mjs";
import { desktop } from "./desktop.mjs";
import { binary, eventually, launch, run, startServer, temporary, within } from "./server.mjs";

describe("login codes", () => {
	let server, admin;
	const entries = (client, action) => client.events.filter(({ topic, data }) => topic === "audit" && data.action === action).map(({ data }) => data);

	before(async () => {
		server = await startServer();
		admin = await Client.login(server);
		await admin.call("events.subscribe", { topics: ["audit"] });
	});
	after(async () => {
		await server?.finish();
		assertContractKept();
	});

	test("a code gives one browser a token with the rights of its maker, which ends with its maker's", async () => {
		const { token, token_id } = await admin.call("token.create", { name: "mine", scopes: ["admin", "observe"], expires_in_s: 3600 });
		const maker = await Client.login(server, token);
		const { code_id, code, url, expires_at } = await maker.call("auth.login_code");
		assert.equal(url, `${server.url.origin}/#code=${code}`);
		assert.ok(Date.parse(expires_at) - Date.now() <= 60000);

		const browser = await Client.open(server);
		const redeemed = await browser.call("auth.redeem", { code });
		const login = await browser.call("auth.login", { token: redeemed.token });
		assert.deepEqual([login.token_id, login.name, login.scopes], [redeemed.token_id, "browser", ["admin", "observe"]]);
		const listed = (await admin.call("token.list")).tokens.find((one) => one.token_id === redeemed.token_id);
		assert.equal(listed.parent_id, token_id);
		assert.ok(Date.parse(redeemed.expires_at) - Date.now() <= 3600_000, "it does not outlast its maker's");

		const other = await Client.open(server);
		await other.refused("auth.redeem", { code }, "unauthenticated"); // it works once
		const [made] = entries(admin, "auth.login_code"), [used] = entries(admin, "auth.redeem");
		assert.deepEqual([made.actor, made.target, made.outcome], [`token:${token_id}`, code_id, "ok"]);
		assert.deepEqual([used.actor, used.target, used.detail.token_id], [`token:${token_id}`, code_id, redeemed.token_id]);
		for (const secret of [code, redeemed.token])
			assert.ok(!JSON.stringify(admin.events).includes(secret), "the audit log holds no secret");

		const unused = (await maker.call("auth.login_code")).code;
		await admin.call("token.revoke", { token_id });
		await other.refused("auth.redeem", { code: unused }, "unauthenticated"); // nor does its code any more
		await other.refused("auth.login", { token: redeemed.token }, "unauthenticated");
		await other.close();
	});

	test("a server that is started on a terminal prints a link that works once, and no token", async () => {
		const data = temporary(), terminal = "import pty, sys; pty.spawn(sys.argv[1:])";
		const { child, output } = launch(["-c", terminal, binary, "serve", "--data", data, "--listen", "127.0.0.1:0", "--no-local-node"], {}, "python3");
		const [, origin, code] = await eventually(() => /^log in: (http:\S+)\/#code=(exocode_\w{43})\s/m.exec(output.stdout), "the link is printed");
		const own = { port: Number(new URL(origin).port) };
		const browser = await Client.open(own);
		const { token } = await browser.call("auth.redeem", { code });
		assert.deepEqual((await browser.call("auth.login", { token })).scopes, ["admin"]);
		await browser.refused("auth.redeem", { code }, "unauthenticated");
		assert.ok(!output.stdout.includes("exo_") && !output.stdout.includes(readFileSync(join(data, "admin.token"), "utf8").trim()));
		await browser.close();
		child.kill(); // the terminal is closed with it, and the server ends
	});

	test("only an admin makes codes", async () => {
		const { token } = await admin.call("token.create", { name: "viewer", scopes: ["observe"] });
		const viewer = await Client.login(server, token);
		await viewer.refused("auth.login_code", {}, "forbidden");
		await viewer.close();
	});

	test("a guess counts as a failed login, and says what to do", async () => {
		const own = await startServer({ args: ["--limit", "login_failures=1,login_delay_ms=4500"] });
		const guesser = await Client.open(own);
		const error = await guesser.refused("auth.redeem", { code: `exocode_${"x".repeat(43)}` }, "unauthenticated");
		assert.match(error.said, /used already, or is older than 60 s/);
		assert.match(error.hint, /exogpu open/);
		const began = performance.now();
		await guesser.refused("auth.redeem", { code: "x" }, "unauthenticated");
		assert.ok(performance.now() - began > 200, "the next answer waits");
		await own.finish();
	});

	describe("exogpu open", () => {
		test("the browser is given a page that only its owner reads, and that is gone once the code was used", async () => {
			const { home, env, opened, folders } = desktop();
			const open = launch(["open", "--data", server.data], env);
			const path = await opened();
			assert.equal(path, join(home, folders()[0], "login.html"));
			assert.deepEqual([statSync(path).mode & 0o777, statSync(join(path, "..")).mode & 0o777], [0o600, 0o700]);
			const [, url, code] = /content="0; url=([^"]*#code=(\w+))"/.exec(readFileSync(path, "utf8"));
			assert.ok(url.startsWith(`${server.url.origin}/#`));
			assert.ok(!readFileSync(`/proc/${open.child.pid}/cmdline`, "utf8").includes("exocode_"));
			const browser = await Client.open(server);
			const { token } = await browser.call("auth.redeem", { code });
			assert.deepEqual((await browser.call("auth.login", { token })).scopes, ["admin"]); // the owner's
			const { code: status, stdout, stderr } = await within(open.exited, "exogpu open ends");
			assert.deepEqual([status, stdout, stderr], [0, "", "opening the dashboard in the browser\n"]);
			assert.deepEqual(folders(), []);
			await browser.close();
		});

		test("the page is gone, too, when it is ended before, or when the code's time is over", async () => {
			for (const signal of ["SIGINT", "SIGALRM"]) { // its alarm comes when a code would have expired
				const { env, opened, folders } = desktop();
				const open = launch(["open", "--data", server.data], env);
				await opened();
				open.child.kill(signal);
				const { code, stderr } = await within(open.exited, "exogpu open ends");
				assert.equal(code, 1);
				assert.match(stderr, /exogpu open --print/);
				assert.deepEqual(folders(), []);
			}
		});

		test("an address from a hostile server stands in no page", async () => {
			for (const [url, why] of [[`http://h/${"x".repeat(60000)}#code=c`, /too long for a page/], ['http://h/"><script>', /no browser should open/], ["file:///etc/passwd", /no browser should open/]]) {
				const hostile = new WebSocketServer({ host: "127.0.0.1", port: 0 });
				await once(hostile, "listening");
				hostile.on("connection", (socket) => socket.on("message", (text) => {
					const { id, method } = JSON.parse(text);
					socket.send(JSON.stringify({ jsonrpc: "2.0", id, result: method === "auth.login_code" ? { code_id: "cod_1", url } : {} }));
				}));
				const { env, folders } = desktop();
				const { code, stderr } = await run(["open", "--url", `http://127.0.0.1:${hostile.address().port}`], { ...env, EXOGPU_TOKEN: server.token });
				hostile.close();
				assert.equal(code, 1);
				assert.match(stderr, why);
				assert.deepEqual(folders(), []);
			}
		});

		test("without xdg-open it says so, and leaves no page", async () => {
			const { env, folders } = desktop();
			const { code, stderr } = await run(["open", "--data", server.data], { ...env, PATH: "/nonexistent" });
			assert.equal(code, 1);
			assert.match(stderr, /xdg-open cannot be started[^]*xdg-utils/);
			assert.deepEqual(folders(), []);
		});

		test("without a desktop, or with --print, it prints the address", async () => {
			for (const [words, env] of [[[], { DISPLAY: "", WAYLAND_DISPLAY: "" }], [["--print"], { DISPLAY: ":99" }]]) {
				const { code, stdout, stderr } = await run(["open", ...words, "--data", server.data], env);
				assert.equal(code, 0, stderr);
				assert.match(stdout, new RegExp(`^${server.url.origin}/#code=exocode_\\w{43}\n$`));
				assert.match(stderr, /within 60 s/);
			}
		});
	});
});
