#!/usr/bin/env python3
"""Builds of exogpu beside each other, by turns, through HTTP: what compilers of CUDA kernels make of one model.

  tests/bench/builds.py MODEL.gguf NAME=BINARY [NAME=BINARY ...] [--rounds N] [--device TEXT] [--at-once LIST]
                        [--prompts LIST] [--tokens N] [--defaults] [--drawn]

Each round starts the server of each build in turn, with a data directory of its own that is new: nothing is kept of
compiled kernels. Prints a table in Markdown, of each figure the median of all rounds and the rounds:

  usable, s        from the start of the server until the device has been verified
  loaded, s        from `exogpu place` until the model answers; the file is in the page cache
  first answer, s  from the first request until its only token
  N at once        tokens/s of all together, prompts of 16 tokens, from the first request to the last token
  N drawn          the same, of requests that say nothing of sampling; the others have temperature 0
  prompt of N      tokens/s: its tokens, by the time to its first token

With --defaults the model is placed as somebody does who says nothing of contexts and of requests at once; else with as
much of both as the figures need.

Wants Python's standard library and nothing else, so that it runs on a machine that has only a GPU."""
import argparse
import concurrent.futures
import http.client
import json
import os
import statistics
import subprocess
import tempfile
import time

PATIENCE_S = 300
SHORT = 16
prompts = 0


class Build:
    """A server of one build, and a loaded model, from `with` to its end."""

    def __init__(self, binary, model, device, sequences, context):
        self.binary, self.model, self.device = binary, model, device
        self.sequences, self.context, self.seconds = sequences, context, {}

    def command(self, *words):
        done = subprocess.run([self.binary, *words, "--data", self.data, "--json"], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        if done.returncode:
            raise SystemExit(f"{self.binary} {' '.join(words)}: {done.stderr or done.stdout}")
        return json.loads(done.stdout)

    def wait(self, what, look):
        began = time.monotonic()
        while not (found := look()):
            if time.monotonic() - began > PATIENCE_S:
                raise SystemExit(f"{self.binary}: {what} takes more than {PATIENCE_S} s; see {self.data}/log")
            time.sleep(0.02)
        return found

    def find_device(self):
        for one in self.command("devices")["devices"]:
            if self.device in (one["device_id"], one["backend"]) or self.device in one["name"]:
                return one if one["verification"]["state"] == "passed" else None
        return None

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.data = self.folder.name
        began = time.monotonic()
        with open(f"{self.data}/log", "w", encoding="utf-8") as log:
            self.server = subprocess.Popen([self.binary, "serve", "--listen", "127.0.0.1:0", "--data", self.data],
                                           stdout=subprocess.PIPE, stderr=log, text=True)
        for line in self.server.stdout:
            if line.startswith("dashboard: "):
                self.port = int(line.split("//")[1].split("/")[0].split(":")[1])
                break
        device = self.wait("a usable device", self.find_device)
        self.seconds["usable, s"] = time.monotonic() - began
        self.name = self.command("model", "add", self.model)["name"]
        self.token = self.command("token", "create", "--name", "bench", "--scopes", "infer")["token"]
        with open(self.model, "rb") as file:  # into the page cache
            while file.read(1 << 24):
                pass
        began = time.monotonic()
        sizes = ["--sequences", str(self.sequences), "--context", str(self.context)] if self.sequences else []
        self.command("place", self.name, "--device", device["device_id"], *sizes)
        self.wait("loading", self.running)
        self.seconds["loaded, s"] = time.monotonic() - began
        self.seconds["first answer, s"] = self.ask(SHORT, 1)
        return self

    def running(self):
        (one,) = self.command("instances")["instances"]
        if one["state"] == "failed":
            raise SystemExit(f"{self.binary}: {one['state_reason']}")
        return one["state"] == "running"

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()
        self.folder.cleanup()

    def ask(self, length, tokens, sampling={"temperature": 0}):
        """Seconds that an answer took."""
        global prompts
        prompts += 1
        prompt = [300 + (i * 7919 + prompts * 104729) % 20000 for i in range(length)]  # nobody has seen it
        body = json.dumps({"model": self.name, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, **sampling})
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("POST", "/v1/completions", body,
                           {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        took = time.monotonic() - began
        connection.close()
        if answer.status != 200 or json.loads(text)["usage"]["completion_tokens"] != tokens:
            raise SystemExit(f"{answer.status}: {text[:400]}")
        return took

    def many(self, count, *request):
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            began = time.monotonic()
            list(pool.map(lambda _: self.ask(SHORT, *request), range(count)))
            return count * request[0] / (time.monotonic() - began)


def measure(build, options):
    """A dict of figures, in the order of the columns."""
    with build:
        figures = dict(build.seconds)
        build.ask(max(options.prompts), 4)  # not counted: what is made when it is first needed
        for count in options.at_once:
            build.many(count, 4)
            figures[f"{count} at once"] = build.many(count, options.tokens)
        for count in options.at_once if options.drawn else []:
            figures[f"{count} drawn"] = build.many(count, options.tokens, {})
        for length in options.prompts:
            build.ask(length, 1)
            figures[f"prompt of {length}"] = length / build.ask(length, 1)
        return figures


def numbers(text):
    return [int(one) for one in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("builds", nargs="+", metavar="NAME=BINARY")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda", help="its id, its back end, or part of its name")
    parser.add_argument("--at-once", type=numbers, default=[1, 8, 32, 128])
    parser.add_argument("--prompts", type=numbers, default=[512, 2048])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--drawn", action="store_true")
    options = parser.parse_args()
    model = os.path.abspath(options.model)
    builds = dict(one.split("=", 1) for one in options.builds)
    context = max([*options.prompts, SHORT + options.tokens]) + 64
    rounds = {name: [] for name in builds}
    for which in range(options.rounds):
        for name in list(builds)[which % len(builds):] + list(builds)[:which % len(builds)]:
            sequences = 0 if options.defaults else max(options.at_once)
            build = Build(os.path.abspath(builds[name]), model, options.device, sequences, context)
            rounds[name].append(measure(build, options))
    columns = list(rounds[next(iter(builds))][0])
    print(f"| {os.path.basename(model)} | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for name, all_figures in rounds.items():
        print(f"| {name} |", end="")
        for column in columns:
            values = [figures[column] for figures in all_figures]
            shown = "{:.2f}" if column.endswith(", s") else "{:,.0f}"
            each = ", ".join(shown.format(value) for value in values)
            print(f" {shown.format(statistics.median(values))} ({each}) |", end="")
        print()
    for name, binary in builds.items():
        said = subprocess.run([binary, "version"], capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        print(f"\n{name}: {said}")


if __name__ == "__main__":
    main()
