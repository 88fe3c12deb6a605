"""LICENSES-THIRD-PARTY and the bill of materials of the packages: everything that is linked, bundled or compiled in is in
them, found here by other means than those that write them; and what is unknown or under no allowed licence is refused.

usage: EXOGPU_PACKAGES=FOLDER python3 -m unittest discover -s tests/packaging"""

import glob
import json
import os
import re
import subprocess
import sys
import unittest

from test_package import PACKAGES, Unpacked, output

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools/package"))
import third_party  # noqa: E402 (found by the line above)

KEPT = os.environ.get("EXOGPU_PUBLISHED") or os.path.join(ROOT, "build/published")
VALIDATOR = ("cyclonedx-python-lib", "11.12.0")  # by those who make the format; it brings the published schema
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(path, encoding="utf-8").read())
    print("valid" if fault is None else fault)
"""


def validator():
    """The folder of the validator, fetched once; or None, where it cannot be had."""
    folder = os.path.join(KEPT, "-".join(VALIDATOR))
    if not os.path.exists(os.path.join(folder, "cyclonedx")):
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:",
                        "--retries", "1", "--timeout", "20", "--target", folder, f"{VALIDATOR[0]}[json-validation]=={VALIDATOR[1]}"],
                       check=False, timeout=300, stderr=subprocess.DEVNULL)
    return folder if os.path.exists(os.path.join(folder, "cyclonedx")) else None


def refused(function, *words):
    try:
        function(*words)
    except third_party.Unlisted as fault:
        return str(fault)
    return "not refused"


class ThirdParty(Unpacked):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        documents = os.path.join(cls.root, "usr/share/doc/exogpu")
        cls.bill = os.path.join(documents, "exogpu.cdx.json")
        with open(os.path.join(documents, "LICENSES-THIRD-PARTY"), encoding="utf-8") as file:
            cls.text = file.read()
        with open(cls.bill, encoding="utf-8") as file:
            cls.parts = json.load(file)["components"]
        cls.libraries = glob.glob(os.path.join(cls.root, "usr/lib/*/libexogpu*.so.*.*.*"))

    def test_names_every_library_that_is_loaded(self):
        self.assertEqual(len(self.libraries), 2)
        billed = {one["value"] for part in self.parts for one in part.get("properties", []) if one["name"] == "linked"}
        for path in [self.program] + self.libraries:
            loaded = {os.path.basename(line.split()[0]) for line in output("ldd", path).splitlines()} - {"linux-vdso.so.1"}
            self.assertGreater(len(loaded), 3)
            self.assertEqual(sorted(loaded - billed), [], path)
            self.assertEqual([name for name in loaded if f"\n  {name} " not in self.text], [], path)

    def test_nothing_of_others_is_linked_statically(self):
        with open(os.path.join(PACKAGES, "build.ninja"), encoding="utf-8") as file:
            linked = re.findall(r"^  LINK_LIBRARIES = (.*)$", file.read(), re.M)
        archives = {word for line in linked for word in line.split() if word.endswith(".a")}
        self.assertEqual(archives - {"tests/libconformance.a"}, {"libcommon.a", "libengine.a", "libserver.a"})

    def test_names_every_package_of_the_dashboard(self):
        with open(os.path.join(ROOT, "ui/package-lock.json"), encoding="utf-8") as file:
            lock = json.load(file)["packages"]
        installed = {place.removeprefix("node_modules/"): one["version"] for place, one in lock.items()
                     if place and not one.get("dev") and not one.get("optional")}
        tools = {one["name"] for one in third_party.table()["bundler"]}
        billed = {part["name"]: part["version"] for part in self.parts if part.get("purl", "").startswith("pkg:npm/")}
        self.assertEqual(billed, {name: version for name, version in installed.items() if name not in tools})
        for name, version in billed.items():
            _, _, after = self.text.partition(f"\n{name} {version}\n\n")
            self.assertIn("Permission is hereby granted", after.split("-" * 78)[0], name)

    def test_the_dashboard_brings_no_font_or_picture_of_others(self):
        with open(os.path.join(PACKAGES, "ui/assets.json"), encoding="utf-8") as file:
            media = [one["file"] for one in json.load(file) if not re.search(r"\.(js|css|html|txt|webmanifest)$", one["file"])]
        self.assertEqual([name for name in media if not re.fullmatch(r"icon(-192|-512)?-[0-9A-F]{8}\.(svg|png)", name)], [])

    def test_every_kernel_is_made_of_sources_of_this_project(self):
        made, foreign = [], []
        for one in third_party.table()["generated"]:
            sources = {name.partition(".")[0] for name in os.listdir(os.path.join(ROOT, one["sources"]))}
            kernels = glob.glob(os.path.join(PACKAGES, "kernels", one["folder"], "**/*.*"), recursive=True)
            made += [path for path in kernels if os.path.basename(path) != "built.txt"]
            foreign += [path for path in kernels if os.path.basename(path).partition(".")[0] not in sources | {"built"}]
            for path in glob.glob(os.path.join(ROOT, one["sources"], "*")):
                with open(path, encoding="utf-8") as file:
                    foreign += [f"{path}: {name}" for name in re.findall(r"^\s*#\s*include\s*<(.*)>", file.read(), re.M) if name != "stdint.h"]
        known = {one["folder"] for one in third_party.table()["generated"]}
        self.assertGreater(len(made), 20)
        self.assertEqual(foreign, [])
        self.assertEqual(set(os.listdir(os.path.join(PACKAGES, "kernels"))) - known, set())

    def test_the_bill_follows_the_published_schema(self):
        folder = validator()
        if folder is None:
            self.skipTest(f"{VALIDATOR[0]} {VALIDATOR[1]} cannot be had here")
        broken = os.path.join(self.folder, "broken.json")
        with open(self.bill, encoding="utf-8") as file:
            text = file.read()
        with open(broken, "w", encoding="utf-8") as file:
            file.write(text.replace('"type": "library"', '"type": "shelf"', 1))
        told = output(sys.executable, "-c", VALIDATE, self.bill, broken, env={**os.environ, "PYTHONPATH": folder})
        first, rest = told.split("\n", 1)
        self.assertEqual(first, "valid")
        self.assertIn("shelf", rest)

    def test_the_bill_tells_who_needs_whom(self):
        with open(self.bill, encoding="utf-8") as file:
            bill = json.load(file)
        below = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
        names = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
        self.assertEqual((set(below) | {one for some in below.values() for one in some}) - names, set(), "all that are named are there")
        reached, waiting = set(), ["exogpu"]
        while waiting:
            one = waiting.pop()
            if one not in reached:
                reached.add(one)
                waiting += below.get(one, [])
        self.assertEqual(sorted(names - reached), [], "nothing is in it that nobody needs")
        self.assertTrue(any(one.startswith("deb:libcurl") for one in below["own:exogpu"]))

    def test_what_is_not_listed_or_not_allowed_is_refused(self):
        known = third_party.table()
        self.assertIn("libreadline.so.8 is linked and not in", refused(third_party.library, "libreadline.so.8", known))
        self.assertIn("GPL-3.0-only, which", refused(third_party.check, "one", "GPL-3.0-only", True, known))
        self.assertIn("LGPL-2.1-or-later, which", refused(third_party.check, "one", "LGPL-2.1-or-later", False, known))
        self.assertEqual("not refused", refused(third_party.check, "one", "LGPL-2.1-or-later", True, known))
        self.assertEqual("not refused", refused(third_party.check, "one", "BSD-3-Clause OR GPL-2.0-only", False, known))
        ui = os.path.join(self.folder, "dashboard")
        os.mkdir(ui)
        with open(os.path.join(ui, "licenses-0.txt"), "w", encoding="utf-8") as file:
            file.write("preact 0.0.1\n\nText\n")
        self.assertIn("preact 0.0.1 is in the dashboard", refused(third_party.bundled, ui, known))


if __name__ == "__main__":
    unittest.main()
