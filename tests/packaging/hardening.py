"""What a built program or library has against memory errors, read from the file by readelf.

usage: hardening.py [--release] FILE...

Prints a line for each property and ends with 1 if one is missing. --release also wants what only optimised builds have:
checked copies of the C library (_FORTIFY_SOURCE), where the file copies anything."""

import pathlib
import re
import subprocess
import sys

# The instruction that a place which indirect branches may reach begins with. The file's own note tells less: it is left
# out where one object of the C library's start-up code lacks it.
LANDING = {"X86-64": b"\xf3\x0f\x1e\xfa", "AArch64": b"\x3f\x23\x03\xd5"}


def readelf(path, *flags):
    done = subprocess.run(["readelf", "-W", *flags, path], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def segments(path):
    """[(type, flags)], as in ("LOAD", "R E")."""
    rows = re.findall(r"^  ([A-Z_]+) +0x\w+ 0x\w+ 0x\w+ 0x\w+ 0x\w+ ([R ][W ][E ]) ", readelf(path, "-l"), re.M)
    assert rows, f"{path}: readelf shows no segments"
    return rows


def properties(path, release):
    """{what: whether it is so}"""
    header, dynamic, symbols = readelf(path, "-h"), readelf(path, "-d"), readelf(path, "-s", "--dyn-syms")
    parts = segments(path)
    loads = [flags for kind, flags in parts if kind == "LOAD"]
    stack = [flags for kind, flags in parts if kind == "GNU_STACK"]
    imported = set(re.findall(r"UND (\w+)", symbols))
    library = "(SONAME)" in dynamic
    wanted = {
        "position independent": "DYN" in header and (library or "FLAGS_1" in dynamic and "PIE" in dynamic),
        "relocations read-only": any(kind == "GNU_RELRO" for kind, _ in parts),
        "symbols bound at start": re.search(r"FLAGS\).*BIND_NOW|\(BIND_NOW\)", dynamic) is not None,
        "stack not executable": len(stack) == 1 and "E" not in stack[0],
        "nothing both written and run": not any("W" in flags and "E" in flags for flags in loads),
        "code apart from data": any(flags == "R  " for flags in loads) and any(flags == "R E" for flags in loads),
        "no search path": "RPATH" not in dynamic and "RUNPATH" not in dynamic,
        "stack protector": "__stack_chk_fail" in imported,
    }
    for machine, landing in LANDING.items():
        if machine in header:
            wanted["places for indirect branches marked"] = pathlib.Path(path).read_bytes().count(landing) > 100
    if release:
        wanted["checked copies"] = {"__memcpy_chk", "__snprintf_chk", "__vsnprintf_chk"} & imported != set()
    return wanted


def main(arguments):
    release = "--release" in arguments
    failed = 0
    for path in (one for one in arguments if one != "--release"):
        for what, there in properties(path, release).items():
            print(f"{'ok' if there else 'MISSING':8}{what}: {path}")
            failed += not there
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
