"""The Kotlin face of the jar. usage: kotlin.py build FOLDER          exogpu-kotlin-VERSION.jar beside the jar that build.py made there
                                    kotlin.py compile JAR... OUT SOURCE    a program of one file to a folder or jar
                                    kotlin.py classpath                     what a compiled program needs besides

JetBrains' compiler and the library of coroutines come from npm's package kotlin-compiler, by npm's own settings, into
build/kotlin (or EXOGPU_KOTLIN); it is pinned by SHA-256. A JDK from 17 on is needed. Ends with 77, and says why, where the
compiler cannot be had. Warnings are errors.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from build import ROOT, WHEN, run, tool, version  # noqa: E402

VERSION = "2.4.20"
SHA256 = "c23dab400d7ce5ea8b6c909947c0ca5454189e4bb1108695b5f464500e5e950f"
COMPILER = ("kotlin-compiler.jar", "kotlin-stdlib.jar", "kotlin-script-runtime.jar", "kotlin-reflect.jar", "kotlin-daemon-client.jar",
            "kotlinx-coroutines-core-jvm.jar", "annotations-13.0.jar")
LIBRARIES = ("kotlin-stdlib.jar", "kotlinx-coroutines-core-jvm.jar")
UNAVAILABLE = 77


def unavailable(why):
    print("skipped: no Kotlin %s: %s" % (VERSION, why), file=sys.stderr)
    sys.exit(UNAVAILABLE)


def fetch():
    """The folder of the compiler's jars."""
    kept = pathlib.Path(os.environ.get("EXOGPU_KOTLIN") or ROOT / "build/kotlin") / VERSION
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        try:
            made = subprocess.run(["npm", "pack", "--silent", "--fetch-retries", "1", "kotlin-compiler@" + VERSION], cwd=scratch, check=False,
                                  capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as error:
            unavailable(error)
        archive = next(pathlib.Path(scratch).glob("*.tgz"), None)
        if made.returncode or not archive:
            unavailable((made.stderr.strip().splitlines() or ["npm ended with %d" % made.returncode])[-1])
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != SHA256:
            sys.exit("kotlin-compiler %s is not the one that kotlin.py pins, and is not used: SHA-256 %s" % (VERSION, found))
        jars = pathlib.Path(scratch, "jars")
        jars.mkdir()
        with tarfile.open(archive) as opened:
            for name in COMPILER:
                (jars / name).write_bytes(opened.extractfile("package/lib/" + name).read())
        jars.rename(kept)
    return kept


def compile_to(out, jars, sources):
    kept = fetch()
    run(tool("java"), "-Xmx1g", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(str(kept / name) for name in COMPILER),
        "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-stdlib", "-no-reflect", "-Werror", "-jvm-target", "17",
        "-cp", os.pathsep.join([*map(str, jars), *(str(kept / name) for name in LIBRARIES)]), "-d", str(out), *map(str, sources))


def build(folder):
    run(sys.executable, "-B", str(ROOT / "tools/clients/generate.py"), "kotlin")
    with tempfile.TemporaryDirectory() as scratch:
        compile_to(scratch, [folder / ("exogpu-%s.jar" % version())], sorted((HERE / "kotlin").rglob("*.kt")))
        with zipfile.ZipFile(folder / ("exogpu-kotlin-%s.jar" % version()), "w", zipfile.ZIP_DEFLATED) as jar:
            jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", WHEN), "Manifest-Version: 1.0\r\nAutomatic-Module-Name: dev.exogpu.kotlin\r\n\r\n")
            jar.writestr(zipfile.ZipInfo("META-INF/LICENSE", WHEN), (ROOT / "LICENSE").read_bytes())
            for path in sorted(pathlib.Path(scratch).rglob("*")):
                if path.is_file() and path.name != "MANIFEST.MF":
                    jar.writestr(zipfile.ZipInfo(path.relative_to(scratch).as_posix(), WHEN), path.read_bytes(), zipfile.ZIP_DEFLATED)


def main(words):
    if len(words) == 2 and words[0] == "build":
        build(pathlib.Path(words[1]))
    elif len(words) > 3 and words[0] == "compile":
        compile_to(words[-2], words[1:-2], words[-1:])
    elif words == ["classpath"]:
        kept = fetch()
        print(os.pathsep.join(str(kept / name) for name in LIBRARIES))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
