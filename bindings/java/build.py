"""Builds exogpu-VERSION.jar and, where asked, its pages: usage: build.py [--strict] [--pages] FOLDER

It makes the generated Api.java first. It needs a JDK from 17 on, of JAVA_HOME or on the PATH, and no other package; the
classes run from Java 17 on. Equal sources and compilers make equal bytes. --strict: warnings are errors.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RELEASE = "17"
WHEN = (2020, 1, 1, 0, 0, 0)


def tool(name):
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=os.path.join(home, "bin") if home else None)
    return found or sys.exit("no %s: install a JDK from 17 on (default-jdk-headless), or set JAVA_HOME" % name)


def run(*words):
    status = subprocess.run(words, check=False).returncode
    if status:
        sys.exit(status)


def version():
    return re.search(r"project\(exogpu VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)


def main(words):
    flags = {word for word in words if word.startswith("--")}
    folders = [word for word in words if not word.startswith("--")]
    if len(folders) != 1 or flags - {"--strict", "--pages"}:
        sys.exit(__doc__)
    out = pathlib.Path(folders[0])
    out.mkdir(parents=True, exist_ok=True)
    compiler = tool("javac")
    run(sys.executable, "-B", str(ROOT / "tools/clients/generate.py"), "java")
    sources = sorted(map(str, (HERE / "src").rglob("*.java")))
    strict = ["-Xlint:all", "-Xdoclint:all,-missing", "-Werror"] if "--strict" in flags else []
    with tempfile.TemporaryDirectory() as scratch:
        run(compiler, "--release", RELEASE, "-g", "-encoding", "UTF-8", *strict, "-d", scratch, *sources)
        files = {"META-INF/MANIFEST.MF": "Manifest-Version: 1.0\r\nAutomatic-Module-Name: dev.exogpu\r\nImplementation-Title: exogpu\r\n"
                                         "Implementation-Version: %s\r\n\r\n" % version(),
                 "META-INF/LICENSE": (ROOT / "LICENSE").read_bytes()}
        for path in sorted(pathlib.Path(scratch).rglob("*.class")):
            files[path.relative_to(scratch).as_posix()] = path.read_bytes()
        with zipfile.ZipFile(out / ("exogpu-%s.jar" % version()), "w", zipfile.ZIP_DEFLATED) as jar:
            for name, content in files.items():
                jar.writestr(zipfile.ZipInfo(name, WHEN), content, zipfile.ZIP_DEFLATED)
    if "--pages" in flags:
        run(tool("javadoc"), "-quiet", "-Xdoclint:none", "-encoding", "UTF-8", "-d", str(out / "java-pages"), *sources)


if __name__ == "__main__":
    main(sys.argv[1:])
