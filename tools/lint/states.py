"""The state of an instance has one setter, and server/instances one clock: both are in instances_state.c."""
import re

from tree import error, line_of

SETTER = "server/instances/instances_state.c"
STATE = re.compile(r"(?:->|\.)state\s*=(?!=)")
CLOCK = re.compile(r"\bclock_steady_ms\s*\(")


def check(tree):
    for path in tree.ending(".c", ".h"):
        if not path.startswith("server/instances/") or path == SETTER:
            continue
        code = tree.code(path)
        for match in STATE.finditer(code):
            yield error(path, line_of(code, match.start()), "states",
                        "only instance_change (%s) sets the state of an instance" % SETTER)
        for match in CLOCK.finditer(code):
            yield error(path, line_of(code, match.start()), "states",
                        "what waits asks instances_now: a test has a clock of its own")
