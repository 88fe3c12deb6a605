"""What a program that was built with libexogpu relies on, compared with what was recorded for its version.

usage: abi.py [--record] SOVERSION FOLDER PREPROCESSED

PREPROCESSED: `cc -E -P` of a file that includes <exogpu/exogpu.h>. FOLDER/exogpu-SOVERSION.abi holds one line for each
exported function, each record with its fields and each enumerator with its value. A line that is gone or differs breaks
programs that are installed already: that needs another SOVERSION. A line that is new breaks none, and is to be recorded.
Ends with 1 and says which, and what to do. --record writes the file, but no break under the same SOVERSION.
"""
import pathlib
import re
import sys

EXPORTED = re.compile(r'__attribute__\s*\(\(visibility\("default"\)\)\)')
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)")


def declarations(text):
    """Those of a preprocessed file, each on one line, without what only names a type."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == ";" and not depth:
            yield " ".join(text[begin:at].split())
            begin = at + 1


def enumerators(body):
    """NAME, NAME = 1 << 2 ... with their values."""
    value = -1
    for entry in filter(None, (one.strip() for one in body.split(","))):
        name, _, given = (part.strip() for part in entry.partition("="))
        if given and not re.fullmatch(r"[-0-9a-fA-FxX<>|+*() uUlL]+", given):
            raise SystemExit("abi: the value of %s is not understood: %s" % (name, given))
        value = eval(re.sub(r"(?<=[0-9a-fA-F])[uUlL]+", "", given), {}) if given else value + 1
        if not name.endswith("_COUNT"): # how many there are grows, and no program may rely on it
            yield "%s = %d" % (name, value)


def lines(text):
    """The sorted lines of a record."""
    found = set()
    for one in declarations(text):
        plain = re.sub(r"\bbool\b", "_Bool", " ".join(ATTRIBUTE.sub("", one).split())) # as compilers before C23 print it
        enum = re.fullmatch(r"enum ?(\w*) ?\{(.*)\}", plain)
        if enum and re.search(r"\b(EXOGPU|STATUS)_", plain):
            found.update(enumerators(enum.group(2)))
        elif re.fullmatch(r"(struct|union) (exogpu_\w+|error) ?\{.*\}", plain) or EXPORTED.search(one):
            found.add(plain)
    return sorted(found)


def name(line):
    """By which a line that differs is found again."""
    found = re.match(r"(struct \w+|union \w+) ?\{|(\w+) = |.*?(\w+)\(", line)
    return next(filter(None, found.groups()))


def compare(recorded, now):
    """(broken, new): what is gone or differs, with both texts, and what was not there."""
    present, before = {name(one): one for one in now}, {name(one): one for one in recorded}
    broken = ["%s\n    is now %s" % (one, present.get(name(one), "gone")) for one in recorded if one not in now]
    return broken, [one for one in now if name(one) not in before]


def main(words):
    record = words[:1] == ["--record"]
    version, folder, preprocessed = words[record:]
    file = pathlib.Path(folder) / ("exogpu-%s.abi" % version)
    now = lines(pathlib.Path(preprocessed).read_text(encoding="utf-8"))
    if not now:
        raise SystemExit("abi: no declarations of libexogpu in %s" % preprocessed)
    broken, new = compare(file.read_text(encoding="utf-8").splitlines() if file.exists() else [], now)
    if broken:
        raise SystemExit("abi: programs that were built with libexogpu.so.%s break by this:\n  %s\n"
                         "Raise SOVERSION in cmake/library.cmake and the version in cmake/libexogpu.map, then record it." % (
                             version, "\n  ".join(broken)))
    if record:
        file.write_text("\n".join(now) + "\n", encoding="utf-8")
    elif new:
        raise SystemExit("abi: not recorded in %s yet:\n  %s\nNothing breaks by it: %s --record %s" % (
            file.name, "\n  ".join(new), pathlib.Path(__file__).name, " ".join(words)))
    print("abi: %d lines of libexogpu.so.%s" % (len(now), version))


if __name__ == "__main__":
    main(sys.argv[1:])
