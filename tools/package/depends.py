"""What a Debian package for another architecture needs, from the shlibs files of the libraries in a sysroot: dpkg-shlibdeps
looks only where this system has libraries of that architecture.

usage: depends.py SYSROOT PROGRAM...      prints the value of Depends"""

import pathlib
import re
import sys

import third_party


def main():
    sysroot, programs = pathlib.Path(sys.argv[1]), sys.argv[2:]
    known = {}
    for path in (sysroot / "var/lib/dpkg/info").glob("*.shlibs"):
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split(None, 2)
            if len(words) == 3 and not line.startswith("#") and not words[0].endswith(":"):
                known[words[0], words[1]] = words[2].strip()
    wanted = set()
    for soname in {name for program in programs for name in third_party.needed(program)}:
        if not soname.startswith("libexogpu"):
            name, version = re.fullmatch(r"(.*)\.so\.(.*)", soname).groups()
            wanted.add(known[name, version])
    print(", ".join(sorted(wanted)))


if __name__ == "__main__":
    main()
