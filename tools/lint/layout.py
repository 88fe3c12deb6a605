"""Layout of C files: clang-format, the opening comment, the width of lines, the length of functions."""
import os
import re
import shutil
import subprocess

from tree import error, line_of, warning

ENFORCED_VERSION = 14  # other versions wrap a little differently, so what they find is only a warning
COLUMNS = 120
FUNCTION_LINES = 80


def check(tree):
    files = tree.ending(".c", ".h")
    yield from formatted(tree, files)
    for path in files:
        text = tree.text(path)
        if not text.startswith(("/*", "//")):
            yield error(path, 1, "header", "begins without a comment that says what the file is for")
        for number, line in enumerate(text.split("\n"), 1):
            if len(line.expandtabs(8)) > COLUMNS:
                yield error(path, number, "columns", "longer than %d columns" % COLUMNS)
        if path.endswith(".c"):
            yield from functions(path, tree.code(path))


def formatted(tree, files):
    program = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not program or not files:
        if files:
            print("lint: clang-format is not installed; the layout of C files was not checked")
        return
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, universal_newlines=True).stdout
    match = re.search(r"version (\d+)", version)
    severity = error if match and int(match.group(1)) == ENFORCED_VERSION else warning
    jobs = os.cpu_count() or 1
    running = [subprocess.Popen([program, "--dry-run", "--ferror-limit=1"] + files[start::jobs], cwd=tree.root,
                                stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, universal_newlines=True)
               for start in range(min(jobs, len(files)))]
    for process in running:
        output = process.communicate()[1]
        for path, line in re.findall(r"^(.*?):(\d+):\d+: (?:warning|error): code should be clang-formatted", output,
                                     re.M):
            yield severity(path, int(line), "format", "not laid out as .clang-format says; ./dev fmt %s" % path)


def functions(path, code):
    """With the house's layout a function's braces are the only ones at the beginning of a line."""
    for match in re.finditer(r"^\{\n.*?^\}$", code, re.M | re.S):
        lines = match.group(0).count("\n") - 1
        if lines > FUNCTION_LINES:
            yield warning(path, line_of(code, match.start()), "function", "a function of %d lines; aim at 70" % lines)
