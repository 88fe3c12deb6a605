"""SHA256SUMS and its signature, verified by the very commands of docs/deployment.md, with a key made for this test.

usage: EXOGPU_PACKAGES=FOLDER python3 -m unittest discover -s tests/packaging"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from test_package import PACKAGES, PATIENCE_S, output
from test_third_party import ROOT

SUMS = os.path.join(ROOT, "tools/package/sums.py")


def documented():
    """What docs/deployment.md tells a user to type who has downloaded a release."""
    with open(os.path.join(ROOT, "docs/deployment.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```sh\n(.*?)^```$", file.read(), re.M | re.S)
    block, = [one for one in blocks if "ssh-keygen -Y verify" in one]
    return block


class Sums(unittest.TestCase):
    def setUp(self):
        self.keys, self.folder = tempfile.mkdtemp(prefix="exogpu-keys-"), tempfile.mkdtemp(prefix="exogpu-release-")
        self.addCleanup(shutil.rmtree, self.keys)
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("one", "other"):
            output("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", os.path.join(self.keys, name))
        with open(os.path.join(PACKAGES, "SHA256SUMS"), encoding="utf-8") as file:
            self.names = [line.split("  ", 1)[1] for line in file.read().splitlines()]
        for name in self.names:
            shutil.copyfile(os.path.join(PACKAGES, name), os.path.join(self.folder, name))
        shutil.copyfile(os.path.join(self.keys, "one.pub"), os.path.join(self.folder, "exogpu-release.pub"))

    def sign(self, *more):
        return subprocess.run([sys.executable, "-B", SUMS, self.folder, *more], check=False, text=True, timeout=PATIENCE_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def verify(self):
        return subprocess.run(["bash", "-ec", documented()], check=False, cwd=self.folder, text=True, timeout=PATIENCE_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_name_every_file_of_a_release(self):
        made = {name for name in os.listdir(PACKAGES) if re.search(r"\.(deb|tar\.gz|tgz|cdx\.json|whl|jar)$", name)}
        self.assertEqual(set(self.names), made)
        for kind in (r"^exogpu_.*\.deb$", r"^libexogpu-dev_.*\.deb$", r"^exogpu-.*-linux-.*\.tar\.gz$", r"^exogpu-.*\.cdx\.json$"):
            self.assertEqual(len([name for name in self.names if re.search(kind, name)]), 1, kind)
        output("sha256sum", "--strict", "-c", "SHA256SUMS", cwd=PACKAGES)

    def test_a_signed_release_verifies_and_a_changed_one_does_not(self):
        self.assertEqual(self.sign("--sign", os.path.join(self.keys, "one")).returncode, 0)
        good = self.verify()
        self.assertEqual(good.returncode, 0, good.stdout)
        self.assertIn('Good "exogpu-release" signature', good.stdout)
        self.assertEqual(good.stdout.count(": OK"), len(self.names))
        with open(os.path.join(self.folder, self.names[0]), "ab") as file:
            file.write(b"x")
        self.assertNotEqual(self.verify().returncode, 0, "a file was changed")
        self.assertEqual(self.sign().returncode, 0)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "SHA256SUMS.sig")), "an old signature does not fit new sums")
        self.assertEqual(self.sign("--sign", os.path.join(self.keys, "other")).returncode, 0)
        self.assertNotEqual(self.verify().returncode, 0, "somebody else has signed it")

    def test_no_key_comes_from_the_repository(self):
        place = os.path.join(ROOT, "build/test-key")
        shutil.copyfile(os.path.join(self.keys, "one"), place)
        self.addCleanup(os.unlink, place)
        refused = self.sign("--sign", place)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("in the repository", refused.stdout)


if __name__ == "__main__":
    unittest.main()
