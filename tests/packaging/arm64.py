"""The packages for arm64 and a server of theirs, on another architecture; run by arm64.sh, which lets programs of arm64
start by qemu-user."""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_package import PACKAGES, output, package  # noqa: E402 (found by the line above)
from test_tarball import ROOT, WRITE_MODEL  # noqa: E402

PATIENCE_S = 600  # at a twentieth of the speed


class Arm64(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="exogpu-arm64-")
        self.addCleanup(shutil.rmtree, self.folder)

    def test_packages_are_for_arm64_and_need_its_libraries(self):
        for name in ("exogpu", "libexogpu-dev"):
            self.assertEqual(output("dpkg-deb", "-f", package(name), "Architecture").strip(), "arm64")
            output("dpkg-deb", "-x", package(name), os.path.join(self.folder, "root"))
        depends = output("dpkg-deb", "-f", package("exogpu"), "Depends")
        for library in ("libc6", "libwebsockets", "libsqlite3", "libcjson", "libssl", "libcurl", "libldns"):
            self.assertRegex(depends, rf"{library}\S* \(>= ")
        programs = glob.glob(os.path.join(self.folder, "root/usr/lib/aarch64-linux-gnu/libexogpu*.so.*.*.*"))
        self.assertEqual(len(programs), 2)
        for path in [os.path.join(self.folder, "root/usr/bin/exogpu")] + programs:
            self.assertIn("AArch64", output("readelf", "-hW", path))

    def test_a_server_of_the_tarball_verifies_its_processor(self):
        archive, = glob.glob(os.path.join(PACKAGES, "exogpu-*-linux-arm64.tar.gz"))
        with tarfile.open(archive) as tar:
            tar.extractall(self.folder)
        program, = glob.glob(os.path.join(self.folder, "*/bin/exogpu"))
        data = os.path.join(self.folder, "data")
        with open(os.path.join(self.folder, "said"), "w", encoding="utf-8") as said:
            process = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--data", data], env={}, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=said, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        address = next(line.split()[1] for line in process.stdout if line.startswith("dashboard: "))
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as page:
            self.assertTrue(re.search(r"app-[0-9A-Z]+\.js", page.read().decode()))

        def ask(*words):
            return subprocess.run([program, *words, "--data", data], check=True, env={}, text=True, stdout=subprocess.PIPE, timeout=PATIENCE_S).stdout
        until, states = time.monotonic() + PATIENCE_S, []
        while states != ["passed"] and time.monotonic() < until:
            info = json.loads(ask("devices", "--json"))
            states = [one["verification"]["state"] for one in info["devices"] if one["backend"] == "cpu"]
            time.sleep(1)
        with open(os.path.join(self.folder, "said"), encoding="utf-8") as said:
            self.assertEqual(states, ["passed"], said.read())
        self.assertRegex(ask("nodes", "--json"), r'"arch":\s*"aarch64"')
        model = os.path.join(self.folder, "tiny.gguf")
        output("node", "--input-type=module", "-e", WRITE_MODEL, model, cwd=ROOT)
        ask("model", "add", model)
        self.assertNotEqual(ask("run", "tiny", "hello", "--max-tokens", "4", "--temperature", "0").strip(), "")
        token = ask("token", "create", "--name", "t", "--scopes", "observe").strip()
        self.assertGreater(len(token), 20)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_S), 0)


if __name__ == "__main__":
    unittest.main()
