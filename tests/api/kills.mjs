// kill -9 of the server, of its node and of a worker, in turn, while clients change things: what was acknowledged is
// there afterwards, the audit log has it and verifies, and everything is served again.
//
// Two clients are at work when a kill comes: one makes and revokes tokens, eight calls under way; one allocates memory and
// frees it, four under way. Whoever loses its connection opens another. What was answered counts as acknowledged, what was
// not may or may not have happened. tests/api/kills.test.mjs runs a sample, tests/bench/kills.mjs a thousand.
import { once } from "node:events";
import { Client } from "./client.mjs";
import { alive, nodes, workers } from "./machine.mjs";
import { eventually, run, slow, startServer, temporary } from "./server.mjs";

const victims = ["server", "node", "worker"];
const env = { VK_DRIVER_FILES: "/dev/null", VK_ICD_FILENAMES: "/dev/null" }; // the CPU is device enough to be killed on
const momentMs = 200;
const patience = 120000 * slow;

// One data directory and what runs on it, for as many cycles as are wanted.
export class Kills {
	data = temporary();
	made = new Map();      // token_id: revoked or not, as it was answered last
	allocated = new Set(); // whose entry is not looked for yet
	acknowledged = 0;
	sizes = 0;             // of the log, as far as it was read: the next entry

	async start() {
		const begun = performance.now();
		this.server = await startServer({ data: this.data, localNode: true, env });
		const { status } = await this.server.http("/healthz");
		if (status !== 200) throw new Error(`/healthz is ${status} once the server says that it is ready`);
		const readyMs = performance.now() - begun;
		this.admin = await Client.login(this.server);
		return readyMs;
	}

	async tenant() {
		const { token } = await this.admin.call("token.create", { name: "kills", scopes: ["observe", "allocate"] });
		this.session = await Client.login(this.server, token);
	}

	// Until an allocation succeeds, which needs the server, its node and a worker.
	async served() {
		const begun = performance.now();
		await eventually(async () => {
			try {
				if (!this.device) {
					const { devices } = await this.admin.call("cluster.snapshot");
					this.device = devices.find((one) => one.backend === "cpu")?.device_id;
				}
				if (!this.session || this.session.end) await this.tenant();
				return this.device && (await this.allocate());
			} catch (error) {
				if (error.reason === undefined) throw error; // a refusal has a reason; a lost connection is a fault here
				this.refusal = error.message;
				return false;
			}
		}, () => `an allocation works; the last was refused with ${this.refusal}`, patience);
		return performance.now() - begun;
	}

	async allocate() {
		const { allocation_id } = await this.session.call("memory.allocate", { device_id: this.device, bytes: 65536 });
		this.allocated.add(allocation_id);
		this.acknowledged++;
		return allocation_id;
	}

	// Clients at work until `over`; calls that fail because of the kill end theirs.
	work(over) {
		const again = async (step) => {
			while (!over.now && !this.admin.end && !this.session.end) // nobody answers what is sent after the end
				try {
					await step();
				} catch (error) {
					if (error.reason === undefined && !over.now && !over.killed) throw error;
					await new Promise((resolve) => setTimeout(resolve, 5)); // refused, the node or worker being gone
				}
		};
		const token = async () => {
			const { token_id } = await this.admin.call("token.create", { name: "one of many", scopes: ["observe"], expires_in_s: 86400 });
			this.made.set(token_id, false);
			this.acknowledged++;
			await this.admin.call("token.revoke", { token_id });
			this.made.set(token_id, true);
			this.acknowledged++;
		};
		const memory = async () => {
			const allocation_id = await this.allocate();
			await this.session.call("memory.free", { allocation_id });
			this.acknowledged++;
		};
		return Promise.all([...Array(8).fill(token), ...Array(4).fill(memory)].map(again));
	}

	// The node that serves is the one that has workers: one whose server was killed goes on with the next server.
	pid(victim) {
		if (victim === "server") return this.server.child.pid;
		const node = nodes(this.data).find((pid) => workers(pid).length);
		return victim === "node" ? node : node && workers(node)[0];
	}

	// {victim, readyMs: from the server's new start until /healthz is 200, servedMs: from the kill to the next allocation}
	async cycle(number) {
		const victim = victims[number % victims.length], over = { now: false, killed: false };
		await this.served();
		const busy = this.work(over), before = this.acknowledged;
		await eventually(() => this.acknowledged > before + 20, "clients are at work", patience);
		await new Promise((resolve) => setTimeout(resolve, Math.random() * momentMs));
		const pid = this.pid(victim), done = { victim };
		if (!pid) throw new Error(`there is no ${victim} to kill`);
		const gone = once(this.server.child, "exit");
		over.killed = true;
		process.kill(pid, "SIGKILL");
		const killed = performance.now();
		if (victim === "server") {
			await gone; // its node has the pipes still, and serves on for a successor
			over.now = true;
			await busy;
			this.session = undefined;
			done.readyMs = await this.start();
			await this.served();
		} else {
			await eventually(() => !alive(pid), "it is gone", patience);
			over.now = true;
			await busy;
			await this.served();
		}
		done.servedMs = performance.now() - killed;
		await this.look();
		return done;
	}

	// What was acknowledged since the last look is there.
	async look() {
		const { tokens } = await this.admin.call("token.list");
		const found = new Map(tokens.map((one) => [one.token_id, one]));
		for (const [id, revoked] of this.made) {
			const one = found.get(id);
			if (!one) throw new Error(`LOST: ${id} was made and is not there`);
			if (revoked && one.revoked_at === null) throw new Error(`LOST: ${id} was revoked and is not`);
		}
		const told = new Set(), entries = [];
		for (let before; ;) { // from the newest back to where the last look ended
			const page = await this.admin.call("audit.list", { limit: 1000, ...(before === undefined ? {} : { before }) });
			const fresh = page.entries.filter((one) => one.seq >= this.sizes);
			entries.push(...fresh);
			if (!page.more || fresh.length < page.entries.length || !page.entries.length) break;
			before = Math.min(...page.entries.map((one) => one.seq));
		}
		for (const one of entries) told.add(`${one.action} ${one.target}`);
		for (const id of this.allocated)
			if (!told.has(`memory.allocate ${id}`)) throw new Error(`LOST: the log has no entry of ${id}`);
		for (const [id, revoked] of this.made)
			if (!told.has(`token.create ${id}`) || (revoked && !told.has(`token.revoke ${id}`)))
				throw new Error(`LOST: the log does not tell all of ${id}`);
		this.sizes = entries.reduce((most, one) => Math.max(most, one.seq + 1), this.sizes);
		this.made.clear();
		this.allocated.clear();
	}

	// The server is stopped, and the log verified as whoever finds the machine so would.
	async finish() {
		await this.admin.close?.();
		await this.server.finish();
		for (const pid of nodes(this.data)) process.kill(pid, "SIGKILL"); // those that waited for their turn
		const { code, stdout, stderr } = await run(["audit", "verify", "--data", this.data], { XDG_STATE_HOME: this.data });
		if (code !== 0) throw new Error(`exogpu audit verify ends with ${code}: ${stdout}${stderr}`);
	}
}
