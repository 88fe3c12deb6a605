"""Placements beside OR-Tools' CP-SAT: cpsat.py SOLVER [CLUSTERS [SECONDS [ANSWERS [FIRST]]]]

SOLVER (tests/bench/solver.c) makes random clusters, prints what each device and hop costs, and what the search of
server/placement finds for them, half of them for one stream, half for throughput. CP-SAT gets the same problem from
these tables alone: a circuit through the devices that are used, layers for each, and the rules of chains, said once
more. For throughput it is asked for each number of lanes. Each of the two has SECONDS (10) for each question. Answers of
CP-SAT are kept in the file ANSWERS, so that a run that was interrupted goes on, and another search is compared at once.

It checks that CP-SAT is never better than the lower bound that the search states, which is the found value itself
where that is proven; that no proven bound of CP-SAT is above what the search has found; and that both agree whether
the model fits. Prints Markdown; exit status 1: something did not hold. Needs Python with `pip install ortools`.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

from ortools.sat.python import cp_model

NS = 1e9
SLACK = 1e-5  # CP-SAT counts whole nanoseconds


def ns(seconds):
    return round(seconds * NS)


def build(problem, lanes):
    """The model for so many lanes, and what is minimised, in ns; for one stream: lanes 0."""
    devices, count = problem["devices"], len(problem["devices"])
    model = cp_model.CpModel()
    rows = problem["sequences"] / lanes if lanes else 1
    batch = [one["batch"][lanes - 1] if lanes else 1 for one in devices]
    used = [model.NewBoolVar(f"used{i}") for i in range(count)]
    first = [model.NewBoolVar(f"first{i}") for i in range(count)]
    last = [model.NewBoolVar(f"last{i}") for i in range(count)]
    layers = [model.NewIntVar(0, problem["layers"], f"layers{i}") for i in range(count)]
    # Place 0 is before the first and after the last.
    arcs, arc = [], {}
    for i in range(count):
        arcs += [(0, i + 1, first[i]), (i + 1, 0, last[i]), (i + 1, i + 1, used[i].Not())]
        for j in range(count):
            if i != j:
                arc[i, j] = model.NewBoolVar(f"arc{i},{j}")
                arcs.append((i + 1, j + 1, arc[i, j]))
    model.AddCircuit(arcs)
    model.Add(sum(layers) == problem["layers"])
    model.Add(sum(used) <= problem["most"])
    for i, one in enumerate(devices):
        model.Add(layers[i] >= 1).OnlyEnforceIf(used[i])
        model.Add(layers[i] == 0).OnlyEnforceIf(used[i].Not())
        for embeds in (0, 1):
            for predicts in (0, 1):
                given = [first[i] if embeds else first[i].Not(), last[i] if predicts else last[i].Not(), used[i]]
                model.Add(layers[i] <= max(0, one["room"][embeds + 2 * predicts])).OnlyEnforceIf(given)
    for pool in {one["pool"] for one in devices if one["pool"] >= 0}:
        model.Add(sum(used[i] for i in range(count) if devices[i]["pool"] == pool) <= 1)
    # A worker's devices follow each other; only the last stage may come back to the first one's worker.
    groups = sorted({one["group"] for one in devices})
    members = {g: [i for i in range(count) if devices[i]["group"] == g] for g in groups}
    begins = {g: sum(first[i] for i in members[g]) for g in groups}
    comes = {}
    back = {}
    for g in groups:
        into = [(i, j) for (i, j) in arc if devices[j]["group"] == g and devices[i]["group"] != g]
        comes[g] = sum(arc[key] for key in into)
        back[g] = model.NewBoolVar(f"back{g}")
        model.Add(comes[g] <= 1)
        model.Add(begins[g] + comes[g] <= 1 + back[g])
        model.Add(back[g] <= begins[g])
        model.Add(back[g] <= comes[g])
        for i, j in into:
            model.Add(last[j] == 1).OnlyEnforceIf([arc[i, j], back[g]])
    parts = 1 + sum(comes.values())
    several = model.NewBoolVar("several")
    for i, j in arc:
        if devices[i]["group"] != devices[j]["group"]:
            model.AddImplication(arc[i, j], several)
    def hop(i, j):
        free, busy, _ = devices[i]["hops"][j]
        return free + rows * busy
    stage = [ns(devices[i]["layer_s"] * batch[i]) * layers[i] + ns(devices[i]["output_s"] * batch[i]) * last[i]
             + ns(problem["stage_s"]) * used[i] for i in range(count)]
    way = sum(stage) + sum(ns(hop(i, j)) * arc[i, j] for i, j in arc)
    for i in range(count):  # the tokens' way back
        for j in range(count):
            close = ns(devices[i]["hops"][j][2])
            if close:
                both = model.NewBoolVar(f"close{i},{j}")
                model.AddBoolOr([last[i].Not(), first[j].Not(), several.Not(), both])
                way += close * both
    if not lanes:
        model.Minimize(way)
        return model
    # As many lanes as parts, or fewer: one, two, four and so on; never more than sequences.
    model.Add(parts >= lanes)
    if lanes & (lanes - 1) and lanes < problem["sequences"]:
        model.Add(parts == lanes)
    turn = model.NewIntVar(0, 10**15, "turn")
    model.Add(turn >= way)
    for g in groups:
        inside = sum(ns(hop(i, j)) * arc[i, j] for i, j in arc if i in members[g] and j in members[g])
        together = sum(stage[i] for i in members[g]) + inside
        model.Add(turn >= lanes * together).OnlyEnforceIf(back[g].Not())
        for i in members[g]:  # which came back: a part of its own
            apart = model.NewBoolVar(f"apart{i}")
            model.AddBoolOr([back[g].Not(), last[i].Not(), apart])
            model.Add(turn >= lanes * stage[i]).OnlyEnforceIf(apart)
            model.Add(turn >= lanes * (together - stage[i])).OnlyEnforceIf(apart)
    for i, j in arc:
        model.Add(turn >= lanes * ns(rows * devices[i]["hops"][j][1])).OnlyEnforceIf(arc[i, j])
    model.Minimize(turn)
    return model


def ask(problem, seconds):
    """(value, bound, proven) in seconds a token; value None: nothing fits."""
    throughput = problem["throughput"]
    value, bound, proven = None, None, True
    for lanes in range(1, len(problem["devices"][0]["batch"]) + 1) if throughput else [0]:
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 1
        status = solver.Solve(build(problem, lanes))
        if status == cp_model.INFEASIBLE:
            continue
        scale = NS * (problem["sequences"] if throughput else 1)
        proven = proven and status == cp_model.OPTIMAL
        least = solver.BestObjectiveBound() / scale
        bound = least if bound is None else min(bound, least)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            found = solver.ObjectiveValue() / scale
            value = found if value is None else min(value, found)
    return value, bound, proven


def main():
    program, clusters = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 10
    answers = sys.argv[4] if len(sys.argv) > 4 else None
    first = sys.argv[5] if len(sys.argv) > 5 else "1"
    known = {}
    if answers and os.path.exists(answers):
        with open(answers, encoding="utf-8") as file:
            known = {key: answer for key, *answer in map(json.loads, file)}
    wrong, rows = 0, {False: [], True: []}
    lines = subprocess.Popen([program, "tables", first, str(clusters), str(seconds)], stdout=subprocess.PIPE, text=True)
    for line in lines.stdout:
        problem = json.loads(line)
        asked = {key: problem[key] for key in ("throughput", "layers", "most", "sequences", "stage_s", "devices")}
        key = hashlib.sha256(json.dumps([asked, seconds]).encode()).hexdigest()
        if key not in known:
            begun = time.monotonic()
            known[key] = [*ask(problem, seconds), (time.monotonic() - begun) * 1e3]
            if answers:
                with open(answers, "a", encoding="utf-8") as file:
                    file.write(json.dumps([key, *known[key]]) + "\n")
        value, bound, proven, ms = known[key]
        ours = problem["value"] if problem["value"] >= 0 else None
        faults = []
        if (ours is None) != (value is None) and proven and not problem["spilled"]:
            faults.append("one of them finds none")
        if ours is not None and value is not None:
            if value < problem["bound"] * (1 - SLACK):
                faults.append(f"CP-SAT has {value}, below the bound {problem['bound']} of the search")
            if bound > ours * (1 + SLACK) and not problem["spilled"]:
                faults.append(f"the search has {ours}, below the bound {bound} of CP-SAT")
        for fault in faults:
            print(f"WRONG: cluster {problem['number']}: {fault}", flush=True)
        wrong += len(faults)
        rows[problem["throughput"]].append((problem, ours, value, proven, ms))
        if problem["number"] % 50 == 0:
            print(f"cpsat: {problem['number']} clusters", file=sys.stderr, flush=True)
    print("| objective | clusters | fit nowhere | proven by the search, by CP-SAT | the same value | search better, by at most "
          "| CP-SAT better, by at most | ms, median and most: search | CP-SAT |")
    print("|---|---|---|---|---|---|---|---|---|")
    for throughput, these in rows.items():
        both = [(ours, value) for _, ours, value, _, _ in these if ours is not None and value is not None]
        gaps = [value / ours - 1 for ours, value in both]
        better, worse = [gap for gap in gaps if gap > SLACK], [-gap for gap in gaps if gap < -SLACK]
        times = sorted(problem["ms"] for problem, *_ in these)
        others = sorted(ms for *_, ms in these)
        share = lambda list_: f"{len(list_)}, {max(list_, default=0) * 100:.3f} %"
        if these:
            print(f"| {'throughput' if throughput else 'latency'} | {len(these)} | {sum(ours is None for _, ours, *_ in these)} "
                  f"| {sum(problem['proven'] for problem, *_ in these)}, {sum(proven for *_, proven, _ in these)} "
                  f"| {len(gaps) - len(better) - len(worse)} | {share(better)} | {share(worse)} "
                  f"| {times[len(times) // 2]:.2f}, {times[-1]:.1f} | {others[len(others) // 2]:.0f}, {others[-1]:.0f} |")
    print(f"\n{wrong} faults." if wrong else "\nNothing is wrong.")
    sys.exit(1 if wrong or lines.wait() else 0)


main()
