"""./dev bench: each bench explains itself and refuses what it does not understand, before anything is built."""
import os
import re
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def bench(*arguments):
    return subprocess.run(["./dev", "bench", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


class Usage(unittest.TestCase):
    def test_each_bench_prints_its_usage(self):
        listed = bench("--help").stdout
        names = re.findall(r"^  ([a-z]+) {2,}\S", listed, re.M)
        self.assertIn("abuse", names)
        self.assertGreater(len(names), 20)
        for name in names:
            ran = bench(name, "--help")
            self.assertEqual((ran.returncode, ran.stderr), (0, ""), name)
            self.assertIn(f"./dev bench {name}", ran.stdout)

    def test_a_mistake_is_one_line_with_a_hint(self):
        for words in (["abuse", "--frob"], ["abuse", "--busy"], ["abuse", "--busy", "x"], ["abuse", "--rounds", "0"],
                      ["cluster", "frob"], ["fuzz", "--frob"], ["fuzz", "--runs", "many"],
                      ["faults", "--frob"], ["decode", "--frob"], ["node", "--busy", "3"], ["frob"], ["--busy", "3"], ["node", "decode"]):
            ran = bench(*words)
            self.assertEqual((ran.returncode, ran.stdout), (2, ""), words)
            self.assertRegex(ran.stderr, r"\Adev bench[a-z ]*: .*; see: \./dev bench [a-z ]*--help\n\Z", words)

    def test_the_programs_of_reliability_are_those_of_the_tests(self):
        with open(os.path.join(ROOT, "tests/bench/run.mjs"), encoding="utf-8") as file:
            named = re.findall(r'\["((?:\w+/)?test_\w+)", \{ EXOGPU_', file.read())
        self.assertGreater(len(named), 5)
        for name in named:
            self.assertTrue(os.path.isfile(os.path.join(ROOT, "tests/server/store", name + ".c")), name)


if __name__ == "__main__":
    unittest.main()
