"""The counts of ./dev bench fuzz: they survive an end, belong to one build of a target, and a fault is told.

Run by ./dev test (stage lint): python3 -m unittest discover -s tests/tools
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
FUZZ = os.path.join(HERE, "..", "bench", "fuzz.py")
sys.path.insert(0, os.path.dirname(FUZZ))

import fuzz  # noqa: E402

# Says what libFuzzer says of 1,000 runs in a tenth of a second, until it has those it was told to do.
PROGRAM = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile sig_atomic_t over;
static void stop(int number) { (void)number; over = 1; }
int main(int argc, char **argv)
{
	long runs = 0, wanted = 0;
	signal(SIGINT, stop);
	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], "-runs=", 6))
			wanted = atol(argv[i] + 6);
	fprintf(stderr, "#2\tINITED cov: %d ft: 20 corp: 1/1b\n", COVERAGE);
	for (; runs < wanted && !over; runs += 1000) {
		usleep(100000);
		FILE *begun = fopen(BEGUN, "w"); // it has runs that count
		if (begun)
			fclose(begun);
	}
	if (BREAKS) {
		fprintf(stderr, "SUMMARY: AddressSanitizer: heap-buffer-overflow a.c:1 in f\n");
		return 77;
	}
	fprintf(stderr, "stat::number_of_executed_units: %ld\n", runs < wanted ? runs : wanted);
	return over ? 72 : 0;
}
"""


@unittest.skipUnless(shutil.which("cc") and shutil.which("objcopy"), "no compiler")
class FuzzTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        os.mkdir(os.path.join(self.folder, "programs"))

    def make(self, name, coverage=10, breaks=0):
        source = os.path.join(self.folder, name + ".c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        subprocess.run(["cc", "-w", f"-DCOVERAGE={coverage}", f"-DBREAKS={breaks}", f'-DBEGUN="{self.folder}/begun"', source, "-o",
                        os.path.join(self.folder, "programs", "fuzz_" + name)], check=True)

    def start(self, *arguments):
        return subprocess.Popen([sys.executable, "-B", FUZZ, "--programs", os.path.join(self.folder, "programs"),
                                 "--folder", self.folder, "--known", self.folder, *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_all(self, *arguments):
        child = self.start(*arguments)
        out, err = child.communicate(timeout=60)
        return child.returncode, out, err

    def counts(self):
        with open(os.path.join(self.folder, "runs.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_log(self):
        self.assertEqual(fuzz.parse_log("#2\tINITED cov: 7 ft: 8\n#128\tNEW    cov: 9 ft: 11 corp: 2/3b\n"), (128, 9))
        self.assertEqual(fuzz.parse_log("#64\tpulse cov: 9\nstat::number_of_executed_units: 99\n"), (99, 9))
        self.assertEqual(fuzz.parse_log(""), (0, 0))

    def test_pace(self):
        self.assertEqual(fuzz.pace_of({"cpu_runs": 5000, "cpu": 2.5}, 10_000_000), "2,000 | 1.4")
        self.assertEqual(fuzz.pace_of({"runs": 7}, 10), "- | -")  # of before it was counted
        counts = fuzz.Counts(os.path.join(self.folder, "paces"))
        counts.add("one", "key", 10, 9, 0.5, 1)
        counts.add("one", "key", 30, 9, 1.5, 1)
        self.assertEqual(fuzz.pace_of(counts.get("one", "key"), 72000), "20 | 1.0")

    def test_goes_on_after_an_end(self):
        self.make("one")
        child = self.start("--runs", "100000")
        while not os.path.exists(os.path.join(self.folder, "begun")):
            self.assertIsNone(child.poll())
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=30)
        self.assertEqual(child.returncode, fuzz.LEFT)
        before = self.counts()["one"]["runs"]
        self.assertIn(f"| one | {before:,} |", out)
        self.assertTrue(0 < before < 100000)
        status, _, _ = self.run_all("--runs", str(before + 2000))
        self.assertEqual((status, self.counts()["one"]["runs"]), (0, before + 2000))
        self.assertEqual(self.run_all("--list", "--runs", str(before + 2001))[0], fuzz.LEFT)

    def test_another_build_begins_anew(self):
        self.make("one")
        self.assertEqual(self.run_all("--runs", "3000")[0], 0)
        first = self.counts()["one"]
        self.make("one", coverage=11)
        self.assertEqual(self.run_all("--runs", "2000")[0], 0)
        self.assertEqual((first["runs"], self.counts()["one"]["runs"]), (3000, 2000))
        self.assertNotEqual(first["build"], self.counts()["one"]["build"])

    def test_a_fault_is_told_and_others_go_on(self):
        self.make("bad", breaks=1)
        self.make("good")
        status, out, err = self.run_all("--runs", "1000", "--jobs", "1")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"\| bad \|.*heap-buffer-overflow")
        self.assertRegex(out, r"\| good \| 1,000 \|")
        self.assertIn("bad broke", err)

    def test_each_target_has_its_row_in_the_documents(self):
        top = os.path.join(HERE, "..", "..")
        with open(os.path.join(top, "docs", "reliability.md"), encoding="utf-8") as file:
            rows = set(re.findall(r"^\| `(\w+)` \| .* \| .* \|$", file.read(), re.MULTILINE))
        targets = {name[len("fuzz_"):-len(".c")] for _, _, names in os.walk(os.path.join(top, "tests", "fuzz"))
                   for name in names if re.fullmatch(r"fuzz_\w+\.c", name)}
        self.assertEqual(targets - rows, set())

    def test_unknown_targets_are_refused(self):
        self.make("one")
        status, _, err = self.run_all("two")
        self.assertEqual(status, 1)
        self.assertIn("there is no target two: one", err)


if __name__ == "__main__":
    unittest.main()
