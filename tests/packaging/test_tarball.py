"""The tarball that ./dev package has made: it runs as it lies there, from any folder, for an account without rights or
environment, with its own libraries; and it is the same whenever it is made of the same build.

usage: EXOGPU_PACKAGES=FOLDER python3 -m unittest discover -s tests/packaging"""

import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest
import urllib.request

from test_package import NOBODY, PACKAGES, PATIENCE_S, output
from test_third_party import ROOT, third_party

WRITE_MODEL = """import { modelFile } from "./tests/api/gguf.mjs";
import { writeFileSync } from "node:fs";
writeFileSync(process.argv[1], modelFile());"""
OLDEST_GLIBC = (2, 36)  # of Debian 12


def tarball():
    found = glob.glob(os.path.join(PACKAGES, "exogpu-*-linux-*.tar.gz"))
    assert len(found) == 1, f"{found} in {PACKAGES}; run ./dev package"
    return found[0]


def as_anyone():
    """What makes a child an account without rights, where this one may."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


class Tarball(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="exogpu-tarball-")
        os.chmod(cls.folder, 0o755)
        cls.place = os.path.join(cls.folder, "a folder")
        with tarfile.open(tarball()) as tar:
            cls.members = tar.getmembers()
            tar.extractall(cls.place, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(cls.place)
        cls.tree, = glob.glob(os.path.join(cls.place, "*"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def serve(self, tree, data):
        """(process, the dashboard's address) of a server with nothing in its environment."""
        with open(os.path.join(self.folder, "said"), "w", encoding="utf-8") as said:
            process = subprocess.Popen([os.path.join(tree, "bin/exogpu"), "serve", "--listen", "127.0.0.1:0", "--data", data], env={}, cwd="/",
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True, **as_anyone())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if line.startswith("dashboard: "):
                return process, line.split()[1]
        with open(os.path.join(self.folder, "said"), encoding="utf-8") as said:
            self.fail(f"no server: {said.read()}")

    def ask(self, tree, data, *words):
        done = subprocess.run([os.path.join(tree, "bin/exogpu"), *words, "--data", data], check=False, env={}, cwd="/", text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S, **as_anyone())
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        return done.stdout

    def test_serves_verifies_and_answers_and_again_where_it_was_moved(self):
        data, model = os.path.join(self.folder, "data"), os.path.join(self.folder, "tiny.gguf")
        os.mkdir(data, 0o700)
        os.chown(data, as_anyone().get("user", -1), -1)
        output("node", "--input-type=module", "-e", WRITE_MODEL, model, cwd=ROOT)
        elsewhere = os.path.join(self.folder, "moved")
        told = []
        for tree in (self.tree, os.path.join(elsewhere, "exogpu")):
            if tree != self.tree:
                os.mkdir(elsewhere)
                shutil.copytree(self.tree, tree)
                os.rename(self.tree, self.tree + " gone")
                self.addCleanup(os.rename, self.tree + " gone", self.tree)
            process, address = self.serve(tree, data)
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as page:
                script, = re.findall(r'<script type="module"[^>]* src="/(app-[^"]+)"', page.read().decode())
            with urllib.request.urlopen(address + script, timeout=PATIENCE_S) as file:
                self.assertGreater(len(file.read()), 10000)
            if tree == self.tree:
                self.ask(tree, data, "model", "add", model)
            told.append(self.ask(tree, data, "run", "tiny", "hello", "--max-tokens", "8", "--temperature", "0"))
            devices = json.loads(self.ask(tree, data, "devices", "--json"))["devices"]
            self.assertIn("passed", [one["verification"]["state"] for one in devices if one["backend"] == "cpu"])
            with open(os.path.join(data, "lock"), encoding="utf-8") as file:
                server = int(file.read())
            with open(f"/proc/{server}/maps", encoding="utf-8") as file:
                loaded = {line.split(None, 5)[5].strip() for line in file if ".so" in line}
            foreign = [path for path in loaded if not path.startswith(tree + "/lib/")
                       and not third_party.library(os.path.basename(path), third_party.table()).get("system")]
            self.assertEqual(foreign, [], "everything but the C library is its own")
            os.kill(server, signal.SIGTERM)
            self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(told[0], told[1])
        self.assertNotEqual(told[0].strip(), "")

    def test_needs_no_newer_c_library_than_debian_12_has(self):
        with open("/etc/os-release", encoding="utf-8") as file:
            if not re.search(r'^VERSION_ID="?12"?$', file.read(), re.M):
                self.skipTest("skipped: made on a newer system, it needs that system's C library")
        for path in [os.path.join(self.tree, "bin/exogpu"), *glob.glob(os.path.join(self.tree, "lib/*"))]:
            versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output("readelf", "-VW", path))
            self.assertLessEqual(max(tuple(map(int, one)) for one in versions), OLDEST_GLIBC, path)

    def test_has_what_release_builds_have_against_memory_errors(self):
        program = os.path.join(self.tree, "bin/exogpu")
        done = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "tests/packaging/hardening.py"), "--release", program], check=False,
                              stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S)
        missing = [line for line in done.stdout.splitlines() if line.startswith("MISSING")]
        self.assertEqual(missing, [f"MISSING no search path: {program}"], done.stdout)
        self.assertEqual(re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", output("readelf", "-dW", program)), ["$ORIGIN/../lib"])

    def test_brings_the_licence_of_every_library_that_it_carries(self):
        documents = os.path.join(self.tree, "share/doc/exogpu")
        with open(os.path.join(documents, "exogpu.cdx.json"), encoding="utf-8") as file:
            bill = file.read()
        with open(tarball().replace(".tar.gz", ".cdx.json"), encoding="utf-8") as file:
            self.assertEqual(file.read(), bill, "the bill beside it is the one in it")
        parts = json.loads(bill)["components"]
        said = {file["name"]: file["hashes"][0]["content"] for part in parts for file in part.get("components", [])}
        lying = {}
        for path in glob.glob(os.path.join(self.tree, "lib/*")):
            with open(path, "rb") as file:
                lying["lib/" + os.path.basename(path)] = hashlib.sha256(file.read()).hexdigest()
        self.assertGreater(len(lying), 20)
        self.assertEqual(said, lying)
        for part in parts:
            if part.get("components"):
                self.assertTrue(os.path.getsize(os.path.join(documents, "copyright", part["name"])), part["name"])
        self.assertIn("LGPL-2.1", os.listdir(os.path.join(documents, "common-licenses")))

    def test_belongs_to_nobody_and_holds_nothing_but_files_and_folders(self):
        self.assertEqual({(one.uid, one.gid, one.uname) for one in self.members}, {(0, 0, "root")})
        self.assertEqual(len({one.mtime for one in self.members}), 1)
        self.assertEqual([one.name for one in self.members if not one.isreg() and not one.isdir()], [])
        self.assertEqual({oct(one.mode) for one in self.members}, {"0o755", "0o644"})
        self.assertEqual({one.name.split("/")[0] for one in self.members}, {os.path.basename(tarball()).removesuffix(".tar.gz")})

    def test_is_made_of_the_same_bytes_again(self):
        again = os.path.join(self.folder, "again")
        os.mkdir(again)
        for name in ("portable", "ui"):
            os.symlink(os.path.abspath(os.path.join(PACKAGES, name)), os.path.join(again, name))
        version = re.search(r"exogpu-(.*)-linux", tarball()).group(1)
        output(sys.executable, "-B", os.path.join(ROOT, "tools/package/tarball.py"), "--build", again, "--version", version,
               env={**os.environ, "SOURCE_DATE_EPOCH": str(self.members[0].mtime), "TZ": "Asia/Tokyo"})
        made, = glob.glob(os.path.join(again, "*.tar.gz"))
        with open(made, "rb") as one, open(tarball(), "rb") as other:
            self.assertEqual(hashlib.sha256(one.read()).hexdigest(), hashlib.sha256(other.read()).hexdigest())


if __name__ == "__main__":
    unittest.main()
