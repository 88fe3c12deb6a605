"""What the parts of ./dev owe to a stage: one that ends without a result is no success. What a stage only wants is installed where apt
has it, and is no failure elsewhere."""
import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def side_by_side(*functions):
    script = """set -euo pipefail
        source tools/dev/steps.sh
        source tools/dev/test.sh
        well() { echo well >&2; }
        dies() { exit 3; }
        side_by_side %s
        echo reached""" % " ".join(functions)
    with tempfile.TemporaryDirectory() as log_dir:
        return subprocess.run(["bash", "-c", script], cwd=ROOT, env={**os.environ, "log_dir": log_dir}, capture_output=True,
                              text=True, check=False)


class SideBySide(unittest.TestCase):
    def test_all_are_waited_for_and_heard(self):
        ran = side_by_side("well", "well")
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "reached\n", "well\nwell\n"))

    def test_one_that_dies_ends_it_wherever_it_stands(self):
        for functions in (("dies", "well"), ("well", "dies")):
            ran = side_by_side(*functions)
            self.assertNotEqual(ran.returncode, 0, functions)
            self.assertEqual(ran.stdout, "")
            self.assertIn("well\n", ran.stderr)
            self.assertIn("dies", ran.stderr)


class Wanted(unittest.TestCase):
    def want(self, known, program):
        script = """set -euo pipefail
            source tools/dev/steps.sh
            log_dir=$LOGS
            source tools/dev/packages.sh
            apt-cache() { [ "$2" = "%s" ]; }
            apt_install() { echo "$@" >>"$log_dir/installed"; false; }
            want_package %s
            echo reached""" % (known, program)
        with tempfile.TemporaryDirectory() as log_dir:
            ran = subprocess.run(["bash", "-c", script], cwd=ROOT, env={**os.environ, "LOGS": log_dir}, capture_output=True,
                                 text=True, check=False)
            installed = os.path.join(log_dir, "installed")
            with open(installed if os.path.exists(installed) else os.devnull, encoding="utf-8") as file:
                return ran.stdout, file.read()

    def test_it_is_installed_where_apt_has_it(self):
        self.assertEqual(self.want("such-a-program", "such-a-program"), ("reached\n", "such-a-program\n"))

    def test_it_is_done_without_elsewhere(self):
        self.assertEqual(self.want("another", "such-a-program"), ("reached\n", ""))
        self.assertEqual(self.want("bash", "bash"), ("reached\n", ""))

    def test_a_whole_run_wants_the_headless_browser(self):
        with open(os.path.join(ROOT, "tools/dev/test.sh"), encoding="utf-8") as file:
            self.assertIn("want_package chromium-headless-shell", file.read())


if __name__ == "__main__":
    unittest.main()
