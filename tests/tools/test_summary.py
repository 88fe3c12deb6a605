"""The closing line of ./dev test: what is counted, what is named."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SUMMARY = os.path.join(HERE, "..", "..", "tools", "dev", "summary.py")


class SummaryTest(unittest.TestCase):
    def run_summary(self, cases):
        """(exit status, lines) for testcase elements as ctest writes them."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "debug.xml"), "w", encoding="utf-8") as file:
                file.write("<testsuite>%s</testsuite>" % "".join(cases))
            done = subprocess.run([sys.executable, "-B", SUMMARY, folder], stdout=subprocess.PIPE,
                                  universal_newlines=True)
            return done.returncode, done.stdout.splitlines()

    def case(self, output="", status="run", inner=""):
        return "<testcase name=\"a\" status=\"%s\">%s<system-out>%s</system-out></testcase>" % (status, inner, output)

    def test_one_test_one_count(self):
        self.assertEqual(self.run_summary([self.case()]), (0, ["1 passed, 0 failed, 0 skipped"]))

    def test_nothing_ran_is_a_failure(self):
        self.assertEqual(self.run_summary([]), (1, ["no test ran", "0 passed, 0 failed, 0 skipped"]))

    def test_cases_inside_are_counted_and_skips_named(self):
        node = self.case("ok 1 - x\nok 2 - y # SKIP no GPU\n# pass 1\n# fail 0\n# cancelled 0\n# skipped 1\n")
        cmocka = self.case("[==========] Running 2 test(s).\nno GPU\n[  SKIPPED ] b\n[  PASSED  ] 1 test(s).\n"
                           "[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] b\n")
        self.assertEqual(self.run_summary([node, cmocka]), (0, [
            "SKIPPED  debug: a", "         y: no GPU", "SKIPPED  debug: a", "         b: no GPU",
            "2 passed, 0 failed, 2 skipped"]))

    def test_skips_of_unittest_are_named_too(self):
        output = ("test_x (m.T) ... ok\ntest_y (m.T.test_y) ... skipped 'no lintian'\n\n---\n"
                  "Ran 2 tests in 0.1s\n\nOK (skipped=1)\n")
        self.assertEqual(self.run_summary([self.case(output)]), (0, [
            "SKIPPED  debug: a", "         test_y: no lintian", "1 passed, 0 failed, 1 skipped"]))

    def test_failures_of_unittest_are_named_with_their_exception(self):
        rule = "-" * 70
        output = ("test_x (m.T.test_x) ... FAIL\n\n" + "=" * 70 + "\nFAIL: test_x (m.T.test_x)\n" + rule +
                  "\nTraceback (most recent call last):\n  File \"m.py\", line 5, in test_x\n"
                  "AssertionError: 1 != 2 : why\n\n" + rule + "\nRan 2 tests in 0.1s\n\nFAILED (failures=1)\n")
        status, lines = self.run_summary([self.case(output, "run", "<failure message=\"exit status 1\"/>")])
        self.assertEqual((status, lines[-4:]), (1, [
            "FAILED  debug: a", "         exit status 1", "         test_x: AssertionError: 1 != 2 : why",
            "1 passed, 1 failed, 0 skipped"]))

    def test_failures_of_cmocka_are_named_with_their_reason(self):
        output = ("[ RUN      ] b\nthe last report[  ERROR   ] --- 2 != 1\n[   LINE   ] --- a.c:9: error: Failure!\n"
                  "[  FAILED  ] b\n[==========] 1 test(s) run.\n[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] b\n")
        status, lines = self.run_summary([self.case(output, "run", "<failure message=\"\"/>")])
        self.assertEqual((status, lines[-3:]), (1, [
            "FAILED  debug: a", "         b: 2 != 1 | [   LINE   ] --- a.c:9: error: Failure!",
            "0 passed, 1 failed, 0 skipped"]))

    def test_skip_by_exit_status(self):
        skip = self.case("skipped: no NVIDIA device", "notrun", "<skipped message=\"SKIP_RETURN_CODE=77\"/>")
        self.assertEqual(self.run_summary([self.case(), skip]), (0, [
            "SKIPPED  debug: a", "         skipped: no NVIDIA device", "1 passed, 0 failed, 1 skipped"]))

    def test_a_test_that_could_not_start_has_failed(self):
        gone = self.case("", "notrun", "<skipped message=\"Unable to find executable\"/>")
        status, lines = self.run_summary([self.case(), gone])
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_crash_after_the_counts_is_a_failure(self):
        crash = self.case("# pass 3\n# fail 0\nWARNING: ThreadSanitizer: data race\n", "fail", "<failure message=\"\"/>")
        self.assertEqual(self.run_summary([crash]), (1, [
            "---- debug: a said:", "  | # pass 3", "  | # fail 0",
            "  | WARNING: ThreadSanitizer: data race", "FAILED  debug: a", "         WARNING: ThreadSanitizer: data race", "3 passed, 1 failed, 0 skipped"]))

    def test_a_failure_is_told_by_how_its_message_begins_and_ends(self):
        said = "".join("          line %d\n" % i for i in range(200))
        node = self.case("    not ok 1 - x\n      ---\n      duration_ms: 1\n      error: |-\n        it began\n%s"
                         "        it ended\n        \n        130 !== 0\n        \n      code: 'E'\n      ...\n"
                         "not ok 1 - outer\n  ---\n  error: '1 subtest failed'\n  ...\nok 2 - y # SKIP no GPU\n"
                         "# pass 0\n# fail 1\n# skipped 1\n" % said, "fail", "<failure message=\"\"/>")
        status, lines = self.run_summary([node])
        failed, why, total = lines[-3:]
        self.assertEqual((status, lines[:2], lines[2], failed, total), (
            1, ["SKIPPED  debug: a", "         y: no GPU"], "---- debug: a said:", "FAILED  debug: a",
            "0 passed, 1 failed, 1 skipped"))
        self.assertRegex(why, r"^         x: it began \| line 0 .* \[\.\.\.\] .* line 199 \| it ended \| 130 !== 0$")
        self.assertLess(len(why), 700)

    def test_a_skip_says_so(self):
        for output, total in (("skipped: no buildah", "0 passed, 0 failed, 1 skipped"), ("deadly signal", "0 passed, 1 failed, 0 skipped")):
            with tempfile.TemporaryDirectory() as folder:
                log = os.path.join(folder, "a.log")
                with open(log, "w", encoding="utf-8") as file:
                    file.write(output)
                subprocess.run([sys.executable, "-B", SUMMARY, "--record", os.path.join(folder, "a.xml"), "a", "77", "1", log],
                               check=True)
                done = subprocess.run([sys.executable, "-B", SUMMARY, folder], stdout=subprocess.PIPE, universal_newlines=True)
            self.assertEqual(done.stdout.splitlines()[-1], total, output)


if __name__ == "__main__":
    unittest.main()
