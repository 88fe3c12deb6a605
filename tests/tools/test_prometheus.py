"""The rules and the board of docs/prometheus: promtool takes them, and each metric that they name is one that the server
prints. Without promtool (Debian: prometheus) what needs it is skipped, which the result says."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "docs", "prometheus")
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
METRIC = re.compile(r"\bexogpu_[a-z_]+\b")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def expressions():
    """Those of the board, with what Grafana puts into the place of its variables."""
    board = json.loads(read(FOLDER, "grafana.json"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$job", "exogpu").replace("$instance", ".*")


def promtool(*arguments):
    done = subprocess.run([PROMTOOL, *arguments], cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


class Prometheus(unittest.TestCase):
    def test_metrics(self):
        printed = set(METRIC.findall(read(ROOT, "server", "http", "metrics.c")))
        named = set(METRIC.findall("\n".join(expressions()))) | set(METRIC.findall(
            "\n".join(re.findall(r"^ *expr: (.*)$", read(FOLDER, "alerts.yml"), re.M))))
        self.assertGreater(len(named), 15)
        self.assertEqual(named - printed, set(), "the server prints no such metric")

    def test_board(self):
        board = json.loads(read(FOLDER, "grafana.json"))
        ids = [panel["id"] for panel in board["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in board["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            self.assertTrue(panel["targets"], panel["title"])

    @unittest.skipUnless(PROMTOOL, "no promtool here: install prometheus, or name it with PROMTOOL")
    def test_rules(self):
        for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
            code, said = promtool(*arguments)
            self.assertEqual(code, 0, said)
        code, said = promtool("check", "config", "--syntax-only", "prometheus.yml")
        self.assertEqual(code, 0, said)

    @unittest.skipUnless(PROMTOOL, "no promtool here: install prometheus, or name it with PROMTOOL")
    def test_expressions(self):
        rules = [{"record": f"board:{at}", "expr": one} for at, one in enumerate(expressions())]
        with tempfile.NamedTemporaryFile("w", suffix=".yml", encoding="utf-8") as file:
            json.dump({"groups": [{"name": "board", "rules": rules}]}, file)  # JSON is YAML
            file.flush()
            code, said = promtool("check", "rules", file.name)
            self.assertEqual(code, 0, said)
            self.assertIn(f"{len(rules)} rules found", said)


if __name__ == "__main__":
    unittest.main()
