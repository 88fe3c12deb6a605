"""Builds the wheel and the source archive (PEP 517), by Python's standard library alone: a pure wheel is a zip with three
files about itself. In a checkout the generated exogpu/api.py is made first; a source archive has it.

`python3 -B bindings/python/backend.py FOLDER` makes both in FOLDER. Equal sources make equal bytes.
"""
import base64
import gzip
import hashlib
import io
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
WHEN = (2020, 1, 1, 0, 0, 0)


def project():
    """The [project] table, with the version that the package has."""
    generator = HERE.parents[1] / "tools/clients/generate.py"
    if not (HERE / "PKG-INFO").exists() and generator.exists():  # what lies above an unpacked archive is not its own
        subprocess.run([sys.executable, "-B", str(generator), "python"], check=True)
    with open(HERE / "pyproject.toml", "rb") as file:
        table = tomllib.load(file)["project"]
    table["version"] = re.search(r'__version__ = "(.+?)"', (HERE / "src/exogpu/__init__.py").read_text()).group(1)
    return table


def licence():
    return next(path for path in (HERE / "LICENSE", HERE.parents[1] / "LICENSE") if path.exists()).read_bytes()


def sources():
    """The package's files, by their names in the wheel."""
    return {str(path.relative_to(HERE / "src")): path.read_bytes() for path in sorted((HERE / "src/exogpu").rglob("*"))
            if path.is_file() and path.suffix in (".py", ".typed") and not path.name.startswith(".")}


def metadata(table):
    lines = ["Metadata-Version: 2.4", "Name: " + table["name"], "Version: " + table["version"],
             "Summary: " + table["description"], "Keywords: " + ",".join(table["keywords"]),
             "License-Expression: " + table["license"], "License-File: LICENSE",
             *("Classifier: " + each for each in table["classifiers"]), "Requires-Python: " + table["requires-python"]]
    for extra, needs in table["optional-dependencies"].items():
        lines += ["Provides-Extra: " + extra, *('Requires-Dist: %s; extra == "%s"' % (need, extra) for need in needs)]
    lines += ["Description-Content-Type: text/markdown", "", (HERE / "README.md").read_text(encoding="utf-8")]
    return "\n".join(lines).encode()


def about(table):
    return {"METADATA": metadata(table), "licenses/LICENSE": licence(),
            "WHEEL": b"Wheel-Version: 1.0\nGenerator: exogpu\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    table = project()
    info = "%(name)s-%(version)s.dist-info/" % table
    files = {**sources(), **{info + name: data for name, data in about(table).items()}}
    record = ["%s,sha256=%s,%d" % (name, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(),
                                   len(data)) for name, data in files.items()]
    files[info + "RECORD"] = "\n".join([*record, info + "RECORD,,", ""]).encode()
    name = "%(name)s-%(version)s-py3-none-any.whl" % table
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, WHEN)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    table = project()
    root = "%(name)s-%(version)s" % table
    files = {"PKG-INFO": metadata(table), "LICENSE": licence(), **{"src/" + name: data for name, data in sources().items()},
             **{name: (HERE / name).read_bytes() for name in ("README.md", "backend.py", "pyproject.toml")}}
    with open(pathlib.Path(sdist_directory) / (root + ".tar.gz"), "wb") as file, \
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo("%s/%s" % (root, name))
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return root + ".tar.gz"


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    print(folder / build_wheel(folder))
    print(folder / build_sdist(folder))
