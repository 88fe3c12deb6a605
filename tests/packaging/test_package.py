"""The Debian packages that ./dev package has made: what is in them, that the program in them runs as a service, and that
the restrictions of its unit leave it what it needs. Installing and removing them is tried by tests/docker.

usage: EXOGPU_PACKAGES=FOLDER python3 -m unittest discover -s tests/packaging"""

import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.environ.get("EXOGPU_PACKAGES", "build/package")
PATIENCE_S = 60
NOBODY = 65534
EXPOSURE = 30  # tenths, of systemd-analyze security
MAINTAINER = "bogus-mail-host"  # whoever builds the packages says who they are with -DEXOGPU_MAINTAINER


def output(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, **more).stdout


def members(name):
    """What a set of systemd's (@system-service), which holds others, holds in the end."""
    found = set()
    for line in output("systemd-analyze", "syscall-filter", name).splitlines():
        line = line.strip()
        if line.startswith("@") and line != name:
            found |= members(line)
        elif re.fullmatch(r"[a-z_0-9]+", line):
            found.add(line)
    return found


def package(name):
    found = glob.glob(os.path.join(PACKAGES, name + "_*.deb"))
    assert len(found) == 1, f"{name}: {found} in {PACKAGES}; run ./dev package"
    return found[0]


def owner(pid):
    """Whose the files in /proc of a process are: a user's number, or None if the process has ended."""
    try:
        return os.stat(f"/proc/{pid}/environ").st_uid
    except FileNotFoundError:
        return None


class Unpacked(unittest.TestCase):
    """Both packages, unpacked into a folder."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="exogpu-package-")
        cls.root = os.path.join(cls.folder, "root")
        for name in ("exogpu", "libexogpu-dev"):
            output("dpkg-deb", "-x", package(name), cls.root)
        cls.program = os.path.join(cls.root, "usr/bin/exogpu")
        cls.libraries = glob.glob(os.path.join(cls.root, "usr/lib/*/libexogpu.so.*.*.*"))
        cls.units = os.path.join(cls.root, "usr/lib/systemd/system")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)


class Packages(Unpacked):
    def test_needs_what_it_is_linked_with(self):
        depends = output("dpkg-deb", "-f", package("exogpu"), "Depends")
        for library in ("libwebsockets", "libsqlite3", "libcjson", "libssl"):
            self.assertIn(library, depends)
        self.assertNotIn("libvulkan", depends, "the loader is found when it runs, or not")

    def test_has_what_release_builds_have_against_memory_errors(self):
        self.assertEqual(len(self.libraries), 1)
        text = output(sys.executable, "-B", os.path.join(HERE, "hardening.py"), "--release", self.program, *self.libraries)
        self.assertNotIn("MISSING", text)

    def test_names_nothing_by_which_a_test_injects_readings_faults_or_answers(self):
        """What is not named in a program is not read by it from its environment."""
        with open(os.path.join(HERE, "../../docs/configuration.md"), encoding="utf-8") as file:
            rows = [line for line in file if "debug builds only" in line]
        names = set(re.findall(r"^\| `(EXOGPU_[A-Z_]+)`", "".join(rows), re.M))
        self.assertTrue({"EXOGPU_FAULT", "EXOGPU_ESCAPE", "EXOGPU_TEST_SAYS", "EXOGPU_THERMAL_CLOCK", "EXOGPU_THERMAL_TRACE"} <= names, names)
        for path in [self.program] + self.libraries:
            with open(path, "rb") as file:
                found = {name.decode() for name in re.findall(rb"EXOGPU_[A-Z_]+", file.read())}
            if path == self.program:
                self.assertIn("EXOGPU_TICKET", found, "what it does read from its environment is named")
            for_tests = {name for name in found if name in names or name.startswith(("EXOGPU_TEST_", "EXOGPU_THERMAL_"))}
            self.assertEqual(for_tests, set(), f"{path}: they are for debug builds alone")

    def test_scripts_and_configuration(self):
        control = os.path.join(self.folder, "control")
        output("dpkg-deb", "-e", package("exogpu"), control)
        for script in ("postinst", "prerm", "postrm"):
            output("sh", "-n", os.path.join(control, script))
        with open(os.path.join(control, "conffiles"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "/etc/default/exogpu\n")
        for name in ("copyright", "README.md", "security.md", "changelog.gz"):
            self.assertTrue(os.path.exists(os.path.join(self.root, "usr/share/doc/exogpu", name)), name)

    def test_header_and_pkg_config(self):
        folder, = glob.glob(os.path.join(self.root, "usr/lib/*/pkgconfig"))
        flags = output("pkg-config", "--cflags", "exogpu", env={**os.environ, "PKG_CONFIG_PATH": folder})
        include, = re.findall(r"-I(\S+)", flags)
        self.assertTrue(os.path.exists(os.path.join(include, "exogpu/exogpu.h")), include)

    @unittest.skipUnless(shutil.which("lintian"), "lintian is not installed")
    def test_lintian_finds_no_error(self):
        done = subprocess.run(["lintian", "--tag-display-limit", "0", package("exogpu")], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
        errors = [line for line in done.stdout.splitlines() if line.startswith("E:") and MAINTAINER not in line]
        self.assertEqual(errors, [])

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_takes_the_units(self):
        here = os.path.join(self.folder, "units")
        shutil.copytree(self.units, here)
        several = os.path.join(HERE, "..", "..", "packaging", "systemd", "several-servers.conf")
        for name, source in (("exogpu.service", None), ("exogpu-node.service", None), ("exogpu.service", several)):
            path = os.path.join(here, name)
            text = source and os.path.join(here, "exogpu.service.d", "several-servers.conf")
            with open(source or path, encoding="utf-8") as file:
                program = file.read().replace("/usr/bin/exogpu", self.program)
            with open(text or path, "w", encoding="utf-8") as file:
                file.write(program)
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], check=False, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
            about_us = [line for line in done.stdout.splitlines() if "exogpu" in line]
            self.assertEqual((done.returncode, about_us), (0, []))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_units_are_restricted(self):
        for name in ("exogpu.service", "exogpu-node.service"):
            done = subprocess.run(["systemd-analyze", "security", "--offline=yes", f"--root={self.root}",
                                   f"--threshold={EXPOSURE}", name], check=False, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
            verdict = [line for line in done.stdout.splitlines() if "Overall exposure" in line] or [done.stdout]
            print(verdict[0])
            self.assertEqual(done.returncode, 0, verdict[0])


class Service(Unpacked):
    """The program of the package, run as its unit runs it."""

    def serve(self, *before, **more):
        return self.start([*before, self.program, "serve", "--listen", "127.0.0.1:0"], **more)

    def start(self, command, **more):
        """(process, data directory, the manager's socket) of a server or node that has said that it is ready."""
        data = tempfile.mkdtemp(dir=self.folder)
        if "user" in more:
            os.chown(data, more["user"], -1)
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.settimeout(PATIENCE_S)
        manager.bind(os.path.join(data, "notify"))
        os.chmod(os.path.join(data, "notify"), 0o666)
        self.addCleanup(manager.close)
        environment = {**os.environ, "NOTIFY_SOCKET": os.path.join(data, "notify"), "WATCHDOG_USEC": "400000"}
        process = subprocess.Popen([*command, "--data", data], env=environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, **more)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(manager.recv(64), b"READY=1")
        return process, data, manager

    def stop(self, process, data):
        with open(os.path.join(data, "lock"), encoding="utf-8") as file:
            os.kill(int(file.read()), signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_S), 0)

    def test_tells_the_manager_that_it_is_ready_alive_and_stopping(self):
        process, data, manager = self.serve()
        self.assertEqual([manager.recv(64) for _ in range(3)], [b"WATCHDOG=1"] * 3)
        self.stop(process, data)
        manager.settimeout(0)
        rest = []
        try:
            while True:
                rest.append(manager.recv(64))
        except BlockingIOError:
            pass
        self.assertEqual(rest.count(b"STOPPING=1"), 1, rest)

    def test_a_node_is_ready_while_it_waits_to_be_let_in(self):
        with socket.socket() as taken:  # nobody listens there, nor will
            taken.bind(("127.0.0.1", 0))
            command = [self.program, "node", "--accept-code", "--join", f"127.0.0.1:{taken.getsockname()[1]}"]
            process, _, manager = self.start(command)
            self.assertEqual(manager.recv(64), b"WATCHDOG=1")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(PATIENCE_S), 0)

    @unittest.skipUnless(os.getuid() == 0, "it takes root to start it as somebody else")
    def test_no_other_process_of_its_user_may_look_into_it(self):
        # The files in /proc of a process that may not be looked into belong to root; of any other, to its user.
        with subprocess.Popen(["sleep", "60"], user=NOBODY) as plain:
            owners = [owner(plain.pid)]
            plain.kill()
        os.chmod(self.folder, 0o755)
        process, data, _ = self.serve(user=NOBODY)
        until = time.monotonic() + PATIENCE_S
        mine = []
        while mine != [0, 0] and time.monotonic() < until:  # the node begins later, and as any other process
            time.sleep(0.1)
            node = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], check=False, text=True,
                                  stdout=subprocess.PIPE, timeout=PATIENCE_S).stdout.split()  # 1 where there is none
            mine = [owner(pid) for pid in [process.pid] + node]
        owners += mine
        self.assertEqual(owners, [NOBODY, 0, 0], "a plain process, the server, its node")
        self.stop(process, data)

    @unittest.skipUnless(shutil.which("strace") and shutil.which("systemd-analyze"), "strace or systemd-analyze is not installed")
    def test_makes_no_system_call_that_its_unit_refuses(self):
        with open(os.path.join(self.units, "exogpu.service.d/restrictions.conf"), encoding="utf-8") as file:
            allowed, = re.findall(r"^SystemCallFilter=(.*)$", file.read(), re.M)
        allowed = set().union(*(members(word) if word.startswith("@") else {word} for word in allowed.split()))
        trace = os.path.join(self.folder, "trace")
        process, data, _ = self.serve("strace", "-f", "-qq", "-e", "signal=none", "-o", trace)
        passed = []
        until = time.monotonic() + PATIENCE_S
        while not passed and time.monotonic() < until:
            time.sleep(0.5)
            devices = json.loads(output(self.program, "devices", "--data", data, "--json"))["devices"]
            passed = [one["device_id"] for one in devices if one["verification"]["state"] == "passed"]
        self.assertTrue(passed, "a device is verified")
        for device in passed:
            with subprocess.Popen([self.program, "alloc", device, "1MiB", "--data", data], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) as holder:
                self.assertNotEqual(holder.stdout.readline(), "", "a session holds memory in a worker of its own")
                holder.send_signal(signal.SIGINT)
                self.assertEqual(holder.wait(PATIENCE_S), 0, holder.stdout.read())
        self.stop(process, data)
        with open(trace, encoding="utf-8", errors="replace") as file:
            made = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", file.read(), re.M))
        self.assertIn("landlock_restrict_self", made)
        self.assertGreater(len(made), 40)
        print(f"{len(made)} different system calls")
        self.assertEqual(sorted(made - allowed), [])


if __name__ == "__main__":
    unittest.main()
