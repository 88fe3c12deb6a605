"""What the parts of ./dev owe to a stage: one that ends without a result is no success."""
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


if __name__ == "__main__":
    unittest.main()
