"""Every text file: whitespace, words that hide a gap, paths of one machine, length."""
import os
import re

from tree import error, line_of, warning

LIMITS = ((900, (".c", ".h", ".cu", ".comp", ".py", ".sh")), (450, (".ts", ".tsx", ".css", ".js", ".mjs")))
TABS = (".c", ".h", ".cu", ".comp")
FREE_TEXT = ("LICENSE",)
WORDS = re.compile(r"\b(?:%s)\b" % "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)))
SHARED_FOLDERS = {"/", "/bin", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp",
                  "/usr", "/usr/src", "/var", "/var/tmp", "/Users"}


def machine_paths(root):
    """Where this checkout lies, the folder around it where that is not one that every machine has, and homes."""
    root = os.path.realpath(root)
    paths = {root}
    parent = os.path.dirname(root)
    if parent not in SHARED_FOLDERS:
        paths.add(parent)
    whole = "|".join(re.escape(path) for path in sorted(paths, key=len, reverse=True))
    return re.compile(r"(?<![\w./])(?:(?:%s)(?=/|\b)|/(?:home|Users)/(?!me/|user/)[a-z][\w.-]*/|/(?:root)/)" % whole)


def check(tree):
    paths = machine_paths(tree.root)
    for path in tree.files:
        if os.path.basename(path) in FREE_TEXT:
            continue
        text = tree.text(path)
        if "\0" in text:
            continue
        lock = path.endswith("package-lock.json")
        if "\r" in text and not lock:
            yield error(path, line_of(text, text.index("\r")), "whitespace", "a carriage return")
        if text and not text.endswith("\n"):
            yield error(path, text.count("\n") + 1, "whitespace", "no newline at the end")
        if text.endswith("\n\n"):
            yield error(path, text.count("\n"), "whitespace", "an empty line at the end")
        if not path.endswith(".md"):
            for match in re.finditer(r"[ \t]+$", text, re.M):
                yield error(path, line_of(text, match.start()), "whitespace", "trailing whitespace")
        if path.endswith(TABS):
            for match in re.finditer(r"^ +\t", text, re.M):
                yield error(path, line_of(text, match.start()), "whitespace", "spaces before a tab")
        for match in WORDS.finditer(text):
            yield error(path, line_of(text, match.start()), "words",
                        "%s: do it, or write down where it belongs that it is not done" % match.group(0))
        for match in paths.finditer(text):
            yield error(path, line_of(text, match.start()), "paths", "a path of one machine: %s" % match.group(0))
        for limit, endings in LIMITS:
            lines = text.count("\n")
            if path.endswith(endings) and lines > limit:
                yield warning(path, lines, "length", "%d lines, more than %d: has it two roles?" % (lines, limit))
