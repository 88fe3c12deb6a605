"""Holds the includes of C files against layers.txt."""
import os
import re

from tree import error, line_of

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "layers.txt")
INSIDE = "_inside.h"
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.M)


def read_table():
    allowed, libraries = {}, []
    with open(TABLE, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "library":
                libraries.append((words[1], words[2:]))
            else:
                allowed[words[0]] = words[1:]
    return allowed, libraries


def under(path, folder):
    return path == folder or path.startswith(folder + "/")


def room_of(path, allowed):
    """The row that the file belongs to, or None."""
    folder = os.path.dirname(path)
    if folder + "/*" in allowed:
        return folder + "/*"
    return max((entry for entry in allowed if under(path, entry)), key=len, default=None)


def is_inside_for(target, path):
    """X_inside.h is for the files X* beside and below it, for those of a folder X that it lies in, and for tests."""
    if not target.endswith(INSIDE) or path.startswith("tests/"):
        return True
    folder, name = os.path.split(target[:-len(INSIDE)])
    return under(path, folder) and (os.path.basename(path).startswith(name) or os.path.basename(folder) == name)


def check(tree):
    allowed, libraries = read_table()
    files = set(tree.files)
    for path in tree.ending(".c", ".h"):
        text, code = tree.text(path), tree.code(path)
        room = room_of(path, allowed)
        if room is None:
            yield error(path, 1, "layers", "lies in no folder of tools/lint/layers.txt")
            continue
        for match in INCLUDE.finditer(text):
            if not code[match.start():match.end()].lstrip().startswith("#"):
                continue  # inside a comment
            line, target = line_of(text, match.start()), match.group(2)
            if match.group(1) == "<":
                yield from check_library(path, line, target, libraries)
                continue
            yield from check_library(path, line, target, libraries)
            if target not in files and target.split("/")[0] in ("common", "engine", "server", "tests"):
                yield error(path, line, "layers", "no such file: \"%s\"" % target)
            elif target not in files and os.path.normpath(os.path.join(os.path.dirname(path), target)) in files:
                yield error(path, line, "layers", "write the path from the root of the repository: \"%s\"" % target)
            elif target in files and not is_inside_for(target, path):
                yield error(path, line, "layers", "\"%s\" is for %s* only" % (target, target[:-len(INSIDE)]))
            elif not under(target, room.rstrip("/*")) and not any(under(target, entry) for entry in allowed[room]):
                yield error(path, line, "layers", "%s may not include \"%s\"; it may include: %s"
                            % (room, target, " ".join(allowed[room]) or "nothing"))


def check_library(path, line, target, libraries):
    for beginning, folders in libraries:
        if target.startswith(beginning) and not path.startswith("tests/") \
                and not any(under(path, folder) for folder in folders):
            yield error(path, line, "layers", "%s is included in %s only" % (target, ", ".join(folders)))
