"""The lint itself: each rule finds what it is for, and nothing in code that is as it should be.

Run by ./dev test (stage lint): python3 -m unittest discover -s tests/tools
"""
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools", "lint"))

import calls      # noqa: E402
import documents  # noqa: E402
import layers     # noqa: E402
import messages   # noqa: E402
import schema     # noqa: E402
import sentences  # noqa: E402
import text       # noqa: E402
import tree       # noqa: E402
import typescript  # noqa: E402


class LintTest(unittest.TestCase):
    def findings(self, rule, files):
        """[(path, line, rule)] of the errors in a repository of these files."""
        with tempfile.TemporaryDirectory() as root:
            for path, content in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8", newline="") as file:
                    file.write(content)
            return [(found.path, found.line, found.rule) for found in rule.check(tree.Tree(root))
                    if found.severity == "error"]

    def test_sentences_and_their_texts(self):
        source = ("enum status f(void)\n{\n\tlog_info(\"x\", \"a line of the log\");\n\tif (!strcmp(a, \"no sentence either\"))\n"
                  "\t\terror_hint(error, \"take \" \"fewer\\n\");\n"
                  "\treturn error_set(error, 1, \"%s has %\" PRIu64 \" layer%s, \\\"%.2f\\\"\",\n\t\tname, n > 1 ? \"are too many\" : \"\"); // it is so\n}\n")
        key = '%s has %lu layer%s, "%.2f"'
        self.assertEqual(sentences.plain('a \\"b\\" \\xc3\\xab \u00e9'), 'a "b" \u00eb \u00e9')
        listed = {area: [] for area in sentences.AREAS}
        listed["alerts"] = sorted(["are too many", key])
        listed["wire"] = sorted(sentences.JOINTS)
        files = {"server/alerts/a.c": source, sentences.LIST: sentences.printed(listed, {key: "n..."})}
        texts = lambda *lines: "export default {\n" + "".join("  %s: %s,\n" % tuple(map(json.dumps, line)) for line in lines) + "};\n"
        whole = [(key, "{1} hat {2n} Schichten, {4}"), ("are too many", "sind zu viele"), ("%s%s", "{1}{2}"), ("%s%s%s", "{1}{2}{3}")]
        german = "ui/src/text/de/server/alerts.ts"
        self.assertEqual(self.findings(sentences, {**files, german: texts(*whole)}), [])
        self.assertEqual(sentences.told("%.*s, %d of %s: %s", ["width", "node->name", "3", "n > 1 ? \"nodes\" : \"\"", "why"]), "n.w.")
        unnamed = {**files, "server/alerts/a.c": source.replace("\t\tname,", "\t\twhy,"), german: texts(*whole)}
        self.assertEqual(self.findings(sentences, unnamed), [(sentences.LIST, 1, "sentences")], "what is printed is no name any more")
        self.assertEqual(self.findings(sentences, {**files, german: texts(*whole[1:])}), [(sentences.LIST, 1, "sentences")])
        for wrong in ("{1} hat {2} Schichten", "{1} hat {2} Schichten, {4} {5}"):
            self.assertEqual(self.findings(sentences, {**files, german: texts((key, wrong), *whole[1:])}), [(german, 2, "sentences")])
        self.assertEqual(self.findings(sentences, {**files, german: texts(*whole, ("gone since", "seitdem weg"))}), [(german, 6, "sentences")])
        self.assertEqual(self.findings(sentences, {**files, german: texts(*whole, whole[1])}), [(german, 6, "sentences")])
        self.assertEqual(self.findings(sentences, {**files, "server/alerts/b.c": "const char *s = \"one more of them\";\n", german: texts(*whole)}),
                         [(sentences.LIST, 1, "sentences")] * 2, "the list lacks it, and so does German")

    def test_calls_are_found_in_code_only(self):
        found = self.findings(calls, {"common/base/a.c": (
            "/* strcpy(a, b) */\n// atoi(x)\nconst char *s = \"sprintf(\";\nint n = atoi(s);\n"
            "thing->system(1);\nmy_rand();\nstrcpy (a, b);\ntypedef struct { int x; } y;\n")})
        self.assertEqual(found, [("common/base/a.c", 4, "calls"), ("common/base/a.c", 7, "calls"),
                                 ("common/base/a.c", 8, "typedef")])

    def test_layers_go_one_way(self):
        good = {
            "common/base/base.h": "", "common/json/json.h": "#include \"common/base/base.h\"\n",
            "server/store/sqlite/driver.h": "#include <sqlite3.h>\n",
            "server/store/db.c": "#include \"server/store/sqlite/driver.h\"\n",
            "server/store/store.h": "#include \"common/json/json.h\"\n",
            "server/api/api.c": "#include \"server/store/store.h\"\n// #include \"engine/cpu/cpu.h\"\n",
            "engine/cpu/cpu.h": "", "engine/cuda/cuda.h": "",
        }
        self.assertEqual(self.findings(layers, good), [])
        for path, line in (
                ("common/base/up.c", "#include \"common/json/json.h\""),
                ("server/store/up.c", "#include \"server/api/api.h\""),
                ("server/api/back_end.c", "#include \"engine/cpu/cpu.h\""),
                ("engine/cuda/other.c", "#include \"engine/cpu/cpu.h\""),
                ("engine/cpu/server.c", "#include \"server/store/store.h\""),
                ("server/store/sql.c", "#include <sqlite3.h>"),
                ("server/store/by.c", "#include \"server/store/sqlite/driver.h\""),
                ("server/http/net.c", "#include <libwebsockets.h>"),
                ("server/api/json.c", "#include <cjson/cJSON.h>"),
                ("engine/cpu/near.c", "#include \"cpu.h\""),
                ("elsewhere/a.c", "int a;")):
            files = dict(good, **{path: line + "\n", "server/api/api.h": ""})
            self.assertEqual([(found[0], found[2]) for found in self.findings(layers, files)], [(path, "layers")],
                             line)

    def test_insides_are_for_their_own(self):
        include = "#include \"server/instances/instances_inside.h\"\n"
        files = {path: include for path in ("server/instances/instances.c", "server/instances/instances_see.c",
                                            "server/instances/placing/act.c", "server/api/instance.c",
                                            "server/api/instances.c", "tests/server/instances/test_see.c")}
        files["server/instances/instances_inside.h"] = ""
        self.assertEqual([found[0] for found in self.findings(layers, files)], ["server/api/instance.c", "server/api/instances.c"])

    def test_calls_are_sent_by_one(self):
        call = "// message_print_call(\nvoid f(void)\n{\n\tmessage_print_call(&head, id, \"m\", params);\n}\n"
        found = self.findings(messages, {
            "common/wire/rpc.c": call, "tests/test_a.c": call, "engine/worker/answer.c": call,
            "server/api/a.c": call, "server/api/b.c": call.replace("call(&", "call_of(&"),
            "server/api/c.c": "int message_print_result(int a);\n", "server/tenants/hop.c": "int a;\n"})
        self.assertEqual(sorted(found), [("server/api/a.c", 4, "messages"), ("server/api/b.c", 4, "messages"),
                                         ("server/tenants/hop.c", 1, "messages")])

    def test_documents_name_what_is_there(self):
        files = {"engine/cpu/team.c": "void team_run(void)\n", "engine/cpu/team.h": "", "tests/engine/cpu/test_team.c": "",
                 "docs/a.md": "[b](b.md#part) [web](https://example.org/x.md)\n", "docs/b.md": "# part\n",
                 "docs/notes/old.md": "`engine/gone.c` [c](c.md)\n",
                 "ui/.gitignore": "node_modules/\nsrc/made.ts\n", "ui/a.ts": "", "ui/logo.png": "",
                 "README.md": "`ui/src/made.ts` `ui/logo.png` [a](docs/a.md) `engine/cpu/` `engine/cpu/team` `engine/*/team.{c,h}` `mine.mjs` `a/b`\n"}
        self.assertEqual(self.findings(documents, files), [])
        for line, good in (("`engine/cpu/team.c` (`team_run`)", True), ("`engine/cpu/team.c` (`team_walk`)", False),
                           ("`engine/cpu/gone.c`", False), ("`engine/gone/`", False), ("`team.c`", True),
                           ("`gone.c`", False), ("[b](../b.md#part)", True), ("[b](../b.md#gone)", False), ("[d](#d)", True),
                            ("`engine/cpu/{team,gone}.c`", False), ("[c](c.md)", False),
                           ("`engine/cpu/team-vectors`", True), ("`engine/gpu/team-vectors`", False),
                           ("`engine/NAME/team.c`", True)):
            found = self.findings(documents, dict(files, **{"docs/c/d.md": "# d\n" + line + "\n"}))
            self.assertEqual(found, [] if good else [("docs/c/d.md", 2, "documents")], line)
        named = dict(files, **{"docs/architecture.md": "`team_run`\n`team_walk`\n"})
        self.assertEqual(self.findings(documents, named), [("docs/architecture.md", 2, "documents")])

    def test_typescript(self):
        found = self.findings(typescript, {
            "ui/src/a.ts": "import { b } from \"./b\";\nexport const a: any = b; // as any\nconst s = \"x as any\";\n",
            "ui/src/b.ts": "import {\n\tc,\n} from \"./c\";\nexport const b = <any>c;\nconst company = `: any`;\n",
            "ui/src/c.ts": "import { a } from \"./a\";\nimport type { D } from \"./d\";\nexport const c = a;\n",
            "ui/src/d.ts": "import { c } from \"./c\";\nexport type D = { any: number };\n"})
        self.assertEqual(sorted(found), [("ui/src/a.ts", 2, "any"), ("ui/src/b.ts", 4, "any"),
                                         ("ui/src/c.ts", 1, "cycle")])

    def test_text(self):
        found = self.findings(text, {
            "a.c": "int a; \n \tint b;\n// " + "TO" + "DO\nmkstemp(\"/tmp/x-XXXXXX\");\n\"/ho" + "me/ann/x\"",
            "b.md": "Two spaces end a line  \nof text.\n"})
        self.assertEqual(sorted(found), [("a.c", 1, "whitespace"), ("a.c", 2, "whitespace"), ("a.c", 3, "words"),
                                         ("a.c", 5, "paths"), ("a.c", 5, "whitespace")])

    def schema_findings(self, schemas, **method):
        method = dict({"name": "a.b", "summary": "s", "paramStructure": "by-name", "params": [], "x-scope": "observe",
                       "result": {"name": "r", "schema": {"$ref": "#/components/schemas/R"}}}, **method)
        document = {"openrpc": "1.3.2", "methods": [method], "components": {"schemas": schemas}}
        return self.findings(schema, {"schema/api.json": json.dumps(document) + "\n"})

    def test_schema(self):
        record = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"],
                  "additionalProperties": False}
        self.assertEqual(self.schema_findings({"R": record}), [])
        for broken in (dict(record, required=[]), dict(record, patternProperties={}), dict(record, required=["x", "y"]),
                       {"type": "text"}, {"type": "array"}, {}, {"$ref": "#/components/schemas/None"}):
            self.assertEqual(len(self.schema_findings({"R": broken})), 1, broken)
        self.assertEqual(len(self.schema_findings({"R": record}, **{"x-scope": "everyone"})), 1)


if __name__ == "__main__":
    unittest.main()
