"""Adds up the JUnit files of one run of ./dev test.

usage: summary.py FOLDER
           names every skipped test, shows what every failed one said and why, names it, and ends with one line
           `N passed, N failed, N skipped`;
           exit status 1 if any failed or if none ran.
       summary.py --record FILE NAME STATUS SECONDS LOG
           writes FILE as the result of a command that is not run by ctest.

One ctest test may hold many cases; where its output has the counts of cmocka, of node's test
runner or of Python's unittest, those are counted instead of one.
"""
import glob
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

SKIPPED_EXIT = 77
SHOWN_LINES = 40
SHOWN_CHARACTERS = 600  # of one message
NODE_COUNT = re.compile(r"^(?:#|\u2139) (pass|fail|cancelled|skipped|todo) (\d+)\s*$", re.M)
UNITTEST_COUNT = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(?: \((.*)\))?$", re.M)
CMOCKA_COUNT = re.compile(r"^\[  (PASSED|FAILED|SKIPPED) +\] (\d+) test\(s\)", re.M)
NODE_SKIP = re.compile(r"^\s*ok \d+ - (.*?) # SKIP\b *(.*)$|^\s*\ufe63 (.*?)(?: \([\d.]+ms\))? # (.*)$", re.M)
CMOCKA_SKIP = re.compile(r"^(.*)\n\[  SKIPPED \] (\w+)$", re.M)
UNITTEST_SKIP = re.compile(r"^(\w+) \(.*\) \.\.\. skipped ['\"](.*)['\"]$", re.M)
UNITTEST_FAILURE = re.compile(r"^(?:ERROR|FAIL): (\w+) \(.*\)\n(?:.+\n)*?-{70}\nTraceback .*\n(?: .*\n)+(.*)", re.M)
CMOCKA_FAILURE = re.compile(r"\[  ERROR   \] --- ((?:.*\n)*?)\[  FAILED  \] (\w+)$", re.M)
INNER_FAILURE = re.compile(r"^\s*not ok \d+ - (.*)$|^\[  FAILED  \] (\w+)$"
                           r"|^.*((?:ERROR|WARNING): (?:Address|Leak|Thread|Memory)Sanitizer.*|runtime error: .*)$",
                           re.M)
NODE_FAILURE = re.compile(r"^( *)not ok \d+ - (.*)\n\1  ---\n((?:.*\n)*?)\1  \.\.\.$", re.M)
NODE_ERROR = re.compile(r"^( *)error: (?:\|-\n((?:\1  .*\n|\s*\n)*)|(.*))", re.M)
OUTER_FAILURE = re.compile(r"^'\d+ subtests? failed'$")
COMPLAINT = re.compile(r"^\s*not ok |^(?:ERROR|FAIL): |^\[  (?:ERROR|FAILED) |\u2716 |Sanitizer: |runtime error: |: error: ")
REASON = re.compile(r"^.*\bskip(?:s|ped|ping)?\b.*$", re.M | re.I)


def counts_of(output):
    """(passed, failed, skipped) as the runner inside said, or None."""
    passed = failed = skipped = 0
    seen = False
    for word, number in NODE_COUNT.findall(output):
        seen = True
        number = int(number)
        if word == "pass":
            passed += number
        elif word in ("fail", "cancelled"):
            failed += number
        else:
            skipped += number
    for word, number in CMOCKA_COUNT.findall(output):
        seen = True
        number = int(number)
        if word == "PASSED":
            passed += number
        elif word == "FAILED":
            failed += number
        else:
            skipped += number
    for number, details in UNITTEST_COUNT.findall(output):
        seen = True
        detail = {word: int(count) for word, count in re.findall(r"(\w+)=(\d+)", details)}
        bad, left_out = detail.get("failures", 0) + detail.get("errors", 0), detail.get("skipped", 0)
        passed, failed, skipped = passed + int(number) - bad - left_out, failed + bad, skipped + left_out
    return (passed, failed, skipped) if seen else None


def reason_of(case, output):
    """Why a whole test was skipped: the last line that says so, else ctest's own word."""
    lines = REASON.findall(output)
    if lines:
        return lines[-1].strip()
    tail = output.strip().splitlines()
    element = case.find("skipped")
    return tail[-1].strip() if tail else (element.get("message") or "no reason given")


def inner_skips(output):
    """One line for each case that was skipped inside a test, with its reason where it was printed."""
    notes = ["%s: %s" % ((a or c), (b or d) or "no reason given") for a, b, c, d in NODE_SKIP.findall(output)]
    notes += ["%s: %s" % pair for pair in UNITTEST_SKIP.findall(output)]
    named = set()  # cmocka names each once when it runs, and again in a list at the end
    for before, name in CMOCKA_SKIP.findall(output):
        if name not in named:
            notes.append("%s: %s" % (name, "no reason given" if before.startswith("[") else before.strip()))
        named.add(name)
    return notes


def shorten(text):
    """A message in one line: how it begins, and, what tells more, how it ends."""
    text = " | ".join(line.strip() for line in text.splitlines() if line.strip())
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS // 4] + " [...] " \
        + text[-SHOWN_CHARACTERS * 3 // 4:]


def inner_failures(output):
    names = [next(part for part in parts if part) for parts in INNER_FAILURE.findall(output)]
    why = {}
    for _, name, details in NODE_FAILURE.findall(output):
        error = NODE_ERROR.search(details)
        if error:
            why[name] = shorten(error.group(2) or error.group(3) or "")
    why.update((name, shorten(details)) for details, name in CMOCKA_FAILURE.findall(output))
    for name, details in UNITTEST_FAILURE.findall(output):
        names.append(name)
        why[name] = shorten(details)
    for name in [name for name in why if OUTER_FAILURE.match(why[name])]:
        names = [other for other in names if other != name] or names  # what failed inside it is named
    return ["%s: %s" % (name, why[name]) if name in why else name for name in dict.fromkeys(names)][:12]


def output_of(case):
    return "".join(element.text or "" for element in case.iter("system-out"))


def read_case(case):
    """(outcome, counts, notes) of one testcase element."""
    output = output_of(case)
    skipped = case.find("skipped")
    if skipped is not None:
        message = skipped.get("message") or ""
        if case.get("status") == "notrun" and not message.startswith("SKIP_"):
            return "failed", (0, 1, 0), ["not run: " + (message or "no reason given")]
        return "skipped", (0, 0, 1), [reason_of(case, output)]
    inner = counts_of(output)
    if case.find("failure") is not None or case.get("status") == "fail":
        passed, failed, skips = inner or (0, 0, 0)
        message = case.find("failure").get("message") if case.find("failure") is not None else ""
        return "failed", (passed, max(failed, 1), skips), ([message] if message else []) + inner_failures(output)
    if inner is None or sum(inner) == 0:
        return "passed", (1, 0, 0), []
    return "passed", inner, inner_skips(output) if inner[2] else []


def telling_lines(output):
    """A failed test's output from shortly before its first complaint; if nothing looks like one, its end."""
    lines = output.rstrip().splitlines()
    first = next((index for index, line in enumerate(lines) if COMPLAINT.search(line)), None)
    if first is None:
        return lines[-SHOWN_LINES:]
    start = max(0, first - 8)
    return lines[start:start + SHOWN_LINES]


def print_rows(title, rows):
    for name, notes in rows:
        print("%s  %s" % (title, name))
        for note in notes:
            print("         %s" % note)


def summarise(folder):
    total = [0, 0, 0]
    failed, skipped, said = [], [], []
    for path in sorted(glob.glob(os.path.join(folder, "*.xml"))):
        stage = os.path.splitext(os.path.basename(path))[0]
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            outcome, counts, notes = read_case(case)
            total = [a + b for a, b in zip(total, counts)]
            name = stage if stage == case.get("name") else "%s: %s" % (stage, case.get("name"))
            if outcome == "failed":
                failed.append((name, notes))
                said.append((name, output_of(case)))
                notes = inner_skips(output_of(case))
            if counts[2]:
                skipped.append((name, notes))
    print_rows("SKIPPED", skipped)
    for name, output in said:  # near the end, so that whoever keeps only the end of a log has it
        print("---- %s said:" % name)
        for line in telling_lines(output):
            print("  | " + line)
    print_rows("FAILED", failed)
    if sum(total) == 0:
        print("no test ran")
    print("%d passed, %d failed, %d skipped" % tuple(total))
    return 1 if total[1] or total[0] == 0 else 0


def record(path, name, status, seconds, log):
    with open(log, encoding="utf-8", errors="replace") as file:
        output = re.sub("[^\t\n\x20-\ud7ff\ue000-\ufffd]", "?", file.read())
    suite = ElementTree.Element("testsuite", name=name)
    case = ElementTree.SubElement(suite, "testcase", name=name, time=seconds)
    if status == SKIPPED_EXIT and REASON.search(output): # what says nothing of it was not skipped: libFuzzer ends with 77, too
        ElementTree.SubElement(case, "skipped", message="exit status 77")
    elif status:
        ElementTree.SubElement(case, "failure", message="exit status %d" % status)
    ElementTree.SubElement(case, "system-out").text = output
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
    return 0


def main(arguments):
    if len(arguments) == 6 and arguments[0] == "--record":
        return record(arguments[1], arguments[2], int(arguments[3]), arguments[4], arguments[5])
    if len(arguments) == 1:
        return summarise(arguments[0])
    print(__doc__, file=sys.stderr)
    return 2


sys.exit(main(sys.argv[1:]))
