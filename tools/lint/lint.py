"""Checks the sources without compiling them: ./dev lint [FILE...].

Each rule is a module beside this file with a function check(tree) that yields findings. A finding is an error or a
warning; only errors make the exit status 1. With files, only findings about those are shown.
Python's standard library is all it needs.
"""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import calls      # noqa: E402
import documents  # noqa: E402
import layers     # noqa: E402
import layout     # noqa: E402
import messages   # noqa: E402
import schema     # noqa: E402
import sentences  # noqa: E402
import states     # noqa: E402
import text       # noqa: E402
import tree       # noqa: E402
import typescript  # noqa: E402

RULES = (layout, text, calls, layers, messages, typescript, schema, sentences, states, documents)


def main(arguments):
    started = time.monotonic()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    wanted = {os.path.relpath(os.path.abspath(name), root) for name in arguments}
    sources = tree.Tree(root)
    for name in wanted:
        if name not in sources.files:
            print("lint: no such file in the repository: %s" % name, file=sys.stderr)
            return 2
    findings = [finding for rule in RULES for finding in rule.check(sources)]
    if wanted:
        findings = [finding for finding in findings if finding.path in wanted]
    findings.sort(key=lambda finding: (finding.severity != "warning", finding.path, finding.line))
    for finding in findings:
        print(finding)
    errors = sum(finding.severity == "error" for finding in findings)
    print("lint: %d files, %d errors, %d warnings, %.1f s"
          % (len(wanted or sources.files), errors, len(findings) - errors, time.monotonic() - started))
    return 1 if errors else 0


sys.exit(main(sys.argv[1:]))
