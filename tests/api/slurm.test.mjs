// A node as a Slurm job: munge, a controller and a compute daemon of the test's own run on this machine, `sbatch` takes
// packaging/slurm/exogpu-node.sbatch, and its step joins by a ticket. Slurm's signal before the end drains it.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, hostname } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { assertContractKept } from "./client.mjs";
import { Proxy, RemoteNode } from "./remote.mjs";
import { LONG, Restarted, wordsFile } from "./restarted.mjs";
import { binary, eventually, freePort, slow, temporary } from "./server.mjs";

const script = fileURLToPath(new URL("../../packaging/slurm/exogpu-node.sbatch", import.meta.url));
const missing = ["/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/sbatch"].filter((path) => !existsSync(path));
const skip = missing.length ? `${missing.join(", ")} missing (Debian: munge, slurmctld, slurmd, slurm-client)`
	: process.getuid() !== 0 && "Slurm's daemons are started as root";
if (skip) console.log(`# skipped: ${skip}`);

class Slurm {
	async start() {
		const folder = temporary(), at = (name) => join(folder, name), host = hostname().split(".")[0];
		this.children = [];
		this.folder = folder;
		this.env = { ...process.env, SLURM_CONF: at("slurm.conf") };
		for (const name of ["state", "spool"]) mkdirSync(at(name));
		writeFileSync(at("munge.key"), randomBytes(1024), { mode: 0o400 });
		writeFileSync(at("slurm.conf"), `ClusterName=test
SlurmctldHost=${host}(127.0.0.1)
SlurmctldPort=${await freePort()}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=${at("munge")}
CredType=cred/munge
StateSaveLocation=${at("state")}
SlurmdSpoolDir=${at("spool")}
SlurmctldPidFile=${at("slurmctld.pid")}
SlurmdPidFile=${at("slurmd.pid")}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/builtin
ReturnToService=2
MessageTimeout=100
BatchStartTimeout=600
NodeName=${host} NodeAddr=127.0.0.1 Port=${await freePort()} CPUs=${cpus().length} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`);
		this.run("/usr/sbin/munged", "--foreground", "--force", `--socket=${at("munge")}`, `--key-file=${at("munge.key")}`,
			`--pid-file=${at("munged.pid")}`, `--seed-file=${at("munged.seed")}`, `--log-file=${at("munged.log")}`);
		await eventually(() => existsSync(at("munge")), "munge listens", LONG);
		this.run("/usr/sbin/slurmctld", "-D");
		this.run("/usr/sbin/slurmd", "-D");
		await eventually(() => /idle/.test(this.ask("sinfo", "--noheader", "--format=%t")), "the machine is idle", LONG);
		return this;
	}

	run(program, ...args) {
		this.children.push(spawn(program, args, { env: this.env, stdio: "ignore" }));
	}

	// "" while the controller does not answer.
	ask(program, ...args) {
		try {
			return execFileSync(program, args, { env: this.env, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
		} catch {
			return "";
		}
	}

	job(id) {
		return Object.fromEntries(this.ask("scontrol", "show", "job", id).split(/\s+/).map((word) => word.split("=")).filter(([, value]) => value));
	}

	async stop() {
		for (const child of this.children.reverse()) {
			if (child.exitCode !== null || child.signalCode) continue;
			const exited = once(child, "exit");
			child.kill("SIGTERM");
			await exited;
		}
	}
}

describe("a node as a Slurm job", { skip, timeout: 900000 * slow }, () => {
	const cluster = new Restarted({ host: "0.0.0.0" });
	const prompt = "a b c d", most = { max_tokens: 900, ignore_eos: true };
	let slurm, proxy, stays, id, instance_id;

	const output = () => readFileSync(join(slurm.folder, "job.log"), "utf8");
	const shown = async () => (await cluster.admin.call("cluster.snapshot")).nodes.find((one) => one.name !== "stays");

	before(async () => {
		process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // fetch() takes no authority; who is asked is known here
		await cluster.start();
		proxy = await Proxy.start(cluster.server.port);
		slurm = await new Slurm().start();
	});
	after(async () => {
		if (id) slurm.ask("scancel", id);
		if (stays?.child?.exitCode === null) await stays.finish();
		proxy?.close();
		await slurm?.stop();
		await cluster.server?.finish();
		assertContractKept();
	});

	test("sbatch starts it, it joins by the ticket, and the server knows its end", async () => {
		const { ticket } = await cluster.admin.call("node.ticket", {});
		writeFileSync(join(slurm.folder, "ticket"), `${ticket}\n`, { mode: 0o600 });
		Object.assign(slurm.env, { EXOGPU_JOIN: `127.0.0.1:${proxy.port}`, EXOGPU_TICKET_FILE: join(slurm.folder, "ticket"), EXOGPU_PROGRAM: binary,
			EXOGPU_NODES: join(slurm.folder, "nodes"), EXOGPU_NODE_OPTIONS: "--backends cpu", EXOGPU_DRAIN: "30m" });
		id = slurm.ask("sbatch", "--parsable", "--time=120", "--signal=B:USR1@2400", `--output=${join(slurm.folder, "job.log")}`, script);
		assert.match(id, /^\d+$/);
		const node = await eventually(async () => {
			const one = await shown();
			return one?.state === "online" && one;
		}, () => `the job's node joins; ${JSON.stringify(slurm.job(id))}`, LONG);
		const left = Date.parse(node.ends_at) - Date.now(); // two hours less what the machine took
		assert.ok(left > 3600_000 && left < 7200_000, node.ends_at);
		assert.ok(!slurm.ask("scontrol", "show", "job", id).includes(ticket) && !output().includes(ticket), "the ticket is told nowhere");
	});

	test("Slurm's signal drains it: its model moves, no token is lost, and the job ends well", async () => {
		const { model_id } = await cluster.add(wordsFile({ megabytes: 1.6, context: 4096 }));
		const made = () => cluster.admin.call("instance.create", { model_id, context_tokens: 1024, sequences: 2 }).catch(() => undefined);
		({ instance_id } = await eventually(made, "there is a place", LONG)); // its device may still be verified
		await cluster.ready(instance_id);
		const expected = await cluster.says(prompt, most);
		stays = new RemoteNode({ server: cluster.server, admin: cluster.admin, proxy }, { name: "stays" });
		await stays.start((await cluster.admin.call("node.ticket", {})).ticket);
		const streamed = cluster.stream(prompt, most);
		await streamed.begun();
		slurm.ask("scancel", "--batch", "--signal=USR1", id); // as Slurm does it before the time limit
		const job = await eventually(() => {
			const one = slurm.job(id);
			return !["RUNNING", "COMPLETING"].includes(one.JobState) && one.JobState && one;
		}, () => `the job ends; ${output().slice(-2000)}`, LONG);
		assert.deepEqual([job.JobState, job.ExitCode], ["COMPLETED", "0:0"], output());
		assert.match(output(), /drained: nothing is left on this node/);
		const { stages } = await cluster.ready(instance_id);
		assert.deepEqual(stages.map((one) => one.device_id), [stays.device.device_id]);
		await streamed.done;
		assert.deepEqual([streamed.text, streamed.error, streamed.broken, streamed.whole], [expected, undefined, undefined, true]);
		await eventually(async () => (await shown()).state === "offline", "it is gone", LONG);
	});
});
