#!/usr/bin/env python3
"""Fuzz targets to so many runs each, in as many sittings as it takes:

  ./dev bench fuzz [--runs N] [--seconds S] [--jobs N] [--list] [--keep] [TARGET...]

  --runs N     how many each is to have (default 10,000,000)
  --seconds S  stop after so long; what was done counts, and the next time goes on from there
  --jobs N     so many at once (default: one for each processor); they take only what nobody else wants
  --list       show where each stands, and run nothing
  --keep       add what is new to tests/fuzz/known: the fewest inputs of at most 4 KiB that reach what is reached (libFuzzer's -merge=1)

Runs count for one build of a target, known by what its program is made of: another one begins anew, from the inputs that
were found. The table also tells how many a second of a processor takes, and how many hours of one the N runs need at
that pace, which does not depend on what else the machine does. Counts lie in build/fuzz/runs.json, inputs in build/fuzz/new, and what breaks a target in build/fuzz/broken.
Ctrl-C ends it at once; after kill -9 the last minute of each target is lost. Exit status: 0 all have their runs, 1 a target
broke, 3 there are runs to do."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

SLICE_SECONDS = 60  # between two counts
MOST_BYTES = 4096   # of an input that is kept
LEFT = 3            # exit status: there are runs to do


def key_of(program):
    """What the program is made of: its code and data, without names for a debugger and the linker's own hash of all."""
    with tempfile.NamedTemporaryFile() as bare:
        subprocess.run(["objcopy", "--strip-all", "--remove-section=.note.gnu.build-id", program, bare.name], check=True)
        with open(bare.name, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]


def parse_log(text):
    """(runs, coverage) of what libFuzzer printed; what was killed has no closing figures, and counts by its last line."""
    runs = coverage = 0
    for line in text.splitlines():
        told = re.match(r"#(\d+)\s", line)
        runs = max(runs, int(told[1])) if told else runs
        closing = re.match(r"stat::number_of_executed_units: (\d+)", line)
        runs = int(closing[1]) if closing else runs
        reached = re.search(r"\bcov: (\d+)", line)
        coverage = max(coverage, int(reached[1])) if reached else coverage
    return runs, coverage


class Counts:
    """Runs of each target's build, kept in a file that is always whole."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        self.of = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.of = json.load(file)

    def get(self, name, key):
        entry = self.of.get(name, {})
        if entry.get("build") != key:
            entry = {"build": key, "runs": 0, "seconds": 0, "cpu": 0, "coverage": 0, "since": time.strftime("%Y-%m-%d")}
        return entry

    def add(self, name, key, runs, seconds, cpu, coverage):
        with self.lock:
            entry = self.get(name, key)
            entry.update(runs=entry["runs"] + runs, seconds=round(entry["seconds"] + seconds, 1),
                         cpu=round(entry.get("cpu", 0) + cpu, 2), cpu_runs=entry.get("cpu_runs", 0) + runs,
                         coverage=max(entry["coverage"], coverage))
            self.of[name] = entry
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(self.path + ".new", "w", encoding="utf-8") as file:
                json.dump(self.of, file, indent=1, sort_keys=True)
            os.replace(self.path + ".new", self.path)


class Target:
    def __init__(self, program, folder, known):
        self.program = os.path.abspath(program)
        self.name = os.path.basename(program)[len("fuzz_"):]
        self.new = os.path.join(folder, "new", "fuzz_" + self.name)
        self.broken = os.path.join(folder, "broken")
        self.known = os.path.join(known, self.name)
        self.key = key_of(program)
        self.fault = ""
        os.makedirs(self.new, exist_ok=True)
        os.makedirs(self.broken, exist_ok=True)

    def inputs(self):
        return [self.new] + ([self.known] if os.path.isdir(self.known) else [])

    def news(self):
        return len(os.listdir(self.new))


def idle():
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        os.nice(19)


class Campaign:
    def __init__(self, counts, runs, until, slice_seconds=SLICE_SECONDS):
        self.counts, self.runs, self.until, self.slice_seconds = counts, runs, until, slice_seconds
        self.stopped, self.children, self.lock = False, set(), threading.Lock()

    def stop(self, *_):
        self.stopped = True
        with self.lock:
            for child in self.children:
                child.send_signal(signal.SIGINT)  # it ends with its figures

    def step(self, target):
        """Some runs more. False: it has all, or is broken, or time is over."""
        left = self.runs - self.counts.get(target.name, target.key)["runs"]
        seconds = min(self.slice_seconds, int(self.until - time.monotonic()))
        if left <= 0 or seconds <= 0 or self.stopped or target.fault:
            return False
        prefix = os.path.join(target.broken, target.name + "-")
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            began = time.monotonic()
            with self.lock:
                if self.stopped:
                    return False
                child = subprocess.Popen(
                    [target.program, f"-runs={left}", f"-max_total_time={seconds}", "-timeout=5", "-print_funcs=0", "-rss_limit_mb=1024",
                     "-print_final_stats=1", f"-artifact_prefix={prefix}"] + target.inputs(),
                    stdout=subprocess.DEVNULL, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=idle,
                    start_new_session=True)  # Ctrl-C comes by us
                self.children.add(child)
            _, ended, used = os.wait4(child.pid, 0)
            status = child.returncode = os.waitstatus_to_exitcode(ended)
            with self.lock:
                self.children.discard(child)
            log.seek(0)
            text = log.read()
        runs, coverage = parse_log(text)
        self.counts.add(target.name, target.key, runs, time.monotonic() - began, used.ru_utime + used.ru_stime, coverage)
        if status and not self.stopped:
            target.fault = fault_of(text, status)
            with open(prefix + "log", "w", encoding="utf-8") as file:
                file.write(text)
        return not target.fault and not self.stopped

    def run(self, targets, jobs):
        """Turns of a slice each, those that had the least time first: a slow one keeps no other from its runs."""
        waiting = sorted(targets, key=self.had)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            running = {}
            while waiting or running:
                while waiting and len(running) < jobs:
                    target = waiting.pop(0)
                    running[pool.submit(self.step, target)] = target
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    target = running.pop(future)
                    if future.result():
                        waiting.append(target)
                        waiting.sort(key=self.had)

    def had(self, target):
        return self.counts.get(target.name, target.key)["seconds"]


def fault_of(text, status):
    """A line that says how it broke."""
    for line in text.splitlines():
        if re.search(r"SUMMARY: |runtime error: ", line):
            return line.strip()
    return f"it ended with {status}"


def keep(target):
    """Merge what is new into the inputs of the repository; returns how many were added."""
    before = set(os.listdir(target.known)) if os.path.isdir(target.known) else set()
    os.makedirs(target.known, exist_ok=True)
    with tempfile.TemporaryDirectory() as small:
        for name in os.listdir(target.new):
            if os.path.getsize(os.path.join(target.new, name)) <= MOST_BYTES:
                os.symlink(os.path.abspath(os.path.join(target.new, name)), os.path.join(small, name))
        # By what is reached, not by how often: else each folder would have thousands.
        subprocess.run([target.program, "-merge=1", "-use_counters=0", "-use_cmp=0", "-timeout=5", "-rss_limit_mb=1024", target.known, small],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=idle)
    return len(set(os.listdir(target.known)) - before)


def pace_of(entry, wanted):
    """Runs a second of a processor, and the hours of one that all take; of what was run since that is counted."""
    runs, cpu = entry.get("cpu_runs", 0), entry.get("cpu", 0)
    return f"{runs / cpu:,.0f} | {wanted / (runs / cpu) / 3600:,.1f}" if runs and cpu else "- | -"


def print_table(targets, counts, wanted):
    print("| target | runs | of 10 M | coverage | new inputs | seconds | a second of a processor | its hours for 10 M | |\n"
          "|---|---|---|---|---|---|---|---|---|".replace("10 M", f"{wanted:,}"))
    for target in sorted(targets, key=lambda one: one.name):
        entry = counts.get(target.name, target.key)
        print(f"| {target.name} | {entry['runs']:,} | {100 * entry['runs'] // wanted} % | {entry['coverage']:,} | "
              f"{target.news():,} | {entry['seconds']:,.0f} | {pace_of(entry, wanted)} | {target.fault.replace('|', '/')} |")


def main():
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    parser = argparse.ArgumentParser(add_help=False)
    parser.error = lambda why: sys.exit(f"fuzz: {why}; see: ./dev bench fuzz --help")
    parser.add_argument("--runs", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=float("1e9"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--programs", default="build/fuzz/tests")  # for the tests of this
    parser.add_argument("--folder", default="build/fuzz")
    parser.add_argument("--known", default="tests/fuzz/known")
    parser.add_argument("targets", nargs="*")
    arguments = parser.parse_args()
    names = sorted(name[5:] for name in os.listdir(arguments.programs)
                   if re.fullmatch(r"fuzz_\w+", name) and os.path.isfile(os.path.join(arguments.programs, name)))
    for name in arguments.targets:
        if name not in names:
            sys.exit(f"fuzz: there is no target {name}: {' '.join(names)}")
    if arguments.runs < 1 or arguments.jobs < 1:
        sys.exit("fuzz: --runs and --jobs are at least 1")
    targets = [Target(os.path.join(arguments.programs, "fuzz_" + name), arguments.folder, arguments.known)
               for name in arguments.targets or names]
    counts = Counts(os.path.join(arguments.folder, "runs.json"))
    if arguments.keep:
        for target in targets:
            print(f"{target.name}: {keep(target)} inputs added to {target.known}")
        return 0
    campaign = Campaign(counts, arguments.runs, time.monotonic() + arguments.seconds)
    if not arguments.list:
        signal.signal(signal.SIGINT, campaign.stop)
        signal.signal(signal.SIGTERM, campaign.stop)
        campaign.run(targets, arguments.jobs)
    print_table(targets, counts, arguments.runs)
    for target in targets:
        if target.fault:
            print(f"{target.name} broke; input and log: {target.broken}/{target.name}-*", file=sys.stderr)
    left = any(counts.get(one.name, one.key)["runs"] < arguments.runs for one in targets)
    return 1 if any(one.fault for one in targets) else LEFT if left else 0


if __name__ == "__main__":
    sys.exit(main())
