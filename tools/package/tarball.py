"""exogpu-VERSION-linux-ARCH.tar.gz: the program with the libraries that it needs, to run from any folder of any account.

usage: tarball.py --build FOLDER --version VERSION [--sysroot FOLDER]

FOLDER is a build of the preset package; the archive goes there, and beside it, under its name, the bill of materials that
lies in it too. It holds bin/exogpu, which looks for libraries in lib/ beside bin/ first; lib/, a copy of every library that
it loads but the C library's own, which is the system's; and share/doc/exogpu with the documents, the licences of all that,
and the texts that they refer to. The same build and SOURCE_DATE_EPOCH make the same bytes."""

import argparse
import glob
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import third_party

ROOT = third_party.ROOT
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", 0))


def carried(programs, sysroot):
    """{soname: path} of what does not belong to the C library."""
    known = third_party.table()
    return {soname: path for soname, (path, _) in third_party.closure(programs, sysroot).items()
            if not third_party.library(soname, known).get("system")}


def copy_texts(libraries, sysroot, out):
    """What Debian says of the licences of these libraries, and the licences that it refers to by name."""
    wanted = set()
    for package, *_ in sorted(set(third_party.owners(list(libraries.values()), sysroot).values())):
        text = pathlib.Path(sysroot, "usr/share/doc", package, "copyright").read_text(encoding="utf-8", errors="replace")
        (out / "copyright").mkdir(exist_ok=True)
        (out / "copyright" / package).write_text(text, encoding="utf-8")
        wanted |= set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", text))
    (out / "common-licenses").mkdir()
    for name in sorted(wanted):
        place = pathlib.Path(sysroot, "usr/share/common-licenses", name)
        if place.exists():
            shutil.copy(place.resolve(), out / "common-licenses" / name)


def fill(tree, build, version, sysroot):
    """Everything that the archive holds, into an empty folder."""
    program = build / "portable/exogpu"
    libraries = carried([program], sysroot)
    documents = tree / "share/doc/exogpu"
    for folder in (tree / "bin", tree / "lib", documents):
        folder.mkdir(parents=True)
    strip = "strip" if third_party.architecture(program)[0] == "amd64" else "aarch64-linux-gnu-strip"
    subprocess.run([strip, "-o", tree / "bin/exogpu", program], check=True)
    for soname, path in libraries.items():
        shutil.copyfile(path, tree / "lib" / soname)
    for path in [ROOT / "README.md", ROOT / "LICENSE", ROOT / "CHANGELOG.md", *map(pathlib.Path, glob.glob(str(ROOT / "docs/*.md")))]:
        shutil.copyfile(path, documents / path.name)
    copy_texts(libraries, sysroot, documents)
    third_party.write(third_party.collect([tree / "bin/exogpu"], build / "ui", sysroot, tree / "lib"), version, documents)


def pack(tree, archive):
    """A folder as a gzipped tar: sorted, of nobody in particular, of the time of SOURCE_DATE_EPOCH."""
    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = EPOCH
        member.mode = 0o755 if member.isdir() or member.name.endswith("/bin/exogpu") else 0o644
        return member
    with open(archive, "wb") as file, gzip.GzipFile("", "wb", 6, file, EPOCH) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(tree, tree.name, filter=plain)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--sysroot", default="/")
    said = parser.parse_args()
    name = f"exogpu-{said.version}-linux-{third_party.architecture(said.build / 'portable/exogpu')[0]}"
    with tempfile.TemporaryDirectory(dir=said.build) as folder:
        tree = pathlib.Path(folder, name)
        try:
            fill(tree, said.build, said.version, said.sysroot)
        except third_party.Unlisted as fault:
            sys.exit(f"tarball.py: {fault}")
        pack(tree, said.build / f"{name}.tar.gz")
        shutil.copyfile(tree / "share/doc/exogpu/exogpu.cdx.json", said.build / f"{name}.cdx.json")


if __name__ == "__main__":
    main()
