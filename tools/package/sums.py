"""SHA256SUMS of everything in a folder that a release consists of, and its signature.

usage: sums.py FOLDER [--sign KEYFILE]

Writes FOLDER/SHA256SUMS, as sha256sum -c reads it. With --sign also SHA256SUMS.sig by `ssh-keygen -Y sign`: KEYFILE is a
private key of OpenSSH (or the public half of one that an agent holds), which this only names to ssh-keygen. Without it a
signature of an earlier run is removed, since it would not fit. docs/deployment.md says how a user verifies both."""

import argparse
import hashlib
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMESPACE = "exogpu-release"
KINDS = (".deb", ".tar.gz", ".tgz", ".cdx.json", ".whl", ".jar")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sign", type=pathlib.Path)
    said = parser.parse_args()
    if said.sign and said.sign.resolve().is_relative_to(ROOT):
        sys.exit(f"{said.sign} lies in the repository, where no key belongs")
    if said.sign and not said.sign.is_file():
        sys.exit(f"{said.sign} is not a file")
    files = sorted(path for path in said.folder.iterdir() if path.is_file() and path.name.endswith(KINDS))
    if not files:
        sys.exit(f"nothing to sum up in {said.folder}")
    sums, signature = said.folder / "SHA256SUMS", said.folder / "SHA256SUMS.sig"
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    sums.write_text("".join(lines), encoding="utf-8")
    signature.unlink(missing_ok=True)
    if said.sign:
        done = subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", said.sign, "-n", NAMESPACE, sums], check=False)
        if done.returncode or not signature.exists():
            sys.exit("ssh-keygen has not signed it")


if __name__ == "__main__":
    main()
