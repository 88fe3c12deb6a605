"""Holds the line coverage that gcovr measured against the floors.

usage: coverage.py SUMMARY.json FLOORS.txt

Prints one line a floor; exit status 1 if one is not reached.
"""
import json
import sys


def main(summary_path, floors_path):
    with open(floors_path, encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    floors = {prefix: float(percent) for prefix, percent in rows}
    with open(summary_path, encoding="utf-8") as file:
        files = json.load(file)["files"]
    lines = {prefix: [0, 0] for prefix in floors}
    for entry in files:
        fitting = [prefix for prefix in floors if entry["filename"].startswith(prefix)]
        if fitting:
            sums = lines[max(fitting, key=len)]
            sums[0] += entry["line_covered"]
            sums[1] += entry["line_total"]
    below = 0
    for prefix in sorted(floors):
        covered, total = lines[prefix]
        percent = 100.0 * covered / total if total else 0.0
        fails = percent < floors[prefix]
        below += fails
        print("%-32s %6.1f %%  floor %5.1f %%  %6d lines%s"
              % (prefix, percent, floors[prefix], total, "  BELOW" if fails else ""))
    return 1 if below else 0


if len(sys.argv) != 3:
    sys.exit(__doc__)
sys.exit(main(sys.argv[1], sys.argv[2]))
