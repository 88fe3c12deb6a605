// What a soak (soak.mjs) measures of processes, and its verdict on that.
import { readFileSync, readdirSync } from "node:fs";

// {rss (bytes), fds, threads} of a process; null: it is gone.
export function measure(pid) {
	try {
		const status = readFileSync(`/proc/${pid}/status`, "latin1"), of = (name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1]);
		return { rss: of("VmRSS") * 1024, fds: readdirSync(`/proc/${pid}/fd`).length, threads: of("Threads") };
	} catch {
		return null;
	}
}

// The least descriptors and threads that each process has in several readings, since a connection may just be closing; and
// the memory of the last one. `pids`: {name: pid}.
export async function measureQuiet(pids, readings = 6, everyMs = 500) {
	const found = {};
	for (let i = 0; i < readings; i++) {
		if (i) await new Promise((resolve) => setTimeout(resolve, everyMs));
		for (const [name, pid] of Object.entries(pids)) {
			const one = measure(pid), before = found[name];
			if (!one) throw new Error(`${name} (process ${pid}) is gone`);
			found[name] = { pid, rss: one.rss, fds: Math.min(one.fds, before?.fds ?? Infinity), threads: Math.min(one.threads, before?.threads ?? Infinity) };
		}
	}
	return found;
}

export const MORE_MEMORY = 1.05, LEAST_S_FOR_MEMORY = 1200;
const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];

// What is wrong with the samples [{s, processes: {name: {pid, rss, fds, threads}}}]: the last three beside those until
// `warmS`. Descriptors and threads: the least of the last three must not be more than the most of the first. Memory: the
// median of the last three is at most 5 % more than at the end of the first; if the run is long enough to tell.
export function judge(samples, warmS) {
	const first = samples.filter(({ s }) => s <= warmS), last = samples.slice(-3), wrong = [];
	if (!first.length || samples.length < first.length + 3) return ["the run was too short to compare its end with its beginning"];
	for (const name of Object.keys(samples[0].processes)) {
		const of = (list, key) => list.map(({ processes }) => processes[name][key]);
		if (new Set(of(samples, "pid")).size > 1) wrong.push(`${name}: it was started again`);
		for (const [key, noun] of [["fds", "descriptors"], ["threads", "threads"]]) {
			const before = Math.max(...of(first, key)), now = Math.min(...of(last, key));
			if (now > before) wrong.push(`${name}: ${now} ${noun}, ${before} after ${first.at(-1).s} s`);
		}
		const before = of(first, "rss").at(-1), now = median(of(last, "rss"));
		if (samples.at(-1).s >= LEAST_S_FOR_MEMORY && now > MORE_MEMORY * before)
			wrong.push(`${name}: ${(now / before * 100 - 100).toFixed(1)} % more memory than after ${first.at(-1).s} s`);
	}
	return wrong;
}

// The table of the processes, in Markdown: after the first minutes, at the end, the most of all samples.
export function table(samples, warmS) {
	const first = samples.filter(({ s }) => s <= warmS).at(-1) ?? samples[0], last = samples.at(-1), mib = (bytes) => (bytes / 1048576).toFixed(1);
	const lines = [`| process | MiB after ${first.s} s | at the end | most | descriptors | at the end | threads | at the end |`, `|${"---|".repeat(8)}`];
	for (const name of Object.keys(last.processes)) {
		const [a, b] = [first.processes[name], last.processes[name]], most = Math.max(...samples.map(({ processes }) => processes[name].rss));
		lines.push(`| ${[name, mib(a.rss), `${mib(b.rss)} (${b.rss >= a.rss ? "+" : ""}${((b.rss / a.rss - 1) * 100).toFixed(1)} %)`, mib(most), a.fds, b.fds, a.threads, b.threads].join(" | ")} |`);
	}
	return lines.join("\n");
}
